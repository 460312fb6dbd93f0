//! When the chain does not answer: a 500 with a message that helps, never with a secret, never stored.
//!
//! 1. Each way a node can fail gets its message; after it, the Worker answers as before.
//! 2. Transient errors are retried and not noticed: a lost answer, a rate limit, a node a block behind.
//! 3. A node without EIP-1898 is asked by number instead.
//! 4. A key in the RPC URL's path or query is in no answer, header or error.
//! 5. Settings that are missing or wrong: every request says which, and the value stays private.
//! 6. An address without a contract is named; so is a Multicall3 that is not there.

use std::time::{Duration, Instant};

use alloy::primitives::Address;
use e2e::client::assert_no_secret;
use e2e::fault::{Fault, Rule};
use e2e::seed::{self, Showcase};
use e2e::stage::{Exclusive, Stage};
use e2e::worker::{Worker, WorkerOptions};
use serde_json::Value;
use tokio::sync::MutexGuard;

/// The part of the RPC URL that is a provider's key.
const SECRETS: [&str; 2] = ["0fAKeKey1234567890", "s3cr3t-token"];

const TIMEOUT_SECONDS: u64 = 1;

type Scene = (Stage, Showcase);

/// A Worker without a cache, with a key in its RPC URL; for one test at a time: faults hold for all of them.
async fn stage() -> (MutexGuard<'static, ()>, &'static Scene) {
    static SCENE: Exclusive<Scene> = Exclusive::empty();
    let settings = |options: WorkerOptions| {
        let url = format!("{}/v2/{}?token={}", options.get("RPC_URL"), SECRETS[0], SECRETS[1]);
        options.ttl(0).var("RPC_TIMEOUT_SECONDS", TIMEOUT_SECONDS).var("RPC_URL", url)
    };
    let (turn, scene) = SCENE.take(async || Stage::showcase(settings).await.unwrap()).await;
    scene.0.proxy.heal();
    scene.0.proxy.reset();
    (turn, scene)
}

