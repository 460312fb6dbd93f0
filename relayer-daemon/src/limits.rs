//! Who may ask how often: per client IP and per signer.
//!
//! `governor` is a leaky bucket: 20 per hour is a burst of 20 that refills by one every 3 minutes. What a
//! client's IP is, [`crate::http::client_address`] decides.

use std::{hash::Hash, net::IpAddr, num::NonZeroU32};

use alloy::primitives::Address;
use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock},
    middleware::NoOpMiddleware,
    state::keyed::HashMapStateStore,
};

/// A limit per hour and key; `None` lets everything through.
#[derive(Debug)]
pub struct HourlyLimit<K: Hash + Eq + Clone> {
    per_hour: u32,
    limiter: Option<RateLimiter<K, HashMapStateStore<K>, DefaultClock, NoOpMiddleware>>,
    clock: DefaultClock,
}

impl<K: Hash + Eq + Clone> HourlyLimit<K> {
    /// A limit of `per_hour`; 0 switches it off.
    #[must_use]
    pub fn new(per_hour: u32) -> Self {
        let clock = DefaultClock::default();
        let limiter = NonZeroU32::new(per_hour).map(|count| {
            RateLimiter::new(Quota::per_hour(count), HashMapStateStore::default(), clock.clone())
        });
        Self { per_hour, limiter, clock }
    }

    /// The limit, for messages.
    #[must_use]
    pub const fn per_hour(&self) -> u32 {
        self.per_hour
    }

    /// Charges `key` once.
    ///
    /// # Errors
    /// After how many seconds it may try again; nothing was charged.
    pub fn charge(&self, key: &K) -> Result<(), u64> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        limiter.check_key(key).map_err(|denied| {
            let wait = denied.wait_time_from(self.clock.now());
            wait.as_secs().saturating_add(1)
        })
    }

    /// Forgets keys whose bucket is full again, so that the map does not grow for ever.
    pub fn forget_idle(&self) {
        if let Some(limiter) = &self.limiter {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
    }
}

/// Both limits.
#[derive(Debug)]
pub struct Limits {
    /// Per client, see [`crate::http::client_address`].
    pub per_ip: HourlyLimit<IpAddr>,
    /// Per `request.from`, charged only once its signature was recovered: nobody can use up another's quota.
    pub per_signer: HourlyLimit<Address>,
}

impl Limits {
    /// Limits per hour; 0 switches one off.
    #[must_use]
    pub fn new(per_ip: u32, per_signer: u32) -> Self {
        Self { per_ip: HourlyLimit::new(per_ip), per_signer: HourlyLimit::new(per_signer) }
    }

    /// See [`HourlyLimit::forget_idle`].
    pub fn forget_idle(&self) {
        self.per_ip.forget_idle();
        self.per_signer.forget_idle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_a_burst_and_names_the_wait() {
        let limit = HourlyLimit::new(20);
        for _ in 0..20 {
            assert_eq!(limit.charge(&1), Ok(()));
        }
        let wait = limit.charge(&1).unwrap_err();
        assert!((1..=181).contains(&wait), "{wait}");
        assert_eq!(limit.charge(&2), Ok(()));
    }

    #[test]
    fn zero_switches_a_limit_off() {
        let limit = HourlyLimit::new(0);
        assert!((0..1_000).all(|_| limit.charge(&1).is_ok()));
    }

    #[test]
    fn keys_in_use_are_kept_when_idle_ones_are_forgotten() {
        let limit = HourlyLimit::new(1);
        assert_eq!(limit.charge(&1), Ok(()));
        limit.forget_idle();
        assert!(limit.charge(&1).is_err());
    }
}
