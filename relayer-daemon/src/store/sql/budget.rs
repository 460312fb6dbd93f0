//! The budget's window, and the reservations of relays and gaps.

use std::net::IpAddr;

use alloy::primitives::{Address, B256};

use super::{
    engine::{Db, Row, Value, column, first, text, values},
    locks, nonces,
    relays::{self, Rival},
};
use crate::{
    budget::{
        Budget, Window,
        share::{self, Allowance, BudgetUsage, Party, PartyKind},
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
    let allowed = at(tx, limit_wei, now)?.allows(extra_wei);
    if allowed {
        write_window(tx, current_window(tx, now)?.used(now, 0))?;
    }
    Ok(allowed)
}

/// A window in which nothing is paid or reserved has not been opened.
pub(super) fn close_if_unused(tx: &Db, now: u64) -> Result<(), StoreError> {
    locks::budget(tx)?;
    let still = reserved(tx)?;
    write_window(tx, current_window(tx, now)?.unused(still))
}

/// Charges what was paid to all parties of the request.
pub(super) fn charge(tx: &Db, relay: Option<&B256>, wei: u128, now: u64) -> Result<(), StoreError> {
    let sender = relay.map(|id| relays::sender(tx, id)).transpose()?.flatten();
    let parties: Vec<Party> =
        sender.into_iter().flat_map(|(signer, client)| Party::of(signer, client)).collect();
    locks::budget(tx)?;
    let (window, spent) = spent(tx, &parties, now)?;
    if window.opened_at.is_none() {
        tx.run("DELETE FROM spending", values![])?;
    }
    write_window(tx, window.used(now, wei))?;
    let spent: Vec<[Value; 2]> = parties
        .into_iter()
        .zip(spent)
        .map(|(party, spent)| [key(party).into(), spent.saturating_add(wei).to_string().into()])
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

/// A reservation that is asked for.
pub(super) struct Asks {
    /// The relay; its present reservation does not count.
    pub(super) id: Option<B256>,
    /// `request.from`.
    pub(super) signer: Address,
    /// The client.
    pub(super) client: Option<IpAddr>,
    /// How much, wei.
    pub(super) wei: u128,
    /// What the cheapest relay would cost, wei.
    pub(super) least_wei: u128,
    /// What must fit beside it, wei.
    pub(super) no_op_wei: u128,
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
    let (signer, client) = (relay.signer, relay.client);
    let ExpectedCost { wei, gas, l1_fee_wei, least_wei, no_op_wei } = *cost;
    let (checked, before) =
        check(tx, &Asks { id: Some(*id), signer, client, wei, least_wei, no_op_wei }, allowance, now)?;
    if checked.denial.is_some() {
        return Ok(checked);
    }
    tx.run(
        "UPDATE relays SET reserved_wei = ?4, l1_fee_wei = ?2, expected_gas = ?3 WHERE id = ?1",
        values![id.0, l1_fee_wei.to_string(), gas.cast_signed(), wei.to_string()],
    )?;
    let Budget { window, reserved_wei, .. } = checked.budget;
    if window.opened_at.is_none() {
        tx.run("DELETE FROM spending", values![])?;
    }
    let is_open = window.opened_at.is_some();
    let window = window.used(now, 0);
    if !is_open {
        write_window(tx, window)?;
    }
    let reserved_wei = reserved_wei.saturating_sub(before).saturating_add(wei);
    Ok(Reservation { denial: None, budget: Budget { window, reserved_wei, ..checked.budget } })
}

/// What the budget and the parties' shares say to a reservation, and what the relay has reserved so far.
pub(super) fn check(
    db: &Db,
    asks: &Asks,
    allowance: &Allowance,
    now: u64,
) -> Result<(Reservation, u128), StoreError> {
    let parties: Vec<Party> = Party::of(asks.signer, asks.client).collect();
    let (window, spent) = spent(db, &parties, now)?;
    let mut total = BudgetUsage { settled_wei: window.settled_wei, reserved_wei: 0 };
    let of_party =
        |(party, settled_wei): (&Party, u128)| (party.kind(), BudgetUsage { settled_wei, reserved_wei: 0 });
    let mut used: Vec<(PartyKind, BudgetUsage)> = parties.iter().zip(spent).map(of_party).collect();
    let mut own = 0;
    for row in &db.query(RESERVED, values![])? {
        if let Some(gap) = gap_wei(db, row)? {
            total.reserved_wei = total.reserved_wei.saturating_add(gap);
            continue;
        }
        let wei: u128 = text(row, "reserved_wei")?;
        if asks.id.is_some_and(|id| column::<[u8; 32]>(row, "id").is_ok_and(|other| other == id.0)) {
            own = wei;
            continue;
        }
        total.reserved_wei = total.reserved_wei.saturating_add(wei);
        let (signer, client) = relays::sender_of(row)?;
        for holder in Party::of(signer, client) {
            for (party, (_, usage)) in parties.iter().zip(&mut used) {
                if *party == holder {
                    usage.reserved_wei = usage.reserved_wei.saturating_add(wei);
                }
            }
        }
    }
    let budget = Budget {
        limit_wei: allowance.limit_wei,
        window,
        reserved_wei: total.reserved_wei.saturating_add(own),
    };
    let denial = share::check(allowance, asks.wei, asks.least_wei, asks.no_op_wei, total, &used).err();
    Ok((Reservation { denial, budget }, own))
}

/// The most parties that a request has.
const PARTIES: usize = 4;

/// The window, and what each party was charged in it.
fn spent(db: &Db, parties: &[Party], now: u64) -> Result<(Window, Vec<u128>), StoreError> {
    let query = "SELECT party, settled_wei, NULL AS opened_at FROM spending WHERE party IN (?1, ?2, ?3, ?4)
         UNION ALL SELECT NULL, settled_wei, opened_at FROM budget";
    let mut keys: Vec<Option<Vec<u8>>> = parties.iter().map(|party| Some(key(*party))).collect();
    keys.resize(PARTIES, None);
    let keys: Vec<Value> = keys.into_iter().map(Value::from).collect();
    let (mut window, mut spent) = (Window::default(), vec![0; parties.len()]);
    for row in &db.query(query, &keys)? {
        let settled_wei = text(row, "settled_wei")?;
        match column::<Option<Vec<u8>>>(row, "party")? {
            Some(of) => {
                let known = parties.iter().zip(&mut spent).find(|(party, _)| key(**party) == of);
                known.into_iter().for_each(|(_, wei)| *wei = settled_wei);
            }
            None => {
                let opened_at = column::<Option<i64>>(row, "opened_at")?.map(i64::cast_unsigned);
                window = Window { opened_at, settled_wei }.at(now);
            }
        }
    }
    if window.opened_at.is_none() {
        // What was spent in an earlier window does not count.
        spent.fill(0);
    }
    Ok((window, spent))
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
    Ok(Budget { limit_wei, window: window(db, now)?, reserved_wei: reserved(db)? })
}

/// Sets a relay's reservation.
pub(super) fn set_reserved(tx: &Db, id: &B256, wei: u128) -> Result<(), StoreError> {
    tx.run("UPDATE relays SET reserved_wei = ?2 WHERE id = ?1", values![id.0, wei.to_string()])?;
    Ok(())
}

/// What is reserved: by pending relays, and by gaps that are not filled, whose account is there for the signer.
const RESERVED: &str = "SELECT id, signer, client, reserved_wei, 0 AS gap FROM relays
         WHERE state = 'pending' AND reserved_wei <> '0'
     UNION ALL SELECT NULL, account, NULL, '0', nonce + 1 FROM nonces WHERE state = 'open' AND relay IS NULL";

/// What a gap may still cost, if the row is a gap's.
fn gap_wei(db: &Db, row: &Row) -> Result<Option<u128>, StoreError> {
    let nonce = column::<i64>(row, "gap")? - 1;
    if nonce < 0 {
        return Ok(None);
    }
    let account = column::<[u8; 20]>(row, "signer")?.into();
    // The dearest of its no-ops.
    Ok(Some(nonces::assignment(db, &account, nonce)?.expected_wei()))
}

/// The sum of all reservations: pending relays and unfilled gaps.
fn reserved(db: &Db) -> Result<u128, StoreError> {
    db.query(RESERVED, values![])?.iter().try_fold(0, |sum: u128, row| {
        let wei = gap_wei(db, row)?.map_or_else(|| text(row, "reserved_wei"), Ok)?;
        Ok(sum.saturating_add(wei))
    })
}

fn window(db: &Db, now: u64) -> Result<Window, StoreError> {
    spent(db, &[], now).map(|(window, _)| window)
}

/// The window, to be updated. If it is a new one, the parties' spending is cleared.
fn current_window(tx: &Db, now: u64) -> Result<Window, StoreError> {
    let window = window(tx, now)?;
    if window.opened_at.is_none() {
        tx.run("DELETE FROM spending", values![])?;
    }
    Ok(window)
}

fn write_window(tx: &Db, window: Window) -> Result<(), StoreError> {
    tx.run(
        "INSERT INTO budget VALUES (1, ?1, ?2)
         ON CONFLICT (only_row) DO UPDATE SET opened_at = ?1, settled_wei = ?2",
        values![window.opened_at.map(u64::cast_signed), window.settled_wei.to_string()],
    )?;
    Ok(())
}
