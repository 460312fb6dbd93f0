//! Fixed windows: the limit, the counts of one client, and the verdict.

/// The limit on a client's requests in a window. Windows are aligned to the clock: every client's window
/// starts at a multiple of `window_seconds`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowLimit {
    /// Requests admitted per window; 0 switches the limit off.
    pub requests: u32,
    /// Length of a window in seconds, at least 1.
    pub window_seconds: u64,
}

/// The counts that one instance has of one client in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowTally {
    pub(super) window: u64,
    pub(super) own: u32,
    pub(super) others: u32,
    pub(super) publication: Publication,
}

/// The state of an instance's exchange with the shared store about a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Publication {
    /// The count last written.
    pub(super) published: u32,
    /// Time of the last write, unix milliseconds.
    pub(super) published_at: u64,
    /// Time of the last read of the others' counts, unix milliseconds.
    pub(super) read_at: u64,
    /// Unix millisecond until which a sync task is under way, which publishes all that is counted by then. A
    /// task that has not published by then was lost with its request.
    pub(super) under_way_until: u64,
}

impl Publication {
    /// Returns the state at the beginning of a window: nothing is published, read or under way, but the pause
    /// between two writes holds across windows.
    pub(super) const fn in_a_new_window(self) -> Self {
        Self { published: 0, published_at: self.published_at, read_at: 0, under_way_until: 0 }
    }
}

/// The decision on a request, and the rest of its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitVerdict {
    /// True if the request is admitted.
    pub admitted: bool,
    /// Requests per window: `X-RateLimit-Limit`, `q` of `RateLimit-Policy`.
    pub limit: u32,
    /// Length of the window in seconds: `w` of `RateLimit-Policy`.
    pub window_seconds: u64,
    /// Requests left in this window: `X-RateLimit-Remaining`, `r` of `RateLimit`.
    pub remaining: u32,
    /// Unix second at which the window ends: `X-RateLimit-Reset`.
    pub resets_at: u64,
    /// Seconds until the window ends, at least 1: `Retry-After`, `t` of `RateLimit`.
    pub retry_after: u64,
}

impl WindowLimit {
    /// Returns the number of the window that `now` (unix seconds) falls into.
    pub const fn window(&self, now: u64) -> u64 {
        match now.checked_div(self.window_seconds) {
            Some(window) => window,
            None => now,
        }
    }

    /// Returns the window in which a request at `now` counts: the tally's own if that is the next one, as a
    /// request from just before it began must not reset its counts. A clock that is set back further does.
    const fn window_in(&self, tally: &WindowTally, now: u64) -> u64 {
        let window = self.window(now);
        if window.saturating_add(1) == tally.window { tally.window } else { window }
    }

    /// Counts one request at `now`, if it is admitted. Returns `None` if the limit is off.
    pub fn charge(&self, tally: &mut WindowTally, now: u64) -> Option<RateLimitVerdict> {
        self.charge_for(tally, now, 1)
    }

    /// Counts a request as `cost` requests, at most a whole window. It is admitted whole or not at all.
    pub fn charge_for(&self, tally: &mut WindowTally, now: u64, cost: u32) -> Option<RateLimitVerdict> {
        let before = self.peek(tally, now)?;
        let cost = cost.clamp(1, self.requests);
        let Some(remaining) = before.remaining.checked_sub(cost) else {
            return Some(RateLimitVerdict { admitted: false, ..before });
        };
        tally.enter(self.window_in(tally, now));
        tally.own = tally.own.saturating_add(cost);
        Some(RateLimitVerdict { admitted: true, remaining, ..before })
    }

    /// Returns the verdict on a request at `now`, without counting it.
    pub fn peek(&self, tally: &WindowTally, now: u64) -> Option<RateLimitVerdict> {
        if self.requests == 0 {
            return None;
        }
        let window = self.window_in(tally, now);
        let used = if tally.window == window { tally.own.saturating_add(tally.others) } else { 0 };
        let remaining = self.requests.saturating_sub(used);
        let resets_at = window.saturating_add(1).saturating_mul(self.window_seconds.max(1));
        Some(RateLimitVerdict {
            admitted: remaining > 0,
            limit: self.requests,
            window_seconds: self.window_seconds,
            remaining,
            resets_at,
            retry_after: resets_at.saturating_sub(now).max(1),
        })
    }
}

impl WindowTally {
    /// Returns the number of the window that the counts belong to.
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// Returns the number of requests counted by this instance.
    pub const fn own(&self) -> u32 {
        self.own
    }

