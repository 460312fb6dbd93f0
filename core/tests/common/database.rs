//! The store of an index in SQLite in memory. Its numbers are JavaScript's, as in a Durable Object.

use std::cell::Cell;

use registry_core::index::{Config, FEW_AGENTS, FileSizes, IndexError, PART, SqlValue, State};
use registry_core::index::{Store, StoreError, Work, prepare};
use rusqlite::{Connection, StatementStatus, params_from_iter, types};

use super::prelude::*;

/// Returns the settings of an index of this registry, without proofs.
pub(crate) fn config(registry: Address, slice: u64, sweep: u64) -> Config {
    Config {
        registry,
        multicall3: CANONICAL_ADDRESS,
        limits: Limits::default(),
        slice,
        sweep,
        proved: 0,
        part: PART,
        few_agents: FEW_AGENTS,
        files: FileSizes::DEFAULT,
        layout: None,
        self_contained_code: None,
    }
}

/// Does one piece of work on an index, at a time in unix seconds; `post` returns each reply or the failure.
pub(crate) fn upkeep(
    database: &Database,
    config: Config,
    now: u64,
    mut post: impl FnMut(&Batch) -> Result<(u16, Vec<u8>), Failure>,
) -> Result<State, IndexError> {
    let mut work = Work::begin(database, None, config, Endpoints::new(1, None), now * 1_000)?;
    while let Step::Send(batch) = work.step(database)? {
        match post(&batch) {
            Ok((status, body)) => work.feed(Reply { status, body: &body })?,
            Err(failure) => work.fail(failure)?,
        }
    }
    Ok(work.state().clone())
}

pub(crate) struct Database {
    connection: Connection,
    /// Steps of SQLite's virtual machine so far: a measure of work that is the same on any machine.
    pub(crate) steps: Cell<u64>,
    /// Statements executed so far.
    pub(crate) executed: Cell<u64>,
}

impl Database {
    /// Creates an empty index.
    pub(crate) fn new() -> Self {
        let database = Self::restored("");
        prepare(&database).unwrap();
        database
    }

    /// Creates the database that these statements make.
    pub(crate) fn restored(dump: &str) -> Self {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(dump).unwrap();
        Self { connection, steps: Cell::default(), executed: Cell::default() }
    }

    /// Returns the number of statements that `work` executes, and of their steps.
    pub(crate) fn cost<T>(&self, work: impl FnOnce() -> T) -> ([u64; 2], T) {
        self.executed.take();
        self.steps.take();
        let done = work();
        ([self.executed.take(), self.steps.take()], done)
    }

    /// Returns the number that a statement selects.
    pub(crate) fn number(&self, statement: &str) -> i64 {
        match self.execute(statement, &[]).unwrap()[0][0] {
            SqlValue::Integer(number) => number,
            ref other => panic!("{other:?}"),
        }
    }

    /// Runs `work` in one transaction, which is rolled back if it returns `None`.
    pub(crate) fn transaction<T>(&self, work: impl FnOnce(&Self) -> Option<T>) -> Option<T> {
        self.connection.execute_batch("BEGIN").unwrap();
        let done = work(self);
        self.connection.execute_batch(if done.is_some() { "COMMIT" } else { "ROLLBACK" }).unwrap();
        done
    }
}

impl Store for Database {
    fn execute(&self, statement: &str, parameters: &[SqlValue]) -> Result<Vec<Vec<SqlValue>>, StoreError> {
        let failed = |error: rusqlite::Error| StoreError::of_host(format!("{error}: {statement}"));
        let parameters = parameters.iter().map(|value| match value {
            SqlValue::Null => types::Value::Null,
            SqlValue::Integer(number) => {
                assert!(number.unsigned_abs() <= 1 << 53, "{number}: {statement}");
                types::Value::Real(*number as f64)
            }
            SqlValue::Text(text) => types::Value::Text(text.clone()),
            SqlValue::Blob(bytes) => types::Value::Blob(bytes.clone()),
        });
        let mut prepared = self.connection.prepare_cached(statement).map_err(failed)?;
        let columns = prepared.column_count();
        let mut rows = prepared.query(params_from_iter(parameters)).map_err(failed)?;
        let mut read = Vec::new();
        while let Some(row) = rows.next().map_err(failed)? {
            let value = |column| match row.get_unwrap::<_, types::Value>(column) {
                types::Value::Null => SqlValue::Null,
                types::Value::Integer(number) => SqlValue::Integer(number),
                types::Value::Real(number) => {
                    assert!(number.fract() == 0.0, "{number}: {statement}");
                    SqlValue::Integer(number as i64)
                }
                types::Value::Text(text) => SqlValue::Text(text),
                types::Value::Blob(bytes) => SqlValue::Blob(bytes),
            };
            read.push((0..columns).map(value).collect());
        }
        drop(rows);
        self.executed.set(self.executed.get() + 1);
        let steps = prepared.reset_status(StatementStatus::VmStep);
        self.steps.set(self.steps.get() + u64::try_from(steps).unwrap());
        Ok(read)
    }
}
