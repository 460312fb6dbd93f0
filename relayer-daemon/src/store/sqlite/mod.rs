//! The store in one SQLite file, in WAL mode with `synchronous = FULL`: a write is on disk when it returns.
//!
//! One thread writes ([`writer`]). Reads have a connection of their own: they see the last commit and never wait for
//! one. Queries are in [`relays`], [`nonces`] and [`budget`], by table, and in [`retention`]; a function named like a
//! method of [`Store`] implements it. [`schema`] has the file's format.

mod budget;
mod identity;
mod nonces;
#[cfg(test)]
mod query_plans;
mod relays;
mod retention;
mod schema;
mod writer;

use std::{
    net::IpAddr,
    path::Path,
    str::FromStr,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use alloy::primitives::{Address, B256};
use rusqlite::{Connection, OpenFlags, Row, types::FromSql};

use self::writer::Writer;
use super::{
    Accepted, ExpectedCost, Identity, MinedNonce, NewRelay, NewTransaction, RelayRecord, Reservation,
    Settlement, Store, StoreError,
};
use crate::{
    budget::{Budget, share::Allowance},
    outcome::RelayOutcome,
    store::{NonceAssignment, Retention},
};

/// How long to wait for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Engine(error.to_string())
    }
}

/// The store in an SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    /// `None` if it was opened for reading only.
    writer: Option<Writer>,
    reader: Mutex<Connection>,
}

impl SqliteStore {
    /// Opens the file at `path`, and creates it if it is not there.
    ///
    /// # Errors
    /// [`StoreError::Format`], or [`StoreError::Engine`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::start(Connection::open(path)?, || Connection::open(path))
    }

    /// Opens the file at `path` for reading, also beside its writer; `None` if it is not there or empty.
    ///
    /// # Errors
    /// [`StoreError::Format`], or [`StoreError::Engine`].
    pub fn open_read_only(path: &Path) -> Result<Option<Self>, StoreError> {
        if !path.exists() {
            return Ok(None);
        }
        let reader = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        reader.busy_timeout(BUSY_TIMEOUT)?;
        let store = (!schema::is_empty(&reader)?).then(|| Self { writer: None, reader: Mutex::new(reader) });
        Ok(store)
    }

    /// A store in memory, for tests.
    ///
    /// # Errors
    /// [`StoreError::Engine`].
    pub fn in_memory() -> Result<Self, StoreError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Connections of one process that open the same name share it.
        let uri = format!("file:/store-{}?vfs=memdb", NEXT.fetch_add(1, Ordering::Relaxed));
        let open = || Connection::open_with_flags(&uri, OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI);
        Self::start(open()?, open)
    }

    fn start(
        mut writer: Connection,
        reader: impl FnOnce() -> rusqlite::Result<Connection>,
    ) -> Result<Self, StoreError> {
        writer.busy_timeout(BUSY_TIMEOUT)?;
        schema::create(&mut writer)?;
        writer.pragma_update(None, "journal_mode", "WAL")?;
        writer.pragma_update(None, "synchronous", "FULL")?;
        writer.pragma_update(None, "foreign_keys", true)?;
        let reader = reader()?;
        reader.busy_timeout(BUSY_TIMEOUT)?;
        reader.pragma_update(None, "query_only", true)?;
        Ok(Self { writer: Some(Writer::start(writer)?), reader: Mutex::new(reader) })
    }

    fn read<T>(&self, work: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        // One transaction: several queries see the same state.
        let tx = reader.transaction()?;
        work(&tx)
    }

    fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.as_ref().ok_or(StoreError::ReadOnly)?.run(work)
    }
}

impl Store for SqliteStore {
    fn verify(&self, identity: &Identity) -> Result<(), StoreError> {
        self.read(|db| identity::verify(db, identity))
    }

    fn bind(&self, identity: &Identity) -> Result<(), StoreError> {
        let identity = *identity;
        self.write(move |db| identity::bind(db, &identity))
    }

    fn probe(&self) -> Result<(), StoreError> {
        self.write(schema::rewrite_version)
    }

    fn accept(&self, relay: &NewRelay, now: u64) -> Result<Accepted, StoreError> {
        let relay = relay.clone();
        self.write(move |db| relays::accept(db, &relay, now))
    }

    fn reserve(&self, id: B256, wei: u128, limit_wei: u128, now: u64) -> Result<bool, StoreError> {
        self.write(move |db| budget::reserve(db, &id, wei, limit_wei, now))
    }

    fn affordable(
        &self,
        signer: Address,
        client: Option<IpAddr>,
        wei: u128,
        allowance: &Allowance,
        now: u64,
    ) -> Result<Reservation, StoreError> {
        let asks = budget::Asks { id: None, signer, client, wei, no_op_wei: 0 };
        self.read(|db| budget::check(db, &asks, allowance, now))
    }

    fn reserve_share(
        &self,
        id: B256,
        cost: &ExpectedCost,
        allowance: &Allowance,
        now: u64,
    ) -> Result<Reservation, StoreError> {
        let (cost, allowance) = (*cost, *allowance);
        self.write(move |db| budget::reserve_share(db, &id, &cost, &allowance, now))
    }

    fn finish_unsent(&self, id: B256, outcome: &RelayOutcome, now: u64) -> Result<(), StoreError> {
        let outcome = outcome.clone();
        self.write(move |db| {
            if relays::is_pending(db, &id)? {
                relays::finish(db, &id, &outcome, now)?;
            }
            budget::close_if_unused(db, now)
        })
    }

    fn relay(&self, id: B256) -> Result<Option<RelayRecord>, StoreError> {
        self.read(|db| relays::record(db, &id))
    }

    fn accepted(&self, id: B256) -> Result<Option<NewRelay>, StoreError> {
        self.read(|db| relays::accepted(db, &id))
    }

