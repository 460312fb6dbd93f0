//! Opening a store: in a file, in memory, or in a Postgres database.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Semaphore;

#[cfg(feature = "postgres")]
use super::engine::{postgres::Postgres, postgres_server::Server, statements::POSTGRES};
use super::{
    Store, StoreFaults, access,
    engine::{SqlConnection, Sqlite, connections::Connections, statements::SQLITE, writer::Writer},
};
use crate::store::{DaemonId, Result, StoreError};

/// Opens connections for reading.
#[derive(Clone)]
pub(super) struct Opener {
    open: Arc<dyn Fn() -> Result<Box<dyn SqlConnection>> + Send + Sync>,
    /// Connections of each store: one reads from a file as fast as several.
    count: usize,
}

impl Opener {
    fn sqlite(open: impl Fn() -> rusqlite::Result<Connection> + Send + Sync + 'static) -> Self {
        Self { open: Arc::new(move || Ok(Box::new(Sqlite::reader(open()?)?))), count: 1 }
    }

    #[cfg(feature = "postgres")]
    fn postgres(server: Arc<Server>, clock: Option<Arc<AtomicI64>>, count: usize) -> Self {
        Self {
            open: Arc::new(move || Ok(Box::new(Postgres::new(Arc::clone(&server), clock.clone())))),
            count,
        }
    }

    fn readers(&self) -> Result<Arc<Connections>> {
        self.connections(self.count).map(Arc::new)
    }

    fn connections(&self, count: usize) -> Result<Connections> {
        Ok(Connections::new((0..count).map(|_| (self.open)()).collect::<Result<_, _>>()?))
    }
}

impl Store {
    /// Opens the file at `path`, and creates it if it is not there.
    pub fn open(path: &Path) -> Result<Self> {
        let owned = path.to_owned();
        let started = || Self::start(Connection::open(path)?, move || Connection::open(&owned));
        started().map_err(|error| of_file(path, error))
    }

    /// Opens the file at `path` as daemons of this version have it; `None` if it is not there or empty. Makes
    /// and migrates nothing.
    ///
    /// # Errors
    /// [`StoreError::Older`] for an older format.
    pub fn open_existing(path: &Path) -> Result<Option<Self>> {
        if !path.exists() || !Sqlite::is_current(path).map_err(|error| of_file(path, error))? {
            return Ok(None);
        }
        Self::open(path).map(Some)
    }

    /// Opens the file at `path` for reading, also beside its writer; `None` if it is not there or empty.
    pub fn open_read_only(path: &Path) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let path = path.to_owned();
        let unusable = || StoreError::Engine("the file was emptied".to_owned());
        let reader = Sqlite::beside_a_writer(&path).map_err(|error| of_file(&path, error))?;
        let Some(reader) = reader else { return Ok(None) };
        let open = move || -> Result<Box<dyn SqlConnection>> {
            Ok(Box::new(Sqlite::beside_a_writer(&path)?.ok_or_else(unusable)?))
        };
        let open = Opener { open: Arc::new(open), count: 1 };
        Ok(Some(Self::of(None, Arc::new(Connections::new(vec![Box::new(reader)])), open)))
    }

    /// Creates a store in memory, for tests.
    pub fn in_memory() -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (writer, open) =
            memory(format!("file:/store-{}?vfs=memdb", NEXT.fetch_add(1, Ordering::Relaxed)))?;
        Self::start(writer, open)
    }

    /// Creates a store in memory that several daemons share, for tests: like Postgres for a fleet, with a
    /// clock that counts milliseconds. `uri` is SQLite's name for it.
    pub fn in_memory_of_a_fleet(uri: &str, clock: Arc<AtomicI64>) -> Result<Self> {
        let (writer, open) = memory(uri.to_owned())?;
        let writer = Sqlite::writer(writer)?.of_a_fleet(Arc::clone(&clock));
        writer.make_fleet()?;
        let open = move || -> Result<Box<dyn SqlConnection>> {
            Ok(Box::new(Sqlite::reader(open()?)?.of_a_fleet(Arc::clone(&clock))))
        };
        let open = Opener { open: Arc::new(open), count: 1 };
        Ok(Self::of(Some(Writer::start(Box::new(writer))?), open.readers()?, open))
    }

    /// Creates a store on a file: on the connection that writes, and with `open`, which opens one that reads.
    ///
    /// # Errors
    /// [`StoreError::Engine`].
    pub fn start(
        writer: Connection,
        open: impl Fn() -> rusqlite::Result<Connection> + Send + Sync + 'static,
    ) -> Result<Self> {
        let (writer, open) = (Sqlite::writer(writer)?, Opener::sqlite(open));
        Ok(Self::of(Some(Writer::start(Box::new(writer))?), open.readers()?, open))
    }

    fn of(writer: Option<Writer>, readers: Arc<Connections>, open: Opener) -> Self {
        let writer = writer.map(Arc::new);
        let permits = Arc::new(Semaphore::new(access::CONCURRENT));
        let (leases, faults) = (writer.clone(), StoreFaults::default());
        let connects = Arc::default();
        Self {
            writer,
            leases,
            readers,
            frequent: SQLITE.frequent.as_ref(),
            open,
            permits,
            frequent_writes: Arc::default(),
            connects,
            faults,
            daemon: None,
        }
    }

    /// Returns the same store with its own connections for reading, and its own, lower limit of threads: its
    /// operations and the others' do not wait for one another.
    pub fn with_own_reader(&self) -> Result<Self> {
        let permits = Arc::new(Semaphore::new(access::CONCURRENT_OF_OWN_READER));
        Ok(Self { readers: self.open.readers()?, permits, ..self.clone() })
    }

    /// Returns the same store with injected faults, for tests.
    #[must_use]
    pub fn with_faults(&self, faults: StoreFaults) -> Self {
        Self { faults, ..self.clone() }
    }

    /// Returns the same store as one daemon of a fleet uses it: its writes are refused where another daemon
    /// holds the account or the relay.
    #[must_use]
    pub fn of_daemon(&self, daemon: DaemonId) -> Self {
        Self { daemon: Some(daemon), ..self.clone() }
    }
}

