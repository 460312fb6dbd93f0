//! Who may ask how often: per client IP and per signer.
//!
//! `governor` is a leaky bucket: 20 per hour is a burst of 20 that refills by one every 3 minutes. What a
//! client's IP is, is decided here too: the socket's peer, unless the operator says how many proxies stand
//! before it.

use std::{
    hash::Hash,
    net::{IpAddr, SocketAddr},
    num::NonZeroU32,
};

use alloy::primitives::Address;
use governor::{
    Quota, RateLimiter,
    clock::{Clock, DefaultClock},
    middleware::NoOpMiddleware,
    state::keyed::HashMapStateStore,
};
use registry_core::window::network;

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
    /// Per client, see [`client_key`].
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

/// Whom a request counts for: the peer, or with `hops` trusted proxies the entry of `X-Forwarded-For` that
/// the outermost of them appended, counted from the right, since everything further left is the client's own
/// invention. A header that is too short or unreadable there means the peer.
#[must_use]
pub fn client_key(peer: SocketAddr, forwarded_for: &[&str], hops: usize) -> IpAddr {
    let client = hops.checked_sub(1).and_then(|skip| {
        let entries = forwarded_for.iter().flat_map(|header| header.split(','));
        address(entries.rev().nth(skip)?.trim())
    });
    network(client.unwrap_or_else(|| peer.ip()))
}

/// An entry of `X-Forwarded-For`: an address, with or without a port.
fn address(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    bare.parse().ok().or_else(|| text.parse().ok().map(|socket: SocketAddr| socket.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(peer: &str, forwarded_for: &[&str], hops: usize) -> String {
        client_key(peer.parse().unwrap(), forwarded_for, hops).to_string()
    }

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

    #[test]
    fn without_trusted_proxies_the_header_is_nothing() {
        assert_eq!(key("192.0.2.1:5", &["203.0.113.9"], 0), "192.0.2.1");
    }

    #[test]
    fn trusted_hops_are_counted_from_the_right() {
        let headers = ["6.6.6.6, 203.0.113.9", "198.51.100.7"];
        assert_eq!(key("192.0.2.1:5", &headers, 1), "198.51.100.7");
        assert_eq!(key("192.0.2.1:5", &headers, 2), "203.0.113.9");
        assert_eq!(key("192.0.2.1:5", &headers, 3), "6.6.6.6");
    }

    #[test]
    fn a_short_or_unreadable_header_means_the_peer() {
        for headers in [&[][..], &["203.0.113.9"], &["nonsense, 203.0.113.9"], &[",1.2.3.4"]] {
            assert_eq!(key("192.0.2.1:5", headers, 2), "192.0.2.1", "{headers:?}");
        }
    }

    #[test]
    fn ports_and_brackets_are_understood() {
        assert_eq!(key("192.0.2.1:5", &["203.0.113.9:4711"], 1), "203.0.113.9");
        assert_eq!(key("192.0.2.1:5", &["[2001:db8:1:2:3::4]:80"], 1), "2001:db8:1:2::");
        assert_eq!(key("192.0.2.1:5", &["[2001:db8:1:2:3::4]"], 1), "2001:db8:1:2::");
    }

    #[test]
    fn ipv6_counts_by_64_and_mapped_ipv4_as_ipv4() {
        assert_eq!(key("[2001:db8:1:2:aaaa::1]:5", &[], 0), "2001:db8:1:2::");
        assert_eq!(key("[2001:db8:1:2:bbbb::2]:5", &[], 0), "2001:db8:1:2::");
        assert_ne!(key("[2001:db8:1:3::1]:5", &[], 0), "2001:db8:1:2::");
        assert_eq!(key("[::ffff:192.0.2.1]:5", &[], 0), "192.0.2.1");
    }
}
