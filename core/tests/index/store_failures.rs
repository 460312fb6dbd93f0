//! A store that fails: the rows stay as they were, and the work goes on once the store works.

use std::cell::Cell;

use registry_core::index::{IndexError, SqlValue, State, Store, StoreError, StoreFault, prepare};
use registry_core::registry::changes::Since;

use crate::{TestIndex, common::database::Database};

const QUOTA: &str = "Exceeded allowed rows written in Durable Objects free tier.";

/// A store that fails after a number of statements, or that accepts only reads.
pub(crate) struct LimitedStore<'a> {
    database: &'a Database,
    left: &'a Cell<u64>,
    read_only: bool,
}

impl<'a> LimitedStore<'a> {
    /// Creates a store that fails after the statements that are `left`.
    pub(crate) const fn new(database: &'a Database, left: &'a Cell<u64>) -> Self {
        Self { database, left, read_only: false }
    }
}

impl Store for LimitedStore<'_> {
    fn execute(&self, statement: &str, parameters: &[SqlValue]) -> Result<Vec<Vec<SqlValue>>, StoreError> {
        assert!(!self.read_only || statement.starts_with("SELECT "), "{statement}");
        let left = self.left.get().checked_sub(1);
        self.left.set(left.ok_or_else(|| StoreError::of_host(QUOTA.into()))?);
        self.database.execute(statement, parameters)
    }
}

fn rows(index: &TestIndex) -> Vec<Vec<SqlValue>> {
    let tables = ["agents", "counts", "changes", "checkpoints", "meta"];
    let all = |table| index.database.execute(&format!("SELECT * FROM {table}"), &[]).unwrap();
    tables.into_iter().flat_map(all).collect()
}

#[test]
fn a_refresh_that_fails_at_any_statement_changes_no_row_and_succeeds_later() {
    let mut index = TestIndex::filled(40, 0);
    index.attest(3, 5);
    index.show();
    let before = rows(&index);
    let mut failures = 0;
    while let Err(error) = index.work_within(failures) {
        assert_eq!(error, IndexError::Store(StoreError::OutOfQuota(QUOTA.into())));
        assert_eq!(rows(&index), before, "after {failures} statements");
        failures += 1;
    }
    assert!(failures > 10, "{failures}");
    index.is_right();
}

#[test]
fn only_what_is_corrupt_is_a_reason_to_fill_anew() {
    for (text, fault, retry_millis) in [
        (QUOTA, StoreFault::OutOfQuota, 600_000),
        ("Exceeded allowed rows read in Durable Objects free tier.", StoreFault::OutOfQuota, 600_000),
        ("database or disk is full: SQLITE_FULL", StoreFault::OutOfQuota, 600_000),
        ("disk I/O error: SQLITE_IOERR", StoreFault::Failed, 5_000),
        ("Internal error in Durable Object storage", StoreFault::Failed, 5_000),
        ("database disk image is malformed: SQLITE_CORRUPT", StoreFault::Corrupt, 1_000),
    ] {
        let error = StoreError::of_host(text.into());
        assert_eq!((error.fault(), error.retry_millis()), (fault, retry_millis), "{text}");
    }
    let index = TestIndex::filled(3, 0);
    index.database.execute("UPDATE meta SET value = '{' WHERE key = 'state'", &[]).unwrap();
    assert_eq!(State::load(&index.database), Err(StoreError::Corrupt));
}

#[test]
fn a_state_of_another_version_keeps_rows_ends_and_cursors() {
    // More fields, fewer, or one that is another's.
    for change in [
        "json_set(value, '$.later', 1)",
        "json_remove(value, '$.writes', '$.node.canary', '$.phase.complete.doubt', '$.counters')",
        "json_remove(value, '$.phase.complete.coverage')",
        "json_set(value, '$.phase.complete.coverage', 'another')",
        "json_set(value, '$.node.trust', 7, '$.phase.complete.recent', 'another')",
    ] {
        let mut index = TestIndex::filled(20, 0);
        index.work().unwrap();
        index.mine(|registry, _| registry.agents[6].status = 2);
        index.refresh();
        let changes = |index: &TestIndex| index.changes(Since::Oldest, 10).unwrap().data;
        let (before, ended) = (changes(&index), rows(&index).len());
        assert!(!before.is_empty());
        let statement = format!("UPDATE meta SET value = {change} WHERE key = 'state'");
        index.database.execute(&statement, &[]).unwrap();
        index.kept = None;
        assert!(index.state().as_of().is_some(), "{change}: answers go on");
        for _ in 0..3 {
            index.idle_for(15);
            index.is_right();
        }
        assert_eq!((changes(&index), index.state().is_complete()), (before, true), "{change}");
        assert!(rows(&index).len() >= ended, "{change}");
    }
}

#[test]
fn an_index_can_be_opened_and_read_where_nothing_can_be_written() {
    let index = TestIndex::filled(3, 0);
    let left = Cell::new(1_000);
    let store = LimitedStore { read_only: true, ..LimitedStore::new(&index.database, &left) };
    prepare(&store).unwrap();
    assert!(left.get() < 1_000);
    assert_eq!(State::load(&index.database).unwrap().total, 3);
}
