//! The cache of verdicts and of accounts without code; the least recently used are forgotten first.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex},
    time::Duration,
};

use alloy_primitives::Address;
use host_kit::native::lock;
use lru::LruCache;
use registry_core::{
    eth::timestamp::Timestamp,
    gate::{AccountState, Verdict},
    registry::kya::{Decision, Reason},
};
use tokio::time::Instant;

/// The most wallets in the cache. An entry takes less than a kilobyte.
const WALLETS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(99_999);
/// The most changes that are remembered.
const CHANGES: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999);

#[derive(Debug)]
pub(super) struct AccountCache {
    cached: Duration,
    entries: Mutex<AccountCacheState>,
}

#[derive(Debug)]
struct AccountCacheState {
    wallets: LruCache<Address, AccountCacheEntry>,
    /// The last change of each wallet, for answers of an earlier block.
    changes: LruCache<Address, Change>,
    /// Counts the changes: a verdict is not cached if there was one during its read.
    generation: u64,
    /// Changes are followed, and none was missed.
    is_followed: bool,
    /// The block at which the last gap ended: the changes up to it may have been missed.
    gap_ended_at: u64,
}

#[derive(Debug, Clone, Default)]
struct AccountCacheEntry {
    verdict: Option<(Arc<Verdict>, Instant)>,
    no_code_since: Option<Instant>,
    /// Code was found by the last read, and is asked first.
    has_code: bool,
}

/// A change of a verdict, as the read API announces it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub(super) decision: Decision,
    pub(super) reason: Option<Reason>,
    pub(super) block: u64,
}

/// The cached facts about a wallet that hold now.
#[derive(Debug, Clone, Default)]
pub(super) struct CachedAccount {
    pub(super) verdict: Option<Arc<Verdict>>,
    /// Time for which the verdict may be passed on: while changes are followed, it is known to hold now.
    pub(super) fresh_for: Duration,
    pub(super) has_no_code: bool,
    /// There was code when it was last read.
    pub(super) has_code: bool,
}

/// The beginning of a read.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReadStart {
    at: Instant,
    generation: u64,
}

impl AccountCache {
    pub(super) fn new(cached: Duration) -> Self {
        let (wallets, changes) = (LruCache::new(WALLETS), LruCache::new(CHANGES));
        let entries =
            AccountCacheState { wallets, changes, generation: 0, is_followed: false, gap_ended_at: 0 };
        Self { cached, entries: Mutex::new(entries) }
    }

    /// Returns the time for which a new verdict is used.
    pub(super) const fn cached(&self) -> Duration {
        self.cached
    }

    pub(super) fn get(&self, wallet: Address, now: Timestamp) -> CachedAccount {
        let mut entries = lock(&self.entries);
        let (follows, gap_ended_at) = (entries.is_followed, entries.gap_ended_at);
        // The API's own cache may hold a verdict from before a missed change, which no event corrects.
        let is_followed = |verdict: &Verdict| follows && verdict.as_of.block_number >= gap_ended_at;
        let Some(entry) = entries.wallets.get(&wallet) else { return CachedAccount::default() };
        let verdict = entry.verdict.as_ref().map(|(verdict, since)| (verdict, since.elapsed())).filter(
            |(verdict, age)| {
                let holds_for = if is_followed(verdict) { super::FOLLOWED } else { self.cached };
                *age < holds_for && verdict.holds_at(now, *age)
            },
        );
        let age = verdict.filter(|(verdict, _)| !is_followed(verdict)).map(|(_, age)| age);
        CachedAccount {
            fresh_for: self.cached.saturating_sub(age.unwrap_or_default()),
            verdict: verdict.map(|(verdict, _)| Arc::clone(verdict)),
            has_no_code: entry.no_code_since.is_some_and(|since| since.elapsed() < self.cached),
            has_code: entry.has_code,
        }
    }

