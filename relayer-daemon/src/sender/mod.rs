//! A sender owns one paying account's nonce sequence; a daemon with several keys has several senders.
//!
//! The next nonce is never counted in memory: it is the higher one of the chain's and the store's. A
//! transaction is signed, stored and sent, in this order, and its nonce is then followed until it is mined.
//! Its loops do not wait for one another ([`task`]): one submits, while the pool has room; one reads the
//! chain's count, which makes room; one looks up receipts and replaces; one compares what was mined with the
//! chain until it is final.
//!
//! | file | decides |
//! |---|---|
//! | [`nonce_state`] | the states of a nonce, and the transitions |
//! | `nonce_assignment` | which relay gets which nonce, and at what price |
//! | `signing` | what a transaction of this account looks like |
//! | `resending`, [`replacement_policy`] | rebroadcast, replacement transaction, or cancellation by a no-op |
//! | `mined_count` | what the chain has counted, which makes room in the pool |
//! | `receipt_collection`, [`receipt_reader`] | which receipts are looked up; how a relay ended |
//! | `lost_nonces` | when a nonce was used by a foreign transaction |
//! | `gap_filler` | which nonces are filled with no-ops |
//! | `finality`, `reorganisation` | when a block is final; what a reorg has undone |
//! | `recovery`, [`task`] | the start, and the loops |
//! | [`accounts`], [`health`] | which account gets a relay; what keeps an account from getting any |
//! | [`carrier`] | which daemon of a fleet carries a relay |
//! | [`lease`] | until when the account is this daemon's |
//!
//! The loops share the nonces in flight behind a lock that is never held across a call, and only the parts of
//! the sender's work that belong to one loop change a nonce's signed transactions. Memory follows what is in
//! flight: what was mined is in the store.

pub mod accounts;
pub mod carrier;
mod finality;
mod gap_filler;
pub mod health;
pub mod lease;
mod lost_nonces;
mod mined_count;
mod nonce_assignment;
mod nonce_state;
pub(crate) mod receipt_collection;
pub mod receipt_reader;
mod recovery;
mod reorganisation;
pub mod replacement_policy;
mod resending;
pub mod signing;
pub mod task;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use alloy::primitives::{Address, B256, Bytes};
use thiserror::Error;
use tokio::{
    sync::{Notify, mpsc, watch},
    time::Instant,
};

use self::{
    health::AccountHealth,
    lease::Lease,
    nonce_state::{NonceInFlight, NonceState},
    receipt_reader::Contracts,
    signing::Wallet,
};
use crate::{
    chain::{ChainNode, RpcError},
    gas::fees::Fees,
    metrics::Metrics,
    outcome::{Failure, RelayOutcome},
    process::clock::SharedClock,
    signer::SignerError,
    store::{
        BlockId, NewTransaction, NonceAssignment, Payer, RelayTerms, Store, StoreError, control::SharedOrders,
    },
};

/// Number of nonces or blocks that are handled at the same time.
const GROUP: usize = 16;
/// Time for which a missing answer counts as late.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time for which a nonce stays unconfirmed if answers are missing or disagree.
const LONGEST_PATIENCE: Duration = Duration::from_secs(600);

/// A relay that is ready to be sent: verified, simulated, and covered by a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendJob {
    /// The relay.
    pub relay: RelayTerms,
    /// The call of `execute`.
    pub calldata: Bytes,
    /// The outer gas limit.
    pub gas_limit: u64,
    /// The fees of its first transaction.
    pub fees: Fees,
    /// The head when the fees were read.
    pub head: u64,
    /// Time of its check. An older relay is simulated and priced again before it is signed.
    pub checked_at: Instant,
}

impl SendJob {
    /// Returns the most that it can cost, wei: a node demands as much of the account's balance.
    pub const fn worst_wei(&self) -> u128 {
        self.fees.worst_case(self.gas_limit).saturating_add(self.relay.l1_fee_wei)
    }

    /// Returns its expected cost, wei.
    fn expected_wei(&self) -> u128 {
        let gas = self.relay.expected_gas.unwrap_or(self.gas_limit);
        self.fees.worst_case(gas).saturating_add(self.relay.l1_fee_wei)
    }
}

