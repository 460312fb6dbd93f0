//! The budget's window, and the reservations of relays and gaps.

use alloy::primitives::B256;

use super::{
    assignments,
    engine::{Db, Row, Value, column, first, text, values},
    locks,
    relays::{self, Rival},
};
use crate::{
    budget::{
        Budget, Window,
        share::{self, Allowance, BudgetUsage, Party},
    },
    store::{DaemonId, ExpectedCost, Reservation, StoreError},
};

pub(super) fn reserve(tx: &Db, id: &B256, wei: u128, limit_wei: u128, now: u64) -> Result<bool, StoreError> {
    let query = "SELECT reserved_wei FROM relays WHERE id = ?1";
    let before = first(tx, query, values![id.0], |row| text::<u128>(row, "reserved_wei"))?;
    let before = before.ok_or(StoreError::Missing("relay"))?;
    let allowed = allow(tx, wei.saturating_sub(before), limit_wei, now)?;
    if allowed {
        set_reserved(tx, id, wei)?;
    }
    Ok(allowed)
}

/// Whether `extra_wei` more may be in flight; if so the window is open afterwards.
pub(super) fn allow(tx: &Db, extra_wei: u128, limit_wei: u128, now: u64) -> Result<bool, StoreError> {
    locks::budget(tx)?;
    let usage = Usage::read(tx, Vec::new(), None, now)?;
    let allowed = usage.budget(limit_wei).allows(extra_wei);
    if allowed {
        write_window(tx, &usage, usage.window.used(now, 0))?;
    }
    Ok(allowed)
}

/// A window in which nothing is paid or reserved has not been opened.
pub(super) fn close_if_unused(tx: &Db, now: u64) -> Result<(), StoreError> {
    locks::budget(tx)?;
    let usage = Usage::read(tx, Vec::new(), None, now)?;
    write_window(tx, &usage, usage.window.unused(usage.reserved_wei))
}

/// Charges what was paid to all parties of the request.
pub(super) fn charge(tx: &Db, relay: Option<&B256>, wei: u128, now: u64) -> Result<(), StoreError> {
    let sender = relay.map(|id| relays::sender(tx, id)).transpose()?.flatten();
    let parties = sender.into_iter().flat_map(|(signer, client)| Party::of(signer, client)).collect();
    locks::budget(tx)?;
    let usage = Usage::read(tx, parties, None, now)?;
    write_window(tx, &usage, usage.window.used(now, wei))?;
    let spent: Vec<[Value; 2]> = usage
        .parties
        .iter()
        .map(|(party, used)| [key(*party).into(), used.settled_wei.saturating_add(wei).to_string().into()])
        .collect();
    /// All parties of a request at once, or one.
    macro_rules! upsert {
        ($rows:literal) => {
            concat!(
                "INSERT INTO spending VALUES ",
                $rows,
                " ON CONFLICT (party) DO UPDATE SET settled_wei = excluded.settled_wei"
            )
        };
    }
    if spent.len() == PARTIES {
        return tx.run(upsert!("(?1, ?2), (?3, ?4), (?5, ?6), (?7, ?8)"), &spent.concat());
    }
    spent.iter().try_for_each(|row| tx.run(upsert!("(?1, ?2)"), row))
}

pub(super) fn reserve_share(
    tx: &Db,
    id: &B256,
    daemon: Option<&DaemonId>,
    cost: &ExpectedCost,
    allowance: &Allowance,
    now: u64,
) -> Result<Reservation, StoreError> {
    locks::relay(tx, id)?;
    let relay = relays::standing(tx, id, None, daemon.is_some())?.ok_or(StoreError::Missing("relay"))?;
    relay.must_be_held_by(daemon)?;
    if relay.rival == Some(Rival::Executed) {
        return Err(StoreError::NonceUsed);
    }
    locks::budget(tx)?;
    let usage = Usage::read(tx, Party::of(relay.signer, relay.client).collect(), Some(id), now)?;
    let checked = usage.check(cost.wei, cost.least_wei, cost.no_op_wei, allowance);
    if checked.denial.is_some() {
        return Ok(checked);
    }
    let ExpectedCost { wei, gas, l1_fee_wei, .. } = *cost;
    tx.run(
        "UPDATE relays SET reserved_wei = ?4, l1_fee_wei = ?2, expected_gas = ?3 WHERE id = ?1",
        values![id.0, l1_fee_wei.to_string(), gas.cast_signed(), wei.to_string()],
    )?;
    let window = usage.window.used(now, 0);
    if usage.window.opened_at.is_none() {
        write_window(tx, &usage, window)?;
    }
    let reserved_wei = usage.reserved_wei.saturating_add(wei);
    Ok(Reservation { denial: None, budget: Budget { window, reserved_wei, ..checked.budget } })
}

/// The most parties that a request has.
const PARTIES: usize = 4;

/// What parties were charged; the window; what is reserved by pending relays, and by gaps that are not filled.
pub(super) const USED: &str = "SELECT party, settled_wei AS wei, CAST(NULL AS BIGINT) AS opened_at,
         CAST(NULL AS BYTEA) AS id, CAST(NULL AS BYTEA) AS signer, CAST(NULL AS BYTEA) AS client,
         CAST(NULL AS BYTEA) AS account, CAST(NULL AS BIGINT) AS nonce
     FROM spending WHERE party IN (?1, ?2, ?3, ?4)
     UNION ALL SELECT NULL, settled_wei, opened_at, NULL, NULL, NULL, NULL, NULL FROM budget
     UNION ALL SELECT NULL, reserved_wei, NULL, id, signer, client, NULL, NULL FROM relays
         WHERE state = 'pending' AND reserved_wei <> '0'
     UNION ALL SELECT NULL, '0', NULL, NULL, NULL, NULL, account, nonce FROM nonces
         WHERE state = 'open' AND relay IS NULL";

