//! The manifest: the block of the snapshot, the version of each shard and segment, and the latest changes.

use core::{borrow::Borrow, ops::RangeInclusive};
use std::collections::BTreeMap;

use alloy_primitives::{Address, B256};

use super::{
    Facts, Identity, Shard, ShardEntry, SnapshotError,
    wire::{self, ByteReader},
};
use crate::{
    eth::{as_of::AsOf, timestamp::Timestamp},
    index::{PLACE_BITS, SEGMENT_FAN_OUT_BITS, ShardRange, ShardVersion, place},
};

const MAGIC: [u8; 4] = *b"KYAM";
/// Minimum agents that share a range of the longest allowed prefix.
const SHARING: u64 = 30;
/// Maximum agents that share a range of a shorter prefix.
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
    /// Time up to which the snapshot lacks no change, in unix milliseconds.
    pub confirmed_at: u64,
    /// The number of agents.
    pub agents: u64,
    /// Height after which the registry's events were listed without a gap, up to the block.
    pub listed_after: Option<u64>,
    pub(super) shards: Vec<ShardEntry>,
    /// The segments but the widest, sorted by bits and then by place.
    pub(super) segments: Vec<ShardEntry>,
    /// The widest segment, with the latest changes.
    pub(super) recent: Option<Shard>,
}

impl Manifest {
    /// Creates a manifest of these shards without segments and listed events; the other parameters are the
    /// fields of the same names.
    pub const fn new(
        identity: Identity,
        as_of: AsOf,
        storage_root: B256,
        grace_seconds: u64,
        confirmed_at: u64,
        agents: u64,
        shards: Vec<ShardEntry>,
    ) -> Self {
        Self {
            identity,
            as_of,
            storage_root,
            grace_seconds,
            confirmed_at,
            agents,
            listed_after: None,
            shards,
            segments: Vec::new(),
            recent: None,
        }
    }

    /// Sets the segments, sorted by bits and then by place, and `recent` as the widest.
    #[must_use]
    pub fn with_segments(self, segments: Vec<ShardEntry>, recent: Option<Shard>) -> Self {
        Self { segments, recent, ..self }
    }

    /// Encodes it to bytes.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Format`] if a version is of a later block, or four billion blocks older.
    pub fn encode(&self) -> Result<Vec<u8>, SnapshotError> {
        let is_later = |recent: &Shard| recent.entry().version.block > self.as_of.block_number;
        if self.recent.as_ref().is_some_and(is_later) {
            return Err(SnapshotError::Format);
        }
        let recent = self.recent.as_ref().map_or(&[][..], Shard::as_bytes);
        let mut bytes =
            Vec::with_capacity(256 + self.shards.len() * 9 + self.segments.len() * 15 + recent.len());
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
        let put = |bytes: &mut Vec<u8>, ShardEntry { range, version }: &ShardEntry| {
            let age = self.as_of.block_number.checked_sub(version.block);
            let age = age.and_then(|age| u32::try_from(age).ok()).ok_or(SnapshotError::Format)?;
            bytes.push(range.bits);
            bytes.extend(age.to_be_bytes());
            bytes.extend(version.tag.to_be_bytes());
            Ok(())
        };
        self.shards.iter().try_for_each(|entry| put(&mut bytes, entry))?;
        let count = u32::try_from(self.segments.len()).map_err(|_| SnapshotError::Format)?;
        bytes.extend(count.to_be_bytes());
        for entry in &self.segments {
            bytes.extend(entry.range.start.to_be_bytes().into_iter().skip(2));
            put(&mut bytes, entry)?;
        }
        bytes.extend(recent);
        Ok(wire::seal(&self.identity, bytes))
    }

