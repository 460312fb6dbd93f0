//! The store of an index in a Durable Object's SQLite.

use registry_core::index::{Store, StoreError, Value};
use worker::{SqlStorage, SqlStorageValue};

/// The writes between two awaits are one transaction, by the platform's rules.
pub(super) struct Sql(pub(super) SqlStorage);

impl Store for Sql {
    fn execute(&self, statement: &str, parameters: &[Value]) -> Result<Vec<Vec<Value>>, StoreError> {
        let failed = |error: worker::Error| StoreError(error.to_string());
        let parameters: Vec<SqlStorageValue> = parameters.iter().map(bind).collect();
        let cursor = self.0.exec(statement, parameters).map_err(failed)?;
        let rows = cursor.raw().map(|row| row.map_err(failed)?.into_iter().map(read).collect());
        rows.collect()
    }
}

fn bind(value: &Value) -> SqlStorageValue {
    match value {
        Value::Null => SqlStorageValue::Null,
        Value::Integer(number) => SqlStorageValue::Integer(*number),
        Value::Text(text) => SqlStorageValue::String(text.clone()),
        Value::Blob(bytes) => SqlStorageValue::Blob(bytes.clone()),
    }
}

fn read(value: SqlStorageValue) -> Result<Value, StoreError> {
    Ok(match value {
        SqlStorageValue::Null => Value::Null,
        SqlStorageValue::Boolean(truth) => Value::Integer(truth.into()),
        SqlStorageValue::Integer(number) => Value::Integer(number),
        SqlStorageValue::String(text) => Value::Text(text),
        SqlStorageValue::Blob(bytes) => Value::Blob(bytes),
        SqlStorageValue::Float(number) => return Err(StoreError(format!("{number} is no integer"))),
    })
}
