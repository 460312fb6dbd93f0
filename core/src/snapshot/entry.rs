//! The name of a shard or segment: its range and its version.

use alloy_primitives::hex;

use super::wire::ByteReader;
use crate::index::{ShardRange, ShardVersion};

/// The name of a shard or segment in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShardEntry {
    /// Range of its wallets.
    pub range: ShardRange,
    /// Its version.
    pub version: ShardVersion,
}

impl ShardEntry {
    /// Formats its range as 14 hexadecimal digits: the first place, and the number of bits.
    pub fn range_text(&self) -> String {
        hex::encode(
            (self.range.start << 8 | u64::from(self.range.bits)).to_be_bytes().get(1..).unwrap_or_default(),
        )
    }

    /// Formats its version as 24 hexadecimal digits: the block, and the tag.
    pub fn version_text(&self) -> String {
        hex::encode([&self.version.block.to_be_bytes()[..], &self.version.tag.to_be_bytes()].concat())
    }

    /// Joins both texts to a name.
    pub fn name(&self) -> String {
        [self.range_text(), self.version_text()].join("-")
    }

    /// Parses both texts; `None` for anything else.
    pub fn parse(range: &str, version: &str) -> Option<Self> {
        let (range, version) = (hex::decode(range).ok()?, hex::decode(version).ok()?);
        let (mut range, mut version) = (ByteReader(&range), ByteReader(&version));
        let entry = Self {
            range: ShardRange { start: range.place().ok()?, bits: range.byte().ok()? },
            version: ShardVersion { block: version.u64().ok()?, tag: version.u32().ok()? },
        };
        (range.0.is_empty() && version.0.is_empty()).then_some(entry)
    }

    /// Parses a name; `None` for anything else.
    pub fn parse_name(name: &str) -> Option<Self> {
        let (range, version) = name.split_once('-')?;
        Self::parse(range, version)
    }
}
