//! Reservations for nonces beside those of relays.
//!
//! A nonce that was given up has one: a transaction of its own may be in a pool, or mined with a late
//! receipt. So has a nonce in flight that is not its relay's only one, or that is left of a relay which has
//! ended. The reservation lasts a day, as a row of `spending` beside the charges of parties; its key is a
//! byte for the kind, the time of the reservation, the account and the nonce.

use alloy::primitives::Address;

use super::{
    assignments,
    engine::{Db, column, each, first, values},
    locks,
};
use crate::{
    budget::WINDOW_SECONDS,
    store::{Result, StoreError},
};

/// The first byte of a key; those of parties are less.
pub(super) const KIND: u8 = 4;

/// Reserves what a nonce may still cost, in place of its earlier reservation.
pub(super) fn reserve(tx: &Db, account: &Address, nonce: u64, now: u64) -> Result<()> {
    let (paid, _) = charged(tx, account, nonce)?.ok_or(StoreError::Missing("nonce"))?;
    let wei = assignments::assignment(tx, account, nonce)?.expected_wei();
    set(tx, account, nonce, wei.saturating_sub(paid), now)
}

/// Reserves `wei` for a nonce, in place of its earlier reservation.
pub(super) fn set(tx: &Db, account: &Address, nonce: u64, wei: u128, now: u64) -> Result<()> {
    release(tx, account, nonce)?;
    let key = [given_up_at(now), nonce_key(account, nonce)].concat();
    tx.run("INSERT INTO spending VALUES ($1, $2)", values![key, wei])
}

/// Ends a nonce's reservation: it was mined, or the reservation of its relay or gap takes its place.
pub(super) fn release(tx: &Db, account: &Address, nonce: u64) -> Result<()> {
    locks::budget(tx)?;
    let sql = "DELETE FROM spending WHERE party > $1 AND substr(party, 10) = $2";
    tx.run(sql, values![[KIND].as_slice(), nonce_key(account, nonce)])
}

/// Returns a nonce's charges so far, and its own reservation, if any; `None` if it is not stored.
pub(super) fn charged(tx: &Db, account: &Address, nonce: u64) -> Result<Option<(u128, Option<u128>)>> {
    let query = "SELECT paid_wei, (SELECT settled_wei FROM spending WHERE party > $3 AND substr(party, 10) = $4) AS reserved_wei
         FROM nonces WHERE account = $1 AND nonce = $2";
    let values = values![account, nonce, [KIND].as_slice(), nonce_key(account, nonce)];
    first(tx, query, values, |row| Ok((column(row, "paid_wei")?, column(row, "reserved_wei")?)))
}

/// Returns the accounts of nonces with a reservation that is not over at `now`.
pub(super) fn accounts(db: &Db, now: u64) -> Result<Vec<Address>> {
    let query = "SELECT DISTINCT substr(party, 10, 20) AS account FROM spending WHERE party > $1";
    each(db, query, values![reserved_since(now)])
}

/// Returns a key that is less than those of nonces that were given up at this time or later, and greater than
/// those of earlier ones and of parties.
fn given_up_at(seconds: u64) -> Vec<u8> {
    [&[KIND][..], &seconds.to_be_bytes()].concat()
}

/// Returns [`given_up_at`] of the earliest time with a reservation that is not over at `now`.
pub(super) fn reserved_since(now: u64) -> Vec<u8> {
    given_up_at(now.saturating_add(1).saturating_sub(WINDOW_SECONDS))
}

fn nonce_key(account: &Address, nonce: u64) -> Vec<u8> {
    [account.as_slice(), &nonce.to_be_bytes()].concat()
}
