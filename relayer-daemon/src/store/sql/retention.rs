//! Pruning: a relay that ended long ago shrinks to one small row in the archive, and is deleted later.
//!
//! Moving a relay to another table, rather than emptying its columns, frees whole pages, which new rows then
//! fill. The file never shrinks by itself (`VACUUM` with the daemon stopped makes it smaller). Automatic
//! vacuuming would move pages on every commit only for the file to grow again.
//!
//! Nonces are deleted with their relays, except the newest of each account, whatever a clock says. The
//! highest deleted nonce is kept, so that deleted nonces are not taken for gaps.

use alloy::primitives::{Address, B256};

use super::{
    engine::{Db, Row, all, column, first, unsigned, values},
    events, finality, relays,
};
use crate::{
    budget::WINDOW_SECONDS,
    store::{RelayRecord, Retention, StoreError},
};

/// A query of rows that no other write has locked, and that are then locked.
macro_rules! free {
    ($db:ident, $query:literal) => {
        $db.dialect($query, concat!($query, " FOR UPDATE SKIP LOCKED"))
    };
}

/// How many relays, or nonces without one, each kind of pruning takes at most in one step.
const STEP: i64 = 64;
/// How many of an account's newest nonces stay whole: more than any reorg undoes.
const NEWEST: i64 = 256;

pub(super) fn prune(tx: &Db, retention: &Retention, now: u64) -> Result<usize, StoreError> {
    let before = |seconds: u64| now.saturating_sub(seconds).cast_signed();
    let mut pruned = forget_unsent(tx, before(WINDOW_SECONDS))?;
    pruned += forget_clients(tx, before(WINDOW_SECONDS))?;
    pruned += archive(tx, before(retention.whole_seconds))?;
    pruned += forget_gaps(tx, before(retention.whole_seconds))?;
    pruned += forget_archived(tx, before(retention.archive_seconds))?;
    pruned += events::forget(tx, before(retention.whole_seconds), now)?;
    Ok(pruned)
}

pub(super) fn archived_nonce(db: &Db, account: &Address) -> Result<Option<u64>, StoreError> {
    let query = "SELECT highest FROM archived_nonces WHERE account = ?1";
    first(db, query, values![account.0.0], |row| unsigned(row, "highest"))
}

/// The hashes of an archived relay, oldest first.
pub(super) fn archived_hashes(db: &Db, id: &B256) -> Result<Vec<B256>, StoreError> {
    let query = "SELECT hashes FROM archive WHERE id = ?1";
    let hashes: Vec<u8> = first(db, query, values![id.0], |row| column(row, "hashes"))?.unwrap_or_default();
    if !hashes.len().is_multiple_of(B256::len_bytes()) {
        return Err(StoreError::Corrupt("hashes"));
    }
    Ok(hashes.chunks_exact(B256::len_bytes()).map(B256::from_slice).collect())
}

/// What is known of a relay, archived or not.
pub(super) fn record(db: &Db, id: &B256) -> Result<Option<RelayRecord>, StoreError> {
    let Some(outcome) = relays::stored_outcome(db, id)? else { return Ok(None) };
    let mut all = archived_hashes(db, id)?;
    all.extend(relays::hashes(db, id)?);
    let finality = finality::of_relay(db, id)?;
    Ok(Some(RelayRecord { outcome, finality, hashes: all }))
}

/// Deletes relays without any transaction.
fn forget_unsent(tx: &Db, ended_before: i64) -> Result<usize, StoreError> {
    tx.execute(
        "DELETE FROM relays WHERE state = 'dropped' AND finished_at < ?1 AND id IN (
             SELECT id FROM relays WHERE state = 'dropped' AND finished_at < ?1
             AND NOT EXISTS (SELECT 1 FROM nonces WHERE relay = relays.id)
             ORDER BY finished_at LIMIT ?2)",
        values![ended_before, STEP],
    )
}

/// Deletes the addresses of clients: they count for the shares of one window.
fn forget_clients(tx: &Db, ended_before: i64) -> Result<usize, StoreError> {
    tx.execute(
        "UPDATE relays SET client = NULL WHERE finished_at < ?1 AND id IN (
             SELECT id FROM relays INDEXED BY relays_clients
             WHERE client IS NOT NULL AND finished_at < ?1 ORDER BY finished_at LIMIT ?2)",
        values![ended_before, STEP],
    )
}

