//! The pipeline of one relay, cheap checks first: what is refused before anything costs ([`Relayer::accept`]),
//! and what is asked of the chain before the sender takes over ([`checks`]).
//!
//! A relay that passed the cheap checks is in the journal and runs in a task of its own: a client that hangs
//! up, or a daemon that dies, does not lose it.

mod brief_cache;
mod checks;
pub mod functions;
pub mod gas_price;
pub mod inflight;
mod queue;
pub mod rate_limits;

use std::{net::IpAddr, sync::Arc, time::Duration};

use alloy::{
    primitives::{Address, B256, U256},
    sol_types::{Eip712Domain, SolCall},
};
use registry_core::{
    abi::IForwarder::executeCall,
    forward::{Rules, SignedRequest},
};
use tokio::sync::{Semaphore, mpsc};

use self::{
    brief_cache::BriefCache,
    checks::CheckError,
    gas_price::GasPrice,
    inflight::{Inflight, InflightStart, Waiting},
};
use crate::{
    budget::share::Allowance,
    chain::{Chain, ChainNode},
    metrics::Metrics,
    outcome::{Failure, RelayOutcome},
    process::{
        clock::SharedClock,
        faults,
        shutdown::{ShutdownSignal, stopped},
    },
    relay::{functions::RelayedFunctions, rate_limits::RateLimits},
    sender::{SendJob, SenderEvent, Spending, signing::Wallet},
    store::{Accepted, NewRelay, Store, StoreError},
};

/// The relayer's account must hold this much, wei (service.md section 8: 0.001 ETH).
pub const MINIMUM_BALANCE_WEI: u128 = 1_000_000_000_000_000;
/// The pause before a relay that met a fault is tried again; each further one doubles it,
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Relays that ask the chain at the same time.
const CONCURRENT_CHECKS: usize = 32;

/// Everything a relay passes through. `C` is the chain: the real one, or a test's model of it.
#[derive(Debug)]
pub struct Relayer<C = Chain> {
    /// The chain.
    pub chain: Arc<C>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// The forwarder's EIP-712 domain.
    pub domain: Eip712Domain,
    /// What may be forwarded.
    pub rules: Rules,
    /// Which of the registry's functions.
    pub functions: RelayedFunctions,
    /// How often.
    pub limits: RateLimits,
    /// How much may be spent.
    pub spending: Spending,
    /// And by whom.
    pub allowance: Allowance,
    /// What gas cost when it was last bought.
    pub gas_price: GasPrice,
    /// Whether the chain charges an L1 data fee.
    pub has_l1_fee: bool,
    /// The key; here only for drafts.
    pub wallet: Wallet,
    /// What is in flight.
    pub inflight: Inflight,
    /// What was read of the chain in the last second.
    pub reads: Reads,
    /// The clock.
    pub clock: SharedClock,
    /// The metrics.
    pub metrics: Metrics,
    /// Where jobs go.
    pub jobs: mpsc::Sender<SendJob>,
    /// At most so many relays ask the chain at once.
    pub checks: Semaphore,
    /// How long an accepted relay waits for endpoints or a disk that fail.
    pub patience: Duration,
    /// Set when the daemon stops.
    pub stopping: ShutdownSignal,
    /// Set when the daemon accepts nothing new, and finishes what it has.
    pub draining: ShutdownSignal,
}

/// Reads that many clients may ask for at once.
#[derive(Debug, Default)]
pub struct Reads {
    balance: BriefCache<(), u128>,
    forwarder_nonces: BriefCache<Address, U256>,
}

/// An accepted relay: what to wait for.
#[derive(Debug)]
pub struct AcceptedRelay {
    /// The relay's id.
    pub id: B256,
    /// Where its outcome appears.
    pub waiting: Waiting,
}

impl Relayer {
    /// A semaphore of the right size.
    #[must_use]
    pub fn check_permits() -> Semaphore {
        Semaphore::new(CONCURRENT_CHECKS)
    }
}

impl<C: ChainNode> Relayer<C> {
    /// The checks that need no network, in the documented order. What passes is journalled and under way.
    ///
    /// # Errors
    /// The [`Failure`] to answer with.
    pub async fn accept(self: &Arc<Self>, body: &[u8], client: IpAddr) -> Result<AcceptedRelay, Failure> {
        let signed = SignedRequest::from_json(body)?;
        self.limits
            .per_ip
            .charge(&client)
            .map_err(|wait| Failure::ip_limit(self.limits.per_ip.count(), wait))?;
        self.rules.check_call(&signed.request)?;
        self.functions.check(&signed.request.data)?;
        let id = signed.authenticate(&self.domain).map_err(registry_core::forward::Refusal::Signature)?;
        // A draining daemon still lets copies join what is in flight.
        if *self.stopping.borrow() || (*self.draining.borrow() && self.inflight.age(id).is_none()) {
            return Err(Failure::shutting_down());
        }
        match self.inflight.start(id, signed.request.from, signed.request.nonce) {
            InflightStart::Joined(waiting) => Ok(AcceptedRelay { id, waiting }),
            InflightStart::Full => Err(Failure::queue_full()),
            InflightStart::New(waiting) => {
                // From here on others may have joined: whatever happens, they learn of it.
                if let Err(failure) = self.admit(id, signed, client).await {
                    self.inflight.finish(id, RelayOutcome::Dropped { failure: failure.clone() });
                    return Err(failure);
                }
                Ok(AcceptedRelay { id, waiting })
            }
        }
    }

