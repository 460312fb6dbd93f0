//! The pipeline of one relay: first the cheap checks ([`Relayer::accept`]), then those against the chain
//! ([`checks`]), then the sender.
//!
//! Admission and the checks against the chain run in tasks of their own, and a relay that was admitted is in
//! the store: it survives a client that hangs up at any moment, and a daemon that dies.

pub mod backoff;
pub mod brief_cache;
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
    eth::abi::IForwarder::executeCall,
    forward::{Rules, SignedRequest},
};
use tokio::sync::Semaphore;

use self::{
    backoff::{FIRST_PAUSE, LONGEST_PAUSE, SharedBackoff, Step},
    brief_cache::BriefCache,
    checks::CheckError,
    gas_price::GasPrice,
    inflight::{Inflight, InflightStart, Waiting},
};
use crate::{
    budget::share::Allowance,
    chain::{Chain, ChainNode},
    metrics::Metrics,
    outcome::{ErrorCode, Failure, RelayOutcome},
    process::{
        clock::SharedClock,
        faults,
        shutdown::{ShutdownSignal, stopped},
    },
    relay::{functions::RelayedFunctions, rate_limits::RateLimits},
    sender::{Sender, SenderEvent, Spending, accounts::Accounts, signing::Wallet},
    store::{Accepted, NewRelay, Store, StoreError},
};

/// How many relays are checked against the chain at the same time, besides [`CHECKS_OF_ACCOUNT`].
const CONCURRENT_CHECKS: usize = 16;
/// How many more for each account: a block makes room for as many.
const CHECKS_OF_ACCOUNT: usize = 16;

/// The pipeline with all it needs. `C` is the chain: the real one, or a test's model of it.
#[derive(Debug)]
pub struct Relayer<C = Chain> {
    /// The chain.
    pub chain: Arc<C>,
    /// The store.
    pub store: Arc<Store>,
    /// The forwarder's EIP-712 domain.
    pub domain: Eip712Domain,
    /// The core's rules for requests.
    pub rules: Rules,
    /// The relayed functions of the registry.
    pub functions: RelayedFunctions,
    /// The rate limits.
    pub limits: RateLimits,
    /// The spending limits.
    pub spending: Spending,
    /// The budget and its shares.
    pub allowance: Allowance,
    /// The last seen price of gas.
    pub gas_price: GasPrice,
    /// Whether the chain charges an L1 data fee.
    pub has_l1_fee: bool,
    /// The wallet of one of the accounts, used here only for drafts.
    pub wallet: Wallet,
    /// The relays in flight.
    pub inflight: Inflight,
    /// Cached reads of the chain.
    pub reads: Reads,
    /// The clock.
    pub clock: SharedClock,
    /// The metrics.
    pub metrics: Metrics,
    /// The accounts that pay.
    pub accounts: Accounts<C>,
    /// Bounds the relays that are checked against the chain at once.
    pub checks: Semaphore,
    /// The backoff that relays share while the chain or the store fails.
    pub backoff: SharedBackoff,
    /// How long an accepted relay waits while endpoints or the disk fail.
    pub patience: Duration,
    /// Set at shutdown.
    pub stopping: ShutdownSignal,
    /// Set while the daemon drains: it accepts nothing new, and finishes what it has.
    pub draining: ShutdownSignal,
}

/// Reads that many clients may ask for at once.
#[derive(Debug, Default)]
pub struct Reads {
    balances: BriefCache<Address, u128>,
    forwarder_nonces: BriefCache<Address, U256>,
}

/// An accepted relay, to be waited for.
#[derive(Debug)]
pub struct AcceptedRelay {
    /// The relay's id.
    pub id: B256,
    /// Receives its outcome.
    pub waiting: Waiting,
}

impl Relayer {
    /// A semaphore of the right size for so many accounts.
    pub fn check_permits(accounts: usize) -> Semaphore {
        Semaphore::new(CONCURRENT_CHECKS.saturating_add(accounts.saturating_mul(CHECKS_OF_ACCOUNT)))
    }
}

