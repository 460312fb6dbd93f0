//! How much strangers can have read: a bound on the reads of one request, and on those of all per second; and
//! for how long. Proxies and the npm package wait six seconds for a gate.

use crate::{
    chain::{Freshness, Limits},
    eth::timestamp::Timestamp,
};

/// Milliseconds that the read API has for a verdict.
pub const API_TIMEOUT_MS: u32 = 4_000;

/// The limits of a gate's query at `now`, to endpoints with a block of the last `max_head_age_seconds`; 0
/// takes any.
pub fn limits(now: Timestamp, max_head_age_seconds: u64) -> Limits {
    let freshness =
        (max_head_age_seconds > 0).then_some(Freshness { now, max_age_seconds: max_head_age_seconds });
    // One endpoint that hangs leaves time for the next one.
    Limits { timeout_ms: 2_500, deadline_ms: 4_500, freshness, ..Limits::default() }
}

/// The reads of accounts that one request may cause, whatever the number of its signatures.
const READS_OF_A_REQUEST: u32 = 2;

/// What is left of a request's reads.
#[derive(Debug)]
pub struct Allowance(u32);

impl Allowance {
    /// That of a request of which nothing was read.
    pub const fn of_a_request() -> Self {
        Self(READS_OF_A_REQUEST)
    }

    /// Takes a read, if one is left.
    pub const fn take(&mut self) -> bool {
        let left = self.0.checked_sub(1);
        if let Some(left) = left {
            self.0 = left;
        }
        left.is_some()
    }
}

/// What of a limit is kept for signatures of the key that they name: half of it. Others cost nothing to make.
#[must_use]
pub const fn reserve(limit: u32, is_of_key: bool) -> u32 {
    if is_of_key { 0 } else { limit / 2 }
}

/// The reads that are left to all requests: a token bucket, which a second fills.
#[derive(Clone, Copy, Debug)]
pub struct ReadRate {
    per_second: u32,
    left: f64,
    since: f64,
}

impl ReadRate {
    /// A full one. Times are in seconds, by any clock.
    pub fn new(per_second: u32, now: f64) -> Self {
        Self { per_second, left: per_second.into(), since: now }
    }

    /// Takes a read, if one is left beside the [reserve]. `now` is the time of this read: an earlier one counts
    /// as a clock that was set back, and what has passed since then is credited again.
    pub fn take(&mut self, is_of_key: bool, now: f64) -> bool {
        let most = f64::from(self.per_second);
        self.left = (self.left + (now - self.since).max(0.0) * most).min(most);
        self.since = now;
        let is_left = self.left >= 1.0 + f64::from(reserve(self.per_second, is_of_key));
        if is_left {
            self.left -= 1.0;
        }
        is_left
    }
}
