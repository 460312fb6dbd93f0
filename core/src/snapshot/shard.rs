//! One shard or segment: a directory of wallets, sorted, and a record for each.

use std::collections::BTreeMap;

use alloy_primitives::Address;

use super::{
    Facts, Identity, ShardEntry, SnapshotError,
    wire::{self, ByteReader},
};
use crate::index::{ShardRange, ShardVersion, place};

const MAGIC: [u8; 4] = *b"KYAS";
/// Bytes before the directory.
const HEAD: usize = 4 + 1 + 1 + 6 + 8 + 4 + 4;
/// Bytes of a wallet in the directory.
const ENTRY: usize = 20 + 4;

/// A shard or segment, checked to be whole and the one that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    entry: ShardEntry,
    count: usize,
    bytes: Vec<u8>,
}

impl Shard {
    /// Encodes a shard with these wallets to bytes.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Format`] beyond 4 GiB.
    pub fn encode(
        identity: &Identity,
        ShardEntry { range, version }: ShardEntry,
        wallets: &BTreeMap<Address, Facts>,
    ) -> Result<Vec<u8>, SnapshotError> {
        let (mut directory, mut records) = (Vec::with_capacity(wallets.len() * ENTRY), Vec::new());
        let first = HEAD + wallets.len() * ENTRY;
        for (wallet, facts) in wallets {
            let offset = u32::try_from(first + records.len()).map_err(|_| SnapshotError::Format)?;
            directory.extend_from_slice(wallet.as_slice());
            directory.extend(offset.to_be_bytes());
            facts.encode(&mut records);
        }
        let count = u32::try_from(wallets.len()).map_err(|_| SnapshotError::Format)?;
        let mut bytes = Vec::with_capacity(first + records.len() + wire::SEAL);
        bytes.extend(MAGIC);
        bytes.extend([wire::FORMAT, range.bits]);
        bytes.extend(range.start.to_be_bytes().into_iter().skip(2));
        bytes.extend(version.block.to_be_bytes());
        bytes.extend(version.tag.to_be_bytes());
        bytes.extend(count.to_be_bytes());
        bytes.extend(directory);
        bytes.extend(records);
        Ok(wire::seal(identity, bytes))
    }

    /// Parses the bytes of the shard that a manifest names.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`], [`SnapshotError::Another`] for another shard or version.
    pub fn parse(bytes: Vec<u8>, identity: &Identity, entry: ShardEntry) -> Result<Self, SnapshotError> {
        let mut rest = ByteReader(&bytes);
        rest.begin(MAGIC)?;
        wire::unseal(identity, &bytes)?;
        Self::reopen(bytes, entry)?.in_order()
    }

    /// Parses the bytes of the widest segment, as a sealed manifest has them.
    pub(super) fn of_manifest(bytes: Vec<u8>) -> Result<Self, SnapshotError> {
        let segment = Self::open(bytes)?;
        match segment.entry.range == ShardRange::ALL {
            true => segment.in_order(),
            false => Err(SnapshotError::Damaged),
        }
    }

    fn in_order(self) -> Result<Self, SnapshotError> {
        let mut last = None;
        for index in 0..self.count {
            let (wallet, _) = self.at(index)?;
            if last.is_some_and(|last| last >= wallet) {
                return Err(SnapshotError::Damaged);
            }
            last = Some(wallet);
        }
        Ok(self)
    }

    /// Parses bytes that [`parse`](Self::parse) has accepted before: the seal and the wallets' order are not
    /// checked again.
    ///
    /// # Errors
    ///
    /// [`SnapshotError`], [`SnapshotError::Another`] for another shard or version.
    pub fn reopen(bytes: Vec<u8>, entry: ShardEntry) -> Result<Self, SnapshotError> {
        let shard = Self::open(bytes)?;
        if shard.entry == entry { Ok(shard) } else { Err(SnapshotError::Another) }
    }

    fn open(bytes: Vec<u8>) -> Result<Self, SnapshotError> {
        let content = bytes.len().checked_sub(wire::SEAL).and_then(|length| bytes.get(..length));
        let mut rest = ByteReader(content.ok_or(SnapshotError::Damaged)?);
        rest.begin(MAGIC)?;
        let bits = rest.byte()?;
        let range = ShardRange { start: rest.place()?, bits };
        let version = ShardVersion { block: rest.u64()?, tag: rest.u32()? };
        let entry = ShardEntry { range, version };
        let count = rest.u32()? as usize;
        rest.take(count.checked_mul(ENTRY).ok_or(SnapshotError::Damaged)?)?;
        Ok(Self { entry, count, bytes })
    }

    /// Returns its name in the manifest.
    pub const fn entry(&self) -> ShardEntry {
        self.entry
    }

    /// Returns the record of a wallet, found by binary search in the directory, or `None`.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Another`] for a wallet of another shard, [`SnapshotError::Damaged`].
    pub fn find(&self, wallet: Address) -> Result<Option<Facts>, SnapshotError> {
        self.find_at(place(wallet), wallet)
    }

    /// Searches like [`find`](Self::find) with the wallet's place, without the hash: most of a search's time.
    pub(super) fn find_at(&self, place: u64, wallet: Address) -> Result<Option<Facts>, SnapshotError> {
        if !self.entry.range.contains_place(place) {
            return Err(SnapshotError::Another);
        }
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            let (found, offset) = self.at(middle)?;
            match found.cmp(&wallet) {
                core::cmp::Ordering::Less => low = middle + 1,
                core::cmp::Ordering::Greater => high = middle,
                core::cmp::Ordering::Equal => return self.facts(offset).map(Some),
            }
        }
        Ok(None)
    }

    /// Returns all wallets of a range with their facts, by ascending wallet.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::Damaged`].
    pub fn wallets_of(&self, range: ShardRange) -> Result<Vec<(Address, Facts)>, SnapshotError> {
        let mut found = Vec::new();
        for index in 0..self.count {
            let (wallet, offset) = self.at(index)?;
            if range.contains(wallet) {
                found.push((wallet, self.facts(offset)?));
            }
        }
        Ok(found)
    }

    fn at(&self, index: usize) -> Result<(Address, usize), SnapshotError> {
        let mut entry = ByteReader(self.bytes.get(HEAD + index * ENTRY..).ok_or(SnapshotError::Damaged)?);
        Ok((entry.address()?, entry.u32()? as usize))
    }

    fn facts(&self, offset: usize) -> Result<Facts, SnapshotError> {
        let records = HEAD + self.count * ENTRY..self.bytes.len().saturating_sub(wire::SEAL);
        let record = self.bytes.get(offset..records.end).filter(|_| records.contains(&offset));
        let format = ByteReader(&self.bytes).begin(MAGIC)?;
        Facts::decode(&mut ByteReader(record.ok_or(SnapshotError::Damaged)?), format)
    }

    /// Returns its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns its size in memory.
    pub const fn size_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.capacity()
    }
}
