//! The wallets of a shard, and its version.

use alloy_primitives::{Address, B256, Keccak256, keccak256};

/// Bits of a wallet's place.
pub(crate) const PLACE_BITS: u8 = 48;

/// Returns the place of a wallet among the shards: the first 48 bits of its Keccak-256, which fit a
/// JavaScript number.
pub(crate) fn place(wallet: Address) -> u64 {
    keccak256(wallet).iter().take(6).fold(0, |place, byte| place << 8 | u64::from(*byte))
}

/// A range of places: those that begin with certain bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShardRange {
    /// The first place.
    pub start: u64,
    /// Number of leading bits that all places share, at most 48.
    pub bits: u8,
}

impl ShardRange {
    /// The range of all places.
    pub const ALL: Self = Self { start: 0, bits: 0 };

    /// Returns the range with this number of bits that holds a place.
    pub(crate) const fn of(place: u64, bits: u8) -> Self {
        let below = PLACE_BITS.saturating_sub(bits);
        Self { start: place >> below << below, bits }
    }

    /// Returns the place after the last one.
    pub const fn end(self) -> u64 {
        self.start.saturating_add(1 << PLACE_BITS.saturating_sub(self.bits))
    }

    /// Returns whether a wallet belongs to it.
    pub fn contains(self, wallet: Address) -> bool {
        self.contains_place(place(wallet))
    }

    /// Returns whether it shares places with another range.
    pub(crate) const fn overlaps(self, other: Self) -> bool {
        self.start < other.end() && other.start < self.end()
    }

    /// Returns whether a place belongs to it.
    pub(crate) const fn contains_place(self, place: u64) -> bool {
        self.start <= place && place < self.end()
    }
}

/// The version of a shard or segment: the block at which it was last made anew. In one version, each wallet
/// has one content, or is superseded by a wider segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShardVersion {
    /// Height of the block.
    pub block: u64,
    /// Distinguishes contents of one height: a part of the hash of the block and of the time of the write.
    pub tag: u32,
}

impl ShardVersion {
    /// Creates the version of a write at `now_millis` (unix milliseconds), as of a block.
    pub(super) fn new(block: u64, hash: B256, now_millis: u64) -> Self {
        let mut hasher = Keccak256::new();
        hasher.update(hash);
        hasher.update(now_millis.to_be_bytes());
        let [first, second, third, fourth, ..] = hasher.finalize().0;
        Self { block, tag: u32::from_be_bytes([first, second, third, fourth]) }
    }
}
