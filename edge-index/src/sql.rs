//! The store of an index in a Durable Object's SQLite.

use std::{cell::Cell, rc::Rc};

use registry_core::index::{IndexError, RowsBilled, SqlValue, Store, StoreError};
use worker::{
    SqlStorage, SqlStorageValue, Storage, console_warn,
    wasm_bindgen::{self, JsCast as _, JsValue, prelude::wasm_bindgen},
};

#[wasm_bindgen]
extern "C" {
    /// The storage of an object, for the function that the library lacks.
    type SyncStorage;

    #[wasm_bindgen(method, catch, js_name = transactionSync)]
    fn transaction_sync(
        this: &SyncStorage,
        work: &mut dyn FnMut() -> Result<(), JsValue>,
    ) -> Result<(), JsValue>;
}

/// Maximum bytes of an object's storage, and the size from which on a warning is logged.
const MOST_BYTES: u64 = 10_000_000_000;
const WARNED_BYTES: u64 = MOST_BYTES / 10 * 8;

/// The database of an object.
pub(crate) struct Sql {
    sql: SqlStorage,
    storage: SyncStorage,
    rows: Rc<Cell<RowsBilled>>,
}

impl Sql {
    /// Opens the database; the rows that it reads and writes are added to `rows`.
    pub(crate) fn new(storage: &Storage, rows: Rc<Cell<RowsBilled>>) -> Self {
        let raw: &JsValue = storage.as_raw().as_ref();
        Self { sql: storage.sql(), storage: raw.clone().unchecked_into(), rows }
    }

    /// Logs a database that is near the limit of an object's storage, beyond which nothing can be written.
    pub(crate) fn warn_of_size(&self) {
        let bytes = self.sql.database_size() as u64;
        if bytes > WARNED_BYTES {
            console_warn!("the index takes {bytes} bytes of the {MOST_BYTES} that an object's storage holds");
        }
    }

    /// Returns the time of the last request in unix milliseconds; 0 if it is unknown.
    pub(crate) fn asked_at(&self) -> Result<u64, StoreError> {
        Ok(self.noted("asked_at")?.and_then(|at| at.parse().ok()).unwrap_or(0))
    }

    /// Reads the text that the object has noted under this key.
    pub(crate) fn noted(&self, key: &str) -> Result<Option<String>, StoreError> {
        let rows =
            self.execute("SELECT value FROM meta WHERE key = ?1", &[SqlValue::Text(key.to_owned())])?;
        Ok(rows.into_iter().flatten().next().and_then(|value| match value {
            SqlValue::Text(text) => Some(text),
            _ => None,
        }))
    }

    /// Runs `work` as one transaction. It is rolled back if the store fails: otherwise the platform would
    /// commit the writes before the failure.
    pub(crate) fn transaction<T>(
        &self,
        work: impl FnOnce() -> Result<T, IndexError>,
    ) -> Result<T, IndexError> {
        let (mut work, mut outcome) = (Some(work), None);
        let committed = self.storage.transaction_sync(&mut || {
            outcome = work.take().map(|work| work());
            match &outcome {
                Some(Err(IndexError::Store(_))) => Err(JsValue::NULL),
                _ => Ok(()),
            }
        });
        match (outcome, committed) {
            (Some(Err(error)), _) => Err(error),
            (Some(Ok(done)), Ok(())) => Ok(done),
            (_, committed) => {
                let error = committed.err().map(|error| worker::Error::from(error).to_string());
                Err(StoreError::of_host(error.unwrap_or_default()).into())
            }
        }
    }
}

impl Store for Sql {
    fn execute(&self, statement: &str, parameters: &[SqlValue]) -> Result<Vec<Vec<SqlValue>>, StoreError> {
        let failed = |error: worker::Error| StoreError::of_host(error.to_string());
        let parameters: Vec<SqlStorageValue> = parameters.iter().map(bind).collect();
        let cursor = self.sql.exec(statement, parameters).map_err(failed)?;
        let rows = cursor.raw().map(|row| row.map_err(failed)?.into_iter().map(read).collect());
        let rows = rows.collect();
        let RowsBilled { read, written, since } = self.rows.get();
        let (more_read, more_written) = (cursor.rows_read() as u64, cursor.rows_written() as u64);
        self.rows.set(RowsBilled { read: read + more_read, written: written + more_written, since });
        rows
    }
}

fn bind(value: &SqlValue) -> SqlStorageValue {
    match value {
        SqlValue::Null => SqlStorageValue::Null,
        SqlValue::Integer(number) => SqlStorageValue::Integer(*number),
        SqlValue::Text(text) => SqlStorageValue::String(text.clone()),
        SqlValue::Blob(bytes) => SqlStorageValue::Blob(bytes.clone()),
    }
}

fn read(value: SqlStorageValue) -> Result<SqlValue, StoreError> {
    Ok(match value {
        SqlStorageValue::Null => SqlValue::Null,
        SqlStorageValue::Boolean(truth) => SqlValue::Integer(truth.into()),
        SqlStorageValue::Integer(number) => SqlValue::Integer(number),
        SqlStorageValue::String(text) => SqlValue::Text(text),
        SqlStorageValue::Blob(bytes) => SqlValue::Blob(bytes),
        // No statement writes one.
        SqlStorageValue::Float(_) => return Err(StoreError::Corrupt),
    })
}
