//! A batch of relays gets its nonces, signatures, and place in the store, and is then sent, in this order.

use std::{collections::BTreeSet, fmt::Display, time::Duration};

use alloy::primitives::B256;
use futures_util::future::{join_all, try_join_all};
use tokio::time::Instant;
use tracing::{Instrument as _, Span};

use super::{SendJob, Sender, SenderError, SenderEvent, nonce_state::NonceState};
use crate::{
    chain::{ChainNode, RpcError, SimulationResult},
    gas::fees::{Fees, Market},
    outcome::{ErrorCode, Failure},
    process::{faults, logging::SPANS},
    store::{NonceAssignment, Sendable, Store},
};

/// The most foreign pending transactions to believe in; after a wrong count as many no-ops fill the gap.
const FOREIGN_PENDING: u64 = 16;
/// Time for which a relay's check and its price are good. In a full pool a relay may wait for several blocks.
const FRESH: Duration = Duration::from_secs(3);

/// Transactions that were signed and stored together, to be sent.
#[derive(Debug)]
pub(super) struct SignedBatch {
    nonces: Vec<u64>,
    span: Span,
}

impl<N: ChainNode> Sender<N> {
    /// Gives each job a nonce and stores its signed transaction. A stored one is to be sent, and followed
    /// until its nonce is mined; one that cannot be stored, because the chain or the store fails, goes back
    /// to the pipeline. `pending` is the chain's pending count.
    pub(super) async fn submit(
        &self,
        mut jobs: Vec<SendJob>,
        pending: Result<u64, RpcError>,
    ) -> Option<SignedBatch> {
        if !self.parts.lease.is_valid() {
            self.give_back(jobs);
            return None;
        }
        if self.is_cordoned() {
            // Other accounts take them, or they wait until one is uncordoned.
            self.state().assigning = (0, 0);
            jobs.iter().for_each(|job| self.publish(SenderEvent::Requeue(job.relay.id)));
            self.made_room();
            return None;
        }
        // A request never has two nonces: one that is in flight (after a reorg) keeps its own, and one that
        // two runs of the pipeline have brought here gets one.
        let mut taken = BTreeSet::new();
        jobs.retain(|job| !self.is_in_flight(job.relay.id) && taken.insert(job.relay.id));
        let jobs = self.refresh(jobs).await;
        {
            let mut state = self.state();
            state.is_assigning(&jobs);
            state.head = jobs.iter().map(|job| job.head).fold(state.head, u64::max);
        }
        if jobs.is_empty() {
            self.made_room();
            return None;
        }
        let mut relays: Vec<B256> = jobs.iter().map(|job| job.relay.id).collect();
        let span = tracing::info_span!(target: SPANS, "sender.sign", ?relays);
        let assigned = self.assign(jobs, pending).instrument(span).await;
        {
            let mut state = self.state();
            state.assigning = (0, 0);
            state.health.failed_at = assigned.is_err().then(Instant::now);
        }
        match assigned {
            Ok(nonces) => {
                self.publish(SenderEvent::Sent);
                let span = tracing::info_span!(target: SPANS, "sender.send", ?nonces, ?relays);
                Some(SignedBatch { nonces, span })
            }
            Err(error) => {
                let failure = match error {
                    SenderError::Rpc(error) => unassigned(error, &relays),
                    SenderError::Store(error) => unassigned(error, &relays),
                    // The log has it. What waits behind them would wait for the same signer.
                    SenderError::Signing(_) => {
                        relays.extend(self.state().queue.drain(..).map(|job| job.relay.id));
                        Failure::of(ErrorCode::SignerFailed)
                    }
                };
                relays.into_iter().for_each(|id| self.publish(SenderEvent::Unsent(id, failure.clone())));
                self.made_room();
                None
            }
        }
    }

    pub(super) async fn send_batch(&self, SignedBatch { nonces, span }: SignedBatch) {
        self.send(&nonces).instrument(span).await;
        faults::point("after_send");
    }

    /// Gives jobs back to the pipeline, because the account is not this daemon's any more.
    pub(super) fn give_back(&self, jobs: Vec<SendJob>) {
        self.state().assigning = (0, 0);
        for job in jobs {
            self.publish(SenderEvent::Unsent(job.relay.id, Failure::of(ErrorCode::StoreUnavailable)));
        }
        self.made_room();
    }

    /// Retires the sender: its lease is over. Its queue goes back to the pipeline. Returns the relays it has
    /// in flight, which the account's next holder brings to their end.
    pub fn retire(&self) -> Vec<B256> {
        let jobs: Vec<SendJob> = {
            let mut state = self.state();
            state.is_retired = true;
            state.queue.drain(..).collect()
        };
        self.give_back(jobs);
        let state = self.state();
        let in_flight = state.nonces.values().filter_map(NonceState::in_flight);
        in_flight.filter_map(|in_flight| in_flight.assignment.relay).map(|relay| relay.id).collect()
    }

