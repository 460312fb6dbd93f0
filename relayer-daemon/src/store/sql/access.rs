//! Access of the operations to the database: reads in one transaction, and writes, each only as far as this
//! daemon may write.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use alloy::primitives::B256;
use tokio::sync::watch;

use super::{
    Store,
    engine::{Db, statements::FrequentStatements},
    fleet, locks,
};
use crate::store::{DaemonId, Payer, Result, StoreError};

/// The most operations that block a thread at once: fewer than the runtime has, so that leases find one.
pub(super) const CONCURRENT: usize = 256;
/// The most operations, besides those, of each store with its own readers, such as the one for clients.
pub(super) const CONCURRENT_OF_OWN_READER: usize = 64;

/// Faults for tests.
#[derive(Debug, Clone, Default)]
pub struct StoreFaults {
    /// Writes fail as on a full disk.
    pub disk_full: Arc<AtomicBool>,
    /// Every operation fails without effect, as after the death of the process.
    pub dead: Arc<AtomicBool>,
    /// Writes that are left until the database does not answer; `None` for one that always does.
    pub writes_left: Option<Arc<AtomicUsize>>,
    /// Operations neither begin nor end, as in a stalled process.
    pub paused: Option<watch::Receiver<bool>>,
}

impl StoreFaults {
    /// Waits while operations are paused.
    async fn go_on(&self) {
        if let Some(mut paused) = self.paused.clone() {
            // Without its sender nothing pauses any more.
            let _ = paused.wait_for(|paused| !paused).await;
        }
    }

    fn may_read(&self) -> Result<()> {
        if self.dead.load(Ordering::Relaxed) {
            return Err(StoreError::Interrupted);
        }
        match &self.writes_left {
            Some(left) if left.load(Ordering::Relaxed) == 0 => Err(unanswered()),
            _ => Ok(()),
        }
    }

    fn may_write(&self) -> Result<()> {
        if self.disk_full.load(Ordering::Relaxed) {
            return Err(StoreError::NotCommitted);
        }
        self.may_read()?;
        let Some(left) = &self.writes_left else { return Ok(()) };
        // Two writes at once: one step decides which of them is the last one.
        let took = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        took.map(drop).map_err(|_| unanswered())
    }
}

fn unanswered() -> StoreError {
    StoreError::Unreachable("an injected fault".to_owned())
}