    /// Begins a window, unless it is the current one.
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

    const PER_MINUTE: WindowLimit = WindowLimit { requests: 60, window_seconds: 60 };

    fn admitted(limit: WindowLimit, tally: &mut WindowTally, now: u64) -> bool {
        limit.charge(tally, now).is_none_or(|verdict| verdict.admitted)
    }

    #[test]
    fn the_61st_request_of_a_minute_waits_for_the_next() {
        let mut tally = WindowTally::default();
        for used in 1..=60 {
            let verdict = PER_MINUTE.charge(&mut tally, 125).unwrap();
            assert_eq!((verdict.admitted, verdict.remaining), (true, 60 - used));
        }
        let refused = PER_MINUTE.charge(&mut tally, 179).unwrap();
        let (resets_at, retry_after) = (180, 1);
        let (limit, window_seconds) = (60, 60);
        let expected =
            RateLimitVerdict { admitted: false, limit, window_seconds, remaining: 0, resets_at, retry_after };
        assert_eq!(refused, expected);
        assert!(admitted(PER_MINUTE, &mut tally, 180));
        assert_eq!(WindowLimit { requests: 0, ..PER_MINUTE }.charge(&mut tally, 1), None, "no limit");
    }

    #[test]
    fn a_request_that_counts_for_ten_is_admitted_whole_or_not_at_all() {
        let mut tally = WindowTally::default();
        for used in 1..=5 {
            let verdict = PER_MINUTE.charge_for(&mut tally, 125, 10).unwrap();
            assert_eq!((verdict.admitted, verdict.remaining), (true, 60 - 10 * used));
        }
        PER_MINUTE.charge(&mut tally, 125);
        let refused = PER_MINUTE.charge_for(&mut tally, 125, 10).unwrap();
        assert_eq!((refused.admitted, refused.remaining), (false, 9), "nothing is counted");
        assert!(PER_MINUTE.charge_for(&mut tally, 125, 9).unwrap().admitted, "what is left is still there");
        let narrow = WindowLimit { requests: 5, ..PER_MINUTE };
        let charged = narrow.charge_for(&mut WindowTally::default(), 125, 10).unwrap();
        assert!(charged.admitted, "a whole window at most");
    }

    #[test]
    fn a_request_from_before_the_window_counts_in_it_and_a_clock_set_back_locks_no_client_out() {
        let mut tally = WindowTally::default();
        for _ in 0..59 {
            PER_MINUTE.charge(&mut tally, 3_660);
        }
        let late = PER_MINUTE.charge(&mut tally, 3_659).unwrap();
        assert_eq!((late.admitted, late.remaining, late.resets_at), (true, 0, 3_720));
        assert_eq!(PER_MINUTE.peek(&tally, 3_659).unwrap().remaining, 0);
        assert!(!admitted(PER_MINUTE, &mut tally, 3_659));
        assert!(!admitted(PER_MINUTE, &mut tally, 3_660));
        assert!(admitted(PER_MINUTE, &mut tally, 60));
    }

    proptest! {
        #[test]
        fn a_window_never_admits_more_than_its_limit(
            requests in 1u32..50,
            window_seconds in 1u64..100,
            mut times in prop::collection::vec((0u64..1_000, any::<bool>()), 0..400),
        ) {
            times.sort_unstable();
            let limit = WindowLimit { requests, window_seconds };
            let mut tally = WindowTally::default();
            let mut per_window = std::collections::BTreeMap::<u64, (u32, u32)>::new();
            let mut current = 0;
            for (time, is_late) in times {
                let now = if is_late { time.saturating_sub(window_seconds) } else { time };
                current = current.max(now / window_seconds);
                let (asked, given) = per_window.entry(current).or_default();
                *asked += 1;
                *given += u32::from(admitted(limit, &mut tally, now));
            }
            for (asked, given) in per_window.into_values() {
                prop_assert_eq!(given, asked.min(requests));
            }
        }

        #[test]
        fn no_time_or_count_overflows(requests: u32, window_seconds: u64, now: u64, others: u32) {
            let limit = WindowLimit { requests, window_seconds };
            let mut tally = WindowTally::default();
            limit.charge(&mut tally, now);
            tally.merge(tally.window(), others);
            if let Some(verdict) = limit.charge(&mut tally, now) {
                prop_assert!(verdict.retry_after >= 1 && verdict.remaining <= requests);
            }
        }
    }
}