impl<C: ChainNode> Relayer<C> {
    /// The checks that need no network, in the documented order. A relay that passes is stored and started.
    pub async fn accept(self: &Arc<Self>, body: &[u8], client: IpAddr) -> Result<AcceptedRelay, Failure> {
        let signed = SignedRequest::from_json(body)?;
        self.limits
            .per_ip
            .charge(&client)
            .map_err(|wait| Failure::ip_limit(self.limits.per_ip.count(), wait))?;
        self.rules.check_call(&signed.request)?;
        self.functions.check(&signed.request.data)?;
        let id = signed.authenticate(&self.domain).map_err(registry_core::forward::Refusal::Signature)?;
        // A draining daemon still lets copies join a relay in flight.
        if *self.stopping.borrow() || (*self.draining.borrow() && self.inflight.age(id).is_none()) {
            return Err(Failure::of(ErrorCode::ShuttingDown));
        }
        match self.inflight.start(id, signed.request.from, signed.request.nonce) {
            InflightStart::Joined(waiting) => Ok(AcceptedRelay { id, waiting }),
            InflightStart::Full => Err(Failure::of(ErrorCode::QueueFull)),
            InflightStart::New(waiting) => {
                let relayer = Arc::clone(self);
                // In a task of its own: if the client hangs up, its handler's future is dropped, and this
                // goes on.
                let admission = tokio::spawn(async move {
                    let admitted = relayer.admit(id, signed, client).await;
                    if let Err(failure) = &admitted {
                        // Copies may have joined: they get the failure too.
                        relayer.inflight.finish(id, RelayOutcome::Dropped { failure: failure.clone() });
                    }
                    admitted
                });
                // Only a runtime that shuts down ends the task early.
                admission.await.unwrap_or_else(|_| Err(Failure::of(ErrorCode::ShuttingDown)))?;
                Ok(AcceptedRelay { id, waiting })
            }
        }
    }

    async fn admit(self: &Arc<Self>, id: B256, signed: SignedRequest, client: IpAddr) -> Result<(), Failure> {
        let known = self.store.run(move |store| store.relay(id)).await.map_err(store_failed)?;
        if known.and_then(|record| record.outcome).is_some_and(|outcome| !outcome.is_repeatable()) {
            return Err(Failure::of(ErrorCode::AlreadyRelayed));
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
            Accepted::Finished(_) => return Err(Failure::of(ErrorCode::AlreadyRelayed)),
            Accepted::Pending => {}
        }
        faults::point("after_accept");
        tracing::info!(relay = %id, signer = %relay.signer, nonce = %relay.forward_nonce, "accepted");
        tokio::spawn(Arc::clone(self).run(relay));
        Ok(())
    }

    /// Runs a stored relay again: after a restart, or after a foreign transaction used its nonce.
    pub fn resume(self: &Arc<Self>, relay: NewRelay) {
        // A requeued relay is in flight already.
        let _ = self.inflight.start(relay.id, relay.signer, relay.forward_nonce);
        self.inflight.unblocked(relay.id);
        tokio::spawn(Arc::clone(self).run(relay));
    }

    /// Checks a relay against the chain and hands it to the sender, or ends it. Retries transient failures of
    /// endpoints and the disk with backoff. If it is interrupted, the relay is still in the store for the
    /// next start.
    async fn run(self: Arc<Self>, relay: NewRelay) {
        let failure = loop {
            if let Err((failure, wait)) = self.backoff.pass() {
                if self.inflight.blocked(relay.id) >= self.patience {
                    break failure;
                }
                if !self.sleep(wait).await {
                    return;
                }
                continue;
            }
            match self.check(&relay).await {
                Ok((job, _permit)) => {
                    self.backoff.worked(Step::Check);
                    let mut stopping = self.stopping.clone();
                    let dispatched = tokio::select! {
                        biased;
                        // It stays in the store for the next start.
                        () = stopped(&mut stopping) => return,
                        dispatched = self.accounts.dispatch(job) => dispatched,
                    };
                    match dispatched {
                        Ok(()) => return,
                        Err(failure) => break failure,
                    }
                }
                Err(CheckError::Refused(failure)) => {
                    self.backoff.worked(Step::Check);
                    break failure;
                }
                Err(CheckError::Unavailable(failure)) => {
                    self.backoff.failed(Step::Check, failure.clone());
                    if self.inflight.blocked(relay.id) >= self.patience {
                        break failure;
                    }
                    tracing::warn!(relay = %relay.id, reason = failure.message(), "waits and tries again");
                }
            }
        };
        self.drop_relay(relay.id, failure).await;
    }

