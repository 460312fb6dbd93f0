//! Rate limiting as arithmetic: fixed windows, counts and time in, a verdict out. Keeping the counts is the
//! host's part.
//!
//! Two layers, because a host may run as many instances: every instance counts its own requests exactly
//! ([`Limit::charge`]), and instances tell one another now and then through a shared store what they counted
//! ([`Tally::share`]). The shared part is late by design; it can only make a verdict stricter.

use alloc::{format, string::String};
use core::net::{IpAddr, Ipv6Addr};

/// So many requests per so many seconds. Windows are aligned to the clock: every client's window starts at
/// a multiple of `window_seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Requests admitted per window; 0 switches the limit off.
    pub requests: u32,
    /// Length of a window in seconds, at least 1.
    pub window_seconds: u64,
}

/// What one instance knows of one client in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    window: u64,
    own: u32,
    others: u32,
    shared_own: u32,
    shared_at: u64,
}

/// What a client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the request may go on.
    pub admitted: bool,
    /// Requests per window: `X-RateLimit-Limit`.
    pub limit: u32,
    /// Requests left in this window: `X-RateLimit-Remaining`.
    pub remaining: u32,
    /// Unix second at which the window ends: `X-RateLimit-Reset`.
    pub resets_at: u64,
    /// Seconds until then, at least 1: `Retry-After`.
    pub retry_after: u64,
}

impl Limit {
    /// Which window `now` (unix seconds) falls into.
    pub const fn window(&self, now: u64) -> u64 {
        match now.checked_div(self.window_seconds) {
            Some(window) => window,
            None => now,
        }
    }

    /// Counts one request at `now` and says whether it may go on. A refused request is not counted. `None`
    /// where the limit is off.
    pub fn charge(&self, tally: &mut Tally, now: u64) -> Option<Verdict> {
        let before = self.peek(tally, now)?;
        if before.remaining == 0 {
            return Some(before);
        }
        if tally.window != self.window(now) {
            *tally = Tally { window: self.window(now), ..Tally::default() };
        }
        tally.own = tally.own.saturating_add(1);
        Some(Verdict { admitted: true, remaining: before.remaining - 1, ..before })
    }

    /// What the client would be told at `now`, without counting anything.
    pub fn peek(&self, tally: &Tally, now: u64) -> Option<Verdict> {
        if self.requests == 0 {
            return None;
        }
        let window = self.window(now);
        let used = if tally.window == window { tally.own.saturating_add(tally.others) } else { 0 };
        let remaining = self.requests.saturating_sub(used);
        let resets_at = window.saturating_add(1).saturating_mul(self.window_seconds.max(1));
        Some(Verdict {
            admitted: remaining > 0,
            limit: self.requests,
            remaining,
            resets_at,
            retry_after: resets_at.saturating_sub(now).max(1),
        })
    }
}

impl Tally {
    /// The window these counts belong to.
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// Whether this instance should tell the others at `now`: the client made more than `quiet` requests
    /// here, some of them untold, and the last telling is at least a second ago.
    pub const fn share_due(&self, quiet: u32, now: u64) -> bool {
        self.own > quiet && self.own > self.shared_own && now > self.shared_at
    }

    /// Notes that the sharing for `now` has begun, so that nobody begins a second one within the second.
    pub fn share_begins(&mut self, now: u64) {
        self.shared_at = now;
    }

    /// Takes in what the store holds for this client and window, and returns what to write there.
    pub fn share(&mut self, stored: u32) -> u32 {
        self.others = self.others.max(stored.saturating_sub(self.shared_own));
        self.others.saturating_add(self.own)
    }

    /// Notes that the store now holds `own` requests of this instance, as of the last [`share`](Self::share).
    pub fn shared(&mut self, own: u32) {
        self.shared_own = self.shared_own.max(own);
    }

    /// Requests counted by this instance.
    pub const fn own(&self) -> u32 {
        self.own
    }
}

/// The network a client counts as. IPv6 clients count by /64, the smallest block a site is given, so that
/// nobody gets 2^64 quotas; an IPv4 address mapped into IPv6 counts as itself.
pub const fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        address => address,
    }
}