impl Store {
    /// Runs a closure on the store without blocking the async runtime.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let _permit = self.permits.acquire().await.map_err(|_| StoreError::Interrupted)?;
        self.run_at_once(work).await
    }

    /// Runs a closure on the store as [`Store::run`] does, without waiting for other operations.
    pub async fn run_at_once<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let store = Arc::clone(self);
        self.faults.go_on().await;
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        self.faults.go_on().await;
        done.map_err(|_| StoreError::Interrupted)?
    }

    pub(super) fn read<T>(&self, work: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
        self.faults.may_read()?;
        self.readers.read(work)
    }

    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.faults.may_write()?;
        self.writer.as_ref().ok_or(StoreError::ReadOnly)?.run(work)
    }

    /// Runs a write about leases.
    pub(super) fn write_leases<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.faults.may_write()?;
        self.leases.as_ref().ok_or(StoreError::ReadOnly)?.run(work)
    }

    /// Runs a write of one statement that is right whatever else is written at that moment. Where several
    /// transactions write at once, the connections that read run it, too.
    pub(super) fn write_single<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        if self.frequent.is_none() {
            return self.write(work);
        }
        self.faults.may_write()?;
        self.readers.single(work)
    }

    /// Runs a write that commits by itself.
    pub(super) fn write_committing<T>(&self, work: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
        self.faults.may_write()?;
        self.writer.as_ref().ok_or(StoreError::ReadOnly)?.run_committing(work)
    }

    /// Returns the daemon of a fleet with the statements of its frequent writes, if the database has any.
    pub(super) fn frequent(&self) -> Option<(&DaemonId, &'static FrequentStatements)> {
        self.daemon.as_ref().zip(self.frequent)
    }

    /// Runs a read of one statement.
    pub(super) fn read_single<T>(&self, work: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
        self.faults.may_read()?;
        self.readers.single(work)
    }

    /// Runs a write about an account's nonces: in a fleet it fails if another daemon has the account by now.
    pub(super) fn write_for<T: Send + 'static>(
        &self,
        payer: Payer,
        work: impl FnOnce(&Db) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let daemon = self.daemon.clone();
        self.write(move |db| {
            if let Some(daemon) = daemon {
                fleet::must_hold_account(db, &daemon, &payer)?;
            }
            work(db)
        })
    }

    /// Runs a write about a relay without a nonce: in a fleet it fails if another daemon runs it by now.
    pub(super) fn write_about<T: Send + 'static>(
        &self,
        relay: B256,
        work: impl FnOnce(&Db) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let daemon = self.daemon.clone();
        self.write(move |db| {
            locks::relay(db, &relay)?;
            if let Some(daemon) = daemon {
                fleet::must_hold_relay(db, &daemon, &relay)?;
            }
            work(db)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::engine::{column, first, values};
    use super::*;

    #[test]
    fn a_read_for_a_client_does_not_hold_up_the_senders() {
        let store = Store::in_memory().unwrap();
        let clients = store.with_own_reader().unwrap();
        let (reading, is_reading) = std::sync::mpsc::channel();
        let (go, may_go) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|threads| {
            threads.spawn(move || {
                clients.read(|_| {
                    reading.send(()).unwrap();
                    may_go.recv().unwrap();
                    Ok(())
                })
            });
            is_reading.recv().unwrap();
            assert_eq!(store.oldest_pending().unwrap(), None, "waits for the client's read");
            go.send(()).unwrap();
        });
    }

    #[test]
    fn of_two_writes_at_once_one_is_the_last_that_the_database_answers() {
        const ROUNDS: usize = 20_000;
        let one_left =
            || StoreFaults { writes_left: Some(Arc::new(AtomicUsize::new(1))), ..StoreFaults::default() };
        let rounds: Vec<StoreFaults> = std::iter::repeat_with(one_left).take(ROUNDS).collect();
        let arrived = AtomicUsize::new(0);
        let write = || {
            let written = rounds.iter().enumerate().filter(|(round, faults)| {
                arrived.fetch_add(1, Ordering::SeqCst);
                while arrived.load(Ordering::SeqCst) < 2 * (round + 1) {
                    std::thread::yield_now();
                }
                faults.may_write().is_ok()
            });
            written.count()
        };
        let written = std::thread::scope(|threads| {
            let other = threads.spawn(write);
            write() + other.join().unwrap()
        });
        assert_eq!(written, ROUNDS);
    }

    #[test]
    fn operations_for_clients_leave_the_senders_their_threads() {
        let store = Store::in_memory().unwrap();
        let clients = store.with_own_reader().unwrap();
        let taken: Vec<_> = std::iter::from_fn(|| clients.permits.try_acquire().ok()).collect();
        assert_eq!(taken.len(), CONCURRENT_OF_OWN_READER);
        assert_eq!(store.permits.available_permits(), CONCURRENT);
    }

    #[test]
    fn what_was_written_is_on_disk_and_a_read_does_not_wait_for_a_write_which_a_locked_file_fails() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.sqlite");
        let store = Store::open(&path).unwrap();
        let mode = |db: &Db| first(db, "PRAGMA journal_mode", values![], |row| column(row, "journal_mode"));
        let sync = |db: &Db| first(db, "PRAGMA synchronous", values![], |row| column(row, "synchronous"));
        assert_eq!(store.write(mode), Ok(Some("wal".to_owned())));
        assert_eq!(store.write(sync), Ok(Some(2_i64)), "not FULL");
        let (started, has_started) = std::sync::mpsc::channel();
        let (go, may_go) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|threads| {
            let store = &store;
            let write = threads.spawn(move || {
                store.write(move |db| {
                    db.run("INSERT INTO budget VALUES (1, 5, '7')", values![])?;
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
        store.probe().unwrap();
        let other = rusqlite::Connection::open(&path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert!(store.probe().is_err(), "another process holds the lock");
    }
}
