//! How evidence writes Ethereum's values as JSON, and reads them back: each value has one spelling, and any other is refused. So a
//! document cannot be changed in a byte and still be the same document.

use alloy_primitives::{Address, B256, Bytes, U256, hex};
use serde::Serializer;

use crate::eth::address;

/// A type with one spelling.
pub(super) trait Spelled: Default {
    /// What it has to look like, in words.
    const RULE: &'static str;

    fn spell(&self) -> String;

    /// Reads it however it is spelled.
    fn read(text: &str) -> Option<Self>;
}

impl Spelled for Address {
    const RULE: &'static str = "must be an address with its EIP-55 checksum";

    fn spell(&self) -> String {
        self.to_checksum(None)
    }

    fn read(text: &str) -> Option<Self> {
        address::parse(text).ok()
    }
}

impl Spelled for B256 {
    const RULE: &'static str = "must be 0x and 64 hexadecimal digits in lower case";

    fn spell(&self) -> String {
        format!("{self:#x}")
    }

    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

impl Spelled for Bytes {
    const RULE: &'static str = "must be 0x and pairs of hexadecimal digits in lower case";

    fn spell(&self) -> String {
        hex::encode_prefixed(self)
    }

    fn read(text: &str) -> Option<Self> {
        hex::decode(text.strip_prefix("0x")?).ok().map(Self::from)
    }
}

impl Spelled for U256 {
    const RULE: &'static str =
        "must be 0x and a number in hexadecimal digits in lower case, without leading zeros";

    fn spell(&self) -> String {
        format!("{self:#x}")
    }

    fn read(text: &str) -> Option<Self> {
        Self::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    }
}

impl Spelled for u64 {
    const RULE: &'static str = U256::RULE;

    fn spell(&self) -> String {
        format!("{self:#x}")
    }

    fn read(text: &str) -> Option<Self> {
        Self::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    }
}

/// For `#[serde(serialize_with)]`.
pub(super) fn text<T: Spelled, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&value.spell())
}

/// For `#[serde(serialize_with)]` of what may be absent.
pub(super) fn optional<T: Spelled, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match value {
        Some(value) => text(value, serializer),
        None => serializer.serialize_none(),
    }
}
