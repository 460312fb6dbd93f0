//! The index's upkeep behind the real Worker: the fill slice by slice, the alarm, and the cron trigger.
//!
//! 1. While a registry of several slices is read for the first time, questions that need the index get a 503
//!    with the progress and a `Retry-After`; `/readyz` has the progress too; it never falls. Then there is
//!    the answer.
//! 2. An index that has lost its alarm is woken by the cron trigger, and by that alone.
//! 3. Without requests the alarm asks the chain nothing and is the last one, also with the cron trigger. The
//!    next request finds all changes, and sets the alarm again.
//! 4. A list above the memory limit is streamed: whole, and of one block, also during a refresh.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use e2e::anvil::{AnvilOptions, wall_clock};
use e2e::chain::Chain;
use e2e::fault::{Fault, Rule};
use e2e::http;
use e2e::process::{eventually, wait_until};
use e2e::seed;
use e2e::stage::Stage;
use e2e::stored::stored;
use e2e::synthetic::Synthetic;
use e2e::worker::WorkerOptions;
use registry_core::chain::MAX_AGENTS;
use reqwest::Method;
use serde_json::{Value, json};

const WAIT: Duration = Duration::from_secs(120);
/// Four slices of the fill.
const MANY: u64 = 20_000;
/// Answered by the index, at once or after a refresh.
const DETAILED: &str = "/api/v1/stats/detailed";

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_of_several_slices_says_how_far_it_is_until_it_is_filled() {
    let chain = Chain::start(AnvilOptions::default()).await.unwrap();
    let registry = Synthetic::deploy(&chain, MANY).await.unwrap();
    let options = |options: WorkerOptions| {
        options.var("REGISTRY_ADDRESS", registry.address).var("RPC_TIMEOUT_SECONDS", 10)
    };
    let stage = Stage::indexed(chain, options).await.unwrap();
    // All slices together take longer than a question waits for them.
    stage.proxy.inject(Rule::on("eth_call", Fault::Delay(Duration::from_secs(2))));
    let (path, mut percentages) = ("/api/v1/agents?sort=-id&limit=1", Vec::new());
    let list = eventually("filled", WAIT, async || {
        let answer = stage.client.get(path).await;
        if answer.status == 200 {
            return Some(answer.ok());
        }
        let error = answer.failed(503, "INDEXING");
        let percent = error.strip_prefix("The index of the registry is being filled: ").expect(&error);
        percentages.push(percent.split(' ').next().unwrap().parse::<u64>().unwrap());
        assert_eq!(answer.header("retry-after"), "10", "{error}");
        let index = stage.client.get("/readyz").await.ok()["index"].clone();
        percentages.push(index["percent"].as_u64().unwrap());
        None
    })
    .await
    .unwrap();
    assert_eq!((&list["total"], &list["data"][0]["agentId"]), (&json!(MANY), &json!(MANY)));
    assert_eq!(stage.client.get("/readyz").await.ok()["index"]["percent"], 100);
    assert!(percentages.is_sorted(), "{percentages:?}");
    assert!(percentages.iter().any(|percent| (1..100).contains(percent)), "{percentages:?}");
    stage.proxy.heal();
    let detailed = stage.client.get(DETAILED).await.ok();
    assert_eq!(detailed["totalAgents"], MANY);
}

/// A stage with a complete index, and this TTL in seconds.
async fn filled(seconds: u64) -> Stage {
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await.unwrap();
    seed::many(&chain, 10).await.unwrap();
    let options = |options: WorkerOptions| options.var("AGENT_TTL_SECONDS", seconds);
    let stage = Stage::indexed(chain, options).await.unwrap();
    assert_eq!(stage.client.get(DETAILED).await.ok()["statusDistribution"]["Suspended"], 1);
    stage
}

async fn suspend(stage: &Stage, id: u64) {
    stage.chain.send(stage.chain.owner(), seed::suspension(id, "end to end")).await.unwrap();
}

/// Waits until the answers count that many suspended agents: an answer may be as old as the TTL.
async fn suspensions_seen(stage: &Stage, count: u64) {
    wait_until("the suspension is seen", WAIT, async || {
        stage.client.get(DETAILED).await.ok()["statusDistribution"]["Suspended"] == count
    })
    .await;
}

