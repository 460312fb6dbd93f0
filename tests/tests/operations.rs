//! What operators see: probes and logs.
//!
//! 1. `/livez` says that the Worker runs, whatever else is wrong, and costs nothing.
//! 2. `/readyz` tells chain id, head age and registry, or answers 503 with the reason.
//! 3. Each request leaves one line of JSON in the log: route, status, cache, RPC calls, milliseconds.
//! 4. No part of an RPC URL but its host, no client's address and no wallet is in the log or in an answer.

use std::time::Duration;

use alloy::primitives::Address;
use e2e::client::{assert_has, assert_no_secret};
use e2e::fault::{Fault, Rule};
use e2e::process::eventually;
use e2e::seed::{self, Showcase};
use e2e::stage::{Exclusive, Stage};
use e2e::worker::{Worker, WorkerOptions};
use serde_json::{Value, json};
use tokio::sync::MutexGuard;

/// User, password, path and query of an RPC URL: all of it may be a provider's key.
type Secrets = [&'static str; 4];

/// Those of the two endpoints in `RPC_URL`.
const SECRETS: [Secrets; 2] = [
    ["us3r-0fAKe", "passw0rd-0fAKe", "0fAKeKey1234567890", "s3cr3t-token"],
    ["0ther-us3r", "0ther-passw0rd", "0therKey0987654321", "0ther-t0ken"],
];

type Scene = (Stage, Showcase);

/// One stage for one test at a time: a fault holds for all of them.
async fn stage() -> (MutexGuard<'static, ()>, &'static Scene) {
    static SCENE: Exclusive<Scene> = Exclusive::empty();
    let settings = |options: WorkerOptions| {
        let urls = SECRETS.map(|secrets| secret_url(options.get("RPC_URL"), secrets)).join(",");
        let options = options.var("RPC_URL", urls).var("CHAIN_ID", 31_337);
        options.var("RPC_TIMEOUT_SECONDS", 1).var("RPC_DEADLINE_SECONDS", 3)
    };
    let (turn, scene) = SCENE.take(async || Stage::showcase(settings).await.unwrap()).await;
    scene.0.proxy.heal();
    (turn, scene)
}

fn secret_url(plain: &str, [user, password, path, query]: Secrets) -> String {
    plain.replace("http://", &format!("http://{user}:{password}@")) + &format!("/v2/{path}?token={query}")
}

#[tokio::test(flavor = "multi_thread")]
async fn live_is_said_whatever_else_is_wrong() {
    let (_turn, (stage, _)) = stage().await;
    stage.proxy.inject(Rule::any(Fault::Refuse));
    stage.proxy.reset();
    let answer = stage.client.get("/livez").await;
    assert_eq!(answer.text, r#"{"live":true}"#);
    assert_eq!((answer.status, answer.header("cache-control")), (200, "no-store"));
    assert_eq!(stage.proxy.posts(), 0);

    let misconfigured = Worker::start(WorkerOptions::default()).await.unwrap();
    assert_eq!(misconfigured.client().get("/livez").await.status, 200);
    let answer = misconfigured.client().get("/readyz").await;
    assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("MISCONFIGURED")));
}

#[tokio::test(flavor = "multi_thread")]
async fn ready_tells_of_the_chain_or_says_why_not() {
    let (_turn, (stage, _)) = stage().await;
    stage.proxy.reset();
    let ready = stage.client.get("/readyz").await.ok();
    assert_eq!(stage.proxy.posts(), 1);
    let registry = stage.chain.contracts.registry.to_string();
    assert_has(&ready, json!({ "ready": true, "chainId": 31337, "registry": registry }), "/readyz");
    let age = e2e::anvil::wall_clock() - stage.chain.node.time().await.unwrap();
    let reported = ready["headAgeSeconds"].as_u64().unwrap();
    assert!(reported.abs_diff(age) <= 2, "{ready}, not {age}");

    stage.proxy.inject(Rule::any(Fault::Refuse));
    let answer = stage.client.get("/readyz").await;
    assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("RPC_UNAVAILABLE")));
    stage.proxy.heal();
    assert_eq!(stage.client.get("/readyz").await.status, 200);

    let nowhere = WorkerOptions::new(stage.proxy.url(), Address::repeat_byte(0x77));
    let answer = Worker::start(nowhere).await.unwrap().client().get("/readyz").await;
    assert_eq!((answer.status, &answer.json()["code"]), (503, &json!("REGISTRY_ERROR")));
}

/// The log's line for the request with this id.
async fn line(stage: &Stage, id: &str) -> Value {
    eventually("logged", Duration::from_secs(10), async || {
        let log = stage.worker.log();
        let lines = log.lines().filter_map(|line| line.get(line.find('{')?..=line.rfind('}')?));
        lines.filter_map(|line| serde_json::from_str::<Value>(line).ok()).find(|line| line["requestId"] == id)
    })
    .await
    .unwrap_or_else(|error| panic!("{id}: {error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_leaves_one_line_that_tells_what_it_cost() {
    let (_turn, (stage, showcase)) = stage().await;
    let lineage = showcase.lineage("atlas");
    let unknown = seed::kya("nobody");
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
        let line = line(stage, id).await;
        let expected = json!({
            "method": "GET", "route": route, "status": status, "cache": cache, "rpcCalls": rpc_calls, "error": error,
        });
        assert_has(&line, expected, path);
        assert!(line["ms"].is_u64(), "{line}");
    }
    let again = eventually("cached", Duration::from_secs(5), async || {
        let answer = stage.client.get(&lineage).await;
        (answer.header("x-cache") == "HIT").then(|| answer.header("x-request-id").to_owned())
    })
    .await
    .unwrap();
    let line = line(stage, &again).await;
    assert_eq!((&line["cache"], &line["rpcCalls"]), (&"HIT".into(), &0.into()), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_and_no_client_is_in_any_answer_or_line_of_the_log() {
    let (_turn, (stage, showcase)) = stage().await;
    let wallet = seed::wallet("zurich").address();
    let paths = [
        "/health".to_owned(),
        "/readyz".to_owned(),
        "/api/v1/stats".to_owned(),
        "/api/v1/agents/compliance".to_owned(),
        showcase.lineage("ledger"),
        format!("/api/v1/kya/{wallet}"),
    ];
    let echo = SECRETS.map(|secrets| secret_url("http://node.example", secrets)).join(" and ");
    let bare = format!("over quota: {}", SECRETS.concat().join(", "));
    let client = stage.client.at([203, 0, 113, 77]).with("x-request-id", "secrets-17");
    let mut answers = Vec::new();
    for fault in [
        None,
        Some(Fault::Refuse),
        Some(Fault::Hang),
        Some(Fault::Garbage(echo.clone())),
        Some(Fault::error(-32000, &echo)),
        Some(Fault::error(-32000, &bare)),
        Some(Fault::Status { status: 401, body: echo, retry_after: None }),
    ] {
        stage.proxy.heal();
        if let Some(fault) = fault {
            stage.proxy.inject(Rule::any(fault));
        }
        for path in &paths {
            answers.push(client.get(path).await);
        }
    }
    let lines = stage.worker.lines_with("secrets-", answers.len()).await.unwrap();
    assert_no_secret(&answers, &lines, &[SECRETS.as_flattened(), &["203.0.113.77"]].concat());
    let wallet = wallet.to_string().to_lowercase();
    assert!(!lines.concat().to_lowercase().contains(&wallet), "a wallet is in the log");
}
