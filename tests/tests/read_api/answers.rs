//! Every endpoint's answer is the document of `service.md`, of the registry as an independent reader finds it.
//!
//! 1. Each takes the documented number of round trips to the chain.
//! 2. Each kind of wallet has its verdict, as of the newest block; with `history=1` its past.
//! 3. A hundred wallets are one block and one round trip, and the verdicts are the contract's own.
//! 4. A body that is no list of wallets is refused before it costs anything; a list counts by tens.
//! 5. A block is asked for by number and by hash; a final one is kept for a day.
//! 6. An answer is of one block though the chain moves on.

use std::time::Duration;

use alloy::primitives::Address;
use alloy::rpc::types::BlockNumberOrTag;
use e2e::anvil::{quantity, wall_clock};
use e2e::client::assert_has;
use e2e::documents::time;
use e2e::fault::{Fault, Rule};
use e2e::process::wait_until;
use e2e::seed::{self, kya};
use e2e::stage::Stage;
use e2e::story::{BUSY, BUSY_CHILDREN};
use registry_core::eth::abi::IAgentRegistry::isRegisteredAndCompliantCall;
use serde_json::{Value, json};

use super::{JSON, Scene, cost, scene};

/// Checks the answer to `path`: it is `document` at a second between request and answer, and took so many round
/// trips.
async fn check(stage: &Stage, path: &str, round_trips: usize, document: impl Fn(u64) -> Value) {
    stage.proxy.reset();
    let before = wall_clock();
    let answer = stage.client.get(path).await.ok();
    let expected: Vec<Value> = (before..=wall_clock()).map(document).collect();
    assert!(expected.contains(&answer), "{path}\n   answered {answer}\n   expected {}", expected[0]);
    let posts = stage.proxy.reset();
    let calls: usize = posts.iter().map(|post| post.methods.len()).sum();
    println!("{path}: {} round trips, {calls} RPC calls as providers bill them", posts.len());
    assert_eq!(posts.len(), round_trips, "{path}");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_endpoint_answers_what_an_independent_reader_finds_in_the_documented_round_trips() {
    let (_turn, Scene { stage, showcase }) = scene().await;
    let documents = &stage.documents().await.unwrap();
    let health = json!({"status": "ok", "registry": documents.registry, "rpc": documents.rpc});
    check(stage, "/health", 1, |_| health.clone()).await;
    check(stage, "/api/v1/stats", 1, |_| documents.stats()).await;
    check(stage, "/api/v1/stats/detailed", 2, |now| documents.detailed_stats(now)).await;
    for name in ["atlas", "kyoto", "quoted", "silent", "impostor", BUSY] {
        check(stage, &showcase.path(name), 1, |now| documents.agent(showcase.id(name), now)).await;
    }
    for (query, round_trips, page, limit, status) in [
        ("", 1, 1, 20, None),
        ("?page=2&limit=7", 1, 2, 7, None),
        ("?limit=101", 1, 1, 100, None),
        ("?page=1000", 1, 1_000, 20, None),
        ("?status=Revoked&limit=2", 2, 1, 2, Some("Revoked")),
    ] {
        let path = format!("/api/v1/agents{query}");
        check(stage, &path, round_trips, |_| documents.agents(page, limit, status)).await;
    }
    check(stage, "/api/v1/agents/compliance", 2, |now| documents.compliance_list(now)).await;
    let page = "/api/v1/agents/compliance?limit=7";
    check(stage, page, 2, |now| documents.compliance_page(0, 7, now)).await;
    for (name, levels) in [("atlas", 4), (BUSY, 2)] {
        check(stage, &showcase.lineage(name), levels, |_| documents.lineage(showcase.id(name))).await;
    }
    for (name, query, offset, limit) in [("atlas", "?offset=1&limit=2", 1, 2), ("ledger", "", 0, 100)] {
        let path = showcase.path(name) + "/revenue" + query;
        check(stage, &path, 1, |_| documents.revenue(showcase.id(name), offset, limit)).await;
    }
    check(stage, "/api/v1/revenue/aggregate", 2, |_| documents.revenue_aggregate()).await;

    // What documents have to show, should both readers be wrong in the same way.
    let get = async |path: &str| stage.client.get(path).await.ok();
    let kyoto = get(&showcase.path("kyoto")).await;
    assert_eq!(kyoto["agent"]["operationalScope"], "税務申告の補助 — 東京・京都");
    let silent = json!({ "operationalScope": "", "lastRevenueReport": "1970-01-01T00:00:00.000Z" });
    assert_has(&get(&showcase.path("silent")).await["agent"], silent, "silent");
    let note = format!("Showing 50 of {} children", BUSY_CHILDREN + 1);
    assert_has(&get(&showcase.lineage(BUSY)).await, json!({ "truncated": true, "note": note }), BUSY);
    let revenue = get("/api/v1/revenue/aggregate").await;
    assert_eq!(revenue["byCurrency"]["JPY"], 9_007_199_254_740_993_u64 + 480_000);
    let above = get(&(showcase.path("dune") + "/ancestors")).await;
    for (item, name) in above["ancestors"].as_array().unwrap().iter().zip(["cirrus", "boreas", "atlas"]) {
        let record = &documents.agents[usize::try_from(showcase.id(name)).unwrap() - 1].record;
        let person = record.address("haftungsperson");
        assert_has(item, json!({ "agentId": showcase.id(name), "haftungsperson": person }), name);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_kind_of_wallet_has_its_verdict_and_its_past() {
    let (_turn, Scene { stage, showcase }) = scene().await;
    let block = stage.chain.node.block(BlockNumberOrTag::Latest).await.unwrap();
    let number = |field: &str| quantity(&block[field]).unwrap();
    let (newest, seconds) = (number("number"), number("timestamp"));
    let as_of = json!({
        "blockNumber": newest, "blockTimestamp": time(seconds), "parentHash": block["parentHash"],
    });
    for (name, decision, registration, reasons) in [
        ("kyoto", "provision", "current", json!([])),
        ("forgetful", "request_renewal", "current", json!(["ATTESTATION_EXPIRED"])),
        ("paused", "request_renewal", "current", json!(["SUSPENDED", "ATTESTATION_EXPIRED"])),
        ("paused-child", "provision", "current", json!(["ANCESTOR_NOT_ACTIVE"])),
        ("impostor", "deny", "former", json!(["NOT_REGISTERED", "FORMER_AGENT_REVOKED"])),
        ("gone", "deny", "former", json!(["NOT_REGISTERED", "FORMER_AGENT_TERMINATED"])),
        // Its wallet is its heir's now.
        ("lost-key", "provision", "current", json!(["FORMER_AGENT_REVOKED"])),
        ("nobody", "deny", "never", json!(["NOT_REGISTERED"])),
    ] {
        let answer = stage.client.get(&format!("{}?history=1", kya(name))).await.ok();
        let verdict = json!({
            "decision": decision, "registration": registration, "reasons": reasons,
            "isRegistered": registration == "current", "isCompliant": decision == "provision", "asOf": as_of,
        });
        assert_has(&answer, verdict, name);
        assert!(answer.get("unknownBecause").is_none(), "{name}: {answer}");
    }
    let heir = stage.client.get(&format!("{}?history=1", kya("lost-key"))).await.ok();
    assert_eq!(heir["agent"]["agentId"], showcase.id("heir"));
    let former = json!({ "agentId": showcase.id("lost-key"), "status": "Revoked" });
    assert_has(&heir["formerAgents"][0], former, "its wallet's former agent");

    stage.proxy.reset();
    let before = wall_clock();
    let answer = stage.client.get(&kya("kyoto").to_lowercase()).await.ok();
    assert_eq!(stage.proxy.posts(), 1, "without its past, and in another spelling");
    assert_has(&answer, json!({ "wallet": kya("kyoto").split('/').next_back() }), "in its EIP-55 form");
    assert_has(&answer, json!({ "formerAgents": "unknown", "unknownBecause": "NOT_SCANNED" }), "kyoto");
    let checked_at = answer["checkedAt"].as_str().unwrap();
    assert!((&*time(before)..&*time(wall_clock() + 1)).contains(&checked_at), "{checked_at} after {before}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_verdicts_are_of_one_block_and_the_contracts_own() {
    let (_turn, Scene { stage, showcase }) = scene().await;
    let mut wallets: Vec<Address> =
        showcase.ids.keys().map(|name| seed::wallet(name).address()).take(99).collect();
    wallets.push(seed::wallet("nobody").address());
    let count = wallets.len();
    let body = json!({ "wallets": wallets.iter().map(Address::to_string).collect::<Vec<_>>() });
    let list = stage.client.post("/api/v1/kya", JSON, body.to_string()).await.ok();
    assert_eq!((stage.proxy.posts(), &list["total"]), (1, &json!(count)));
    let mut compliant = 0;
    for (wallet, verdict) in wallets.iter().zip(list["data"].as_array().unwrap()) {
        let call = isRegisteredAndCompliantCall { agentWallet: *wallet };
        let expected = stage.chain.read(stage.chain.contracts.registry, call).await.unwrap();
        let is_compliant = json!({ "wallet": wallet.to_checksum(None), "isCompliant": expected });
        assert_has(verdict, is_compliant, "the contract's own");
        assert_eq!(verdict["asOf"], list["data"][0]["asOf"]);
        compliant += usize::from(expected);
    }
    assert!((1..count).contains(&compliant), "some are and some are not: {compliant}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_list_of_wallets_is_refused_and_a_list_counts_by_tens() {
    let (_turn, Scene { stage, .. }) = scene().await;
    let wallet = seed::wallet("kyoto").address().to_string();
    let body = |count: usize| json!({ "wallets": vec![&wallet; count] }).to_string();
    for (path, media_type, body, status, message) in [
        ("/api/v1/kya", JSON, "nonsense".to_owned(), 400, "Invalid body: must be JSON of the form"),
        ("/api/v1/kya", JSON, body(101), 400, "Invalid wallets: must be a list of 1 to 100 wallets"),
        ("/api/v1/kya", JSON, " ".repeat(17 * 1024), 413, "Body too large"),
        ("/api/v1/kya", "text/plain", body(1), 415, "Unsupported media type"),
        ("/api/v1/stats", JSON, body(1), 405, "Method not allowed"),
    ] {
        let error = stage.client.post(path, media_type, body).await.error(status);
        assert!(error.starts_with(message), "{error}");
    }
    let get = stage.client.get("/api/v1/kya").await;
    assert!(get.error(405).contains("use POST") && get.header("allow") == "POST, OPTIONS", "{get:?}");
    assert_eq!(stage.proxy.posts(), 0, "none of it reached the chain");

    for (count, expected) in [(1, 1), (11, 2), (100, 10)] {
        let post = async |client: e2e::client::Client| client.post("/api/v1/kya", JSON, body(count)).await;
        assert_eq!(cost(&stage.client, post).await, expected, "{count} wallets");
    }
    let list = stage.client.get(&format!("/api/v1/kya/{wallet},me")).await.ok();
    assert_eq!((&list["total"], &list["data"][1]["code"]), (&json!(2), &json!("INVALID_PARAMETER")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_is_asked_by_number_and_hash_and_its_state_has_to_be_there() {
    let (_turn, Scene { stage, .. }) = scene().await;
    let (node, client) = (&stage.chain.node, &stage.client);
    let block = node.block(BlockNumberOrTag::Latest).await.unwrap();
    let (number, hash) = (quantity(&block["number"]).unwrap(), block["hash"].as_str().unwrap());
    register(stage, "of a later block").await;
    let kya = kya("of a later block");
    assert_eq!(client.get(&kya).await.ok()["decision"], "provision");
    for block_id in [&number.to_string(), hash] {
        let then = client.get(&format!("{kya}?block={block_id}")).await.ok();
        assert_has(&then, json!({ "decision": "deny", "unknownBecause": "PAST_BLOCK" }), block_id);
        let as_of = json!({ "blockNumber": number, "parentHash": block["parentHash"] });
        assert_has(&then["asOf"], as_of, block_id);
    }
    // Before the registry, beyond the head, of no chain.
    for block_id in ["0", "99999999", &format!("0x{}", "ab".repeat(32))] {
        let message = client.get(&format!("{kya}?block={block_id}")).await.error(404);
        assert!(message.starts_with(&format!("Block not available: {block_id}.")), "{message}");
    }
}

async fn register(stage: &Stage, name: &str) {
    let call = seed::registration_call(0, seed::wallet(name).address(), name, 0);
    stage.chain.send(stage.chain.owner(), call).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_of_one_block_though_the_chain_moves_on() {
    let (_turn, Scene { stage, .. }) = scene().await;
    let path = "/api/v1/agents/compliance";
    let count = async || {
        let list = stage.client.get(path).await.ok();
        (list["total"].as_u64().unwrap(), list["data"].as_array().unwrap().len() as u64)
    };
    let (total, _) = count().await;
    // The first round trip's answer is held back until the registry has changed.
    let served = stage.proxy.served();
    stage.proxy.inject(Rule::any(Fault::Delay(Duration::from_secs(2))).once());
    let (during, ()) = tokio::join!(count(), async {
        wait_until("read", Duration::from_secs(10), async || stage.proxy.served() > served).await;
        register(stage, "meanwhile").await;
    });
    assert_eq!(during, (total, total), "of the block of the first round trip");
    assert_eq!(count().await, (total + 1, total + 1), "the chain has moved on");
}
