//! The pipeline of one relay, cheap checks first: what is refused before anything costs ([`Relayer::accept`]),
//! and what is asked of the chain before the sender takes over ([`Relayer::run`]).
//!
//! A relay that passed the cheap checks is in the journal and runs in a task of its own: a client that hangs
//! up, or a daemon that dies, does not lose it.

mod brief_cache;
pub mod inflight;
mod queue;

use std::{net::IpAddr, sync::Arc, time::Duration};

use alloy::{
    primitives::{Address, B256, Bytes, U256},
    sol_types::{Eip712Domain, SolCall},
};
use registry_core::{
    abi::IForwarder::executeCall,
    forward::{Rules, SignedRequest},
    rpc::revert::Revert,
};
use tokio::sync::{Semaphore, mpsc};

use self::{
    brief_cache::BriefCache,
    inflight::{Inflight, Start, Waiting},
};
use crate::{
    budget::Budget,
    chain::{Chain, Node, RpcError, Simulation},
    clock::SharedClock,
    error_code::ErrorCode,
    faults,
    fees::Fees,
    functions::RelayedFunctions,
    gas,
    limits::Limits,
    metrics::Metrics,
    outcome::{Failure, Outcome},
    sender::{Event, Job, Spending, judge::inner_reason, sign::Wallet},
    stop::{Stop, stopped},
    store::{Accepted, NewRelay, Store, StoreError},
    transaction::RelayTerms,
};

/// The relayer's account must hold this much, wei (service.md section 8: 0.001 ETH).
pub const MINIMUM_BALANCE_WEI: u128 = 1_000_000_000_000_000;
/// Relays that ask the chain at the same time.
const CONCURRENT_CHECKS: usize = 32;

/// Everything a relay passes through.
#[derive(Debug)]
pub struct Relayer {
    /// The chain.
    pub chain: Arc<Chain>,
    /// The store.
    pub store: Arc<dyn Store>,
    /// The forwarder's EIP-712 domain.
    pub domain: Eip712Domain,
    /// What may be forwarded.
    pub rules: Rules,
    /// Which of the registry's functions.
    pub functions: RelayedFunctions,
    /// How often.
    pub limits: Limits,
    /// How much may be spent.
    pub spending: Spending,
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
    pub jobs: mpsc::Sender<Job>,
    /// At most so many relays ask the chain at once.
    pub checks: Semaphore,
    /// Set when the daemon stops.
    pub stopping: Stop,
}

/// Reads that many clients may ask for at once.
#[derive(Debug, Default)]
pub struct Reads {
    balance: BriefCache<(), u128>,
    forwarder_nonces: BriefCache<Address, U256>,
}

/// An accepted relay: what to wait for.
#[derive(Debug)]
pub struct Ticket {
    /// The relay's id.
    pub id: B256,
    /// Where its outcome appears.
    pub waiting: Waiting,
}

/// What a relay will offer, and what was reserved beside it.
struct Offer {
    fees: Fees,
    l1_fee: u128,
    head: u64,
}

impl Relayer {
    /// A semaphore of the right size.
    #[must_use]
    pub fn check_permits() -> Semaphore {
        Semaphore::new(CONCURRENT_CHECKS)
    }

    /// The checks that need no network, in the documented order. What passes is journalled and under way.
    ///
    /// # Errors
    /// The [`Failure`] to answer with.
    pub async fn accept(self: &Arc<Self>, body: &[u8], client: IpAddr) -> Result<Ticket, Failure> {
        let signed = SignedRequest::from_json(body)?;
        self.limits
            .per_ip
            .charge(&client)
            .map_err(|wait| Failure::ip_limit(self.limits.per_ip.count(), wait))?;
        self.rules.check_call(&signed.request)?;
        self.functions.check(&signed.request.data)?;
        let id = signed.authenticate(&self.domain).map_err(registry_core::forward::Refusal::Signature)?;
        if *self.stopping.borrow() {
            return Err(Failure::shutting_down());
        }
        match self.inflight.start(id, signed.request.from, signed.request.nonce) {
            Start::Joined(waiting) => Ok(Ticket { id, waiting }),
            Start::Full => Err(Failure::queue_full()),
            Start::New(waiting) => {
                // From here on others may have joined: whatever happens, they learn of it.
                if let Err(failure) = self.admit(id, signed).await {
                    self.inflight.finish(id, Outcome::Dropped { failure: failure.clone() });
                    return Err(failure);
                }
                Ok(Ticket { id, waiting })
            }
        }
    }

