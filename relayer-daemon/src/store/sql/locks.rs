//! The rows that writes lock, where the database has several writes at a time.
//!
//! | row | locked by | what that keeps |
//! |---|---|---|
//! | `account_leases` | shared: a write about nonces; alone: a takeover | fencing: no write after the lease |
//! | `relays` | a write about the relay | one daemon runs it, one outcome, its events in their order |
//! | `relays`, rivals | a write that gives it a nonce | one nonce in flight, one request with that nonce |
//! | `key_gas` | an acceptance on the key's limit, a charge to the key | the key's gas of the day |
//! | `budget` | what reserves, charges, closes or replaces the window | the budget and its shares |
//!
//! Rivals are pending relays with the same signer and forwarder nonce. A write locks rows in this order, and
//! several relays in that of their signers and nonces: no two writes wait for each other. A lock comes before
//! the read that relies upon it, which sees what the row's last writer has committed. On a file, which has
//! one writer, nothing is locked.

use alloy::primitives::{Address, B256};

use super::engine::{Db, Value, each, statements::LockStatements, values};
use crate::store::{DaemonId, Result};

fn lock(db: &Db, statement: impl FnOnce(&LockStatements) -> &'static str, values: &[Value]) -> Result<()> {
    db.statements().locks.as_ref().map_or(Ok(()), |locks| db.run(statement(locks), values))
}

/// Locks a lease: waits for all writes under it, and holds up later ones until it has changed.
pub(super) fn lease(db: &Db, account: &Address) -> Result<()> {
    lock(db, |locks| locks.lease, values![account])
}

pub(super) fn leases_of(db: &Db, daemon: &DaemonId) -> Result<()> {
    lock(db, |locks| locks.leases_of, values![daemon])
}

/// Locks a daemon's leases, and those of `accounts` that are free by `now`, against renewals and takeovers:
/// in one order, so that no two daemons wait for each other. Holds up no write under a lease.
pub(super) fn leases_to_renew(db: &Db, daemon: &DaemonId, accounts: &[Address], now: i64) -> Result<()> {
    let accounts = Value::Array(accounts.iter().map(Value::from).collect());
    lock(db, |locks| locks.leases_to_renew, values![daemon, accounts, now])
}

pub(super) fn relay(db: &Db, id: &B256) -> Result<()> {
    lock(db, |locks| locks.relay, values![id])
}

pub(super) fn relays(db: &Db, ids: &[B256]) -> Result<()> {
    lock(db, |locks| locks.relays, &[Value::ids(ids)])
}

/// Locks relays that are to be given nonces, and all that wait with the signer and the forwarder nonce of one
/// of them.
pub(super) fn requests(db: &Db, ids: &[B256]) -> Result<()> {
    lock(db, |locks| locks.requests, &[Value::ids(ids)])
}

/// Locks the account's lease, shared with other such writes, then relays as [`requests`] does, in one
/// message. Locks nothing if the daemon does not have this lease.
pub(super) fn lease_and_requests(
    db: &Db,
    account: &Address,
    daemon: &DaemonId,
    epoch: u64,
    ids: &[B256],
) -> Result<()> {
    let values = values![account, daemon, epoch, Value::ids(ids)];
    lock(db, |locks| locks.lease_and_requests, values)
}

/// Locks the pending relays that accounts have in flight.
pub(super) fn relays_of(db: &Db, accounts: &[Address]) -> Result<()> {
    lock(db, |locks| locks.relays_of, &[Value::Array(accounts.iter().map(Value::from).collect())])
}

/// Locks and returns those of these relays that no other write has locked. Waits for none.
pub(super) fn free_relays(db: &Db, ids: &[B256]) -> Result<Vec<B256>> {
    match &db.statements().locks {
        Some(locks) => each(db, locks.free_relays, &[Value::ids(ids)]),
        None => Ok(ids.to_vec()),
    }
}

/// Locks the gas that an API key has used of its day, and makes that row if there is none.
pub(super) fn key(db: &Db, key: &str) -> Result<()> {
    lock(db, |locks| locks.make_key, values![key])?;
    lock(db, |locks| locks.key, values![key])
}

/// Locks the budget, with all that is reserved of it.
pub(super) fn budget(db: &Db) -> Result<()> {
    lock(db, |locks| locks.budget, values![])
}
