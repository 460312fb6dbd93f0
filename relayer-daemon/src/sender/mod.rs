//! The sender: the one task that owns the account's nonce sequence.
//!
//! The nonce is never counted in memory: the next one is what chain and journal say, whichever is higher. It
//! is signed for, journalled, sent, in this order, and then looked after until it is mined. What to do next
//! is decided in [`plan`], what a receipt means in [`judge`]; start-up is in [`recover`], the task around all
//! this in [`task`]. The sender is driven step by step and holds no timer, so that a test can drive it
//! through any order of events against a model of a node.

pub mod judge;
pub mod plan;
mod recover;
pub mod sign;
pub mod slot;
pub mod task;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use alloy::primitives::{B256, Bytes};
use futures_util::future::join_all;
use thiserror::Error;
use tokio::{sync::mpsc, time::Instant};

use self::{
    judge::Contracts,
    plan::{Situation, Step, next_step},
    sign::Wallet,
    slot::{Attempt, Order, Purpose, Slot},
};
use crate::{
    chain::{Node, Receipt, RpcError},
    classify::Verdict,
    clock::SharedClock,
    faults,
    fees::{Fees, Market},
    journal::{Journal, JournalError, Signed},
    metrics::{Metrics, gauge_value},
    outcome::{Failure, Outcome},
};

/// How many of the lowest nonces are looked after in one round: the others wait for them anyway.
const ROUND: usize = 16;
/// A nonce that the chain has used, without a receipt for any of our hashes, is lost to somebody else after
/// this many blocks,
const LOST_AFTER_BLOCKS: u64 = 3;
/// or after this long where no block comes. Receipts may lag behind the nonce.
const LOST_AFTER: Duration = Duration::from_secs(10);

/// A relay that is ready to be sent: verified, simulated, and paid for by a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The relay.
    pub order: Order,
    /// The call of `execute`.
    pub calldata: Bytes,
    /// The outer gas limit.
    pub gas_limit: u64,
    /// The first offer.
    pub fees: Fees,
    /// The head when the fees were read.
    pub head: u64,
}

/// What the sender tells the rest of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A relay has ended; the journal knows.
    Finished(B256, Outcome),
    /// A relay's nonce went to somebody else's transaction: it must run through the pipeline again.
    Requeue(B256),
    /// A reorganisation took a finished relay's transaction back: it is in flight again.
    Reopened(Order),
}

/// Why a round could not be finished. The next one tries again.
#[derive(Debug, Error)]
pub enum Trouble {
    /// No endpoint answered.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The journal failed.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The key failed.
    #[error("signing: {0}")]
    Signing(#[from] alloy::signers::Error),
}

/// What the sender may spend.
#[derive(Debug, Clone, Copy)]
pub struct Spending {
    /// The highest `maxFeePerGas`, wei.
    pub max_fee: u128,
    /// The daily budget, wei.
    pub daily_wei: u128,
}

/// A nonce in flight and how it is going.
#[derive(Debug)]
struct Tracked {
    slot: Slot,
    verdict: Verdict,
    sent_head: u64,
    signed_head: u64,
    sent_at: Instant,
    signed_at: Instant,
    /// Since when the chain has used the nonce without a receipt for us: head and time.
    absent: Option<(u64, Instant)>,
}

/// The owner of the nonce sequence.
#[derive(Debug)]
pub struct Sender<N> {
    node: Arc<N>,
    journal: Arc<Journal>,
    wallet: Wallet,
    contracts: Contracts,
    spending: Spending,
    clock: SharedClock,
    metrics: Metrics,
    events: mpsc::UnboundedSender<Event>,
    slots: BTreeMap<u64, Tracked>,
    highest_mined: Option<u64>,
    head: u64,
}

/// What a sender is made of.
#[derive(Debug)]
pub struct Parts<N> {
    /// The node.
    pub node: Arc<N>,
    /// The journal.
    pub journal: Arc<Journal>,
    /// The key.
    pub wallet: Wallet,
    /// Whose logs count.
    pub contracts: Contracts,
    /// The limits.
    pub spending: Spending,
    /// The clock.
    pub clock: SharedClock,
    /// The metrics.
    pub metrics: Metrics,
    /// Where events go.
    pub events: mpsc::UnboundedSender<Event>,
}

impl<N: Node> Sender<N> {
    /// A sender that knows nothing yet: [`Sender::recover`] comes first.
    #[must_use]
    pub fn new(parts: Parts<N>) -> Self {
        let Parts { node, journal, wallet, contracts, spending, clock, metrics, events } = parts;
        Self {
            node,
            journal,
            wallet,
            contracts,
            spending,
            clock,
            metrics,
            events,
            slots: BTreeMap::new(),
            highest_mined: None,
            head: 0,
        }
    }

