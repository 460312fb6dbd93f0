//! The pipeline of one relay: first the cheap checks ([`Relayer::accept`]), then those against the chain
//! ([`checks`]), then the sender.
//!
//! Admission and the checks against the chain run in tasks of their own, and a relay that was admitted is in
//! the store: it survives a client that hangs up at any moment, and a daemon that dies.

pub mod backoff;
pub mod brief_cache;
pub mod check_permits;
mod checks;
pub mod fleet;
pub mod functions;
pub mod gas_price;
mod given_up;
pub mod inflight;
mod patience;
pub mod policy;
mod queue;
pub mod rate_limits;
mod retry;

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use alloy::{
    primitives::{Address, B256, U256},
    sol_types::{Eip712Domain, SolCall},
};
use registry_core::{
    eth::abi::IForwarder::executeCall,
    forward::{ForwardRequest, Refusal, Rules, SignedRequest, is_expired},
};
use tracing::Instrument as _;

use self::{
    backoff::{LONGEST_PAUSE, RelayStep, SharedBackoff},
    brief_cache::BriefCache,
    check_permits::CheckPermits,
    checks::CheckError,
    gas_price::GasPrice,
    inflight::{Inflight, InflightStart, Runner, Waiting},
    patience::Patience,
    policy::{
        ApiKey, Policy, SharedPolicy,
        decision::{DecisionClient, RequestInQuestion},
    },
};
use crate::{
    budget::share::Allowance,
    chain::{Chain, ChainNode},
    gas,
    metrics::Metrics,
    outcome::{ErrorCode, Failure, RelayOutcome},
    process::{
        clock::SharedClock,
        faults,
        logging::SPANS,
        shutdown::{ShutdownSignal, stopped},
    },
    relay::{functions::RelayedFunctions, rate_limits::RateLimits},
    sender::{
        Sender, SenderEvent, SpendingLimits,
        accounts::{Accounts, Placed},
        carrier::Carrier,
        receipt_reader::Contracts,
        signing::Wallet,
    },
    store::{
        Accepted, NewRelay, RelayTerms, Sponsored, Sponsorship, Store, StoreError, control::SharedOrders,
    },
};

/// Rules for requests, and limits on their cost.
#[derive(Debug)]
pub struct RequestTerms {
    /// The core's rules.
    pub rules: Rules,
    /// The relayed functions of the registry.
    pub functions: RelayedFunctions,
    /// The spending limits.
    pub spending: SpendingLimits,
    /// The budget and its shares.
    pub allowance: Allowance,
    /// True if the chain charges an L1 data fee.
    pub has_l1_fee: bool,
    /// Time that an accepted relay waits while endpoints or the disk fail.
    pub patience: Duration,
}

/// The pipeline with all it needs. `C` is the chain: the real one, or a test's model of it.
#[derive(Debug)]
pub struct Relayer<C = Chain> {
    /// The chain.
    pub chain: Arc<C>,
    /// The store.
    pub store: Arc<Store>,
    /// The contracts with the logs that tell how a relay ended.
    pub contracts: Contracts,
    /// The forwarder's EIP-712 domain.
    pub domain: Eip712Domain,
    /// The terms of all requests.
    pub terms: RequestTerms,
    /// The sponsorship policy.
    pub policy: Arc<SharedPolicy>,
    /// The client of the decision webhook.
    pub decisions: DecisionClient,
    /// The rate limits.
    pub limits: RateLimits,
    /// The last seen price of gas.
    pub gas_price: GasPrice,
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
    /// The operator's orders.
    pub orders: SharedOrders,
    /// All accounts that this daemon has keys of; in a fleet some are leased to others.
    pub configured: Vec<Address>,
    /// Bounds the relays that are checked against the chain at once.
    pub checks: CheckPermits,
    /// The backoff that relays share while the chain or the store fails.
    pub backoff: SharedBackoff,
    /// Set at shutdown.
    pub stopping: ShutdownSignal,
    /// Set while the daemon drains: it accepts nothing new, and finishes what it has.
    pub draining: ShutdownSignal,
    /// Time of the last hand-over.
    pub handed_over: fleet::HandedOver,
}

/// Reads that many clients may ask for at once.
#[derive(Debug, Default)]
pub struct Reads {
    balances: BriefCache<Address, u128>,
    forwarder_nonces: BriefCache<Address, U256>,
}

/// The sponsor of a request: the policy it arrived under, its API key, and its client.
struct Sponsor {
    policy: Arc<Policy>,
    key: Option<Arc<ApiKey>>,
    client: IpAddr,
}

