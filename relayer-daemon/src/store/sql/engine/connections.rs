//! A few connections, of which a free one is used. Those that read see the last commit, and wait neither for
//! writes nor, while one is free, for one another.

use std::sync::{
    Mutex, PoisonError, TryLockError,
    atomic::{AtomicUsize, Ordering},
};

use super::{Db, Engine};
use crate::store::StoreError;

/// A few connections.
pub(in super::super) struct Connections {
    connections: Vec<Mutex<Box<dyn Engine>>>,
    next: AtomicUsize,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").field("connections", &self.connections.len()).finish_non_exhaustive()
    }
}

impl Connections {
    pub(in super::super) fn new(connections: Vec<Box<dyn Engine>>) -> Self {
        Self { connections: connections.into_iter().map(Mutex::new).collect(), next: AtomicUsize::new(0) }
    }

    /// Runs queries in one transaction: all of them see the same state.
    pub(in super::super) fn read<T>(
        &self,
        work: impl FnOnce(&Db) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
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
    pub(in super::super) fn single<T>(
        &self,
        work: impl FnOnce(&Db) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.with(|db| {
            db.begin_single()?;
            work(db)
        })
    }

    /// Runs `work` on a free connection, or waits for one.
    pub(super) fn with<T>(&self, work: impl FnOnce(&Db) -> Result<T, StoreError>) -> Result<T, StoreError> {
        for connection in &self.connections {
            match connection.try_lock() {
                Ok(free) => return work(&**free),
                Err(TryLockError::Poisoned(free)) => return work(&**free.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.connections.len().max(1);
        let connection = self.connections.get(turn).ok_or(StoreError::Interrupted)?;
        work(&**connection.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