    /// Whether any nonce waits to be mined.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Gives each job a nonce, journals its signed transaction, and sends it. A job that cannot be journalled
    /// is dropped; one that is journalled is looked after until its nonce is mined.
    pub async fn submit(&mut self, mut jobs: Vec<Job>) {
        // One request never has two nonces: what is in flight already (after a reorganisation) stays at its own.
        jobs.retain(|job| !self.carries(job.order.id));
        if jobs.is_empty() {
            return;
        }
        self.head = jobs.iter().map(|job| job.head).fold(self.head, u64::max);
        let orders: Vec<Order> = jobs.iter().map(|job| job.order).collect();
        match self.assign(jobs).await {
            Ok(nonces) => {
                self.send(&nonces).await;
                faults::point("after_send");
            }
            Err(trouble) => {
                tracing::error!(%trouble, relays = orders.len(), "not journalled, so not sent");
                let failure = match trouble {
                    Trouble::Rpc(error) => error.into(),
                    Trouble::Journal(_) | Trouble::Signing(_) => Failure::journal(),
                };
                for order in orders {
                    self.drop_unsent(order.id, failure.clone()).await;
                }
            }
        }
    }

    /// One round over everything in flight: takes in what was mined, re-sends, replaces, fills holes.
    ///
    /// # Errors
    /// [`Trouble`]; nothing is lost, the next round goes on.
    pub async fn poll(&mut self) -> Result<(), Trouble> {
        if self.slots.is_empty() {
            return Ok(());
        }
        let mined = self.watch_chain().await?;
        let settled = self.collect(mined).await?;
        // Where some were mined the rest is on its way: it has until the next round.
        if self.slots.is_empty() || settled {
            return Ok(());
        }
        let market = self.node.market().await?;
        self.head = market.head;
        self.give_up_lost(mined).await?;
        self.advance(&market).await?;
        self.fill_hole(mined, &market).await
    }

    /// Asks how many of our transactions are mined, and takes back what a reorganisation has undone.
    ///
    /// # Errors
    /// [`Trouble`].
    pub async fn watch_chain(&mut self) -> Result<u64, Trouble> {
        let mined = self.node.mined_nonce().await?;
        if self.highest_mined.is_some_and(|highest| mined <= highest) {
            let market = self.node.market().await?;
            self.head = market.head;
            self.take_back(mined).await?;
        }
        Ok(mined)
    }

    fn carries(&self, id: B256) -> bool {
        self.slots.values().any(|tracked| tracked.slot.order.is_some_and(|order| order.id == id))
    }

    /// The next nonce: never a stored counter.
    async fn next_nonce(&self) -> Result<u64, Trouble> {
        let chain = self.node.pending_nonce().await?;
        let journal = self.journal.run(Journal::next_nonce).await?;
        Ok(chain.max(journal.unwrap_or_default()))
    }

    /// Nonces, signatures, journal; for all of the jobs or for none, so that no hole is left.
    async fn assign(&mut self, jobs: Vec<Job>) -> Result<Vec<u64>, Trouble> {
        let first = self.next_nonce().await?;
        faults::point("after_nonce");
        let mut slots = Vec::with_capacity(jobs.len());
        for (nonce, job) in (first..).zip(jobs) {
            let attempt = self.wallet.relay(nonce, job.calldata, job.gas_limit, job.fees)?;
            slots.push(Slot { nonce, order: Some(job.order), attempts: vec![attempt] });
        }
        faults::point("after_sign");
        self.write(&slots).await?;
        faults::point("after_journal");
        let nonces = slots.iter().map(|slot| slot.nonce).collect();
        slots.into_iter().for_each(|slot| self.track(slot));
        Ok(nonces)
    }

