//! The daemon without HTTP in a failing world: pipeline, sender and store against a model of the chain.

pub mod chain;
mod database;
mod draining;
mod fleet;
mod gaps;
mod given_up;
mod invariants;
pub mod node;
pub mod ops;
mod panics;
mod poor_accounts;
#[allow(dead_code, unreachable_pub, reason = "the end-to-end tests use it too")]
#[path = "../../../tests/src/postgres.rs"]
mod postgres_server;
mod requests;
mod several_accounts;
pub mod strategies;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use alloy::primitives::{Address, B256, Bytes, U256};
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolCall;
use futures_util::FutureExt as _;
use proptest::test_runner::TestCaseError;
use registry_core::forward::Rules;
use relayer_daemon::budget::share::{Allowance, Shares};
use relayer_daemon::chain::Receipt;
use relayer_daemon::daemon::assembly::{Assembly, DaemonParts};
use relayer_daemon::daemon::check::CheckedKey;
use relayer_daemon::daemon::fleet::LeaseKeeper;
use relayer_daemon::daemon::keyless;
use relayer_daemon::gas::fees::Market;
use relayer_daemon::gas::no_op_limit;
use relayer_daemon::metrics::Metrics;
use relayer_daemon::outcome::{BlockHeads, ErrorCode, Failure, RelayOutcome};
use relayer_daemon::process::clock::{Clock, SharedClock};
use relayer_daemon::relay::fleet::follow;
use relayer_daemon::relay::functions::{RegistryFunction, RelayedFunctions};
use relayer_daemon::relay::policy::SharedPolicy;
use relayer_daemon::relay::policy::decision::DecisionClient;
use relayer_daemon::relay::rate_limits::RateLimits;
use relayer_daemon::relay::{Relayer, RequestTerms};
use relayer_daemon::sender::SpendingLimits;
use relayer_daemon::sender::lease::Lease;
use relayer_daemon::sender::receipt_reader::Contracts;
use relayer_daemon::store::control::Order;
use relayer_daemon::store::{DaemonId, RelayRecord, Retention, Store, StoreFaults};
use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use self::chain::{FORWARDER, GWEI, ModelChain};
use self::database::ModelDatabase;
use self::node::{LostSend, ModelNode, World};
use self::ops::{Op, requests};
use self::requests::{body, identify};

pub const FEE_CAP: u128 = 50 * GWEI;
pub const SIGNERS: u8 = 4;
pub const MAX_PENDING: usize = 3;
const REGISTRY: Address = Address::repeat_byte(0xe0);
const CHAIN_ID: u64 = 31_337;

/// Never used: the policy has no webhook. One for all lives, since it reads the system's certificates.
static DECISIONS: LazyLock<DecisionClient> = LazyLock::new(|| {
    let _ = rustls::crypto::ring::default_provider().install_default();
    DecisionClient::new().unwrap()
});

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
    paused: watch::Sender<bool>,
    draining: watch::Sender<bool>,
    /// Dropped, it would stop the daemon in an orderly way.
    stop: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

