//! The time until which an account is this daemon's.
//!
//! In a fleet the account is leased, and the lease is renewed all the time. A daemon that fails to renew it,
//! or stood still, finds out by its own monotonic clock before it signs or sends. If it is wrong, the store
//! refuses what it writes: nothing is sent that was not written, and the epoch of a lease is never used
//! twice.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use tokio::time::Instant;

/// The right to use an account's nonces. Clones share it.
#[derive(Debug, Clone)]
pub struct Lease {
    epoch: Option<u64>,
    until: Arc<Mutex<Option<Instant>>>,
    ending: Arc<AtomicBool>,
}

impl Lease {
    /// Creates a lease without end: the account is this daemon's alone, for as long as it runs.
    pub fn forever() -> Self {
        Self { epoch: None, until: Arc::default(), ending: Arc::default() }
    }

    /// Creates a lease with this epoch.
    pub fn until(until: Instant, epoch: u64) -> Self {
        Self { epoch: Some(epoch), until: Arc::new(Mutex::new(Some(until))), ending: Arc::default() }
    }

    /// Returns its epoch; `None` for an account that is not leased.
    pub const fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// Notes a renewal.
    pub fn renewed(&self, until: Instant) {
        *self.until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Returns whether the account may send now.
    pub fn is_valid(&self) -> bool {
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_none_or(|until| Instant::now() < until)
    }

    /// Lets the account take no more relays: it is given back once nothing is in flight.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Keeps the account after all.
    pub fn keep(&self) {
        self.ending.store(false, Ordering::Relaxed);
    }

    /// Returns whether the account takes relays.
    pub fn takes_relays(&self) -> bool {
        self.is_valid() && !self.is_ending()
    }

    /// Returns whether the account is to be given back.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_by_itself_unless_it_is_renewed() {
        let start = Instant::now();
        let lease = Lease::until(start + Duration::from_secs(8), 3);
        assert!(lease.is_valid() && lease.takes_relays());
        tokio::time::advance(Duration::from_secs(5)).await;
        lease.renewed(start + Duration::from_secs(13));
        tokio::time::advance(Duration::from_secs(7)).await;
        assert!(lease.is_valid());
        lease.end();
        assert!(lease.is_valid() && !lease.takes_relays(), "it ends what it has");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!lease.is_valid());
        assert!(Lease::forever().is_valid());
    }
}
