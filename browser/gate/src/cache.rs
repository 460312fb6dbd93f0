//! The cache of verdicts and of accounts with and without code; the least recently used are forgotten first.

use std::{cell::RefCell, num::NonZeroUsize, sync::Arc, time::Duration};

use alloy_primitives::Address;
use lru::LruCache;
use registry_core::{
    eth::timestamp::Timestamp,
    gate::{AccountState, Verdict},
};

use crate::accounts::KnownAccount;

/// The most wallets in the cache. An entry takes less than a kilobyte, and a Worker has 128 MB.
const WALLETS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999);

/// The cached facts about accounts.
pub(crate) struct WalletCache {
    cached_ms: u64,
    wallets: RefCell<LruCache<Address, WalletCacheEntry>>,
}

#[derive(Default)]
struct WalletCacheEntry {
    /// The verdict, and the time of the read that gave it.
    verdict: Option<(Arc<Verdict>, Timestamp)>,
    /// Presence of code, and the time of the read that found it.
    code: Option<(bool, Timestamp)>,
}

/// The cached facts about a wallet that hold now.
#[derive(Default)]
pub(crate) struct CachedWallet {
    pub(crate) verdict: Option<Arc<Verdict>>,
    pub(crate) has_code: Option<bool>,
}

impl WalletCache {
    pub(crate) fn new(cached_ms: u64) -> Self {
        Self { cached_ms, wallets: RefCell::new(LruCache::new(WALLETS)) }
    }

    pub(crate) fn get(&self, wallet: Address, now: Timestamp) -> CachedWallet {
        let mut wallets = self.wallets.borrow_mut();
        let Some(entry) = wallets.get(&wallet) else { return CachedWallet::default() };
        // After a clock was set back, entries from its future do not count.
        let age = |since: Timestamp| {
            let age = now.as_millis().checked_sub(since.as_millis()).filter(|age| *age < self.cached_ms);
            age.map(Duration::from_millis)
        };
        let verdict = entry.verdict.as_ref();
        let verdict =
            verdict.filter(|(verdict, since)| age(*since).is_some_and(|age| verdict.holds_at(now, age)));
        CachedWallet {
            verdict: verdict.map(|(verdict, _)| Arc::clone(verdict)),
            has_code: entry.code.filter(|(_, since)| age(*since).is_some()).map(|(has_code, _)| has_code),
        }
    }

    /// Caches the result of a read that began at `now`, except for facts that came from `cached`.
    pub(crate) fn put(&self, wallet: Address, known: &KnownAccount, cached: &CachedWallet, now: Timestamp) {
        let mut wallets = self.wallets.borrow_mut();
        let entry = wallets.get_or_insert_mut(wallet, WalletCacheEntry::default);
        // A verdict that came from this cache keeps its age.
        if let Some(verdict) = known.verdict.as_ref().filter(|_| cached.verdict.is_none()) {
            entry.verdict = Some((Arc::clone(verdict), now));
        }
        let has_code = known.state.map(|state| matches!(state, AccountState::Code { .. }));
        if let Some(has_code) = has_code.filter(|_| has_code != cached.has_code) {
            entry.code = Some((has_code, now));
        }
    }
}
