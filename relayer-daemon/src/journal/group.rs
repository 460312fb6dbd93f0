//! Group commit: everybody who waits for the disk at the same moment shares one sync.
//!
//! A commit with `synchronous = FULL` takes milliseconds, whatever is in it. So each caller runs its work in
//! a savepoint of one open transaction, and whoever finds nobody queueing behind commits for all. A caller
//! returns only once what it wrote is on disk, and a failed commit fails everybody in it.

use std::sync::{
    Condvar, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use rusqlite::Connection;

use super::JournalError;

/// The largest group, so that an endless queue does not put off its first for ever.
const LARGEST_GROUP: usize = 64;

/// A connection whose transactions are committed together.
#[derive(Debug)]
pub(super) struct GroupCommit {
    state: Mutex<State>,
    committed: Condvar,
    queueing: AtomicUsize,
}

#[derive(Debug)]
struct State {
    db: Connection,
    /// The group that is open, or opens next.
    group: u64,
    /// How many are in it.
    members: usize,
    /// The last group whose commit failed.
    failed: Option<u64>,
}

impl GroupCommit {
    pub(super) fn new(db: Connection) -> Self {
        let state = State { db, group: 0, members: 0, failed: None };
        Self { state: Mutex::new(state), committed: Condvar::new(), queueing: AtomicUsize::new(0) }
    }

    /// Runs `work`; when this returns `Ok`, its writes are on disk. An error of its own undoes its writes and
    /// nobody else's.
    pub(super) fn run<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        self.queueing.fetch_add(1, Ordering::SeqCst);
        let mut state = self.lock();
        let behind = self.queueing.fetch_sub(1, Ordering::SeqCst).saturating_sub(1);

        let group = state.group;
        let result = state.perform(work);
        if behind == 0 || state.members >= LARGEST_GROUP {
            state.commit();
            self.committed.notify_all();
        }
        while state.group == group && state.members > 0 {
            state = self.committed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.failed == Some(group) { Err(JournalError::NotCommitted) } else { result }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while the lock was held left a savepoint open at worst: it is never committed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn perform<T>(
        &mut self,
        work: impl FnOnce(&Connection) -> Result<T, JournalError>,
    ) -> Result<T, JournalError> {
        if self.members == 0 {
            self.db.execute_batch("BEGIN IMMEDIATE")?;
        }
        self.members += 1;
        let savepoint = self.db.savepoint()?;
        let result = work(&savepoint)?;
        savepoint.commit()?;
        Ok(result)
    }

    fn commit(&mut self) {
        if self.members == 0 {
            return;
        }
        if let Err(error) = self.db.execute_batch("COMMIT") {
            tracing::error!(%error, "journal not committed");
            // Whatever is left of it must not become part of the next group.
            let _ = self.db.execute_batch("ROLLBACK");
            self.failed = Some(self.group);
        }
        self.group = self.group.wrapping_add(1);
        self.members = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn table() -> GroupCommit {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch("CREATE TABLE t (n INTEGER PRIMARY KEY)").unwrap();
        GroupCommit::new(db)
    }

    fn insert(group: &GroupCommit, n: i64) -> Result<(), JournalError> {
        group.run(|db| Ok(db.execute("INSERT INTO t VALUES (?1)", [n]).map(drop)?))
    }

    fn count(group: &GroupCommit) -> i64 {
        group.run(|db| Ok(db.query_row("SELECT count(*) FROM t", [], |row| row.get(0))?)).unwrap()
    }

    #[test]
    fn everybody_gets_committed_whatever_the_order() {
        let group = Arc::new(table());
        let threads: Vec<_> = (0..16)
            .map(|thread| {
                let group = Arc::clone(&group);
                std::thread::spawn(move || {
                    for n in 0..100 {
                        insert(&group, thread * 100 + n).unwrap();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(count(&group), 1_600);
        let state = group.lock();
        assert!(state.db.is_autocommit(), "a transaction was left open");
    }

    #[test]
    fn one_members_error_undoes_its_own_writes_only() {
        let group = Arc::new(table());
        insert(&group, 1).unwrap();
        let failed = group.run(|db| {
            db.execute("INSERT INTO t VALUES (2)", [])?;
            db.execute("INSERT INTO t VALUES (1)", [])?;
            Ok(())
        });
        assert!(matches!(failed, Err(JournalError::Database(_))));
        insert(&group, 3).unwrap();
        assert_eq!(count(&group), 2);
    }
}
