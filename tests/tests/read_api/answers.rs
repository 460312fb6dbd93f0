//! Every endpoint's answer is of the registry as the contract's own functions tell it. That each document of
//! `service.md` is right whatever the registry holds is shown by `core/tests/engine/evm`.
//!
//! 1. Each takes the documented number of round trips to the chain.
//! 2. Each kind of wallet has its verdict, as of the newest block; with `history=1` its past.
//! 3. A body that is no list of wallets is refused before it costs anything; a list counts by tens.
//! 4. A block is asked for by number and by hash; a final one is kept for a day.

use alloy::rpc::types::BlockNumberOrTag;
use e2e::anvil::{quantity, wall_clock};
use e2e::chain::{STATUSES, time};
use e2e::client::assert_has;
use e2e::seed::{self, kya};
use e2e::stage::Stage;
use e2e::story::{BUSY, BUSY_CHILDREN};
use serde_json::{Map, Value, json};

use super::{JSON, Scene, cost, scene};

const LIST: &str = "/api/v1/agents";
const DETAILED: &str = "/api/v1/stats/detailed";

/// The answer to `path`, which took so many round trips.
async fn ask(stage: &Stage, path: &str, round_trips: usize) -> Value {
    stage.proxy.reset();
    let answer = stage.client.get(path).await.ok();
    let posts = stage.proxy.reset();
    let calls: usize = posts.iter().map(|post| post.methods.len()).sum();
    println!("{path}: {} round trips, {calls} RPC calls as providers bill them", posts.len());
    assert_eq!(posts.len(), round_trips, "{path}");
    answer
}

#[tokio::test(flavor = "multi_thread")]
async fn each_endpoint_answers_what_the_contract_says_in_the_documented_round_trips() {
    let (_turn, Scene { stage, showcase }) = scene().await;
    let (agents, id) = (stage.chain.agents().await.unwrap(), |name| showcase.id(name));
    let (total, rpc) = (agents.len(), stage.proxy.url());
    let registry = stage.chain.contracts.registry.to_checksum(None);
    let count = |status| agents.iter().filter(|agent| agent.status == status).count();
    let statuses: Map<_, _> =
        (0..).zip(STATUSES).map(|(number, name)| (name.into(), count(number).into())).collect();
    let stats = json!({ "totalAgents": total, "registryAddress": registry, "chain": rpc });
    let detailed = json!({ "totalAgents": total, "statusDistribution": statuses });
    let revenue = json!({ "EUR": 125_000 + 98_050 + 101_999 + 1, "CHF": 2_000_000, "USD": 4_200 + 77_001_305,
        // More than a double can hold exactly.
        "JPY": 9_007_199_254_740_993_u64 + 480_000 });
    let busy = json!({ "truncated": true, "note": format!("Showing 50 of {} children", BUSY_CHILDREN + 1) });
    for (path, round_trips, fields) in [
        ("/health".to_owned(), 1, json!({ "status": "ok", "registry": registry, "rpc": rpc })),
        ("/api/v1/stats".to_owned(), 1, stats),
        (DETAILED.to_owned(), 2, detailed),
        (LIST.to_owned(), 1, json!({ "total": total, "page": 1, "limit": 20 })),
        (format!("{LIST}?page=2&limit=7"), 1, json!({ "page": 2, "totalPages": total.div_ceil(7) })),
        (format!("{LIST}?limit=101"), 1, json!({ "limit": 100 })),
        (format!("{LIST}?page=1000"), 1, json!({ "total": total, "data": [] })),
        (format!("{LIST}?status=Revoked&limit=2"), 2, json!({ "total": count(2), "limit": 2 })),
        (format!("{LIST}/compliance"), 2, json!({ "total": total })),
        (format!("{LIST}/compliance?limit=7"), 2, json!({ "total": total, "limit": 7 })),
        (showcase.lineage("atlas"), 4, json!({ "agentId": id("atlas"), "generation": 0 })),
        (showcase.lineage(BUSY), 2, busy),
        (
            showcase.path("atlas") + "/revenue?offset=1&limit=2",
            1,
            json!({ "total": 4, "offset": 1, "limit": 2 }),
        ),
        (showcase.path("ledger") + "/revenue", 1, json!({ "total": 1, "limit": 100 })),
        ("/api/v1/revenue/aggregate".to_owned(), 2, json!({ "totalReports": 9, "byCurrency": revenue })),
    ] {
        assert_has(&ask(stage, &path, round_trips).await, fields, &path);
    }
    for name in ["atlas", "kyoto", "quoted", "silent", "impostor", BUSY] {
        let record = &agents[usize::try_from(id(name)).unwrap() - 1];
        let fields = json!({
            "agentId": id(name), "creator": record.creator.to_checksum(None),
            "haftungsperson": record.haftungsperson.to_checksum(None),
            "agentWallet": seed::wallet(name).address().to_checksum(None),
            "constitutionHash": record.constitutionHash, "operationalScope": record.operationalScope,
            "registeredAt": time(record.registeredAt), "lastRevenueReport": time(record.lastRevenueReport),
            "status": STATUSES[usize::from(record.status)],
        });
        assert_has(&ask(stage, &showcase.path(name), 1).await["agent"], fields, name);
    }
    let above = stage.client.get(&(showcase.path("dune") + "/ancestors")).await.ok();
    for (item, name) in above["ancestors"].as_array().unwrap().iter().zip(["cirrus", "boreas", "atlas"]) {
        let person = agents[usize::try_from(id(name)).unwrap() - 1].haftungsperson.to_checksum(None);
        assert_has(item, json!({ "agentId": id(name), "haftungsperson": person }), name);
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
    let later = seed::wallet("of a later block").address();
    stage.chain.send(stage.chain.owner(), seed::registration_call(0, later, "later", 0)).await.unwrap();
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
