//! Values and rows of either engine.

use std::{str::FromStr, sync::Arc};

use alloy::primitives::{Address, B256, Bytes, U256};

use super::Db;
use crate::store::{DaemonId, Result, StoreError};

/// A value that an engine stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) enum Value {
    Null,
    Integer(i64),
    Bool(bool),
    Text(String),
    Blob(Vec<u8>),
    /// Values of one type. SQLite has no arrays, and gets only hashes: a JSON array of hexadecimal texts.
    Array(Vec<Value>),
}

impl Value {
    /// Creates an array of hashes, such as the ids of relays.
    pub(in super::super) fn ids(ids: &[B256]) -> Self {
        Self::Array(ids.iter().map(Self::from).collect())
    }
}

macro_rules! into_value {
    ($($type:ty: $value:ident => $make:expr;)*) => {
        $(impl From<$type> for Value {
            fn from($value: $type) -> Self {
                $make
            }
        })*
    };
}

into_value! {
    i64: integer => Self::Integer(integer);
    u64: integer => Self::Integer(integer.cast_signed());
    u128: integer => Self::Text(integer.to_string());
    bool: bool => Self::Bool(bool);
    String: text => Self::Text(text);
    &String: text => Self::Text(text.clone());
    &str: text => Self::Text(text.to_owned());
    &DaemonId: id => Self::Text(id.0.as_ref().to_owned());
    Vec<u8>: bytes => Self::Blob(bytes);
    &[u8]: bytes => Self::Blob(bytes.to_vec());
    &Bytes: bytes => Self::Blob(bytes.to_vec());
    U256: number => number.to_be_bytes::<32>().into();
    B256: hash => hash.0.into();
    &B256: hash => hash.0.into();
    Address: address => address.0.0.into();
    &Address: address => address.0.0.into();
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

/// Builds the parameters of a statement.
macro_rules! values {
    ($($value:expr),* $(,)?) => {
        &[$($crate::store::sql::engine::Value::from($value)),*] as &[$crate::store::sql::engine::Value]
    };
}
pub(in super::super) use values;

/// A type that is read from a column.
pub(in super::super) trait FromValue: Sized {
    /// Reads a value; `None` for one of another type.
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! from_value {
    ($($type:ty: $value:pat => $read:expr;)*) => {
        $(impl FromValue for $type {
            fn from_value(value: &Value) -> Option<Self> {
                if let $value = value { $read } else { None }
            }
        })*
    };
}

from_value! {
    i64: Value::Integer(integer) => Some(*integer);
    u32: Value::Integer(integer) => (*integer).try_into().ok();
    // The databases store 64 bits signed.
    u64: Value::Integer(integer) => Some(integer.cast_unsigned());
    // The databases have no 128-bit integers.
    u128: Value::Text(text) => text.parse().ok();
    String: Value::Text(text) => Some(text.clone());
    DaemonId: Value::Text(text) => Some(Self(text.as_str().into()));
    Vec<u8>: Value::Blob(bytes) => Some(bytes.clone());
    Bytes: Value::Blob(bytes) => Some(bytes.clone().into());
    U256: Value::Blob(bytes) => Some(Self::from_be_bytes::<32>(bytes.as_slice().try_into().ok()?));
    B256: Value::Blob(bytes) => bytes.as_slice().try_into().ok();
    Address: Value::Blob(bytes) => bytes.as_slice().try_into().ok();
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

#[derive(Debug, Clone)]
pub(in super::super) struct Row {
    names: Arc<[String]>,
    values: Vec<Value>,
}

impl Row {
    /// Returns its values, in the order of the columns.
    pub(in super::super) fn values(&self) -> &[Value] {
        &self.values
    }

    /// Iterates over its columns, each with its value.
    pub(in super::super) fn columns(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.names.iter().map(String::as_str).zip(&self.values)
    }

    pub(super) const fn new(names: Arc<[String]>, values: Vec<Value>) -> Self {
        Self { names, values }
    }
}

/// Returns the first row that a query finds.
pub(in super::super) fn first<T>(
    db: &Db,
    sql: &'static str,
    values: &[Value],
    read: impl FnOnce(&Row) -> Result<T>,
) -> Result<Option<T>> {
    db.query(sql, values)?.first().map(read).transpose()
}

/// Returns all rows that a query finds.
pub(in super::super) fn all<T>(
    db: &Db,
    sql: &'static str,
    values: &[Value],
    read: impl Fn(&Row) -> Result<T>,
) -> Result<Vec<T>> {
    db.query(sql, values)?.iter().map(read).collect()
}

pub(in super::super) fn column<T: FromValue>(row: &Row, name: &'static str) -> Result<T> {
    let value = row.names.iter().zip(&row.values).find(|(column, _)| *column == name);
    value.and_then(|(_, value)| T::from_value(value)).ok_or(StoreError::Corrupt(name))
}

/// Reads a column of another type, stored as text.
pub(in super::super) fn text<T: FromStr>(row: &Row, name: &'static str) -> Result<T> {
    column::<String>(row, name)?.parse().map_err(|_| StoreError::Corrupt(name))
}

/// Returns the first column of the first row that a query finds.
pub(in super::super) fn single<T: FromValue>(
    db: &Db,
    sql: &'static str,
    values: &[Value],
) -> Result<Option<T>> {
    db.query(sql, values)?.first().map(only).transpose()
}

/// Returns the first column of all rows that a query finds.
pub(in super::super) fn each<T: FromValue>(db: &Db, sql: &'static str, values: &[Value]) -> Result<Vec<T>> {
    db.query(sql, values)?.iter().map(only).collect()
}

fn only<T: FromValue>(row: &Row) -> Result<T> {
    row.values.first().and_then(T::from_value).ok_or(StoreError::Corrupt("only one"))
}
