//! A pool of connections. Reads see the last commit, and wait neither for writes nor, while a connection is
//! free, for one another.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::{Db, SqlConnection};
use crate::store::{Result, StoreError};

pub(in super::super) struct Connections {
    count: usize,
    /// The free connections; the last used one is last, and is taken next.
    free: Mutex<Vec<Box<dyn SqlConnection>>>,
    freed: Condvar,
}

/// A connection in use. Dropping it, also by a panic, frees the connection.
struct ConnectionGuard<'a> {
    connections: &'a Connections,
    connection: Option<Box<dyn SqlConnection>>,
}

impl Drop for ConnectionGuard<'_> {
    fn drop(&mut self) {
        self.connections.free().extend(self.connection.take());
        self.connections.freed.notify_one();
    }
}

impl Connections {
    pub(in super::super) fn new(connections: Vec<Box<dyn SqlConnection>>) -> Self {
        Self { count: connections.len(), free: Mutex::new(connections), freed: Condvar::new() }
    }

    /// Runs queries in one transaction: all of them see the same state.
    pub(in super::super) fn read<T>(&self, work: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
        self.with(|db| {
            db.begin_reading()?;
            let result = work(db);
            if db.is_in_transaction() {
                db.rollback()?;
            }
            result
        })
    }

    /// Runs one statement, a transaction by itself.
    pub(in super::super) fn single<T>(&self, work: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
        self.with(|db| {
            db.begin_single()?;
            work(db)
        })
    }

    /// Runs `work` on a free connection, or waits until one is.
    pub(super) fn with<T>(&self, work: impl FnOnce(&Db) -> Result<T>) -> Result<T> {
        let waited = self.freed.wait_while(self.free(), |free| free.is_empty() && self.count > 0);
        let connection = waited.unwrap_or_else(PoisonError::into_inner).pop();
        let used = ConnectionGuard { connections: self, connection };
        work(used.connection.as_deref().ok_or(StoreError::Interrupted)?)
    }

    fn free(&self) -> MutexGuard<'_, Vec<Box<dyn SqlConnection>>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Sqlite, *};
    use rusqlite::Connection;
    use std::{sync::mpsc, thread, time::Duration};

    #[test]
    fn no_caller_waits_for_a_connection_that_is_in_use_for_long_while_another_comes_free() {
        const CALLERS: usize = 8;
        let open =
            || -> Box<dyn SqlConnection> { Box::new(Sqlite::raw(Connection::open_in_memory().unwrap())) };
        let connections = Connections::new(vec![open(), open()]);
        let (using, is_used) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let (done, is_done) = mpsc::channel();
        thread::scope(|threads| {
            let connections = &connections;
            threads.spawn(move || {
                connections.with(|_| {
                    using.send(()).unwrap();
                    // Until the sender is dropped.
                    let _ = may_go.recv();
                    Ok(())
                })
            });
            is_used.recv().unwrap();
            for _ in 0..CALLERS {
                let done = done.clone();
                threads.spawn(move || {
                    for _ in 0..100 {
                        let used = connections.with(|_| {
                            thread::yield_now();
                            Ok(())
                        });
                        used.unwrap();
                    }
                    done.send(()).unwrap();
                });
            }
            let is_next_done = |_: &usize| is_done.recv_timeout(Duration::from_secs(10)).is_ok();
            let finished = (0..CALLERS).take_while(is_next_done).count();
            drop(go);
            assert_eq!(finished, CALLERS);
        });
    }
}
