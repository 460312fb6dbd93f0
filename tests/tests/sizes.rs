//! Registries of every size: none, one, a deep line, a thousand, too many.
//!
//! 1. An empty registry has an answer at every endpoint.
//! 2. So has a registry of one agent, from its first block on.
//! 3. A line of 17 generations is shown to its 15th level, with a note there.
//! 4. A thousand agents: every answer whole and right, in the documented round trips.
//! 5. One agent more than a scan covers is one too many for answers about all, and for no other.
//! 6. An amount above 64 bits keeps all its digits.

use alloy::primitives::U256;
use e2e::anvil::{AnvilOptions, wall_clock};
use e2e::chain::{Chain, Write};
use e2e::client::assert_has;
use e2e::documents::Documents;
use e2e::seed;
use e2e::stage::Stage;
use e2e::story::DAY;
use e2e::synthetic::Synthetic;
use registry_core::chain::MAX_AGENTS;
use serde_json::{Value, json};

/// A chain a day behind the clock: it stays behind however many blocks come.
async fn chain() -> Chain {
    Chain::start(AnvilOptions::since(wall_clock() - DAY)).await.unwrap()
}

/// A stage with nothing registered.
async fn empty() -> Stage {
    Stage::over(chain().await, |options| options.ttl(0)).await.unwrap()
}

async fn check(stage: &Stage, path: &str, document: impl Fn(u64) -> Value) {
    let before = wall_clock();
    let answer = stage.client.get(path).await.ok();
    let expected: Vec<Value> = (before..=wall_clock()).map(document).collect();
    assert!(expected.contains(&answer), "{path}\n   answered {answer}\n   expected {}", expected[0]);
}

/// Every endpoint that covers the whole registry.
async fn check_overviews(stage: &Stage, documents: &Documents) {
    check(stage, "/health", |_| documents.health()).await;
    check(stage, "/api/v1/stats", |_| documents.stats()).await;
    check(stage, "/api/v1/stats/detailed", |now| documents.detailed_stats(now)).await;
    check(stage, "/api/v1/agents", |_| documents.agents(1, 20, None)).await;
    check(stage, "/api/v1/agents?status=Active&limit=100", |_| documents.agents(1, 100, Some("Active")))
        .await;
    check(stage, "/api/v1/agents?status=Revoked", |_| documents.agents(1, 20, Some("Revoked"))).await;
    check(stage, "/api/v1/agents/compliance", |now| documents.compliance_list(now)).await;
    check(stage, "/api/v1/revenue/aggregate", |_| documents.revenue_aggregate()).await;
}

