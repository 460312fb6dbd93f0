//! Statistics of the store's writes: how long they wait, how long their transactions last, with the wait for
//! locks and the commit, and how many writes go into one.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Sums since the start. Times are microseconds.
#[derive(Debug, Default)]
pub struct StoreStats {
    waited: AtomicU64,
    writes: AtomicU64,
    commits: AtomicU64,
    lasted: AtomicU64,
}

impl StoreStats {
    /// Notes how long a write has waited for those before it.
    pub(super) fn waited(&self, time: Duration) {
        self.waited.fetch_add(micros(time), Ordering::Relaxed);
    }

    /// Notes a transaction of `writes` writes and its duration, commit included.
    pub(super) fn committed(&self, writes: usize, time: Duration) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.writes.fetch_add(writes as u64, Ordering::Relaxed);
        self.lasted.fetch_add(micros(time), Ordering::Relaxed);
    }

    /// Returns the number of transactions, and of writes in them.
    pub fn counts(&self) -> [u64; 2] {
        [&self.commits, &self.writes].map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns the seconds that writes have waited, and that transactions have lasted.
    #[expect(clippy::cast_precision_loss, reason = "a metric is a double")]
    pub fn seconds(&self) -> [f64; 2] {
        [&self.waited, &self.lasted].map(|micros| micros.load(Ordering::Relaxed) as f64 / 1e6)
    }
}

fn micros(time: Duration) -> u64 {
    time.as_micros().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_with_their_transactions_and_their_times() {
        let stats = StoreStats::default();
        stats.waited(Duration::from_millis(500));
        stats.committed(3, Duration::from_millis(250));
        assert_eq!((stats.counts(), stats.seconds()), ([1, 3], [0.5, 0.25]));
    }
}
