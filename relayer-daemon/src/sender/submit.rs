//! A batch of relays on its way out: nonces, signatures, store, network, in this order.

use alloy::primitives::B256;

use super::{Event, Job, Sender, Trouble};
use crate::{
    chain::Node,
    faults,
    outcome::Failure,
    transaction::{NonceAssignment, RelayTerms},
};

impl<N: Node> Sender<N> {
    /// Gives each job a nonce, journals its signed transaction, and sends it. A job that cannot be journalled
    /// goes back to the pipeline; one that is journalled is looked after until its nonce is mined.
    pub async fn submit(&mut self, mut jobs: Vec<Job>) {
        // One request never has two nonces: what is in flight already (after a reorganisation) stays at its own.
        jobs.retain(|job| !self.carries(job.relay.id));
        if jobs.is_empty() {
            return;
        }
        self.head = jobs.iter().map(|job| job.head).fold(self.head, u64::max);
        let relays: Vec<RelayTerms> = jobs.iter().map(|job| job.relay).collect();
        match self.assign(jobs).await {
            Ok(nonces) => {
                self.send(&nonces).await;
                faults::point("after_send");
            }
            Err(trouble) => {
                tracing::error!(%trouble, relays = relays.len(), "not journalled, so not sent");
                let failure = match trouble {
                    Trouble::Rpc(error) => error.into(),
                    Trouble::Store(_) | Trouble::Signing(_) => Failure::journal(),
                };
                for relay in relays {
                    self.tell(Event::Unsent(relay.id, failure.clone()));
                }
            }
        }
    }

    fn carries(&self, id: B256) -> bool {
        self.slots.values().any(|tracked| tracked.slot.relay.is_some_and(|relay| relay.id == id))
    }

    /// The next nonce: never a stored counter.
    async fn next_nonce(&self) -> Result<u64, Trouble> {
        let chain = self.node.pending_nonce().await?;
        let account = self.wallet.address();
        let stored = self.store.run(move |store| store.next_nonce(account)).await?;
        Ok(chain.max(stored.unwrap_or_default()))
    }

    /// Nonces, signatures, store; for all of the jobs or for none, so that no hole is left.
    async fn assign(&mut self, jobs: Vec<Job>) -> Result<Vec<u64>, Trouble> {
        let first = self.next_nonce().await?;
        faults::point("after_nonce");
        let mut slots = Vec::with_capacity(jobs.len());
        for (nonce, job) in (first..).zip(jobs) {
            let transaction = self.wallet.relay(nonce, job.calldata, job.gas_limit, job.fees)?;
            slots.push(NonceAssignment { nonce, relay: Some(job.relay), transactions: vec![transaction] });
        }
        faults::point("after_sign");
        self.write(&slots).await?;
        faults::point("after_journal");
        let nonces = slots.iter().map(|slot| slot.nonce).collect();
        slots.into_iter().for_each(|slot| self.track(slot));
        Ok(nonces)
    }
}