    /// Retries a relay that the sender could not give a nonce to: nothing of it is stored or sent.
    async fn unsent(self: Arc<Self>, id: B256, failure: Failure) {
        if matches!(failure.code, ErrorCode::RpcFailed | ErrorCode::RpcTimeout | ErrorCode::JournalFailed) {
            self.backoff.failed(Step::Send, failure.clone());
        }
        let blocked = self.inflight.blocked(id);
        if blocked >= self.patience {
            return self.drop_relay(id, failure).await;
        }
        tracing::warn!(relay = %id, reason = failure.message(), "not sent, waits and tries again");
        // As long again as it has waited already.
        if self.sleep(blocked.clamp(FIRST_PAUSE, LONGEST_PAUSE)).await
            && let Some(relay) = self.accepted(id).await
        {
            self.run(relay).await;
        }
    }

    /// A relay as it was accepted, retried until the store answers. `None` if not stored, or at shutdown.
    async fn accepted(&self, id: B256) -> Option<NewRelay> {
        let relay = self.retry(id, "journal not read", move |store| store.accepted(id)).await?;
        if relay.is_none() {
            tracing::error!(relay = %id, "not in the journal");
        }
        relay
    }

    /// Ends a relay of which nothing was sent. Clients get the outcome only once it is stored: a relay that
    /// is still pending in the store is executed after a restart.
    async fn drop_relay(&self, id: B256, failure: Failure) {
        if *self.stopping.borrow() {
            // It stays in the store for the next start.
            return;
        }
        let outcome = RelayOutcome::Dropped { failure };
        let (written, clock) = (outcome.clone(), self.clock.clone());
        let write = move |store: &Store| store.finish_unsent(id, &written, clock.now());
        if self.retry(id, "dropped relay not journalled", write).await.is_some() {
            self.finished(id, outcome);
        }
    }

    /// Retries a store operation until it succeeds, with exponential backoff. `None` at shutdown.
    async fn retry<T: Send + 'static>(
        &self,
        id: B256,
        problem: &str,
        work: impl Fn(&Store) -> Result<T, StoreError> + Clone + Send + 'static,
    ) -> Option<T> {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.store.run(work.clone()).await {
                Ok(value) => return Some(value),
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
    async fn sleep(&self, duration: Duration) -> bool {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            () = stopped(&mut stopping) => false,
            () = tokio::time::sleep(duration) => true,
        }
    }

    /// Handles an event of the sender.
    pub async fn on_event(self: &Arc<Self>, event: SenderEvent) {
        match event {
            SenderEvent::Finished(id, outcome) => self.finished(id, outcome),
            SenderEvent::Reopened(relay) => {
                let _ = self.inflight.start(relay.id, relay.signer, relay.forward_nonce);
            }
            SenderEvent::Sent => self.backoff.worked(Step::Send),
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
        // A client with the outcome may ask for the signer's next nonce at once.
        if let Some(signer) = self.inflight.signer(id) {
            self.reads.forwarder_nonces.forget(&signer);
        }
        self.inflight.finish(id, outcome);
    }

    /// An account's balance in wei, at most a second old.
    pub async fn balance(&self, sender: &Sender<C>) -> Result<u128, Failure> {
        let ask = async {
            let balance = self.chain.balance(sender.account()).await?;
            sender.saw_balance(balance);
            Ok(balance)
        };
        self.reads.balances.get(sender.account(), ask).await
    }

    /// A signer's nonce on chain, at most a second old, and the nonce of its next request.
    pub async fn nonces(&self, signer: Address) -> Result<(U256, U256), Failure> {
        let ask = async { Ok(self.chain.forwarder_nonce(signer).await?) };
        let on_chain = self.reads.forwarder_nonces.get(signer, ask).await?;
        Ok((on_chain, self.inflight.next_nonce(signer, on_chain)))
    }
}

/// Waits for a relay's outcome, at most `limit`, and at shutdown at most two seconds.
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

pub(crate) fn store_failed(error: StoreError) -> Failure {
    tracing::error!(%error, "journal failed");
    Failure::of(ErrorCode::JournalFailed)
}
