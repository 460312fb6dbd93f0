//! Schema versions. The file carries its own (`PRAGMA user_version`); a file of an older version is brought forward
//! step by step when it is opened, all steps in one transaction, and one of a newer version is refused.

use std::cmp::Ordering;

use rusqlite::{Connection, params};
use serde::Deserialize;

use alloy::primitives::{B256, U256};

use crate::{
    error_code::ErrorCode,
    outcome::{Failure, Mined, Outcome},
    store::StoreError,
};

use super::relays;

type Step = fn(&Connection) -> Result<(), StoreError>;

/// The steps: the first leads to version 1.
const STEPS: [Step; 4] = [to_version_1, to_version_2, to_version_3, to_version_4];

/// Brings a file to the latest version.
///
/// # Errors
/// [`StoreError::TooNew`]; or what keeps the file from being read or written, and then it is as it was before.
pub(super) fn migrate(db: &mut Connection) -> Result<(), StoreError> {
    let known = u32::try_from(STEPS.len()).unwrap_or(u32::MAX);
    let found = version(db)?;
    if found == known {
        return Ok(());
    }
    // Another process may be doing the same: only who has the lock knows the version for certain.
    let tx = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let found = version(&tx)?;
    if found == known {
        return Ok(());
    }
    if found > known {
        return Err(StoreError::TooNew { found, known });
    }
    let is_new: bool = tx.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))?;
    for step in STEPS.iter().skip(found as usize) {
        step(&tx)?;
    }
    tx.pragma_update(None, "user_version", known)?;
    tx.commit()?;
    if !is_new {
        tracing::info!(from = found, to = known, "journal schema brought forward");
    }
    Ok(())
}

/// Confirms that a file needs no migration.
///
/// # Errors
/// [`StoreError::TooNew`], [`StoreError::TooOld`].
pub(super) fn must_be_current(db: &Connection) -> Result<(), StoreError> {
    let (found, known) = (version(db)?, u32::try_from(STEPS.len()).unwrap_or(u32::MAX));
    match found.cmp(&known) {
        Ordering::Less => Err(StoreError::TooOld { found, known }),
        Ordering::Equal => Ok(()),
        Ordering::Greater => Err(StoreError::TooNew { found, known }),
    }
}

