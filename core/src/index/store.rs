//! The SQLite database of an index, behind one function. All statements are in this crate, so that tests over
//! SQLite in memory run the statements of a Durable Object.

use alloy_primitives::hex;
use serde::{Deserialize, Serialize};

/// A column or parameter. Hosts in JavaScript hold integers as doubles, so values that may exceed 2^53 are
/// blobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SqlValue {
    /// NULL.
    Null,
    /// An integer below 2^53 in magnitude.
    Integer(i64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl From<u64> for SqlValue {
    fn from(number: u64) -> Self {
        Self::Integer(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// A failure of the store. Only [`Corrupt`](Self::Corrupt) is a reason to fill the index anew: after any
/// other failure the rows are as they were before the transaction, and the same work is tried again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The database failed, with the host's text.
    #[error("index store failed: {0}")]
    Failed(String),
    /// A quota of the host is used up, with the host's text.
    #[error("index store has no quota left: {0}")]
    OutOfQuota(String),
    /// The stored data is not as it was written.
    #[error("index store is corrupt")]
    Corrupt,
    /// The tables are of another format. They belong to another release, and are left as they are.
    #[error("index store has tables of another format")]
    OtherFormat,
}

/// Kind of a store's failure, for monitors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum StoreFault {
    /// The database failed. It is tried again after seconds.
    Failed,
    /// A quota of the platform is used up, such as the daily one of a free plan. It is tried again after
    /// minutes.
    OutOfQuota,
    /// The stored data was not as it was written: the index is filled anew.
    Corrupt,
}

impl StoreError {
    /// Parts of the messages of SQLite, and of Durable Objects beyond a quota.
    const QUOTA: [&str; 2] = ["Exceeded allowed", "database or disk is full"];
    const CORRUPT: [&str; 2] = ["database disk image is malformed", "file is not a database"];

    /// Classifies the error of a host, which only has a text.
    pub fn of_host(text: String) -> Self {
        let names = |parts: [&str; 2]| parts.iter().any(|part| text.contains(part));
        match () {
            () if names(Self::CORRUPT) => Self::Corrupt,
            () if names(Self::QUOTA) => Self::OutOfQuota(text),
            () => Self::Failed(text),
        }
    }

    /// Returns the error for a row that this crate did not write.
    pub(super) fn corrupt() -> Self {
        Self::Corrupt
    }

    /// Returns the milliseconds after which the work is tried again. Daily quotas last until midnight (UTC),
    /// and an attempt reads the chain: every ten minutes is rare enough, and soon enough after midnight.
    pub const fn retry_millis(&self) -> u64 {
        match self {
            Self::Failed(_) => 5_000,
            Self::OutOfQuota(_) | Self::OtherFormat => 600_000,
            // Short: until the index is deleted, another request may find the same.
            Self::Corrupt => 1_000,
        }
    }

    /// Returns the kind of the failure, without the host's text.
    pub const fn fault(&self) -> StoreFault {
        match self {
            Self::Failed(_) | Self::OtherFormat => StoreFault::Failed,
            Self::OutOfQuota(_) => StoreFault::OutOfQuota,
            Self::Corrupt => StoreFault::Corrupt,
        }
    }
}

/// An SQLite database.
pub trait Store {
    /// Executes one statement with parameters `?1`, `?2` and so on, and returns its rows.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the database fails.
    fn execute(&self, statement: &str, parameters: &[SqlValue]) -> Result<Vec<Vec<SqlValue>>, StoreError>;
}

/// The tables. Records are packed as [`IndexedAgent`](super::indexed_agent::IndexedAgent) defines; numbers
/// that are compared are big-endian blobs. An unreadable record has no `parent`, `person`, `creator` or
/// `generation`. The table of scopes is an index only, of the [`words`](super::words) of the texts in the
/// records. Former agents belong to [`compliance_list`](super::compliance_list), places, sizes and shards to
/// [`shards`](super::shards), segments to [`segments`](super::segments), lists of ids to
/// [`postings`](super::postings), writes by height to [`tables`](super::tables), earlier records to
/// [`takeover`](super::takeover).
const TABLES: [&str; 17] = [
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS agents (id INTEGER PRIMARY KEY, wallet BLOB NOT NULL, status INTEGER NOT NULL, \
     attested BLOB NOT NULL, parent BLOB, person BLOB, creator BLOB, generation INTEGER, \
     flaws INTEGER NOT NULL, place INTEGER, size INTEGER NOT NULL, \
     record BLOB NOT NULL, events BLOB)",
    "CREATE TABLE IF NOT EXISTS postings (kind INTEGER, key BLOB, first INTEGER, agents INTEGER NOT NULL, \
     ids TEXT NOT NULL, PRIMARY KEY (kind, key, first)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS shards (start INTEGER PRIMARY KEY, bits INTEGER NOT NULL, bytes INTEGER NOT NULL, \
     block INTEGER NOT NULL, tag INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS segments (bits INTEGER, start INTEGER, block INTEGER NOT NULL, \
     tag INTEGER NOT NULL, places TEXT NOT NULL, PRIMARY KEY (bits, start)) WITHOUT ROWID",
    "CREATE VIRTUAL TABLE IF NOT EXISTS scopes USING fts5(scope, content='', columnsize=0, \
     prefix='1 2 3 4 5 6 7 8 9 10 11 12', tokenize='ascii')",
    "CREATE TABLE IF NOT EXISTS revenue (id INTEGER, is_category INTEGER, text BLOB, amount BLOB NOT NULL, \
     PRIMARY KEY (id, is_category, text)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS revenue_totals (is_category INTEGER, text BLOB, amount BLOB NOT NULL, \
     agents INTEGER NOT NULL, PRIMARY KEY (is_category, text)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS counts (kind INTEGER, key BLOB, agents INTEGER NOT NULL, \
     PRIMARY KEY (kind, key)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS changes (number INTEGER PRIMARY KEY, agent INTEGER NOT NULL, wallet BLOB NOT NULL, \
     was INTEGER, is_now INTEGER, block INTEGER NOT NULL, seconds INTEGER NOT NULL, noted INTEGER NOT NULL, \
     liable BLOB)",
    "CREATE INDEX IF NOT EXISTS changes_by_time ON changes (noted)",
    "CREATE TABLE IF NOT EXISTS ends (id INTEGER PRIMARY KEY, seconds INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS lists (number INTEGER PRIMARY KEY, used INTEGER NOT NULL, total INTEGER NOT NULL, \
     grace BLOB NOT NULL, seconds INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS former_agents (id INTEGER, list INTEGER, attested BLOB NOT NULL, parent BLOB, \
     flaws INTEGER NOT NULL, record BLOB NOT NULL, PRIMARY KEY (id, list)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS checkpoints (number INTEGER PRIMARY KEY, hash BLOB NOT NULL, seconds INTEGER NOT NULL, \
     parent BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS written (number INTEGER PRIMARY KEY, height INTEGER NOT NULL, ids TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS earlier (first INTEGER PRIMARY KEY, records BLOB NOT NULL)",
];

/// The format of the tables, a part of the [name](super::protocol::object_name) of their object. Each change
/// increments it, and so moves the index to a new object.
pub(super) const FORMAT: &str = "15";

/// Earlier formats, the latest first, from which an index [takes over](super::takeover). They have no
/// [segments](super::segments); those up to 13 have SQL indexes in place of [posting lists](super::postings);
/// the oldest has no columns of events and of the changes' liable wallets.
pub(super) const EARLIER_FORMATS: [&str; 4] = ["14", "13", "12", "11"];

/// Creates the tables, in one transaction of the host. It has to be called before any other use of a store.
///
/// # Errors
///
/// [`StoreError::OtherFormat`] if the store has tables of another format, which are left as they are.
pub fn prepare(store: &impl Store) -> Result<(), StoreError> {
    match format_of(store)? {
        Some(stored) if stored == FORMAT => return Ok(()),
        Some(_) => return Err(StoreError::OtherFormat),
        None => {}
    }
    TABLES.iter().try_for_each(|statement| store.execute(statement, &[]).map(drop))?;
    let whole = "INSERT INTO shards (start, bits, bytes, block, tag) VALUES (0, 0, 0, 0, 0)";
    store.execute(whole, &[])?;
    let statement = "INSERT OR REPLACE INTO meta (key, value) VALUES ('version', ?1)";
    store.execute(statement, &[SqlValue::Text(FORMAT.to_owned())]).map(drop)
}

/// Reads the format of the tables, if they exist: the format is written last. Nothing is written, so that an
/// index can be read even if the quota of writes is used up.
pub(super) fn format_of(store: &impl Store) -> Result<Option<String>, StoreError> {
    let statement = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'meta'";
    if store.execute(statement, &[])?.is_empty() {
        return Ok(None);
    }
    let row = first_row(store, "SELECT value FROM meta WHERE key = 'version'", &[])?;
    row.map(|mut row| row.text()).transpose()
}

/// Executes a statement and reads each row of its result.
pub(super) fn query<T>(
    store: &impl Store,
    statement: &str,
    parameters: &[SqlValue],
    mut read: impl FnMut(&mut Columns) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    let rows = store.execute(statement, parameters)?;
    rows.into_iter().map(|row| read(&mut Columns::of(row))).collect()
}

/// Executes a statement and returns the first row of its result.
pub(super) fn first_row(
    store: &impl Store,
    statement: &str,
    parameters: &[SqlValue],
) -> Result<Option<Columns>, StoreError> {
    Ok(store.execute(statement, parameters)?.into_iter().next().map(Columns::of))
}

/// Reads a row column by column.
pub(super) struct Columns(std::vec::IntoIter<SqlValue>);

impl Columns {
    pub(super) fn of(row: Vec<SqlValue>) -> Self {
        Self(row.into_iter())
    }

    pub(super) fn integer(&mut self) -> Result<i64, StoreError> {
        match self.0.next() {
            Some(SqlValue::Integer(number)) => Ok(number),
            _ => Err(StoreError::corrupt()),
        }
    }

    pub(super) fn number(&mut self) -> Result<u64, StoreError> {
        u64::try_from(self.integer()?).map_err(|_| StoreError::corrupt())
    }

    /// Reads an integer that may be NULL.
    pub(super) fn nullable(&mut self) -> Result<Option<i64>, StoreError> {
        match self.0.next() {
            Some(SqlValue::Integer(number)) => Ok(Some(number)),
            Some(SqlValue::Null) => Ok(None),
            _ => Err(StoreError::corrupt()),
        }
    }

    pub(super) fn blob(&mut self) -> Result<Vec<u8>, StoreError> {
        match self.0.next() {
            Some(SqlValue::Blob(bytes)) => Ok(bytes),
            _ => Err(StoreError::corrupt()),
        }
    }

    /// Reads bytes that may be NULL.
    pub(super) fn nullable_blob(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        match self.0.next() {
            Some(SqlValue::Blob(bytes)) => Ok(Some(bytes)),
            Some(SqlValue::Null) => Ok(None),
            _ => Err(StoreError::corrupt()),
        }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], StoreError> {
        self.blob()?.try_into().map_err(|_| StoreError::corrupt())
    }

    pub(super) fn text(&mut self) -> Result<String, StoreError> {
        match self.0.next() {
            Some(SqlValue::Text(text)) => Ok(text),
            _ => Err(StoreError::corrupt()),
        }
    }
}

/// Bytes that end a JSON text of rows: a Durable Object accepts parameters up to 2 MB.
const TEXT_BYTES: usize = 128 * 1024;
/// Ids per statement, for the same reason.
const IDS: usize = 10_000;

/// Writes rows by a statement that reads them from `json_each(?1)`: each row is an array of its values, with
/// blobs as hexadecimal digits.
///
/// Every bound value is an object in JavaScript, and a blob is three; as one text, thousands of rows are one
/// object.
pub(super) fn write<const N: usize>(
    store: &impl Store,
    statement: &str,
    rows: &[[SqlValue; N]],
) -> Result<(), StoreError> {
    write_values(store, statement, N, rows.as_flattened()).map(drop)
}

/// Writes rows like `write`, and returns the rows of the statement's result.
pub(super) fn write_returning<const N: usize>(
    store: &impl Store,
    statement: &str,
    rows: &[[SqlValue; N]],
) -> Result<Vec<Columns>, StoreError> {
    write_values(store, statement, N, rows.as_flattened())
}

/// Writes rows of `width` values each, laid end to end. It is compiled once for all widths.
fn write_values(
    store: &impl Store,
    statement: &str,
    width: usize,
    rows: &[SqlValue],
) -> Result<Vec<Columns>, StoreError> {
    let (mut text, mut returned) = (String::new(), Vec::new());
    let mut rows = rows.chunks(width).peekable();
    while let Some(row) = rows.next() {
        text.push(if text.is_empty() { '[' } else { ',' });
        for (column, value) in row.iter().enumerate() {
            text.push(if column == 0 { '[' } else { ',' });
            match value {
                SqlValue::Null => text.push_str("null"),
                SqlValue::Integer(number) => text.push_str(&number.to_string()),
                // Serializing a string cannot fail.
                SqlValue::Text(value) => text.push_str(&serde_json::to_string(value).unwrap_or_default()),
                SqlValue::Blob(bytes) => text.extend(["\"", &hex::encode(bytes), "\""]),
            }
        }
        text.push(']');
        if text.len() >= TEXT_BYTES || rows.peek().is_none() {
            text.push(']');
            let rows = store.execute(statement, &[SqlValue::Text(core::mem::take(&mut text))])?;
            returned.extend(rows.into_iter().map(Columns::of));
        }
    }
    Ok(returned)
}

/// Executes a statement, which ends before `IN`, for these ids and returns its rows. `given` are its other
/// parameters.
pub(super) fn of_ids(
    store: &impl Store,
    statement: &str,
    given: &[SqlValue],
    ids: &[u64],
) -> Result<Vec<Columns>, StoreError> {
    let statement = format!("{statement} IN (SELECT value FROM json_each(?))");
    let mut answered = Vec::new();
    for ids in ids.chunks(IDS) {
        let parameters = [given, &[ids_as_json(ids)]].concat();
        answered.extend(store.execute(&statement, &parameters)?.into_iter().map(Columns::of));
    }
    Ok(answered)
}

pub(super) fn ids_as_json(ids: &[u64]) -> SqlValue {
    let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
    SqlValue::Text(format!("[{}]", ids.join(",")))
}

/// Returns the single number of a statement's result; `None` if it is NULL or there is no row.
pub(super) fn one_number(
    store: &impl Store,
    statement: &str,
    parameters: &[SqlValue],
) -> Result<Option<u64>, StoreError> {
    let number = first_row(store, statement, parameters)?.and_then(|mut row| row.number().ok());
    Ok(number)
}

/// Encodes a number as a big-endian blob, so that blobs compare as the numbers do.
pub(super) fn ordered(number: u64) -> SqlValue {
    SqlValue::Blob(number.to_be_bytes().into())
}
