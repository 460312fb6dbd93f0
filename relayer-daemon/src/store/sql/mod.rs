//! The store in a database: SQLite in WAL mode with `synchronous = FULL`, or Postgres.
//!
//! [`engine::writer`] writes; on Postgres several transactions at once, which lock what they rely upon
//! ([`locks`]). Reads have their own connections, and those for clients other ones: they see the last commit
//! and never wait for one. Each subject has a file of operations. [`engine`] has the two databases, each with
//! the statements of its dialect.

mod acceptance;
mod access;
mod assignments;
mod budget;
mod control;
mod ending;
mod engine;
mod events;
mod finality;
mod fleet;
mod frequent;
mod given_up;
mod identity;
mod key_gas;
mod locks;
mod migrate;
mod nonces;
mod open;
mod relays;
mod retention;
mod settling;

use std::sync::{Arc, atomic::AtomicU64};

use tokio::sync::Semaphore;

pub use self::access::StoreFaults;
use self::{
    engine::{connections::Connections, statements::FrequentStatements, writer::Writer},
    open::Opener,
};
use super::{DaemonId, Result};

/// The store in a database.
#[derive(Clone)]
pub struct Store {
    /// `None` if it was opened for reading only.
    writer: Option<Arc<Writer>>,
    /// The writer of leases: the same, or one with a connection of its own.
    leases: Option<Arc<Writer>>,
    readers: Arc<Connections>,
    /// The statements of a fleet's frequent writes; `None` where the database has none, or is only read.
    frequent: Option<&'static FrequentStatements>,
    /// Bounds the operations that block a thread.
    permits: Arc<Semaphore>,
    /// The frequent writes that wait for one another.
    frequent_writes: Arc<frequent::FrequentWrites>,
    /// Counts the connections to the database.
    connects: Arc<AtomicU64>,
    open: Opener,
    faults: StoreFaults,
    /// The daemon of a fleet that uses it; `None` without a fleet.
    daemon: Option<DaemonId>,
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("daemon", &self.daemon).finish_non_exhaustive()
    }
}

/// The operations. Each is atomic, and durable when it returns; one that fails has changed nothing. They
/// block: async code uses [`Store::run`]. Times are unix seconds. `account` is the paying address; each has
/// its own nonces. In a fleet only the daemon that holds an account writes about its nonces, or any if none
/// holds it, and only the one that holds a relay writes about it; other writes fail with
/// [`StoreError::Fenced`] and [`StoreError::HeldElsewhere`].
impl Store {
    /// Writes without effect, to learn whether writing works.
    pub fn probe(&self) -> Result<()> {
        self.write(|db| db.probe())
    }
}
