//! Values and rows of either engine.

use std::{str::FromStr, sync::Arc};

use alloy::primitives::B256;

use super::Db;
use crate::store::StoreError;

/// A value that an engine stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Value {
    Null,
    Integer(i64),
    Bool(bool),
    Text(String),
    Blob(Vec<u8>),
    /// Values of one type; Postgres alone has these.
    Array(Vec<Value>),
}

impl Value {
    /// The ids of relays.
    pub(in super::super) fn ids(ids: &[B256]) -> Self {
        Self::Array(ids.iter().map(|id| id.0.into()).collect())
    }
}

macro_rules! into_value {
    ($($type:ty => $make:expr;)*) => {
        $(impl From<$type> for Value {
            fn from(value: $type) -> Self {
                ($make)(value)
            }
        })*
    };
}

into_value! {
    i64 => Self::Integer;
    bool => Self::Bool;
    String => Self::Text;
    &String => |text: &String| Self::Text(text.clone());
    &str => |text: &str| Self::Text(text.to_owned());
    Vec<u8> => Self::Blob;
    &[u8] => |bytes: &[u8]| Self::Blob(bytes.to_vec());
}

impl<const N: usize> From<[u8; N]> for Value {
    fn from(bytes: [u8; N]) -> Self {
        Self::Blob(bytes.to_vec())
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// The parameters of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        &[$($crate::store::sql::engine::Value::from($value)),*] as &[$crate::store::sql::engine::Value]
    };
}
pub(in super::super) use values;

/// A type that is read from a column.
pub(in super::super) trait FromValue: Sized {
    /// `None` for a value of another type.
    fn from_value(value: &Value) -> Option<Self>;
}

impl FromValue for i64 {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Integer(integer) = value { Some(*integer) } else { None }
    }
}

impl FromValue for u32 {
    fn from_value(value: &Value) -> Option<Self> {
        i64::from_value(value)?.try_into().ok()
    }
}

impl FromValue for bool {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(bool) => Some(*bool),
            // SQLite has no booleans.
            Value::Integer(integer) => Some(*integer != 0),
            _ => None,
        }
    }
}

impl FromValue for String {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Text(text) = value { Some(text.clone()) } else { None }
    }
}

impl FromValue for Vec<u8> {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Blob(bytes) = value { Some(bytes.clone()) } else { None }
    }
}

impl<const N: usize> FromValue for [u8; N] {
    fn from_value(value: &Value) -> Option<Self> {
        if let Value::Blob(bytes) = value { bytes.as_slice().try_into().ok() } else { None }
    }
}

impl<T: FromValue> FromValue for Option<T> {
    fn from_value(value: &Value) -> Option<Self> {
        if *value == Value::Null { Some(None) } else { T::from_value(value).map(Some) }
    }
}

/// A row that a query found.
#[derive(Debug, Clone)]
pub(in super::super) struct Row {
    names: Arc<[String]>,
    values: Vec<Value>,
}

impl Row {
    /// Its values, in the order of the columns.
    pub(in super::super) fn values(&self) -> &[Value] {
        &self.values
    }

    /// A row of these columns.
    pub(super) const fn new(names: Arc<[String]>, values: Vec<Value>) -> Self {
        Self { names, values }
    }
}

/// The first row that a query finds.
pub(in super::super) fn first<T>(
    db: &Db,
    sql: &'static str,
    values: &[Value],
    read: impl FnOnce(&Row) -> Result<T, StoreError>,
) -> Result<Option<T>, StoreError> {
    db.query(sql, values)?.first().map(read).transpose()
}

/// All rows that a query finds.
pub(in super::super) fn all<T>(
    db: &Db,
    sql: &'static str,
    values: &[Value],
    read: impl Fn(&Row) -> Result<T, StoreError>,
) -> Result<Vec<T>, StoreError> {
    db.query(sql, values)?.iter().map(read).collect()
}

/// A column of a type that the engines have.
pub(in super::super) fn column<T: FromValue>(row: &Row, name: &'static str) -> Result<T, StoreError> {
    let value = row.names.iter().zip(&row.values).find(|(column, _)| *column == name);
    value.and_then(|(_, value)| T::from_value(value)).ok_or(StoreError::Corrupt(name))
}

/// A column of a type that they lack, stored as text.
pub(in super::super) fn text<T: FromStr>(row: &Row, name: &'static str) -> Result<T, StoreError> {
    column::<String>(row, name)?.parse().map_err(|_| StoreError::Corrupt(name))
}

/// An unsigned 64-bit column, which they store signed.
pub(in super::super) fn unsigned(row: &Row, name: &'static str) -> Result<u64, StoreError> {
    Ok(column::<i64>(row, name)?.cast_unsigned())
}