/// An accepted relay, to be waited for.
#[derive(Debug)]
pub struct AcceptedRelay {
    /// The relay's id.
    pub id: B256,
    /// Receives its outcome.
    pub waiting: Waiting,
    /// True if it came with an API key.
    pub has_key: bool,
}

impl<C: ChainNode> Relayer<C> {
    /// Runs the checks that need no chain, in the documented order. A relay that passes is stored and
    /// started. `authorization` is the request's header of this name.
    pub async fn accept(
        self: &Arc<Self>,
        body: &[u8],
        client: IpAddr,
        authorization: Option<&str>,
    ) -> Result<AcceptedRelay, Failure> {
        let signed = SignedRequest::from_json(body)?;
        let policy = self.policy.current();
        let key = match policy.identify(authorization) {
            Ok(Some(key)) => key.charge().map(|()| Some(key)),
            // Guesses of keys are charged too.
            without => self.limit_client(&client).and(without),
        }?;
        self.terms.rules.check_call(&signed.request)?;
        self.terms.functions.check(&signed.request.data)?;
        let id = signed.authenticate(&self.domain).map_err(Refusal::Signature)?;
        policy.check(key.as_deref(), &signed.request)?;
        // A copy still joins a relay in flight.
        let is_paused =
            self.orders.current().paused_since.is_some() || self.accounts.carrier() == Carrier::Paused;
        if is_paused && self.inflight.age(id).is_none() {
            return Err(Failure::of(ErrorCode::IntakePaused));
        }
        // Only now: nothing that is not signed costs the database anything.
        match &key {
            Some(key) => self.charge_key(key).await,
            None => self.charge_client(&client).await,
        }?;
        // A draining daemon still lets copies join a relay in flight.
        if *self.stopping.borrow() || (*self.draining.borrow() && self.inflight.age(id).is_none()) {
            return Err(Failure::of(ErrorCode::ShuttingDown));
        }
        let has_key = key.is_some();
        let (from, nonce) = (signed.request.from, signed.request.nonce);
        let started = match key {
            Some(_) => self.inflight.start(id, from, nonce),
            None => self.inflight.start_without_key(id, from, nonce, policy.without_key_share()),
        };
        match started {
            InflightStart::Joined(waiting) => Ok(AcceptedRelay { id, waiting, has_key }),
            InflightStart::Full => Err(Failure::of(ErrorCode::QueueFull)),
            InflightStart::New(waiting) => {
                let relayer = Arc::clone(self);
                let sponsor = Sponsor { policy, key, client };
                // In a task of its own: if the client hangs up, its handler's future is dropped, and this
                // goes on.
                let span = tracing::info_span!(target: SPANS, "relay.admit", relay = %id);
                let admission = async move {
                    let admitted = relayer.admit(id, signed, sponsor).await;
                    if let Err(failure) = &admitted {
                        // Copies may have joined: they get the failure too.
                        relayer.inflight.finish(id, RelayOutcome::Dropped { failure: failure.clone() });
                    }
                    admitted
                };
                let admission = tokio::spawn(admission.instrument(span));
                // Only a runtime that shuts down ends the task early.
                admission.await.unwrap_or_else(|_| Err(Failure::of(ErrorCode::ShuttingDown)))?;
                Ok(AcceptedRelay { id, waiting, has_key })
            }
        }
    }

    /// Charges a client's limit of this daemon.
    fn limit_client(&self, client: &IpAddr) -> Result<(), Failure> {
        let limit = &self.limits.per_ip;
        limit.charge(client).map_err(|wait| Failure::ip_limit(limit.count(), wait))
    }

    /// Charges a client's limit over the fleet.
    async fn charge_client(&self, client: &IpAddr) -> Result<(), Failure> {
        let limit = &self.limits.per_ip;
        let denied = |wait| Failure::ip_limit(limit.count(), wait);
        self.charge_fleet(|| format!("ip {client}"), limit.count(), denied).await
    }

    async fn charge_signer(&self, signer: &Address) -> Result<(), Failure> {
        let limit = &self.limits.per_signer;
        let denied = |wait| Failure::signer_limit(limit.count(), wait);
        limit.charge(signer).map_err(denied)?;
        self.charge_fleet(|| format!("signer {signer}"), limit.count(), denied).await
    }

