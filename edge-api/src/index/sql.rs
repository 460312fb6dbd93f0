//! The store of an index in a Durable Object's SQLite.

use registry_core::index::{SqlValue, Store, StoreError};
use worker::{SqlStorage, SqlStorageValue};

/// The writes between two awaits are one transaction, by the platform's rules.
pub(super) struct Sql(pub(super) SqlStorage);

impl Store for Sql {
    fn execute(&self, statement: &str, parameters: &[SqlValue]) -> Result<Vec<Vec<SqlValue>>, StoreError> {
        let failed = |error: worker::Error| StoreError(error.to_string());
        let parameters: Vec<SqlStorageValue> = parameters.iter().map(bind).collect();
        let cursor = self.0.exec(statement, parameters).map_err(failed)?;
        let rows = cursor.raw().map(|row| row.map_err(failed)?.into_iter().map(read).collect());
        rows.collect()
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
        SqlStorageValue::Float(number) => return Err(StoreError(format!("{number} is no integer"))),
    })
}
