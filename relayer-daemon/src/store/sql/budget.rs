//! The budget's window, and the reservations of relays and gaps.

use std::net::IpAddr;

use alloy::primitives::{Address, B256};

use super::{
    engine::{Db, all, column, first, text, values},
    nonces,
    relays::{self, Rival},
};
use crate::{
    budget::{
        Budget, Window,
        share::{self, Allowance, BudgetUsage, Party, PartyKind},
    },
    store::{ExpectedCost, Reservation, StoreError},
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
    let allowed = at(tx, limit_wei, now)?.allows(extra_wei);
    if allowed {
        write_window(tx, current_window(tx, now)?.used(now, 0))?;
    }
    Ok(allowed)
}

/// A window in which nothing is paid or reserved has not been opened.
pub(super) fn close_if_unused(tx: &Db, now: u64) -> Result<(), StoreError> {
    let still = reserved(tx)?;
    write_window(tx, current_window(tx, now)?.unused(still))
}

/// Charges what was paid to all parties of the request.
pub(super) fn charge(tx: &Db, relay: Option<&B256>, wei: u128, now: u64) -> Result<(), StoreError> {
    write_window(tx, current_window(tx, now)?.used(now, wei))?;
    let Some((signer, client)) = relay.map(|id| relays::sender(tx, id)).transpose()?.flatten() else {
        return Ok(());
    };
    for party in Party::of(signer, client) {
        let charged = settled(tx, party)?.saturating_add(wei);
        tx.run(
            "INSERT INTO spending VALUES (?1, ?2) ON CONFLICT (party) DO UPDATE SET settled_wei = ?2",
            values![key(party), charged.to_string()],
        )?;
    }
    Ok(())
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
    cost: &ExpectedCost,
    allowance: &Allowance,
    now: u64,
) -> Result<Reservation, StoreError> {
    let (signer, client) = relays::sender(tx, id)?.ok_or(StoreError::Missing("relay"))?;
    if relays::rival(tx, id)? == Some(Rival::Executed) {
        return Err(StoreError::NonceUsed);
    }
    let ExpectedCost { wei, gas, l1_fee_wei, least_wei, no_op_wei } = *cost;
    let checked =
        check(tx, &Asks { id: Some(*id), signer, client, wei, least_wei, no_op_wei }, allowance, now)?;
    if checked.denial.is_some() {
        return Ok(checked);
    }
    set_reserved(tx, id, wei)?;
    tx.run(
        "UPDATE relays SET l1_fee_wei = ?2, expected_gas = ?3 WHERE id = ?1",
        values![id.0, l1_fee_wei.to_string(), gas.cast_signed()],
    )?;
    write_window(tx, current_window(tx, now)?.used(now, 0))?;
    Ok(Reservation { denial: None, budget: at(tx, allowance.limit_wei, now)? })
}

pub(super) fn check(
    db: &Db,
    asks: &Asks,
    allowance: &Allowance,
    now: u64,
) -> Result<Reservation, StoreError> {
    let window = window(db, now)?;
    let parties: Vec<Party> = Party::of(asks.signer, asks.client).collect();
    let mut total = BudgetUsage { settled_wei: window.settled_wei, reserved_wei: nonces::open_gaps_wei(db)? };
    let mut used: Vec<(PartyKind, BudgetUsage)> = Vec::with_capacity(parties.len());
    for party in &parties {
        // What was spent in an earlier window does not count; the next charge deletes it.
        let settled_wei = if window.opened_at.is_some() { settled(db, *party)? } else { 0 };
        used.push((party.kind(), BudgetUsage { settled_wei, reserved_wei: 0 }));
    }
    let mut own = 0;
    let query =
        "SELECT id, signer, client, reserved_wei FROM relays WHERE state = 'pending' AND reserved_wei <> '0'";
    for row in &db.query(query, values![])? {
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
    Ok(Reservation { denial, budget })
}

/// What a party was charged in the window.
fn settled(db: &Db, party: Party) -> Result<u128, StoreError> {
    let query = "SELECT settled_wei FROM spending WHERE party = ?1";
    Ok(first(db, query, values![key(party)], |row| text(row, "settled_wei"))?.unwrap_or_default())
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

/// The sum of all reservations: pending relays and unfilled gaps.
fn reserved(db: &Db) -> Result<u128, StoreError> {
    let query = "SELECT reserved_wei FROM relays WHERE state = 'pending' AND reserved_wei <> '0'";
    let relays: Vec<u128> = all(db, query, values![], |row| text(row, "reserved_wei"))?;
    Ok(relays.into_iter().fold(nonces::open_gaps_wei(db)?, u128::saturating_add))
}

fn window(db: &Db, now: u64) -> Result<Window, StoreError> {
    let stored = first(db, "SELECT opened_at, settled_wei FROM budget", values![], |row| {
        let opened_at = column::<Option<i64>>(row, "opened_at")?.map(i64::cast_unsigned);
        Ok(Window { opened_at, settled_wei: text(row, "settled_wei")? })
    });
    Ok(stored?.unwrap_or_default().at(now))
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
