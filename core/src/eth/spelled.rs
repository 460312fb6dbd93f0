//! The one spelling that each of Ethereum's values has in a strict document (evidence, acceptances): any
//! other is refused, so a document with a changed byte is another document.

use alloy_primitives::{Address, B256, Bytes, U256, hex};
use serde::{Serialize as _, Serializer};

use super::address;

/// Returns the digits after `0x`. Nodes' own values may have `0X`.
pub(crate) fn hex_digits(text: &str) -> Option<&str> {
    text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))
}

/// Parses a JSON-RPC quantity.
pub(crate) fn quantity(text: &str) -> Option<u64> {
    u64::from_str_radix(hex_digits(text)?, 16).ok()
}

/// A type with one spelling.
pub(crate) trait Spelled: Default {
    /// The rule of the spelling, as errors state it.
    const RULE: &'static str;

    fn spell(&self) -> String;

    /// Reads a value in any spelling.
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
        hex::decode(hex_digits(text)?).ok().map(Self::from)
    }
}

macro_rules! spelled_quantity {
    ($($type:ty),*) => {$(
        impl Spelled for $type {
            const RULE: &'static str =
                "must be 0x and a number in hexadecimal digits in lower case, without leading zeros";

            fn spell(&self) -> String {
                format!("{self:#x}")
            }

            fn read(text: &str) -> Option<Self> {
                Self::from_str_radix(hex_digits(text)?, 16).ok()
            }
        }
    )*};
}
spelled_quantity!(U256, u64);

/// Serializes an optional value, for `#[serde(serialize_with)]`.
pub(crate) fn optional<T: Spelled, S: Serializer>(
    value: &Option<T>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.as_ref().map(Spelled::spell).serialize(serializer)
}
