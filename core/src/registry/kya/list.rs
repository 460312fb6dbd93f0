//! Verdicts on many wallets at once, all at one block.

use alloy_primitives::Address;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;

use super::Kya;
use crate::{
    eth::address::{self, AddressError},
    registry::error_code::Code,
};

/// Characters of a malformed wallet that an answer repeats.
const SHOWN: usize = 64;

/// One of the wallets of a list, as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asked {
    /// A wallet.
    Wallet(Address),
    /// Something else; its first characters.
    Malformed {
        /// What it is instead.
        text: String,
        /// The rule it breaks.
        error: AddressError,
    },
}

impl Asked {
    /// Reads a wallet, whatever the text is.
    pub fn parse(text: &str) -> Self {
        match address::parse(text) {
            Ok(wallet) => Self::Wallet(wallet),
            Err(error) => Self::Malformed { text: text.chars().take(SHOWN).collect(), error },
        }
    }

    /// Whether it is a wallet.
    pub const fn is_wallet(&self) -> bool {
        matches!(self, Self::Wallet(_))
    }

    /// The wallet as a part of a path that is read as the same.
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
    /// How many wallets were asked for.
    pub total: usize,
    /// What each comes to, in the order asked.
    pub data: Vec<KyaItem>,
}

/// What one wallet of a list comes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum KyaItem {
    /// The same verdict that `/kya/:wallet` gives.
    Verdict(Box<Kya>),
    /// There is none, and why.
    Failed(KyaFailure),
}

/// Why there is no verdict on one wallet of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct KyaFailure {
    /// The wallet as it was asked for; of something longer than a wallet, the first 64 characters.
    pub wallet: String,
    /// What is wrong, in words that may change.
    pub error: String,
    /// What is wrong, to a program.
    #[cfg_attr(feature = "schema", schemars(with = "Code"))]
    pub code: &'static str,
}

impl From<Vec<KyaItem>> for KyaList {
    fn from(data: Vec<KyaItem>) -> Self {
        Self { total: data.len(), data }
    }
}

impl KyaItem {
    /// Why there is no verdict on a wallet, as it was asked for.
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
            let asked = Asked::parse(&text);
            if let Asked::Malformed { text, .. } = &asked {
                prop_assert!(text.chars().count() <= SHOWN);
            }
            let segment = asked.path_segment();
            prop_assert!(segment.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'%'));
            let decoded = percent_encoding::percent_decode_str(&segment).decode_utf8().unwrap().into_owned();
            prop_assert_eq!(Asked::parse(&decoded), asked);
        }
    }
}
