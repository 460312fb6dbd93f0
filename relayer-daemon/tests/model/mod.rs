//! The daemon without HTTP in a failing world: pipeline, sender and store against a model of the chain.

pub mod chain;
pub mod node;
mod requests;

use std::{
    collections::{BTreeMap, HashMap},
    net::{IpAddr, Ipv4Addr},
    pin::pin,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use alloy::{
    primitives::{Address, B256, U256},
    signers::local::PrivateKeySigner,
};
use futures_util::FutureExt as _;
use proptest::{prop_assert, prop_assert_eq, test_runner::TestCaseError};
use registry_core::forward::{Rules, domain};
use relayer_daemon::{
    budget::share::{Allowance, Shares},
    metrics::Metrics,
    outcome::RelayOutcome,
    process::clock::{Clock, SharedClock},
    relay::{
        Reads, Relayer,
        backoff::SharedBackoff,
        functions::{RegistryFunction, RelayedFunctions},
        gas_price::GasPrice,
        inflight::Inflight,
        policy::{SharedPolicy, decision::DecisionClient},
        rate_limits::RateLimits,
    },
    sender::{Parts, Sender, Spending, receipt_reader::Contracts, signing::Wallet},
    store::{NewTransaction, Store, StoreFaults},
};
use tokio::{
    sync::{mpsc, watch},
    task::JoinHandle,
    time::{Instant, sleep},
};

use self::{
    chain::{FORWARDER, GWEI, ModelChain},
    node::{Lost, ModelNode, World},
    requests::{body, identify, signer},
};

pub const FEE_CAP: u128 = 50 * GWEI;
pub const SIGNERS: u8 = 4;
/// The most transactions in the pool.
pub const MAX_PENDING: usize = 3;
const REGISTRY: Address = Address::repeat_byte(0xe0);
const CHAIN_ID: u64 = 31_337;

/// What can happen.
#[derive(Debug, Clone, Copy)]
pub enum Op {
    /// A client of this signer sends its next request.
    Request(u8),
    /// The same with a deadline so many seconds away.
    RequestUntil(u8, u8),
    /// The same by a client that hangs up after so many moments.
    HangUp(u8, u8),
    /// A client of this signer sends its last request once more.
    Repeat(u8),
    Mine(usize),
    Drop(usize),
    Reorganise(usize, bool),
    Foreign,
    Bypass(u8),
    Lose(Lost),
    /// The base fee, in tenths of gwei.
    BaseFee(u16),
    /// Time goes by, in tenths of a second.
    Wait(u16),
    Restart,
    /// Receipts come so many seconds later.
    LateReceipts(u8),
    /// Each answer is from a machine that is up to so many seconds behind.
    OldViews(u8),
    /// The next count is this.
    WrongCount(u64),
    /// So many reads have no answer.
    FailingReads(u8),
    SilentEndpoint(bool),
    /// Whether the endpoint fails where the next nonce is asked.
    NoNonces(bool),
    /// Each call takes so many milliseconds more.
    Latency(u8),
    DiskFull(bool),
    Unwilling(bool),
    /// The next relay that is mined reverts as a whole.
    Revert,
    /// The node calls every relay's transaction invalid.
    Rejecting(bool),
    /// The wall clock jumps by so many minutes.
    ClockStep(i16),
}

/// The wall clock: runs with the runtime's paused time, and can be set.
#[derive(Debug)]
struct TestClock {
    started: Instant,
    step_seconds: AtomicI64,
}

impl Clock for TestClock {
    fn now(&self) -> u64 {
        let step = self.step_seconds.load(Ordering::Relaxed);
        (10_000_000 + self.started.elapsed().as_secs()).saturating_add_signed(step)
    }
}

/// One life of the daemon: what a kill -9 takes away.
struct Life {
    relayer: Arc<Relayer<ModelNode>>,
    dead: Arc<AtomicBool>,
    /// Dropped, it would stop the daemon in an orderly way.
    stop: watch::Sender<bool>,
    tasks: [JoinHandle<()>; 2],
}

/// The daemon in its present life, and its world.
pub struct Simulation {
    pub world: Arc<World>,
    pub store: Arc<Store>,
    clock: Arc<TestClock>,
    account: PrivateKeySigner,
    budget: u128,
    lowest_base_fee: u128,
    disk_full: Arc<AtomicBool>,
    life: Option<Life>,
    /// Every request that was accepted: its signer and forwarder nonce.
    pub requests: BTreeMap<B256, (Address, U256)>,
    /// Those of clients that hung up: each was accepted or was not.
    hung_up: BTreeMap<B256, (Address, U256)>,
    /// The last request of each signer, as it was posted.
    last: HashMap<u8, Vec<u8>>,
    /// What the clients heard.
    told: Arc<Mutex<BTreeMap<B256, RelayOutcome>>>,
    disk_was_full: bool,
    clock_was_set: bool,
    /// Whether answers came so late that a block may be compared with a branch that is gone.
    answers_were_late: bool,
}

/// A delay that never hides a reorg, seconds.
const SLIGHTLY_LATE: u8 = 20;

/// A window of the budget, in minutes.
const MINUTES_OF_A_WINDOW: i16 = 24 * 60;

/// Never used: the policy has no webhook. One for all lives, since it reads the system's certificates.
static DECISIONS: LazyLock<DecisionClient> = LazyLock::new(|| {
    let _ = rustls::crypto::ring::default_provider().install_default();
    DecisionClient::new().unwrap()
});

/// The address that all requests come from.
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

impl Simulation {
    pub async fn new(budget: u128, seed: u64) -> Self {
        let store = Arc::new(Store::in_memory().unwrap());
        let account = PrivateKeySigner::from_bytes(&B256::repeat_byte(0x77)).unwrap();
        let world = World::new(ModelChain::new(FEE_CAP), seed, Arc::clone(&store), account.address());
        let clock = TestClock { started: Instant::now(), step_seconds: AtomicI64::new(0) };
        let mut simulation = Self {
            world,
            store,
            clock: Arc::new(clock),
            account,
            budget,
            disk_full: Arc::default(),
            life: None,
            requests: BTreeMap::new(),
            hung_up: BTreeMap::new(),
            last: HashMap::new(),
            told: Arc::default(),
            disk_was_full: false,
            lowest_base_fee: GWEI,
            clock_was_set: false,
            answers_were_late: false,
        };
        simulation.start().await;
        simulation
    }

    /// Starts the daemon as `serve` does. Where that fails a supervisor tries again, at the next step.
    async fn start(&mut self) {
        let faults = StoreFaults { disk_full: Arc::clone(&self.disk_full), dead: Arc::default() };
        let dead = Arc::clone(&faults.dead);
        let store = Arc::new(self.store.with_faults(faults));
        let node = Arc::new(ModelNode { world: Arc::clone(&self.world), dead: Arc::clone(&dead) });
        let clock: SharedClock = Arc::clone(&self.clock) as SharedClock;
        let metrics = Metrics::new().unwrap();
        let wallet = Wallet::new(self.account.clone(), CHAIN_ID, FORWARDER);
        let spending = Spending { max_fee: FEE_CAP, daily_wei: self.budget };
        let (stop, stopping) = watch::channel(false);
        let (jobs_in, jobs) = mpsc::channel(16);
        let (events_in, mut events) = mpsc::unbounded_channel();
        let relayer = Arc::new(Relayer {
            chain: Arc::clone(&node),
            store: Arc::clone(&store),
            domain: domain(CHAIN_ID, FORWARDER),
            rules: Rules { registry: REGISTRY, max_gas: 1_000_000 },
            limits: RateLimits::new(0, 0, 0, 0),
            policy: Arc::new(SharedPolicy::load(None).unwrap()),
            decisions: DECISIONS.clone(),
            functions: RelayedFunctions::new(RegistryFunction::ALL.to_vec()),
            reads: Reads::default(),
            spending,
            // All requests come from one address here.
            allowance: Allowance {
                limit_wei: spending.daily_wei,
                shares: Shares { signer: 100, client: 100, network: 100 },
            },
            gas_price: GasPrice::default(),
            has_l1_fee: false,
            wallet: wallet.clone(),
            inflight: Inflight::new(1_000),
            clock: clock.clone(),
            metrics: metrics.clone(),
            jobs: jobs_in,
            checks: Relayer::check_permits(),
            backoff: SharedBackoff::default(),
            patience: Duration::from_secs(120),
            stopping: stopping.clone(),
            draining: stopping.clone(),
        });
        let contracts = Contracts { forwarder: FORWARDER, registry: REGISTRY };
        let sender = Sender::new(Parts {
            node,
            store: Arc::clone(&store),
            wallet,
            contracts,
            spending,
            max_pending: MAX_PENDING,
            clock,
            metrics,
            events: events_in,
        });
        let Ok(in_flight) = sender.recover().await else { return };
        for relay in in_flight {
            let _ = relayer.inflight.start(relay.id, relay.signer, relay.forward_nonce);
        }
        let now = self.clock.now();
        let Ok(unsent) = store.run(move |store| store.unsent(now)).await else { return };
        unsent.into_iter().for_each(|relay| relayer.resume(relay));
        let listening = tokio::spawn({
            let relayer = Arc::clone(&relayer);
            async move {
                while let Some(event) = events.recv().await {
                    relayer.on_event(event).await;
                }
            }
        });
        let tasks = [tokio::spawn(sender.run(jobs, stopping)), listening];
        self.life = Some(Life { relayer, dead, stop, tasks });
    }

    /// Kills the daemon: only the store is left.
    pub fn kill(&mut self) {
        let Some(life) = self.life.take() else { return };
        life.dead.store(true, Ordering::Relaxed);
        // Tasks that still run must have no effect, like those of a killed process.
        let _ = life.stop.send(true);
        life.tasks.iter().for_each(JoinHandle::abort);
    }

    async fn request(&mut self, index: u8, seconds: Option<u8>) {
        let body = self.next_body(index, seconds);
        self.post(body).await;
    }

    /// The signer's next request, as a client would post it now.
    fn next_body(&mut self, index: u8, seconds: Option<u8>) -> Vec<u8> {
        let on_chain = self.world.chain().now().forwarder_nonce(signer(index));
        let nonce = match &self.life {
            Some(life) => life.relayer.inflight.next_nonce(signer(index), on_chain),
            None => on_chain,
        };
        let body = body(index, nonce, seconds.map_or(0, |seconds| self.clock.now() + u64::from(seconds)));
        self.last.insert(index, body.clone());
        body
    }

    async fn post(&mut self, body: Vec<u8>) {
        let Some(life) = &self.life else { return };
        let Ok(ticket) = life.relayer.accept(&body, CLIENT, None).await else { return };
        let (id, terms) = identify(&body);
        assert_eq!(id, ticket.id);
        self.requests.insert(id, terms);
        self.told.lock().unwrap().remove(&id);
        let told = Arc::clone(&self.told);
        tokio::spawn(async move {
            let mut waiting = ticket.waiting;
            let heard = waiting.wait_for(Option::is_some).await.ok().and_then(|outcome| outcome.clone());
            heard.map(|outcome| told.lock().unwrap().insert(id, outcome));
        });
    }

    /// A client that hangs up: the server drops the handler's future wherever it is.
    async fn hang_up(&mut self, index: u8, moments: u8) {
        let body = self.next_body(index, None);
        let Some(life) = &self.life else { return };
        let (id, terms) = identify(&body);
        self.hung_up.insert(id, terms);
        self.told.lock().unwrap().remove(&id);
        let mut accepting = pin!(life.relayer.accept(&body, CLIENT, None));
        for _ in 0..moments {
            if (&mut accepting).now_or_never().is_some() {
                return;
            }
            // Time is paused while the store works, so each moment lasts as long as a read or a write.
            sleep(Duration::from_millis(1)).await;
        }
    }

    pub async fn apply(&mut self, op: Op) {
        match op {
            Op::Request(index) => self.request(index, None).await,
            Op::RequestUntil(index, seconds) => self.request(index, Some(seconds)).await,
            Op::HangUp(index, moments) => self.hang_up(index, moments).await,
            Op::Repeat(index) => {
                if let Some(body) = self.last.get(&index).cloned() {
                    self.post(body).await;
                }
            }
            Op::Revert => self.world.chain().reverts += 1,
            Op::Rejecting(rejects) => self.world.chain().rejects = rejects,
            Op::Mine(room) => self.world.chain().mine(room),
            Op::Drop(index) => self.world.chain().drop_from_pool(index),
            Op::Reorganise(depth, forget) => self.world.chain().reorganise(depth, forget),
            Op::Foreign => self.world.chain().foreign_transaction(),
            Op::Bypass(index) => self.world.chain().bypass(signer(index)),
            Op::Lose(lost) => self.world.faults().lost.push_back(lost),
            Op::BaseFee(tenths) => {
                let wei = u128::from(tenths) * GWEI / 10;
                self.lowest_base_fee = self.lowest_base_fee.min(wei);
                self.world.chain().set_base_fee(wei);
            }
            Op::Wait(tenths) => sleep(Duration::from_millis(u64::from(tenths) * 100)).await,
            Op::Restart => self.kill(),
            Op::LateReceipts(seconds) => {
                self.answers_were_late |= seconds > SLIGHTLY_LATE;
                self.world.faults().late_receipts = Duration::from_secs(u64::from(seconds));
            }
            Op::OldViews(seconds) => {
                self.answers_were_late |= seconds > SLIGHTLY_LATE;
                self.world.faults().oldest_view = Duration::from_secs(u64::from(seconds));
            }
            Op::WrongCount(count) => self.world.faults().wrong_counts.push_back(count),
            Op::FailingReads(count) => self.world.faults().failing_reads = usize::from(count),
            Op::NoNonces(fails) => self.world.faults().no_nonces = fails,
            Op::Latency(millis) => {
                self.world.faults().latency = Duration::from_millis(u64::from(millis));
            }
            Op::SilentEndpoint(silent) => self.world.faults().silent_endpoint = silent,
            Op::DiskFull(full) => {
                self.disk_was_full |= full;
                self.disk_full.store(full, Ordering::Relaxed);
            }
            Op::Unwilling(unwilling) => self.world.chain().unwilling = unwilling,
            Op::ClockStep(minutes) => {
                self.clock_was_set = true;
                self.clock.step_seconds.fetch_add(i64::from(minutes) * 60, Ordering::Relaxed);
            }
        }
        if self.life.is_none() {
            self.start().await;
        }
        // Lets everything due happen.
        sleep(Duration::from_millis(50)).await;
    }

    /// Writes into the store that a relay has one more nonce, signed and not sent.
    pub fn assign_a_second_nonce(&self, id: B256) {
        let account = self.account.address();
        let nonce = self.store.next_nonce(account).unwrap().unwrap();
        let first = self.store.assignment(account, nonce - 1).unwrap();
        assert_eq!(first.relay.map(|relay| relay.id), Some(id));
        let wallet = Wallet::new(self.account.clone(), CHAIN_ID, FORWARDER);
        let latest = first.latest().unwrap();
        let transaction = wallet.relay_again(nonce, latest, latest.fees).now_or_never().unwrap().unwrap();
        let second = NewTransaction { nonce, relay: Some(id), transaction };
        self.store.record(account, &[second], self.clock.now()).unwrap();
    }

    /// Whether this relay is in flight, so that clients and the signer's next request wait for it.
    pub fn is_waited_for(&self, id: B256) -> bool {
        self.life.as_ref().is_some_and(|life| life.relayer.inflight.age(id).is_some())
    }

    /// Whether nothing is in flight.
    pub fn is_quiet(&self) -> bool {
        let open = self.store.open_nonces(self.account.address()).unwrap();
        open.is_empty() && self.life.as_ref().is_some_and(|life| life.relayer.inflight.is_empty())
    }

    /// Ends the faults and lets time and blocks pass until everything has ended.
    pub async fn settle_down(&mut self) {
        *self.world.faults() = node::ModelFaults::default();
        self.disk_full.store(false, Ordering::Relaxed);
        {
            let mut chain = self.world.chain();
            chain.unwilling = false;
            chain.rejects = false;
            chain.reverts = 0;
            // A budget that is too small for a dearer market waits for the old one.
            let limited = self.budget < u128::MAX;
            chain.set_base_fee(if limited { self.lowest_base_fee } else { GWEI });
        }
        if self.disk_was_full {
            // What could not be written is recovered by the next start.
            self.kill();
        }
        // Two minutes in any case: receipts are confirmed after one. If an undone nonce was used by a foreign
        // transaction, answers that disagree are waited for: twice ten minutes at most.
        let usurped = {
            let chain = self.world.chain();
            chain.reorganised && chain.now().has_foreign()
        };
        let least = if usurped { 240 } else { 40 };
        for step in 0..600 {
            if step >= least && self.is_quiet() {
                break;
            }
            if step > least && (step - least) % 100 == 0 && self.budget < u128::MAX {
                // What the budget of one window does not allow, such as many gaps, waits for the next one's.
                self.apply(Op::ClockStep(MINUTES_OF_A_WINDOW)).await;
            }
            if self.life.is_none() {
                self.start().await;
            }
            sleep(Duration::from_secs(3)).await;
            self.world.chain().mine(8);
        }
    }

    pub fn check(&self) -> Result<(), TestCaseError> {
        let chain = self.world.chain();
        let now = chain.now();
        prop_assert!(self.store.open_nonces(self.account.address()).unwrap().is_empty(), "a nonce is stuck");
        prop_assert!(self.is_quiet(), "a client waits for ever");
        let next = self.store.next_nonce(self.account.address()).unwrap().unwrap_or_default();
        // A foreign transaction may have used our nonce and been undone: the next relay fills that gap.
        prop_assert!(next <= now.mined() || chain.reorganised, "a nonce was given away and never used");

        // Of machines on two branches one may confirm a block that the other has not: very late answers, or
        // foreign transactions that used the nonces again, may hide what a reorg has moved.
        let hidden = chain.reorganised && (now.has_foreign() || self.answers_were_late);
        let stored = |(id, _): &(&B256, _)| self.store.relay(**id).unwrap().is_some();
        for (id, (signer, nonce)) in self.requests.iter().chain(self.hung_up.iter().filter(stored)) {
            let carried = now.carried(*signer, *nonce);
            if !chain.reorganised {
                prop_assert!(carried <= 1, "paid for {} times", carried);
            }
            let record = self.store.relay(*id).unwrap().expect("an accepted relay is not stored");
            let outcome = record.outcome.expect("a relay has no end");
            if let Some(told) = self.told.lock().unwrap().get(id)
                && !chain.reorganised
                && !self.disk_was_full
            {
                prop_assert_eq!(told, &outcome, "the client was told something else");
            }
            match outcome {
                RelayOutcome::Executed { mined, .. } => {
                    prop_assert!(hidden || now.carried_out(mined.tx_hash))
                }
                RelayOutcome::Reverted { mined, .. } => {
                    prop_assert!(hidden || !now.carried_out(mined.tx_hash))
                }
                RelayOutcome::Dropped { .. } => {
                    let by_us = record.hashes.iter().any(|hash| now.carried_out(*hash));
                    prop_assert!(!by_us || chain.reorganised, "executed, and called dropped");
                }
            }
        }

        let budget = self.store.budget(self.budget, self.clock.now()).unwrap();
        prop_assert_eq!(budget.reserved_wei, 0, "a reservation was forgotten");
        if self.clock_was_set {
            return Ok(());
        }
        if chain.reorganised {
            // What was charged for an undone block stays charged: never less than was really paid.
            prop_assert!(hidden || budget.window.settled_wei >= now.paid());
        } else {
            prop_assert_eq!(
                budget.window.settled_wei,
                now.paid(),
                "charged something else than what was paid"
            );
            prop_assert!(now.paid() <= self.budget, "overspent");
        }
        Ok(())
    }
}

/// A runtime with paused time, which advances only when all tasks wait for it.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}
