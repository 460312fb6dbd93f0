//! Which block an answer is of.

use alloy_primitives::B256;
use serde::Serialize;

use crate::{json, timestamp::Timestamp};

/// The block an answer was read at. A block does not know its own hash inside a call, so its parent's hash stands for it:
/// whoever has the header of `blockNumber` compares its `parentHash`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
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
