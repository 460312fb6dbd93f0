//! The shards on disk, read one at a time, and the segments, which are files of the same format.
//!
//! A lookup reads one shard of some 32 KiB from the file, and before it up to two or three segments, with
//! positioned reads: the system's page cache holds what is read often, and the process holds only where each
//! one lies. A mapped file would save the copy, but takes `unsafe`, and another process that cut the file
//! would end this one.

use std::{
    collections::{HashMap, HashSet},
    fs::{File, TryLockError},
    hash::{BuildHasher as _, RandomState},
    mem,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use alloy_primitives::Address;
use registry_core::snapshot::{Facts, Identity, Manifest, Shard, ShardEntry, ShardRange, SnapshotError};

use crate::{
    error::Error,
    head::HeadFile,
    moment::Moment,
    space::{Extent, Space},
};

/// The registry on disk.
#[derive(Debug)]
pub(crate) struct Holding {
    identity: Identity,
    data: File,
    head: PathBuf,
    held: RwLock<HeldRegistry>,
    hasher: RandomState,
}

/// The content of the files. A lookup keeps it locked while it reads: places of shards that it no longer
/// names are written over only after all such lookups have ended.
#[derive(Debug, Default)]
struct HeldRegistry {
    current: Option<CurrentManifest>,
    /// Shards of the current manifest, and of a newer one that is being fetched.
    shards: HashMap<ShardEntry, ShardSlot>,
    /// The places of shards that the disk has lost. The file names them until the next manifest is written.
    lost: Vec<Extent>,
}

/// The manifest that lookups use.
#[derive(Debug)]
pub(crate) struct CurrentManifest {
    pub(crate) manifest: Manifest,
    /// Time of receipt, unix milliseconds.
    fetched_at: u64,
    /// Moment of receipt, or of opening the file if another process fetched it; `None` if this computer's
    /// clock was behind the receipt then: how much time had passed is not known.
    anchor: Option<Moment>,
}

/// The place of a shard.
#[derive(Debug)]
struct ShardSlot {
    extent: Extent,
    /// Hash of its bytes from when this process checked their seal. The disk is not trusted later, either.
    checked: OnceLock<u64>,
}

impl CurrentManifest {
    /// Returns the time in unix milliseconds: by this computer's clock, or by the time passed since the
    /// receipt or the opening where that is later. `None` if the clock was set back before the opening.
    pub(crate) fn time(&self, clock: u64) -> Option<u64> {
        self.anchor.map(|anchor| anchor.time(clock))
    }

    /// Returns the age at a [time](Self::time). The API's clock is not trusted beyond the time of receipt.
    pub(crate) fn age(&self, time: u64) -> Duration {
        let confirmed = self.manifest.confirmed_at.min(self.fetched_at);
        Duration::from_millis(time.saturating_sub(confirmed))
    }
}

impl Holding {
    /// Opens the files, or makes them, at the moment `opened`, and finds the space between the shards. Files
    /// of another registry, or damaged ones, are begun anew.
    pub(crate) fn open(path: &Path, identity: Identity, opened: Moment) -> Result<(Self, Space), Error> {
        let data = File::options().read(true).write(true).create(true).truncate(false).open(path)?;
        data.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => Error::InUse,
            TryLockError::Error(error) => Error::File(error),
        })?;
        let mut head = path.as_os_str().to_owned();
        head.push(".head");
        let head = PathBuf::from(head);
        let found = HeadFile::read(&head)?.unwrap_or_default();
        let is_own = |(manifest, _): &(Manifest, u64)| manifest.identity == identity;
        let extents = found.shards.iter().map(|(_, extent)| *extent);
        let (found, space) = match Space::around(extents) {
            Some(space) if found.manifest.as_ref().is_none_or(is_own) => (found, space),
            _ => Default::default(),
        };
        let slot = |(entry, extent)| (entry, ShardSlot { extent, checked: OnceLock::new() });
        let current = found.manifest.map(|(manifest, fetched_at)| {
            let anchor = (opened.clock >= fetched_at).then_some(opened);
            CurrentManifest { manifest, fetched_at, anchor }
        });
        let held =
            HeldRegistry { current, shards: found.shards.into_iter().map(slot).collect(), lost: Vec::new() };
        Ok((Self { identity, data, head, held: RwLock::new(held), hasher: RandomState::new() }, space))
    }

    /// Looks up a wallet in its segments and its shard, if `usable` accepts the manifest, and passes the
    /// facts, the manifest and the time of `usable` to `then`.
    pub(crate) fn look_up<T>(
        &self,
        wallet: Address,
        usable: impl FnOnce(&CurrentManifest) -> Result<u64, Error>,
        then: impl FnOnce(Facts, &Manifest, u64) -> T,
    ) -> Result<T, Error> {
        let held = self.read();
        let current = held.current.as_ref().ok_or(Error::Stale { age: None })?;
        let time = usable(current)?;
        let manifest = &current.manifest;
        let mut last = None;
        let found = manifest.look_up(wallet, |entry| {
            last = Some(entry);
            self.shard(&held, entry)
        });
        let found = found.map(|facts| then(facts, manifest, time));
        drop(held);
        if let (Err(error), Some(entry)) = (&found, last) {
            self.forget(entry, error);
        }
        found
    }

    /// Returns the registered wallets of the file that a number chooses, or of the last changes; empty where
    /// nothing is held.
    pub(crate) fn wallets_at(&self, number: u64) -> Result<Vec<Address>, Error> {
        let held = self.read();
        let Some(current) = &held.current else { return Ok(Vec::new()) };
        let manifest = &current.manifest;
        let entries = manifest.entries().count() as u64;
        let index = usize::try_from(number % (entries + 1)).unwrap_or(0);
        let Some(entry) = manifest.entries().nth(index) else {
            return Ok(manifest.wallets_of(&[], ShardRange::ALL)?.into_keys().collect());
        };
        let wallets = self.shard(&held, entry).and_then(|shard| Ok(shard.wallets_of(entry.range)?));
        drop(held);
        let wallets = wallets.inspect_err(|error| self.forget(entry, error))?;
        Ok(wallets.into_iter().map(|(wallet, _)| wallet).collect())
    }

    fn shard(&self, held: &HeldRegistry, entry: ShardEntry) -> Result<Shard, Error> {
        let slot = held.shards.get(&entry).ok_or(SnapshotError::Damaged)?;
        let mut bytes = vec![0; slot.extent.length as usize];
        self.data.read_exact_at(&mut bytes, slot.extent.offset)?;
        let hash = self.hasher.hash_one(&bytes);
        if let Some(checked) = slot.checked.get() {
            return if *checked == hash {
                Ok(Shard::reopen(bytes, entry)?)
            } else {
                Err(SnapshotError::Damaged.into())
            };
        }
        let shard = Shard::parse(bytes, &self.identity, entry)?;
        slot.checked.get_or_init(|| hash);
        Ok(shard)
    }

    /// Drops a shard that the disk no longer has as it was written: the next update fetches it again.
    fn forget(&self, entry: ShardEntry, error: &Error) {
        if matches!(error, Error::Snapshot(_) | Error::File(_)) {
            let mut held = self.write();
            let slot = held.shards.remove(&entry);
            held.lost.extend(slot.map(|slot| slot.extent));
        }
    }

    /// Applies `of` to the manifest that lookups use.
    pub(crate) fn current<T>(&self, of: impl FnOnce(&CurrentManifest) -> T) -> Option<T> {
        self.read().current.as_ref().map(of)
    }

    /// Returns the shards of a manifest that are not here.
    pub(crate) fn missing(&self, manifest: &Manifest) -> Vec<ShardEntry> {
        let held = self.read();
        manifest.entries().filter(|entry| !held.shards.contains_key(entry)).collect()
    }

    /// Writes a shard that was fetched; lookups use it once its manifest is [adopted](Self::adopt).
    pub(crate) fn add(&self, space: &mut Space, entry: ShardEntry, bytes: &[u8]) -> Result<(), Error> {
        let shard = Shard::parse(bytes.to_vec(), &self.identity, entry)?;
        let length = u32::try_from(bytes.len()).map_err(|_| SnapshotError::Damaged)?;
        let extent = space.take(length);
        if let Err(error) = self.data.write_all_at(shard.as_bytes(), extent.offset) {
            space.give_back(extent);
            return Err(error.into());
        }
        let slot = ShardSlot { extent, checked: self.hasher.hash_one(bytes).into() };
        self.write().shards.insert(entry, slot);
        Ok(())
    }

    /// Makes what was added durable, so that an interrupted update goes on with it.
    pub(crate) fn save(&self) -> Result<(), Error> {
        let head = {
            let held = self.read();
            let manifest =
                held.current.as_ref().map(|current| (current.manifest.clone(), current.fetched_at));
            HeadFile { manifest, shards: extents(&held, |_| true) }
        };
        self.data.sync_data()?;
        Ok(head.write(&self.head)?)
    }

    /// Switches to a manifest that was `received` before its shards, all of which are here, and gives back
    /// the space of all others.
    pub(crate) fn adopt(&self, space: &mut Space, manifest: Manifest, received: Moment) -> Result<(), Error> {
        let named: HashSet<ShardEntry> = manifest.entries().collect();
        let shards = extents(&self.read(), |entry| named.contains(entry));
        let head = HeadFile { manifest: Some((manifest, received.clock)), shards };
        self.data.sync_data()?;
        head.write(&self.head)?;
        let Some((manifest, fetched_at)) = head.manifest else { return Ok(()) };
        let mut held = self.write();
        held.current = Some(CurrentManifest { manifest, fetched_at, anchor: Some(received) });
        let unnamed = held.shards.extract_if(|entry, _| !named.contains(entry)).map(|(_, slot)| slot.extent);
        let unused: Vec<Extent> = unnamed.collect();
        unused.into_iter().chain(mem::take(&mut held.lost)).for_each(|extent| space.give_back(extent));
        self.data.set_len(space.end())?;
        Ok(())
    }

    // A thread that panics leaves the map whole: each change is one call.
    fn read(&self) -> RwLockReadGuard<'_, HeldRegistry> {
        self.held.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HeldRegistry> {
        self.held.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the places of the shards that `keep` selects.
fn extents(held: &HeldRegistry, keep: impl Fn(&ShardEntry) -> bool) -> Vec<(ShardEntry, Extent)> {
    let kept = held.shards.iter().filter(|(entry, _)| keep(entry));
    kept.map(|(entry, slot)| (*entry, slot.extent)).collect()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeMap, time::Instant};

    use alloy_primitives::B256;
    use registry_core::{
        eth::{as_of::AsOf, timestamp::Timestamp},
        snapshot::ShardVersion,
    };

    use super::*;
    use crate::moment::now_millis;

    const IDENTITY: Identity = Identity { chain_id: 8453, registry: Address::repeat_byte(0x5f) };
    const HOUR: u64 = 3_600_000;

    fn ago(millis: u64) -> Moment {
        let instant = Instant::now().checked_sub(Duration::from_millis(millis)).unwrap();
        Moment { instant, clock: now_millis() - millis }
    }

    fn manifest(confirmed_at: u64) -> Manifest {
        let block_timestamp = Timestamp::from_millis(confirmed_at);
        let as_of = AsOf { block_number: 1, block_timestamp, parent_hash: B256::ZERO };
        let entry = ShardEntry { range: ShardRange::ALL, version: ShardVersion { block: 1, tag: 1 } };
        Manifest::new(IDENTITY, as_of, B256::ZERO, 604_800, confirmed_at, 0, vec![entry])
    }

    #[test]
    fn a_clock_that_is_set_back_makes_nothing_younger_than_the_download_took_and_the_process_has_run() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("registry.kya");
        let time_at = |holding: &Holding, clock| holding.current(|current| current.time(clock)).flatten();

        let received = ago(30_000);
        let (holding, mut space) = Holding::open(&file, IDENTITY, received).unwrap();
        holding.adopt(&mut space, manifest(received.clock), received).unwrap();
        assert!(time_at(&holding, received.clock - HOUR).unwrap() >= received.clock + 30_000);
        drop(holding);

        // Opened an hour ago by a clock that is ahead of the receipt, or behind it.
        let after = received.clock + 5_000;
        for (clock, earliest) in [(after, Some(after + HOUR)), (received.clock - 1, None)] {
            let opened = Moment { clock, ..ago(HOUR) };
            let (holding, _) = Holding::open(&file, IDENTITY, opened).unwrap();
            let time = time_at(&holding, after);
            assert!(time.is_some() == earliest.is_some() && time >= earliest, "{time:?} {earliest:?}");
        }
    }

    #[test]
    fn random_checks_are_of_what_has_changed_last_too() {
        let directory = tempfile::tempdir().unwrap();
        let received = Moment::now();
        let (holding, mut space) =
            Holding::open(&directory.path().join("registry.kya"), IDENTITY, received).unwrap();
        let wallet = Address::repeat_byte(7);
        let entry = ShardEntry { range: ShardRange::ALL, version: ShardVersion { block: 1, tag: 1 } };
        let facts = Facts::Known { agent: None, former: Vec::new() };
        let encode = |facts: BTreeMap<_, _>| Shard::encode(&IDENTITY, entry, &facts).unwrap();
        let recent = Shard::parse(encode([(wallet, facts)].into()), &IDENTITY, entry).unwrap();
        holding.add(&mut space, entry, &encode(BTreeMap::new())).unwrap();
        let manifest = manifest(received.clock).with_segments(Vec::new(), Some(recent));
        holding.adopt(&mut space, manifest, received).unwrap();
        let wallets: Vec<Address> = (0..2).flat_map(|number| holding.wallets_at(number).unwrap()).collect();
        assert_eq!(wallets, [wallet]);
    }
}
