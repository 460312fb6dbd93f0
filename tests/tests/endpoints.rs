//! Every endpoint's answer is the document of `service.md`, of the registry as an independent reader finds
//! it.
//!
//! 1. `/health`, `/stats` name registry and endpoint, and count.
//! 2. `/stats/detailed` counts statuses, generations, compliance and revenue, and has the last ten agents.
//! 3. `/agent/:id` of every agent: record, children, compliance; unicode scopes unharmed.
//! 4. `/agents`: the pages laid end to end are the registry, with and without a filter; a limit above 100 is
//!    cut; a page beyond the end is empty.
//! 5. `/agents/compliance` is whole, and stalest first; so are its pages laid end to end.
//! 6. `/agent/:id/lineage` of every agent: four generations, and 55 children cut to 50 with a note.
//! 7. `/agent/:id/revenue` of every agent, in pieces too; `/revenue/aggregate` adds them up.
//! 8. `/kya/:wallet` of every wallet, in every spelling; a revoked wallet is not registered, its heir is.
//! 9. Questions that need an index are refused where there is none, with a code of their own.
//! 10. A grace period the owner has set holds instead of seven days.

use std::time::{SystemTime, UNIX_EPOCH};

use alloy::primitives::{Address, U256};
use alloy::rpc::types::BlockNumberOrTag;
use e2e::anvil::quantity;
use e2e::chain::Chain;
use e2e::client::assert_has;
use e2e::documents::{Documents, status, time, unix_millis};
use e2e::oracle::Facts;
use e2e::seed::{self, Showcase};
use e2e::stage::Stage;
use e2e::story::{BUSY, BUSY_CHILDREN, DAY, STORY};
use registry_core::eth::abi::IAgentRegistry;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

struct Scene {
    stage: Stage,
    showcase: Showcase,
    documents: Documents,
}

/// One chain and one Worker for all tests here; nothing is cached, so every answer is of this moment.
async fn scene() -> &'static Scene {
    static SCENE: OnceCell<Scene> = OnceCell::const_new();
    SCENE
        .get_or_init(async || {
            let (stage, showcase) = Stage::showcase(|options| options.ttl(0)).await.unwrap();
            let documents = stage.documents().await.unwrap();
            Scene { stage, showcase, documents }
        })
        .await
}

fn wall_clock_millis() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

impl Scene {
    /// Checks the answer to `path`: it is `document` at a second between request and answer.
    async fn check(&self, path: &str, document: impl Fn(u64) -> Value) {
        let before = wall_clock_millis() / 1000;
        let answer = self.get(path).await;
        let after = wall_clock_millis() / 1000;
        let expected: Vec<Value> = (before..=after).map(document).collect();
        assert!(expected.contains(&answer), "{path}\n   answered {answer}\n   expected {}", expected[0]);
    }

    async fn get(&self, path: &str) -> Value {
        self.stage.client.get(path).await.ok()
    }

