//! Limits on the reads that strangers can cause: their number for one request, their rate for all, and their
//! time. Proxies and the npm package wait six seconds for a gate.

use crate::{
    chain::{Freshness, Limits},
    eth::timestamp::Timestamp,
};

/// Milliseconds that the read API may take for a verdict.
pub const API_TIMEOUT_MS: u32 = 4_000;

/// Returns the limits of a gate's query at `now`, to endpoints with a block of the last
/// `max_head_age_seconds`; 0 accepts any block.
pub fn limits(now: Timestamp, max_head_age_seconds: u64) -> Limits {
    let freshness =
        (max_head_age_seconds > 0).then_some(Freshness { now, max_age_seconds: max_head_age_seconds });
    // An endpoint that hangs leaves time for the next one.
    Limits { timeout_ms: 2_500, deadline_ms: 4_500, freshness, ..Limits::default() }
}

/// The reads of accounts that one request may cause, whatever the number of its signatures.
const READS_OF_A_REQUEST: u32 = 2;

/// The reads that are left to a request.
#[derive(Debug)]
pub struct Allowance(u32);

impl Allowance {
    /// Returns the allowance of a new request.
    pub const fn of_a_request() -> Self {
        Self(READS_OF_A_REQUEST)
    }

    /// Takes a read; returns whether one was left.
    pub const fn take(&mut self) -> bool {
        let left = self.0.checked_sub(1);
        if let Some(left) = left {
            self.0 = left;
        }
        left.is_some()
    }
}

/// Returns the part of a limit that is kept for signatures of the key that they name: none from these, half
/// from others, which cost nothing to make.
#[must_use]
pub const fn reserve(limit: u32, is_of_key: bool) -> u32 {
    if is_of_key { 0 } else { limit / 2 }
}

/// The reads that are left to all requests: a token bucket that fills in a second.
#[derive(Clone, Copy, Debug)]
pub struct ReadRate {
    per_second: u32,
    left: f64,
    since: f64,
}

impl ReadRate {
    /// Starts with a full bucket. Times are in seconds, by any clock.
    pub fn new(per_second: u32, now: f64) -> Self {
        Self { per_second, left: per_second.into(), since: now }
    }

    /// Takes a read; returns whether one was left beside the [reserve]. A `now` before that of the last read
    /// counts as a clock that was set back: the time since then is credited again.
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