    /// Journals the latest transaction of each slot.
    async fn write(&self, slots: &[Slot]) -> Result<(), JournalError> {
        let mut signed = Vec::with_capacity(slots.len());
        for slot in slots {
            let (relay, Some(attempt)) = (slot.order.map(|order| order.id), slot.latest().cloned()) else {
                continue;
            };
            tracing::info!(
                nonce = slot.nonce,
                tx = %attempt.hash,
                relay = ?relay,
                purpose = attempt.purpose.name(),
                max_fee = attempt.fees.max_fee,
                tip = attempt.fees.tip,
                "signed"
            );
            self.metrics.transactions.with_label_values(&[attempt.purpose.name()]).inc();
            signed.push(Signed { nonce: slot.nonce, relay, attempt });
        }
        let now = self.clock.now();
        self.journal.run(move |journal| journal.record(&signed, now)).await
    }

    fn track(&mut self, slot: Slot) {
        let tracked = Tracked {
            slot,
            verdict: Verdict::Unknown,
            sent_head: self.head,
            signed_head: self.head,
            sent_at: Instant::now(),
            signed_at: Instant::now(),
            absent: None,
        };
        self.slots.insert(tracked.slot.nonce, tracked);
    }

    /// Sends the latest transaction of each of these nonces, all at once.
    async fn send(&mut self, nonces: &[u64]) {
        let raw: Vec<(u64, B256, Bytes)> = nonces
            .iter()
            .filter_map(|nonce| {
                let latest = self.slots.get(nonce)?.slot.latest()?;
                Some((*nonce, latest.hash, latest.raw.clone()))
            })
            .collect();
        let node = &self.node;
        let sends = raw.iter().map(|(nonce, hash, raw)| async move {
            let (verdict, text) = node.broadcast(raw).await;
            (*nonce, *hash, verdict, text)
        });
        for (nonce, hash, verdict, text) in join_all(sends).await {
            if verdict == Verdict::Accepted {
                tracing::debug!(nonce, tx = %hash, "sent");
            } else {
                tracing::warn!(nonce, tx = %hash, ?verdict, node = %text, "sent, but not accepted");
            }
            if let Some(tracked) = self.slots.get_mut(&nonce) {
                tracked.verdict = verdict;
                tracked.sent_head = self.head;
                tracked.sent_at = Instant::now();
            }
        }
    }

    /// Takes in receipts: of every nonce the chain has used, and of those a node called too low. Returns
    /// whether there were any.
    async fn collect(&mut self, mined: u64) -> Result<bool, Trouble> {
        let nonces: Vec<u64> = self
            .slots
            .iter()
            .filter(|(nonce, tracked)| **nonce < mined || tracked.verdict == Verdict::NonceTooLow)
            .map(|(nonce, _)| *nonce)
            .collect();
        let mut settled = false;
        for nonces in nonces.chunks(ROUND) {
            let slots = nonces.iter().filter_map(|nonce| Some(&self.slots.get(nonce)?.slot));
            let found: Result<Vec<_>, _> =
                join_all(slots.map(|slot| self.find_receipt(slot))).await.into_iter().collect();
            let found: Vec<_> = found?.into_iter().flatten().collect();
            if !found.is_empty() {
                faults::point("after_receipt");
                faults::point("before_settle");
            }
            // Side by side, so that they share the journal's commits.
            for written in join_all(found.iter().map(|found| self.settle(found))).await {
                let (nonce, event) = written?;
                faults::point("after_settle");
                self.slots.remove(&nonce);
                self.highest_mined = self.highest_mined.max(Some(nonce));
                settled = true;
                if let Some(event) = event {
                    self.tell(event);
                }
            }
        }
        Ok(settled)
    }

    /// Looks all hashes of a nonce up, the latest first: any of them may be the one that was mined.
    async fn find_receipt(&self, slot: &Slot) -> Result<Option<(u64, Purpose, Receipt)>, RpcError> {
        for attempt in slot.attempts.iter().rev() {
            if let Some(receipt) = self.node.receipt(attempt.hash).await? {
                return Ok(Some((slot.nonce, attempt.purpose, receipt)));
            }
        }
        Ok(None)
    }

