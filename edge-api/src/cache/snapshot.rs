//! Verdicts from the registry's snapshot: its manifest, segments and shards, from this instance's memory, the
//! data centre's cache, or the object that keeps the index.
//!
//! ```text
//!   wallet --> manifest (20 s) --> segments and shard of these versions (a day) --> verdict
//!                |  missing, or older than the TTL of verdicts    |  one missing, or only the chain can tell
//!                +---------------------> the chain <--------------+
//! ```
//!
//! A verdict is never older than its TTL, counted from when the index last found the registry's storage root
//! to be that of its rows, and from the time of their block. A shard or segment is valid for as
//! long as a manifest names its version, and is kept for as long as there is room.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};

use edge_shared::{settings::WorkerSettings, time::within, unix_millis};
use futures_util::{FutureExt as _, future::join_all};
use registry_core::{
    api::error::{Error, LASTING_MILLIS, NoSnapshot},
    api::route::{CacheScope, Route},
    api::snapshot_documents::{document, shards_for},
    eth::timestamp::Timestamp,
    host::shared_reads::{Cache, CacheKey, ReadOutcome, Renewal},
    snapshot::{Manifest, Shard, ShardEntry},
};

use super::{
    colo,
    context::RequestContext,
    single_flight::{Memory, ReadInProgress, SharedRead, share},
};
use crate::{
    http::Content,
    index::{AskAgain, UNINDEXED_MILLIS},
    log::Record,
    settings::KyaSource,
};

/// Longest time that a manifest is kept, in milliseconds.
const MANIFEST_MILLIS: u64 = 20_000;
/// A manifest takes 200 KB at a million agents, with the latest changes.
const MANIFEST_CAPACITY_BYTES: usize = 2 * 1024 * 1024;
/// Room for some 260 shards and segments.
const SHARD_CAPACITY_BYTES: usize = 12 * 1024 * 1024;
/// Room for some 2,000 verdicts, to be given again. One takes some ten times the memory of the wallet's facts
/// in a shard.
const ANSWER_CAPACITY_BYTES: usize = 4 * 1024 * 1024;
/// Answers that are larger, those of ranges, are not kept: each would take the room of many verdicts, and all
/// of them would fragment memory, as no gap fits the next one. They are made of shards in milliseconds.
const LARGEST_ANSWER_BYTES: usize = 64 * 1024;
/// Seconds for which a data centre keeps a shard or segment.
pub(super) const SHARD_SECONDS: u32 = 86_400;
/// Shortest TTL of verdicts: a manifest has used up a part of it when it arrives, and lasts whole seconds.
const SHORTEST_TTL_SECONDS: u32 = 2;
/// Milliseconds for which a verdict waits for the object, before it asks the chain.
const OBJECT_MILLIS: u64 = 1_000;

thread_local! {
    static MANIFEST: RefCell<Cache<(), Result<Rc<KeptManifest>, Error>>> =
        RefCell::new(Cache::new(MANIFEST_CAPACITY_BYTES));
    static SHARDS: RefCell<Cache<ShardKey, Result<Rc<Shard>, Error>>> =
        RefCell::new(Cache::new(SHARD_CAPACITY_BYTES));
    static ANSWERS: RefCell<Cache<AnswerKey, Rc<Content>>> =
        RefCell::new(Cache::new(ANSWER_CAPACITY_BYTES));
    /// Milliseconds after which the object, which has just refused a manifest, is to be asked again.
    static REFUSED_MILLIS: Cell<u64> = const { Cell::new(0) };
}

/// A manifest, and the time at which the object gave it.
#[derive(Debug)]
pub(super) struct KeptManifest {
    pub(super) manifest: Manifest,
    made_at: u64,
    millis: u64,
}

impl KeptManifest {
    /// Returns the seconds until it is read anew.
    pub(super) fn seconds_left(&self) -> u32 {
        let left = self.made_at.saturating_add(self.millis).saturating_sub(unix_millis()) / 1_000;
        u32::try_from(left).unwrap_or(0)
    }
}

/// The read of the manifest.
#[derive(Clone, Copy, Debug)]
struct ManifestRead {
    is_only_source: bool,
}

impl SharedRead for ManifestRead {
    type Key = ();
    type Value = Rc<KeptManifest>;