/// The daemon in its present life, and its world.
pub struct Simulation {
    pub world: Arc<World>,
    pub store: Arc<Store>,
    database: ModelDatabase,
    /// True if the replica lags behind.
    lags: bool,
    clock: Arc<TestClock>,
    keys: Vec<PrivateKeySigner>,
    budget: u128,
    lowest_base_fee: u128,
    /// For each daemon, true while its writes fail.
    disk_full: Vec<Arc<AtomicBool>>,
    /// Writes that are left until no daemon's database answers.
    writes_left: Arc<AtomicUsize>,
    lives: Vec<Option<Life>>,
    turn: AtomicUsize,
    /// Every request that was accepted: its signer and forwarder nonce.
    pub requests: BTreeMap<B256, (Address, U256)>,
    /// Requests of clients that hung up: each was accepted or was not.
    hung_up: BTreeMap<B256, (Address, U256)>,
    sent: HashMap<u8, Vec<Vec<u8>>>,
    told: Arc<Mutex<BTreeMap<B256, RelayOutcome>>>,
    disk_was_full: bool,
    was_abandoned: bool,
    clock_was_set: bool,
    /// True if answers came late: a block may have been compared with a branch that is gone.
    answers_were_late: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Setup {
    /// Number of daemons; more than one are a fleet.
    pub daemons: usize,
    /// True if a fleet's database is Postgres.
    pub is_postgres: bool,
    pub accounts: u8,
    pub budget: u128,
    pub seed: u64,
}

/// One daemon with one account, and a budget without a limit.
pub const SINGLE: Setup = Setup { daemons: 1, is_postgres: false, accounts: 1, budget: u128::MAX, seed: 7 };

pub const fn with_budget(gwei: u128) -> Setup {
    Setup { budget: gwei * GWEI, ..SINGLE }
}

pub fn simulate(setup: Setup, test: impl AsyncFnOnce(&mut Simulation)) -> Result<Simulation, TestCaseError> {
    panics::watch();
    // Its paused time advances only when all tasks wait for it.
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut simulation = Simulation::new(setup).await;
        test(&mut simulation).await;
        simulation.settle_down().await;
        simulation.check()?;
        Ok(simulation)
    })
}

/// Runs a simulation that must end well.
pub fn run(setup: Setup, test: impl AsyncFnOnce(&mut Simulation)) -> Simulation {
    simulate(setup, test).unwrap()
}

/// Runs a history, checks it, lets the faults pass, and checks what must always hold.
pub fn history(setup: Setup, ops: impl AsRef<[Op]>, check: impl FnOnce(&Simulation)) {
    run(setup, async |simulation| {
        simulation.play(ops).await;
        check(simulation);
    });
}

impl Simulation {
    async fn new(Setup { daemons, is_postgres, accounts, budget, seed }: Setup) -> Self {
        let (store, database) = if daemons > 1 {
            let database_clock = Arc::new(AtomicI64::new(10_000_000_000));
            fleet::tick(Arc::clone(&database_clock));
            ModelDatabase::shared(is_postgres, database_clock)
        } else {
            (Store::in_memory().unwrap(), ModelDatabase::Alone)
        };
        let store = Arc::new(store);
        let key = |index| PrivateKeySigner::from_bytes(&B256::repeat_byte(0x77 + index)).unwrap();
        let keys: Vec<PrivateKeySigner> = (0..accounts).map(key).collect();
        let addresses = keys.iter().map(PrivateKeySigner::address).collect();
        let world = World::new(ModelChain::new(FEE_CAP, budget), seed, Arc::clone(&store), addresses);
        let clock = TestClock { started: Instant::now(), step_seconds: AtomicI64::new(0) };
        let mut simulation = Self {
            world,
            store,
            database,
            lags: false,
            clock: Arc::new(clock),
            keys,
            budget,
            disk_full: (0..daemons).map(|_| Arc::default()).collect(),
            writes_left: Arc::new(AtomicUsize::new(usize::MAX)),
            lives: (0..daemons).map(|_| None).collect(),
            turn: AtomicUsize::new(0),
            requests: BTreeMap::new(),
            hung_up: BTreeMap::new(),
            sent: HashMap::new(),
            told: Arc::default(),
            disk_was_full: false,
            was_abandoned: false,
            lowest_base_fee: GWEI,
            clock_was_set: false,
            answers_were_late: false,
        };
        simulation.start().await;
        simulation
    }

    async fn start(&mut self) {
        for index in 0..self.lives.len() {
            if self.lives[index].is_none() {
                self.lives[index] = self.start_one(index).await;
            }
        }
    }

