//! The types in which a cache and its callers agree on a read: arrivals, leases and outcomes.

/// When a caller came, in the order of all callers of one [`Cache`](super::Cache).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival(pub(super) u64);

/// Milliseconds that a lease lasts. A reader that lives extends it every [`BEAT_MILLIS`], so that a lost one
/// delays the others no longer than that, whatever it was waiting for.
pub const LEASE_MILLIS: u64 = 5_000;
/// Milliseconds between two extensions of a lease. A clock that stands still while an instance computes, and
/// a busy machine, leave out some.
pub const BEAT_MILLIS: u64 = 1_000;
/// Milliseconds until a waiting caller looks for the first time.
pub const FIRST_PAUSE_MILLIS: u64 = 4;
const LONGEST_PAUSE_MILLIS: u64 = 250;

/// Milliseconds until a waiting caller looks again after a pause of so many: short at first, as most reads
/// are, and a quarter of a second in the end, as each look costs processor time.
pub const fn next_pause(millis: u64) -> u64 {
    let next = millis + millis.div_ceil(4);
    if next < LONGEST_PAUSE_MILLIS { next } else { LONGEST_PAUSE_MILLIS }
}

/// The right to read a key's value, until it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLease {
    pub(super) began: Arrival,
    /// When the lease expires, unix milliseconds.
    pub(super) until: u64,
}

/// What a caller has to do.
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

/// What came of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// A value.
    Value {
        /// What it takes in memory.
        bytes: usize,
        /// When it was made, unix milliseconds; before the read where it comes from another cache.
        made_at: u64,
        /// Its TTL from then on, in milliseconds; 0 is for coalesced callers alone.
        millis: u64,
        /// When it is read again before its TTL ends.
        renewal: Renewal,
    },
    /// A failure.
    Failure {
        /// Milliseconds from now on in which it is certain to repeat; 0 where a retry may succeed at once.
        millis: u64,
    },
}

/// When a value is read again before its TTL ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// In the last tenth of its TTL, if it is asked for often.
    IfHot,
    /// In the last third of its TTL, for the first caller then.
    InLastThird,
}

/// When a value becomes due for renewal, if it is asked for often: in the last tenth of its TTL. Unix
/// milliseconds.
pub const fn due_for_renewal(made_at: u64, millis: u64) -> u64 {
    made_at.saturating_add(millis - millis / 10)
}
