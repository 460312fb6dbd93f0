//! Answers about the whole registry, and lineages, of the newest block.
//!
//! 1. They are the registry's, also after a reorganisation and where the node has no logs; words are searched in
//!    workerd's SQLite. Where the chain does not answer there is an error, not a stale answer.
//! 2. workerd is killed in the middle of the fill and of a refresh; the next one goes on, after a
//!    reorganisation too. Questions that need the index say how far it is, or that it does not answer.

use std::fs;

use e2e::anvil::wall_clock;
use e2e::client::Answer;
use e2e::documents::{Documents, time};
use e2e::fault::{Fault, Rule};
use e2e::process::wait_until;
use e2e::stage::Stage;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::{DETAILED, PERSON, Turn, WAIT, index_status, register, suspend};

async fn check(stage: &Stage, path: &str, document: impl Fn(u64) -> Value) {
    let (block, before) = (stage.chain.node.height().await.unwrap(), wall_clock());
    let answer = stage.client.get(path).await;
    let expected: Vec<Value> = (before..=wall_clock()).map(document).collect();
    let mut body = answer.ok();
    if let Some(as_of) = body.as_object_mut().and_then(|body| body.remove("asOf")) {
        let seconds = stage.chain.node.time().await.unwrap();
        assert_eq!(as_of, json!({"blockNumber": block, "blockTimestamp": time(seconds)}), "{path}");
    }
    assert!(expected.contains(&body), "{path}\n   answered {body}\n   expected {}", expected[0]);
    assert_eq!(answer.number("x-as-of-block"), block, "{path}");
}

/// Holds every answer of the index against the registry, read past the Worker.
async fn check_all(stage: &Stage) {
    let documents: Documents = stage.documents().await.unwrap();
    check(stage, DETAILED, |now| documents.detailed_stats(now)).await;
    let active = "/api/v1/agents?status=Active&limit=7&page=2";
    check(stage, active, |_| documents.agents(2, 7, Some("Active"))).await;
    check(stage, "/api/v1/agents/compliance", |now| documents.compliance_list(now)).await;
    let page = "/api/v1/agents/compliance?limit=15";
    check(stage, page, |now| documents.compliance_page(0, 15, now)).await;
    let next = documents.compliance_page(0, 15, 0)["next"].as_str().unwrap().to_owned();
    check(stage, &format!("{page}&cursor={next}"), |now| documents.compliance_page(15, 15, now)).await;
    check(stage, "/api/v1/revenue/aggregate", |_| documents.revenue_aggregate()).await;
    check(stage, "/api/v1/agent/1/lineage", |_| documents.lineage(1)).await;
    let person = PERSON.to_string();
    let path = format!("/api/v1/liable/{person}?limit=2");
    check(stage, &path, |now| documents.liable(&person, 0, 2, now)).await;
    let next = documents.liable(&person, 0, 2, 0)["next"].as_str().unwrap().to_owned();
    let after = next.parse().unwrap();
    check(stage, &format!("{path}&cursor={next}"), |now| documents.liable(&person, after, 2, now)).await;
    check_lists(stage, &documents).await;
}

/// Holds lists that are searched, filtered and sorted against the registry's records, page by page.
async fn check_lists(stage: &Stage, documents: &Documents) {
    let mut agents = documents.summaries(wall_clock());
    agents.sort_by_key(|agent| {
        (agent["lastAttestation"].as_str().map(str::to_owned), agent["agentId"].as_u64())
    });
    let is_active = |agent: &Value, scope: &str| {
        agent["status"] == "Active" && agent["operationalScope"].as_str().unwrap().starts_with(scope)
    };
    // Words are found in any order and by the beginning of the last one; they are no operators.
    for (words, scope) in
        [("One+numb", "Number of one"), ("number", "Number"), ("%22nobody%22+OR+*", "nobody")]
    {
        let first = format!("/api/v1/agents?limit=4&q={words}&status=Active&sort=attestation");
        let kept: Vec<&Value> = agents.iter().filter(|agent| is_active(agent, scope)).collect();
        let (mut path, mut shown) = (first.clone(), Vec::new());
        loop {
            let page = stage.client.get(&path).await.ok();
            if shown.is_empty() {
                assert_eq!(page["total"], kept.len(), "{path}: {page}");
            }
            shown.extend(page["data"].as_array().unwrap().iter().cloned());
            let Some(next) = page["next"].as_str() else { break };
            path = format!("{first}&cursor={next}");
        }
        assert_eq!(json!(shown), json!(kept), "{words}");
    }
}

