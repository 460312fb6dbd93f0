//! The operator's view: probes, settings and the log.
//!
//! 1. `/livez` says that the Worker runs, whatever else is wrong; `/readyz` describes chain and nodes, or
//!    names the fault.
//! 2. Missing or wrong settings are named; those of the chain decide which nodes are trusted.
//! 3. Each request leaves one line of JSON in the log: route, status, cache, RPC calls, milliseconds.

use alloy::primitives::Address;
use e2e::anvil::{CHAIN_ID, wall_clock};
use e2e::client::assert_has;
use e2e::fault::{FaultRule, NodeFault};
use e2e::process::free_port;
use e2e::seed;
use e2e::worker::{Worker, WorkerOptions};
use serde_json::{Value, json};

use super::{ReadApiFixture, counted, scene};

#[tokio::test(flavor = "multi_thread")]
async fn probes_say_that_the_worker_runs_and_whether_it_can_answer() {
    let (_turn, ReadApiFixture { stage, .. }) = scene().await;
    // An instance's first `/readyz` probes the node's capabilities.
    stage.client.get("/readyz").await.ok();
    stage.proxy.reset();
    let ready = stage.client.get("/readyz").await.ok();
    assert_eq!(stage.proxy.posts(), 1);
    let node = json!({ "blockHash": true, "proofs": true, "logs": true, "finalized": true, "batch": true });
    assert_eq!((&ready["node"], ready.get("warnings")), (&json!([node]), None));
    let registry = stage.chain.contracts.registry.to_string();
    assert_has(&ready, json!({ "ready": true, "chainId": CHAIN_ID, "registry": registry }), "/readyz");
    let age = wall_clock() - stage.chain.node.time().await.unwrap();
    let reported = ready["headAgeSeconds"].as_u64().unwrap();
    assert!(reported <= age && age - reported < 30, "{ready}, and {age} a moment later");

    stage.proxy.inject(FaultRule::any(NodeFault::Refuse));
    let unready = stage.client.get("/readyz").await;
    assert_eq!((unready.status, &unready.json()["code"]), (503, &json!("RPC_UNAVAILABLE")));
    stage.proxy.reset();
    let live = stage.client.get("/livez").await;
    assert_eq!((live.status, live.text.as_str()), (200, r#"{"live":true}"#));
    assert_eq!((live.header("cache-control"), stage.proxy.posts()), ("no-store", 0));
    stage.proxy.heal();
    stage.client.get("/readyz").await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_is_wrong_is_named_and_each_about_the_chain_decides() {
    let (_turn, ReadApiFixture { stage, .. }) = scene().await;
    let dead = format!("http://127.0.0.1:{}", free_port().unwrap());
    let several = format!("{dead} {}", stage.proxy.url());
    let good = counted(WorkerOptions::new(stage.proxy.url(), stage.chain.contracts.registry));
    // The head is weeks old, as the chain's first agents are.
    stage.proxy.inject(FaultRule::any(NodeFault::Stale { head: 6 }));
    for (options, code, words) in [
        (good.clone().unset("REGISTRY_ADDRESS"), "MISCONFIGURED", "REGISTRY_ADDRESS is not set"),
        (
            good.clone().typed("KYA_TTL_SECONDS", json!(false)),
            "MISCONFIGURED",
            "KYA_TTL_SECONDS must be a text or a whole number, and is a boolean",
        ),
        (good.clone().unset("MAX_HEAD_AGE_SECONDS"), "RPC_UNAVAILABLE", "RPC endpoint's newest block is "),
        (
            good.clone().var("REGISTRY_ADDRESS", Address::repeat_byte(7)),
            "REGISTRY_ERROR",
            "No contract at 0x07",
        ),
        (good.clone().typed("CHAIN_ID", json!(5)), "RPC_ERROR", "RPC endpoint is on chain 31337, not 5"),
        (good.clone().var("RPC_URL", &several).var("RATE_LIMITTER", "kv"), "", "RATE_LIMITTER is no setting"),
    ] {
        let worker = Worker::start(options).await.unwrap();
        let client = worker.client();
        assert_eq!(client.get("/livez").await.status, 200, "{words}");
        if code.is_empty() {
            assert_eq!(client.get("/health").await.ok()["rpc"], dead, "the first, whichever answers");
            let ready = client.get("/readyz").await.ok();
            let warning = ready["warnings"][0].as_str().unwrap_or_default();
            assert!(warning.starts_with(words), "{ready}");
            let unknown =
                json!({ "blockHash": null, "proofs": null, "logs": null, "finalized": null, "batch": null });
            assert_eq!((&ready["node"][0], ready["node"].as_array().map(Vec::len)), (&unknown, Some(2)));
            assert_eq!(worker.lines_with(words, 1).await.unwrap().len(), 1, "once an instance");
            continue;
        }
        let ready = client.get("/readyz").await;
        assert_eq!((ready.status, &ready.json()["code"]), (503, &json!(code)), "{words}");
        let error = client.get("/api/v1/stats").await.failed(500, code);
        assert!(error.contains(words) && ready.text.contains(words), "{words}: {error}, {}", ready.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_leaves_one_line_that_tells_what_it_cost() {
    let (_turn, ReadApiFixture { stage, showcase }) = scene().await;
    let (lineage, unknown) = (showcase.lineage("atlas"), seed::kya("nobody"));
    // An instance's first `/readyz` probes the node's capabilities.
    stage.client.get("/readyz").await.ok();
    for (id, path, route, status, cache, rpc_calls, error) in [
        ("log-1", "/livez", "/livez", 200, "", 0, ""),
        ("log-2", "/readyz", "/readyz", 200, "MISS", 1, ""),
        ("log-3", lineage.as_str(), "/api/v1/agent/:id/lineage", 200, "MISS", 4, ""),
        ("log-4", &unknown, "/api/v1/kya/:wallet", 200, "MISS", 1, ""),
        ("log-5", "/api/v1/agent/4000", "/api/v1/agent/:id", 404, "", 1, "AGENT_NOT_FOUND"),
        ("log-6", "/api/v1/agents?page=x", "none", 400, "", 0, "INVALID_PARAMETER"),
        ("log-7", "/nowhere", "none", 404, "", 0, "NOT_FOUND"),
    ] {
        assert_eq!(stage.client.with("x-request-id", id).get(path).await.status, status, "{path}");
        let lines = stage.worker.lines_with(&format!("\"{id}\""), 1).await.unwrap();
        let line = lines[0].get(lines[0].find('{').unwrap()..).unwrap();
        let line: Value = serde_json::from_str(line).unwrap();
        let expected = json!({
            "method": "GET", "route": route, "status": status, "cache": cache, "rpcCalls": rpc_calls, "error": error,
        });
        assert_has(&line, expected, path);
        assert!(line["ms"].is_u64() && lines.len() == 1, "{lines:?}");
    }
}
