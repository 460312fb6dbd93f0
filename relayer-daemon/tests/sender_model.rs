//! The sender against a model of a node, through any order of what can happen: transactions dropped, blocks
//! undone, answers lost, somebody else's transactions with the same key, restarts between any two steps.
//!
//! Once the trouble is over, always: nothing is stuck, no request was carried out twice or paid for twice,
//! every outcome reported is the chain's, what was spent is within the budget and the store's sum of it.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    unreachable_pub
)]

mod model;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use alloy::{
    primitives::{Address, B256, Bytes, U256, aliases::U48, keccak256},
    sol_types::SolCall,
};
use model::{FORWARDER, GWEI, KEY, Lost, ModelNode};
use proptest::prelude::*;
use registry_core::{abi::ForwardRequest, abi::IForwarder::executeCall};
use relayer_daemon::{
    chain::Node,
    clock::Clock,
    fees::Fees,
    gas,
    metrics::Metrics,
    outcome::{Failure, Outcome},
    sender::{Event, Job, Parts, Sender, Spending, judge::Contracts, sign::Wallet},
    store::{Accepted, NewRelay, SqliteStore, Store},
    transaction::RelayTerms,
};
use tokio::sync::mpsc;

const FEE_CAP: u128 = 50 * GWEI;
const SIGNERS: u8 = 4;

#[derive(Debug, Clone, Copy)]
enum Op {
    /// A client of this signer sends its next request, if it has none in flight.
    Request(u8),
    Poll,
    Watch,
    Mine(usize),
    Drop(usize),
    Reorganise(usize, bool),
    Foreign,
    Bypass(u8),
    Lose(Lost),
    /// The base fee, in tenths of gwei.
    BaseFee(u16),
    Wait(u8),
    Restart,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => (0..SIGNERS).prop_map(Op::Request),
        5 => Just(Op::Poll),
        1 => Just(Op::Watch),
        5 => (0_usize..4).prop_map(Op::Mine),
        1 => (0_usize..3).prop_map(Op::Drop),
        1 => (1_usize..4, any::<bool>()).prop_map(|(depth, forget)| Op::Reorganise(depth, forget)),
        1 => Just(Op::Foreign),
        1 => (0..SIGNERS).prop_map(Op::Bypass),
        2 => prop_oneof![Just(Lost::Answer), Just(Lost::Transaction)].prop_map(Op::Lose),
        2 => (1_u16..700).prop_map(Op::BaseFee),
        2 => (0_u8..12).prop_map(Op::Wait),
        1 => Just(Op::Restart),
    ]
}

#[derive(Debug, Default)]
struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The daemon without HTTP: a sender, a store, and the pipeline's part in short.
struct World {
    node: Arc<ModelNode>,
    store: Arc<dyn Store>,
    clock: Arc<TestClock>,
    sender: Option<Sender<ModelNode>>,
    events: mpsc::UnboundedReceiver<Event>,
    requests: BTreeMap<B256, NewRelay>,
    in_flight: BTreeMap<B256, Address>,
    outcomes: BTreeMap<B256, Outcome>,
    budget: u128,
}

fn signer(index: u8) -> Address {
    Address::repeat_byte(index + 1)
}

impl World {
    async fn new(budget: u128) -> Self {
        let store: Arc<dyn Store> = Arc::new(SqliteStore::in_memory().unwrap());
        let node = Arc::new(ModelNode::new(Arc::clone(&store), FEE_CAP));
        node.state().mine(0);
        let (_, events) = mpsc::unbounded_channel();
        let mut world = Self {
            node,
            store,
            clock: Arc::default(),
            sender: None,
            events,
            requests: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            budget,
        };
        world.clock.0.store(1_000_000, Ordering::Relaxed);
        world.restart().await;
        world
    }

    /// Whatever was in memory is gone; the store is all there is.
    async fn restart(&mut self) {
        let (events_in, events) = mpsc::unbounded_channel();
        self.events = events;
        self.in_flight.clear();
        let mut sender = Sender::new(Parts {
            node: Arc::clone(&self.node),
            store: Arc::clone(&self.store),
            wallet: Wallet::new(KEY.clone(), 31_337, FORWARDER),
            contracts: Contracts { forwarder: FORWARDER, registry: Address::ZERO },
            spending: Spending { max_fee: FEE_CAP, daily_wei: self.budget },
            clock: self.clock.clone(),
            metrics: Metrics::new().unwrap(),
            events: events_in,
        });
        for slot in sender.recover().await.unwrap() {
            if let Some(relay) = slot.relay {
                self.in_flight.insert(relay.id, relay.signer);
            }
        }
        self.sender = Some(sender);
        for relay in self.store.unsent(self.clock.now()).unwrap() {
            self.pipeline(relay).await;
        }
        self.take_events().await;
    }