    fn ids(&self) -> std::ops::RangeInclusive<u64> {
        1..=self.showcase.total
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_stats_name_the_registry_and_the_endpoint() {
    let scene = scene().await;
    scene.check("/health", |_| scene.documents.health()).await;
    scene.check("/api/v1/stats", |_| scene.documents.stats()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn detailed_stats_count_the_whole_registry() {
    let scene = scene().await;
    scene.check("/api/v1/stats/detailed", |now| scene.documents.detailed_stats(now)).await;

    // What the document has to show, should both readers be wrong in the same way.
    let answer = scene.get("/api/v1/stats/detailed").await;
    assert_eq!(answer["totalAgents"], scene.showcase.total);
    for name in ["Active", "Suspended", "Revoked", "Terminated"] {
        assert!(answer["statusDistribution"][name].as_u64().unwrap() > 0, "{name}: {answer}");
    }
    assert_eq!(answer["recentRegistrations"][0]["agentId"], scene.showcase.total);
    assert_eq!(answer["recentRegistrations"].as_array().unwrap().len(), 10);
    assert_eq!(answer["totalRevenue"]["JPY"], 9_007_199_254_740_993_u64 + 480_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_agent_is_answered_as_the_chain_has_it() {
    let scene = scene().await;
    for id in scene.ids() {
        scene.check(&format!("/api/v1/agent/{id}"), |now| scene.documents.agent(id, now)).await;
    }
    for (name, scope) in [
        ("kyoto", "税務申告の補助 — 東京・京都"),
        ("quoted", "Says \"no\" \\ <b>often</b>\n\tand on two lines"),
        ("silent", ""),
    ] {
        let answer = scene.get(&scene.showcase.path(name)).await;
        assert_eq!(answer["agent"]["operationalScope"], scope);
    }
    let silent = scene.get(&scene.showcase.path("silent")).await;
    assert_eq!(silent["agent"]["lastRevenueReport"], "1970-01-01T00:00:00.000Z");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_laid_end_to_end_are_the_registry() {
    let scene = scene().await;
    for filter in [None, Some("Active"), Some("Suspended"), Some("Revoked"), Some("Terminated")] {
        let is_chosen = |agent: &&Facts| filter.is_none_or(|filter| status(&agent.record) == filter);
        let chosen = scene.documents.agents.iter().filter(is_chosen).count();
        let filter_text = filter.map(|filter| format!("&status={filter}")).unwrap_or_default();
        for limit in [3, 7, 20, 100] {
            let (mut seen, pages) = (Vec::new(), chosen.div_ceil(limit));
            // The last one lies beyond the end.
            for page in 1..=pages + 1 {
                let path = format!("/api/v1/agents?page={page}&limit={limit}{filter_text}");
                scene.check(&path, |_| scene.documents.agents(page, limit, filter)).await;
                let answer = scene.get(&path).await;
                let ids = answer["data"].as_array().unwrap().iter().map(|item| &item["agentId"]);
                seen.extend(ids.map(|id| id.as_u64().unwrap()));
            }
            assert_eq!(seen.len(), chosen, "{filter:?}, {limit} a page");
            assert!(seen.is_sorted(), "in order of registration: {seen:?}");
        }
    }
    for (query, page, limit) in [
        ("", 1, 20),
        ("?limit=101", 1, 100),
        ("?limit=99999999999999999999999", 1, 100),
        ("?page=4000000000", 4_000_000_000, 20),
    ] {
        let documents = &scene.documents;
        scene.check(&format!("/api/v1/agents{query}"), |_| documents.agents(page, limit, None)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_compliance_list_is_whole_and_stalest_first() {
    let scene = scene().await;
    scene.check("/api/v1/agents/compliance", |now| scene.documents.compliance_list(now)).await;

    for limit in [7, 100] {
        let first = format!("/api/v1/agents/compliance?limit={limit}");
        let (mut path, mut shown) = (first.clone(), 0);
        loop {
            scene.check(&path, |now| scene.documents.compliance_page(shown, limit, now)).await;
            let page = scene.stage.client.get(&path).await;
            let link = page.header("link").to_owned();
            assert!(link.starts_with(&format!("<{first}>; rel=\"first\"")), "{path}: {link}");
            shown += page.ok()["data"].as_array().unwrap().len();
            let Some((_, next)) = link.split_once(", <") else { break };
            path = next.strip_suffix(">; rel=\"next\"").unwrap().to_owned();
        }
        assert_eq!(shown, scene.documents.agents.len());
    }

    let answer = scene.stage.client.get("/api/v1/agents/compliance").await;
    assert_eq!(answer.header("link"), "</api/v1/agents/compliance>; rel=\"first\"", "its only page");
    let answer = answer.ok();
    let data = answer["data"].as_array().unwrap();
    let of = |name: &str| {
        data.iter().find(|item| item["agentId"] == scene.showcase.id(name)).unwrap()["compliance"].clone()
    };
    assert_eq!(of("forgetful")["attestationCurrent"], false);
    assert_eq!(of("forgetful")["isActive"], true);
    assert_eq!(of("ledger")["attestationCurrent"], true, "one hour is left to it");
    assert_eq!(of("paused")["isActive"], false);
    assert_eq!(of(BUSY)["childCount"], BUSY_CHILDREN + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_lineage_is_the_tree_below_its_root() {
    let scene = scene().await;
    for id in scene.ids() {
        scene.check(&format!("/api/v1/agent/{id}/lineage"), |_| scene.documents.lineage(id)).await;
    }
    let tree = scene.get(&scene.showcase.lineage("atlas")).await;
    let fourth = &tree["children"][0]["children"][0]["children"][0];
    let dune = json!({ "agentId": scene.showcase.id("dune"), "generation": 3, "children": [] });
    assert_has(fourth, dune, "dune");

    let busy = scene.get(&scene.showcase.lineage(BUSY)).await;
    assert_eq!(busy["children"].as_array().unwrap().len(), 50);
    let note = format!("Showing 50 of {} children", BUSY_CHILDREN + 1);
    assert_has(&busy, json!({ "truncated": true, "note": note }), BUSY);
}

#[tokio::test(flavor = "multi_thread")]
async fn revenue_is_answered_in_pieces_and_in_sum() {
    let scene = scene().await;
    for id in scene.ids() {
        let path = format!("/api/v1/agent/{id}/revenue");
        scene.check(&path, |_| scene.documents.revenue(id, 0, 100)).await;
    }
    let atlas = scene.showcase.id("atlas");
    for offset in 0..6 {
        for limit in [1, 3, 500] {
            let path = format!("/api/v1/agent/{atlas}/revenue?offset={offset}&limit={limit}");
            scene.check(&path, |_| scene.documents.revenue(atlas, offset, limit)).await;
        }
    }
    let path = format!("/api/v1/agent/{atlas}/revenue?limit=501");
    scene.check(&path, |_| scene.documents.revenue(atlas, 0, 500)).await;
    scene.check("/api/v1/revenue/aggregate", |_| scene.documents.revenue_aggregate()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_wallet_is_known_by_whose_it_is_now() {
    let scene = scene().await;
    let oracle = scene.stage.oracle().unwrap();
    let mut wallets = vec![Address::ZERO, Address::repeat_byte(0xab), scene.stage.chain.owner()];
    wallets.extend(scene.showcase.ids.keys().map(|name| seed::wallet(name).address()));
    let newest = newest_block(&scene.stage.chain).await;
    for wallet in wallets {
        let checksummed = wallet.to_checksum(None);
        let owner = oracle.agent_of(wallet).await.unwrap();
        let upper = format!("0x{}", checksummed[2..].to_uppercase());
        for spelling in [checksummed.clone(), checksummed.to_lowercase(), upper] {
            let before = wall_clock_millis();
            let mut answer = scene.get(&format!("/api/v1/kya/{spelling}")).await;
            let as_of = answer.as_object_mut().unwrap().remove("asOf").unwrap();
            assert_eq!(as_of, newest, "{spelling}");
            let checked_at = answer["checkedAt"].as_str().unwrap();
            let millis = unix_millis(checked_at);
            assert!((before..=wall_clock_millis()).contains(&millis), "{checked_at}");
            let expected = scene.documents.kya(&checksummed, owner, millis / 1000, checked_at);
            assert_eq!(answer, expected, "{spelling}");
        }
    }
    let verdict = async |name: &str| {
        let answer = scene.get(&seed::kya(name)).await;
        (answer["isRegistered"].as_bool().unwrap(), answer["isCompliant"].as_bool().unwrap())
    };
    assert_eq!(verdict("kyoto").await, (true, true), "active and attested");
    assert_eq!(verdict("forgetful").await, (true, false), "its attestation has lapsed");
    assert_eq!(verdict("paused").await, (true, false), "suspended");
    assert_eq!(verdict("impostor").await, (false, false), "revoked");
    assert_eq!(verdict("gone").await, (false, false), "terminated");
    // The revoked agent's wallet is its heir's now.
    assert_eq!(verdict("lost-key").await, (true, true));
    let heir = oracle.agent_of(seed::wallet("lost-key").address()).await.unwrap();
    assert_eq!(heir, Some(scene.showcase.id("heir")));
}

/// The newest block, as `asOf` names it; the chain makes none by itself.
async fn newest_block(chain: &Chain) -> Value {
    let block = chain.node.block(BlockNumberOrTag::Latest).await.unwrap();
    let number = |field: &str| quantity(&block[field]).unwrap();
    json!({
        "blockNumber": number("number"),
        "blockTimestamp": time(number("timestamp")),
        "parentHash": block["parentHash"],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_contracts_grace_period_decides_and_not_the_default() {
    let (stage, showcase) = Stage::showcase(|options| options.var("KYA_TTL_SECONDS", 0)).await.unwrap();
    let kya = seed::kya("kyoto");
    assert_eq!(stage.client.get(&kya).await.ok()["isCompliant"], true, "attested two days ago");
    let call = IAgentRegistry::setAttestationGracePeriodCall { gracePeriodSeconds: U256::from(DAY) };
    stage.chain.send(stage.chain.owner(), call).await.unwrap();
    assert_eq!(stage.client.get(&kya).await.ok()["isCompliant"], false, "more than one day ago");
    let agent = stage.client.get(&showcase.path("kyoto")).await.ok();
    assert_eq!(agent["compliance"]["attestationCurrent"], false);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_an_index_can_tell_is_refused_where_there_is_none() {
    let client = &scene().await.stage.client;
    for path in [
        "liable/0x9965507D1a55bcC2695C58ba16FB37d819B0A4dc",
        "agents?sort=-id",
        "agents?q=papers",
        "agent/1/history",
    ] {
        let answer = client.get(&format!("/api/v1/{path}")).await;
        let message = answer.failed(501, "INDEX_REQUIRED");
        assert!(message.contains("an index of the registry"), "{message}");
        assert_eq!(answer.header("retry-after"), "");
    }
}

#[test]
fn the_story_is_told_in_order() {
    assert!(STORY.is_sorted_by(|(earlier, _), (later, _)| earlier > later));
}