    pub(super) fn begin(&self) -> ReadStart {
        ReadStart { at: Instant::now(), generation: lock(&self.entries).generation }
    }

    /// Applies a later change, if there was one, to a verdict that was read.
    pub(super) fn latest(&self, wallet: Address, verdict: Verdict) -> Arc<Verdict> {
        let change = lock(&self.entries).changes.get(&wallet).copied();
        Arc::new(match change {
            Some(Change { decision, reason, block }) => verdict.changed_to(decision, reason, block),
            None => verdict,
        })
    }

    /// Caches the result of a read, as of its beginning.
    pub(super) fn put(
        &self,
        wallet: Address,
        verdict: Option<&Arc<Verdict>>,
        state: Option<AccountState>,
        reading: &ReadStart,
    ) {
        let mut entries = lock(&self.entries);
        let is_current = entries.generation == reading.generation;
        // A verdict from before a change for the better is not cached: the next request reads a newer one.
        let change = entries.changes.peek(&wallet).map_or(0, |change| change.block);
        let is_current = is_current && verdict.is_some_and(|verdict| verdict.as_of.block_number >= change);
        let entry = entries.wallets.get_or_insert_mut(wallet, AccountCacheEntry::default);
        if let Some(verdict) = verdict.filter(|_| is_current) {
            // A verdict that came from this cache keeps its age.
            if !entry.verdict.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, verdict)) {
                entry.verdict = Some((Arc::clone(verdict), reading.at));
            }
        }
        match state {
            Some(AccountState::NoCode) => {
                entry.has_code = false;
                entry.no_code_since.get_or_insert(reading.at);
                if entry.no_code_since.is_some_and(|since| since.elapsed() >= self.cached) {
                    entry.no_code_since = Some(reading.at);
                }
            }
            Some(AccountState::Code { .. }) => (entry.no_code_since, entry.has_code) = (None, true),
            None => {}
        }
    }

    /// Stores a change of a verdict.
    pub(super) fn changed(&self, wallet: Address, change: Change) {
        let mut entries = lock(&self.entries);
        entries.generation += 1;
        entries.changes.put(wallet, change);
        if let Some(entry) = entries.wallets.get_mut(&wallet) {
            entry.verdict = None;
        }
    }

    /// Notes that changes are followed from `block` on, without a gap or after one. After a gap, verdicts of
    /// earlier blocks hold for `cache-seconds`.
    pub(super) fn follows(&self, without_gap: bool, block: u64) {
        let mut entries = lock(&self.entries);
        if !without_gap {
            entries.generation += 1;
            entries.gap_ended_at = block;
            for (_, entry) in &mut entries.wallets {
                entry.verdict = None;
            }
        }
        entries.is_followed = true;
    }

    /// Notes that changes are no longer followed: verdicts then hold for `cache-seconds`.
    pub(super) fn stopped_following(&self) {
        lock(&self.entries).is_followed = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use registry_core::token::StatedAt;

    const WALLET: Address = Address::repeat_byte(1);
    const CACHED: Duration = Duration::from_secs(60);

    fn verdict(block: u64) -> Arc<Verdict> {
        Arc::new(Verdict {
            decision: Decision::Provision,
            reasons: Vec::new(),
            agent: None,
            compliant_until: Some(Timestamp::from_seconds(2_000)),
            as_of: StatedAt::number(block),
        })
    }

    fn filled() -> AccountCache {
        let cache = AccountCache::new(CACHED);
        cache.put(WALLET, Some(&verdict(1)), Some(AccountState::NoCode), &cache.begin());
        cache
    }

    /// Returns whether verdict and absence of code are cached.
    fn known(cache: &AccountCache, now: u64) -> (bool, bool) {
        let cached = cache.get(WALLET, Timestamp::from_seconds(now));
        (cached.verdict.is_some(), cached.has_no_code)
    }

    const SUSPENDED: Change =
        Change { decision: Decision::RequestRenewal, reason: Some(Reason::Suspended), block: 5 };

    #[tokio::test(start_paused = true)]
    async fn what_is_known_holds_for_its_time_and_never_beyond_the_attestation() {
        let cache = filled();
        assert_eq!(known(&cache, 2_000), (true, true));
        assert_eq!(known(&cache, 2_001), (false, true), "the attestation has lapsed");
        tokio::time::advance(CACHED - Duration::from_millis(1)).await;
        let fresh_for = cache.get(WALLET, Timestamp::from_seconds(1_000)).fresh_for;
        assert_eq!(fresh_for, Duration::from_millis(1));
        assert_eq!(known(&cache, 1_000), (true, true));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(known(&cache, 1_000), (false, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_followed_verdict_holds_longer_until_it_changes() {
        let cache = filled();
        cache.follows(true, 1);
        tokio::time::advance(CACHED).await;
        assert_eq!(known(&cache, 1_000), (true, false), "code is not followed");
        let fresh_for = cache.get(WALLET, Timestamp::from_seconds(1_000)).fresh_for;
        assert_eq!(fresh_for, CACHED, "it is known to hold now");
        cache.changed(WALLET, SUSPENDED);
        assert_eq!(known(&cache, 1_000), (false, false));
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_stream_a_verdict_holds_as_long_as_any() {
        let cache = filled();
        cache.follows(true, 1);
        cache.stopped_following();
        tokio::time::advance(CACHED).await;
        assert_eq!(known(&cache, 1_000), (false, false));
        let cache = filled();
        cache.follows(false, 1);
        assert_eq!(known(&cache, 1_000), (false, true), "a change may have been missed");
    }

    #[tokio::test(start_paused = true)]
    async fn a_verdict_of_a_block_before_the_end_of_a_gap_holds_as_long_as_any() {
        for (block, is_followed) in [(4, false), (5, true)] {
            let cache = AccountCache::new(CACHED);
            cache.follows(false, 5);
            cache.follows(true, 6);
            cache.put(WALLET, Some(&verdict(block)), None, &cache.begin());
            let short_of_it = Duration::from_millis(1);
            tokio::time::advance(CACHED - short_of_it).await;
            let cached = cache.get(WALLET, Timestamp::from_seconds(1_000));
            let fresh_for = if is_followed { CACHED } else { short_of_it };
            assert_eq!((cached.verdict.is_some(), cached.fresh_for), (true, fresh_for), "of block {block}");
            tokio::time::advance(short_of_it).await;
            assert_eq!(known(&cache, 1_000), (is_followed, false), "of block {block}");
        }
    }

    #[tokio::test]
    async fn a_verdict_read_across_a_change_is_not_cached_and_an_older_one_is_corrected() {
        let cache = AccountCache::new(CACHED);
        let reading = cache.begin();
        cache.changed(WALLET, SUSPENDED);
        cache.put(WALLET, Some(&verdict(4)), Some(AccountState::NoCode), &reading);
        assert_eq!(known(&cache, 1_000), (false, true));
        let corrected = cache.latest(WALLET, (*verdict(4)).clone());
        assert_eq!((corrected.decision, corrected.reasons[0]), (Decision::RequestRenewal, Reason::Suspended));
        assert_eq!(cache.latest(WALLET, (*verdict(5)).clone()).decision, Decision::Provision);
    }

    #[tokio::test]
    async fn a_verdict_from_before_a_change_for_the_better_is_not_cached() {
        let cache = AccountCache::new(CACHED);
        cache.follows(true, 1);
        cache.changed(WALLET, Change { decision: Decision::Provision, reason: None, block: 6 });
        for (block, is_cached) in [(5, false), (6, true)] {
            let latest = cache.latest(WALLET, (*verdict(block)).clone());
            cache.put(WALLET, Some(&latest), Some(AccountState::NoCode), &cache.begin());
            assert_eq!(known(&cache, 1_000), (is_cached, true), "of block {block}");
        }
    }
}
