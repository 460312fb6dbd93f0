//! An index over a node that lists events later than their blocks.
//!
//! 1. Each list is true of the block that it names while agents change every second, and lists and changes
//!    are complete soon after the last event. Nothing is swept, and an idle refresh is one round trip.
//! 2. An event that the node never lists is found by the storage root: all agents are compared, once, and
//!    the index goes back to events.
//!
//! `LATE_EVENTS=agents,changes,seconds` tries other figures, which the first test prints:
//! `LATE_EVENTS=10000,1000,60 cargo all-test --test index_late_events -- --nocapture late`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use alloy::primitives::{Bytes, keccak256};
use e2e::anvil::{AnvilOptions, quantity, wall_clock};
use e2e::chain::Chain;
use e2e::fault::{Fault, Rule};
use e2e::process::{eventually, wait_until};
use e2e::proxy::sequential;
use e2e::stage::Stage;
use e2e::synthetic::Synthetic;
use e2e::worker::WorkerOptions;
use serde_json::{Value, json};

const WAIT: Duration = Duration::from_secs(180);
const DETAILED: &str = "/api/v1/stats/detailed";
const BLOCK_TIME: Duration = Duration::from_secs(1);

/// A stage with a block each second, and an index that trusts the registry's storage root.
async fn filled(agents: u64) -> (Stage, Synthetic) {
    let options = AnvilOptions { block_time: Some(BLOCK_TIME), ..AnvilOptions::default() };
    let chain = Chain::start(options).await.unwrap();
    let registry = Synthetic::deploy(&chain, agents).await.unwrap();
    let code: Bytes = chain.node.request("eth_getCode", json!([registry.address, "latest"])).await.unwrap();
    let options = |options: WorkerOptions| {
        options
            .var("REGISTRY_ADDRESS", registry.address)
            .var("INDEX_SELF_CONTAINED_CODE", keccak256(&code))
            .var("RPC_TIMEOUT_SECONDS", 20)
            .ttl(2)
    };
    let stage = Stage::indexed(chain, options).await.unwrap();
    let detailed = async || Some(stage.client.get(DETAILED).await).filter(|answer| answer.status == 200);
    assert_eq!(eventually("filled", WAIT, detailed).await.unwrap().ok()["totalAgents"], agents);
    (stage, registry)
}

/// Random numbers that are the same in each run.
struct Random(u64);

impl Random {
    /// The next one, from 1 to `most`.
    fn up_to(&mut self, most: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + (self.0 >> 33) % most
    }
}

/// The changes of the chain, by the node itself: block, agent, and the status that it has from then on.
async fn truth(stage: &Stage, registry: &Synthetic) -> Vec<(u64, u64, &'static str)> {
    let filter = json!([{ "address": registry.address, "fromBlock": "0x0" }]);
    let logs: Vec<Value> = stage.chain.node.request("eth_getLogs", filter).await.unwrap();
    let suspended = json!(keccak256("AgentSuspended(uint256,address,string)"));
    let change = |log: &Value| {
        let status = if log["topics"][0] == suspended { "Suspended" } else { "Active" };
        (quantity(&log["blockNumber"]).unwrap(), word(&log["topics"][1]), status)
    };
    logs.iter().map(change).collect()
}

fn word(topic: &Value) -> u64 {
    u64::from_str_radix(topic.as_str().unwrap().trim_start_matches("0x").trim_start_matches('0'), 16).unwrap()
}

/// The status of each agent, from the whole list.
async fn statuses(stage: &Stage) -> (u64, BTreeMap<u64, String>) {
    let answer = stage.client.get("/api/v1/agents/compliance").await;
    let block = answer.number("x-as-of-block");
    let list = answer.ok();
    let items = list["data"].as_array().unwrap().iter();
    let status =
        |item: &Value| (item["agentId"].as_u64().unwrap(), item["status"].as_str().unwrap().to_owned());
    (block, items.map(status).collect())
}

