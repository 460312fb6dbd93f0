//! Verdicts beyond the newest block and the single wallet, on a real chain through the real Worker.
//!
//! 1. Every decision with its reasons, and a wallet's past as it was.
//! 2. A hundred wallets are one block and one round trip; the verdicts are the contract's own, on both sides
//!    of the grace period's last second.
//! 3. The past of all wallets comes from one scan, and is unknown without one.
//! 4. A block by number and by hash is one; a final one is kept for a day; a missing one is a 404.
//! 5. The agents above an agent, up to its root.
//! 6. A body without a list of wallets is refused with status and rule; the limit charges lists by tens.

use alloy::primitives::Address;
use alloy::rpc::types::BlockNumberOrTag;
use e2e::anvil::quantity;
use e2e::client::assert_has;
use e2e::seed::{self, Showcase, kya};
use e2e::stage::Stage;
use e2e::story::DAY;
use registry_core::eth::abi::IAgentRegistry;
use serde_json::{Value, json};

const JSON: &str = "application/json";

async fn showcase() -> (Stage, Showcase) {
    Stage::showcase(|options| options).await.unwrap()
}

/// The verdicts on these wallets.
async fn list(stage: &Stage, wallets: &[Address], query: &str) -> Vec<Value> {
    let body = json!({ "wallets": wallets.iter().map(Address::to_string).collect::<Vec<_>>() }).to_string();
    let list = stage.client.post(&format!("/api/v1/kya{query}"), JSON, body).await.ok();
    assert_eq!(list["total"], wallets.len());
    list["data"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_decision_has_its_reasons_and_every_past_is_told_from_one_scan() {
    let (stage, showcase) = showcase().await;
    let before = stage.client.get(&kya("lost-key")).await.ok();
    let unknown =
        json!({ "formerAgents": "unknown", "decision": "provision", "unknownBecause": "NOT_SCANNED" });
    assert_has(&before, unknown, "the registry was not scanned");
    for (agent, decision, registration, reasons) in [
        ("kyoto", "provision", "current", json!([])),
        ("forgetful", "request_renewal", "current", json!(["ATTESTATION_EXPIRED"])),
        ("paused", "request_renewal", "current", json!(["SUSPENDED", "ATTESTATION_EXPIRED"])),
        ("paused-child", "provision", "current", json!(["ANCESTOR_NOT_ACTIVE"])),
        ("impostor", "deny", "former", json!(["NOT_REGISTERED", "FORMER_AGENT_REVOKED"])),
        ("gone", "deny", "former", json!(["NOT_REGISTERED", "FORMER_AGENT_TERMINATED"])),
        ("lost-key", "provision", "current", json!(["FORMER_AGENT_REVOKED"])),
        ("nobody", "deny", "never", json!(["NOT_REGISTERED"])),
    ] {
        stage.proxy.reset();
        let answer = stage.client.get(&format!("{}?history=1", kya(agent))).await.ok();
        let verdict = json!({ "decision": decision, "reasons": reasons, "registration": registration });
        assert_has(&answer, verdict, agent);
        assert!(answer.get("unknownBecause").is_none(), "{answer}");
        let posts = stage.proxy.reset().len();
        assert!(posts <= if agent == "kyoto" { 4 } else { 1 }, "{agent}: {posts} round trips");
    }
    let heir = stage.client.get(&format!("{}?history=1", kya("lost-key"))).await.ok();
    assert_eq!(heir["agent"]["agentId"], showcase.id("heir"));
    let former = json!({ "agentId": showcase.id("lost-key"), "status": "Revoked" });
    assert_has(&heir["formerAgents"][0], former, "its wallet's former agent");
    // While the scan is there, every verdict says as much, in one round trip.
    stage.proxy.reset();
    let smuggler = stage.client.get(&kya("smuggler")).await.ok();
    assert_eq!(smuggler["registration"], "former");
    assert_eq!(stage.proxy.reset().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_verdicts_are_of_one_block_and_the_contracts_own() {
    let (stage, showcase) = showcase().await;
    let mut wallets: Vec<Address> =
        showcase.ids.keys().map(|name| seed::wallet(name).address()).take(95).collect();
    wallets.resize_with(100, || seed::wallet("nobody").address());
    stage.proxy.reset();
    let verdicts = list(&stage, &wallets, "").await;
    assert_eq!(stage.proxy.reset().len(), 1, "round trips");
    for (wallet, verdict) in wallets.iter().zip(&verdicts) {
        assert_eq!(verdict["wallet"], wallet.to_checksum(None));
        assert_eq!(verdict["asOf"], verdicts[0]["asOf"]);
    }

    // The last attestation, and the seconds around its end.
    let oracle = stage.oracle().unwrap();
    let atlas = oracle.facts(showcase.id("atlas")).await.unwrap().record.number("lastAttestation");
    let registry = stage.chain.contracts.registry;
    let last = atlas + 7 * DAY;
    for time in [stage.chain.node.time().await.unwrap() + 60, last - 1, last, last + 1, last + 30 * DAY] {
        stage.chain.node.set_next_block_time(time).await.unwrap();
        stage.chain.node.mine(1).await.unwrap();
        let number = stage.chain.node.height().await.unwrap();
        for wallets in wallets.chunks(50) {
            for verdict in list(&stage, wallets, &format!("?block={number}")).await {
                let wallet: Address = verdict["wallet"].as_str().unwrap().parse().unwrap();
                let call = IAgentRegistry::isRegisteredAndCompliantCall { agentWallet: wallet };
                let expected = stage.chain.read(registry, call).await.unwrap();
                assert_eq!(verdict["isCompliant"], expected, "{wallet} at {time}");
                assert_eq!(verdict["decision"] == "provision", expected);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_is_asked_by_number_and_hash_and_its_state_has_to_be_there() {
    let (stage, showcase) = showcase().await;
    let node = &stage.chain.node;
    let block = node.block(BlockNumberOrTag::Latest).await.unwrap();
    let number = quantity(&block["number"]).unwrap();
    let hash = block["hash"].as_str().unwrap();
    let suspend = seed::suspension(showcase.id("kyoto"), "a later block");
    stage.chain.send(stage.chain.owner(), suspend).await.unwrap();
    assert_eq!(stage.client.get(&kya("kyoto")).await.ok()["reasons"], json!(["SUSPENDED"]));
    for block_id in [number.to_string(), hash.to_owned()] {
        let answer = stage.client.get(&format!("{}?block={block_id}", kya("kyoto"))).await;
        let then = answer.ok();
        assert_has(&then, json!({ "decision": "provision", "unknownBecause": "PAST_BLOCK" }), &block_id);
        let as_of = json!({ "blockNumber": number, "parentHash": block["parentHash"] });
        assert_has(&then["asOf"], as_of, &block_id);
        assert_eq!(answer.header("cache-control"), "public, max-age=60", "not final yet");
        let agent = format!("{}?block={block_id}", showcase.path("kyoto"));
        assert_eq!(stage.client.get(&agent).await.ok()["agent"]["status"], "Active");
    }
    // An epoch or two later it is.
    node.mine(200).await.unwrap();
    let path = format!("{}?block={number}&again", kya("atlas"));
    let answer = stage.client.get(&path).await;
    assert_eq!(answer.ok()["asOf"]["blockNumber"], number);
    assert_eq!(answer.header("cache-control"), "public, max-age=86400");
    stage.proxy.reset();
    assert_eq!(stage.client.get(&path).await.header("x-cache"), "HIT");
    assert_eq!(stage.proxy.reset().len(), 0);
    // Before the agent, before the registry, beyond the head, on no chain.
    let absent = format!("0x{}", "ab".repeat(32));
    for block_id in ["0", "99999999", &absent] {
        let message = stage.client.get(&format!("{}?block={block_id}", kya("kyoto"))).await.error(404);
        assert!(message.starts_with(&format!("Block not available: {block_id}.")), "{message}");
    }
    let agent = format!("/api/v1/agent/{}?block={number}", showcase.total + 1);
    assert!(stage.client.get(&agent).await.error(404).starts_with("Agent not found: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn ancestors_lead_to_the_root_with_who_is_liable() {
    let (stage, showcase) = showcase().await;
    let oracle = stage.oracle().unwrap();
    let path = showcase.path("dune") + "/ancestors";
    let answer = stage.client.get(&path).await.ok();
    let above = answer["ancestors"].as_array().unwrap();
    assert_eq!(above.len(), 3);
    for (item, name) in above.iter().zip(["cirrus", "boreas", "atlas"]) {
        let record = oracle.facts(showcase.id(name)).await.unwrap().record;
        let (person, generation) = (record.address("haftungsperson"), record.number("generation"));
        let ancestor =
            json!({ "agentId": showcase.id(name), "haftungsperson": person, "generation": generation });
        assert_has(item, ancestor, name);
    }
    let root = showcase.path("atlas") + "/ancestors";
    assert_eq!(stage.client.get(&root).await.ok()["ancestors"], json!([]));
    stage.client.get("/api/v1/agent/4000/ancestors").await.error(404);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_list_of_wallets_is_refused_and_a_list_counts_in_tens() {
    let options = |options: e2e::worker::WorkerOptions| {
        options.var("RATE_LIMIT_PER_MINUTE", 1_000).var("RATE_LIMIT_WINDOW_SECONDS", 3_600)
    };
    let (stage, _) = Stage::showcase(options).await.unwrap();
    let (client, proxy) = (&stage.client, &stage.proxy);
    let wallet = seed::wallet("kyoto").address().to_string();
    let body = |count: usize| json!({ "wallets": vec![&wallet; count] }).to_string();
    proxy.reset();
    for bad in ["", "[]", "{}", "{\"wallets\": 7}", "{\"wallets\": [7]}", "nonsense"] {
        let message = client.post("/api/v1/kya", JSON, bad).await.error(400);
        assert!(message.starts_with("Invalid body: must be JSON of the form"), "{bad}: {message}");
    }
    for count in [0, 101] {
        let message = client.post("/api/v1/kya", JSON, body(count)).await.error(400);
        assert_eq!(message, "Invalid wallets: must be a list of 1 to 100 wallets");
    }
    let large = " ".repeat(17 * 1024);
    assert!(client.post("/api/v1/kya", JSON, large).await.error(413).starts_with("Body too large"));
    client.post("/api/v1/kya", "text/plain", body(1)).await.error(415);
    let get = client.get("/api/v1/kya").await;
    get.error(405);
    assert_eq!(get.header("allow"), "POST, OPTIONS");
    client.post("/api/v1/stats", JSON, body(1)).await.error(405);
    assert_eq!(proxy.reset().len(), 0, "none of it reached the chain");

    let left = |answer: &e2e::client::Answer| answer.number("x-ratelimit-remaining");
    let before = left(&client.get("/nowhere").await);
    let mut used = 0;
    for (count, cost) in [(1, 1), (10, 1), (11, 2), (100, 10)] {
        let answer = client.post("/api/v1/kya", JSON, body(count)).await;
        assert_eq!(answer.header("cache-control"), "no-store");
        answer.ok();
        used += cost;
        assert_eq!(before - left(&answer), used, "{count} wallets");
    }
    let mixed = json!({ "wallets": ["me", wallet] }).to_string();
    let data = client.post("/api/v1/kya", JSON, mixed).await.ok()["data"].clone();
    assert_eq!((&data[0]["wallet"], &data[0]["code"]), (&json!("me"), &json!("INVALID_PARAMETER")));
    assert_eq!(data[1]["decision"], "provision");
    let path = client.get(&format!("/api/v1/kya/{wallet},me")).await.ok();
    assert_eq!((&path["total"], &path["data"][1]["code"]), (&json!(2), &json!("INVALID_PARAMETER")));
}