/// A report of the sender to the relay pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SenderEvent {
    /// A relay has ended, or its outcome has changed; the store has it.
    Finished(B256, RelayOutcome),
    /// The sender works: relays were given nonces.
    Sent,
    /// A relay got no nonce because of a transient failure: nothing of it is stored or sent.
    Unsent(B256, Failure),
    /// A relay must run through the pipeline again: its nonce was used by a foreign transaction, or it would
    /// not succeed any more.
    Requeue(B256),
    /// A relay would end with this failure, but a nonce of its own that was given up may have executed it.
    Undecided(RelayTerms, Failure),
    /// A reorg undid a finished relay's transaction: it is in flight again.
    Reopened(RelayTerms),
}

/// The reason why a step failed. The next round retries.
#[derive(Debug, Error)]
pub enum SenderError {
    /// No endpoint answered.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The signer failed.
    #[error("signing: {0}")]
    Signing(#[from] SignerError),
}

/// The limits of what relays may spend.
#[derive(Debug, Clone, Copy)]
pub struct SpendingLimits {
    /// The highest `maxFeePerGas`, wei.
    pub max_fee: u128,
    /// The daily budget, wei.
    pub daily_wei: u128,
}

/// The owner of an account's nonce sequence.
#[derive(Debug)]
pub struct Sender<N> {
    parts: Parts<N>,
    state: Mutex<SenderState>,
    /// A relay has come, or the pool has room again.
    may_submit: Notify,
    /// Something was sent, and is to be followed.
    sent: Notify,
    /// The last count is settled.
    settled: Notify,
    /// The chain counts fewer transactions than the store.
    count_fell: Notify,
    /// The signer does not sign, and is to be tried.
    signer_failed: Notify,
}

/// The state that the loops share.
#[derive(Debug, Default)]
struct SenderState {
    /// Relays that wait for their nonces.
    queue: VecDeque<SendJob>,
    /// The number of relays of the queue that are about to get their nonces, and their expected cost, wei.
    assigning: (usize, u128),
    health: AccountHealth,
    /// Nonces in flight, and lost ones.
    nonces: BTreeMap<u64, NonceState>,
    highest_mined: Option<u64>,
    /// Time since which the chain counts fewer transactions than the store.
    count_fell_at: Option<Instant>,
    /// Nonces that were open in the store and not here at the last look.
    unknown: BTreeSet<u64>,
    /// Blocks of ours that were seen displaced by another one, and when first.
    suspects: BTreeMap<BlockId, Instant>,
    head: u64,
    /// The pending count that was read beside the mined one, and when, until it is used.
    pending: Option<(u64, Instant)>,
    /// Time at which the budget or the fee cap last did not allow a gap to be filled.
    gap_denied_at: Option<Instant>,
    /// True while the last count is still to be settled.
    is_settling: bool,
    /// True once its part has ended: it takes no more relays.
    is_retired: bool,
}

impl SenderState {
    /// Returns the number of transactions in the pool: the chain does not count their nonces as used.
    fn open(&self) -> usize {
        self.nonces.values().filter(|state| matches!(state, NonceState::Open(_))).count()
    }

    fn has_pending(&self) -> bool {
        self.nonces.values().any(|state| state.in_flight().is_some())
    }

    /// Returns whether another count may tell more: not while every nonce in flight is counted, and being
    /// settled.
    fn awaits_count(&self) -> bool {
        self.open() > 0 || !self.is_settling && self.has_pending()
    }

    /// Notes the relays that are about to get their nonces.
    fn is_assigning(&mut self, jobs: &[SendJob]) {
        let wei = jobs.iter().map(SendJob::expected_wei).fold(0, u128::saturating_add);
        self.assigning = (jobs.len(), wei);
    }
}

/// The parts of a sender.
#[derive(Debug)]
pub struct Parts<N> {
    /// The node.
    pub node: Arc<N>,
    /// The store.
    pub store: Arc<Store>,
    /// The account's key.
    pub wallet: Wallet,
    /// The account's lease.
    pub lease: Lease,
    /// The contracts that emit the logs.
    pub contracts: Contracts,
    /// The limits.
    pub spending: SpendingLimits,
    /// The operator's orders.
    pub orders: SharedOrders,
    /// The most transactions of the account that wait in the pool: nodes keep few of one account.
    pub max_pending: usize,
    /// Tells the relays that wait for room that an account has some.
    pub room: watch::Sender<()>,
    /// Time at which the chain last counted more transactions of one of the accounts: a new block, which may
    /// hold those of the others.
    pub block: watch::Sender<Instant>,
    /// The clock.
    pub clock: SharedClock,
    /// The metrics.
    pub metrics: Metrics,
    /// The channel for events.
    pub events: mpsc::UnboundedSender<SenderEvent>,
}

impl<N: ChainNode> Sender<N> {
    /// Creates a sender without state; call [`Sender::recover`] first.
    pub fn new(parts: Parts<N>) -> Self {
        let account = parts.wallet.address().to_string();
        // An alarm needs the 0 before the first 1.
        for counter in [&parts.metrics.foreign_nonces, &parts.metrics.sender_rounds] {
            counter.with_label_values(&[account.as_str()]);
        }
        Self {
            parts,
            state: Mutex::default(),
            may_submit: Notify::new(),
            sent: Notify::new(),
            settled: Notify::new(),
            count_fell: Notify::new(),
            signer_failed: Notify::new(),
        }
    }

