//! Trying again: what the store refuses now it may take in a moment.

use std::time::Duration;

use alloy::primitives::B256;

use super::{
    Relayer,
    backoff::{FIRST_PAUSE, LONGEST_PAUSE},
    inflight::Runner,
};
use crate::{
    chain::ChainNode,
    process::shutdown::stopped,
    store::{NewRelay, Store, StoreError},
};

impl<C: ChainNode> Relayer<C> {
    /// A relay as it was accepted, retried until the store answers. `None` if not stored, or at shutdown.
    pub(super) async fn accepted(&self, id: B256) -> Option<NewRelay> {
        let relay = self.retry(id, "journal not read", move |store| store.accepted(id)).await?;
        if relay.is_none() {
            tracing::error!(relay = %id, "not in the journal");
        }
        relay
    }

    /// Retries a store operation until it succeeds, with exponential backoff. `None` at shutdown, and where
    /// another daemon runs the relay by now.
    pub(super) async fn retry<T: Send + 'static>(
        &self,
        id: B256,
        problem: &str,
        work: impl Fn(&Store) -> Result<T, StoreError> + Clone + Send + 'static,
    ) -> Option<T> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.store.run(work.clone()).await {
                Ok(value) => return Some(value),
                Err(StoreError::HeldElsewhere) => {
                    self.inflight.set_runner(id, Runner::Elsewhere);
                    return None;
                }
                Err(error) => tracing::error!(%error, relay = %id, "{problem}"),
            }
            if !self.pause(&mut pause).await {
                return None;
            }
        }
    }

    /// Waits before a retry, with exponential backoff. Returns `false` at shutdown.
    async fn pause(&self, pause: &mut Duration) -> bool {
        let goes_on = self.sleep(*pause).await;
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        goes_on
    }

    /// Waits. Returns `false` at shutdown.
    pub(super) async fn sleep(&self, duration: Duration) -> bool {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            () = stopped(&mut stopping) => false,
            () = tokio::time::sleep(duration) => true,
        }
    }
}
