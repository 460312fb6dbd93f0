//! The finality of mined transactions.

use schemars::JsonSchema;
use serde::Serialize;
use strum::EnumString;

/// Blocks behind the newest one at which a block is safe where the chain has no such tag.
const SAFE_DEPTH: u64 = 32;
/// Blocks behind the newest one at which a block is final where the chain has no such tag.
const FINAL_DEPTH: u64 = 64;
/// Seconds that must also have passed since the daemon saw the transaction mined where the chain has no such
/// tag: a block may take a fraction of a second.
const SETTLED_SECONDS: u64 = 900;

/// The finality of a mined transaction, by the chain's block tags. Its block was compared with the chain's
/// for each step; a reorganisation takes back what is not final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema, EnumString)]
#[serde(rename_all = "camelCase")]
#[strum(serialize_all = "camelCase")]
pub enum Finality {
    /// The transaction is in a block, which a reorganisation may undo.
    Latest,
    /// The transaction is in or below the chain's `safe` block.
    Safe,
    /// The transaction is in or below the chain's `finalized` block.
    Finalized,
}

/// The numbers of the safe and the final block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeads {
    /// The highest safe block.
    pub safe: u64,
    /// The highest final block.
    pub finalized: u64,
    /// Seconds that must have passed since a transaction was seen mined.
    pub seconds: u64,
}

impl BlockHeads {
    /// Returns the heads by the chain's tags; by depth below `latest` where it does not know a tag.
    pub fn new(latest: u64, safe: Option<u64>, finalized: Option<u64>) -> Self {
        let seconds = if safe.is_some() && finalized.is_some() { 0 } else { SETTLED_SECONDS };
        let finalized = finalized.unwrap_or_else(|| latest.saturating_sub(FINAL_DEPTH)).min(latest);
        let safe = safe.unwrap_or_else(|| latest.saturating_sub(SAFE_DEPTH)).clamp(finalized, latest);
        Self { safe, finalized, seconds }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_chain_has_no_tags_depth_and_time_decide() {
        let heads = |latest, safe, finalized| {
            let BlockHeads { safe, finalized, seconds } = BlockHeads::new(latest, safe, finalized);
            (safe, finalized, seconds)
        };
        assert_eq!(heads(1_000, Some(990), Some(900)), (990, 900, 0));
        assert_eq!(heads(1_000, None, None), (968, 936, SETTLED_SECONDS));
        assert_eq!(heads(1_000, None, Some(980)), (980, 980, SETTLED_SECONDS));
        assert_eq!(heads(10, None, None), (0, 0, SETTLED_SECONDS));
        assert_eq!(heads(10, Some(0), Some(99)), (10, 10, 0));
    }
}