/// Every endpoint about one agent.
async fn check_agent(stage: &Stage, documents: &Documents, id: u64) {
    check(stage, &format!("/api/v1/agent/{id}"), |now| documents.agent(id, now)).await;
    check(stage, &format!("/api/v1/agent/{id}/lineage"), |_| documents.lineage(id)).await;
    check(stage, &format!("/api/v1/agent/{id}/revenue"), |_| documents.revenue(id, 0, 100)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_grows_from_none_to_one_agent() {
    let stage = empty().await;
    let wallet = seed::wallet("many 1").address();
    let documents = stage.documents().await.unwrap();
    assert!(documents.agents.is_empty());
    check_overviews(&stage, &documents).await;
    let detailed = stage.client.get("/api/v1/stats/detailed").await.ok();
    assert_has(&detailed, json!({ "complianceRate": "0.0", "generationDistribution": {} }), "empty");
    assert_eq!(stage.client.get("/api/v1/agents?page=7").await.ok()["totalPages"], 0);
    for path in ["/api/v1/agent/1", "/api/v1/agent/1/lineage", "/api/v1/agent/1/revenue"] {
        assert_eq!(stage.client.get(path).await.error(404), "Agent not found: 1");
    }
    assert_eq!(stage.client.get(&format!("/api/v1/kya/{wallet}")).await.ok()["isRegistered"], false);

    seed::many(&stage.chain, 1).await.unwrap();
    let documents = stage.documents().await.unwrap();
    assert_eq!(documents.agents.len(), 1);
    check_overviews(&stage, &documents).await;
    check_agent(&stage, &documents, 1).await;
    assert_eq!(stage.client.get("/api/v1/stats/detailed").await.ok()["complianceRate"], "100.0");
    let kya = stage.client.get(&format!("/api/v1/kya/{wallet}")).await.ok();
    assert_has(&kya, json!({ "isRegistered": true, "isCompliant": true }), "agent 1");
    assert_eq!(kya["agent"]["agentId"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_line_of_17_generations_is_shown_to_its_15th_level() {
    let stage = empty().await;
    let chain = &stage.chain;
    chain.send(chain.owner(), setMaxGenerationDepthCall { depth: U256::from(20) }).await.unwrap();
    let link = |id: u64| {
        let wallet = seed::wallet(&format!("link {id}")).address();
        let call = seed::registration_call(id, wallet, &format!("Link {id}"), id - 1);
        Write::new(chain.owner(), &call)
    };
    chain.send_all(&(1..=17).map(link).collect::<Vec<_>>(), None).await.unwrap();

    let documents = stage.documents().await.unwrap();
    for id in [1, 2, 3, 4, 17] {
        stage.proxy.reset();
        check(&stage, &format!("/api/v1/agent/{id}/lineage"), |_| documents.lineage(id)).await;
        let levels = usize::try_from(18 - id).unwrap().min(15);
        let posts = stage.proxy.posts();
        assert!(posts <= levels, "agent {id}: {posts} round trips for {levels} levels");
    }
    let text = stage.client.get("/api/v1/agent/1/lineage").await.text;
    assert_eq!(text.matches("\"agentId\"").count(), 15);
    assert!(text.contains("\"note\":\"Depth limit of 15 levels reached\""), "{text}");
    let whole = stage.client.get("/api/v1/agent/3/lineage").await.text;
    assert!(!whole.contains("note"), "exactly 15 levels are whole");
}

alloy::sol! {
    /// The registry's own; the published interface does not name it.
    function setMaxGenerationDepth(uint256 depth) external;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_agents_are_answered_whole() {
    let stage = empty().await;
    seed::many(&stage.chain, 1000).await.unwrap();
    let documents = stage.documents().await.unwrap();
    assert_eq!(documents.agents.len(), 1000);
    check_overviews(&stage, &documents).await;
    for id in [1, 2, 500, 1000] {
        check_agent(&stage, &documents, id).await;
    }
    for page in [1, 5, 10, 11] {
        let path = format!("/api/v1/agents?page={page}&limit=100");
        check(&stage, &path, |_| documents.agents(page, 100, None)).await;
        let path = format!("/api/v1/agents?page={page}&limit=90&status=Active");
        check(&stage, &path, |_| documents.agents(page, 90, Some("Active"))).await;
    }
    for (path, round_trips) in [
        ("/api/v1/stats", 1),
        ("/api/v1/agents?page=10&limit=100", 1),
        ("/api/v1/stats/detailed", 2),
        ("/api/v1/agents?status=Suspended", 2),
        ("/api/v1/agents/compliance", 2),
        ("/api/v1/revenue/aggregate", 2),
        // Generations 0 to 5.
        ("/api/v1/agent/1/lineage", 6),
    ] {
        stage.proxy.reset();
        stage.client.get(path).await.ok();
        assert_eq!(stage.proxy.posts(), round_trips, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_agent_more_than_a_scan_covers_is_refused_at_the_price_of_one_call() {
    let mut chain = chain().await;
    chain.contracts.registry = Synthetic::deploy(&chain, MAX_AGENTS + 1).await.unwrap().address;
    let stage = Stage::over(chain, |options| options.ttl(0)).await.unwrap();
    stage.proxy.reset();
    for path in ["/api/v1/stats/detailed", "/api/v1/agents?status=Active", "/api/v1/agents/compliance"] {
        stage.client.get(path).await.failed(500, "TOO_LARGE");
    }
    assert_eq!(stage.proxy.posts(), 1, "that it is certain to repeat is known for some seconds");
    let last = stage.client.get(&format!("/api/v1/agent/{}", MAX_AGENTS + 1)).await.ok();
    assert_eq!(last["agent"]["agentId"], MAX_AGENTS + 1, "what is about one agent has no such end");
}

#[tokio::test(flavor = "multi_thread")]
async fn amounts_keep_all_their_digits() {
    let stage = empty().await;
    let chain = &stage.chain;
    seed::many(chain, 1).await.unwrap();
    let amount = U256::MAX >> 1;
    for (amount, currency) in [(amount, "XYZ"), (amount, "XYZ"), (U256::from(5), "EUR")] {
        let call = seed::report(1, amount, currency, "gold", wall_clock());
        let creator = stage.oracle().unwrap().facts(1).await.unwrap().record.address("creator");
        chain.send(creator.parse().unwrap(), call).await.unwrap();
    }
    let revenue = stage.client.get("/api/v1/agent/1/revenue").await.text;
    assert!(revenue.contains(&format!("\"amount\":{amount},")), "{revenue}");
    // The sum of all three is more than 2^256 - 1, and all its digits are shown too.
    let sum = "115792089237316195423570985008687907853269984665640564039457584007913129639939";
    let aggregate = stage.client.get("/api/v1/revenue/aggregate").await.text;
    assert!(aggregate.contains(&format!("\"totalAmount\":{sum},")), "{aggregate}");
    assert!(aggregate.contains(&format!("\"XYZ\":{}", amount * U256::from(2))), "{aggregate}");
}