    /// Simulates and prices again what has waited since its check. What would not succeed now, or cannot be
    /// paid at today's price, goes back to the pipeline, which tells why.
    async fn refresh(&self, jobs: Vec<SendJob>) -> Vec<SendJob> {
        let (waited, mut fresh): (Vec<_>, Vec<_>) =
            jobs.into_iter().partition(|job| job.checked_at.elapsed() >= FRESH);
        if waited.is_empty() {
            return fresh;
        }
        let (node, account) = (&self.parts.node, self.account());
        let market = node.market().await;
        let simulations =
            join_all(waited.iter().map(|job| node.simulate(account, &job.calldata, job.gas_limit))).await;
        for (job, simulation) in waited.into_iter().zip(simulations) {
            let id = job.relay.id;
            let repriced = match (&market, simulation) {
                (Ok(market), Ok(SimulationResult::Success { .. })) => self.reprice(job, market).await,
                // A revert of the forwarder is a node's error: the pipeline tells which.
                (_, Ok(SimulationResult::InnerRevert(_)) | Err(_)) => {
                    self.publish(SenderEvent::Requeue(id));
                    continue;
                }
                (Err(error), _) => Err(error.clone().into()),
            };
            match repriced {
                Ok(job) => fresh.push(job),
                Err(failure) => self.publish(SenderEvent::Unsent(id, failure)),
            }
        }
        fresh
    }

    /// Returns the job at the market's fees, with a reservation that covers them.
    async fn reprice(&self, job: SendJob, market: &Market) -> Result<SendJob, Failure> {
        let fees = Fees::initial(market, self.parts.spending.max_fee)
            .ok_or(Failure::of(ErrorCode::NetworkFeesTooHigh))?;
        let reserved_wei = job.expected_wei();
        let job = SendJob { fees, head: market.head, ..job };
        let wei = job.expected_wei();
        if wei <= reserved_wei {
            return Ok(job);
        }
        // As with the first reservation, a no-op for a gap below must fit beside it.
        let limit = self.parts.spending.daily_wei.saturating_sub(self.parts.wallet.no_op_wei(fees));
        let (id, now) = (job.relay.id, self.parts.clock.now());
        match self.parts.store.run(move |store| store.reserve(id, wei, limit, now)).await {
            Ok(true) => Ok(job),
            Ok(false) => Err(Failure::of(ErrorCode::BudgetReserved)),
            Err(error) => {
                tracing::error!(%error, relay = %id, "not priced anew");
                Err(error.into())
            }
        }
    }

    /// Returns the next nonce, which is never a stored counter.
    ///
    /// The pending count is above the store's only if the key is used elsewhere. Every nonce below the next
    /// one must be filled, so a count far above one block's mined count is taken for wrong.
    async fn next_nonce(&self, pending: u64, stored: u64) -> Result<u64, SenderError> {
        if pending <= stored {
            return Ok(stored);
        }
        let mined = self.parts.node.account_view(self.account(), None).await?.mined_nonce;
        if pending <= mined.saturating_add(FOREIGN_PENDING) {
            return Ok(pending);
        }
        tracing::warn!(pending, mined, stored, "a pending count that makes no sense");
        Ok(mined.max(stored))
    }

    /// Assigns, signs and stores all jobs or none, so that no gap is left.
    async fn assign(
        &self,
        mut jobs: Vec<SendJob>,
        pending: Result<u64, RpcError>,
    ) -> Result<Vec<u64>, SenderError> {
        let (left, stored) = self.to_be_sent(jobs.iter().map(|job| job.relay.id).collect()).await?;
        jobs.retain(|job| left.contains(&job.relay.id));
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.next_nonce(pending?, stored).await?;
        faults::point("after_nonce");
        // At once: a signer outside the process takes its time for each.
        let assignments = try_join_all((first..).zip(jobs).map(async |(nonce, job)| {
            let signed = self.parts.wallet.relay(nonce, job.calldata, job.gas_limit, job.fees).await;
            let transaction = self.noted(signed)?;
            let (relay, transactions) = (Some(job.relay), vec![transaction]);
            Ok::<_, SenderError>(NonceAssignment { nonce, relay, transactions })
        }))
        .await?;
        faults::point("after_sign");
        self.record(&assignments).await?;
        faults::point("after_journal");
        let nonces = assignments.iter().map(|assignment| assignment.nonce).collect();
        self.open(assignments);
        Ok(nonces)
    }

    /// Returns the relays among these that need a nonce, and the nonce after the store's highest. They have
    /// not ended, by the late receipt of a lost nonce or by another run of the pipeline, and no account has a
    /// nonce of theirs in flight, reopened by a reorg. The pipeline gets the outcomes of those that have
    /// ended, which it may have in flight again, and gets back those with a forwarder nonce that another
    /// request has used or is about to use.
    async fn to_be_sent(&self, relays: Vec<B256>) -> Result<(BTreeSet<B256>, u64), SenderError> {
        let (mut left, account) = (BTreeSet::new(), self.account());
        let read = move |store: &Store| store.sendable(account, &relays);
        let (relays, stored) = self.parts.store.run(read).await?;
        for (id, sendable) in relays {
            match sendable {
                Sendable::Yes => drop(left.insert(id)),
                Sendable::InFlight => {}
                Sendable::Ended(outcome) => self.publish(SenderEvent::Finished(id, outcome)),
                Sendable::NotNext => self.publish(SenderEvent::Requeue(id)),
            }
        }
        Ok((left, stored.unwrap_or_default()))
    }
}

/// Logs why relays got no nonce, because of the chain or the store, and returns the failure for clients.
fn unassigned(error: impl Display + Into<Failure>, relays: &[B256]) -> Failure {
    tracing::error!(%error, relays = relays.len(), "no nonce or not journalled, so not sent");
    error.into()
}
