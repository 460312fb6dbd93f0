//! The budget's window, and the reservations of relays, gaps and nonces that were given up.

use alloy::primitives::{Address, B256};

use super::{
    Store, assignments,
    engine::{Db, Row, Value, column, single, values},
    frequent, given_up, locks,
    relays::{self, Rival},
};
use crate::{
    budget::{
        Budget, Window,
        share::{self, Allowance, BudgetUsage, Party},
    },
    outcome::RelayOutcome,
    store::{ExpectedCost, NewRelay, Reservation, Result, StoreError},
};

impl Store {
    /// Returns the budget as it stands at `now`.
    pub fn budget(&self, limit_wei: u128, now: u64) -> Result<Budget> {
        self.read(|db| Ok(Usage::read(db, Vec::new(), None, now)?.budget(limit_wei)))
    }

    /// Replaces the reservation of a relay in flight. Returns whether the budget allows the difference.
    pub fn reserve(&self, id: B256, wei: u128, limit_wei: u128, now: u64) -> Result<bool> {
        self.write_about(id, move |db| reserve(db, &id, wei, limit_wei, now))
    }

    /// Returns what [`Store::outcome`] returns for a relay, and whether the budget and the shares of its
    /// parties would allow it `wei` more, where the cheapest relay costs `least_wei`.
    pub fn look_up(
        &self,
        relay: &NewRelay,
        wei: u128,
        least_wei: u128,
        allowance: &Allowance,
        now: u64,
    ) -> Result<(Option<Option<RelayOutcome>>, Reservation)> {
        let parties: Vec<Party> = Party::of(relay.signer, relay.client).collect();
        self.read_single(|db| {
            let queries = [(relays::OUTCOME, values![relay.id]), (USED, &keys(&parties, now)[..])];
            let mut rows = db.queries(&queries)?.into_iter();
            let known = rows.next().unwrap_or_default().first().map(relays::outcome).transpose()?;
            let used = Usage::of(db, &rows.next().unwrap_or_default(), parties, None, now)?;
            Ok((known, used.check(wei, least_wei, 0, allowance)))
        })
    }

    /// Replaces the reservation of a pending relay if the budget and the shares of its parties allow that.
    /// Fails with [`StoreError::NonceUsed`] if another request has used its forwarder nonce, even if a stale
    /// node still says otherwise.
    pub fn reserve_share(
        &self,
        id: B256,
        cost: &ExpectedCost,
        allowance: &Allowance,
        now: u64,
    ) -> Result<Reservation> {
        if let Some((daemon, statements)) = self.frequent() {
            let _turn = self.frequent_writes.turn_to_reserve();
            let reserve = |db: &Db| frequent::reserve(db, statements, &id, daemon, cost, allowance, now);
            if let Some(reservation) = self.write_committing(reserve)? {
                return Ok(reservation);
            }
        }
        let (ExpectedCost { wei, gas, l1_fee_wei, least_wei, no_op_wei }, allowance) = (*cost, *allowance);
        let daemon = self.daemon.clone();
        self.write(move |db| {
            locks::relay(db, &id)?;
            let relay = relays::standing(db, &id, None)?.ok_or(StoreError::Missing("relay"))?;
            relay.must_be_held_by(daemon.as_ref())?;
            if relay.rival == Some(Rival::Executed) {
                return Err(StoreError::NonceUsed);
            }
            locks::budget(db)?;
            let parties = Party::of(relay.signer, relay.client).collect();
            let usage = Usage::read(db, parties, Some(&id), now)?;
            let checked = usage.check(wei, least_wei, no_op_wei, &allowance);
            if checked.denial.is_some() {
                return Ok(checked);
            }
            db.run(
                "UPDATE relays SET reserved_wei = $4, l1_fee_wei = $2, expected_gas = $3 WHERE id = $1",
                values![id, l1_fee_wei, gas, wei],
            )?;
            let window = usage.window.used(now, 0);
            if usage.window.opened_at.is_none() {
                write_window(db, &usage, window)?;
            }
            let reserved_wei = usage.reserved_wei.saturating_add(wei);
            Ok(Reservation { denial: None, budget: Budget { window, reserved_wei, ..checked.budget } })
        })
    }
}

