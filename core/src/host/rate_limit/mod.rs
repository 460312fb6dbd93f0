//! Rate limiting as arithmetic: fixed windows, counts and time in, a verdict out. Keeping the counts is the
//! host's part.
//!
//! One counter for a client is exact by itself ([`Limit::charge`]). A host that runs as many instances either
//! asks one counter from all of them ([`Limit::adopt`]), or lets every instance count and publish its count now and
//! then through a shared store ([`sharing`]). What is shared is late; it can only make a verdict stricter.

mod rate_limit_key;
pub mod sharing;

use serde::{Deserialize, Serialize};

pub use self::rate_limit_key::{Client, network};
use self::sharing::Publication;

/// So many requests per so many seconds. Windows are aligned to the clock: every client's window starts at
/// a multiple of `window_seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Requests admitted per window; 0 switches the limit off.
    pub requests: u32,
    /// Length of a window in seconds, at least 1.
    pub window_seconds: u64,
}

/// What one instance knows of one client in one window. Serialized it is what the instance counted, without what
/// others published.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    window: u64,
    own: u32,
    #[serde(skip)]
    others: u32,
    #[serde(skip)]
    publication: Publication,
}

/// Where a client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Whether the request may go on.
    pub admitted: bool,
    /// Requests per window: `X-RateLimit-Limit`, `q` of `RateLimit-Policy`.
    pub limit: u32,
    /// Length of the window in seconds: `w` of `RateLimit-Policy`.
    pub window_seconds: u64,
    /// Requests left in this window: `X-RateLimit-Remaining`, `r` of `RateLimit`.
    pub remaining: u32,
    /// Unix second at which the window ends: `X-RateLimit-Reset`.
    pub resets_at: u64,
    /// Seconds until then, at least 1: `Retry-After`, `t` of `RateLimit`.
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
        self.charge_for(tally, now, 1)
    }

    /// The same for a request that counts as `cost` of them, or as all of a window where that is fewer. It is admitted whole or
    /// not at all.
    pub fn charge_for(&self, tally: &mut Tally, now: u64, cost: u32) -> Option<Verdict> {
        let before = self.peek(tally, now)?;
        let cost = cost.clamp(1, self.requests);
        let Some(remaining) = before.remaining.checked_sub(cost) else {
            return Some(Verdict { admitted: false, ..before });
        };
        tally.enter(self.window(now));
        tally.own = tally.own.saturating_add(cost);
        Some(Verdict { admitted: true, remaining, ..before })
    }

    /// [`charge_for`](Self::charge_for) for somebody who knows of a count for this client: the higher one holds. So a counter
    /// that has lost its memory takes the count up again from whoever asks it.
    pub fn charge_knowing(&self, tally: &mut Tally, known: &Tally, now: u64, cost: u32) -> Option<Verdict> {
        let window = self.window(now);
        tally.enter(window);
        if known.window == window {
            tally.own = tally.own.max(known.own);
        }
        self.charge_for(tally, now, cost)
    }

    /// Where the client stands at `now`, without counting anything.
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
            window_seconds: self.window_seconds,
            remaining,
            resets_at,
            retry_after: resets_at.saturating_sub(now).max(1),
        })
    }

    /// Takes over what a counter for all instances said. Verdicts may come in any order: counts only grow, so
    /// the highest is the latest. The window is the verdict's, because the counter has a clock of its own.
    pub fn adopt(&self, tally: &mut Tally, verdict: &Verdict) {
        let window = self.window(verdict.resets_at.saturating_sub(1));
        if window > tally.window {
            tally.enter(window);
        }
        if window == tally.window {
            tally.own = tally.own.max(verdict.limit.saturating_sub(verdict.remaining));
        }
    }
}

impl Tally {
    /// The window these counts belong to.
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// Requests counted by this instance.
    pub const fn own(&self) -> u32 {
        self.own
    }