/// Archives relays that have ended together with all their nonces.
fn archive(tx: &Db, ended_before: i64) -> Result<usize, StoreError> {
    let query = free!(
        tx,
        "SELECT id FROM relays WHERE finished_at < ?1
         AND EXISTS (SELECT 1 FROM nonces WHERE relay = relays.id)
         AND NOT EXISTS (
             SELECT 1 FROM nonces AS own WHERE own.relay = relays.id AND (own.state = 'open'
             OR own.nonce > (SELECT max(nonce) FROM nonces WHERE account = own.account) - ?2))
         ORDER BY finished_at LIMIT ?3"
    );
    let due = all(tx, query, values![ended_before, NEWEST, STEP], |row| column::<[u8; 32]>(row, "id"))?;
    for id in due.iter().copied() {
        // A dropped relay that was sent again much later is in the archive already.
        let mut hashes = archived_hashes(tx, &id.into())?;
        hashes.extend(relays::hashes(tx, &id.into())?);
        tx.run(
            "INSERT INTO archive (id, state, error_code, error_detail, error_retry, tx_hash, block_number, gas_used,
                 agent_id, finished_at, finality, hashes)
             SELECT id, state, error_code, error_detail, error_retry, tx_hash, block_number, gas_used, agent_id,
                 finished_at, coalesce((SELECT finality FROM nonces WHERE relay = ?1 AND mined_hash = tx_hash), 0), ?2
             FROM relays WHERE id = ?1
             ON CONFLICT (id) DO UPDATE SET state = excluded.state, error_code = excluded.error_code,
                 error_detail = excluded.error_detail, error_retry = excluded.error_retry, tx_hash = excluded.tx_hash,
                 block_number = excluded.block_number, gas_used = excluded.gas_used, agent_id = excluded.agent_id,
                 finished_at = excluded.finished_at, finality = excluded.finality, hashes = excluded.hashes",
            values![id, hashes.concat()],
        )?;
        for nonce in all(tx, "SELECT account, nonce FROM nonces WHERE relay = ?1", values![id], key)? {
            forget_nonce(tx, nonce)?;
        }
        tx.run("DELETE FROM relays WHERE id = ?1", values![id])?;
    }
    Ok(due.len())
}

/// Deletes nonces without a relay: gaps that were filled.
fn forget_gaps(tx: &Db, ended_before: i64) -> Result<usize, StoreError> {
    let query = free!(
        tx,
        "SELECT account, nonce FROM nonces AS gap WHERE relay IS NULL AND state <> 'open'
         AND nonce <= (SELECT max(nonce) FROM nonces WHERE account = gap.account) - ?2
         AND NOT EXISTS (SELECT 1 FROM transactions
             WHERE account = gap.account AND nonce = gap.nonce AND (created_at >= ?1 OR gap.mined_at >= ?1))
         LIMIT ?3"
    );
    let due = all(tx, query, values![ended_before, NEWEST, STEP], key)?;
    for nonce in &due {
        forget_nonce(tx, *nonce)?;
    }
    Ok(due.len())
}

fn key(row: &Row) -> Result<([u8; 20], i64), StoreError> {
    Ok((column(row, "account")?, column(row, "nonce")?))
}

fn forget_nonce(tx: &Db, (account, nonce): ([u8; 20], i64)) -> Result<(), StoreError> {
    let key = values![account, nonce];
    tx.run("DELETE FROM transactions WHERE account = ?1 AND nonce = ?2", key)?;
    tx.run("DELETE FROM nonces WHERE account = ?1 AND nonce = ?2", key)?;
    tx.run(
        "INSERT INTO archived_nonces VALUES (?1, ?2)
         ON CONFLICT (account) DO UPDATE SET highest = excluded.highest WHERE excluded.highest > archived_nonces.highest",
        key,
    )?;
    Ok(())
}

/// Deletes archived relays: from now on only the forwarder's nonce refuses copies.
fn forget_archived(tx: &Db, ended_before: i64) -> Result<usize, StoreError> {
    tx.execute(
        "DELETE FROM archive WHERE id IN (SELECT id FROM archive WHERE finished_at < ?1 ORDER BY finished_at LIMIT ?2)",
        values![ended_before, STEP],
    )
}