/// Replaces the reservation of a relay, if the budget allows the difference. Returns whether it does.
pub(super) fn reserve(tx: &Db, id: &B256, wei: u128, limit_wei: u128, now: u64) -> Result<bool> {
    let before: u128 = single(tx, "SELECT reserved_wei FROM relays WHERE id = $1", values![id])?
        .ok_or(StoreError::Missing("relay"))?;
    let allowed = allow(tx, wei.saturating_sub(before), limit_wei, now)?;
    if allowed {
        set_reserved(tx, id, wei)?;
    }
    Ok(allowed)
}

/// Returns whether `extra_wei` more may be in flight; if so, the window is open afterwards.
pub(super) fn allow(tx: &Db, extra_wei: u128, limit_wei: u128, now: u64) -> Result<bool> {
    locks::budget(tx)?;
    let usage = Usage::read(tx, Vec::new(), None, now)?;
    let allowed = usage.budget(limit_wei).allows(extra_wei);
    if allowed {
        write_window(tx, &usage, usage.window.used(now, 0))?;
    }
    Ok(allowed)
}

/// Closes the window if nothing is paid or reserved in it.
pub(super) fn close_if_unused(tx: &Db, now: u64) -> Result<()> {
    locks::budget(tx)?;
    let usage = Usage::read(tx, Vec::new(), None, now)?;
    write_window(tx, &usage, usage.window.unused(usage.reserved_wei))
}

/// Charges what was paid to all parties of the request.
pub(super) fn charge(tx: &Db, relay: Option<&B256>, wei: u128, now: u64) -> Result<()> {
    let sender = relay.map(|id| relays::sender(tx, id)).transpose()?.flatten();
    let parties = sender.into_iter().flat_map(|(signer, client)| Party::of(signer, client)).collect();
    locks::budget(tx)?;
    let usage = Usage::read(tx, parties, None, now)?;
    write_window(tx, &usage, usage.window.used(now, wei))?;
    let spent: Vec<[Value; 2]> = usage
        .parties
        .iter()
        .map(|(party, used)| [key(*party).into(), used.settled_wei.saturating_add(wei).into()])
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
        return tx.run(upsert!("($1, $2), ($3, $4), ($5, $6), ($7, $8)"), &spent.concat());
    }
    spent.iter().try_for_each(|row| tx.run(upsert!("($1, $2)"), row))
}

/// The most parties of a request.
const PARTIES: usize = 4;

/// Selects the charges of parties and the reservations of nonces that were given up; the window; the
/// reservations of pending relays; and the gaps that are not filled.
const USED: &str = "SELECT party, settled_wei AS wei, CAST(NULL AS BIGINT) AS opened_at,
         CAST(NULL AS BYTEA) AS id, CAST(NULL AS BYTEA) AS signer, CAST(NULL AS BYTEA) AS client,
         CAST(NULL AS BYTEA) AS account, CAST(NULL AS BIGINT) AS nonce
     FROM spending WHERE party IN ($1, $2, $3, $4) OR party > $5
     UNION ALL SELECT NULL, settled_wei, opened_at, NULL, NULL, NULL, NULL, NULL FROM budget
     UNION ALL SELECT NULL, reserved_wei, NULL, id, signer, client, NULL, NULL FROM relays
         WHERE state = 'pending' AND reserved_wei <> '0'
     UNION ALL SELECT NULL, '0', NULL, NULL, NULL, NULL, account, nonce FROM nonces
         WHERE state = 'open' AND relay IS NULL";

/// Returns the parameters of [`USED`].
fn keys(parties: &[Party], now: u64) -> Vec<Value> {
    let mut keys: Vec<Option<Vec<u8>>> = parties.iter().map(|party| Some(key(*party))).collect();
    keys.resize(PARTIES, None);
    keys.push(Some(given_up::reserved_since(now)));
    keys.into_iter().map(Value::from).collect()
}