    fn memory() -> &'static Memory<(), Rc<KeptManifest>> {
        &MANIFEST
    }

    fn key(&self) {}

    fn patience_seconds(&self, settings: &WorkerSettings) -> u32 {
        settings.rpc_timeout_seconds
    }

    async fn read(&self, reading: &ReadInProgress) -> Result<Rc<KeptManifest>, Error> {
        let (settings, now) = (reading.settings(), unix_millis());
        let millis = MANIFEST_MILLIS.min(settings.millis_to_live(CacheScope::Kya) / 3);
        let key = colo::snapshot_key(&reading.context, "manifest");
        let found = colo::find_bytes(&key).await.and_then(|(bytes, made_at)| {
            // A renewal uses an entry only if another instance has renewed it already.
            let age = if reading.is_renewal { millis / 3 } else { millis };
            let manifest = parse(&bytes, settings).ok().filter(|_| now < made_at.saturating_add(age))?;
            Some(Rc::new(KeptManifest { manifest, made_at, millis }))
        });
        if let Some(found) = found {
            return Ok(found);
        }
        let bytes = from_object(reading, None, self.is_only_source).await?;
        let manifest = parse(&bytes, settings)?;
        let seconds = u32::try_from(millis.div_ceil(1_000)).unwrap_or(0);
        reading.context.runtime.wait_until(async move { colo::store_bytes(key, bytes, now, seconds).await });
        Ok(Rc::new(KeptManifest { manifest, made_at: now, millis }))
    }

    fn outcome(kept: &Rc<KeptManifest>) -> ReadOutcome {
        let KeptManifest { manifest, made_at, millis } = &**kept;
        let (bytes, made_at, millis) = (manifest.size_bytes(), *made_at, *millis);
        ReadOutcome::Value { bytes, made_at, millis, renewal: Renewal::InLastThird }
    }

    fn error_millis(&self, error: &Error) -> u64 {
        let refused = REFUSED_MILLIS.take();
        if matches!(error, Error::NoSnapshot(_)) { LASTING_MILLIS } else { refused.max(UNINDEXED_MILLIS) }
    }
}

/// The read of a shard. `is_only_source`: the chain cannot answer instead.
#[derive(Clone, Copy)]
pub(super) struct ShardRead {
    pub(super) entry: ShardEntry,
    pub(super) is_only_source: bool,
}

/// A shard in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ShardKey(ShardEntry);

impl CacheKey for ShardKey {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl SharedRead for ShardRead {
    type Key = ShardKey;
    type Value = Rc<Shard>;

    fn memory() -> &'static Memory<ShardKey, Rc<Shard>> {
        &SHARDS
    }

    fn key(&self) -> ShardKey {
        ShardKey(self.entry)
    }

    fn patience_seconds(&self, settings: &WorkerSettings) -> u32 {
        settings.rpc_timeout_seconds
    }

    async fn read(&self, reading: &ReadInProgress) -> Result<Rc<Shard>, Error> {
        let settings = reading.settings();
        let key = colo::snapshot_key(&reading.context, &self.entry.name());
        let identity = settings.identity().ok_or(Error::IndexRequired)?;
        let parsed = |bytes| Shard::parse(bytes, &identity, self.entry).map(Rc::new);
        if let Some(Ok(shard)) = colo::find_bytes(&key).await.map(|(bytes, _)| parsed(bytes)) {
            return Ok(shard);
        }
        let bytes = from_object(reading, Some(self.entry), self.is_only_source).await?;
        let shard = parsed(bytes).map_err(|_| Error::IndexUnavailable)?;
        let (stored, now) = (Rc::clone(&shard), unix_millis());
        reading.context.runtime.wait_until(async move {
            colo::store_bytes(key, stored.as_bytes().to_vec(), now, SHARD_SECONDS).await;
        });
        Ok(shard)
    }

    fn outcome(shard: &Rc<Shard>) -> ReadOutcome {
        let (bytes, made_at) = (shard.size_bytes(), unix_millis());
        let millis = u64::from(SHARD_SECONDS) * 1_000;
        ReadOutcome::Value { bytes, made_at, millis, renewal: Renewal::IfHot }
    }

    fn error_millis(&self, _: &Error) -> u64 {
        UNINDEXED_MILLIS
    }
}

/// Reads the manifest, or a shard, from the object. A renewal waits for a slow object, and so does a read
/// that the chain cannot answer.
async fn from_object(
    reading: &ReadInProgress,
    entry: Option<ShardEntry>,
    is_only_source: bool,
) -> Result<Vec<u8>, Error> {
    let index = reading.context.index.as_ref().ok_or(Error::IndexRequired)?;
    let limit = match reading.is_renewal || is_only_source {
        true => u64::from(reading.settings().rpc_timeout_seconds) * 1_000,
        false => OBJECT_MILLIS,
    };
    match within(limit, index.snapshot(entry)).await {
        Some(Ok(bytes)) => Ok(bytes),
        Some(Err(AskAgain::After(seconds))) if entry.is_none() => {
            REFUSED_MILLIS.set(seconds.saturating_mul(1_000));
            Err(Error::IndexUnavailable)
        }
        Some(Err(AskAgain::Never)) => Err(Error::NoSnapshot(NoSnapshot::NoProofs)),
        _ => Err(Error::IndexUnavailable),
    }
}

fn parse(bytes: &[u8], settings: &WorkerSettings) -> Result<Manifest, Error> {
    let manifest = Manifest::parse(bytes).map_err(|_| Error::IndexUnavailable)?;
    if settings.identity() == Some(manifest.identity) { Ok(manifest) } else { Err(Error::IndexUnavailable) }
}

