//! The manifest: of which block the snapshot is, and the version of each shard.

use core::ops::RangeInclusive;

use alloy_primitives::{Address, B256, hex};

use super::{
    Identity, SnapshotError,
    wire::{self, Bytes},
};
use crate::{
    eth::{as_of::AsOf, timestamp::Timestamp},
    index::{PLACE_BITS, ShardRange, ShardVersion, place},
};

const MAGIC: [u8; 4] = *b"KYAM";
/// Agents that share a range of the longest allowed prefix, at least.
const SHARING: u64 = 30;
/// Agents that share a range of a shorter prefix, at most.
const RANGE_MAX: u64 = 2 * 16 * SHARING;
/// The longest prefix of a range in hexadecimal digits.
const PREFIX_DIGITS_MAX: u8 = 6;

/// A manifest. Its shards hold all places, each once, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// The registry.
    pub identity: Identity,
    /// The block of the snapshot.
    pub as_of: AsOf,
    /// The root of the registry's storage at that block.
    pub storage_root: B256,
    /// The registry's grace period in seconds.
    pub grace_seconds: u64,
    /// Up to when the snapshot lacks no change, unix milliseconds.
    pub confirmed_at: u64,
    /// The number of agents.
    pub agents: u64,
    /// The height after which the registry's events were listed without a gap, up to the block.
    pub listed_after: Option<u64>,
    pub(super) shards: Vec<ShardEntry>,
}

/// A shard, as a manifest names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ShardEntry {
    /// Its wallets.
    pub range: ShardRange,
    /// Its version.
    pub version: ShardVersion,
}

impl ShardEntry {
    /// Its range as 14 hexadecimal digits: the first place, and the number of bits.
    pub fn range_text(&self) -> String {
        hex::encode(
            (self.range.start << 8 | u64::from(self.range.bits)).to_be_bytes().get(1..).unwrap_or_default(),
        )
    }

    /// Its version as 24 hexadecimal digits: the block, and the tag.
    pub fn version_text(&self) -> String {
        hex::encode([&self.version.block.to_be_bytes()[..], &self.version.tag.to_be_bytes()].concat())
    }

    /// Both texts, as a name.
    pub fn name(&self) -> String {
        [self.range_text(), self.version_text()].join("-")
    }

    /// Reads both texts; `None` for anything else.
    pub fn parse(range: &str, version: &str) -> Option<Self> {
        let (range, version) = (hex::decode(range).ok()?, hex::decode(version).ok()?);
        let (mut range, mut version) = (Bytes(&range), Bytes(&version));
        let entry = Self {
            range: ShardRange { start: range.place().ok()?, bits: range.byte().ok()? },
            version: ShardVersion { block: version.u64().ok()?, tag: version.u32().ok()? },
        };
        (range.0.is_empty() && version.0.is_empty()).then_some(entry)
    }

    /// Reads a name; `None` for anything else.
    pub fn parse_name(name: &str) -> Option<Self> {
        let (range, version) = name.split_once('-')?;
        Self::parse(range, version)
    }
}

impl Manifest {
    /// A manifest of these shards without listed events; the other parameters are the fields of the same
    /// names.
    pub const fn new(
        identity: Identity,
        as_of: AsOf,
        storage_root: B256,
        grace_seconds: u64,
        confirmed_at: u64,
        agents: u64,
        shards: Vec<ShardEntry>,
    ) -> Self {
        let listed_after = None;
        Self { identity, as_of, storage_root, grace_seconds, confirmed_at, agents, listed_after, shards }
    }

    /// Its bytes.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Format`] where a shard's version does not fit: it is of a later block, or four
    /// billion blocks older.
    pub fn encode(&self) -> Result<Vec<u8>, SnapshotError> {
        let mut bytes = Vec::with_capacity(192 + self.shards.len() * 9);
        bytes.extend(MAGIC);
        bytes.push(wire::FORMAT);
        bytes.extend(self.identity.chain_id.to_be_bytes());
        bytes.extend(self.identity.registry);
        bytes.extend(self.as_of.block_number.to_be_bytes());
        bytes.extend(self.as_of.parent_hash);
        bytes.extend(self.storage_root);
        let time = self.as_of.block_timestamp.seconds();
        let listed_after = self.listed_after.unwrap_or(u64::MAX);
        for number in [time, self.grace_seconds, self.confirmed_at, self.agents, listed_after] {
            bytes.extend(number.to_be_bytes());
        }
        let count = u32::try_from(self.shards.len()).map_err(|_| SnapshotError::Format)?;
        bytes.extend(count.to_be_bytes());
        for ShardEntry { range, version } in &self.shards {
            let age = self.as_of.block_number.checked_sub(version.block);
            let age = age.and_then(|age| u32::try_from(age).ok()).ok_or(SnapshotError::Format)?;
            bytes.push(range.bits);
            bytes.extend(age.to_be_bytes());
            bytes.extend(version.tag.to_be_bytes());
        }
        Ok(wire::seal(&self.identity, bytes))
    }

