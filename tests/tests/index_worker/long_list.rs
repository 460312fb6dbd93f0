//! A registry of several slices of the fill, with a list above the memory limit: it is streamed, whole and of
//! one block, though the index moves on meanwhile. A list that is cut off is not valid JSON.

use std::collections::{BTreeMap, BTreeSet};

use e2e::anvil::{AnvilOptions, wall_clock};
use e2e::chain::Chain;
use e2e::http;
use e2e::process::eventually;
use e2e::stage::WorkerStage;
use e2e::stored::stored;
use e2e::synthetic::Synthetic;
use e2e::worker::WorkerOptions;
use registry_core::chain::MAX_AGENTS;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

use crate::{DETAILED, PATIENCE, filled};

const TOTAL: u64 = MAX_AGENTS + 1;
const LIST: &str = "/api/v1/agents/compliance";

/// Counts a list's agents by status.
fn statuses(list: &Value) -> Value {
    let mut statuses: BTreeMap<&str, u64> = BTreeMap::new();
    for item in list["data"].as_array().unwrap() {
        *statuses.entry(item["status"].as_str().unwrap()).or_default() += 1;
    }
    json!(statuses)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_too_long_to_be_held_is_whole_and_of_one_block_though_the_index_moves_on() {
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await.unwrap();
    let registry = Synthetic::deploy(&chain, TOTAL).await.unwrap();
    let options = |options: WorkerOptions| {
        let options = options.var("REGISTRY_ADDRESS", registry.address).var("AGENT_TTL_SECONDS", 2);
        options.var("RPC_TIMEOUT_SECONDS", 20).var("RPC_DEADLINE_SECONDS", 60)
    };
    let mut stage = WorkerStage::indexed(chain, options).await.unwrap();
    filled(&stage.client).await;
    let detailed = async || {
        let answer = stage.client.get(DETAILED).await;
        (answer.status == 200).then(|| answer.ok()["statusDistribution"].clone())
    };
    let before = eventually("counted", PATIENCE, detailed).await.unwrap();

    let url = format!("{}{LIST}", stage.worker.url());
    let open = async || http::builder().build().unwrap().get(&url).send().await.unwrap();
    let mut response = open().await;
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(response.headers()["cache-control"], "no-store");
    let mut text = response.chunk().await.unwrap().unwrap().to_vec();
    // The client stops reading while the status of a thousand agents changes, and the index is refreshed.
    registry.toggle(&stage.chain, 40_001, 1_000).await.unwrap();
    let changed = async || detailed().await.filter(|statuses| *statuses != before);
    let after = eventually("refreshed", PATIENCE, changed).await.unwrap();
    let kept = stored(&stage, "former_agents");
    let count: i64 = kept.query_row("SELECT count(*) FROM former_agents", [], |row| row.get(0)).unwrap();
    assert_eq!(count, 950, "the list is still open, and 5 of 100 agents have ended");
    while let Some(chunk) = response.chunk().await.unwrap() {
        text.extend(chunk);
    }
    let list: Value = serde_json::from_slice(&text).unwrap();
    assert_eq!((&list["total"], &statuses(&list)), (&json!(TOTAL), &before));
    let items = list["data"].as_array().unwrap();
    let ids: BTreeSet<u64> = items.iter().map(|item| item["agentId"].as_u64().unwrap()).collect();
    assert_eq!((ids.len(), ids.first(), ids.last()), (items.len(), Some(&1), Some(&TOTAL)));
    assert_eq!(statuses(&stage.client.get(LIST).await.ok()), after, "the next list is as of now");

    // At most four lists are open at once; those of clients that have left are closed.
    for _ in 0..5 {
        let mut left = http::request_to_reset(stage.worker.url(), LIST, "Accept: */*").await.unwrap();
        let mut head = [0; 12];
        left.read_exact(&mut head).await.unwrap();
        assert_eq!(head, *b"HTTP/1.1 200");
    }
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
