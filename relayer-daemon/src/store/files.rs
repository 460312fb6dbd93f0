//! Which file is the journal, and which files are its locks.
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
    /// The key's lock: one process for each key and chain, also with journals of several forwarders.
    pub key_lock: PathBuf,
}

impl StoreFiles {
    /// The files in `dir` for a chain, a forwarder and a key.
    pub fn new(dir: &Path, chain_id: u64, forwarder: Address, relayer: Address) -> Self {
        let journal = format!("journal-{chain_id}-{forwarder}");
        Self {
            store: dir.join(format!("{journal}.sqlite")),
            store_lock: dir.join(format!("{journal}.lock")),
            key_lock: dir.join(format!("relayer-{chain_id}-{relayer}.sqlite-lock")),
        }
    }
}