/// The parameters of [`USED`].
pub(super) fn keys(parties: &[Party]) -> Vec<Value> {
    let mut keys: Vec<Option<Vec<u8>>> = parties.iter().map(|party| Some(key(*party))).collect();
    keys.resize(PARTIES, None);
    keys.into_iter().map(Value::from).collect()
}

/// The budget's use, in all and by some parties.
pub(super) struct Usage {
    window: Window,
    /// Reserved, but for the own relay.
    reserved_wei: u128,
    /// Reserved by the own relay.
    own_wei: u128,
    parties: Vec<(Party, BudgetUsage)>,
}

impl Usage {
    fn read(db: &Db, parties: Vec<Party>, own: Option<&B256>, now: u64) -> Result<Self, StoreError> {
        let rows = db.query(USED, &keys(&parties))?;
        Self::of(db, &rows, parties, own, now)
    }

    /// The use as rows of [`USED`] tell it.
    pub(super) fn of(
        db: &Db,
        rows: &[Row],
        parties: Vec<Party>,
        own: Option<&B256>,
        now: u64,
    ) -> Result<Self, StoreError> {
        let parties = parties.into_iter().map(|party| (party, BudgetUsage::default())).collect();
        let mut usage = Self { window: Window::default(), reserved_wei: 0, own_wei: 0, parties };
        for row in rows {
            let wei: u128 = text(row, "wei")?;
            if let Some(of) = column::<Option<Vec<u8>>>(row, "party")? {
                let known = usage.parties.iter_mut().find(|(party, _)| key(*party) == of);
                known.into_iter().for_each(|(_, used)| used.settled_wei = wei);
            } else if let Some(id) = column::<Option<[u8; 32]>>(row, "id")? {
                if own.is_some_and(|own| *own == id) {
                    usage.own_wei = wei;
                    continue;
                }
                usage.reserved_wei = usage.reserved_wei.saturating_add(wei);
                let (signer, client) = relays::sender_of(row)?;
                for holder in Party::of(signer, client) {
                    for (_, used) in usage.parties.iter_mut().filter(|(party, _)| *party == holder) {
                        used.reserved_wei = used.reserved_wei.saturating_add(wei);
                    }
                }
            } else if let Some(account) = column::<Option<[u8; 20]>>(row, "account")? {
                // The dearest of its no-ops.
                let gap = assignments::assignment(db, &account.into(), column(row, "nonce")?)?.expected_wei();
                usage.reserved_wei = usage.reserved_wei.saturating_add(gap);
            } else {
                let opened_at = column::<Option<i64>>(row, "opened_at")?.map(i64::cast_unsigned);
                usage.window = Window { opened_at, settled_wei: wei }.at(now);
            }
        }
        if usage.window.opened_at.is_none() {
            // What was spent in an earlier window does not count.
            usage.parties.iter_mut().for_each(|(_, used)| used.settled_wei = 0);
        }
        Ok(usage)
    }

    fn budget(&self, limit_wei: u128) -> Budget {
        let reserved_wei = self.reserved_wei.saturating_add(self.own_wei);
        Budget { limit_wei, window: self.window, reserved_wei }
    }

    /// What the budget and the parties' shares say to a reservation of `wei`, where the cheapest relay costs
    /// `least_wei` and `no_op_wei` must fit beside it.
    pub(super) fn check(
        &self,
        wei: u128,
        least_wei: u128,
        no_op_wei: u128,
        allowance: &Allowance,
    ) -> Reservation {
        let total = BudgetUsage { settled_wei: self.window.settled_wei, reserved_wei: self.reserved_wei };
        let used: Vec<_> = self.parties.iter().map(|(party, used)| (party.kind(), *used)).collect();
        let denial = share::check(allowance, wei, least_wei, no_op_wei, total, &used).err();
        Reservation { denial, budget: self.budget(allowance.limit_wei) }
    }
}

/// The stored form of a party: a byte for its kind, then its address.
fn key(party: Party) -> Vec<u8> {
    let (kind, address) = match party {
        Party::Signer(address) => (0, address.to_vec()),
        Party::Client(address) => (1, relays::address(address).to_vec()),
        Party::Network(address) => (2, relays::address(address).to_vec()),
        Party::WithoutKey => (3, Vec::new()),
    };
    [vec![kind], address].concat()
}

pub(super) fn at(db: &Db, limit_wei: u128, now: u64) -> Result<Budget, StoreError> {
    Ok(Usage::read(db, Vec::new(), None, now)?.budget(limit_wei))
}

/// Sets a relay's reservation.
pub(super) fn set_reserved(tx: &Db, id: &B256, wei: u128) -> Result<(), StoreError> {
    tx.run("UPDATE relays SET reserved_wei = ?2 WHERE id = ?1", values![id.0, wei.to_string()])?;
    Ok(())
}

/// Writes the window. If it was not open before, what parties have spent is of an earlier one.
fn write_window(tx: &Db, before: &Usage, window: Window) -> Result<(), StoreError> {
    if before.window.opened_at.is_none() {
        tx.run("DELETE FROM spending", values![])?;
    }
    tx.run(
        "INSERT INTO budget (only_row, opened_at, settled_wei) VALUES (1, ?1, ?2)
         ON CONFLICT (only_row) DO UPDATE SET opened_at = ?1, settled_wei = ?2",
        values![window.opened_at.map(u64::cast_signed), window.settled_wei.to_string()],
    )?;
    Ok(())
}
