//! The two engines behind one set of queries: SQLite, in a file of this daemon alone, and Postgres, which a
//! fleet shares.
//!
//! Queries are written once, in what both engines understand, with `?1` for a parameter. SQLite's hints
//! (`INDEXED BY`) are left out for Postgres. Values are of four types, and `rowid` orders rows by insertion in
//! both.

pub(super) mod connections;
#[cfg(feature = "postgres")]
pub(super) mod postgres;
#[cfg(feature = "postgres")]
mod postgres_format;
#[cfg(feature = "postgres")]
pub(super) mod postgres_server;
#[cfg(feature = "postgres")]
mod postgres_tls;
mod sqlite;
mod sqlite_format;
pub(super) mod value;
pub(super) mod writer;

use crate::store::StoreError;

pub(super) use self::{
    sqlite::Sqlite,
    value::{Row, Value, all, column, first, text, unsigned, values},
};

/// A connection with an open transaction: what queries run on.
pub(super) type Db = dyn Engine;

/// A connection.
pub(super) trait Engine: Send {
    /// Runs a statement. Returns how many rows it has changed.
    fn execute(&self, sql: &'static str, values: &[Value]) -> Result<usize, StoreError>;

    /// Runs a statement without a result: a database behind a network gets
    /// it with the next that is waited for, and what it fails with is told then, by the commit at the latest.
    fn run(&self, sql: &'static str, values: &[Value]) -> Result<(), StoreError> {
        self.execute(sql, values).map(drop)
    }

    /// Of a statement in two dialects the one that this engine has: the first is SQLite's.
    fn dialect(&self, sqlite: &'static str, postgres: &'static str) -> &'static str {
        let _ = postgres;
        sqlite
    }

    /// All rows that a query finds.
    fn query(&self, sql: &'static str, values: &[Value]) -> Result<Vec<Row>, StoreError>;

    /// Whether several transactions write at once, which lock rows, and statements take lists.
    fn has_row_locks(&self) -> bool {
        false
    }

    /// Locks the rows that a query finds until the transaction ends, where several transactions write at once. What
    /// is asked after this sees what the rows' last writer has committed.
    fn lock(&self, sql: &'static str, values: &[Value]) -> Result<(), StoreError> {
        let _ = (sql, values);
        Ok(())
    }

    /// Several queries, which a database behind a network gets together.
    fn queries(&self, queries: &[(&'static str, &[Value])]) -> Result<Vec<Vec<Row>>, StoreError> {
        queries.iter().map(|(sql, values)| self.query(sql, values)).collect()
    }

    /// A query with which the transaction ends: it is committed when this returns.
    fn query_and_commit(&self, sql: &'static str, values: &[Value]) -> Result<Vec<Row>, StoreError> {
        let rows = self.query(sql, values)?;
        self.commit().map(|()| rows)
    }

    /// Begins a transaction that will write. Of those on a file only one is open at a time.
    fn begin(&self) -> Result<(), StoreError>;

    /// Begins a transaction that only reads: all its queries see the same state.
    fn begin_reading(&self) -> Result<(), StoreError>;

    /// Has each statement be a transaction of its own.
    fn begin_single(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Commits the open transaction; what it has written is durable then.
    fn commit(&self) -> Result<(), StoreError>;

    /// Undoes it.
    fn rollback(&self) -> Result<(), StoreError>;

    /// Whether a transaction is open. An engine may end it by itself, where the disk is full for example.
    fn is_in_transaction(&self) -> bool;

    /// Runs one step inside the transaction: sets, undoes or ends a savepoint. Only group commits need it.
    fn savepoint(&self, step: Savepoint) -> Result<(), StoreError> {
        let _ = step;
        Err(StoreError::NotCommitted)
    }

    /// A write without effect.
    fn probe(&self) -> Result<(), StoreError>;

    /// The database's clock where statements have none, milliseconds.
    fn own_clock(&self) -> Option<i64> {
        None
    }

    /// The time by the database's clock, milliseconds: one clock for all daemons of a fleet.
    fn now_ms(&self) -> Result<i64, StoreError>;
}

/// A step of a savepoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Savepoint {
    Set,
    Undo,
    End,
}

impl Savepoint {
    const fn sql(self) -> &'static str {
        match self {
            Self::Set => "SAVEPOINT one",
            Self::Undo => "ROLLBACK TO one",
            Self::End => "RELEASE one",
        }
    }
}
