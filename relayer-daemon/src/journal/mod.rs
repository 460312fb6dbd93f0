//! The journal: what the daemon must still know after it was killed at any moment.
//!
//! SQLite in WAL mode with `synchronous = FULL`: when a method returns, what it wrote is on disk. A signed
//! transaction is written before any byte of it goes to the network, replacements too; the budget changes in
//! the same transaction as the relay that uses it. Relays and the budget are in [`relays`], nonces and their
//! transactions in [`nonces`]; deciding what to do with them is the sender's.

mod group;
mod nonces;
mod relays;

use std::{path::Path, str::FromStr, sync::Arc, time::Duration};

use alloy::primitives::{Address, B256};
use rusqlite::{Connection, Row, params, types::FromSql};
use thiserror::Error;

use self::group::GroupCommit;
pub use nonces::{MinedSlot, Signed};
pub use relays::{Accepted, NewRelay, RelayRecord};

/// Something is wrong with the journal: nothing may be sent until that is mended.
#[derive(Debug, Error)]
pub enum JournalError {
    /// SQLite failed: disk full, file locked, no permission.
    #[error("journal: {0}")]
    Database(#[from] rusqlite::Error),
    /// A value that this program never writes.
    #[error("journal: column {0} holds a value that was never written there")]
    Corrupt(&'static str),
    /// The journal was written for another chain, key or forwarder.
    #[error("journal belongs to another {0}: give this one a data directory of its own")]
    Foreign(&'static str),
    /// The disk did not take it.
    #[error("journal: not committed")]
    NotCommitted,
    /// The task that was writing died.
    #[error("journal: a write was interrupted")]
    Interrupted,
}

/// Whose journal it is. A journal never follows its owner to another chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The chain's id.
    pub chain_id: u64,
    /// Hash of the chain's block 0: two local chains share an id.
    pub genesis: B256,
    /// The account that pays.
    pub relayer: Address,
    /// The forwarder whose requests are relayed: their digests are the relays' ids.
    pub forwarder: Address,
}

impl Identity {
    fn must_be(&self, other: &Self) -> Result<(), JournalError> {
        let differs = [
            (self.chain_id != other.chain_id, "chain id"),
            (self.genesis != other.genesis, "chain (its block 0 differs)"),
            (self.relayer != other.relayer, "key"),
            (self.forwarder != other.forwarder, "forwarder"),
        ];
        match differs.into_iter().find(|(differs, _)| *differs) {
            Some((_, what)) => Err(JournalError::Foreign(what)),
            None => Ok(()),
        }
    }
}

fn owner(tx: &Connection) -> Result<Option<Identity>, JournalError> {
    let mut statement = tx.prepare("SELECT * FROM identity")?;
    let mut rows = statement.query([])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(Identity {
        chain_id: unsigned(row, "chain_id")?,
        genesis: column::<[u8; 32]>(row, "genesis")?.into(),
        relayer: column::<[u8; 20]>(row, "relayer")?.into(),
        forwarder: column::<[u8; 20]>(row, "forwarder")?.into(),
    }))
}

/// The journal. Methods block on the disk; from async code go through [`Journal::run`].
#[derive(Debug)]
pub struct Journal {
    db: GroupCommit,
}

impl Journal {
    /// Opens the journal at `path`, creating it if it is not there.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn open(path: &Path) -> Result<Self, JournalError> {
        Self::prepare(Connection::open(path)?)
    }

    /// A journal that forgets everything when it is dropped, for tests.
    ///
    /// # Errors
    /// [`JournalError::Database`].
    pub fn in_memory() -> Result<Self, JournalError> {
        Self::prepare(Connection::open_in_memory()?)
    }

    fn prepare(db: Connection) -> Result<Self, JournalError> {
        db.busy_timeout(Duration::from_secs(5))?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.pragma_update(None, "foreign_keys", true)?;
        db.execute_batch(include_str!("schema.sql"))?;
        Ok(Self { db: GroupCommit::new(db) })
    }