    /// Parses a manifest of any registry.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, SnapshotError> {
        let mut rest = ByteReader(bytes);
        let format = rest.begin(MAGIC)?;
        let identity = Identity { chain_id: rest.u64()?, registry: rest.address()? };
        let mut rest = ByteReader(wire::unseal(&identity, bytes)?);
        // Skips the fields that were read above.
        rest.take(4 + 1 + 8 + 20)?;
        let block_number = rest.u64()?;
        let (parent_hash, storage_root) = (B256::new(rest.array()?), B256::new(rest.array()?));
        let (time, grace_seconds, confirmed_at, agents) =
            (rest.u64()?, rest.u64()?, rest.u64()?, rest.u64()?);
        let listed_after = match format {
            wire::WITHOUT_LIABILITY => None,
            _ => Some(rest.u64()?).filter(|after| *after < u64::MAX),
        };
        let entry = |rest: &mut ByteReader<'_>, start| {
            let (bits, age, tag) = (rest.byte()?, u64::from(rest.u32()?), rest.u32()?);
            let block = block_number.checked_sub(age).ok_or(SnapshotError::Damaged)?;
            // A range begins at a multiple of its size, so that its wallets share its bits.
            match bits <= PLACE_BITS && start % (1 << (PLACE_BITS - bits)) == 0 {
                true => {
                    let range = ShardRange { start, bits };
                    Ok(ShardEntry { range, version: ShardVersion { block, tag } })
                }
                false => Err(SnapshotError::Damaged),
            }
        };
        let count = rest.count(9)?;
        let (mut shards, mut start) = (Vec::with_capacity(count), 0);
        for _ in 0..count {
            let shard = entry(&mut rest, start)?;
            start = shard.range.end();
            shards.push(shard);
        }
        if start != ShardRange::ALL.end() {
            return Err(SnapshotError::Damaged);
        }
        let (mut segments, mut recent) = (Vec::new(), None);
        if format > wire::WITHOUT_SEGMENTS {
            for _ in 0..rest.count(15)? {
                let start = rest.place()?;
                segments.push(entry(&mut rest, start)?);
            }
            recent = (!rest.0.is_empty()).then(|| Shard::of_manifest(rest.0.to_vec())).transpose()?;
            if recent.as_ref().is_some_and(|recent| recent.entry().version.block > block_number) {
                return Err(SnapshotError::Damaged);
            }
        } else if !rest.0.is_empty() {
            return Err(SnapshotError::Damaged);
        }
        let is_segment = |segment: &ShardEntry| {
            let bits = segment.range.bits;
            bits > 0 && bits.is_multiple_of(SEGMENT_FAN_OUT_BITS)
        };
        if !segments.is_sorted_by(|one, other| key(one) < key(other)) || !segments.iter().all(is_segment) {
            return Err(SnapshotError::Damaged);
        }
        let block_timestamp = Timestamp::from_seconds(time);
        let as_of = AsOf { block_number, block_timestamp, parent_hash };
        let manifest = Self::new(identity, as_of, storage_root, grace_seconds, confirmed_at, agents, shards);
        Ok(Self { listed_after, ..manifest.with_segments(segments, recent) })
    }

    /// Returns the shards, by their places.
    pub fn shards(&self) -> &[ShardEntry] {
        &self.shards
    }

    /// Returns the segments that are files of their own, and the shards.
    pub fn entries(&self) -> impl Iterator<Item = ShardEntry> {
        self.segments.iter().chain(&self.shards).copied()
    }

    /// Returns whether it names a shard or segment.
    pub fn names(&self, entry: ShardEntry) -> bool {
        self.shard_at(entry.range.start) == Some(entry) || self.segment(entry.range) == Some(entry)
    }

    /// Returns the shard of a wallet.
    pub fn shard_of(&self, wallet: Address) -> Option<ShardEntry> {
        self.shard_at(place(wallet))
    }

    fn shard_at(&self, place: u64) -> Option<ShardEntry> {
        let after = self.shards.partition_point(|shard| shard.range.start <= place);
        self.shards.get(after.checked_sub(1)?).copied()
    }

    fn segment(&self, range: ShardRange) -> Option<ShardEntry> {
        let key = (range.bits, range.start);
        let index = self.segments.binary_search_by_key(&key, self::key).ok()?;
        self.segments.get(index).copied()
    }

    /// Returns the files to search for a wallet, in this order: segments, the widest first, and its shard.
    /// Empty if the manifest itself holds the wallet.
    pub fn entries_of(&self, wallet: Address) -> Vec<ShardEntry> {
        let place = place(wallet);
        if !matches!(self.recent_at(place, wallet), Ok(None)) {
            return Vec::new();
        }
        self.entries_at(place).collect()
    }

    fn entries_at(&self, place: u64) -> impl Iterator<Item = ShardEntry> {
        let bits = (SEGMENT_FAN_OUT_BITS..PLACE_BITS).step_by(SEGMENT_FAN_OUT_BITS.into());
        let segments = bits.filter_map(move |bits| self.segment(ShardRange::of(place, bits)));
        segments.chain(self.shard_at(place))
    }

    /// Returns the files that hold wallets of a range: segments, the widest first, and shards.
    pub fn entries_in(&self, range: ShardRange) -> impl Iterator<Item = ShardEntry> {
        let segments = self.segments.iter().copied();
        segments.filter(move |segment| segment.range.overlaps(range)).chain(self.shards_of(range))
    }

    /// Returns the shards that hold wallets of a range.
    pub fn shards_of(&self, range: ShardRange) -> impl Iterator<Item = ShardEntry> {
        let first = self.shards.partition_point(|shard| shard.range.end() <= range.start);
        let of_range = self.shards.get(first..).unwrap_or_default().iter().copied();
        of_range.take_while(move |shard| shard.range.start < range.end())
    }

    /// Returns the facts of a wallet in the manifest itself, if it is among the latest changes.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Damaged`].
    pub fn recent(&self, wallet: Address) -> Result<Option<Facts>, SnapshotError> {
        self.recent_at(place(wallet), wallet)
    }

    fn recent_at(&self, place: u64, wallet: Address) -> Result<Option<Facts>, SnapshotError> {
        self.recent.as_ref().map_or(Ok(None), |recent| recent.find_at(place, wallet))
    }

    /// Returns the facts of a wallet by its [entries](Self::entries_of), which are among these files.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Another`] if an entry is not among them, [`SnapshotError::Damaged`].
    pub fn find(&self, files: &[&Shard], wallet: Address) -> Result<Facts, SnapshotError> {
        let of = |entry| files.iter().copied().find(|file| file.entry() == entry);
        self.look_up(wallet, |entry| of(entry).ok_or(SnapshotError::Another))
    }

    /// Returns the facts of a wallet. `file` gives the needed ones of its [entries](Self::entries_of), one
    /// after the other. A wallet that is in none is not registered: no agent has or had it.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Damaged`], and those of `file`.
    pub fn look_up<S: Borrow<Shard>, E: From<SnapshotError>>(
        &self,
        wallet: Address,
        mut file: impl FnMut(ShardEntry) -> Result<S, E>,
    ) -> Result<Facts, E> {
        let place = place(wallet);
        if let Some(facts) = self.recent_at(place, wallet)? {
            return Ok(facts);
        }
        for entry in self.entries_at(place) {
            if let Some(facts) = file(entry)?.borrow().find_at(place, wallet)? {
                return Ok(facts);
            }
        }
        Ok(Facts::Known { agent: None, former: Vec::new() })
    }

    /// Returns all wallets of a range with their facts, by its [entries](Self::entries_in) in `files`, the
    /// widest first.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Damaged`].
    pub fn wallets_of(
        &self,
        files: &[&Shard],
        range: ShardRange,
    ) -> Result<BTreeMap<Address, Facts>, SnapshotError> {
        let mut wallets = BTreeMap::new();
        for file in self.recent.iter().chain(files.iter().copied()) {
            for (wallet, facts) in file.wallets_of(range)? {
                wallets.entry(wallet).or_insert(facts);
            }
        }
        Ok(wallets)
    }

    /// Returns the allowed numbers of hexadecimal digits of a range's prefix: the most that thirty agents or
    /// more still share, and at least one. One less is allowed until a registry that has just outgrown it has
    /// doubled, so that an answer never holds more than some thousand verdicts.
    pub fn prefix_digits(&self) -> RangeInclusive<u8> {
        let most = prefix_digits_max(self.agents);
        let is_small = |digits: &u8| self.agents >> (4 * u32::from(*digits)) < RANGE_MAX;
        most.checked_sub(1).filter(|digits| *digits > 0 && is_small(digits)).unwrap_or(most)..=most
    }

    /// Returns its size in memory.
    pub fn size_bytes(&self) -> usize {
        let entries = self.shards.capacity() + self.segments.capacity();
        let recent = self.recent.as_ref().map_or(0, Shard::size_bytes);
        size_of::<Self>() + entries * size_of::<ShardEntry>() + recent
    }
}

const fn key(segment: &ShardEntry) -> (u8, u64) {
    (segment.range.bits, segment.range.start)
}

/// Returns the maximum hexadecimal digits of a range's prefix in a registry of this number of agents.
pub fn prefix_digits_max(agents: u64) -> u8 {
    let is_shared = |digits: &u8| agents >> (4 * u32::from(*digits)) >= SHARING;
    (1..=PREFIX_DIGITS_MAX).rev().find(is_shared).unwrap_or(1)
}
