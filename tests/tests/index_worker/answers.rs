//! Answers about the whole registry, and lineages, of the newest block.
//!
//! workerd is killed in the middle of the fill and of a refresh; the next process goes on, also after a
//! reorganisation: its answers are those of a scan, and searches run in workerd's SQLite. Requests that need
//! the index report its progress, or that it does not answer. Where the chain does not answer there is an
//! error, not a stale answer.

use std::fs;

use e2e::client::{HttpAnswer, assert_has, without};
use e2e::fault::{FaultRule, NodeFault};
use e2e::process::wait_until;
use e2e::stage::WorkerStage;
use e2e::worker::Worker;
use registry_core::eth::abi::AgentRecord;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{DETAILED, PATIENCE, PERSON, StageGuard, index_status, register, suspend};

/// Starts another Worker without an index, which answers from scans of the registry.
async fn scanning(stage: &WorkerStage) -> Worker {
    stage.another(|options| options.unset("INDEX")).await.unwrap()
}

/// Compares the answers of the index with those of a scan.
async fn check_all(stage: &WorkerStage, scanning: &Worker) {
    let scanning = scanning.client();
    let page = "/api/v1/agents/compliance?limit=15";
    let cursor = scanning.get(page).await.ok()["next"].as_str().unwrap().to_owned();
    let height = stage.chain.node.height().await.unwrap();
    for path in [
        DETAILED,
        "/api/v1/agents?status=Active&limit=7&page=2",
        "/api/v1/agents/compliance",
        page,
        &format!("{page}&cursor={cursor}"),
        "/api/v1/revenue/aggregate",
        "/api/v1/agent/1/lineage",
    ] {
        let [answer, scan] = [stage.client.get(path).await, scanning.get(path).await];
        assert_eq!(answer.number("x-as-of-block"), height, "{path}");
        let [answer, scan] =
            [answer, scan].map(|answer| without(answer.ok(), &["asOf", "secondsSinceAttestation"]));
        assert_eq!(answer, scan, "{path}");
    }
    check_searches(stage).await;
}

/// Compares searches, which only the index has, with the contract's records. Words match in any order, the
/// last one by its beginning, and are never operators.
async fn check_searches(stage: &WorkerStage) {
    let agents = stage.chain.agents().await.unwrap();
    for (words, scope) in
        [("One+numb", "Number of one"), ("number", "Number"), ("%22nobody%22+OR+*", "nobody")]
    {
        let found = |agent: &&AgentRecord| agent.status == 0 && agent.operationalScope.starts_with(scope);
        let expected: Vec<u64> = agents.iter().filter(found).map(|agent| agent.agentId.to()).collect();
        let path = format!("/api/v1/agents?limit=100&q={words}&status=Active");
        let page = stage.client.get(&path).await.ok();
        assert_eq!(ids_in(&page["data"]), expected, "{path}");
    }
}

fn ids_in(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|item| item["agentId"].as_u64().unwrap()).collect()
}

/// Checks that an answer asks for a later retry, for this reason.
fn is_not_there_yet(answer: &HttpAnswer, reason: &str) {
    let error = answer.failed(503, "INDEXING");
    assert!(error.starts_with(reason), "{error}");
    assert_eq!(answer.header("retry-after"), "10");
}

/// Requests detailed statistics, and waits until the request has reached the chain.
async fn ask(stage: &WorkerStage) -> JoinHandle<HttpAnswer> {
    let posts = stage.proxy.posts();
    let client = stage.client.clone();
    let question = tokio::spawn(async move { client.get(DETAILED).await });
    wait_until("the chain is asked", PATIENCE, async || stage.proxy.posts() > posts).await;
    question
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_killed_goes_on_in_the_middle_of_a_fill_and_of_a_refresh() {
    let mut stage = StageGuard::with(|options| options.ttl(0)).await;
    let scanning = scanning(&stage).await;
    let path = format!("/api/v1/liable/{PERSON}");
    // Without its stored state, the index is filled anew.
    stage.kill_index();
    fs::remove_dir_all(stage.index_state()).unwrap();
    stage.restart_index().await.unwrap();
    stage.index_found().await.unwrap();
    for (is_filling, depth) in [(true, 3), (false, 20)] {
        stage.proxy.inject(FaultRule::on("eth_call", NodeFault::Hang));
        let question = ask(&stage).await;
        if is_filling {
            let filling = "The index of the registry is being filled: 0 %";
            is_not_there_yet(&stage.client.get(&path).await, filling);
        }
        stage.kill_index();
        stage.proxy.heal();
        let _ = question.await;
        is_not_there_yet(&stage.client.get(&path).await, "The index of the registry does not answer.");
        // The chain goes on meanwhile, on another branch.
        let chain = &stage.chain;
        chain.node.reorganise(depth).await.unwrap();
        let agent = register(chain, &format!("meanwhile {depth}"), "Number of then", 1).await;
        suspend(chain, agent).await;
        stage.restart_index().await.unwrap();
        stage.index_found().await.unwrap();
        check_all(&stage, &scanning).await;
        suspend(&stage.chain, register(&stage.chain, &format!("later {depth}"), "later", 1).await).await;
        check_all(&stage, &scanning).await;
    }
    let status = index_status(&stage).await;
    assert_has(&status, json!({ "unannouncedChanges": 0, "basis": "storageRoot" }), "at the end");
    stage.proxy.inject(FaultRule::any(NodeFault::Refuse));
    for path in [DETAILED, "/api/v1/agents/compliance", "/api/v1/agent/1/lineage"] {
        stage.client.get(path).await.failed(500, "RPC_UNAVAILABLE");
    }
}