    /// Locks the state. The lock is never held across an await.
    fn state(&self) -> MutexGuard<'_, SenderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether any nonce waits to be mined.
    fn has_pending(&self) -> bool {
        self.state().has_pending()
    }

    /// Returns the number of transactions that the pool may hold besides those in it.
    fn room(&self) -> usize {
        self.parts.max_pending.saturating_sub(self.state().open())
    }

    /// Wakes what waits for room: the pool may have some.
    fn made_room(&self) {
        self.may_submit.notify_one();
        self.parts.room.send_replace(());
    }

    /// Returns whether a relay waits and the pool has room for it.
    fn may_take_jobs(&self) -> bool {
        !self.state().queue.is_empty() && self.room() > 0
    }

    /// Takes the relays that are sent next: as many as the pool has room for, at most `count`.
    fn take_jobs(&self, count: usize) -> Vec<SendJob> {
        let mut state = self.state();
        let count = count.min(self.parts.max_pending.saturating_sub(state.open())).min(state.queue.len());
        let jobs: Vec<SendJob> = state.queue.drain(..count).collect();
        state.is_assigning(&jobs);
        jobs
    }

    /// Runs one round: settles mined nonces, gives up lost ones, rebroadcasts, replaces, fills gaps.
    ///
    /// # Errors
    /// [`SenderError`]; the next round goes on.
    async fn settle_round(&self, mined: u64) -> Result<(), SenderError> {
        if !self.has_pending() || !self.parts.lease.is_valid() {
            return Ok(());
        }
        let collected = self.collect_receipts().await;
        self.give_up_lost(&collected).await;
        // If some were mined, the rest may be about to be: it has until the next round.
        if collected.settled || !self.has_pending() {
            return Ok(());
        }
        let market = self.parts.node.market().await?;
        self.saw_head(market.head);
        self.resend_and_replace(&market).await?;
        unless_unsigned(self.fill_gap(mined, &market).await)
    }

    /// Returns the account's lease.
    pub const fn lease(&self) -> &Lease {
        &self.parts.lease
    }

    /// Returns the account that pays.
    pub const fn account(&self) -> Address {
        self.parts.wallet.address()
    }

    /// Returns the account, with its lease's epoch for writes about its nonces.
    fn payer(&self) -> Payer {
        Payer { account: self.account(), epoch: self.parts.lease.epoch() }
    }

    fn saw_head(&self, head: u64) {
        self.state().head = head;
    }

    /// Returns the nonces in flight, lowest first.
    fn in_flight_nonces(&self) -> Vec<u64> {
        let state = self.state();
        let in_flight = state.nonces.iter().filter(|(_, state)| state.in_flight().is_some());
        in_flight.map(|(nonce, _)| *nonce).collect()
    }

    /// Returns a nonce in flight with all that was signed for it.
    fn assignment(&self, nonce: u64) -> Option<NonceAssignment> {
        Some(self.state().nonces.get(&nonce)?.in_flight()?.assignment.clone())
    }

    /// Changes a nonce in flight, if it still is.
    fn update(&self, nonce: u64, change: impl FnOnce(&mut NonceInFlight)) {
        if let Some(in_flight) = self.state().nonces.get_mut(&nonce).and_then(NonceState::in_flight_mut) {
            change(in_flight);
        }
    }

