//! One RPC endpoint with its backoff: after a timeout it rests, and its sends in flight are bounded.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use alloy::{network::Ethereum, providers::RootProvider};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

/// Time that an endpoint rests after a timeout.
const REST: Duration = Duration::from_secs(30);
/// Time for which a method that an endpoint lacks, or answers badly, is asked of the others first.
const AVOIDED: Duration = Duration::from_secs(60);
/// Sends to one endpoint at the same time: as many as a silent endpoint can hold up until its first timeout.
const SENDS: u32 = 64;

pub(super) struct EndpointState {
    /// Its client.
    pub(super) provider: RootProvider<Ethereum>,
    /// Its scheme and host, the public part of its URL.
    pub(super) label: String,
    rests_until: Mutex<Option<Instant>>,
    /// Methods that it lacks or answers badly, each with the time until which others are asked first.
    avoided: Mutex<HashMap<&'static str, Instant>>,
    /// The chain that it said it is of.
    chain_id: OnceLock<u64>,
    sends: Arc<Semaphore>,
}

impl std::fmt::Debug for EndpointState {
    /// Writes only the label: the provider's output has the URL.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("EndpointState").field(&self.label).finish()
    }
}

impl EndpointState {
    pub(super) fn new(provider: RootProvider<Ethereum>, label: String) -> Self {
        let sends = Arc::new(Semaphore::new(SENDS as usize));
        let (rests_until, avoided) = (Mutex::default(), Mutex::default());
        Self { provider, label, rests_until, avoided, chain_id: OnceLock::new(), sends }
    }

    /// Notes that it is of this chain.
    pub(super) fn is_of(&self, chain_id: u64) {
        let _ = self.chain_id.set(chain_id);
    }

    /// Returns whether it is known to be of this chain.
    pub(super) fn is_known_of(&self, chain_id: u64) -> bool {
        self.chain_id.get() == Some(&chain_id)
    }

    /// Puts this endpoint behind the others for a method, for a while. Returns whether it was not there yet.
    pub(super) fn avoid(&self, method: &'static str) -> bool {
        let now = Instant::now();
        let before = self.avoided().insert(method, now + AVOIDED);
        before.is_none_or(|until| until <= now)
    }

    /// Returns whether a method is asked of other endpoints first.
    pub(super) fn is_avoided(&self, method: &'static str) -> bool {
        self.avoided().get(method).is_some_and(|until| Instant::now() < *until)
    }

    fn avoided(&self) -> MutexGuard<'_, HashMap<&'static str, Instant>> {
        self.avoided.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets it rest after a timeout.
    pub(super) fn rest(&self) {
        let until = Instant::now() + REST;
        *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// Returns whether it rests after a timeout.
    pub(super) fn is_resting(&self) -> bool {
        let until = *self.rests_until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| Instant::now() < until)
    }

    /// Returns a permit to send to it, held until it has answered; `None` while too many are in flight.
    pub(super) fn start_send(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.sends).try_acquire_owned().ok()
    }

    /// Returns the number of sends that it has not answered.
    pub(super) fn unanswered(&self) -> usize {
        (SENDS as usize).saturating_sub(self.sends.available_permits())
    }

    /// Waits until it has answered every send.
    pub(super) async fn all_answered(&self) {
        let _ = self.sends.acquire_many(SENDS).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloy::{rpc::client::RpcClient, transports::mock::Asserter};

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_lacks_a_method_again_after_a_while_is_reported_again() {
        let provider = RootProvider::new(RpcClient::mocked(Asserter::new()));
        let endpoint = EndpointState::new(provider, String::new());
        for (seconds, is_reported) in [(0, true), (59, false), (59, false), (60, true), (1, false)] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            assert_eq!(endpoint.avoid("eth_feeHistory"), is_reported);
        }
    }
}