    async fn request(&mut self, index: u8) {
        let from = signer(index);
        if self.in_flight.values().any(|signer| *signer == from) {
            return;
        }
        let nonce = self.node.state().forwarder_nonce(from);
        let request = ForwardRequest {
            from,
            to: Address::ZERO,
            value: U256::ZERO,
            gas: U256::from(100_000),
            nonce,
            deadline: U48::ZERO,
            data: Bytes::new(),
        };
        let id = keccak256([from.as_slice(), &nonce.to_be_bytes::<32>()].concat());
        let calldata = executeCall { req: request, signature: Bytes::new() }.abi_encode();
        let relay =
            NewRelay { id, signer: from, forward_nonce: nonce, deadline: 0, calldata: calldata.into() };
        match self.store.accept(&relay, self.clock.now()).unwrap() {
            Accepted::Finished(_) => return,
            Accepted::Pending => {}
        }
        self.outcomes.remove(&id);
        self.requests.insert(id, relay.clone());
        self.pipeline(relay).await;
        self.take_events().await;
    }

    /// What `relay` does between acceptance and the sender.
    async fn pipeline(&mut self, relay: NewRelay) {
        self.in_flight.insert(relay.id, relay.signer);
        let gas_limit = gas::limit(&relay.calldata, 100_000);
        let market = self.node.market().await.unwrap();
        let now = self.clock.now();
        let failure = match Fees::initial(&market, FEE_CAP) {
            None => Failure::network_too_expensive(),
            Some(fees) => {
                let wei = fees.worst_case(gas_limit);
                let next = self.node.forwarder_nonce(relay.signer).await.unwrap();
                if !self.store.reserve(relay.id, wei, 0, self.budget, now).unwrap() {
                    Failure::budget_exhausted(1)
                } else if next != relay.forward_nonce {
                    Failure::nonce_mismatch()
                } else {
                    let terms = RelayTerms {
                        id: relay.id,
                        signer: relay.signer,
                        forward_nonce: relay.forward_nonce,
                        deadline: 0,
                        l1_fee_wei: 0,
                    };
                    let job =
                        Job { relay: terms, calldata: relay.calldata, gas_limit, fees, head: market.head };
                    self.sender.as_mut().unwrap().submit(vec![job]).await;
                    return;
                }
            }
        };
        let outcome = Outcome::Dropped { failure };
        self.store.finish_unsent(relay.id, &outcome, now).unwrap();
        self.finished(relay.id, outcome);
    }

    fn finished(&mut self, id: B256, outcome: Outcome) {
        self.in_flight.remove(&id);
        self.outcomes.insert(id, outcome);
    }

