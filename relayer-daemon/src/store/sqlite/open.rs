//! Opening the file: one connection that writes, and any number that read.

use std::{
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use rusqlite::{Connection, OpenFlags};

use super::{Store, StoreFaults, schema, writer::Writer};
use crate::store::StoreError;

/// How long to wait for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Opens one more connection for reading.
#[derive(Clone)]
pub(super) struct Opener(Arc<dyn Fn() -> rusqlite::Result<Connection> + Send + Sync>);

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opener")
    }
}

impl Opener {
    fn reader(&self) -> rusqlite::Result<Connection> {
        let reader = (self.0)()?;
        reader.busy_timeout(BUSY_TIMEOUT)?;
        reader.pragma_update(None, "query_only", true)?;
        Ok(reader)
    }
}

impl Store {
    /// Opens the file at `path`, and creates it if it is not there.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let owned = path.to_owned();
        Self::start(Connection::open(path)?, move || Connection::open(&owned))
    }

    /// Opens the file at `path` for reading, also beside its writer; `None` if it is not there or empty.
    pub fn open_read_only(path: &Path) -> Result<Option<Self>, StoreError> {
        if !path.exists() {
            return Ok(None);
        }
        let path = path.to_owned();
        let open = move || Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY);
        let open = Opener(Arc::new(open));
        let reader = (open.0)()?;
        reader.busy_timeout(BUSY_TIMEOUT)?;
        Ok((!schema::is_empty(&reader)?).then(|| Self::of(None, reader, open)))
    }

    /// A store in memory, for tests.
    ///
    /// # Errors
    /// [`StoreError::Engine`].
    pub fn in_memory() -> Result<Self, StoreError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Connections of one process that open the same name share it.
        let uri = format!("file:/store-{}?vfs=memdb", NEXT.fetch_add(1, Ordering::Relaxed));
        let open =
            move || Connection::open_with_flags(&uri, OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI);
        Self::start(open()?, open)
    }

    pub(super) fn start(
        mut writer: Connection,
        open: impl Fn() -> rusqlite::Result<Connection> + Send + Sync + 'static,
    ) -> Result<Self, StoreError> {
        writer.busy_timeout(BUSY_TIMEOUT)?;
        schema::create(&mut writer)?;
        writer.pragma_update(None, "journal_mode", "WAL")?;
        writer.pragma_update(None, "synchronous", "FULL")?;
        writer.pragma_update(None, "foreign_keys", true)?;
        let open = Opener(Arc::new(open));
        let reader = open.reader()?;
        Ok(Self::of(Some(Writer::start(writer)?), reader, open))
    }

    fn of(writer: Option<Writer>, reader: Connection, open: Opener) -> Self {
        let (writer, reader) = (writer.map(Arc::new), Arc::new(Mutex::new(reader)));
        Self { writer, reader, open, faults: StoreFaults::default() }
    }

    /// The same store with a connection of its own for reading: its reads and the others' do not wait for one
    /// another.
    pub fn with_own_reader(&self) -> Result<Self, StoreError> {
        let reader = Arc::new(Mutex::new(self.open.reader()?));
        Ok(Self { writer: self.writer.clone(), reader, open: self.open.clone(), faults: self.faults.clone() })
    }

    /// The same store with injected faults, for tests.
    pub fn with_faults(&self, faults: StoreFaults) -> Self {
        let (reader, open) = (Arc::clone(&self.reader), self.open.clone());
        Self { writer: self.writer.clone(), reader, open, faults }
    }
}
