//! Permits to check a relay against the chain: where there are API keys, relays without one share half of them.

use tokio::sync::{Semaphore, SemaphorePermit};

/// The permits.
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
    /// So many permits.
    pub(super) fn new(count: usize) -> Self {
        Self { all: Semaphore::new(count), without_key: Semaphore::new(count.div_ceil(2)) }
    }

    /// Waits for a permit; with `is_shared`, for one of those that relays without a key share. `None` once
    /// there are none any more.
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
        let permits = CheckPermits::new(4);
        let _held =
            [true, true].map(|is_shared| permits.acquire(is_shared).now_or_never().flatten().unwrap());
        assert!(permits.acquire(true).now_or_never().is_none());
        let with_key = permits.acquire(false).now_or_never().flatten();
        assert!(with_key.is_some());
    }
}