/// One path for each way the core asks: one round, two rounds, level by level.
fn paths(showcase: &Showcase) -> [String; 5] {
    [
        "/health".to_owned(),
        "/api/v1/agent/1".to_owned(),
        seed::kya("kyoto"),
        "/api/v1/agents/compliance".to_owned(),
        showcase.lineage("atlas"),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_a_node_fails_has_its_message_and_ends_with_it() {
    let (_turn, (stage, showcase)) = stage().await;
    let (html, missing) = ("<html>502 Bad Gateway</html>", "the method eth_call does not exist");
    for (fault, message) in [
        (Fault::Refuse, "RPC endpoint unreachable"),
        (Fault::LoseAnswer, "RPC endpoint unreachable"),
        // A batch that reads many agents has more than a second.
        (Fault::Hang, "RPC endpoint did not answer within "),
        (Fault::HangAfterwards, "RPC endpoint did not answer within "),
        (Fault::page(502, html), "RPC endpoint answered HTTP 502"),
        (Fault::page(403, ""), "RPC endpoint answered HTTP 403"),
        (Fault::Garbage(html.into()), "RPC endpoint gave a malformed answer"),
        (Fault::Garbage(String::new()), "RPC endpoint gave a malformed answer"),
        (Fault::error(-32601, missing), missing),
        (Fault::error(-32000, "daily quota used up"), "daily quota used up"),
    ] {
        for path in paths(showcase) {
            stage.proxy.inject(Rule::any(fault.clone()));
            let asked = Instant::now();
            let answer = stage.client.get(&path).await;
            let error = answer.error(500);
            assert!(error.contains(message), "{path}, {fault:?}: {error}");
            assert_eq!(answer.header("cache-control"), "no-store", "{path}, {fault:?}");
            let took = asked.elapsed();
            assert!(took < Duration::from_secs(TIMEOUT_SECONDS * 8), "{path}: {took:?}");
            stage.proxy.heal();
            stage.client.get(&path).await.ok();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_by_itself_is_not_noticed() {
    let (_turn, (stage, showcase)) = stage().await;
    for fault in [
        Fault::error(-32005, "limit exceeded"),
        Fault::error(-32603, "Internal error"),
        Fault::error(-32000, "request timed out"),
        Fault::error(-32000, "header not found"),
    ] {
        for path in paths(showcase) {
            stage.proxy.inject(Rule::on("eth_call", fault.clone()).once());
            let answer = stage.client.get(&path).await;
            assert_eq!(answer.status, 200, "{path}, {fault:?}: {}", answer.text);
            stage.proxy.heal();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_behind_a_load_balancer_that_lags_is_no_error() {
    let (_turn, (stage, showcase)) = stage().await;
    let lineage = showcase.lineage("atlas");
    let expected = stage.client.get(&lineage).await.ok();
    // The second round trip goes to a node that has not seen the first one's block; so does the third.
    let head = stage.chain.node.height().await.unwrap() - 1;
    stage.proxy.inject(Rule::on("eth_call", Fault::Stale { head }).after(1).times(2));
    assert_eq!(stage.client.get(&lineage).await.ok(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_without_block_hashes_is_asked_by_number() {
    let (_turn, (stage, showcase)) = stage().await;
    let lineage = showcase.lineage("atlas");
    let expected = stage.client.get(&lineage).await.ok();
    let refusal = "invalid argument 1: json: cannot unmarshal object into Go value of type rpc.BlockNumber";
    stage.proxy.inject(Rule::on("eth_call", Fault::error(-32602, refusal)).containing("blockHash"));
    stage.proxy.reset();
    assert_eq!(stage.client.get(&lineage).await.ok(), expected);
    let asked: Vec<Value> = stage.proxy.reset().into_iter().map(|post| post.body).collect();
    let by_number = asked.iter().filter(|body| {
        let calls = body.as_array().cloned().unwrap_or_else(|| vec![(*body).clone()]);
        calls.iter().any(|call| {
            call["method"] == "eth_call"
                && call["params"][1].as_str().is_some_and(|tag| tag.starts_with("0x"))
        })
    });
    assert!(by_number.count() >= 3, "four levels, the first of them unpinned: {asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_part_of_the_rpc_urls_key_leaves_the_worker() {
    let (_turn, (stage, showcase)) = stage().await;
    let mut answers = Vec::new();
    for path in paths(showcase) {
        answers.push(stage.client.get(&path).await);
    }
    answers.push(stage.client.get("/api/v1/stats").await);
    let echo = format!("no access to https://node.example/v2/{} with token={}", SECRETS[0], SECRETS[1]);
    let bare = format!("{} is over its quota, {} too", SECRETS[0], SECRETS[1]);
    for fault in [
        Fault::Refuse,
        Fault::Garbage(echo.clone()),
        Fault::error(-32000, &echo),
        Fault::error(-32000, &bare),
        Fault::status(401),
    ] {
        stage.proxy.inject(Rule::any(fault));
        for path in paths(showcase) {
            answers.push(stage.client.get(&path).await);
        }
        stage.proxy.heal();
    }
    assert_no_secret(&answers, &[], &SECRETS);
    assert_eq!(answers[0].ok()["rpc"], stage.proxy.url(), "scheme and host alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_setting_that_is_missing_or_wrong_is_named_by_every_answer() {
    let (_turn, (stage, _)) = stage().await;
    let good = WorkerOptions::new(stage.proxy.url(), stage.chain.contracts.registry);
    for (options, words) in [
        (good.clone().unset("REGISTRY_ADDRESS"), ["REGISTRY_ADDRESS", "not set"]),
        (good.clone().var("REGISTRY_ADDRESS", "0x1234"), ["REGISTRY_ADDRESS", "40 hexadecimal digits"]),
        (good.clone().var("MULTICALL3_ADDRESS", "x"), ["MULTICALL3_ADDRESS", "40 hexadecimal digits"]),
        (good.clone().var("RPC_URL", "wss://s3cr3t-token.example"), ["RPC_URL", "http"]),
        (good.clone().var("AGENT_TTL_SECONDS", "-3"), ["AGENT_TTL_SECONDS", "whole number"]),
        (good.clone().var("RATE_LIMITER", "redis"), ["RATE_LIMITER", "kv, durable-object or binding"]),
    ] {
        let worker = Worker::start(options).await.unwrap();
        for path in ["/health", "/api/v1/stats", "/api/v1/agent/1"] {
            let answer = worker.client().get(path).await;
            let error = answer.error(500);
            assert!(words.iter().all(|word| error.contains(word)), "{path}: {error}");
            assert!(!error.contains("s3cr3t-token"), "{error}");
            assert_eq!(answer.header("access-control-allow-origin"), "*");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_without_a_contract_is_named() {
    let (_turn, (stage, _)) = stage().await;
    let good = WorkerOptions::new(stage.proxy.url(), stage.chain.contracts.registry);
    let nobody = Address::repeat_byte(0x77);
    for (name, what) in [("REGISTRY_ADDRESS", "No contract at"), ("MULTICALL3_ADDRESS", "No Multicall3 at")] {
        let worker = Worker::start(good.clone().var(name, nobody)).await.unwrap();
        for path in ["/api/v1/stats", "/api/v1/agent/1", "/api/v1/agents/compliance"] {
            let error = worker.client().get(path).await.error(500);
            let words = [what, &nobody.to_string()];
            assert!(words.iter().all(|word| error.contains(word)), "{name}, {path}: {error}");
        }
    }
}