    /// Returns whether a relay has a nonce of this account in flight.
    fn is_in_flight(&self, relay: B256) -> bool {
        self.state()
            .nonces
            .values()
            .filter_map(NonceState::in_flight)
            .any(|in_flight| in_flight.assignment.relay.is_some_and(|terms| terms.id == relay))
    }

    /// Moves a nonce to its next state.
    fn change(&self, nonce: u64, next: impl FnOnce(NonceState) -> NonceState) {
        let mut state = self.state();
        if let Some(before) = state.nonces.remove(&nonce) {
            state.nonces.insert(nonce, next(before));
        }
    }

    /// Follows these nonces from now on.
    fn open(&self, assignments: Vec<NonceAssignment>) {
        let mut displaced = Vec::new();
        {
            let mut state = self.state();
            let head = state.head;
            for assignment in assignments {
                let (nonce, relay) = (assignment.nonce, assignment.relay);
                let open = NonceState::Open(NonceInFlight::new(assignment, head));
                let before = state.nonces.insert(nonce, open);
                let before = before.as_ref().and_then(NonceState::in_flight);
                displaced.extend(before.and_then(|before| before.assignment.relay));
                displaced.retain(|before| relay.is_none_or(|relay| relay.id != before.id));
            }
        }
        // As after a failover that has lost their nonces.
        displaced.into_iter().for_each(|relay| self.publish(SenderEvent::Requeue(relay.id)));
    }

    /// Writes the latest transaction of each nonce to the store.
    async fn record(&self, assignments: &[NonceAssignment]) -> Result<(), StoreError> {
        let transactions: Vec<NewTransaction> = assignments.iter().filter_map(latest_transaction).collect();
        assignments.iter().for_each(|assignment| self.note_signed(assignment));
        let (payer, now) = (self.payer(), self.parts.clock.now());
        self.parts.store.run(move |store| store.record(payer, &transactions, now)).await
    }

    /// Stores a gap's latest no-op if the budget allows `extra_wei` more. Returns whether it does.
    async fn record_gap(&self, gap: &NonceAssignment, extra_wei: u128) -> Result<bool, StoreError> {
        let (payer, limit, now) = (self.payer(), self.parts.spending.daily_wei, self.parts.clock.now());
        self.record_if_allowed(gap, move |store, no_op| store.record_gap(payer, no_op, extra_wei, limit, now))
            .await
    }

    /// Lets `record` write the latest transaction of a nonce. Returns whether the budget allows that.
    async fn record_if_allowed(
        &self,
        assignment: &NonceAssignment,
        record: impl FnOnce(&Store, &NewTransaction) -> Result<bool, StoreError> + Send + 'static,
    ) -> Result<bool, StoreError> {
        let Some(latest) = latest_transaction(assignment) else { return Ok(false) };
        self.parts.store.run(move |store| record(store, &latest)).await
    }

    /// Logs and counts the latest transaction of a nonce, just signed.
    fn note_signed(&self, assignment: &NonceAssignment) {
        let Some(transaction) = assignment.latest() else { return };
        let (nonce, relay) = (assignment.nonce, assignment.relay.map(|relay| relay.id));
        let account = self.account();
        tracing::info!(
            %account,
            nonce,
            tx = %transaction.hash,
            ?relay,
            purpose = transaction.purpose.name(),
            max_fee = transaction.fees.max_fee,
            tip = transaction.fees.tip,
            "signed"
        );
        let purpose = transaction.purpose.name();
        self.parts.metrics.transactions.with_label_values(&[account.to_string().as_str(), purpose]).inc();
    }

    /// Reports to the pipeline.
    fn publish(&self, event: SenderEvent) {
        // The receiver is gone only at shutdown; the store has the event's facts.
        let _ = self.parts.events.send(event);
    }
}

/// Forgives a missing signature, which ends no round: the log says why, and another round tries again.
fn unless_unsigned(done: Result<(), SenderError>) -> Result<(), SenderError> {
    match done {
        Err(SenderError::Signing(_)) => Ok(()),
        done => done,
    }
}

/// Returns the latest transaction of a nonce, for the store.
fn latest_transaction(assignment: &NonceAssignment) -> Option<NewTransaction> {
    let transaction = assignment.latest()?.clone();
    Some(NewTransaction {
        nonce: assignment.nonce,
        relay: assignment.relay.map(|relay| relay.id),
        transaction,
    })
}
