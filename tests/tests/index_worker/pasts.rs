//! Verdicts of a Worker with a quick, slow or silent object.
//!
//! The Worker asks chain and object side by side. An excerpt that arrives in time gives the wallet's past;
//! without it the past is unknown, and the verdict says why. A late excerpt is used for the next verdict. The
//! Worker waits for answers that only the object has while the object works on them, also once the chain has
//! answered in its place, and sends it other requests meanwhile. A slow object refreshes
//! nothing for a request for a past.

use e2e::client::{Client, assert_has};
use e2e::process::wait_until;
use e2e::repo;
use e2e::seed::kya;
use e2e::worker::{Worker, WorkerOptions};
use serde_json::json;
use tempfile::TempDir;

use crate::{DETAILED, PATIENCE, StageGuard, register};

/// Sets the object's delay, silent without one, and returns the number of requests that it has had so far.
async fn object_takes(object: &Client, agents: u64, millis: Option<u64>) -> u64 {
    let millis = millis.map(|millis| format!("&millis={millis}")).unwrap_or_default();
    object.get(&format!("/?agents={agents}{millis}")).await.text.parse().unwrap()
}

/// Checks the verdict on a root's wallet; returns whether it has the past that the index knows.
async fn knows_past(client: &Client, name: &str) -> bool {
    let verdict = client.get(&kya(name)).await.ok();
    assert_eq!(verdict["decision"], "provision", "{verdict}");
    if verdict["formerAgents"] == json!([]) {
        assert_eq!((&verdict["ancestorsNotActive"], verdict.get("unknownBecause")), (&json!([]), None));
        return true;
    }
    assert_has(&verdict, json!({ "formerAgents": "unknown", "unknownBecause": "INDEX_UNAVAILABLE" }), name);
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_waits_for_no_object_and_a_late_excerpt_is_there_for_the_next_one() {
    let stage = StageGuard::with(|options| options).await;
    let chain = &stage.chain;
    let objects = ["a silent object", "a quick object", "a slow object", "an object of another version"];
    for object in objects.into_iter().chain(["an object with a history"]) {
        register(chain, &format!("asked of {object}"), "a root", 0).await;
    }
    let agents = chain.total().await.unwrap();

    let registry = TempDir::new().unwrap();
    let options = WorkerOptions::new(chain.node.url(), chain.contracts.registry).ttl(0);
    let options = WorkerOptions { registry: Some(registry.path().to_owned()), ..options };
    let object = WorkerOptions {
        config: Some(repo::root().join("tests/slow-index/wrangler.toml")),
        vars: Vec::new(),
        ..options.clone()
    };
    // A late excerpt is kept for the TTL of answers about agents.
    let indexed =
        options.var("CHAIN_ID", 31_337).var("INDEX", "durable-object").var("AGENT_TTL_SECONDS", 600);
    // A document of the object has a third of the deadline.
    let indexed = indexed.var("RPC_TIMEOUT_SECONDS", 60).var("RPC_DEADLINE_SECONDS", 6);
    let (object, worker) = tokio::try_join!(Worker::start(object), Worker::start(indexed)).unwrap();
    let (object, client) = (object.client(), worker.client());

    object_takes(&object, agents, None).await;
    assert!(!knows_past(&client, "asked of a silent object").await);
    object_takes(&object, agents, Some(0)).await;
    let quick = "asked of a quick object";
    wait_until("the past", PATIENCE, async || knows_past(&client, quick).await).await;

    let slow = "asked of a slow object";
    object_takes(&object, agents, Some(5_000)).await;
    assert!(!knows_past(&client, slow).await);
    wait_until("the excerpt is there", PATIENCE, async || knows_past(&client, slow).await).await;
    assert_eq!(object_takes(&object, agents, None).await, 1, "it is asked for once");
    assert!(knows_past(&client, slow).await, "the object is silent now");
    assert_eq!(object_takes(&object, agents, None).await, 0);

    object_takes(&object, agents, Some(4_000)).await;
    client.get("/api/v1/agent/1/history").await.ok();
    object_takes(&object, agents, Some(0)).await;
    let beside = "asked of an object with a history";
    knows_past(&client, beside).await;
    // An object that counts as silent gets no requests for ten seconds.
    let is_asked = async || object_takes(&object, agents, Some(0)).await > 0;
    wait_until("asked, beside a slow history", PATIENCE, is_asked).await;
    wait_until("the past", PATIENCE, async || knows_past(&client, beside).await).await;

    object.get(&format!("/?agents={agents}&millis=0&version=0")).await;
    assert!(!knows_past(&client, "asked of an object of another version").await);
    for _ in 0..2 {
        assert_eq!(client.get("/readyz").await.ok().get("index"), None);
    }
    assert_eq!(worker.lines_with("index unavailable: other version", 1).await.unwrap().len(), 1);

    object_takes(&object, agents, Some(4_000)).await;
    client.get(DETAILED).await.ok();
    let path = format!("{}?history=1", kya(beside));
    let (history, verdict) = tokio::join!(client.get("/api/v1/agent/2/history"), client.get(&path));
    history.ok();
    assert_eq!(verdict.ok()["formerAgents"], json!([]));
    assert_eq!(object.get("/?refreshes").await.text, "0", "a slow object is asked to refresh");
}
