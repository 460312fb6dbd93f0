//! One entry: its state, and every transition.

use super::read::{Arrival, CacheLookup, ReadLease, ReadOutcome, Renewal, due_for_renewal};

/// Bytes of an entry beside its value and its key's heap: key, links and table.
pub(super) const OVERHEAD: usize = 256;
/// Milliseconds after a read in which coalesced callers get its value, whatever its TTL.
const HANDOVER_MILLIS: u64 = 2_000;
/// A value is often requested if it was served more than this many times.
const HOT: u32 = 3;
/// Milliseconds between two attempts to renew a value, where the first failed.
const RENEWAL_PAUSE_MILLIS: u64 = 1_000;

/// A value, and the callers that may have it.
#[derive(Clone, Debug)]
pub(super) struct CachedValue<V> {
    value: V,
    bytes: usize,
    /// End of its TTL, unix milliseconds.
    until: u64,
    /// Earliest time of its renewal, unix milliseconds.
    renew_from: u64,
    /// Number of times that it was served.
    served: u32,
    /// Number of times that it has to be served before another request renews it.
    hot: u32,
    /// The last of the coalesced callers, which may have it after expiry, until the handover ends.
    shared_with: Arrival,
    /// End of the handover, unix milliseconds.
    handed_over: u64,
}

impl<V> CachedValue<V> {
    fn is_for(&self, arrival: Arrival, now: u64) -> bool {
        now < self.until || (arrival <= self.shared_with && now < self.handed_over)
    }
}

/// The state of an entry; the transitions are the methods that take `&mut self`.
#[derive(Clone, Debug)]
pub(super) enum CacheEntry<V> {
    /// The value is being read for the first time.
    Reading(ReadLease),
    /// A value, which may have expired.
    Kept(CachedValue<V>),
    /// A value, which may have expired and is being read again.
    Renewing(CachedValue<V>, ReadLease),
}

impl<V: Clone> CacheEntry<V> {
    /// Makes the entry of a value derived from another, which is served before `until` and is not renewed.
    pub(super) const fn derived(value: V, bytes: usize, until: u64) -> Self {
        let bytes = bytes.saturating_add(OVERHEAD);
        Self::Kept(CachedValue {
            value,
            bytes,
            until,
            renew_from: u64::MAX,
            served: 0,
            hot: HOT,
            shared_with: Arrival(0),
            handed_over: 0,
        })
    }

    pub(super) const fn bytes(&self) -> usize {
        match self {
            Self::Reading(_) => OVERHEAD,
            Self::Kept(kept) | Self::Renewing(kept, _) => kept.bytes,
        }
    }

    const fn lease(&self) -> Option<&ReadLease> {
        match self {
            Self::Reading(lease) | Self::Renewing(_, lease) => Some(lease),
            Self::Kept(_) => None,
        }
    }

    /// Returns the value or the caller's next step. A caller that has to read gets `lease`.
    pub(super) fn look_up(&mut self, arrival: Arrival, now: u64, lease: ReadLease) -> CacheLookup<V> {
        let being_read = self.lease().is_some_and(|held| now < held.until);
        let kept = match self {
            Self::Reading(_) if being_read => return CacheLookup::Wait,
            Self::Reading(held) => {
                *held = lease;
                return CacheLookup::Read(lease);
            }
            Self::Kept(kept) | Self::Renewing(kept, _) => kept,
        };
        if !kept.is_for(arrival, now) {
            if being_read {
                return CacheLookup::Wait;
            }
            *self = Self::Renewing(kept.clone(), lease);
            return CacheLookup::Read(lease);
        }
        kept.served = kept.served.saturating_add(1);
        let value = kept.value.clone();
        let is_hot = kept.served > kept.hot && (kept.renew_from..kept.until).contains(&now);
        if is_hot && !being_read {
            *self = Self::Renewing(kept.clone(), lease);
            return CacheLookup::Renew(value, lease);
        }
        CacheLookup::Found(value)
    }

    /// Returns the value, if its TTL is not over.
    pub(super) fn peek(&self, now: u64) -> Option<V> {
        match self {
            Self::Kept(kept) | Self::Renewing(kept, _) if now < kept.until => Some(kept.value.clone()),
            _ => None,
        }
    }

    /// Gives the holder of a lease more time.
    pub(super) fn extend(&mut self, lease: &ReadLease, until: u64) {
        if let Self::Reading(held) | Self::Renewing(_, held) = self
            && held.began == lease.began
        {
            held.until = held.until.max(until);
        }
    }

    /// Takes the result of a lease holder's read; `last` is the last arrival so far. Returns false if it has
    /// lost the lease.
    pub(super) fn finish(
        &mut self,
        lease: &ReadLease,
        value: V,
        outcome: ReadOutcome,
        now: u64,
        last: Arrival,
    ) -> bool {
        if self.lease().is_none_or(|held| held.began != lease.began) {
            return false;
        }
        let handed_over = now.saturating_add(HANDOVER_MILLIS);
        let kept = |bytes: usize, until, (renew_from, hot), shared_with| {
            let bytes = bytes.saturating_add(OVERHEAD);
            CachedValue { value, bytes, until, renew_from, served: 0, hot, shared_with, handed_over }
        };
        *self = Self::Kept(match (outcome, &*self) {
            (ReadOutcome::Value { bytes, made_at, millis, renewal }, _) => {
                let until = made_at.saturating_add(millis);
                let renewed = match renewal {
                    Renewal::IfHot => (due_for_renewal(made_at, millis), HOT),
                    Renewal::InLastThird => (until.saturating_sub(millis / 3), 0),
                };
                kept(bytes, until, renewed, lease.began)
            }
            (ReadOutcome::Failure { .. }, Self::Kept(good) | Self::Renewing(good, _)) if now < good.until => {
                CachedValue { renew_from: now.saturating_add(RENEWAL_PAUSE_MILLIS), ..good.clone() }
            }
            (ReadOutcome::Failure { millis }, _) => {
                let until = now.saturating_add(millis);
                kept(0, until, (until, HOT), last)
            }
        });
        true
    }
}
