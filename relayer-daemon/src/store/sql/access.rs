//! How the operations reach the database: reads in one transaction, writes in the writing thread, each only
//! as far as this daemon may write.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use alloy::primitives::B256;
use tokio::sync::watch;

use super::{Store, engine::Db, fleet};
use crate::store::{Payer, StoreError};

/// Faults for tests, each injected while its flag is set.
#[derive(Debug, Clone, Default)]
pub struct StoreFaults {
    /// Writes fail as on a full disk.
    pub disk_full: Arc<AtomicBool>,
    /// Every operation fails without effect, as after the death of the process.
    pub dead: Arc<AtomicBool>,
    /// Operations neither begin nor end, as in a process that stands still.
    pub paused: Option<watch::Receiver<bool>>,
}

impl StoreFaults {
    /// Waits while the process stands still.
    async fn go_on(&self) {
        if let Some(mut paused) = self.paused.clone() {
            // Without its sender nothing pauses any more.
            let _ = paused.wait_for(|paused| !paused).await;
        }
    }
}

impl Store {
    /// Runs a closure on the store without blocking the async runtime.
    pub async fn run<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let store = Arc::clone(self);
        self.faults.go_on().await;
        let done = tokio::task::spawn_blocking(move || work(&store)).await;
        self.faults.go_on().await;
        done.map_err(|_| StoreError::Interrupted)?
    }

    pub(super) fn read<T>(&self, work: impl FnOnce(&Db) -> Result<T, StoreError>) -> Result<T, StoreError> {
        if self.faults.dead.load(Ordering::Relaxed) {
            return Err(StoreError::Interrupted);
        }
        self.readers.read(work)
    }

    pub(super) fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Db) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.faults.disk_full.load(Ordering::Relaxed) {
            return Err(StoreError::NotCommitted);
        }
        if self.faults.dead.load(Ordering::Relaxed) {
            return Err(StoreError::Interrupted);
        }
        self.writer.as_ref().ok_or(StoreError::ReadOnly)?.run(work)
    }

    /// A write about an account's nonces: in a fleet it fails if another daemon has the account by now.
    pub(super) fn write_for<T: Send + 'static>(
        &self,
        payer: Payer,
        work: impl FnOnce(&Db) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let in_fleet = self.daemon.is_some();
        self.write(move |db| {
            if in_fleet {
                fleet::must_hold_account(db, &payer)?;
            }
            work(db)
        })
    }

    /// A write about a relay without a nonce: in a fleet it fails if another daemon runs it by now.
    pub(super) fn write_about<T: Send + 'static>(
        &self,
        relay: B256,
        work: impl FnOnce(&Db) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let daemon = self.daemon.clone();
        self.write(move |db| {
            if let Some(daemon) = daemon {
                fleet::must_hold_relay(db, &daemon, &relay)?;
            }
            work(db)
        })
    }
}