    /// Reads a manifest of any registry.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut rest = Bytes(bytes);
        let format = rest.begin(MAGIC)?;
        let identity = Identity { chain_id: rest.u64()?, registry: rest.address()? };
        let mut rest = Bytes(wire::unseal(&identity, bytes)?);
        // What was read above.
        rest.take(4 + 1 + 8 + 20)?;
        let block_number = rest.u64()?;
        let (parent_hash, storage_root) = (B256::new(rest.array()?), B256::new(rest.array()?));
        let (time, grace_seconds, confirmed_at, agents) =
            (rest.u64()?, rest.u64()?, rest.u64()?, rest.u64()?);
        let listed_after = match format {
            wire::WITHOUT_LIABILITY => None,
            _ => Some(rest.u64()?).filter(|after| *after < u64::MAX),
        };
        let count = rest.u32()? as usize;
        if rest.0.len() != count.checked_mul(9).ok_or(SnapshotError::Damaged)? {
            return Err(SnapshotError::Damaged);
        }
        let (mut shards, mut start) = (Vec::with_capacity(count), 0);
        for _ in 0..count {
            let (bits, age, tag) = (rest.byte()?, u64::from(rest.u32()?), rest.u32()?);
            let block = block_number.checked_sub(age).ok_or(SnapshotError::Damaged)?;
            let range = ShardRange { start, bits };
            // A shard begins where its own size allows, so that its wallets share its bits.
            if bits > PLACE_BITS || start % (1 << (PLACE_BITS - bits)) != 0 {
                return Err(SnapshotError::Damaged);
            }
            start = range.end();
            shards.push(ShardEntry { range, version: ShardVersion { block, tag } });
        }
        if start != ShardRange::ALL.end() {
            return Err(SnapshotError::Damaged);
        }
        let block_timestamp = Timestamp::from_seconds(time);
        let as_of = AsOf { block_number, block_timestamp, parent_hash };
        Ok(Self { identity, as_of, storage_root, grace_seconds, confirmed_at, agents, listed_after, shards })
    }

    /// The shards, by their places.
    pub fn shards(&self) -> &[ShardEntry] {
        &self.shards
    }

    /// The shard of a wallet.
    pub fn shard_of(&self, wallet: Address) -> Option<ShardEntry> {
        self.shard_at(place(wallet))
    }

    fn shard_at(&self, place: u64) -> Option<ShardEntry> {
        let after = self.shards.partition_point(|shard| shard.range.start <= place);
        self.shards.get(after.checked_sub(1)?).copied()
    }

    /// The shards that hold wallets of a range.
    pub fn shards_of(&self, range: ShardRange) -> impl Iterator<Item = ShardEntry> {
        let first = self.shards.partition_point(|shard| shard.range.end() <= range.start);
        let of_range = self.shards.get(first..).unwrap_or_default().iter().copied();
        of_range.take_while(move |shard| shard.range.start < range.end())
    }

    /// How many hexadecimal digits the prefix of a range may have: so many that thirty agents or more share
    /// it, at least one. One less is allowed until a registry that has just outgrown it has doubled, so that
    /// an answer never holds more than some thousand verdicts.
    pub fn prefix_digits(&self) -> RangeInclusive<u8> {
        let most = prefix_digits_max(self.agents);
        let is_small = |digits: &u8| self.agents >> (4 * u32::from(*digits)) < RANGE_MAX;
        most.checked_sub(1).filter(|digits| *digits > 0 && is_small(digits)).unwrap_or(most)..=most
    }

    /// What it takes in memory.
    pub fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.shards.capacity() * size_of::<ShardEntry>()
    }
}

/// How many hexadecimal digits the prefix of a range may have in a registry of so many agents.
pub fn prefix_digits_max(agents: u64) -> u8 {
    let is_shared = |digits: &u8| agents >> (4 * u32::from(*digits)) >= SHARING;
    (1..=PREFIX_DIGITS_MAX).rev().find(is_shared).unwrap_or(1)
}