    /// Writes down what a mined transaction did and cost.
    async fn settle(&self, found: &(u64, Purpose, Receipt)) -> Result<(u64, Option<Event>), JournalError> {
        let (nonce, purpose, receipt) = (found.0, found.1, &found.2);
        let order = self.slots.get(&nonce).and_then(|tracked| tracked.slot.order);
        let outcome = order.map(|order| (order.id, self.contracts.outcome(&order, purpose, receipt)));
        let (mined, paid, now) = ((receipt.hash, receipt.block_number), receipt.paid_wei, self.clock.now());
        let written = outcome.clone();
        let settle = move |journal: &Journal| {
            let outcome = written.as_ref().map(|(id, outcome)| (*id, outcome));
            journal.settle(nonce, mined, paid, outcome, now)
        };
        self.journal.run(settle).await?;
        self.metrics.paid_wei.inc_by(gauge_value(paid));
        tracing::info!(
            nonce,
            tx = %receipt.hash,
            block = receipt.block_number,
            purpose = purpose.name(),
            paid_wei = paid,
            "mined"
        );
        Ok((nonce, outcome.map(|(id, outcome)| Event::Finished(id, outcome))))
    }

    /// Re-sends, replaces or cancels what has waited long enough.
    async fn advance(&mut self, market: &Market) -> Result<(), Trouble> {
        let nonces: Vec<u64> = self.slots.keys().copied().take(ROUND).collect();
        let mut resend = Vec::new();
        for nonce in nonces {
            let mut step = self.step(nonce, market, None);
            if step == Step::AskForwarder {
                let superseded = self.is_superseded(nonce).await?;
                if superseded && self.node.mined_nonce().await? > nonce {
                    // It was our own transaction, mined since this round began.
                    continue;
                }
                step = self.step(nonce, market, Some(superseded));
            }
            match step {
                Step::Wait | Step::AskForwarder => {}
                Step::Resend => resend.push(nonce),
                Step::Replace(fees) => self.replace(nonce, fees, None).await?,
                Step::Cancel(purpose, fees) => self.replace(nonce, fees, Some(purpose)).await?,
            }
        }
        self.metrics.resends.inc_by(resend.len() as u64);
        self.send(&resend).await;
        Ok(())
    }

    fn step(&self, nonce: u64, market: &Market, superseded: Option<bool>) -> Step {
        let Some(tracked) = self.slots.get(&nonce).filter(|tracked| tracked.absent.is_none()) else {
            return Step::Wait;
        };
        next_step(&Situation {
            slot: &tracked.slot,
            verdict: tracked.verdict,
            blocks_since_send: market.head.saturating_sub(tracked.sent_head),
            blocks_since_signed: market.head.saturating_sub(tracked.signed_head),
            since_send: tracked.sent_at.elapsed(),
            since_signed: tracked.signed_at.elapsed(),
            market: *market,
            cap: self.spending.max_fee,
            now: self.clock.now(),
            superseded,
        })
    }

    /// Whether the request behind a nonce was executed by a transaction that is not ours: then its forwarder
    /// nonce is used up though our nonce is not.
    async fn is_superseded(&self, nonce: u64) -> Result<bool, Trouble> {
        let Some(order) = self.slots.get(&nonce).and_then(|tracked| tracked.slot.order) else {
            return Ok(false);
        };
        Ok(self.node.forwarder_nonce(order.signer).await? > order.forward_nonce)
    }

    /// Signs and sends a replacement: the same call, or a no-op if `cancel` says why. Where the budget does
    /// not allow it, the old bytes go out again.
    async fn replace(&mut self, nonce: u64, fees: Fees, cancel: Option<Purpose>) -> Result<(), Trouble> {
        let Some(slot) = self.slots.get(&nonce).map(|tracked| tracked.slot.clone()) else { return Ok(()) };
        let Some(latest) = slot.latest() else { return Ok(()) };
        let attempt = match cancel.or((latest.purpose != Purpose::Relay).then_some(latest.purpose)) {
            Some(purpose) => self.wallet.no_op(nonce, fees, purpose)?,
            None => self.wallet.relay_again(nonce, latest, fees)?,
        };
        if let Some(order) = slot.order {
            let worst = slot.attempts.iter().chain([&attempt]).map(worst_case).max().unwrap_or_default();
            let (limit, now) = (self.spending.daily_wei, self.clock.now());
            let wei = worst.saturating_add(order.l1_fee_wei);
            let reserve =
                move |journal: &Journal| journal.reserve(order.id, wei, order.l1_fee_wei, limit, now);
            if !self.journal.run(reserve).await? {
                tracing::warn!(nonce, "the budget does not allow a replacement");
                self.send(&[nonce]).await;
                return Ok(());
            }
        }
        let replaced = Slot { attempts: vec![attempt.clone()], ..slot };
        self.write(&[replaced]).await?;
        faults::point("before_replacement_send");
        self.metrics.replacements.inc();
        if let Some(tracked) = self.slots.get_mut(&nonce) {
            tracked.slot.attempts.push(attempt);
            tracked.signed_head = self.head;
            tracked.signed_at = Instant::now();
        }
        self.send(&[nonce]).await;
        Ok(())
    }

