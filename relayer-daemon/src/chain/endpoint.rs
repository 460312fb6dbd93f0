//! One RPC endpoint, and when it is left alone: after a timeout it rests, and it holds a bounded number of sends.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use alloy::{network::Ethereum, providers::RootProvider};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// How long an endpoint is left alone after it timed out.
const REST: Duration = Duration::from_secs(30);
/// Transactions on their way to one endpoint at the same time. A silent endpoint holds no more than these until its
/// first timeout.
const SENDS: u32 = 64;

/// An endpoint.
pub(super) struct RpcEndpoint {
    /// Asks it.
    pub(super) provider: RootProvider<Ethereum>,
    /// Its scheme and host: what may be shown of it.
    pub(super) label: String,
    rests_until: Mutex<Option<Instant>>,
    sends: Arc<Semaphore>,
}

impl std::fmt::Debug for RpcEndpoint {
    /// The label alone: the provider knows the URL.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("RpcEndpoint").field(&self.label).finish()
    }
}

impl RpcEndpoint {
    pub(super) fn new(provider: RootProvider<Ethereum>, label: String) -> Self {
        let sends = Arc::new(Semaphore::new(SENDS as usize));
        Self { provider, label, rests_until: Mutex::default(), sends }
    }

    /// It timed out.
    pub(super) fn rest(&self) {
        let until = Instant::now() + REST;
        *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Whether it timed out a short while ago.
    pub(super) fn is_resting(&self) -> bool {
        let until = *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// The right to send it a transaction, held until it has answered; `None` while too many are on their way.
    pub(super) fn start_send(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.sends).try_acquire_owned().ok()
    }

    /// How many sends it has not answered.
    pub(super) fn unanswered(&self) -> usize {
        (SENDS as usize).saturating_sub(self.sends.available_permits())
    }

    /// Waits until it has answered every send.
    pub(super) async fn all_answered(&self) {
        let _ = self.sends.acquire_many(SENDS).await;
    }
}