    /// Starts a daemon as `serve` does. Where that fails a supervisor tries again, at the next step.
    async fn start_one(&self, index: usize) -> Option<Life> {
        let (pause, is_paused) = watch::channel(false);
        let (disk_full, dead) = (Arc::clone(&self.disk_full[index]), Arc::<AtomicBool>::default());
        let faults = StoreFaults {
            disk_full,
            dead: Arc::clone(&dead),
            writes_left: Some(Arc::clone(&self.writes_left)),
            paused: Some(is_paused.clone()),
        };
        let is_fleet = self.lives.len() > 1;
        let daemon = is_fleet.then(DaemonId::random);
        let store = self.store.with_faults(faults);
        let store = Arc::new(match &daemon {
            Some(daemon) => store.of_daemon(daemon.clone()),
            None => store,
        });
        let (world, paused) = (Arc::clone(&self.world), is_paused);
        let node = Arc::new(ModelNode { world, dead: Arc::clone(&dead), daemon, paused });
        let spending = SpendingLimits { max_fee: FEE_CAP, daily_wei: self.budget };
        let (stop, stopping) = watch::channel(false);
        let (drain, draining) = watch::channel(false);
        let key = |key: &PrivateKeySigner| CheckedKey {
            signer: key.clone().into(),
            has_code: false,
            unsigned: None,
        };
        let assembly = Assembly::new(DaemonParts {
            chain: Arc::clone(&node),
            chain_id: CHAIN_ID,
            contracts: Contracts { forwarder: FORWARDER, registry: REGISTRY },
            store: Arc::clone(&store),
            keys: self.keys.iter().map(key).collect(),
            no_op_gas: no_op_limit(0),
            max_pending: MAX_PENDING,
            max_queue: 1_000,
            terms: RequestTerms {
                rules: Rules { registry: REGISTRY, max_gas: 1_000_000 },
                functions: RelayedFunctions::new(RegistryFunction::ALL.to_vec()),
                spending,
                // All requests come from one address here.
                allowance: Allowance {
                    limit_wei: spending.daily_wei,
                    shares: Shares { signer: 100, without_key: 100, client: 100, network: 100 },
                },
                has_l1_fee: false,
                patience: Duration::from_secs(120),
            },
            limits: RateLimits::new(0, 0, 0, 0),
            policy: Arc::new(SharedPolicy::load(None).unwrap()),
            decisions: DECISIONS.clone(),
            clock: Arc::clone(&self.clock) as SharedClock,
            metrics: Metrics::new().unwrap(),
            stopping: stopping.clone(),
            draining,
        });
        let assembly = assembly.unwrap();
        assembly.recover().await.ok()?;
        let (relayer, make) = (Arc::clone(&assembly.relayer), Arc::clone(&assembly.make));
        let senders = assembly.senders.clone();
        let make_follower = Arc::clone(&assembly.make_follower);
        let mut tasks = vec![assembly.listen()];
        let duty = if is_fleet { Lease::until(Instant::now(), 0) } else { Lease::forever() };
        let following = keyless::follow(Arc::clone(&relayer), make_follower, duty.clone(), stopping.clone());
        tasks.push(tokio::spawn(following));
        tasks.extend(senders.into_iter().map(|sender| tokio::spawn(sender.run(stopping.clone()))));
        if is_fleet {
            tasks.push(tokio::spawn(follow(Arc::clone(&relayer), stopping.clone())));
            let keeper = LeaseKeeper::new(Arc::clone(&relayer), make, duty);
            tasks.push(tokio::spawn(keeper.run(stopping)));
        }
        Some(Life { relayer, dead, paused: pause, draining: drain, stop, tasks })
    }

    pub fn kill(&mut self) {
        (0..self.lives.len()).for_each(|index| self.kill_one(index));
    }

    pub fn kill_one(&mut self, index: usize) {
        let Some(life) = self.lives[index].take() else { return };
        life.dead.store(true, Ordering::Relaxed);
        // Tasks that still run must have no effect, like those of a killed process.
        let _ = life.stop.send(true);
        life.tasks.iter().for_each(JoinHandle::abort);
    }

