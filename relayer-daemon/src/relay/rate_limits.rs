//! Rate limits: requests per client IP and per signer, reads and polls per client IP.
//!
//! `governor` is a leaky bucket: 20 per hour is a burst of 20 that refills by one every 3 minutes. The HTTP
//! layer decides what a client's IP is. One customer may be routed a whole network of addresses, so each
//! network has a limit as well, [`OF_NETWORK`] times a client's.

use std::{hash::Hash, net::IpAddr, num::NonZeroU32};

use alloy::primitives::Address;
use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock},
    middleware::NoOpMiddleware,
    state::keyed::HashMapStateStore,
};

use crate::budget::share::site;

/// A limit per key; without a limiter every request passes.
#[derive(Debug)]
pub struct RateLimit<K: Hash + Eq + Clone> {
    count: u32,
    limiter: Option<RateLimiter<K, HashMapStateStore<K>, DefaultClock, NoOpMiddleware>>,
    clock: DefaultClock,
}

impl<K: Hash + Eq + Clone> RateLimit<K> {
    /// Allows `count` an hour; 0 switches the limit off.
    pub fn per_hour(count: u32) -> Self {
        Self::new(count, Quota::per_hour)
    }

    /// Allows `count` a minute; 0 switches the limit off.
    pub fn per_minute(count: u32) -> Self {
        Self::new(count, Quota::per_minute)
    }

    fn new(count: u32, quota: fn(NonZeroU32) -> Quota) -> Self {
        let clock = DefaultClock::default();
        let limiter = NonZeroU32::new(count)
            .map(|count| RateLimiter::new(quota(count), HashMapStateStore::default(), clock.clone()));
        Self { count, limiter, clock }
    }

    /// Returns the limit's number, for messages.
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// Charges `key` once.
    ///
    /// # Errors
    /// Seconds until a retry makes sense; nothing was charged.
    pub fn charge(&self, key: &K) -> Result<(), u64> {
        let Some(limiter) = &self.limiter else { return Ok(()) };
        limiter.check_key(key).map_err(|denied| {
            let wait = denied.wait_time_from(self.clock.now());
            wait.as_secs().saturating_add(1)
        })
    }

    /// Removes keys with a full bucket, so that the map does not grow for ever.
    pub fn forget_idle(&self) {
        if let Some(limiter) = &self.limiter {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
    }
}

/// A network's limit, as a multiple of a client's.
const OF_NETWORK: u32 = 8;

/// A limit per client, an IPv4 address or an IPv6 /64, with one for its network, an IPv4 /24 or an IPv6 /48.
#[derive(Debug)]
pub struct ClientLimit {
    client: RateLimit<IpAddr>,
    network: RateLimit<IpAddr>,
}

impl ClientLimit {
    fn new(count: u32, limit: fn(u32) -> RateLimit<IpAddr>) -> Self {
        Self { client: limit(count), network: limit(count.saturating_mul(OF_NETWORK)) }
    }

    /// Returns a client's limit, for messages.
    pub const fn count(&self) -> u32 {
        self.client.count()
    }

    /// Charges a client and its network once.
    ///
    /// # Errors
    /// Seconds until a retry makes sense.
    pub fn charge(&self, client: &IpAddr) -> Result<(), u64> {
        self.client.charge(client)?;
        self.network.charge(&site(client.to_canonical()))
    }

    fn forget_idle(&self) {
        self.client.forget_idle();
        self.network.forget_idle();
    }
}

/// All limits.
#[derive(Debug)]
pub struct RateLimits {
    /// Requests per client IP and hour.
    pub per_ip: ClientLimit,
    /// Requests per `request.from` and hour. Forged ones do not count: the signature is recovered first.
    pub per_signer: RateLimit<Address>,
    /// Reads that may cost an RPC call, per client IP and minute.
    pub reads: ClientLimit,
    /// Questions for a relay's state, which cost a read of the store, per client IP and minute.
    pub polls: ClientLimit,
}

impl RateLimits {
    /// Creates the limits: per hour, and of reads and polls per minute; 0 switches one off.
    pub fn new(per_ip: u32, per_signer: u32, reads: u32, polls: u32) -> Self {
        Self {
            per_ip: ClientLimit::new(per_ip, RateLimit::per_hour),
            per_signer: RateLimit::per_hour(per_signer),
            reads: ClientLimit::new(reads, RateLimit::per_minute),
            polls: ClientLimit::new(polls, RateLimit::per_minute),
        }
    }

    /// Removes idle keys, as [`RateLimit::forget_idle`] does.
    pub fn forget_idle(&self) {
        self.per_ip.forget_idle();
        self.per_signer.forget_idle();
        self.reads.forget_idle();
        self.polls.forget_idle();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_a_burst_and_names_the_wait_and_zero_switches_it_off() {
        let limit = RateLimit::per_hour(20);
        assert!((0..20).all(|_| limit.charge(&1).is_ok()));
        let wait = limit.charge(&1).unwrap_err();
        assert!((1..=181).contains(&wait), "{wait}");
        assert_eq!(limit.charge(&2), Ok(()));
        limit.forget_idle();
        assert!(limit.charge(&1).is_err(), "a key in use is forgotten");
        let off = RateLimit::per_hour(0);
        assert!((0..1_000).all(|_| off.charge(&1).is_ok()));
    }

    #[test]
    fn the_clients_of_a_network_share_a_limit() {
        let limit = ClientLimit::new(3, RateLimit::per_hour);
        let passed = |clients: &dyn Fn(u16) -> String| {
            (0..200).filter(|index| limit.charge(&clients(*index).parse().unwrap()).is_ok()).count()
        };
        assert_eq!(passed(&|index| format!("2001:db8:1:{index:x}::")), 24);
        assert_eq!(passed(&|index| format!("192.0.2.{}", index % 250)), 24);
        assert_eq!(passed(&|index| format!("2001:db8:{:x}::", index + 2)), 200, "networks of others");
        assert_eq!(passed(&|_| "198.51.100.1".to_owned()), 3);
    }
}
