//! The rows that writes lock, where the database has several writes at a time.
//!
//! | row | locked by | what that keeps |
//! |---|---|---|
//! | `account_leases` | shared: a write about the account's nonces; alone: a takeover | fencing: no write under a lease that has ended |
//! | `relays` | a write about the relay | one daemon runs it, one outcome, its events in their order |
//! | the same, and the pending ones with its signer and forwarder nonce | a write that gives it a nonce | one nonce in flight, one request with that nonce |
//! | `key_gas` | an acceptance on the key's limit, a charge to the key | the key's gas of the day |
//! | `budget` | what reserves, charges, or closes the window | the budget and its shares |
//!
//! A write locks them in this order, and several relays in that of their signers and nonces: no two writes wait for
//! each other. A lock comes before the read that relies upon it. On a file, which has one writer, nothing is locked.

use alloy::primitives::{Address, B256};

use super::engine::{Db, Row, Value, all, column, values};
use crate::store::{DaemonId, StoreError};

/// Waits for all writes that know the lease as it is, and holds up those to come until it has changed.
pub(super) fn lease(db: &Db, account: &Address) -> Result<(), StoreError> {
    db.lock("SELECT epoch FROM account_leases WHERE account = ?1 FOR UPDATE", values![account.0.0])
}

/// A relay.
pub(super) fn relay(db: &Db, id: &B256) -> Result<(), StoreError> {
    db.lock("SELECT id FROM relays WHERE id = ?1 FOR NO KEY UPDATE", values![id.0])
}

/// Several relays.
pub(super) fn relays(db: &Db, ids: &[B256]) -> Result<(), StoreError> {
    db.lock(
        "SELECT id FROM relays WHERE id = ANY(?1) ORDER BY signer, forward_nonce, id FOR NO KEY UPDATE",
        &[Value::ids(ids)],
    )
}

/// Relays that are to be given nonces, and all that wait with the signer and the forwarder nonce of one of them.
pub(super) fn requests(db: &Db, ids: &[B256]) -> Result<(), StoreError> {
    db.lock(
        "SELECT id FROM relays
         WHERE (signer, forward_nonce) IN (SELECT signer, forward_nonce FROM relays WHERE id = ANY(?1))
         AND (state = 'pending' OR id = ANY(?1)) ORDER BY signer, forward_nonce, id FOR NO KEY UPDATE",
        &[Value::ids(ids)],
    )
}

/// The same after the account's lease, which is shared with other such writes, in one message. Nothing is locked where
/// the daemon does not have this lease. Postgres alone has this statement.
pub(super) fn lease_and_requests(
    db: &Db,
    account: &Address,
    daemon: &DaemonId,
    epoch: u64,
    ids: &[B256],
) -> Result<(), StoreError> {
    db.lock(
        "WITH held AS (
             SELECT 1 FROM account_leases WHERE account = ?1 AND holder = ?2 AND epoch = ?3 FOR KEY SHARE
         )
         SELECT id FROM held, relays
         WHERE (signer, forward_nonce) IN (SELECT signer, forward_nonce FROM relays WHERE id = ANY(?4))
         AND (state = 'pending' OR id = ANY(?4))
         ORDER BY signer, forward_nonce, id FOR NO KEY UPDATE OF relays",
        values![account.0.0, daemon.0.as_ref(), epoch.cast_signed(), Value::ids(ids)],
    )
}

/// The pending relays that an account has in flight.
pub(super) fn relays_of(db: &Db, account: &Address) -> Result<(), StoreError> {
    db.lock(
        "SELECT id FROM relays WHERE state = 'pending'
         AND id IN (SELECT relay FROM nonces WHERE account = ?1 AND state = 'open')
         ORDER BY signer, forward_nonce, id FOR NO KEY UPDATE",
        values![account.0.0],
    )
}

/// Those of these relays that no other write has locked. Waits for none.
pub(super) fn free_relays(db: &Db, ids: &[B256]) -> Result<Vec<B256>, StoreError> {
    if !db.has_row_locks() {
        return Ok(ids.to_vec());
    }
    let query = "SELECT id FROM relays WHERE id = ANY(?1) FOR NO KEY UPDATE SKIP LOCKED";
    all(db, query, &[Value::ids(ids)], |row: &Row| Ok(column::<[u8; 32]>(row, "id")?.into()))
}

/// What an API key has used of its day; from 1970 if that is nothing.
pub(super) fn key(db: &Db, key: &str) -> Result<(), StoreError> {
    db.lock("INSERT INTO key_gas VALUES (?1, 0, 0) ON CONFLICT DO NOTHING", values![key])?;
    db.lock("SELECT used FROM key_gas WHERE api_key = ?1 FOR NO KEY UPDATE", values![key])
}

/// The budget, with all that is reserved of it.
pub(super) fn budget(db: &Db) -> Result<(), StoreError> {
    db.lock("UPDATE budget SET version = version + 1", values![])
}
