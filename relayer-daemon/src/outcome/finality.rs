//! How final a mined transaction is.

use schemars::JsonSchema;
use serde::Serialize;

/// How far behind the newest block a block is safe where the chain has no such tag.
const SAFE_DEPTH: u64 = 32;
/// The same for a final one.
const FINAL_DEPTH: u64 = 64;

/// How final a mined transaction is, by the chain's block tags. Its block was compared with the chain's for
/// each step; a reorganisation takes back what is not final.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Finality {
    /// In a block, which a reorganisation may undo.
    Latest,
    /// In or below the chain's `safe` block.
    Safe,
    /// In or below the chain's `finalized` block.
    Finalized,
}

/// The numbers of the newest, the safe and the final block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeads {
    /// The highest safe block.
    pub safe: u64,
    /// The highest final block.
    pub finalized: u64,
}

impl BlockHeads {
    /// The heads by the chain's tags; by depth below `latest` where it does not know a tag.
    pub fn new(latest: u64, safe: Option<u64>, finalized: Option<u64>) -> Self {
        let finalized = finalized.unwrap_or_else(|| latest.saturating_sub(FINAL_DEPTH)).min(latest);
        let safe = safe.unwrap_or_else(|| latest.saturating_sub(SAFE_DEPTH)).clamp(finalized, latest);
        Self { safe, finalized }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_the_chain_has_no_tags_depth_decides() {
        assert_eq!(BlockHeads::new(1_000, Some(990), Some(900)), BlockHeads { safe: 990, finalized: 900 });
        assert_eq!(BlockHeads::new(1_000, None, None), BlockHeads { safe: 968, finalized: 936 });
        assert_eq!(BlockHeads::new(1_000, None, Some(980)), BlockHeads { safe: 980, finalized: 980 });
        assert_eq!(BlockHeads::new(10, None, None), BlockHeads { safe: 0, finalized: 0 });
        assert_eq!(BlockHeads::new(10, Some(0), Some(99)), BlockHeads { safe: 10, finalized: 10 });
    }
}