    /// Begins a window, unless it has begun.
    fn enter(&mut self, window: u64) {
        if self.window != window {
            *self = Self { window, publication: self.publication.in_a_new_window(), ..Self::default() };
        }
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
            Verdict {
                admitted: false,
                limit: 60,
                window_seconds: 60,
                remaining: 0,
                resets_at: 180,
                retry_after: 1
            }
        );
        assert!(admitted(PER_MINUTE, &mut tally, 180));
    }

    #[test]
    fn a_request_that_counts_for_ten_is_admitted_whole_or_not_at_all() {
        let mut tally = Tally::default();
        for used in 1..=5 {
            let verdict = PER_MINUTE.charge_for(&mut tally, 125, 10).unwrap();
            assert_eq!((verdict.admitted, verdict.remaining), (true, 60 - 10 * used));
        }
        PER_MINUTE.charge(&mut tally, 125);
        let refused = PER_MINUTE.charge_for(&mut tally, 125, 10).unwrap();
        assert_eq!((refused.admitted, refused.remaining), (false, 9), "nothing is counted");
        assert!(PER_MINUTE.charge_for(&mut tally, 125, 9).unwrap().admitted, "what is left is still there");
        let narrow = Limit { requests: 5, window_seconds: 60 };
        assert!(
            narrow.charge_for(&mut Tally::default(), 125, 10).unwrap().admitted,
            "a whole window at most"
        );
    }

    #[test]
    fn zero_switches_the_limit_off() {
        assert_eq!(Limit { requests: 0, window_seconds: 60 }.charge(&mut Tally::default(), 1), None);
    }

    #[test]
    fn a_counter_that_lost_its_memory_takes_the_count_up_from_who_asks() {
        let known = Tally { window: 2, own: 40, ..Tally::default() };
        let sent = serde_json::to_string(&known).unwrap();
        assert_eq!(sent, r#"{"window":2,"own":40}"#);
        let known = serde_json::from_str(&sent).unwrap();

        let mut counter = Tally::default();
        assert_eq!(PER_MINUTE.charge_knowing(&mut counter, &known, 120, 1).unwrap().remaining, 19);
        assert_eq!(PER_MINUTE.charge_knowing(&mut counter, &known, 121, 1).unwrap().remaining, 18);
        let fresh = Tally::default();
        assert_eq!(PER_MINUTE.charge_knowing(&mut counter, &fresh, 122, 1).unwrap().remaining, 17);
        assert_eq!(PER_MINUTE.charge_knowing(&mut counter, &known, 180, 1).unwrap().remaining, 59);
    }

    #[test]
    fn a_verdict_of_another_window_does_not_count_in_this_one() {
        let mut counter = Tally::default();
        let last_of_the_old = (0..60).filter_map(|_| PER_MINUTE.charge(&mut counter, 119)).last().unwrap();
        let first_of_the_new = PER_MINUTE.charge(&mut counter, 120).unwrap();

        let mut tally = Tally::default();
        PER_MINUTE.adopt(&mut tally, &first_of_the_new);
        PER_MINUTE.adopt(&mut tally, &last_of_the_old);
        assert_eq!(PER_MINUTE.peek(&tally, 120).unwrap().remaining, 59);
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

        /// Instances that ask one counter, and hear its verdicts in any order, know no more than it counted.
        #[test]
        fn verdicts_adopted_in_any_order_add_up_to_the_highest(
            requests in 1u32..50,
            asked in 1usize..80,
            order in prop::collection::vec(any::<prop::sample::Index>(), 1..80),
        ) {
            let limit = Limit { requests, window_seconds: 60 };
            let mut counter = Tally::default();
            let verdicts: Vec<_> = (0..asked).filter_map(|_| limit.charge(&mut counter, 60)).collect();
            let mut tally = Tally::default();
            let mut lowest = requests;
            for index in order {
                let verdict = index.get(&verdicts);
                limit.adopt(&mut tally, verdict);
                lowest = lowest.min(verdict.remaining);
                prop_assert_eq!(limit.peek(&tally, 60).unwrap().remaining, lowest);
            }
        }

        #[test]
        fn no_time_or_count_overflows(requests: u32, window_seconds: u64, now: u64, others: u32) {
            let limit = Limit { requests, window_seconds };
            let mut tally = Tally::default();
            limit.charge(&mut tally, now);
            tally.merge(tally.window(), others);
            if let Some(verdict) = limit.charge(&mut tally, now) {
                prop_assert!(verdict.retry_after >= 1 && verdict.remaining <= requests);
                limit.adopt(&mut tally, &verdict);
            }
        }
    }
}
