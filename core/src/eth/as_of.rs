//! The block that an answer was read at, and the block that a request names.

use core::fmt;

use alloy_primitives::B256;
use serde::{Deserialize, Serialize};

use crate::{eth::json, eth::timestamp::Timestamp};

/// The block an answer was read at. Calls cannot read the hash of their own block, so `parentHash` identifies
/// it: compare it with the header of `blockNumber`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AsOf {
    /// The block's number.
    pub block_number: u64,
    /// The block's timestamp.
    pub block_timestamp: Timestamp,
    /// The hash of the block before it.
    #[serde(with = "json::Hash")]
    pub parent_hash: B256,
}

/// The block of an answer from the registry's index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct IndexedAt {
    /// The block's number.
    pub block_number: u64,
    /// The block's timestamp.
    pub block_timestamp: Timestamp,
}

impl From<AsOf> for IndexedAt {
    fn from(AsOf { block_number, block_timestamp, .. }: AsOf) -> Self {
        Self { block_number, block_timestamp }
    }
}

/// The block that a request names. Without one the newest block is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BlockId {
    /// A block number.
    Number(u64),
    /// The hash of a canonical block (EIP-1898).
    Hash(B256),
}

impl BlockId {
    /// The rule of [`parse`](Self::parse).
    pub const RULE: &str = "must be a block's number, or its hash: 0x followed by 64 hexadecimal digits";

    /// Reads decimal digits, or `0x` and 64 hexadecimal digits; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(digits) = text.strip_prefix("0x") {
            let is_hash = digits.len() == 64 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            return text.parse().ok().filter(|_| is_hash).map(Self::Hash);
        }
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_number).map(Self::Number)
    }
}

impl fmt::Display for BlockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Hash(hash) => write!(f, "{hash:#x}"),
        }
    }
}
