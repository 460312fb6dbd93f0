//! The types in which a cache and its callers agree on a read: arrivals, leases and outcomes.

/// A caller's arrival, in the order of all callers of one [`Cache`](super::Cache).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival(pub(super) u64);

/// Milliseconds that a lease lasts. A live reader extends it every [`BEAT_MILLIS`], so a lost one delays the
/// others by no more than a lease, whatever it was waiting for.
pub const LEASE_MILLIS: u64 = 5_000;
/// Milliseconds between two extensions of a lease. Some are skipped by a busy machine, or by a clock that
/// stands still while an instance computes.
pub const BEAT_MILLIS: u64 = 1_000;
/// Milliseconds until a waiting caller looks for the first time.
pub const FIRST_PAUSE_MILLIS: u64 = 4;
const LONGEST_PAUSE_MILLIS: u64 = 250;

/// Returns the milliseconds until a waiting caller looks again after a pause of `millis`: short at first, as
/// most reads are, and a quarter of a second in the end, as each look costs processor time.
pub const fn next_pause(millis: u64) -> u64 {
    let next = millis + millis.div_ceil(4);
    if next < LONGEST_PAUSE_MILLIS { next } else { LONGEST_PAUSE_MILLIS }
}

/// The right to read a key's value, until it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLease {
    pub(super) began: Arrival,
    /// Time of expiry, unix milliseconds.
    pub(super) until: u64,
}

/// The result of a lookup: a value, or the caller's next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheLookup<V> {
    /// Take this value.
    Found(V),
    /// Take this value, and read the key again in the background, for later callers (refresh-ahead).
    Renew(V, ReadLease),
    /// Read the value, and [`finish`](super::Cache::finish).
    Read(ReadLease),
    /// Another caller is reading the value: look again a little later.
    Wait,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// A value.
    Value {
        /// Size in memory.
        bytes: usize,
        /// Time at which it was made, unix milliseconds; before the read if it comes from another cache.
        made_at: u64,
        /// Its TTL from `made_at` on, in milliseconds; with 0 only coalesced callers get it.
        millis: u64,
        /// The rule for reading it again before its TTL ends.
        renewal: Renewal,
    },
    /// A failure.
    Failure {
        /// Milliseconds from now on in which it is certain to repeat; 0 where a retry may succeed at once.
        millis: u64,
    },
}

/// A rule for reading a value again before its TTL ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// In the last tenth of its TTL, if it is often requested.
    IfHot,
    /// In the last third of its TTL, for the first caller then.
    InLastThird,
}

/// Returns the time, in unix milliseconds, from which a value that is often requested is renewed: the last
/// tenth of its TTL.
pub const fn due_for_renewal(made_at: u64, millis: u64) -> u64 {
    made_at.saturating_add(millis - millis / 10)
}