/// The statuses at a block, by what they were before and the changes up to there.
fn at(
    block: u64,
    before: &BTreeMap<u64, String>,
    changes: &[(u64, u64, &'static str)],
) -> BTreeMap<u64, String> {
    let mut statuses = before.clone();
    for (_, agent, status) in changes.iter().filter(|(number, ..)| *number <= block) {
        statuses.insert(*agent, (*status).to_owned());
    }
    statuses
}

/// All changes since a cursor: the status that each agent has by the last one.
async fn told(stage: &Stage, mut since: String) -> BTreeMap<u64, String> {
    let mut statuses = BTreeMap::new();
    loop {
        let page = stage.client.get(&format!("/api/v1/changes?limit=500&since={since}")).await.ok();
        for change in page["data"].as_array().unwrap() {
            let status = change["to"]["status"].as_str().unwrap().to_owned();
            statuses.insert(change["agentId"].as_u64().unwrap(), status);
        }
        page["next"].as_str().unwrap().clone_into(&mut since);
        if page["hasMore"] == false {
            return statuses;
        }
    }
}

async fn index(stage: &Stage) -> Value {
    stage.client.get("/readyz").await.ok()["index"].clone()
}

/// Waits until the list is as of this block or later.
async fn list_from(stage: &Stage, block: u64) -> (u64, BTreeMap<u64, String>) {
    eventually("a list of the last change", WAIT, async || {
        Some(statuses(stage).await).filter(|(as_of, _)| *as_of >= block)
    })
    .await
    .unwrap()
}

/// Waits until a refresh that finds nothing is one round trip of two calls.
async fn settles(stage: &Stage) {
    wait_until("a refresh of two calls", WAIT, async || {
        stage.proxy.reset();
        let asked = stage.client.get(DETAILED).await;
        let posts = stage.proxy.reset();
        let calls: usize = posts.iter().map(|post| post.methods.len()).sum();
        asked.status == 200 && (sequential(&posts), calls) == (1, 2)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_events_are_waited_for_and_each_list_is_true_of_its_block() {
    let figures = std::env::var("LATE_EVENTS").unwrap_or_else(|_| "10000,100,1".to_owned());
    let figures: Vec<u64> = figures.split(',').map(|figure| figure.parse().unwrap()).collect();
    let [agents, changes, late] = figures[..] else { panic!("LATE_EVENTS=agents,changes,seconds") };

    let (stage, registry) = filled(agents).await;
    stage.proxy.inject(Rule::on("eth_getLogs", Fault::LateLogs(Duration::from_secs(late))));
    let (_, before) = statuses(&stage).await;
    let since = stage.client.get("/api/v1/changes?since=now").await.ok()["next"].as_str().unwrap().to_owned();
    let began = index(&stage).await;
    stage.proxy.reset();

    let (mut random, mut seen) = (Random(25), Vec::new());
    let mut calls = 0;
    for number in 0..changes {
        registry.send_toggle(&stage.chain, random.up_to(agents)).await.unwrap();
        if number % 20 == 19 {
            let answer = stage.client.get(DETAILED).await;
            seen.push((answer.number("x-as-of-block"), answer.ok()["statusDistribution"].clone()));
            let next = stage.chain.node.height().await.unwrap() + 1;
            wait_until("a block", WAIT, async || stage.chain.node.height().await.unwrap() > next).await;
        }
    }
    let last = stage.chain.node.height().await.unwrap() + 1;
    wait_until("the last block", WAIT, async || stage.chain.node.height().await.unwrap() >= last).await;
    let (mined, deadline) = (Instant::now(), wall_clock());
    let truth = truth(&stage, &registry).await;
    let (block, list) = list_from(&stage, last).await;
    let took = mined.elapsed();
    assert_eq!(list, at(block, &before, &truth), "the list at block {block}");
    for (block, distribution) in &seen {
        let mut counts = BTreeMap::new();
        for status in at(*block, &before, &truth).values() {
            *counts.entry(status.clone()).or_insert(0) += 1;
        }
        assert_eq!(distribution, &json!(counts), "at block {block}");
    }
    let told = told(&stage, since).await;
    for (agent, status) in &list {
        let expected = told.get(agent).unwrap_or(&before[agent]);
        assert_eq!(expected, status, "agent {agent}");
    }
    let posts = stage.proxy.reset();
    calls += posts.iter().map(|post| post.methods.len()).sum::<usize>();

    settles(&stage).await;
    let ended = index(&stage).await;
    assert_eq!((&ended["basis"], &ended["sweptAgents"]), (&json!("storageRoot"), &json!(0)));
    assert_eq!(ended["refreshesWithoutEvents"], 0);
    if late < 20 {
        assert_eq!((&ended["comparisons"], &ended["unannouncedChanges"]), (&json!(0), &json!(0)));
    }
    let written = ended["rows"]["written"].as_u64().unwrap() - began["rows"]["written"].as_u64().unwrap();
    let read = ended["rows"]["read"].as_u64().unwrap() - began["rows"]["read"].as_u64().unwrap();
    println!(
        "{agents} agents, {changes} changes, events {late} s late: complete {:.1} s after the last block, \
         {} answers true of their blocks, {} comparisons, {written} rows written, {read} read, {calls} RPC \
         calls in {} s",
        took.as_secs_f64(),
        seen.len(),
        ended["comparisons"],
        wall_clock() - deadline + seen.len() as u64,
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_never_listed_costs_one_comparison_and_nothing_for_good() {
    let (stage, registry) = filled(10_000).await;
    let (_, before) = statuses(&stage).await;
    settles(&stage).await;

    // No event of any block is listed until the change is mined; then those of its block alone are hidden.
    stage.proxy.inject(Rule::on("eth_getLogs", Fault::LateLogs(WAIT)));
    registry.send_toggle(&stage.chain, 7_001).await.unwrap();
    let change = eventually("mined", WAIT, async || truth(&stage, &registry).await.pop()).await.unwrap();
    stage.proxy.heal();
    stage.proxy.inject(Rule::on("eth_getLogs", Fault::HiddenLogs(change.0)));
    let (block, list) = list_from(&stage, change.0).await;
    assert_eq!(list, at(block, &before, &[change]));
    settles(&stage).await;
    assert_eq!(index(&stage).await["comparisons"], 1);

    // Back to events.
    registry.send_toggle(&stage.chain, 42).await.unwrap();
    let changes = eventually("mined", WAIT, async || {
        Some(truth(&stage, &registry).await).filter(|changes| changes.len() == 2)
    });
    let changes = changes.await.unwrap();
    let (block, list) = list_from(&stage, changes[1].0).await;
    assert_eq!(list, at(block, &before, &changes));
    settles(&stage).await;
    let status = index(&stage).await;
    assert_eq!((&status["comparisons"], &status["unannouncedChanges"]), (&json!(1), &json!(1)));
    assert_eq!((&status["basis"], &status["sweptAgents"]), (&json!("storageRoot"), &json!(0)));
}