    fn unsent(&self, now: u64) -> Result<Vec<NewRelay>, StoreError> {
        self.write(move |db| {
            let unsent = relays::unsent(db)?;
            for relay in &unsent {
                budget::set_reserved(db, &relay.id, 0)?;
            }
            budget::close_if_unused(db, now)?;
            Ok(unsent)
        })
    }

    fn budget(&self, limit_wei: u128, now: u64) -> Result<Budget, StoreError> {
        self.read(|db| budget::at(db, limit_wei, now))
    }

    fn oldest_pending(&self) -> Result<Option<u64>, StoreError> {
        self.read(relays::oldest_pending)
    }

    fn prune(&self, retention: &Retention, now: u64) -> Result<usize, StoreError> {
        let retention = *retention;
        self.write(move |db| retention::prune(db, &retention, now))
    }

    fn archived_nonce(&self, account: Address) -> Result<Option<u64>, StoreError> {
        self.read(|db| retention::archived_nonce(db, &account))
    }

    fn record(&self, account: Address, transactions: &[NewTransaction], now: u64) -> Result<(), StoreError> {
        let transactions = transactions.to_vec();
        self.write(move |db| nonces::record(db, &account, &transactions, now))
    }

    fn record_gap(
        &self,
        account: Address,
        no_op: &NewTransaction,
        extra_wei: u128,
        limit_wei: u128,
        now: u64,
    ) -> Result<bool, StoreError> {
        let no_op = [no_op.clone()];
        self.write(move |db| {
            let allowed = budget::allow(db, extra_wei, limit_wei, now)?;
            if allowed {
                nonces::record(db, &account, &no_op, now)?;
            }
            Ok(allowed)
        })
    }

    fn next_nonce(&self, account: Address) -> Result<Option<u64>, StoreError> {
        self.read(|db| nonces::next(db, &account))
    }

    fn open_nonces(&self, account: Address) -> Result<Vec<NonceAssignment>, StoreError> {
        self.read(|db| nonces::open(db, &account))
    }

    fn accounts_with_open_nonces(&self) -> Result<Vec<Address>, StoreError> {
        self.read(nonces::accounts_with_open)
    }

    fn assignment(&self, account: Address, nonce: u64) -> Result<NonceAssignment, StoreError> {
        self.read(|db| nonces::assignment(db, &account, nonce.cast_signed()))
    }

    fn mined(&self, account: Address, nonce: u64) -> Result<Option<MinedNonce>, StoreError> {
        self.read(|db| nonces::mined(db, &account, nonce))
    }

    fn mined_since(&self, account: Address, since: u64) -> Result<Vec<u64>, StoreError> {
        self.read(|db| nonces::mined_since(db, &account, since))
    }

    fn lost(&self, account: Address) -> Result<Vec<u64>, StoreError> {
        self.read(|db| nonces::lost(db, &account))
    }

    fn highest_mined(&self, account: Address) -> Result<Option<u64>, StoreError> {
        self.read(|db| nonces::highest_mined(db, &account))
    }

    fn settle(&self, account: Address, settlement: &Settlement, now: u64) -> Result<(), StoreError> {
        let settlement = settlement.clone();
        self.write(move |db| nonces::settle(db, &account, &settlement, now))
    }

    fn reopen(&self, account: Address, nonce: u64, expected_wei: u128) -> Result<bool, StoreError> {
        self.write(move |db| nonces::reopen(db, &account, nonce, expected_wei))
    }

    fn lose(&self, account: Address, nonce: u64) -> Result<(), StoreError> {
        self.write(move |db| nonces::lose(db, &account, nonce))
    }

    fn explains(&self, account: Address, from: u64, to: u64) -> Result<bool, StoreError> {
        self.read(|db| nonces::explains(db, &account, from, to))
    }
}

/// A column whose type SQLite does not have, written as text.
fn text<T: FromStr>(row: &Row<'_>, column: &'static str) -> Result<T, StoreError> {
    row.get::<_, String>(column)?.parse().map_err(|_| StoreError::Corrupt(column))
}

/// A column as SQLite has it.
fn column<T: FromSql>(row: &Row<'_>, name: &'static str) -> Result<T, StoreError> {
    Ok(row.get(name)?)
}

/// An unsigned 64-bit column, which SQLite stores signed.
fn unsigned(row: &Row<'_>, name: &'static str) -> Result<u64, StoreError> {
    Ok(row.get::<_, i64>(name)?.cast_unsigned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("journal.sqlite")).unwrap();
        let read = |db: &Connection| -> Result<(String, i64), StoreError> {
            let mode = db.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
            Ok((mode, db.query_row("PRAGMA synchronous", [], |row| row.get(0))?))
        };
        let (mode, synchronous) = store.write(read).unwrap();
        assert_eq!((mode.as_str(), synchronous), ("wal", 2), "not WAL with synchronous FULL");
    }

    #[test]
    fn a_read_does_not_wait_for_a_write() {
        let dir = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&dir.path().join("journal.sqlite")).unwrap();
        let (started, has_started) = std::sync::mpsc::channel();
        let (go, may_go) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|threads| {
            let store = &store;
            let write = threads.spawn(move || {
                store.write(move |db| {
                    db.execute("INSERT INTO budget VALUES (1, 5, '7')", [])?;
                    started.send(()).unwrap();
                    may_go.recv().unwrap();
                    Ok(())
                })
            });
            has_started.recv().unwrap();
            assert_eq!(store.budget(10, 6).unwrap().window.settled_wei, 0, "nothing is committed yet");
            go.send(()).unwrap();
            write.join().unwrap().unwrap();
        });
        assert_eq!(store.budget(10, 6).unwrap().window.settled_wei, 7);
    }
}
