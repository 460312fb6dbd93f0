//! How the API writes Ethereum's values as JSON, one type per kind, for `#[serde(with)]`. What they look like to
//! a reader of the schema stands beside them in `schema`.
//!
//! Numbers keep all their digits: a `uint256` is a JSON number, however large, never a rounded float.

use std::collections::BTreeMap;
use std::fmt::Display;

use alloy_primitives::{Address, B256, U256};
use serde::{
    Serialize, Serializer,
    ser::{Error, SerializeMap, SerializeSeq},
};
use serde_json::value::RawValue;

/// For `#[serde(skip_serializing_if)]`.
#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
pub(crate) const fn is_false(value: &bool) -> bool {
    !*value
}

/// Strings, numbers and maps with string keys: serialization has nothing to fail on.
pub(crate) fn text(shape: &impl Serialize, size_hint: usize) -> String {
    let mut body = Vec::with_capacity(size_hint);
    let written = serde_json::to_writer(&mut body, shape);
    written.ok().and_then(|()| String::from_utf8(body).ok()).unwrap_or_default()
}

/// A non-negative integer of any width, all digits written out.
struct Digits<T>(T);

impl<T: Display> Serialize for Digits<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        RawValue::from_string(self.0.to_string()).map_err(S::Error::custom)?.serialize(serializer)
    }
}

/// An integer as a JSON number with all its digits.
#[derive(Debug)]
pub struct Integer;

impl Integer {
    /// For `#[serde(with)]`.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    pub fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        Digits(value).serialize(serializer)
    }
}

/// A list of integers, each with all its digits.
#[derive(Debug)]
pub struct Integers;

impl Integers {
    /// For `#[serde(with)]`.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(values: &Vec<U256>, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(Some(values.len()))?;
        for value in values {
            list.serialize_element(&Digits(value))?;
        }
        list.end()
    }
}

/// An object from text to integers, in key order.
#[derive(Debug)]
pub struct IntegersByKey;

impl IntegersByKey {
    /// For `#[serde(with)]`.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    pub fn serialize<K: Display, V: Display, S: Serializer>(
        values: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_map(Some(values.len()))?;
        for (key, value) in values {
            object.serialize_entry(&key.to_string(), &Digits(value))?;
        }
        object.end()
    }
}

/// An address with its EIP-55 checksum.
#[derive(Debug)]
pub struct Checksummed;

impl Checksummed {
    /// For `#[serde(with)]`.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(value: &Address, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&value.to_checksum(None))
    }
}

/// 32 bytes as `0x` and 64 hexadecimal digits.
#[derive(Debug)]
pub struct Hash;

impl Hash {
    /// For `#[serde(with)]`.
    ///
    /// # Errors
    ///
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(value: &B256, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format!("{value:#x}"))
    }
}
