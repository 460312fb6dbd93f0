//! Which file is the journal, and which files are its locks.
//!
//! There is one journal for each chain and forwarder. The key is not part of its name: whoever changes the key goes on
//! with the same budget, and knows which requests the old key has paid for. Earlier versions named the file after the
//! key; such a file is taken over.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use alloy::primitives::Address;
use thiserror::Error;

use crate::{
    settings::Settings,
    store::{Identity, SqliteStore, Store as _, StoreError},
};

/// The files of one relayer.
#[derive(Debug, Clone)]
pub struct JournalFiles {
    dir: PathBuf,
    /// What files of earlier versions are called: without the key's address.
    earlier_prefix: String,
    /// The journal as an earlier version named it for this key.
    earlier: PathBuf,
    /// The journal.
    pub journal: PathBuf,
    /// One process for each journal.
    pub journal_lock: PathBuf,
    /// One process for each key and chain, also with journals of several forwarders.
    pub key_lock: PathBuf,
}

/// Why the file of an earlier version is not taken over.
#[derive(Debug, Error)]
pub enum TakeoverError {
    /// The journal of an earlier version cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It cannot be renamed.
    #[error("{0} of an earlier version cannot be taken over: {1}")]
    Unusable(PathBuf, io::ErrorKind),
    /// It is another key's.
    #[error("{0} is an earlier version's journal for another key: start this version once with that key")]
    OtherKey(PathBuf),
}

impl JournalFiles {
    /// The files for a chain, a forwarder and a key.
    #[must_use]
    pub fn new(settings: &Settings, chain_id: u64, forwarder: Address, relayer: Address) -> Self {
        let dir = settings.data_dir.clone();
        let earlier_prefix = format!("relayer-{chain_id}-");
        let journal = format!("journal-{chain_id}-{forwarder}");
        Self {
            earlier: dir.join(format!("{earlier_prefix}{relayer}.sqlite")),
            journal: dir.join(format!("{journal}.sqlite")),
            journal_lock: dir.join(format!("{journal}.lock")),
            key_lock: dir.join(format!("{earlier_prefix}{relayer}.sqlite-lock")),
            earlier_prefix,
            dir,
        }
    }

    /// What there is to open: the journal, or an earlier version's that will be taken over.
    #[must_use]
    pub fn existing(&self) -> &Path {
        if !self.journal.exists() && self.earlier.exists() { &self.earlier } else { &self.journal }
    }

    /// Renames the file of an earlier version if there is no journal yet. Both locks must be held.
    ///
    /// # Errors
    /// [`TakeoverError`]; then nothing was renamed, and to start with an empty journal would forget the budget.
    pub fn take_over(&self, identity: &Identity) -> Result<(), TakeoverError> {
        if self.journal.exists() {
            return Ok(());
        }
        if !self.earlier.exists() {
            return self.any_earlier().map_or(Ok(()), |path| Err(TakeoverError::OtherKey(path)));
        }
        // Opening and closing it once moves what is in its write-ahead log into the file.
        SqliteStore::open(&self.earlier)?.verify(identity)?;
        let unusable = |error: io::Error| TakeoverError::Unusable(self.earlier.clone(), error.kind());
        let log = PathBuf::from(format!("{}-wal", self.earlier.display()));
        if fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
            return Err(unusable(io::ErrorKind::ResourceBusy.into()));
        }
        fs::rename(&self.earlier, &self.journal).map_err(unusable)?;
        fs::File::open(&self.dir).and_then(|dir| dir.sync_all()).map_err(unusable)?;
        tracing::info!(from = %self.earlier.display(), to = %self.journal.display(), "journal taken over");
        Ok(())
    }

    fn any_earlier(&self) -> Option<PathBuf> {
        let entries = fs::read_dir(&self.dir).ok()?;
        entries.filter_map(|entry| Some(entry.ok()?.path())).find(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with(&self.earlier_prefix) && name.ends_with(".sqlite")
        })
    }
}
