//! What nonces may cost that were given up: a transaction of theirs may have been mined, and the receipt be
//! late, or be in a pool. It is reserved for a day, as a row of `spending` beside what parties were charged: a
//! byte for the kind, the time at which the nonce was given up, the account and the nonce.

use alloy::primitives::Address;

use super::{
    assignments,
    engine::{Db, column, first, values},
    locks,
};
use crate::{budget::WINDOW_SECONDS, store::StoreError};

/// The first byte, which those of parties are less than.
pub(super) const KIND: u8 = 4;

/// Reserves what a nonce may cost that is given up, maybe for a second time.
pub(super) fn reserve(tx: &Db, account: &Address, nonce: u64, now: u64) -> Result<(), StoreError> {
    let wei = assignments::assignment(tx, account, nonce)?.expected_wei();
    release(tx, account, nonce)?;
    let key = [given_up_at(now), nonce_key(account, nonce)].concat();
    tx.run("INSERT INTO spending VALUES ($1, $2)", values![key, wei])
}

/// Ends such a reservation: the nonce was mined or is open again.
pub(super) fn release(tx: &Db, account: &Address, nonce: u64) -> Result<(), StoreError> {
    locks::budget(tx)?;
    let sql = "DELETE FROM spending WHERE party > $1 AND substr(party, 10) = $2";
    tx.run(sql, values![[KIND].as_slice(), nonce_key(account, nonce)])
}

/// What a nonce was charged so far, and whether it has such a reservation; `None` if it is not stored.
pub(super) fn charged(tx: &Db, account: &Address, nonce: u64) -> Result<Option<(u128, bool)>, StoreError> {
    let query = "SELECT paid_wei, EXISTS (SELECT 1 FROM spending WHERE party > $3 AND substr(party, 10) = $4) AS is_given_up
         FROM nonces WHERE account = $1 AND nonce = $2";
    let values = values![account, nonce, [KIND].as_slice(), nonce_key(account, nonce)];
    first(tx, query, values, |row| Ok((column(row, "paid_wei")?, column(row, "is_given_up")?)))
}

/// What is less than the stored form of nonces that were given up at this time or later, and greater than
/// that of earlier ones and of parties.
fn given_up_at(seconds: u64) -> Vec<u8> {
    [&[KIND][..], &seconds.to_be_bytes()].concat()
}

/// The same for the nonces with a reservation that is not over at `now`.
pub(super) fn reserved_since(now: u64) -> Vec<u8> {
    given_up_at(now.saturating_add(1).saturating_sub(WINDOW_SECONDS))
}

fn nonce_key(account: &Address, nonce: u64) -> Vec<u8> {
    [account.as_slice(), &nonce.to_be_bytes()].concat()
}