/// Whether an answer says to come again, for this reason.
fn is_not_there_yet(answer: &Answer, reason: &str) {
    let error = answer.failed(503, "INDEXING");
    assert!(error.starts_with(reason), "{error}");
    assert_eq!(answer.header("retry-after"), "10");
}

/// Asks for detailed statistics, and waits until that has reached the chain.
async fn ask(stage: &Stage) -> JoinHandle<Answer> {
    let posts = stage.proxy.posts();
    let client = stage.client.clone();
    let question = tokio::spawn(async move { client.get(DETAILED).await });
    wait_until("the chain is asked", WAIT, async || stage.proxy.posts() > posts).await;
    question
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_are_the_registrys_whatever_the_chain_and_the_node_do() {
    let stage = Turn::with(|options| options.ttl(0)).await;
    let chain = &stage.chain;
    check_all(&stage).await;
    let agent = register(chain, "in a block that is undone", "Number undone", 1).await;
    suspend(chain, agent).await;
    check_all(&stage).await;
    chain.node.reorganise(1).await.unwrap();
    check_all(&stage).await;
    chain.node.reorganise(1).await.unwrap();
    check_all(&stage).await;

    let without_events = async || index_status(&stage).await["refreshesWithoutEvents"].as_u64().unwrap();
    let before = without_events().await;
    let missing = Fault::error(-32601, "the method eth_getLogs does not exist");
    stage.proxy.inject(Rule::on("eth_getLogs", missing));
    let agent = register(chain, "without events", "Number without events", 1).await;
    suspend(chain, agent).await;
    check_all(&stage).await;
    stage.proxy.heal();
    let status = index_status(&stage).await;
    assert_eq!((&status["percent"], &status["basis"]), (&json!(100), &json!("storageRoot")), "{status}");
    assert!(without_events().await > before, "{status}");

    stage.proxy.inject(Rule::any(Fault::Refuse));
    for path in [DETAILED, "/api/v1/agents/compliance", "/api/v1/agent/1/lineage"] {
        stage.client.get(path).await.failed(500, "RPC_UNAVAILABLE");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_killed_goes_on_in_the_middle_of_a_fill_and_of_a_refresh() {
    let mut stage = Turn::with(|options| options.ttl(0)).await;
    let path = format!("/api/v1/liable/{PERSON}");
    // Without what it has stored, the index is filled anew.
    stage.kill_index();
    fs::remove_dir_all(stage.index_state().unwrap()).unwrap();
    stage.restart_index().await.unwrap();
    stage.index_found().await.unwrap();
    for (is_filling, depth) in [(true, 3), (false, 20)] {
        stage.proxy.inject(Rule::on("eth_call", Fault::Hang));
        let question = ask(&stage).await;
        if is_filling {
            let filling = "The index of the registry is being filled: 0 %";
            is_not_there_yet(&stage.client.get(&path).await, filling);
        }
        stage.kill_index();
        stage.proxy.heal();
        let _ = question.await;
        is_not_there_yet(&stage.client.get(&path).await, "The index of the registry does not answer.");
        // The chain goes on meanwhile, another way.
        let chain = &stage.chain;
        chain.node.reorganise(depth).await.unwrap();
        let agent = register(chain, &format!("meanwhile {depth}"), "Number of then", 1).await;
        suspend(chain, agent).await;
        stage.restart_index().await.unwrap();
        stage.index_found().await.unwrap();
        check_all(&stage).await;
        suspend(&stage.chain, register(&stage.chain, &format!("later {depth}"), "later", 1).await).await;
        check_all(&stage).await;
    }
    let status = index_status(&stage).await;
    assert_eq!(
        (&status["unannouncedChanges"], &status["basis"]),
        (&json!(0), &json!("storageRoot")),
        "{status}"
    );
}