/// Returns the time at which a manifest becomes too old for a verdict, unix milliseconds. Where blocks may be
/// of any age, the block's time does not count.
fn usable_until(manifest: &Manifest, settings: &WorkerSettings) -> u64 {
    let of_block = match settings.max_head_age_seconds {
        0 => u64::MAX,
        _ => manifest.as_of.block_timestamp.as_millis(),
    };
    manifest.confirmed_at.min(of_block).saturating_add(settings.millis_to_live(CacheScope::Kya))
}

/// Returns the manifest, where verdicts may come from it now. `is_only_source`: the chain cannot answer.
pub(super) async fn usable_manifest(
    context: &RequestContext,
    record: &Record,
    is_only_source: bool,
) -> Result<Rc<KeptManifest>, Error> {
    let settings = &context.settings.shared;
    if !is_source(context) {
        return Err(Error::IndexRequired);
    }
    let seconds = settings.time_to_live(CacheScope::Kya);
    if seconds < SHORTEST_TTL_SECONDS {
        return Err(Error::NoSnapshot(NoSnapshot::ShortTtl(seconds)));
    }
    let kept =
        share(context, ManifestRead { is_only_source }, &mut record.clone()).await.map_err(|error| {
            match error {
                Error::NoSnapshot(_) => error,
                _ => Error::IndexUnavailable,
            }
        })?;
    match unix_millis() < usable_until(&kept.manifest, settings) {
        true => Ok(kept),
        false => Err(Error::IndexUnavailable),
    }
}

/// Returns whether the manifest is in memory, and verdicts come from it now.
pub(super) fn is_at_hand(context: &RequestContext) -> bool {
    let now = unix_millis();
    let in_memory = || MANIFEST.with_borrow(|manifest| manifest.peek(&(), now))?.ok();
    is_source(context)
        && in_memory().is_some_and(|kept| now < usable_until(&kept.manifest, &context.settings.shared))
}

/// Returns whether verdicts may come from the snapshot.
fn is_source(context: &RequestContext) -> bool {
    context.settings.kya_source == KyaSource::Snapshot && context.index.is_some()
}

/// Key of a route's answer from the manifest of that unix millisecond.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct AnswerKey(Route, u64);

impl CacheKey for AnswerKey {
    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
}

/// Answers a route from the snapshot.
///
/// # Errors
///
/// [`Error::IndexUnavailable`], [`Error::IndexRequired`] or [`Error::NoSnapshot`] where it gives none: the
/// chain may. [`Error::InvalidParameter`] for a range that is not allowed.
pub(super) async fn answer(
    context: &RequestContext,
    route: &Route,
    record: &Record,
) -> Result<Rc<Content>, Error> {
    let is_only_source = route.needs_index();
    let kept = usable_manifest(context, record, is_only_source).await?;
    let key = AnswerKey(route.clone(), kept.made_at);
    if let Some(content) = ANSWERS.with_borrow_mut(|answers| answers.get(&key, unix_millis())) {
        return Ok(content);
    }
    let manifest = &kept.manifest;
    let entries = shards_for(route, manifest)?.ok_or(Error::IndexUnavailable)?;
    let reads = entries.into_iter().map(|entry| async move {
        share(context, ShardRead { entry, is_only_source }, &mut record.clone()).boxed_local().await
    });
    let shards = join_all(reads).await.into_iter().collect::<Result<Vec<Rc<Shard>>, _>>();
    let shards = shards.map_err(|_| Error::IndexUnavailable)?;
    let now = unix_millis();
    let content = content(route, manifest, &shards, &context.settings.shared, now);
    let content = Rc::new(content.ok_or(Error::IndexUnavailable)?);
    let (bytes, until) = (content.size(), now.saturating_add(content.max_age_millis()));
    if bytes > LARGEST_ANSWER_BYTES {
        return Ok(content);
    }
    ANSWERS.with_borrow_mut(|answers| answers.get_or_derive(&key, now, || Ok((content, bytes, until))))
}

/// Makes the answer from these shards at `now` (unix milliseconds); `None` where only the chain can tell.
fn content(
    route: &Route,
    manifest: &Manifest,
    shards: &[Rc<Shard>],
    settings: &WorkerSettings,
    now: u64,
) -> Option<Content> {
    let shards: Vec<&Shard> = shards.iter().map(|shard| &**shard).collect();
    let left = usable_until(manifest, settings).saturating_sub(now) / 1_000;
    let at = Timestamp::from_millis(now);
    let document = document(route, manifest, &shards, at).filter(|_| left > 0)?;
    let time_to_live = settings.time_to_live(route.cache_scope());
    let time_to_live = time_to_live.min(u32::try_from(left).unwrap_or(u32::MAX));
    Some(Content::of(document, time_to_live, at).with_source("snapshot").with_forms_of(route))
}
