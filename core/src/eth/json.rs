//! JSON encodings of Ethereum's values in the API, one type per kind, for `#[serde(with)]`. Their JSON
//! Schemas are in `schema`.
//!
//! Numbers keep all their digits: a `uint256` is a JSON number of any size, never a rounded float.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{Display, LowerHex};

use alloy_primitives::{Address, B256, Bytes, U256, hex};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer, de,
    ser::{Error, SerializeMap},
};
use serde_json::value::RawValue;

use super::address;

/// Implements `Serialize` by `Display`.
macro_rules! serialize_as_text {
    ($type:ty) => {
        impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}
pub(crate) use serialize_as_text;

/// Returns whether a value is false, for `#[serde(skip_serializing_if)]`.
#[allow(clippy::trivially_copy_pass_by_ref)] // serde's signature
pub(crate) const fn is_false(value: &bool) -> bool {
    !*value
}

/// Returns the JSON text of a value that always serializes: strings, numbers, and maps with string keys.
pub(crate) fn text(shape: &impl Serialize, size_hint: usize) -> String {
    let mut body = Vec::with_capacity(size_hint);
    let written = serde_json::to_writer(&mut body, shape);
    written.ok().and_then(|()| String::from_utf8(body).ok()).unwrap_or_default()
}

/// A non-negative integer of any width, with all its digits.
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
    /// Serializes for `#[serde(with)]`. The errors are those of the serializer.
    pub fn serialize<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        Digits(value).serialize(serializer)
    }
}

/// An [`Integer`] that may be absent.
#[derive(Debug)]
pub struct OptionalInteger;

impl OptionalInteger {
    pub(crate) fn serialize<T: Display, S: Serializer>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(Digits).serialize(serializer)
    }
}

/// A list of integers, each with all its digits.
#[derive(Debug)]
pub struct Integers;

impl Integers {
    pub(crate) fn serialize<S: Serializer>(values: &[U256], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(Digits))
    }
}

/// Integers by key, as a JSON object; keys are written as strings, values with all their digits.
#[derive(Debug)]
pub struct IntegersByKey;

impl IntegersByKey {
    pub(crate) fn serialize<K: Display, V: Display, S: Serializer>(
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
    /// Serializes for `#[serde(with)]`. The errors are those of the serializer.
    pub fn serialize<S: Serializer>(value: &Address, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&value.to_checksum(None))
    }

    /// Deserializes for `#[serde(with)]` what [`address::parse`] reads.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        address::parse(&text).map_err(|error| de::Error::custom(error.rule()))
    }
}

/// A [`Checksummed`] address that may be absent.
pub(crate) struct OptionalChecksummed;

impl OptionalChecksummed {
    pub(crate) fn serialize<S: Serializer>(
        value: &Option<Address>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.map(|address| address.to_checksum(None)).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Address>, D::Error> {
        Checksummed::deserialize(deserializer).map(Some)
    }
}

/// 32 bytes as `0x` and 64 hexadecimal digits.
#[derive(Debug)]
pub struct Hash;

impl Hash {
    /// Serializes for `#[serde(with)]`. The errors are those of the serializer.
    pub fn serialize<S: Serializer>(value: &B256, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{value:#x}"))
    }

    /// Deserializes for `#[serde(with)]`.
    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<B256, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let digits = text.strip_prefix("0x").filter(|digits| digits.len() == 64);
        let parsed = digits.and_then(|digits| digits.parse().ok());
        parsed.ok_or_else(|| de::Error::custom("must be 0x and 64 hex digits"))
    }
}

/// A [`Hash`] that may be absent.
pub(crate) struct OptionalHash;

impl OptionalHash {
    pub(crate) fn serialize<S: Serializer>(value: &Option<B256>, serializer: S) -> Result<S::Ok, S::Error> {
        value.map(|hash| format!("{hash:#x}")).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<B256>, D::Error> {
        Hash::deserialize(deserializer).map(Some)
    }
}

/// Bytes as `0x` and pairs of hexadecimal digits, as JSON-RPC writes them.
pub(crate) struct Data;

impl Data {
    pub(crate) fn serialize<S: Serializer>(value: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&hex::encode_prefixed(value))
    }
}

/// A list of [`Data`].
pub(crate) struct DataList;

impl DataList {
    pub(crate) fn serialize<S: Serializer>(values: &[Bytes], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(values.iter().map(hex::encode_prefixed))
    }
}

/// A number in hexadecimal digits without leading zeros, as JSON-RPC writes it.
pub(crate) struct Quantity;

impl Quantity {
    pub(crate) fn serialize<T: LowerHex, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{value:#x}"))
    }
}
