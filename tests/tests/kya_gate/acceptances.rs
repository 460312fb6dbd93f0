//! The read API applies an acceptance only to the answer to its request. It checks it by the liable wallet's
//! code at the verdict's block, or at the newest one where its node has lost that block; the code's answer
//! lasts no longer than the verdict.

use std::net::Ipv4Addr;
use std::time::Duration;

use alloy::primitives::Bytes;
use e2e::anvil::{CHAIN_ID, dev_account, wall_clock};
use e2e::fault::{FaultRule, NodeFault};
use e2e::gate::{ACCEPT, REVERT};
use e2e::proxy::Proxy;
use e2e::seed;
use e2e::verdict_tokens::{key_set, new_key};
use e2e::worker::{Worker, WorkerOptions};
use registry_core::liability::Acceptance;
use registry_core::token::Jws;
use serde_json::{Value, json};

use crate::ISSUER;
use crate::liable::{ACME, accepted, chain};

#[tokio::test(flavor = "multi_thread")]
async fn the_api_takes_an_acceptance_for_the_one_answer_to_its_request() {
    let (chain, directory) = (chain().await, tempfile::tempdir().unwrap());
    let proxy = Proxy::start(chain.node.url()).await.unwrap();
    let options = WorkerOptions::new(proxy.url(), chain.contracts.registry).var("CHAIN_ID", CHAIN_ID);
    let options = options.var("RATE_LIMIT_PER_MINUTE", 100);
    let options = options.var("VERDICT_KEYS", key_set(&[&new_key().await.unwrap()]));
    let worker = Worker::start(options.var("VERDICT_ISSUER", ISSUER)).await.unwrap();
    let (client, path) = (worker.client(), seed::kya("header"));
    let plain = client.get(&path).await;
    let expected = json!({ "wallet": dev_account(ACME).to_string(), "basis": "unknown" });
    assert_eq!(plain.ok()["liability"], expected);

    let header = accepted(directory.path(), &chain, "header").await;
    let other = accepted(directory.path(), &chain, "listed").await;
    let over = Acceptance { not_after: wall_clock() - 100, not_before: wall_clock() - 200, ..header.clone() };
    let forged = Acceptance { signature: other.signature.clone(), ..header.clone() };
    proxy.reset();
    for (number, presented, basis, problem) in [
        (1, header.to_header(), "accepted", Value::Null),
        (2, other.to_header(), "unknown", json!("agentWallet")),
        (3, over.to_header(), "unknown", json!("time")),
        (4, forged.to_header(), "unknown", json!("signature")),
        (5, "*".to_owned(), "unknown", json!("header")),
    ] {
        // Each request is of another client, so that no window matters.
        let client = client.at(Ipv4Addr::new(10, 0, 0, number)).with("liability-acceptance", &presented);
        let answer = client.get(&path).await;
        let mut verdict = answer.ok();
        let problem_told = verdict.as_object_mut().unwrap().remove("acceptanceProblem").unwrap_or_default();
        assert_eq!((&problem_told, &verdict["liability"]["basis"]), (&problem, &json!(basis)));
        verdict["liability"]["basis"] = json!("unknown");
        assert_eq!(verdict, plain.ok(), "nothing else of the verdict is another");
        assert_eq!(answer.header("cache-control"), "no-store");
        assert_eq!(answer.number("x-ratelimit-remaining"), 98);
        assert!(!worker.log().contains(&presented) || presented == "*");
    }
    assert_eq!(proxy.calls("eth_call"), 1, "whether the liable wallet has code");
    let token = client.with("liability-acceptance", &header.to_header()).with("accept", "application/jwt");
    let claims = Jws::parse(&token.get(&path).await.text).unwrap().claims;
    assert_eq!(claims.liability.unwrap().basis.name(), "accepted");
    let again = client.get(&path).await;
    assert_eq!((again.header("x-cache"), again.ok()), ("HIT", plain.ok()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_judges_an_acceptance_by_the_liable_wallets_code_at_the_verdicts_own_block() {
    let (chain, directory) = (chain().await, tempfile::tempdir().unwrap());
    let of_key = accepted(directory.path(), &chain, "header").await;
    let of_code = Acceptance { signature: Bytes::from_static(&[1, 2, 3]), ..of_key.clone() };
    let before = chain.node.height().await.unwrap();
    // Anvil sets code in the state of its newest block, which therefore has to be a later one.
    chain.node.mine(1).await.unwrap();
    chain.node.set_code(dev_account(ACME), &Bytes::from_static(ACCEPT)).await.unwrap();
    chain.node.mine(1).await.unwrap();
    let options = WorkerOptions::new(chain.node.url(), chain.contracts.registry).var("CHAIN_ID", CHAIN_ID);
    let worker = Worker::start(options).await.unwrap();
    let (newest, then) = (seed::kya("header"), format!("{}?block={before}", seed::kya("header")));
    for (path, presented, basis, problem) in [
        (&then, &of_code, "unknown", json!("signature")),
        (&newest, &of_code, "accepted", Value::Null),
        (&then, &of_key, "accepted", Value::Null),
    ] {
        let client = worker.client().with("liability-acceptance", &presented.to_header());
        let verdict = client.get(path).await.ok();
        let judged = (&verdict["liability"]["basis"], &verdict["acceptanceProblem"]);
        assert_eq!(judged, (&json!(basis), &problem), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_asks_for_the_liable_wallets_code_anew_once_the_verdict_has_ended() {
    const TTL: Duration = Duration::from_secs(8);
    let (chain, directory) = (chain().await, tempfile::tempdir().unwrap());
    let header = accepted(directory.path(), &chain, "header").await.to_header();
    let options = WorkerOptions::new(chain.node.url(), chain.contracts.registry).var("CHAIN_ID", CHAIN_ID);
    let worker = Worker::start(options.ttl(TTL.as_secs())).await.unwrap();
    let (client, path) = (worker.client(), seed::kya("header"));
    let first = client.get(&path).await.ok();
    chain.node.mine(1).await.unwrap();
    chain.node.set_code(dev_account(ACME), &Bytes::from_static(REVERT)).await.unwrap();
    chain.node.mine(1).await.unwrap();
    let client = client.with("liability-acceptance", &header);
    // The code is read late in the verdict's life, and then the verdict ends.
    tokio::time::sleep(TTL * 5 / 8).await;
    let cached = client.get(&path).await.ok();
    // On a slow machine it may have ended already.
    if cached["asOf"] == first["asOf"] {
        assert_eq!(cached["liability"]["basis"], "accepted", "the wallet had no code at the verdict's block");
    }
    tokio::time::sleep(TTL / 2).await;
    let later = client.get(&path).await.ok();
    assert_ne!(later["asOf"], first["asOf"]);
    assert_eq!(later["acceptanceProblem"], "signature");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_api_takes_an_acceptance_where_its_node_has_lost_the_verdicts_block() {
    let (chain, directory) = (chain().await, tempfile::tempdir().unwrap());
    let header = accepted(directory.path(), &chain, "header").await.to_header();
    let proxy = Proxy::start(chain.node.url()).await.unwrap();
    let options = WorkerOptions::new(proxy.url(), chain.contracts.registry).var("CHAIN_ID", CHAIN_ID);
    let worker = Worker::start(options).await.unwrap();
    let (client, path) = (worker.client(), seed::kya("header"));
    let as_of = client.get(&path).await.ok()["asOf"].clone();
    let asked = json!([format!("{:#x}", as_of["blockNumber"].as_u64().unwrap()), false]);
    let block: Value = chain.node.request("eth_getBlockByNumber", asked).await.unwrap();
    chain.node.mine(1).await.unwrap();
    for name in [&block["number"], &block["hash"]] {
        let lost = NodeFault::error(-32_000, "missing trie node 5d0a (path ) state is not available");
        proxy.inject(FaultRule::on("eth_call", lost).containing(&name.to_string()));
    }
    let verdict = client.with("liability-acceptance", &header).get(&path).await.ok();
    assert_eq!((&verdict["liability"]["basis"], &verdict["asOf"]), (&json!("accepted"), &as_of));
}
