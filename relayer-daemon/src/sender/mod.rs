//! The sender: the one task that owns the account's nonce sequence.
//!
//! The nonce is never counted in memory: the next one is what chain and store say, whichever is higher. It
//! is signed for, journalled, sent, in this order, and then looked after until it is mined. What to do next
//! is decided in [`plan`], what a receipt means in [`judge`]; the steps are in `submit`, `round`, `reorg` and
//! `recover`, the task around all this in [`task`]. The sender is driven step by step and holds no timer, so that a test can drive it
//! through any order of events against a model of a node.

pub mod judge;
pub mod plan;
mod recover;
mod reorg;
mod round;
pub mod sign;
mod submit;
pub mod task;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use alloy::primitives::{B256, Bytes};
use futures_util::future::join_all;
use thiserror::Error;
use tokio::{sync::mpsc, time::Instant};

use self::{judge::Contracts, sign::Wallet};
use crate::{
    chain::{Node, RpcError},
    classify::Verdict,
    clock::SharedClock,
    fees::Fees,
    metrics::Metrics,
    outcome::{Failure, Outcome},
    store::{NewTransaction, Store, StoreError},
    transaction::{NonceAssignment, RelayTerms},
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
    pub relay: RelayTerms,
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
    /// A relay could not be given a nonce, for a fault that may pass: nothing of it is journalled or sent.
    Unsent(B256, Failure),
    /// A relay's nonce went to somebody else's transaction: it must run through the pipeline again.
    Requeue(B256),
    /// A reorganisation took a finished relay's transaction back: it is in flight again.
    Reopened(RelayTerms),
}

/// Why a round could not be finished. The next one tries again.
#[derive(Debug, Error)]
pub enum Trouble {
    /// No endpoint answered.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
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
    slot: NonceAssignment,
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
    store: Arc<dyn Store>,
    wallet: Wallet,
    contracts: Contracts,
    spending: Spending,
    clock: SharedClock,
    metrics: Metrics,
    events: mpsc::UnboundedSender<Event>,
    slots: BTreeMap<u64, Tracked>,
    highest_mined: Option<u64>,
    /// Mined nonces whose receipts are to be looked up once more.
    unconfirmed: VecDeque<(u64, Instant)>,
    head: u64,
}

/// What a sender is made of.
#[derive(Debug)]
pub struct Parts<N> {
    /// The node.
    pub node: Arc<N>,
    /// The store.
    pub store: Arc<dyn Store>,
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
        let Parts { node, store, wallet, contracts, spending, clock, metrics, events } = parts;
        Self {
            node,
            store,
            wallet,
            contracts,
            spending,
            clock,
            metrics,
            events,
            slots: BTreeMap::new(),
            highest_mined: None,
            unconfirmed: VecDeque::new(),
            head: 0,
        }
    }

    /// Whether any nonce waits to be mined.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Journals the latest transaction of each slot.
    async fn write(&self, slots: &[NonceAssignment]) -> Result<(), StoreError> {
        let mut signed = Vec::with_capacity(slots.len());
        for slot in slots {
            let (relay, Some(transaction)) = (slot.relay.map(|relay| relay.id), slot.latest().cloned())
            else {
                continue;
            };
            tracing::info!(
                nonce = slot.nonce,
                tx = %transaction.hash,
                relay = ?relay,
                purpose = transaction.purpose.name(),
                max_fee = transaction.fees.max_fee,
                tip = transaction.fees.tip,
                "signed"
            );
            self.metrics.transactions.with_label_values(&[transaction.purpose.name()]).inc();
            signed.push(NewTransaction { nonce: slot.nonce, relay, transaction });
        }
        let (account, now) = (self.wallet.address(), self.clock.now());
        self.store.run(move |store| store.record(account, &signed, now)).await
    }

    fn track(&mut self, slot: NonceAssignment) {
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

    fn tell(&self, event: Event) {
        // Nobody listens any more only while the daemon stops; the journal knows all the same.
        let _ = self.events.send(event);
    }
}
