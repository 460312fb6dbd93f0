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
    Store, control,
    engine::{Db, Value, all, column, each, single, values},
    events, finality, fleet, relays,
};
use crate::{
    budget::WINDOW_SECONDS,
    store::{RelayRecord, Result, Retention, StoreError},
};

/// The most relays, or nonces without one, of each kind of pruning in one step.
const STEP: i64 = 64;
/// Number of an account's newest nonces that stay whole: more than any reorg undoes.
const NEWEST: i64 = 256;

impl Store {
    /// Runs one small step of pruning: relays without any transaction go a day after their end; others are
    /// archived, and later deleted, as `retention` says. [`Store::relay`] and [`Store::accept`] know archived
    /// relays; their nonces are gone, except the newest of each account. Returns the number of pruned rows; 0
    /// means that nothing is due.
    pub fn prune(&self, retention: &Retention, now: u64) -> Result<usize> {
        if self.is_shared() {
            // In a transaction of its own: a charge waits for a deleted row until the deletion is committed.
            self.write(fleet::forget_rates)?;
        }
        let Retention { whole_seconds, archive_seconds } = *retention;
        let [day, whole, archived] = [WINDOW_SECONDS, whole_seconds, archive_seconds]
            .map(|seconds| now.saturating_sub(seconds).cast_signed());
        self.write(move |db| {
            control::forget_cancelled(db, control::seconds(db)?)?;
            let mut pruned = db.execute(FORGET_UNSENT, values![day, STEP])?;
            pruned += db.execute(FORGET_CLIENTS, values![day, STEP])?;
            pruned += archive(db, whole)?;
            pruned += forget_gaps(db, whole)?;
            pruned += db.execute(FORGET_ARCHIVED, values![archived, STEP])?;
            pruned += events::forget(db, whole, now)?;
            Ok(pruned)
        })
    }

    /// Returns the highest nonce deleted with its archived relay: no nonce up to it is a gap.
    pub fn archived_nonce(&self, account: Address) -> Result<Option<u64>> {
        let query = "SELECT highest FROM archived_nonces WHERE account = $1";
        self.read_single(|db| single(db, query, values![account]))
    }

    /// Returns the record of a relay, archived or not; `None` if it is not known.
    pub fn relay(&self, id: B256) -> Result<Option<RelayRecord>> {
        self.read(|db| {
            let Some(outcome) = relays::stored_outcome(db, &id)? else { return Ok(None) };
            let mut hashes = archived_hashes(db, &id)?;
            hashes.extend(relays::hashes(db, &id)?);
            Ok(Some(RelayRecord { outcome, finality: finality::of_relay(db, &id)?, hashes }))
        })
    }
}

/// Returns the hashes of an archived relay, oldest first.
fn archived_hashes(db: &Db, id: &B256) -> Result<Vec<B256>> {
    let hashes: Option<Vec<u8>> = single(db, "SELECT hashes FROM archive WHERE id = $1", values![id])?;
    let hashes = hashes.unwrap_or_default();
    if !hashes.len().is_multiple_of(B256::len_bytes()) {
        return Err(StoreError::Corrupt("hashes"));
    }
    Ok(hashes.chunks_exact(B256::len_bytes()).map(B256::from_slice).collect())
}

/// Deletes relays without any transaction.
const FORGET_UNSENT: &str = "DELETE FROM relays WHERE state = 'dropped' AND finished_at < $1 AND id IN (
         SELECT id FROM relays WHERE state = 'dropped' AND finished_at < $1
         AND NOT EXISTS (SELECT 1 FROM nonces WHERE relay = relays.id)
         ORDER BY finished_at LIMIT $2)";

/// Deletes the addresses of clients: they count for the shares of one window.
const FORGET_CLIENTS: &str = "UPDATE relays SET client = NULL WHERE finished_at < $1 AND id IN (
         SELECT id FROM relays WHERE client IS NOT NULL AND finished_at < $1 ORDER BY finished_at LIMIT $2)";

/// Deletes archived relays: from now on only the forwarder's nonce refuses copies.
const FORGET_ARCHIVED: &str = "DELETE FROM archive
     WHERE id IN (SELECT id FROM archive WHERE finished_at < $1 ORDER BY finished_at LIMIT $2)";

/// Archives relays that have ended together with all their nonces.
fn archive(tx: &Db, ended_before: i64) -> Result<usize> {
    let due: Vec<B256> = each(tx, tx.statements().to_archive, values![ended_before, NEWEST, STEP])?;
    for id in &due {
        // A dropped relay that was sent again much later is in the archive already.
        let mut hashes = archived_hashes(tx, id)?;
        hashes.extend(relays::hashes(tx, id)?);
        tx.run(
            "INSERT INTO archive (id, state, error_code, error_detail, error_retry, tx_hash, block_number, gas_used,
                 agent_id, finished_at, finality, hashes)
             SELECT id, state, error_code, error_detail, error_retry, tx_hash, block_number, gas_used, agent_id,
                 finished_at, coalesce((SELECT finality FROM nonces WHERE relay = $1 AND mined_hash = tx_hash), 0), $2
             FROM relays WHERE id = $1
             ON CONFLICT (id) DO UPDATE SET state = excluded.state, error_code = excluded.error_code,
                 error_detail = excluded.error_detail, error_retry = excluded.error_retry, tx_hash = excluded.tx_hash,
                 block_number = excluded.block_number, gas_used = excluded.gas_used, agent_id = excluded.agent_id,
                 finished_at = excluded.finished_at, finality = excluded.finality, hashes = excluded.hashes",
            values![id, hashes.concat()],
        )?;
        forget_nonces(tx, "SELECT account, nonce FROM nonces WHERE relay = $1", values![id])?;
        tx.run("DELETE FROM relays WHERE id = $1", values![id])?;
    }
    Ok(due.len())
}

/// Deletes nonces without a relay: gaps that were filled.
fn forget_gaps(tx: &Db, ended_before: i64) -> Result<usize> {
    forget_nonces(tx, tx.statements().old_gaps, values![ended_before, NEWEST, STEP])
}

fn forget_nonces(tx: &Db, query: &'static str, chosen: &[Value]) -> Result<usize> {
    let nonces: Vec<(Address, u64)> =
        all(tx, query, chosen, |row| Ok((column(row, "account")?, column(row, "nonce")?)))?;
    for (account, nonce) in &nonces {
        let key = values![account, *nonce];
        tx.run("DELETE FROM transactions WHERE account = $1 AND nonce = $2", key)?;
        tx.run("DELETE FROM nonces WHERE account = $1 AND nonce = $2", key)?;
        tx.run(
            "INSERT INTO archived_nonces VALUES ($1, $2)
             ON CONFLICT (account) DO UPDATE SET highest = excluded.highest WHERE excluded.highest > archived_nonces.highest",
            key,
        )?;
    }
    Ok(nonces.len())
}
