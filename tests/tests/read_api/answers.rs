//! Every endpoint's answer agrees with the contract's own functions. `core/tests/engine/evm` shows that each
//! document of `service.md` is right for any content of the registry.
//!
//! Each takes the documented number of round trips to the chain. Blocks are given by number and by hash.

use alloy::rpc::types::BlockNumberOrTag;
use e2e::anvil::quantity;
use e2e::chain::{STATUSES, time};
use e2e::client::assert_has;
use e2e::seed::{self, kya};
use e2e::stage::WorkerStage;
use e2e::story::{BUSY, BUSY_CHILDREN};
use serde_json::{Map, Value, json};

use super::{ReadApiFixture, scene};

const LIST: &str = "/api/v1/agents";
const DETAILED: &str = "/api/v1/stats/detailed";

/// Requests `path`, checks the number of round trips, and returns the answer.
async fn ask(stage: &WorkerStage, path: &str, round_trips: usize) -> Value {
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
    let (_turn, ReadApiFixture { stage, showcase }) = scene().await;
    let (agents, id) = (stage.chain.agents().await.unwrap(), |name| showcase.id(name));
    let (total, rpc) = (agents.len(), stage.proxy.url());
    let registry = stage.chain.contracts.registry.to_checksum(None);
    let count = |status| agents.iter().filter(|agent| agent.status == status).count();
    let statuses: Map<_, _> =
        (0..).zip(STATUSES).map(|(number, name)| (name.into(), count(number).into())).collect();
    let stats = json!({ "totalAgents": total, "registryAddress": registry, "chain": rpc });
    let detailed = json!({ "totalAgents": total, "statusDistribution": statuses });
    let revenue = json!({ "EUR": 125_000 + 98_050 + 101_999 + 1, "CHF": 2_000_000, "USD": 4_200 + 77_001_305,
        // A double cannot hold this exactly.
        "JPY": 9_007_199_254_740_993_u64 + 480_000 });
    let busy = json!({ "truncated": true, "note": format!("Showing 50 of {} children", BUSY_CHILDREN + 1) });
    let block = stage.chain.node.block(BlockNumberOrTag::Latest).await.unwrap();
    let (number, hash) = (quantity(&block["number"]).unwrap(), block["hash"].as_str().unwrap());
    let page = json!({ "total": 4, "offset": 1, "limit": 2 });
    let then = json!({ "decision": "provision", "unknownBecause": "PAST_BLOCK" });
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
        (showcase.path("atlas") + "/revenue?offset=1&limit=2", 1, page),
        (showcase.path("ledger") + "/revenue", 1, json!({ "total": 1, "limit": 100 })),
        ("/api/v1/revenue/aggregate".to_owned(), 2, json!({ "totalReports": 9, "byCurrency": revenue })),
        (kya("kyoto").to_lowercase(), 1, json!({ "decision": "provision", "unknownBecause": "NOT_SCANNED" })),
        (format!("{}?block={number}", kya("kyoto")), 1, then.clone()),
        (format!("{}?block={hash}", kya("kyoto")), 1, then),
    ] {
        assert_has(&ask(stage, &path, round_trips).await, fields, &path);
    }
    // Blocks before the registry, beyond the head, and on no chain.
    for block_id in ["0", "99999999", &format!("0x{}", "ab".repeat(32))] {
        let message = stage.client.get(&format!("{}?block={block_id}", kya("kyoto"))).await.error(404);
        assert!(message.starts_with(&format!("Block not available: {block_id}.")), "{message}");
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