#[cfg(feature = "postgres")]
impl Store {
    /// Opens the store in the Postgres database that `url` names, and makes it if it is not there.
    pub fn connect(url: &str) -> Result<Self> {
        Self::connect_by(url, None)
    }

    /// Opens the store as [`Self::connect`] does, with a test's clock, which counts milliseconds.
    pub fn connect_with_clock(url: &str, clock: Arc<AtomicI64>) -> Result<Self> {
        Self::connect_by(url, Some(clock))
    }

    /// Opens the store in the Postgres database that `url` names as daemons of this version have it; `None`
    /// if there is none. Makes and migrates nothing.
    ///
    /// # Errors
    /// [`StoreError::Older`] for an older format.
    pub fn connect_existing(url: &str) -> Result<Option<Self>> {
        let server = Arc::new(Server::new(url)?);
        if !Postgres::new(Arc::clone(&server), None).is_current()? {
            return Ok(None);
        }
        Self::on(server, None).map(Some)
    }

    fn connect_by(url: &str, clock: Option<Arc<AtomicI64>>) -> Result<Self> {
        let server = Arc::new(Server::new(url)?);
        Postgres::new(Arc::clone(&server), None).migrate()?;
        Self::on(server, clock)
    }

    fn on(server: Arc<Server>, clock: Option<Arc<AtomicI64>>) -> Result<Self> {
        const READERS: usize = 4;
        const WRITERS: usize = 4;
        let connects = server.connects();
        let open = Opener::postgres(server, clock, READERS);
        let writer = |count| Ok::<_, StoreError>(Writer::on(open.connections(count)?));
        let (writer, leases) = (writer(WRITERS)?, writer(1)?);
        let store = Self::of(Some(writer), open.readers()?, open);
        Ok(Self { leases: Some(Arc::new(leases)), frequent: POSTGRES.frequent.as_ref(), connects, ..store })
    }

    /// Opens the store in the Postgres database that `url` names for reading; `None` if there is none yet.
    pub fn connect_read_only(url: &str) -> Result<Option<Self>> {
        let server = Arc::new(Server::new(url)?);
        if !Postgres::new(Arc::clone(&server), None).is_store()? {
            return Ok(None);
        }
        let open = Opener::postgres(server, None, 1);
        Ok(Some(Self::of(None, open.readers()?, open)))
    }
}

#[cfg(not(feature = "postgres"))]
impl Store {
    /// Fails: this program has no Postgres.
    pub fn connect(_: &str) -> Result<Self> {
        Err(StoreError::Engine("STORE_URL: this daemon was built without the feature postgres".to_owned()))
    }

    /// Fails: this program has no Postgres.
    pub fn connect_existing(url: &str) -> Result<Option<Self>> {
        Self::connect(url).map(Some)
    }

    /// Fails: this program has no Postgres.
    pub fn connect_read_only(url: &str) -> Result<Option<Self>> {
        Self::connect(url).map(Some)
    }
}

/// Adds the file's path to an error of the engine, which does not name it.
fn of_file(path: &Path, error: StoreError) -> StoreError {
    match error {
        StoreError::Engine(reason) => StoreError::Engine(format!("{}: {reason}", path.display())),
        other => other,
    }
}

/// Creates a store in memory. Returns the connection that writes, and a function that opens another.
/// Connections of one process that open the same name share it.
fn memory(
    uri: String,
) -> Result<(Connection, impl Fn() -> rusqlite::Result<Connection> + Send + Sync + 'static)> {
    let open = move || Connection::open_with_flags(&uri, OpenFlags::default() | OpenFlags::SQLITE_OPEN_URI);
    Ok((open()?, open))
}
