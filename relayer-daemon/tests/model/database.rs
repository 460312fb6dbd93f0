//! The database that the daemons of a history share: in memory, or Postgres; and its failover to a replica
//! that lags behind, which loses what was committed since.

use std::cell::RefCell;

use rusqlite::Connection;

use super::postgres_server::Postgres;
use super::*;

/// The tables that a replica has, in an order in which each row finds those that it refers to; and their
/// order.
const TABLES: [(&str, &str); 12] = [
    ("relays", "rowid"),
    ("nonces", "nonce"),
    ("transactions", "rowid"),
    ("budget", "only_row"),
    ("spending", "party"),
    ("archive", "id"),
    ("archived_nonces", "account"),
    ("control", "name"),
    ("daemons", "id"),
    ("daemon_keys", "daemon"),
    ("account_leases", "account"),
    ("rates", "party"),
];

static SERVER: LazyLock<Postgres> = LazyLock::new(|| Postgres::start(&["fsync=off", "full_page_writes=off"]));

thread_local! {
    /// A thread's schema, for one history after the other.
    static URL: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The daemons' database, for statements beside theirs.
pub enum ModelDatabase {
    /// A file has no replica.
    Alone,
    Memory(Mutex<Connection>),
    Postgres {
        schema: String,
    },
}

impl ModelDatabase {
    /// Creates an empty database for several daemons, with this clock.
    pub fn shared(is_postgres: bool, clock: Arc<AtomicI64>) -> (Store, Self) {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        #[cfg(feature = "postgres")]
        if is_postgres {
            let url = URL.with_borrow_mut(|url| url.get_or_insert_with(|| SERVER.schema()).clone());
            let schema = url.split_once("search_path%3D").unwrap().1.to_owned();
            let store = Store::connect_with_clock(&url, clock).unwrap();
            let database = Self::Postgres { schema };
            database.run(&emptied().collect::<String>());
            database.run("INSERT INTO budget VALUES (1, NULL, '0')");
            return (store, database);
        }
        let name = format!("file:/model-{}?vfs=memdb", NEXT.fetch_add(1, Ordering::Relaxed));
        let store = Store::in_memory_of_a_fleet(&name, clock).unwrap();
        let connection = Connection::open(name).unwrap();
        connection.pragma_update(None, "foreign_keys", false).unwrap();
        connection.busy_timeout(Duration::from_secs(30)).unwrap();
        (store, Self::Memory(Mutex::new(connection)))
    }

    pub fn run(&self, sql: &str) {
        match self {
            Self::Alone => {}
            Self::Memory(connection) => {
                let sql = format!("BEGIN IMMEDIATE; {sql}; COMMIT");
                connection.lock().unwrap().execute_batch(&sql).unwrap();
            }
            Self::Postgres { schema } => {
                let sql = format!("BEGIN; SET LOCAL search_path = {schema}; {sql}; COMMIT");
                // A daemon may have locked the tables' rows in another order.
                while let Err(error) = SERVER.try_sql(&sql) {
                    assert!(error.contains("deadlock"), "{error}");
                }
            }
        }
    }

    /// Stops replication: the replica gets nothing more.
    pub fn lag(&self) {
        let prefix = match self {
            Self::Memory(_) => "temp.",
            _ => "",
        };
        let copies = TABLES.iter().map(|(table, order)| {
            let copy = format!("{prefix}lag_{table}");
            format!(
                "DROP TABLE IF EXISTS {copy}; CREATE TABLE {copy} AS SELECT * FROM {table} ORDER BY {order};"
            )
        });
        self.run(&copies.collect::<String>());
    }

    /// Promotes the replica, which lags behind, to primary.
    pub fn fail_over(&self) {
        let filled =
            TABLES.iter().map(|(table, _)| format!("INSERT INTO {table} SELECT * FROM lag_{table};"));
        self.run(&emptied().chain(filled).collect::<String>());
    }
}

fn emptied() -> impl Iterator<Item = String> {
    TABLES.iter().rev().map(|(table, _)| format!("DELETE FROM {table};"))
}