    async fn admit(
        self: &Arc<Self>,
        id: B256,
        signed: SignedRequest,
        sponsor: Sponsor,
    ) -> Result<(), Failure> {
        let SignedRequest { request, signature } = signed;
        let Sponsor { policy, key, client } = sponsor;
        let relay = NewRelay {
            id,
            signer: request.from,
            forward_nonce: request.nonce,
            deadline: request.deadline.to(),
            calldata: executeCall { req: request.clone(), signature }.abi_encode().into(),
            // Behind a key are many clients: it has limits of its own.
            client: key.is_none().then_some(client),
        };
        let (known, affordable) = self.look_up(&relay).await?;
        match known {
            Some(Some(outcome)) if !outcome.is_repeatable() || outcome.is_cancelled() => {
                return Err(finished_before(&outcome));
            }
            // Another daemon runs it, or takes it soon.
            Some(None) if self.store.is_shared() => {
                self.inflight.set_runner(id, Runner::Elsewhere);
                return Ok(());
            }
            _ => {}
        }
        if key.is_none() {
            self.charge_signer(&request.from).await?;
        }
        let now = self.clock.now();
        self.terms.rules.check_terms(&request, now)?;
        self.decide(&policy, id, key.as_deref(), &request).await?;

        affordable?;
        let inner_gas = u64::try_from(request.gas).unwrap_or(u64::MAX);
        let written = relay.clone();
        let sponsorship = key.map(|key| Sponsorship {
            key: key.name.clone(),
            gas: gas::limit(&relay.calldata, inner_gas),
            gas_per_day: key.gas_per_day,
            is_told: key.webhook.is_some(),
        });
        let accept = move |store: &Store| match &sponsorship {
            Some(sponsorship) => store.accept_sponsored(&written, sponsorship, now),
            None => store.accept(&written, now).map(Sponsored::Accepted),
        };
        match self.store.run(accept).await.map_err(store_failed)? {
            Sponsored::Accepted(Accepted::Pending) => self.inflight.set_runner(id, Runner::Here),
            Sponsored::Accepted(Accepted::Elsewhere) => {
                self.inflight.set_runner(id, Runner::Elsewhere);
                return Ok(());
            }
            Sponsored::Accepted(Accepted::Finished(outcome)) => return Err(finished_before(&outcome)),
            Sponsored::Exhausted(wait) => {
                return Err(Failure::of(ErrorCode::KeyGasExhausted).retry_after(wait));
            }
        }
        faults::point("after_accept");
        tracing::info!(relay = %id, signer = %relay.signer, nonce = %relay.forward_nonce, "accepted");
        tokio::spawn(Arc::clone(self).run(relay).in_current_span());
        Ok(())
    }

    /// Asks the decision webhook, where the policy has one.
    async fn decide(
        &self,
        policy: &Policy,
        id: B256,
        key: Option<&ApiKey>,
        request: &ForwardRequest,
    ) -> Result<(), Failure> {
        let Some(target) = &policy.decision else { return Ok(()) };
        let (key, now) = (key.map(|key| key.name.as_str()), self.clock.now());
        let asked = RequestInQuestion { id, key, request, now };
        let span = tracing::info_span!(target: SPANS, "relay.decide", "otel.kind" = "client");
        self.decisions.ask(target, &asked, &self.metrics).instrument(span).await
    }