    async fn admit(self: &Arc<Self>, id: B256, signed: SignedRequest) -> Result<(), Failure> {
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
        };
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
        tokio::spawn(Arc::clone(self).run(relay));
    }

    /// Checks a relay against the chain and hands it to the sender, or ends it.
    async fn run(self: Arc<Self>, relay: NewRelay) {
        let id = relay.id;
        let failure = match self.prepare(&relay).await {
            Ok(job) => match self.jobs.send(job).await {
                Ok(()) => return,
                Err(_) => Failure::shutting_down(),
            },
            Err(failure) => failure,
        };
        if *self.stopping.borrow() {
            // It stays in the journal and is taken up at the next start.
            return;
        }
        let outcome = Outcome::Dropped { failure };
        let (written, now) = (outcome.clone(), self.clock.now());
        if let Err(error) = self.store.run(move |store| store.finish_unsent(id, &written, now)).await {
            tracing::error!(%error, relay = %id, "dropped relay not journalled");
        }
        self.finished(id, outcome);
    }

    /// Balance, budget, verification, simulation. Each turn of the loop is one attempt to be the signer's
    /// next request; see [`queue`] for what it waits for.
    async fn prepare(&self, relay: &NewRelay) -> Result<Job, Failure> {
        let execute = executeCall::abi_decode(&relay.calldata).map_err(|_| Failure::journal())?;
        let inner_gas = u64::try_from(execute.req.gas).unwrap_or(u64::MAX);
        let gas_limit = gas::limit(&relay.calldata, inner_gas);
        let mut turn = queue::Turn::new();
        loop {
            turn.wait_for_predecessor(&self.inflight, relay.id).await;
            let permit = self.checks.acquire().await.map_err(|_| Failure::shutting_down())?;
            self.rules.check_terms(&execute.req, self.clock.now())?;
            let Offer { fees, l1_fee, head } = self.afford(relay, gas_limit).await?;
            if self.chain.verify(&execute).await? {
                let terms = RelayTerms {
                    id: relay.id,
                    signer: relay.signer,
                    forward_nonce: relay.forward_nonce,
                    deadline: relay.deadline,
                    l1_fee_wei: l1_fee,
                };
                self.simulate(&relay.calldata, gas_limit).await?;
                faults::point("after_simulate");
                return Ok(Job { relay: terms, calldata: relay.calldata.clone(), gas_limit, fees, head });
            }
            drop(permit);
            // Not its turn? The reservation waits for nobody.
            self.release(relay.id).await?;
            let on_chain = self.chain.forwarder_nonce(relay.signer).await?;
            if !turn.may_come(&self.inflight, relay, on_chain).await {
                return Err(Failure::nonce_mismatch());
            }
        }
    }

    /// Balance and budget: reserves the worst case.
    async fn afford(&self, relay: &NewRelay, gas_limit: u64) -> Result<Offer, Failure> {
        let (balance, market) = tokio::try_join!(self.chain.balance(), self.chain.market())?;
        self.saw_balance(balance);
        if balance < MINIMUM_BALANCE_WEI {
            return Err(Failure::balance_too_low());
        }
        let fees =
            Fees::initial(&market, self.spending.max_fee).ok_or_else(Failure::network_too_expensive)?;
        let l1_fee = self.l1_fee(relay, gas_limit, fees).await?;

        let wei = fees.worst_case(gas_limit).saturating_add(l1_fee);
        let (id, limit, now) = (relay.id, self.spending.daily_wei, self.clock.now());
        let reserve = move |store: &dyn Store| {
            let reserved = store.reserve(id, wei, l1_fee, limit, now)?;
            Ok((reserved, store.budget(limit, now)?))
        };
        let (reserved, budget) = self.store.run(reserve).await.map_err(store_failed)?;
        if !reserved {
            return Err(Failure::budget_exhausted(wait_for_budget(&budget, now)));
        }
        faults::point("after_reserve");
        // The node demands that the account can pay for everything in flight at its worst.
        if budget.reserved_wei > balance {
            return Err(Failure::balance_too_low());
        }
        Ok(Offer { fees, l1_fee, head: market.head })
    }

    /// What the L1 data fee may come to: it moves with L1's market, so a quarter is added.
    async fn l1_fee(&self, relay: &NewRelay, gas_limit: u64, fees: Fees) -> Result<u128, Failure> {
        if !self.has_l1_fee {
            return Ok(0);
        }
        let fee = self.chain.l1_fee(self.wallet.draft(relay.calldata.clone(), gas_limit, fees)).await?;
        Ok(fee.saturating_add(fee.div_ceil(4)))
    }

    async fn simulate(&self, calldata: &Bytes, gas_limit: u64) -> Result<(), Failure> {
        match self.chain.simulate(calldata, gas_limit).await {
            Ok(Simulation::Success) => Ok(()),
            Ok(Simulation::InnerRevert(data)) => Err(Failure::reverted(inner_reason(&data))),
            Err(RpcError::Node(error)) => match Revert::from_error(&error) {
                // Executed by somebody else since it was verified.
                Some(revert) if revert.to_string().starts_with("Forwarder: invalid signature") => {
                    Err(Failure::nonce_mismatch())
                }
                Some(revert) => Err(Failure::reverted(revert.to_string())),
                None => Err(RpcError::Node(error).into()),
            },
            Err(error) => Err(error.into()),
        }
    }

    async fn release(&self, id: B256) -> Result<(), Failure> {
        let now = self.clock.now();
        self.store.run(move |store| store.release(id, now)).await.map_err(store_failed)
    }

    /// Something the sender had to say.
    pub async fn on_event(self: &Arc<Self>, event: Event) {
        match event {
            Event::Finished(id, outcome) => self.finished(id, outcome),
            Event::Reopened(relay) => {
                let _ = self.inflight.start(relay.id, relay.signer, relay.forward_nonce);
            }
            Event::Requeue(id) => match self.store.run(move |store| store.accepted(id)).await {
                Ok(Some(relay)) => self.resume(relay),
                Ok(None) => tracing::error!(relay = %id, "requeued relay is not in the journal"),
                Err(error) => tracing::error!(%error, relay = %id, "requeued relay waits for a restart"),
            },
        }
    }

    fn finished(&self, id: B256, outcome: Outcome) {
        faults::point("before_answer");
        self.metrics.relays.with_label_values(&[outcome.state()]).inc();
        if let (Some(age), false) = (self.inflight.age(id), outcome.is_repeatable()) {
            self.metrics.relay_seconds.observe(age.as_secs_f64());
        }
        match &outcome {
            Outcome::Executed { mined, .. } => {
                tracing::info!(relay = %id, tx = %mined.tx_hash, block = mined.block_number, "executed");
            }
            Outcome::Reverted { failure, mined } => {
                tracing::warn!(relay = %id, tx = %mined.tx_hash, reason = %failure.message(), "reverted");
            }
            Outcome::Dropped { failure } => {
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
pub async fn outcome_within(mut waiting: Waiting, mut stopping: Stop, limit: Duration) -> Option<Outcome> {
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

fn wait_for_budget(budget: &Budget, now: u64) -> u64 {
    budget.resets_at().map_or(crate::budget::WINDOW_SECONDS, |reset| reset.saturating_sub(now)).max(1)
}

fn store_failed(error: StoreError) -> Failure {
    tracing::error!(%error, "journal failed");
    Failure::journal()
}

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        match error {
            RpcError::Timeout => Self::new(ErrorCode::RpcTimeout, error.to_string()),
            other => Self::rpc(other.to_string()),
        }
    }
}
