//! Retries: what the store refuses now it may take in a moment.

use std::{sync::Arc, time::Duration};

use alloy::primitives::B256;

use super::{
    Relayer,
    backoff::{FIRST_PAUSE, LONGEST_PAUSE, RelayStep},
    given_up::{DropDecision, pause_after},
    inflight::Runner,
    patience::Patience,
};
use crate::{
    chain::ChainNode,
    outcome::{ErrorCode, Failure, RelayOutcome},
    process::shutdown::unless_stopped,
    store::{NewRelay, Store, StoreError},
};

impl<C: ChainNode> Relayer<C> {
    /// Retries a relay that the sender could not give a nonce to: nothing of it is stored or sent.
    pub(super) async fn unsent(self: Arc<Self>, id: B256, failure: Failure) {
        let blocked = self.inflight.patience(id, |it| it.blocked(RelayStep::Send));
        let is_patient = blocked < self.terms.patience;
        if matches!(
            failure.code,
            ErrorCode::RpcFailed
                | ErrorCode::RpcTimeout
                | ErrorCode::JournalFailed
                | ErrorCode::StoreUnavailable
        ) {
            self.backoff.failed(RelayStep::Send, failure.clone());
        } else if failure.code == ErrorCode::SignerFailed {
            if !self.accounts.can_sign() {
                self.backoff.failed(RelayStep::Send, failure.clone());
            } else if is_patient {
                // Another account takes it, at once.
                tracing::info!(relay = %id, "goes to another account");
                if let Some(relay) = self.accepted(id).await {
                    self.run_again(relay);
                }
                return;
            }
        }
        if !is_patient {
            return self.drop_relay(id, failure).await;
        }
        tracing::warn!(relay = %id, reason = failure.message(), "not sent, waits and tries again");
        // Waits as long again as it has so far.
        if self.sleep(blocked.clamp(FIRST_PAUSE, LONGEST_PAUSE)).await
            && let Some(relay) = self.accepted(id).await
        {
            self.run(relay).await;
        }
    }

    /// Runs a stored relay again: after a restart, or after a foreign transaction used its nonce.
    pub fn resume(self: &Arc<Self>, relay: NewRelay) {
        self.inflight.run_stored(relay.id, relay.signer, relay.forward_nonce, relay.client.is_some());
        self.inflight.patience(relay.id, std::mem::take);
        self.run_again(relay);
    }

    /// Runs a relay that other daemons had, or handed over.
    pub fn run_claimed(self: &Arc<Self>, relay: NewRelay) {
        self.inflight.run_stored(relay.id, relay.signer, relay.forward_nonce, relay.client.is_some());
        self.inflight.patience(relay.id, Patience::returned);
        self.run_again(relay);
    }

    /// Returns whether a relay that no account here can pay for waits on. That is bounded, since it reserves
    /// its share of the budget and is simulated again and again.
    pub(super) fn awaits_funds(&self, id: B256) -> bool {
        self.inflight.patience(id, Patience::unpaid) < self.terms.patience
    }

    /// Runs a relay in a task of its own.
    pub(super) fn run_again(self: &Arc<Self>, relay: NewRelay) {
        tokio::spawn(Arc::clone(self).run(relay));
    }

    /// Ends a relay of which nothing was mined. Clients get the outcome only once it is stored: a relay that
    /// is still pending in the store is executed after a restart. One that a transaction which was given up
    /// may execute waits.
    pub(super) async fn drop_relay(self: &Arc<Self>, id: B256, failure: Failure) {
        let outcome = loop {
            if *self.stopping.borrow() {
                // It stays in the store for the next start.
                return;
            }
            let ending = match self.ending(id, failure.clone()).await {
                None => return,
                Some(DropDecision::Known(outcome)) => break outcome,
                Some(ending) => ending,
            };
            let is_unused = !matches!(ending, DropDecision::Open { is_unused: false });
            let waited = self.inflight.patience(id, Patience::refused);
            let (pause, is_checked_anew) = pause_after(failure.code, waited, is_unused);
            tracing::warn!(relay = %id, reason = failure.message(), "waits: a transaction that was given up may execute it");
            if !self.sleep(pause).await || self.inflight.age(id).is_none() {
                return;
            }
            if is_checked_anew || matches!(ending, DropDecision::Anew) {
                if let Some(relay) = self.accepted(id).await {
                    self.run_again(relay);
                }
                return;
            }
        };
        let clock = self.clock.clone();
        let write = move |store: &Store| store.finish_unsent(id, &outcome, clock.now());
        if let Some(outcome) = self.retry(id, "dropped relay not journalled", write).await {
            self.finished(id, outcome);
        }
    }

    /// Reads a relay as it was accepted. Returns `None` where [`retry`](Self::retry) does.
    pub(super) async fn accepted(&self, id: B256) -> Option<NewRelay> {
        let stored = move |store: &Store| store.accepted(id)?.ok_or(StoreError::Missing("relay"));
        self.retry(id, "journal not read", stored).await
    }

    /// Ends a relay that was accepted and is not in the store any more, as after a failover that lost
    /// commits: what has become of it is not known, and nothing waits for it.
    pub(super) fn lost(&self, id: B256) {
        tracing::error!(relay = %id, "accepted, and not in the journal any more");
        self.finished(id, RelayOutcome::Dropped { failure: Failure::of(ErrorCode::StoreUnavailable) });
    }

    /// Retries a store operation until it succeeds, with exponential backoff. Returns `None` at shutdown, if
    /// another daemon runs the relay by now, or if the store has lost it.
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
                Err(StoreError::Missing("relay")) => {
                    self.lost(id);
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

    /// Waits for `duration`. Returns `false` at shutdown.
    pub(super) async fn sleep(&self, duration: Duration) -> bool {
        let mut stopping = self.stopping.clone();
        unless_stopped(&mut stopping, tokio::time::sleep(duration)).await.is_some()
    }
}