/// Fires the cron trigger.
async fn tick(stage: &Stage) {
    let answer = stage.index_client().unwrap().get("/cdn-cgi/handler/scheduled").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// Agents by status, as a list has them.
fn statuses(list: &Value) -> BTreeMap<&str, u64> {
    let mut statuses = BTreeMap::new();
    for item in list["data"].as_array().unwrap() {
        *statuses.entry(item["status"].as_str().unwrap()).or_default() += 1;
    }
    statuses
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_too_long_to_be_held_is_whole_and_of_one_block_though_the_index_moves_on() {
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await.unwrap();
    let total = MAX_AGENTS + 1;
    let registry = Synthetic::deploy(&chain, total).await.unwrap();
    let options = |options: WorkerOptions| {
        options
            .var("REGISTRY_ADDRESS", registry.address)
            .var("AGENT_TTL_SECONDS", 2)
            .var("RPC_TIMEOUT_SECONDS", 20)
            .var("RPC_DEADLINE_SECONDS", 60)
    };
    let mut stage = Stage::indexed(chain, options).await.unwrap();
    let detailed = async || {
        let answer = stage.client.get(DETAILED).await;
        (answer.status == 200).then(|| answer.ok()["statusDistribution"].clone())
    };
    let before = eventually("filled", WAIT, detailed).await.unwrap();

    let path = "/api/v1/agents/compliance";
    let url = format!("{}{path}", stage.worker.url());
    let open = async || http::builder().build().unwrap().get(&url).send().await.unwrap();
    let mut response = open().await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(response.headers()["cache-control"], "no-store");
    let block = response.headers()["x-as-of-block"].clone();
    let mut text = response.chunk().await.unwrap().unwrap().to_vec();
    let others = [open().await, open().await, open().await];
    let one_too_many = stage.client.get(path).await;
    one_too_many.failed(503, "INDEXING");
    assert_eq!(one_too_many.header("retry-after"), "10");
    // The client stops reading while the status of a thousand agents changes, and the index is refreshed.
    registry.toggle(&stage.chain, 40_001, 1_000).await.unwrap();
    let changed = async || detailed().await.filter(|statuses| *statuses != before);
    let after = eventually("refreshed", WAIT, changed).await.unwrap();
    let kept = stored(&stage, "former_agents");
    let count: i64 = kept.query_row("SELECT count(*) FROM former_agents", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 950, "the lists are still open, and 5 of 100 agents have ended");
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.extend(chunk);
    }

    let list: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(list["total"], total);
    assert_eq!(json!(statuses(&list)), before, "as of block {block:?}");
    let items = list["data"].as_array().unwrap();
    let number = |value: &Value| value.as_u64().unwrap();
    let ids: BTreeSet<u64> = items.iter().map(|item| number(&item["agentId"])).collect();
    assert_eq!((ids.len(), ids.first(), ids.last()), (items.len(), Some(&1), Some(&total)));
    let age = |item: &Value| number(&item["compliance"]["secondsSinceAttestation"]);
    assert!(items.is_sorted_by_key(|item| (std::cmp::Reverse(age(item)), number(&item["agentId"]))));
    // Agents with an even id above 16 are children, as the contract has it.
    let children: u64 = items.iter().map(|item| number(&item["compliance"]["childCount"])).sum();
    assert_eq!(children, total / 2 - 8);

    for other in others {
        let list: Value = serde_json::from_str(&other.text().await.unwrap()).unwrap();
        assert_eq!(json!(statuses(&list)), before);
    }
    let next = stage.client.get(path).await;
    assert_eq!(json!(statuses(&next.ok())), after, "the next list is as of now");
    let head = stage.client.send(Method::HEAD, path).await;
    assert_eq!((head.status, head.header("content-type"), &*head.text), (200, "application/json", ""));
    assert_eq!(head.header("x-as-of-block"), "", "of none that was asked for");

    let mut cut_off = open().await;
    cut_off.chunk().await.unwrap().unwrap();
    stage.kill_index();
    let mut part = Vec::new();
    while let Ok(Some(chunk)) = cut_off.chunk().await {
        part.extend(chunk);
    }
    assert!(part.len() < text.len(), "{} of {} bytes", part.len(), text.len());
    assert!(serde_json::from_slice::<Value>(&part).is_err(), "a part passes for the whole");
}

/// How many alarms are set.
fn alarms(stage: &Stage) -> i64 {
    let count = "SELECT count(*) FROM _cf_ALARM";
    stored(stage, "_cf_ALARM").query_row(count, [], |row| row.get(0)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_lost_its_alarm_is_woken_by_the_cron_trigger() {
    let mut stage = filled(2).await;
    stage.kill_index();
    let lost = stored(&stage, "_cf_ALARM").execute("DELETE FROM _cf_ALARM", []).unwrap();
    assert_eq!(lost, 1, "one alarm was set");
    suspend(&stage, 1).await;
    stage.restart_index().await.unwrap();
    stage.proxy.reset();
    // The alarm is overdue for a while before it passes for lost.
    wait_until("woken", WAIT, async || {
        tick(&stage).await;
        stage.proxy.posts() > 0
    })
    .await;
    // From then on it goes on by itself.
    let posts = stage.proxy.posts();
    wait_until("kept up", WAIT, async || stage.proxy.posts() > posts).await;
    stage.index_found().await.unwrap();
    suspensions_seen(&stage, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_without_requests_is_idle_until_the_next_one() {
    let mut stage = filled(2).await;
    stage.kill_index();
    // As if the last question had been long ago.
    let forget = "UPDATE meta SET value = '0' WHERE key = 'asked_at'";
    assert_eq!(stored(&stage, "meta").execute(forget, []).unwrap(), 1);
    assert_eq!(alarms(&stage), 1);
    suspend(&stage, 1).await;
    stage.proxy.reset();
    stage.restart_index().await.unwrap();
    wait_until("no alarm is set any more", WAIT, async || alarms(&stage) == 0).await;
    tick(&stage).await;
    assert_eq!((alarms(&stage), stage.proxy.posts()), (0, 0), "the chain was asked for no client");

    stage.index_found().await.unwrap();
    suspensions_seen(&stage, 2).await;
    assert_eq!(alarms(&stage), 1);
}