    /// Gives up nonces that somebody else's transaction has used, once receipts have had time to show up.
    async fn give_up_lost(&mut self, mined: u64) -> Result<(), Trouble> {
        let mut lost = Vec::new();
        for (nonce, tracked) in &mut self.slots {
            if *nonce >= mined {
                tracked.absent = None;
                continue;
            }
            let (head, since) = *tracked.absent.get_or_insert_with(|| (self.head, Instant::now()));
            if self.head >= head.saturating_add(LOST_AFTER_BLOCKS) || since.elapsed() >= LOST_AFTER {
                lost.push(*nonce);
            }
        }
        for nonce in lost {
            self.journal.run(move |journal| journal.lose(nonce)).await?;
            self.metrics.foreign_nonces.inc();
            tracing::error!(nonce, "a transaction that is not ours used this nonce: who else has the key?");
            if let Some(order) = self.slots.remove(&nonce).and_then(|tracked| tracked.slot.order) {
                self.tell(Event::Requeue(order.id));
            }
        }
        Ok(())
    }

    /// The lowest nonce that is not mined must be in somebody's hands, or everything behind it is stuck.
    async fn fill_hole(&mut self, mined: u64, market: &Market) -> Result<(), Trouble> {
        let Some(lowest) = self.slots.keys().next().copied().filter(|lowest| *lowest > mined) else {
            return Ok(());
        };
        let pending = self.node.pending_nonce().await?;
        if pending > mined {
            return Ok(());
        }
        let Some(fees) = Fees::initial(market, self.spending.max_fee) else { return Ok(()) };
        let mut slots = Vec::new();
        for nonce in (mined..lowest).take(ROUND) {
            let attempt = self.wallet.no_op(nonce, fees, Purpose::Gap)?;
            slots.push(Slot { nonce, order: None, attempts: vec![attempt] });
        }
        tracing::warn!(from = mined, to = lowest, "filling a hole in the nonce sequence");
        self.write(&slots).await?;
        let holes: Vec<u64> = slots.iter().map(|slot| slot.nonce).collect();
        slots.into_iter().for_each(|slot| self.track(slot));
        self.send(&holes).await;
        Ok(())
    }

    /// A reorganisation: nonces seen mined are not mined any more. Their bytes are sent again.
    async fn take_back(&mut self, mined: u64) -> Result<(), Trouble> {
        let head = self.head;
        let undone = self.journal.run(move |journal| journal.mined_from(mined, head)).await?;
        let mut nonces = Vec::new();
        for undone in undone {
            let nonce = undone.slot.nonce;
            let order = undone.slot.order;
            let worst = undone.slot.attempts.iter().map(worst_case).max().unwrap_or_default();
            let worst = worst.saturating_add(order.map(|order| order.l1_fee_wei).unwrap_or_default());
            self.journal.run(move |journal| journal.reopen(nonce, worst)).await?;
            self.metrics.reorganised.inc();
            tracing::warn!(nonce, block = undone.block, head, "a reorganisation took this nonce back");
            self.track(undone.slot);
            nonces.push(nonce);
            if let Some(order) = order {
                self.tell(Event::Reopened(order));
            }
        }
        self.highest_mined = self.journal.run(Journal::highest_mined).await?;
        self.send(&nonces).await;
        Ok(())
    }

    async fn drop_unsent(&self, id: B256, failure: Failure) {
        let outcome = Outcome::Dropped { failure };
        let (written, now) = (outcome.clone(), self.clock.now());
        if let Err(error) = self.journal.run(move |journal| journal.finish_unsent(id, &written, now)).await {
            tracing::error!(%error, relay = %id, "dropped relay not journalled");
        }
        self.tell(Event::Finished(id, outcome));
    }

    fn tell(&self, event: Event) {
        // Nobody listens any more only while the daemon stops; the journal knows all the same.
        let _ = self.events.send(event);
    }
}

/// The most that a transaction can cost on the chain itself, wei.
fn worst_case(attempt: &Attempt) -> u128 {
    attempt.fees.worst_case(attempt.gas_limit)
}