    async fn admit(self: &Arc<Self>, id: B256, signed: SignedRequest, client: IpAddr) -> Result<(), Failure> {
        let known = self.store.run(move |store| store.relay(id)).await.map_err(store_failed)?;
        if known.and_then(|record| record.outcome).is_some_and(|outcome| !outcome.is_repeatable()) {
            return Err(Failure::replay());
        }
        let SignedRequest { request, signature } = signed;
        self.limits
            .per_signer
            .charge(&request.from)
            .map_err(|wait| Failure::signer_limit(self.limits.per_signer.count(), wait))?;
        let now = self.clock.now();
        self.rules.check_terms(&request, now)?;

        let relay = NewRelay {
            id,
            signer: request.from,
            forward_nonce: request.nonce,
            deadline: request.deadline.to(),
            calldata: executeCall { req: request, signature }.abi_encode().into(),
            client: Some(client),
        };
        self.check_budget(&relay).await?;
        let written = relay.clone();
        match self.store.run(move |store| store.accept(&written, now)).await.map_err(store_failed)? {
            Accepted::Finished(_) => return Err(Failure::replay()),
            Accepted::Pending => {}
        }
        faults::point("after_accept");
        tracing::info!(relay = %id, signer = %relay.signer, nonce = %relay.forward_nonce, "accepted");
        tokio::spawn(Arc::clone(self).run(relay));
        Ok(())
    }

    /// Takes a journalled relay up again: after a restart, or when its nonce went to somebody else.
    pub fn resume(self: &Arc<Self>, relay: NewRelay) {
        // It may be in flight already, where it was requeued.
        let _ = self.inflight.start(relay.id, relay.signer, relay.forward_nonce);
        self.inflight.unblocked(relay.id);
        tokio::spawn(Arc::clone(self).run(relay));
    }

    /// Checks a relay against the chain and hands it to the sender, or ends it. Waits for endpoints and disks that
    /// fail for a while. Whatever stops it halfway, the relay stays in the store and is taken up at the next start.
    async fn run(self: Arc<Self>, relay: NewRelay) {
        let mut pause = FIRST_PAUSE;
        let failure = loop {
            match self.check(&relay).await {
                Ok(job) => {
                    // The sender is gone only while the daemon stops.
                    let _ = self.jobs.send(job).await;
                    return;
                }
                Err(CheckError::Refused(failure)) => break failure,
                Err(CheckError::Unavailable(failure)) => {
                    if self.inflight.blocked(relay.id) >= self.patience {
                        break failure;
                    }
                    tracing::warn!(relay = %relay.id, reason = failure.message(), "waits and tries again");
                }
            }
            if !self.pause(&mut pause).await {
                return;
            }
        };
        self.drop_relay(relay.id, failure).await;
    }

    /// A relay that the sender could not give a nonce to: nothing of it is journalled or sent.
    async fn unsent(self: Arc<Self>, id: B256, failure: Failure) {
        if self.inflight.blocked(id) >= self.patience {
            return self.drop_relay(id, failure).await;
        }
        tracing::warn!(relay = %id, reason = failure.message(), "not sent, waits and tries again");
        if self.pause(&mut FIRST_PAUSE.clone()).await
            && let Some(relay) = self.accepted(id).await
        {
            self.run(relay).await;
        }
    }

