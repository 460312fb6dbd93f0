//! The two engines behind one set of queries: SQLite, in a file of this daemon alone, and Postgres, which a
//! fleet shares.
//!
//! Most statements are in SQL that both understand; [`statements`] has the others. Values are of four types.

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
pub(super) mod statements;
pub(super) mod value;
pub(super) mod writer;

use self::statements::Statements;
use crate::store::{Result, StoreError};

pub(super) use self::{
    sqlite::Sqlite,
    value::{Row, Value, all, column, each, first, single, text, values},
};

/// A connection with an open transaction, on which queries run.
pub(super) type Db = dyn SqlConnection;

pub(super) trait SqlConnection: Send {
    /// Returns the statements in its own dialect.
    fn statements(&self) -> &'static Statements;

    /// Runs a statement. Returns the number of changed rows.
    fn execute(&self, sql: &'static str, values: &[Value]) -> Result<usize>;

    /// Runs a statement without a result. A database behind a network gets it with the next statement that is
    /// waited for, and returns its error then, with the commit at the latest.
    fn run(&self, sql: &'static str, values: &[Value]) -> Result<()> {
        self.execute(sql, values).map(drop)
    }

    /// Returns all rows that a query finds.
    fn query(&self, sql: &'static str, values: &[Value]) -> Result<Vec<Row>>;

    /// Runs several queries, which a database behind a network gets together.
    fn queries(&self, queries: &[(&'static str, &[Value])]) -> Result<Vec<Vec<Row>>> {
        queries.iter().map(|(sql, values)| self.query(sql, values)).collect()
    }

    /// Runs a query with which the transaction ends: it is committed when this returns.
    fn query_and_commit(&self, sql: &'static str, values: &[Value]) -> Result<Vec<Row>> {
        let rows = self.query(sql, values)?;
        self.commit().map(|()| rows)
    }

    /// Begins a transaction that will write. On a file, only one such transaction is open at a time.
    fn begin(&self) -> Result<()>;

    /// Gives the open transaction the time of a migration: the usual limits are those of a relay's writes.
    fn take_time(&self) -> Result<()> {
        Ok(())
    }

    /// Begins a transaction that only reads: all its queries see the same state.
    fn begin_reading(&self) -> Result<()>;

    /// Makes each statement that follows a transaction of its own.
    fn begin_single(&self) -> Result<()> {
        Ok(())
    }

    /// Commits the open transaction; what it has written is durable then.
    fn commit(&self) -> Result<()>;

    /// Rolls the open transaction back.
    fn rollback(&self) -> Result<()>;

    /// Returns whether a transaction is open. An engine may end it by itself, as on a full disk.
    fn is_in_transaction(&self) -> bool;

    /// Sets, undoes or ends a savepoint inside the transaction. Only group commits need it.
    fn savepoint(&self, _step: &str) -> Result<()> {
        Err(StoreError::NotCommitted)
    }

    /// Writes without effect.
    fn probe(&self) -> Result<()>;

    /// Returns the clock that statements are given, milliseconds; `None` where they use the database's.
    fn own_clock(&self) -> Option<i64>;

    /// Returns the time by the database's clock, milliseconds: one clock for all daemons of a fleet.
    fn now_ms(&self) -> Result<i64>;
}