    pub fn account(&self, index: u8) -> Address {
        self.world.accounts[usize::from(index) % self.world.accounts.len()]
    }

    /// Returns the number of nonces that each account has given.
    pub fn given<const N: usize>(&self) -> [u64; N] {
        let next = |index| self.store.next_nonce(self.account(index as u8)).unwrap().unwrap_or_default();
        std::array::from_fn(next)
    }

    /// Has all daemons read the operator's orders.
    fn follow_orders(&self) {
        for life in self.living() {
            life.relayer.orders.replace(self.store.orders().unwrap());
        }
    }

    /// Has the operator cordon these accounts, or uncordon them.
    fn cordon(&self, indices: &[u8], is_cordoned: bool) {
        for account in indices.iter().map(|index| self.account(*index)) {
            let order = if is_cordoned { Order::Cordon { account } } else { Order::Uncordon { account } };
            self.store.order(order, "model").unwrap();
        }
        self.follow_orders();
    }

    /// Tells the daemon whether this account has code, as the monitor does.
    pub fn found_code(&self, index: usize, has_code: bool) {
        for life in self.living() {
            life.relayer.accounts.senders()[index].saw_code(has_code);
        }
    }

    fn look_at_balances(&self) {
        for sender in self.living().flat_map(|life| life.relayer.accounts.senders()) {
            sender.saw_balance(self.world.balance(sender.account()));
        }
    }

    /// Returns whether this relay is in flight, so that clients and the signer's next request wait for it.
    pub fn is_waited_for(&self, id: B256) -> bool {
        self.living().any(|life| life.relayer.inflight.age(id).is_some())
    }

    pub fn is_quiet(&self) -> bool {
        let open = self.store.accounts_with_open_nonces().unwrap();
        let lives = self.living().count() == self.lives.len();
        open.is_empty() && lives && self.living().all(|life| life.relayer.inflight.is_empty())
    }

    pub fn record(&self, id: B256) -> RelayRecord {
        self.store.relay(id).unwrap().unwrap()
    }

    pub fn is_executed(&self, id: B256) -> bool {
        let record = self.store.relay(id).unwrap();
        record.is_some_and(|record| matches!(record.outcome, Some(RelayOutcome::Executed { .. })))
    }

    pub fn executed(&self) -> usize {
        self.requests.keys().filter(|id| self.is_executed(**id)).count()
    }

    /// Returns the number of transactions that were signed for each relay, in no order.
    pub fn tries(&self) -> Vec<usize> {
        self.requests.keys().map(|id| self.record(*id).hashes.len()).collect()
    }

    pub fn only(&self) -> B256 {
        assert_eq!(self.requests.len(), 1);
        *self.requests.keys().next().unwrap()
    }

    pub fn mined(&self) -> u64 {
        self.world.chain().now().mined(self.account(0))
    }

    fn living(&self) -> impl Iterator<Item = &Life> {
        self.lives.iter().flatten()
    }

    /// Returns the daemon that the next client comes to: a load balancer leaves out those that stand still.
    fn next_life(&self) -> Option<&Life> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        self.lives[turn % self.lives.len()].as_ref().filter(|life| !*life.paused.borrow())
    }

    /// Waits until this holds.
    pub async fn until(&self, holds: impl Fn(&Self) -> bool) {
        let began = Instant::now();
        while !holds(self) {
            assert!(began.elapsed() < Duration::from_secs(60), "it does not come to that");
            // Time goes on once all tasks wait.
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Lets the databases answer only until the next write; what follows that write fails, once.
    pub async fn lose_database_after_a_write(&self) {
        self.writes_left.store(1, Ordering::Relaxed);
        self.until(|simulation| simulation.writes_left.load(Ordering::Relaxed) == 0).await;
        self.writes_left.store(usize::MAX, Ordering::Relaxed);
    }

    pub fn pause(&self, index: usize, paused: bool) {
        if let Some(life) = &self.lives[index] {
            life.paused.send_replace(paused);
        }
    }
}
