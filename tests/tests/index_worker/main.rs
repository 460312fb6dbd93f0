//! The index behind the real Worker: a Durable Object with SQLite in workerd, over a real chain.
//!
//! The index's view of a chain, whatever the node does, is tested in `core/tests/index`. These tests cover
//! what only workerd shows: storage through kills, alarms and faults, streams, several Workers with one
//! object, and other programs that read its answers.

mod answers;
mod changes;
mod followers;
mod long_list;
mod newest_proofs;
mod pasts;
mod snapshot;
mod store;
mod upkeep;

use std::ops::{Deref, DerefMut};

use alloy::primitives::{Address, U256};
use e2e::anvil::{AnvilOptions, CHAIN_ID, wall_clock};
use e2e::chain::Chain;
use e2e::client::{Client, without};
use e2e::process::{PATIENCE, eventually, wait_until};
use e2e::seed;
use e2e::stage::WorkerStage;
use e2e::story::DAY;
use e2e::worker::WorkerOptions;
use registry_core::eth::abi::IAgentRegistry;
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard, Semaphore, SemaphorePermit};

/// Number of agents on the chain at the start, before the [`OF_PERSON`] agents of one person.
const AGENTS: u64 = 30;
const OF_PERSON: u64 = 5;
const PERSON: Address = Address::repeat_byte(0x99);
/// Reason of suspensions.
const REASON: &str = "Operator under \"investigation\", case 7";
/// Path that the index answers, or else a scan.
const DETAILED: &str = "/api/v1/stats/detailed";
/// Path that only the index answers.
const NEWEST: &str = "/api/v1/agents?sort=-id&limit=1";

/// Stages that tests use in turn. A test that fails empties its slot.
static STAGES: [Mutex<Option<IndexedStage>>; 3] = [const { Mutex::const_new(None) }; 3];
/// Semaphore with one permit for each of [`STAGES`].
static FREE: Semaphore = Semaphore::const_new(STAGES.len());

struct IndexedStage {
    stage: WorkerStage,
    /// Settings without those of a test.
    usual: WorkerOptions,
    now: WorkerOptions,
}

/// A stage, held by a test.
struct StageGuard {
    stage: MutexGuard<'static, Option<IndexedStage>>,
    // Dropped, and so given back, after the stage.
    _permit: SemaphorePermit<'static>,
}

impl StageGuard {
    /// Takes a stage, with these settings beside the usual ones.
    async fn with(settings: impl Fn(WorkerOptions) -> WorkerOptions) -> Self {
        let permit = FREE.acquire().await.unwrap();
        let mut stage = STAGES.iter().find_map(|stage| stage.try_lock().ok()).unwrap();
        if stage.is_none() {
            let mut usual = WorkerOptions::default();
            let options = |options: WorkerOptions| {
                usual = options.var("CHAIN_ID", CHAIN_ID).var("INDEX", "durable-object");
                settings(usual.clone())
            };
            let started = WorkerStage::indexed(chain().await, options).await.unwrap();
            let now = settings(usual.clone());
            *stage = Some(IndexedStage { stage: started, usual, now });
        }
        let mut turn = Self { stage, _permit: permit };
        // Heal before a restart: a Worker is not ready without the chain.
        turn.proxy.heal();
        turn.restart_unless(settings).await;
        turn
    }

    /// Restarts both Workers if their settings differ from these.
    async fn restart_unless(&mut self, settings: impl Fn(WorkerOptions) -> WorkerOptions) {
        let indexed = self.stage.as_mut().unwrap();
        let wanted = settings(indexed.usual.clone());
        if wanted.vars != indexed.now.vars {
            let vars = wanted.vars.clone();
            indexed.stage.restart_with(|options| WorkerOptions { vars, ..options }).await.unwrap();
            indexed.now = wanted;
        }
    }
}

impl Deref for StageGuard {
    type Target = WorkerStage;

    fn deref(&self) -> &WorkerStage {
        &self.stage.as_ref().unwrap().stage
    }
}

impl DerefMut for StageGuard {
    fn deref_mut(&mut self) -> &mut WorkerStage {
        &mut self.stage.as_mut().unwrap().stage
    }
}

impl Drop for StageGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            *self.stage = None;
        }
    }
}

/// Starts a chain with agents on it that begins a day behind the clock.
async fn chain() -> Chain {
    let chain = Chain::start(AnvilOptions::since(wall_clock() - DAY)).await.unwrap();
    seed::many(&chain, AGENTS).await.unwrap();
    for id in AGENTS + 1..=AGENTS + OF_PERSON {
        let call = seed::registration_call(id, wallet(id), "Number of one person", 1);
        let call = IAgentRegistry::registerAgentCall { haftungsperson: PERSON, ..call };
        chain.send(chain.owner(), call).await.unwrap();
    }
    // Enough that no reorganisation undoes them.
    chain.node.mine(30).await.unwrap();
    chain
}

/// Returns the wallet of an agent that is on the chain at the start.
fn wallet(id: u64) -> Address {
    seed::wallet(&format!("many {id}")).address()
}

async fn register(chain: &Chain, name: &str, scope: &str, parent: u64) -> u64 {
    let id = chain.total().await.unwrap() + 1;
    let call = seed::registration_call(id, seed::wallet(name).address(), scope, parent);
    chain.send(chain.owner(), call).await.unwrap();
    id
}

async fn suspend(chain: &Chain, id: u64) {
    chain.send(chain.owner(), seed::suspension(id, REASON)).await.unwrap();
}

async fn reactivate(chain: &Chain, id: u64) {
    let call = IAgentRegistry::reactivateAgentCall { agentId: U256::from(id) };
    chain.send(chain.owner(), call).await.unwrap();
}

async fn index_status(stage: &WorkerStage) -> Value {
    stage.client.get("/readyz").await.ok()["index"].clone()
}

async fn filled(client: &Client) {
    wait_until("filled", PATIENCE, async || client.get(NEWEST).await.status == 200).await;
}

/// Waits until the index lists this agent as the newest one.
async fn is_listed(stage: &WorkerStage, id: u64) {
    let newest = async || stage.client.get(NEWEST).await.json()["data"][0]["agentId"] == id;
    wait_until("listed", PATIENCE, newest).await;
}

/// Waits until verdicts come from the snapshot.
async fn has_snapshot(client: &Client) {
    client.until_snapshot(PATIENCE).await.unwrap();
}

/// Returns a cursor of the changes from now on.
async fn changes_from_now(client: &Client) -> String {
    let next = eventually("a cursor", PATIENCE, async || {
        let answer = client.get("/api/v1/changes?since=now").await;
        (answer.status == 200).then(|| answer.json()["next"].as_str().map(str::to_owned)).flatten()
    });
    next.await.unwrap()
}

/// Removes the clock's field from a verdict, or from a list of them.
fn timeless(verdict: Value) -> Value {
    without(verdict, &["checkedAt"])
}

/// Waits until the answers, which may be as old as the TTL, count as many suspended agents as the chain has.
async fn suspensions_are_seen(stage: &WorkerStage) {
    let agents = stage.chain.agents().await.unwrap();
    let suspended = agents.iter().filter(|agent| agent.status == 1).count();
    let told = async || stage.client.get(DETAILED).await.ok()["statusDistribution"]["Suspended"].take();
    wait_until("the suspensions are seen", PATIENCE, async || told().await == suspended).await;
}