    async fn take_events(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            match event {
                Event::Finished(id, outcome) => self.finished(id, outcome),
                Event::Reopened(relay) => {
                    self.outcomes.remove(&relay.id);
                    self.in_flight.insert(relay.id, relay.signer);
                }
                Event::Requeue(id) | Event::Unsent(id, _) => {
                    let relay = self.store.accepted(id).unwrap().unwrap();
                    self.pipeline(relay).await;
                }
            }
        }
    }

    async fn apply(&mut self, op: Op) {
        match op {
            Op::Request(index) => self.request(index).await,
            Op::Poll => self.sender.as_mut().unwrap().poll().await.unwrap(),
            Op::Watch => drop(self.sender.as_mut().unwrap().watch_chain().await.unwrap()),
            Op::Mine(room) => self.node.state().mine(room),
            Op::Drop(index) => self.node.state().drop_from_pool(index),
            Op::Reorganise(depth, forget) => self.node.state().reorganise(depth, forget),
            Op::Foreign => self.node.state().foreign_transaction(),
            Op::Bypass(index) => self.node.state().bypass(signer(index)),
            Op::Lose(lost) => self.node.state().lose_next(lost),
            Op::BaseFee(tenths) => self.node.state().set_base_fee(u128::from(tenths) * GWEI / 10),
            Op::Wait(seconds) => self.wait(u64::from(seconds)).await,
            Op::Restart => self.restart().await,
        }
        self.take_events().await;
    }

    async fn wait(&self, seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        self.clock.0.fetch_add(seconds, Ordering::Relaxed);
    }

    /// The trouble is over: time passes, blocks are made, and everything must come to its end.
    async fn settle_down(&mut self) {
        self.node.state().heal();
        for _ in 0..80 {
            self.wait(2).await;
            self.node.state().mine(8);
            let sender = self.sender.as_mut().unwrap();
            sender.watch_chain().await.unwrap();
            sender.poll().await.unwrap();
            self.take_events().await;
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let state = self.node.state();
        prop_assert!(!self.sender.as_ref().unwrap().has_pending(), "something is stuck");
        prop_assert!(self.in_flight.is_empty(), "a client waits for ever");
        prop_assert!(self.store.open_nonces(KEY.address()).unwrap().is_empty());
        let next = self.store.next_nonce(KEY.address()).unwrap().unwrap_or_default();
        // A foreign transaction may have used a nonce of ours and been undone: that hole is filled when the next
        // relay needs it.
        prop_assert!(next <= state.mined() || state.reorganised, "a nonce was given away and never used");

        for (id, relay) in &self.requests {
            let (executed, carried) = state.executions(relay.signer, relay.forward_nonce);
            prop_assert!(executed <= 1);
            if !state.reorganised {
                prop_assert!(carried <= 1, "paid for twice");
            }
            let record = self.store.relay(*id).unwrap().unwrap();
            let outcome = record.outcome.expect("a relay has no end");
            if let Some(told) = self.outcomes.get(id) {
                prop_assert_eq!(told, &outcome, "the client was told something else");
            }
            let by_us = record.hashes.iter().any(|hash| state.carried_out(*hash) && carried > 0);
            match outcome {
                Outcome::Executed { mined, .. } => prop_assert!(state.carried_out(mined.tx_hash)),
                Outcome::Reverted { mined, .. } => prop_assert!(!state.carried_out(mined.tx_hash)),
                Outcome::Dropped { .. } => {
                    prop_assert!(carried == 0 || !by_us || state.reorganised, "executed, and called dropped");
                }
            }
        }

        let budget = self.store.budget(self.budget, self.clock.now()).unwrap();
        prop_assert_eq!(budget.reserved_wei, 0, "a reservation was forgotten");
        if state.reorganised {
            // What was charged for an undone block stays charged: never less than was really paid.
            prop_assert!(budget.window.settled_wei >= state.paid());
        } else {
            prop_assert_eq!(budget.window.settled_wei, state.paid());
            prop_assert!(state.paid() <= self.budget, "overspent");
        }
        Ok(())
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, max_shrink_iters: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_each_request_is_executed_once_at_most_and_nothing_is_lost(
        ops in prop::collection::vec(op(), 1..60),
        budget in prop_oneof![Just(u128::MAX), (1_u128..40).prop_map(|milli| milli * 1_000_000 * GWEI)],
    ) {
        runtime().block_on(async {
            let mut world = World::new(budget).await;
            for op in ops {
                world.apply(op).await;
            }
            world.settle_down().await;
            world.check()
        })?;
    }
}

#[test]
fn an_answer_lost_after_the_node_took_the_transaction_is_not_sent_under_a_second_nonce() {
    runtime().block_on(async {
        let mut world = World::new(u128::MAX).await;
        for op in [Op::Lose(Lost::Answer), Op::Request(0), Op::Restart, Op::Poll, Op::Mine(5), Op::Poll] {
            world.apply(op).await;
        }
        world.settle_down().await;
        world.check().unwrap();
        assert_eq!(world.node.state().mined(), 1);
    });
}

#[test]
fn at_a_budget_that_allows_no_replacement_the_same_bytes_wait_for_the_market() {
    runtime().block_on(async {
        let mut world = World::new(1_000_000 * GWEI).await;
        for op in [Op::Request(0), Op::BaseFee(400), Op::Mine(5), Op::Wait(8), Op::Poll, Op::Poll] {
            world.apply(op).await;
        }
        assert_eq!(world.node.state().base_fee(), 40 * GWEI);
        let id = *world.requests.keys().next().unwrap();
        assert_eq!(world.store.relay(id).unwrap().unwrap().hashes.len(), 1);
        world.settle_down().await;
        world.check().unwrap();
    });
}