/// The [`network`] a client counts as, as text.
pub fn client_key(address: IpAddr) -> String {
    match network(address) {
        IpAddr::V4(address) => format!("{address}"),
        IpAddr::V6(prefix) => format!("{prefix}/64"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PER_MINUTE: Limit = Limit { requests: 60, window_seconds: 60 };

    fn admitted(limit: Limit, tally: &mut Tally, now: u64) -> bool {
        limit.charge(tally, now).is_none_or(|verdict| verdict.admitted)
    }

    #[test]
    fn the_61st_request_of_a_minute_waits_for_the_next() {
        let mut tally = Tally::default();
        for used in 1..=60 {
            let verdict = PER_MINUTE.charge(&mut tally, 125).unwrap();
            assert_eq!((verdict.admitted, verdict.remaining), (true, 60 - used));
        }
        let refused = PER_MINUTE.charge(&mut tally, 179).unwrap();
        assert_eq!(
            refused,
            Verdict { admitted: false, limit: 60, remaining: 0, resets_at: 180, retry_after: 1 }
        );
        assert!(admitted(PER_MINUTE, &mut tally, 180));
    }

    #[test]
    fn zero_switches_the_limit_off() {
        assert_eq!(Limit { requests: 0, window_seconds: 60 }.charge(&mut Tally::default(), 1), None);
    }

    #[test]
    fn two_instances_that_share_see_one_anothers_requests() {
        let (mut here, mut there, mut store) = (Tally::default(), Tally::default(), 0);
        for _ in 0..30 {
            assert!(admitted(PER_MINUTE, &mut here, 60));
            assert!(admitted(PER_MINUTE, &mut there, 60));
        }
        let mut tell = |instance: &mut Tally| {
            store = instance.share(store);
            instance.shared(instance.own());
        };
        tell(&mut here);
        tell(&mut there);
        tell(&mut here);
        assert_eq!(store, 60);
        assert!(!admitted(PER_MINUTE, &mut here, 61));
        assert!(!admitted(PER_MINUTE, &mut there, 61));
    }

    #[test]
    fn a_client_of_few_requests_is_never_shared() {
        let mut tally = Tally::default();
        for _ in 0..5 {
            admitted(PER_MINUTE, &mut tally, 60);
        }
        assert!(!tally.share_due(5, 100));
        admitted(PER_MINUTE, &mut tally, 100);
        assert!(tally.share_due(5, 100));
        tally.share_begins(100);
        assert!(!tally.share_due(5, 100), "one write per second and client");
        assert!(tally.share_due(5, 101));
    }

    #[test]
    fn ipv6_counts_by_64_and_mapped_ipv4_as_ipv4() {
        let key = |text: &str| client_key(text.parse().unwrap());
        assert_eq!(key("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(key("2001:db8:1:2::"), key("2001:db8:1:2:ffff:ffff:ffff:ffff"));
        assert_ne!(key("2001:db8:1:2::"), key("2001:db8:1:3::"));
        assert_eq!(key("::ffff:192.0.2.7"), key("192.0.2.7"));
    }

    proptest! {
        #[test]
        fn a_window_never_admits_more_than_its_limit(
            requests in 1u32..50,
            window_seconds in 1u64..100,
            mut times in prop::collection::vec(0u64..1_000, 0..400),
        ) {
            times.sort_unstable();
            let limit = Limit { requests, window_seconds };
            let mut tally = Tally::default();
            let mut per_window = std::collections::BTreeMap::<u64, (u32, u32)>::new();
            for now in times {
                let (asked, given) = per_window.entry(now / window_seconds).or_default();
                *asked += 1;
                *given += u32::from(admitted(limit, &mut tally, now));
            }
            for (asked, given) in per_window.into_values() {
                prop_assert_eq!(given, asked.min(requests));
            }
        }

        #[test]
        fn no_time_or_count_overflows(requests: u32, window_seconds: u64, now: u64, stored: u32) {
            let limit = Limit { requests, window_seconds };
            let mut tally = Tally::default();
            limit.charge(&mut tally, now);
            tally.share(stored);
            if let Some(verdict) = limit.charge(&mut tally, now) {
                prop_assert!(verdict.retry_after >= 1 && verdict.remaining <= requests);
            }
        }
    }
}
