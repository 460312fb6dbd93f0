//! The types in which a cache and its callers agree on a read: arrivals, leases and outcomes.

/// When a caller came, in the order of all callers of one [`Cache`](super::Cache).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival(pub(super) u64);

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
