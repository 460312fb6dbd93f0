//! The paths of the journal and of its lock files.
//!
//! There is one journal for each chain and forwarder. The key is not part of its name: the budget and the
//! requests that were carried out stay known when the key changes.

use std::path::{Path, PathBuf};

use alloy::primitives::Address;

/// The files of one relayer.
#[derive(Debug, Clone)]
pub struct StoreFiles {
    /// The journal.
    pub store: PathBuf,
    /// Its lock: one process for each journal.
    pub store_lock: PathBuf,
    /// The keys' locks: one process for each key and chain, also with journals of several forwarders. Sorted,
    /// so that two processes do not wait for one another.
    pub key_locks: Vec<PathBuf>,
}

impl StoreFiles {
    /// Returns the files in `dir` for a chain, a forwarder and accounts.
    pub fn new(dir: &Path, chain_id: u64, forwarder: Address, accounts: &[Address]) -> Self {
        let key_lock = |account: &Address| dir.join(format!("relayer-{chain_id}-{account}.sqlite-lock"));
        let mut key_locks: Vec<PathBuf> = accounts.iter().map(key_lock).collect();
        key_locks.sort();
        let journal = format!("journal-{chain_id}-{forwarder}");
        Self {
            store: dir.join(format!("{journal}.sqlite")),
            store_lock: dir.join(format!("{journal}.lock")),
            key_locks,
        }
    }

    /// Iterates over all locks, in the order in which they are taken.
    pub fn locks(&self) -> impl Iterator<Item = &PathBuf> {
        self.key_locks.iter().chain([&self.store_lock])
    }
}
