//! The two engines behind one set of queries: SQLite, in a file of this daemon alone, and Postgres, which a
//! fleet shares.
//!
//! Most statements are in words of both; [`statements`] has those that are not. Values are of four types.

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

/// A connection with an open transaction: what queries run on.
pub(super) type Db = dyn Engine;

/// A connection.
pub(super) trait Engine: Send {
    /// The statements that it has in its own words.
    fn statements(&self) -> &'static Statements;

    /// Runs a statement. Returns how many rows it has changed.
    fn execute(&self, sql: &'static str, values: &[Value]) -> Result<usize>;

    /// Runs a statement without a result: a database behind a network gets
    /// it with the next that is waited for, and what it fails with is told then, by the commit at the latest.
    fn run(&self, sql: &'static str, values: &[Value]) -> Result<()> {
        self.execute(sql, values).map(drop)
    }

    /// All rows that a query finds.
    fn query(&self, sql: &'static str, values: &[Value]) -> Result<Vec<Row>>;

    /// Several queries, which a database behind a network gets together.
    fn queries(&self, queries: &[(&'static str, &[Value])]) -> Result<Vec<Vec<Row>>> {
        queries.iter().map(|(sql, values)| self.query(sql, values)).collect()
    }

    /// A query with which the transaction ends: it is committed when this returns.
    fn query_and_commit(&self, sql: &'static str, values: &[Value]) -> Result<Vec<Row>> {
        let rows = self.query(sql, values)?;
        self.commit().map(|()| rows)
    }

    /// Begins a transaction that will write. Of those on a file only one is open at a time.
    fn begin(&self) -> Result<()>;

    /// Has the open transaction take as long as a migration may: the limits are those of a relay's writes.
    fn take_time(&self) -> Result<()> {
        Ok(())
    }

    /// Begins a transaction that only reads: all its queries see the same state.
    fn begin_reading(&self) -> Result<()>;

    /// Has each statement be a transaction of its own.
    fn begin_single(&self) -> Result<()> {
        Ok(())
    }

    /// Commits the open transaction; what it has written is durable then.
    fn commit(&self) -> Result<()>;

    /// Undoes it.
    fn rollback(&self) -> Result<()>;

    /// Whether a transaction is open. An engine may end it by itself, where the disk is full for example.
    fn is_in_transaction(&self) -> bool;

    /// Sets, undoes or ends a savepoint inside the transaction. Only group commits need it.
    fn savepoint(&self, _step: &str) -> Result<()> {
        Err(StoreError::NotCommitted)
    }

    /// A write without effect.
    fn probe(&self) -> Result<()>;

    /// The database's clock where statements have none, milliseconds.
    fn own_clock(&self) -> Option<i64>;

    /// The time by the database's clock, milliseconds: one clock for all daemons of a fleet.
    fn now_ms(&self) -> Result<i64>;
}
