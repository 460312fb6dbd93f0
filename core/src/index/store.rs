//! Where an index keeps its rows: SQLite, behind one function. All statements are this crate's, so that a test over SQLite in memory
//! runs the very statements that a Durable Object runs.

use alloy_primitives::hex;

/// A value of a row or a parameter. Hosts in JavaScript hold integers as doubles: what may exceed 2^53 is a blob here.
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

/// The store failed; the text is the host's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("index store failed: {0}")]
pub struct StoreError(pub String);

impl StoreError {
    /// A row that this crate did not write.
    pub(super) fn corrupt() -> Self {
        Self("a row is not as it was written".to_owned())
    }
}

/// An SQLite database.
pub trait Store {
    /// Carries out one statement and gives the rows it answers with. Parameters are `?1`, `?2` and so on.
    ///
    /// # Errors
    ///
    /// [`StoreError`] where the database fails.
    fn execute(&self, statement: &str, parameters: &[SqlValue]) -> Result<Vec<Vec<SqlValue>>, StoreError>;
}

/// The tables. A record is packed as [`IndexedAgent`](super::indexed_agent::IndexedAgent) has it; numbers that are compared are in big-endian blobs. An
/// unreadable record has neither `parent` nor `person`, `creator`, `generation`. The scopes are an index only, of the
/// [`words`](super::words) of the texts in the records. The former agents are [`compliance_list`](super::compliance_list)'s.
const SCHEMA: [&str; 23] = [
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS agents (id INTEGER PRIMARY KEY, wallet BLOB NOT NULL, status INTEGER NOT NULL, \
     attested BLOB NOT NULL, parent BLOB, person BLOB, creator BLOB, generation INTEGER, \
     flaws INTEGER NOT NULL, changed_at INTEGER NOT NULL, record BLOB NOT NULL)",
    "CREATE INDEX IF NOT EXISTS agents_by_wallet ON agents (wallet)",
    "CREATE INDEX IF NOT EXISTS agents_by_status ON agents (status)",
    "CREATE INDEX IF NOT EXISTS agents_by_attestation ON agents (attested)",
    "CREATE INDEX IF NOT EXISTS agents_by_parent ON agents (parent)",
    "CREATE INDEX IF NOT EXISTS agents_by_person ON agents (person)",
    "CREATE INDEX IF NOT EXISTS active_agents_by_person ON agents (person, attested) WHERE status = 0",
    "CREATE INDEX IF NOT EXISTS agents_by_creator ON agents (creator)",
    "CREATE INDEX IF NOT EXISTS agents_by_generation ON agents (generation)",
    "CREATE INDEX IF NOT EXISTS active_agents_by_attestation ON agents (attested) WHERE status = 0",
    "CREATE VIRTUAL TABLE IF NOT EXISTS scopes USING fts5(scope, content='', columnsize=0, \
     prefix='1 2 3 4 5 6 7 8 9 10 11 12', tokenize='ascii')",
    "CREATE INDEX IF NOT EXISTS agents_by_change ON agents (changed_at)",
    "CREATE INDEX IF NOT EXISTS agents_with_flaws ON agents (flaws) WHERE flaws > 0",
    "CREATE TABLE IF NOT EXISTS revenue (id INTEGER, is_category INTEGER, text BLOB, amount BLOB NOT NULL, \
     PRIMARY KEY (id, is_category, text)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS revenue_totals (is_category INTEGER, text BLOB, amount BLOB NOT NULL, \
     agents INTEGER NOT NULL, PRIMARY KEY (is_category, text)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS counts (kind INTEGER, key BLOB, agents INTEGER NOT NULL, \
     PRIMARY KEY (kind, key)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS changes (number INTEGER PRIMARY KEY, agent INTEGER NOT NULL, wallet BLOB NOT NULL, \
     was INTEGER, is_now INTEGER, block INTEGER NOT NULL, seconds INTEGER NOT NULL, noted INTEGER NOT NULL)",
    "CREATE INDEX IF NOT EXISTS changes_by_time ON changes (noted)",
    "CREATE TABLE IF NOT EXISTS ends (id INTEGER PRIMARY KEY, seconds INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS lists (number INTEGER PRIMARY KEY, used INTEGER NOT NULL, total INTEGER NOT NULL, \
     grace BLOB NOT NULL, seconds INTEGER NOT NULL)",
    "CREATE TABLE IF NOT EXISTS former_agents (id INTEGER, list INTEGER, attested BLOB NOT NULL, parent BLOB, \
     flaws INTEGER NOT NULL, record BLOB NOT NULL, PRIMARY KEY (id, list)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS checkpoints (number INTEGER PRIMARY KEY, hash BLOB NOT NULL, seconds INTEGER NOT NULL)",
];