    /// A relay as it was accepted; waits for the store. `None` if it has none, or the daemon stops.
    async fn accepted(&self, id: B256) -> Option<NewRelay> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.store.run(move |store| store.accepted(id)).await {
                Ok(Some(relay)) => return Some(relay),
                Ok(None) => {
                    tracing::error!(relay = %id, "not in the journal");
                    return None;
                }
                Err(error) => tracing::error!(%error, relay = %id, "journal not read"),
            }
            if !self.pause(&mut pause).await {
                return None;
            }
        }
    }

    /// Ends a relay of which nothing was sent. Nobody hears so before the journal has it: what it still calls pending
    /// is executed after a restart.
    async fn drop_relay(&self, id: B256, failure: Failure) {
        if *self.stopping.borrow() {
            // It stays in the journal and is taken up at the next start.
            return;
        }
        let outcome = RelayOutcome::Dropped { failure };
        let mut pause = FIRST_PAUSE;
        loop {
            let (written, now) = (outcome.clone(), self.clock.now());
            match self.store.run(move |store| store.finish_unsent(id, &written, now)).await {
                Ok(()) => return self.finished(id, outcome),
                Err(error) => tracing::error!(%error, relay = %id, "dropped relay not journalled"),
            }
            if !self.pause(&mut pause).await {
                return;
            }
        }
    }

    /// Waits before another try, longer each time. Returns whether the daemon goes on.
    async fn pause(&self, pause: &mut Duration) -> bool {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            () = stopped(&mut stopping) => return false,
            () = tokio::time::sleep(*pause) => {}
        }
        *pause = (*pause * 2).min(LONGEST_PAUSE);
        true
    }

    /// Something the sender had to say.
    pub async fn on_event(self: &Arc<Self>, event: SenderEvent) {
        match event {
            SenderEvent::Finished(id, outcome) => self.finished(id, outcome),
            SenderEvent::Reopened(relay) => {
                let _ = self.inflight.start(relay.id, relay.signer, relay.forward_nonce);
            }
            SenderEvent::Unsent(id, failure) => {
                tokio::spawn(Arc::clone(self).unsent(id, failure));
            }
            SenderEvent::Requeue(id) => {
                let relayer = Arc::clone(self);
                tokio::spawn(async move {
                    if let Some(relay) = relayer.accepted(id).await {
                        relayer.resume(relay);
                    }
                });
            }
        }
    }

    fn finished(&self, id: B256, outcome: RelayOutcome) {
        faults::point("before_answer");
        self.metrics.relays.with_label_values(&[outcome.state()]).inc();
        if let (Some(age), false) = (self.inflight.age(id), outcome.is_repeatable()) {
            self.metrics.relay_seconds.observe(age.as_secs_f64());
        }
        match &outcome {
            RelayOutcome::Executed { mined, .. } => {
                tracing::info!(relay = %id, tx = %mined.tx_hash, block = mined.block_number, "executed");
            }
            RelayOutcome::Reverted { failure, mined } => {
                tracing::warn!(relay = %id, tx = %mined.tx_hash, reason = %failure.message(), "reverted");
            }
            RelayOutcome::Dropped { failure } => {
                tracing::info!(relay = %id, code = failure.code.name(), reason = %failure.message(), "dropped");
            }
        }
        // Whoever hears the outcome may ask for the signer's next nonce at once.
        if let Some(signer) = self.inflight.signer(id) {
            self.reads.forwarder_nonces.forget(&signer);
        }
        self.inflight.finish(id, outcome);
    }

    /// Remembers the balance for the metrics.
    pub fn saw_balance(&self, wei: u128) {
        self.metrics.balance_wei.set(crate::metrics::gauge_value(wei));
    }

    /// The account's balance in wei, as of the last second.
    ///
    /// # Errors
    /// [`Failure`] if the chain does not answer.
    pub async fn balance(&self) -> Result<u128, Failure> {
        let ask = async {
            let balance = self.chain.balance().await?;
            self.saw_balance(balance);
            Ok(balance)
        };
        self.reads.balance.get((), ask).await
    }

    /// A signer's nonce on chain as of the last second, and the one its next request must carry.
    ///
    /// # Errors
    /// [`Failure`] if the chain does not answer.
    pub async fn nonces(&self, signer: Address) -> Result<(U256, U256), Failure> {
        let ask = async { Ok(self.chain.forwarder_nonce(signer).await?) };
        let on_chain = self.reads.forwarder_nonces.get(signer, ask).await?;
        Ok((on_chain, self.inflight.next_nonce(signer, on_chain)))
    }
}

/// Waits for a relay's outcome, at most `limit`, and not for long once the daemon stops.
pub async fn outcome_within(
    mut waiting: Waiting,
    mut stopping: ShutdownSignal,
    limit: Duration,
) -> Option<RelayOutcome> {
    const LAST_MOMENTS: Duration = Duration::from_secs(2);
    let stop = async {
        stopped(&mut stopping).await;
        tokio::time::sleep(LAST_MOMENTS).await;
    };
    let limit = async {
        tokio::select! { () = tokio::time::sleep(limit) => {}, () = stop => {} }
    };
    tokio::select! {
        biased;
        outcome = waiting.wait_for(Option::is_some) => outcome.ok().and_then(|outcome| outcome.clone()),
        () = limit => None,
    }
}

fn store_failed(error: StoreError) -> Failure {
    tracing::error!(%error, "journal failed");
    Failure::store()
}
