//! One entry: what its state is, and every transition of it.

use super::{
    HANDOVER_MILLIS, HOT, Lease, Lookup, OVERHEAD, Outcome, RENEWAL_PAUSE_MILLIS, Ticket, due_for_renewal,
};

/// A value, and who may have it.
#[derive(Clone, Debug)]
pub(super) struct Kept<V> {
    value: V,
    bytes: usize,
    /// Given out to everybody before this unix millisecond.
    until: u64,
    /// From this unix millisecond on it may be renewed.
    renew_from: u64,
    /// How often it was given out.
    asked: u32,
    /// Askers up to this one may have it beyond its end, until the handover is over.
    shared_with: Ticket,
    handed_over: u64,
}

impl<V> Kept<V> {
    const fn is_for(&self, asker: Ticket, now: u64) -> bool {
        now < self.until || (asker.0 <= self.shared_with.0 && now < self.handed_over)
    }
}

/// The state of an entry; the transitions are the methods that take `&mut self`.
#[derive(Clone, Debug)]
pub(super) enum Entry<V> {
    /// Nobody has read it yet.
    Reading(Lease),
    /// It is known, though its time may be over.
    Kept(Kept<V>),
    /// It is known and being read again.
    Renewing(Kept<V>, Lease),
}

impl<V: Clone> Entry<V> {
    pub(super) const fn bytes(&self) -> usize {
        match self {
            Self::Reading(_) => OVERHEAD,
            Self::Kept(kept) | Self::Renewing(kept, _) => kept.bytes,
        }
    }

    const fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Reading(lease) | Self::Renewing(_, lease) => Some(lease),
            Self::Kept(_) => None,
        }
    }

    /// What an asker is to do. `lease` is the one it gets if it is to read.
    pub(super) fn look_up(&mut self, asker: Ticket, now: u64, lease: Lease) -> Lookup<V> {
        let being_read = self.lease().is_some_and(|held| now < held.until);
        let kept = match self {
            Self::Reading(_) if being_read => return Lookup::Wait,
            Self::Reading(held) => {
                *held = lease;
                return Lookup::Read(lease);
            }
            Self::Kept(kept) | Self::Renewing(kept, _) => kept,
        };
        if !kept.is_for(asker, now) {
            if being_read {
                return Lookup::Wait;
            }
            *self = Self::Renewing(kept.clone(), lease);
            return Lookup::Read(lease);
        }
        kept.asked = kept.asked.saturating_add(1);
        let value = kept.value.clone();
        let is_hot = kept.asked > HOT && (kept.renew_from..kept.until).contains(&now);
        if is_hot && !being_read {
            *self = Self::Renewing(kept.clone(), lease);
            return Lookup::Renew(value, lease);
        }
        Lookup::Found(value)
    }

    /// The value, where it may be given out to everybody.
    pub(super) fn peek(&self, now: u64) -> Option<V> {
        match self {
            Self::Kept(kept) | Self::Renewing(kept, _) if now < kept.until => Some(kept.value.clone()),
            _ => None,
        }
    }

    /// Gives the holder of a lease more time.
    pub(super) fn extend(&mut self, lease: &Lease, until: u64) {
        if let Self::Reading(held) | Self::Renewing(_, held) = self
            && held.began == lease.began
        {
            held.until = held.until.max(until);
        }
    }

    /// The holder of a lease has read it; `last` is the last ticket given out. False where somebody else holds the lease.
    pub(super) fn finish(
        &mut self,
        lease: &Lease,
        value: V,
        outcome: Outcome,
        now: u64,
        last: Ticket,
    ) -> bool {
        if self.lease().is_none_or(|held| held.began != lease.began) {
            return false;
        }
        let handed_over = now.saturating_add(HANDOVER_MILLIS);
        let kept = |bytes: usize, until, renew_from, shared_with| {
            let bytes = bytes.saturating_add(OVERHEAD);
            Kept { value, bytes, until, renew_from, asked: 0, shared_with, handed_over }
        };
        *self = Self::Kept(match (outcome, &*self) {
            (Outcome::Value { bytes, made_at, millis }, _) => {
                let until = made_at.saturating_add(millis);
                kept(bytes, until, due_for_renewal(made_at, millis), lease.began)
            }
            (Outcome::Derived { bytes, until }, _) => kept(bytes, until, u64::MAX, lease.began),
            (Outcome::Failure { .. }, Self::Kept(good) | Self::Renewing(good, _)) if now < good.until => {
                Kept { renew_from: now.saturating_add(RENEWAL_PAUSE_MILLIS), ..good.clone() }
            }
            (Outcome::Failure { millis }, _) => {
                let until = now.saturating_add(millis);
                kept(0, until, until, last)
            }
        });
        true
    }
}