fn version(db: &Connection) -> Result<u32, StoreError> {
    Ok(db.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

/// Writes the version as it is: a page of the file, whatever is in it.
pub(super) fn rewrite_version(tx: &Connection) -> Result<(), StoreError> {
    Ok(tx.pragma_update(None, "user_version", version(tx)?)?)
}

/// From nothing, or from the files that were written before versions were counted.
fn to_version_1(tx: &Connection) -> Result<(), StoreError> {
    const SCHEMA: &str = include_str!("schema.sql");
    let is_unversioned = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'relays'";
    if tx.query_row(is_unversioned, [], |row| row.get::<_, i64>(0))? == 0 {
        return Ok(tx.execute_batch(SCHEMA)?);
    }
    tx.execute_batch(
        "DROP INDEX IF EXISTS relays_pending; DROP INDEX IF EXISTS relays_reserved;
         DROP INDEX IF EXISTS nonces_relay; DROP INDEX IF EXISTS transactions_nonce;
         ALTER TABLE identity RENAME TO identity_0; ALTER TABLE relays RENAME TO relays_0;
         ALTER TABLE nonces RENAME TO nonces_0; ALTER TABLE transactions RENAME TO transactions_0;
         ALTER TABLE budget RENAME TO budget_0;",
    )?;
    tx.execute_batch(SCHEMA)?;
    tx.execute_batch(
        "INSERT INTO identity SELECT only_row, chain_id, genesis, forwarder FROM identity_0;
         INSERT INTO relays (id, signer, forward_nonce, deadline, calldata, l1_fee_wei, reserved_wei, created_at)
             SELECT id, signer, forward_nonce, deadline, calldata, l1_fee_wei, reserved_wei, created_at
             FROM relays_0 ORDER BY rowid;",
    )?;
    copy_outcomes(tx)?;
    // Nonces are given away only once the file has an owner, so this finds its key.
    tx.execute_batch(
        "INSERT INTO nonces (account, nonce, relay, state, mined_hash, mined_block, mined_at, paid_wei)
             SELECT (SELECT relayer FROM identity_0), nonce, relay, state, mined_hash, mined_block, mined_at, paid_wei
             FROM nonces_0;
         INSERT INTO transactions (hash, account, nonce, purpose, raw, max_fee_wei, tip_wei, gas_limit, created_at)
             SELECT hash, (SELECT relayer FROM identity_0), nonce, purpose, raw, max_fee_wei, tip_wei, gas_limit, created_at
             FROM transactions_0 ORDER BY rowid;
         INSERT INTO budget SELECT only_row, opened_at, settled_wei FROM budget_0;
         DROP TABLE transactions_0; DROP TABLE nonces_0; DROP TABLE relays_0; DROP TABLE identity_0;
         DROP TABLE budget_0;",
    )?;
    Ok(())
}

/// Who sent each relay, and what each party has spent of the budget.
fn to_version_2(tx: &Connection) -> Result<(), StoreError> {
    // `client` is an IPv6 address, or an IPv4 address mapped into IPv6. `party` is explained beside its code.
    tx.execute_batch(
        "ALTER TABLE relays ADD COLUMN client BLOB;
         -- Of the budget's window; empty while nothing was paid in it.
         CREATE TABLE spending (party BLOB PRIMARY KEY, settled_wei TEXT NOT NULL) WITHOUT ROWID;",
    )?;
    Ok(())
}

/// What is left of old relays, and indexes that keep every query from reading all of a table that grows.
fn to_version_3(tx: &Connection) -> Result<(), StoreError> {
    tx.execute_batch(
        "-- A relay that ended long ago: how, and the hashes of its transactions, oldest first, 32 bytes each.
         CREATE TABLE archive (
             id            BLOB PRIMARY KEY,
             state         TEXT NOT NULL,
             error_code    TEXT,
             error_detail  TEXT,
             error_retry   INTEGER,
             tx_hash       BLOB,
             block_number  INTEGER,
             gas_used      INTEGER,
             agent_id      BLOB,
             finished_at   INTEGER NOT NULL,
             hashes        BLOB NOT NULL
         );
         CREATE INDEX archive_finished ON archive (finished_at);
         -- The highest nonce of each account whose relay is archived.
         CREATE TABLE archived_nonces (account BLOB PRIMARY KEY, highest INTEGER NOT NULL) WITHOUT ROWID;
         CREATE INDEX relays_dropped ON relays (finished_at) WHERE state = 'dropped';
         CREATE INDEX nonces_lost ON nonces (account, nonce) WHERE state = 'lost';",
    )?;
    Ok(())
}

/// What a relay's replacements are expected to use.
fn to_version_4(tx: &Connection) -> Result<(), StoreError> {
    // NULL while nothing was reserved, and in what earlier versions have reserved for.
    Ok(tx.execute_batch("ALTER TABLE relays ADD COLUMN expected_gas INTEGER;")?)
}

/// An outcome as unversioned files have it: JSON, with the message that clients saw.
#[derive(Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum OutcomeJson {
    Executed { mined: MinedJson, agent_id: Option<U256> },
    Reverted { mined: MinedJson, failure: FailureJson },
    Dropped { failure: FailureJson },
}

#[derive(Deserialize)]
struct MinedJson {
    tx_hash: B256,
    block_number: u64,
    gas_used: u64,
}

#[derive(Deserialize)]
struct FailureJson {
    code: String,
    message: String,
    retry_after: Option<u64>,
}

fn copy_outcomes(tx: &Connection) -> Result<(), StoreError> {
    let mut old = tx.prepare("SELECT id, outcome, finished_at FROM relays_0 WHERE outcome IS NOT NULL")?;
    let mut rows = old.query([])?;
    while let Some(row) = rows.next()? {
        let (id, json): ([u8; 32], String) = (row.get("id")?, row.get("outcome")?);
        let finished_at: Option<i64> = row.get("finished_at")?;
        let outcome = serde_json::from_str(&json).ok().and_then(outcome);
        relays::write_outcome(tx, &id.into(), &outcome.ok_or(StoreError::Corrupt("outcome"))?)?;
        tx.execute("UPDATE relays SET finished_at = ?2 WHERE id = ?1", params![id, finished_at])?;
    }
    Ok(())
}

fn outcome(json: OutcomeJson) -> Option<Outcome> {
    let mined = |MinedJson { tx_hash, block_number, gas_used }| Mined { tx_hash, block_number, gas_used };
    let failure = |FailureJson { code, message, retry_after }| {
        let code = ErrorCode::from_name(&code)?;
        let detail = (message != code.wording()).then_some(message);
        Some(Failure { code, detail, retry_after })
    };
    Some(match json {
        OutcomeJson::Executed { mined: at, agent_id } => Outcome::Executed { mined: mined(at), agent_id },
        OutcomeJson::Reverted { mined: at, failure: why } => {
            Outcome::Reverted { mined: mined(at), failure: failure(why)? }
        }
        OutcomeJson::Dropped { failure: why } => Outcome::Dropped { failure: failure(why)? },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_a_newer_program_is_refused_and_left_as_it_is() {
        let mut db = Connection::open_in_memory().unwrap();
        migrate(&mut db).unwrap();
        let latest = version(&db).unwrap();
        db.pragma_update(None, "user_version", latest + 1).unwrap();
        let refused = migrate(&mut db).unwrap_err();
        assert!(
            matches!(refused, StoreError::TooNew { found, known } if found == latest + 1 && known == latest)
        );
        assert!(refused.to_string().contains("run the newer program"), "{refused}");
        assert_eq!(version(&db).unwrap(), latest + 1);
    }

    #[test]
    fn a_file_of_this_version_is_not_written_to() {
        let mut db = Connection::open_in_memory().unwrap();
        migrate(&mut db).unwrap();
        let before = db.total_changes();
        migrate(&mut db).unwrap();
        assert_eq!(db.total_changes(), before);
    }
}