/// The tables' names.
const TABLES: [&str; 11] = [
    "meta",
    "scopes",
    "agents",
    "revenue",
    "revenue_totals",
    "counts",
    "changes",
    "ends",
    "lists",
    "former_agents",
    "checkpoints",
];
/// To be counted up with each change of the tables: an index made by other code is filled anew.
const VERSION: &str = "8";

/// Makes the tables where there are none, or other ones; to be called once before anything else is done with a store.
///
/// # Errors
///
/// [`StoreError`].
pub fn prepare(store: &impl Store) -> Result<(), StoreError> {
    let [meta, ..] = SCHEMA;
    store.execute(meta, &[])?;
    let version = store.execute("SELECT value FROM meta WHERE key = 'version'", &[])?.into_iter().next();
    if version != Some(vec![SqlValue::Text(VERSION.to_owned())]) {
        TABLES
            .iter()
            .try_for_each(|table| store.execute(&format!("DROP TABLE IF EXISTS {table}"), &[]).map(drop))?;
    }
    SCHEMA.iter().try_for_each(|statement| store.execute(statement, &[]).map(drop))?;
    let statement = "INSERT OR REPLACE INTO meta (key, value) VALUES ('version', ?1)";
    store.execute(statement, &[SqlValue::Text(VERSION.to_owned())]).map(drop)
}

/// Reads a row from its first column on.
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

    /// An integer that may be NULL.
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

/// Bytes from which on a text of rows ends: a parameter has 2 MB at most in a Durable Object.
const TEXT_BYTES: usize = 128 * 1024;
/// Ids of a statement at most, for the same reason.
const IDS: usize = 10_000;

/// Writes rows by a statement that reads them from `json_each(?1)`: each is an array of its values there, with blobs in hexadecimal
/// digits.
///
/// What is bound to a statement is an object in JavaScript, a blob is three: as one text, thousands of rows are one.
pub(super) fn write<const N: usize>(
    store: &impl Store,
    statement: &str,
    rows: &[[SqlValue; N]],
) -> Result<(), StoreError> {
    write_values(store, statement, N, rows.as_flattened())
}

/// The same with rows end to end, of so many values each: compiled once, whatever the number.
fn write_values(
    store: &impl Store,
    statement: &str,
    width: usize,
    rows: &[SqlValue],
) -> Result<(), StoreError> {
    let mut text = String::new();
    let mut rows = rows.chunks(width).peekable();
    while let Some(row) = rows.next() {
        text.push(if text.is_empty() { '[' } else { ',' });
        for (column, value) in row.iter().enumerate() {
            text.push(if column == 0 { '[' } else { ',' });
            match value {
                SqlValue::Null => text.push_str("null"),
                SqlValue::Integer(number) => text.push_str(&number.to_string()),
                // A string: serialization has nothing to fail on.
                SqlValue::Text(value) => text.push_str(&serde_json::to_string(value).unwrap_or_default()),
                SqlValue::Blob(bytes) => text.extend(["\"", &hex::encode(bytes), "\""]),
            }
        }
        text.push(']');
        if text.len() >= TEXT_BYTES || rows.peek().is_none() {
            text.push(']');
            store.execute(statement, &[SqlValue::Text(core::mem::take(&mut text))])?;
        }
    }
    Ok(())
}

/// Carries out a statement for these ids that ends before `IN`; `given` are the parameters before them. The rows that it answers
/// with.
pub(super) fn of_ids(
    store: &impl Store,
    statement: &str,
    given: &[SqlValue],
    ids: &[u64],
) -> Result<Vec<Vec<SqlValue>>, StoreError> {
    let statement = format!("{statement} IN (SELECT value FROM json_each(?))");
    let mut answered = Vec::new();
    for ids in ids.chunks(IDS) {
        let parameters = [given, &[ids_as_json(ids)]].concat();
        answered.extend(store.execute(&statement, &parameters)?);
    }
    Ok(answered)
}

/// Ids as a JSON array.
pub(super) fn ids_as_json(ids: &[u64]) -> SqlValue {
    let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
    SqlValue::Text(format!("[{}]", ids.join(",")))
}

/// The one number that a statement answers with; `None` where it is NULL or there is no row.
pub(super) fn one_number(
    store: &impl Store,
    statement: &str,
    parameters: &[SqlValue],
) -> Result<Option<u64>, StoreError> {
    let row = store.execute(statement, parameters)?.into_iter().next();
    match row.and_then(|row| row.into_iter().next()) {
        Some(SqlValue::Integer(number)) => Ok(u64::try_from(number).ok()),
        _ => Ok(None),
    }
}

/// Big-endian, so that blobs compare as the numbers do.
pub(super) fn ordered(number: u64) -> SqlValue {
    SqlValue::Blob(number.to_be_bytes().into())
}
