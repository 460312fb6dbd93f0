//! Verdicts on many wallets at once, all at one block.

use alloy_primitives::Address;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::Kya;
use crate::{
    eth::address::{self, AddressError},
    registry::error_code::Code,
};

/// The most characters of a malformed wallet that an answer repeats.
const SHOWN: usize = 64;

/// One entry of a requested list of wallets.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum WalletInput {
    /// A wallet.
    Wallet(Address),
    /// Not a wallet.
    Malformed {
        /// Its first characters.
        text: String,
        /// The rule that it breaks.
        error: AddressError,
    },
}

impl WalletInput {
    /// Parses an entry; any text is one.
    pub fn parse(text: &str) -> Self {
        match address::parse(text) {
            Ok(wallet) => Self::Wallet(wallet),
            Err(error) => Self::Malformed { text: text.chars().take(SHOWN).collect(), error },
        }
    }

    /// Returns whether it is a wallet.
    pub const fn is_wallet(&self) -> bool {
        matches!(self, Self::Wallet(_))
    }

    /// Returns the entry as a path segment, which parses as the same entry.
    pub(crate) fn path_segment(&self) -> String {
        match self {
            Self::Wallet(wallet) => wallet.to_checksum(None),
            Self::Malformed { text, .. } => utf8_percent_encode(text, NON_ALPHANUMERIC).to_string(),
        }
    }
}

/// The answer of `/kya/:wallet,:wallet...` and of `POST /kya`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KyaList {
    /// Number of entries in the list.
    pub total: usize,
    /// The result of each entry, in the order of the request.
    pub data: Vec<KyaItem>,
}

/// The result of one entry of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum KyaItem {
    /// The verdict, as in `/kya/:wallet`.
    Verdict(Box<Kya>),
    /// The reason that there is no verdict.
    Failed(KyaFailure),
}

/// The reason that one entry of a list has no verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KyaFailure {
    /// The entry as requested, cut to 64 characters if it is not a wallet.
    pub wallet: String,
    /// The error message, which may change.
    pub error: String,
    /// The stable error code.
    #[cfg_attr(feature = "schema", schemars(with = "Code"))]
    pub code: &'static str,
}

impl From<Vec<KyaItem>> for KyaList {
    fn from(data: Vec<KyaItem>) -> Self {
        Self { total: data.len(), data }
    }
}

impl KyaItem {
    /// Makes the result of an entry without a verdict.
    pub(crate) fn failed(wallet: String, code: Code, error: String) -> Self {
        Self::Failed(KyaFailure { wallet, error, code: code.name() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn whatever_is_asked_for_is_kept_short_and_survives_a_path(text in "\\PC{0,100}") {
            let input = WalletInput::parse(&text);
            if let WalletInput::Malformed { text, .. } = &input {
                prop_assert!(text.chars().count() <= SHOWN);
            }
            let segment = input.path_segment();
            prop_assert!(segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'%'));
            let decoded = percent_encoding::percent_decode_str(&segment).decode_utf8().unwrap().into_owned();
            prop_assert_eq!(WalletInput::parse(&decoded), input);
        }
    }
}
