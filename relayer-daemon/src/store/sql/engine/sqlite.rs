//! SQLite in WAL mode with `synchronous = FULL`: what was committed is on disk.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use alloy::hex;
use rusqlite::{
    Connection, OpenFlags, Statement,
    types::{ToSql, ToSqlOutput, ValueRef},
};

use super::{
    Row, SqlConnection, Value, sqlite_format,
    statements::{FLEET_ON_SQLITE, SQLITE, Statements},
};
use crate::store::{Result, StoreError};

/// Longest wait for another process's lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Engine(error.to_string())
    }
}

pub(in super::super) struct Sqlite {
    db: Connection,
    statements: &'static Statements,
    /// A test's clock, milliseconds; `None` for the machine's.
    clock: Option<Arc<AtomicI64>>,
}

impl Sqlite {
    /// Sets up the connection that writes: makes the schema in an empty file, brings an older one up to date.
    pub(in super::super) fn writer(mut db: Connection) -> Result<Self> {
        db.busy_timeout(BUSY_TIMEOUT)?;
        sqlite_format::migrate(&mut db)?;
        db.pragma_update(None, "journal_mode", "WAL")?;
        db.pragma_update(None, "synchronous", "FULL")?;
        db.pragma_update(None, "foreign_keys", true)?;
        Ok(Self::raw(db))
    }

    /// Returns whether the file holds a journal of this program's version; changes nothing.
    pub(in super::super) fn is_current(path: &Path) -> Result<bool> {
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        db.busy_timeout(BUSY_TIMEOUT)?;
        sqlite_format::is_current(&db)
    }

    /// Sets up a connection that reads.
    pub(in super::super) fn reader(db: Connection) -> Result<Self> {
        db.busy_timeout(BUSY_TIMEOUT)?;
        db.pragma_update(None, "query_only", true)?;
        Ok(Self::raw(db))
    }

    /// Opens a connection to a file that another process may be writing; `None` if the file is empty.
    pub(in super::super) fn beside_a_writer(path: &Path) -> Result<Option<Self>> {
        let db = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        db.busy_timeout(BUSY_TIMEOUT)?;
        Ok((!sqlite_format::is_empty(&db)?).then(|| Self::raw(db)))
    }

    /// Wraps a connection as it is.
    pub(super) const fn raw(db: Connection) -> Self {
        Self { db, statements: &SQLITE, clock: None }
    }

    /// Makes the tables of a fleet, for tests of fleets.
    pub(in super::super) fn make_fleet(&self) -> Result<()> {
        Ok(self.db.execute_batch(include_str!("sqlite_fleet.sql"))?)
    }

    /// Returns the connection with the statements of a fleet and this clock, which counts milliseconds.
    pub(in super::super) fn of_a_fleet(self, clock: Arc<AtomicI64>) -> Self {
        Self { statements: &FLEET_ON_SQLITE, clock: Some(clock), ..self }
    }
}

/// Gives a statement's parameters their values: `$1` is the first one, wherever it stands.
fn bind(statement: &mut Statement<'_>, values: &[Value]) -> Result<()> {
    for index in 1..=statement.parameter_count() {
        let number = statement.parameter_name(index).and_then(|name| name.strip_prefix('$')?.parse().ok());
        let value = number.and_then(|number: usize| values.get(number.checked_sub(1)?));
        statement.raw_bind_parameter(index, value.ok_or(StoreError::Missing("parameter"))?)?;
    }
    Ok(())
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Integer(integer) => ValueRef::Integer(*integer),
            Self::Bool(bool) => ValueRef::Integer(i64::from(*bool)),
            Self::Text(text) => ValueRef::Text(text.as_bytes()),
            Self::Blob(bytes) => ValueRef::Blob(bytes),
            Self::Array(values) => {
                let text = |value: &Value| match value {
                    Value::Blob(bytes) => Ok(hex::encode(bytes)),
                    _ => Err(rusqlite::Error::ToSqlConversionFailure("not a hash".into())),
                };
                let texts = values.iter().map(text).collect::<Result<Vec<_>, _>>()?;
                return Ok(ToSqlOutput::Owned(serde_json::Value::from(texts).to_string().into()));
            }
        }))
    }
}

fn value(stored: ValueRef<'_>) -> Result<Value> {
    Ok(match stored {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(integer) => Value::Integer(integer),
        ValueRef::Text(text) => {
            Value::Text(String::from_utf8(text.to_vec()).map_err(|_| StoreError::Corrupt("text"))?)
        }
        ValueRef::Blob(bytes) => Value::Blob(bytes.to_vec()),
        ValueRef::Real(_) => return Err(StoreError::Corrupt("number")),
    })
}

impl SqlConnection for Sqlite {
    fn statements(&self) -> &'static Statements {
        self.statements
    }

    fn execute(&self, sql: &'static str, values: &[Value]) -> Result<usize> {
        let mut statement = self.db.prepare_cached(sql)?;
        bind(&mut statement, values)?;
        Ok(statement.raw_execute()?)
    }

    fn query(&self, sql: &'static str, values: &[Value]) -> Result<Vec<Row>> {
        let mut statement = self.db.prepare_cached(sql)?;
        let names: Arc<[String]> = statement.column_names().map(str::to_owned).collect();
        let mut found = Vec::new();
        bind(&mut statement, values)?;
        let mut rows = statement.raw_query();
        while let Some(row) = rows.next()? {
            let values =
                (0..names.len()).map(|index| value(row.get_ref(index)?)).collect::<Result<_, _>>()?;
            found.push(Row::new(Arc::clone(&names), values));
        }
        Ok(found)
    }

    fn begin(&self) -> Result<()> {
        Ok(self.db.execute_batch("BEGIN IMMEDIATE")?)
    }

    fn begin_reading(&self) -> Result<()> {
        Ok(self.db.execute_batch("BEGIN")?)
    }

    fn commit(&self) -> Result<()> {
        Ok(self.db.execute_batch("COMMIT")?)
    }

    fn rollback(&self) -> Result<()> {
        Ok(self.db.execute_batch("ROLLBACK")?)
    }

    fn is_in_transaction(&self) -> bool {
        !self.db.is_autocommit()
    }

    fn savepoint(&self, step: &str) -> Result<()> {
        Ok(self.db.execute_batch(step)?)
    }

    fn probe(&self) -> Result<()> {
        sqlite_format::rewrite_version(&self.db)
    }

    fn own_clock(&self) -> Option<i64> {
        self.now_ms().ok()
    }

    fn now_ms(&self) -> Result<i64> {
        Ok(match &self.clock {
            Some(clock) => clock.load(Ordering::Relaxed),
            None => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
            }
        })
    }
}