    /// Checks a relay against the chain and hands it to the sender, or ends it. Retries transient failures of
    /// endpoints and the disk with backoff. If it is interrupted, the relay is still in the store for the
    /// next start.
    async fn run(self: Arc<Self>, relay: NewRelay) {
        let failure = loop {
            // It was cancelled while it had a nonce in flight, and has lost that since.
            if self.orders.current().cancelled.contains(&relay.id) {
                break Failure::of(ErrorCode::Cancelled);
            }
            let (carrier, deadline) = (self.accounts.carrier(), relay.deadline);
            // Also where no daemon carries it.
            if is_expired(deadline, self.clock.now()) {
                break Refusal::Expired { deadline }.into();
            }
            if carrier != Carrier::Here {
                let leaves = carrier == Carrier::Others || self.drains_beside_others().await;
                if (leaves && self.hand_over(relay.id).await)
                    || !self.sleep(LONGEST_PAUSE).await
                    || self.inflight.age(relay.id).is_none()
                {
                    return;
                }
                continue;
            }
            if let Err((failure, wait)) = self.backoff.pass() {
                if self.inflight.patience(relay.id, |it| it.blocked(RelayStep::Check)) >= self.terms.patience
                {
                    break failure;
                }
                if !self.sleep(wait).await {
                    return;
                }
                continue;
            }
            let span = tracing::info_span!(target: SPANS, "relay.check", relay = %relay.id);
            match self.check(&relay).instrument(span).await {
                Ok((job, permit)) => {
                    self.backoff.worked(RelayStep::Check);
                    self.inflight.patience(relay.id, |it| it.passed(RelayStep::Check));
                    let mut stopping = self.stopping.clone();
                    let dispatched = tokio::select! {
                        biased;
                        // It stays in the store for the next start.
                        () = stopped(&mut stopping) => return,
                        dispatched = self.accounts.dispatch(job, permit) => dispatched,
                    };
                    match dispatched {
                        Ok(Placed::Queued) => return self.inflight.patience(relay.id, Patience::placed),
                        Ok(Placed::Unpaid) if !self.awaits_funds(relay.id) => {
                            break Failure::of(ErrorCode::RelayerBalanceTooLow);
                        }
                        Ok(Placed::Again | Placed::Unpaid) => {}
                        Err(failure) => break failure,
                    }
                }
                Err(CheckError::Refused(failure)) => {
                    self.backoff.worked(RelayStep::Check);
                    break failure;
                }
                Err(CheckError::Elsewhere) => return self.inflight.set_runner(relay.id, Runner::Elsewhere),
                Err(CheckError::NotHere) => {
                    if self.follows_predecessor(relay.id).await {
                        return;
                    }
                }
                Err(CheckError::Lost) => return self.lost(relay.id),
                Err(CheckError::Unavailable(failure)) => {
                    self.backoff.failed(RelayStep::Check, failure.clone());
                    if self.inflight.patience(relay.id, |it| it.blocked(RelayStep::Check))
                        >= self.terms.patience
                    {
                        break failure;
                    }
                    tracing::warn!(relay = %relay.id, reason = failure.message(), "waits and tries again");
                }
            }
        };
        self.drop_relay(relay.id, failure).await;
    }

    /// Adds a relay that an account of this daemon has in flight, so that others can wait for it.
    pub fn takes_over(&self, relay: &RelayTerms) {
        self.inflight.run_stored(relay.id, relay.signer, relay.forward_nonce, relay.without_key);
    }

    /// Handles an event of the sender.
    pub async fn on_event(self: &Arc<Self>, event: SenderEvent) {
        match event {
            SenderEvent::Finished(id, outcome) => self.finished(id, outcome),
            SenderEvent::Reopened(relay) => self.takes_over(&relay),
            SenderEvent::Sent => self.backoff.worked(RelayStep::Send),
            SenderEvent::Unsent(id, failure) => {
                tokio::spawn(Arc::clone(self).unsent(id, failure));
            }
            SenderEvent::Undecided(relay, failure) => {
                // It had ended, where a reorganisation has undone its outcome.
                self.takes_over(&relay);
                let id = relay.id;
                self.inflight.patience(id, |it| it.passed(RelayStep::Send));
                let relayer = Arc::clone(self);
                tokio::spawn(async move { relayer.drop_relay(id, failure).await });
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

    /// Returns an account's balance in wei, at most a second old; a newly read one is noted at its `sender`.
    pub async fn balance(&self, account: Address, sender: Option<&Arc<Sender<C>>>) -> Result<u128, Failure> {
        let ask = async {
            let balance = self.chain.balance(account).await?;
            if let Some(sender) = sender {
                sender.saw_balance(balance);
            }
            Ok(balance)
        };
        self.reads.balances.get(account, ask).await
    }

    /// Returns a signer's nonce on chain, at most a second old, and the nonce of its next request.
    pub async fn nonces(&self, signer: Address) -> Result<(U256, U256), Failure> {
        let ask = async { Ok(self.chain.forwarder_nonce(signer).await?) };
        let on_chain = self.reads.forwarder_nonces.get(signer, ask).await?;
        let elsewhere = if self.store.is_shared() {
            self.store.run(move |store| store.pending_nonces(signer)).await.map_err(store_failed)?
        } else {
            BTreeSet::new()
        };
        Ok((on_chain, self.inflight.next_nonce(signer, on_chain, &elsewhere)))
    }
}

/// Returns the answer to a request for a relay that has ended for good.
fn finished_before(outcome: &RelayOutcome) -> Failure {
    Failure::of(if outcome.is_cancelled() { ErrorCode::Cancelled } else { ErrorCode::AlreadyRelayed })
}

pub(crate) fn store_failed(error: StoreError) -> Failure {
    tracing::error!(%error, "journal failed");
    error.into()
}
