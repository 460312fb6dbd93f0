//! Permits to check a relay against the chain: where there are API keys, relays without one share half of
//! them.

use tokio::sync::{Semaphore, SemaphorePermit};

/// Number of relays that are checked against the chain at the same time, besides [`CHECKS_OF_ACCOUNT`].
const CONCURRENT_CHECKS: usize = 16;
/// Additional concurrent checks for each account: a block makes room for as many relays.
const CHECKS_OF_ACCOUNT: usize = 16;

/// Permits for concurrent checks.
#[derive(Debug)]
pub struct CheckPermits {
    all: Semaphore,
    without_key: Semaphore,
}

/// A permit, held until an account has the relay.
#[derive(Debug)]
pub struct CheckPermit<'a> {
    _of_all: SemaphorePermit<'a>,
    _without_key: Option<SemaphorePermit<'a>>,
}

impl CheckPermits {
    /// Creates the permits of a daemon with this number of accounts.
    pub fn for_accounts(accounts: usize) -> Self {
        let count = CONCURRENT_CHECKS.saturating_add(accounts.saturating_mul(CHECKS_OF_ACCOUNT));
        Self { all: Semaphore::new(count), without_key: Semaphore::new(count.div_ceil(2)) }
    }

    /// Waits for a permit; with `is_shared`, for one of those that relays without a key share. Returns `None`
    /// once the semaphores are closed.
    pub(super) async fn acquire(&self, is_shared: bool) -> Option<CheckPermit<'_>> {
        let without_key = if is_shared { Some(self.without_key.acquire().await.ok()?) } else { None };
        Some(CheckPermit { _of_all: self.all.acquire().await.ok()?, _without_key: without_key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[test]
    fn relays_without_a_key_that_wait_leave_half_of_the_checks_to_those_with_one() {
        let permits = CheckPermits::for_accounts(0);
        let _held =
            [(); CONCURRENT_CHECKS / 2].map(|()| permits.acquire(true).now_or_never().flatten().unwrap());
        assert!(permits.acquire(true).now_or_never().is_none());
        let with_key = permits.acquire(false).now_or_never().flatten();
        assert!(with_key.is_some());
    }
}