/// The use of the budget, in all and by some parties.
struct Usage {
    window: Window,
    /// Reserved in all, without the own relay.
    reserved_wei: u128,
    /// Reserved by the own relay.
    own_wei: u128,
    parties: Vec<(Party, BudgetUsage)>,
    now: u64,
}

impl Usage {
    fn read(db: &Db, parties: Vec<Party>, own: Option<&B256>, now: u64) -> Result<Self> {
        let rows = db.query(USED, &keys(&parties, now))?;
        Self::of(db, &rows, parties, own, now)
    }

    /// Reads the use from rows of [`USED`].
    fn of(db: &Db, rows: &[Row], parties: Vec<Party>, own: Option<&B256>, now: u64) -> Result<Self> {
        let parties = parties.into_iter().map(|party| (party, BudgetUsage::default())).collect();
        let mut usage = Self { window: Window::default(), reserved_wei: 0, own_wei: 0, parties, now };
        for row in rows {
            let wei: u128 = column(row, "wei")?;
            if let Some(of) = column::<Option<Vec<u8>>>(row, "party")? {
                if of.first() == Some(&given_up::KIND) {
                    usage.reserved_wei = usage.reserved_wei.saturating_add(wei);
                    continue;
                }
                let known = usage.parties.iter_mut().find(|(party, _)| key(*party) == of);
                known.into_iter().for_each(|(_, used)| used.settled_wei = wei);
            } else if let Some(id) = column::<Option<B256>>(row, "id")? {
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
            } else if let Some(account) = column::<Option<Address>>(row, "account")? {
                // The dearest of its no-ops.
                let gap = assignments::assignment(db, &account, column(row, "nonce")?)?.expected_wei();
                usage.reserved_wei = usage.reserved_wei.saturating_add(gap);
            } else {
                usage.window = Window { opened_at: column(row, "opened_at")?, settled_wei: wei }.at(now);
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

    /// Checks a reservation of `wei` against the budget and the parties' shares, where the cheapest relay
    /// costs `least_wei` and `no_op_wei` must fit beside it.
    fn check(&self, wei: u128, least_wei: u128, no_op_wei: u128, allowance: &Allowance) -> Reservation {
        let total = BudgetUsage { settled_wei: self.window.settled_wei, reserved_wei: self.reserved_wei };
        let used: Vec<_> = self.parties.iter().map(|(party, used)| (party.into(), *used)).collect();
        let denial = share::check(allowance, wei, least_wei, no_op_wei, total, &used).err();
        Reservation { denial, budget: self.budget(allowance.limit_wei) }
    }
}

/// Returns the stored form of a party: a byte for its kind, then its address.
fn key(party: Party) -> Vec<u8> {
    let (kind, address) = match party {
        Party::Signer(address) => (0, address.to_vec()),
        Party::Client(address) => (1, relays::address(address).to_vec()),
        Party::Network(address) => (2, relays::address(address).to_vec()),
        Party::WithoutKey => (3, Vec::new()),
    };
    [vec![kind], address].concat()
}

pub(super) fn set_reserved(tx: &Db, id: &B256, wei: u128) -> Result<()> {
    tx.run("UPDATE relays SET reserved_wei = $2 WHERE id = $1", values![id, wei])
}

/// Writes the window. If it was not open before, deletes what parties have spent in an earlier one.
fn write_window(tx: &Db, before: &Usage, window: Window) -> Result<()> {
    if before.window.opened_at.is_none() {
        tx.run("DELETE FROM spending WHERE party <= $1", values![given_up::reserved_since(before.now)])?;
    }
    tx.run(
        "INSERT INTO budget (only_row, opened_at, settled_wei) VALUES (1, $1, $2)
         ON CONFLICT (only_row) DO UPDATE SET opened_at = $1, settled_wei = $2",
        values![window.opened_at, window.settled_wei],
    )
}