    /// Runs a closure on the journal without holding up the async runtime.
    ///
    /// # Errors
    /// The closure's, or [`JournalError::Interrupted`].
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, JournalError> + Send + 'static,
    ) -> Result<T, JournalError> {
        let journal = Arc::clone(self);
        tokio::task::spawn_blocking(move || work(&journal)).await.map_err(|_| JournalError::Interrupted)?
    }

    /// Confirms that this is the journal of `identity`, or nobody's yet.
    ///
    /// # Errors
    /// [`JournalError::Foreign`] with what differs.
    pub fn verify(&self, identity: &Identity) -> Result<(), JournalError> {
        self.transact(|tx| match owner(tx)? {
            Some(owner) => owner.must_be(identity),
            None => Ok(()),
        })
    }

    /// Makes this the journal of `identity`, for good.
    ///
    /// # Errors
    /// [`JournalError::Foreign`] if it is another's.
    pub fn bind(&self, identity: &Identity) -> Result<(), JournalError> {
        self.transact(|tx| {
            if let Some(owner) = owner(tx)? {
                return owner.must_be(identity);
            }
            let Identity { chain_id, genesis, relayer, forwarder } = identity;
            tx.execute(
                "INSERT INTO identity VALUES (1, ?1, ?2, ?3, ?4)",
                params![chain_id.cast_signed(), genesis.0, relayer.0.0, forwarder.0.0],
            )?;
            Ok(())
        })
    }

    fn transact<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        self.db.run(work)
    }
}

/// A column whose type SQLite does not have, written as text.
fn text<T: FromStr>(row: &Row<'_>, column: &'static str) -> Result<T, JournalError> {
    row.get::<_, String>(column)?.parse().map_err(|_| JournalError::Corrupt(column))
}

/// A column as SQLite has it.
fn column<T: FromSql>(row: &Row<'_>, name: &'static str) -> Result<T, JournalError> {
    Ok(row.get(name)?)
}

/// An unsigned 64-bit column, which SQLite stores signed.
fn unsigned(row: &Row<'_>, name: &'static str) -> Result<u64, JournalError> {
    Ok(row.get::<_, i64>(name)?.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDENTITY: Identity = Identity {
        chain_id: 31_337,
        genesis: B256::repeat_byte(1),
        relayer: Address::repeat_byte(2),
        forwarder: Address::repeat_byte(3),
    };

    #[test]
    fn a_journal_belongs_to_one_chain_key_and_forwarder() {
        let journal = Journal::in_memory().unwrap();
        journal.verify(&IDENTITY).unwrap();
        let other = Identity { genesis: B256::ZERO, ..IDENTITY };
        journal.verify(&other).expect("nobody's journal is anybody's");
        journal.bind(&IDENTITY).unwrap();
        journal.bind(&IDENTITY).unwrap();
        for (other, what) in [
            (Identity { chain_id: 1, ..IDENTITY }, "chain id"),
            (other, "chain (its block 0 differs)"),
            (Identity { relayer: Address::ZERO, ..IDENTITY }, "key"),
            (Identity { forwarder: Address::ZERO, ..IDENTITY }, "forwarder"),
        ] {
            for refused in [journal.bind(&other), journal.verify(&other)] {
                assert!(matches!(refused, Err(JournalError::Foreign(found)) if found == what));
            }
        }
    }

    #[test]
    fn what_was_written_is_there_after_reopening() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.sqlite");
        Journal::open(&path).unwrap().bind(&IDENTITY).unwrap();
        let again = Journal::open(&path).unwrap();
        assert!(again.bind(&Identity { chain_id: 1, ..IDENTITY }).is_err());
        let (mode, synchronous): (String, i64) = again
            .transact(|db| {
                let mode = db.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
                Ok((mode, db.query_row("PRAGMA synchronous", [], |row| row.get(0))?))
            })
            .unwrap();
        assert_eq!((mode.as_str(), synchronous), ("wal", 2), "not WAL with synchronous FULL");
    }
}
