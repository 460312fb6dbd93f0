//! How often a cold answer asks the chain, counted by a proxy before the node.
//!
//! 1. Each endpoint's number of round trips is the documented one; a lineage takes one per level.
//! 2. An answer's reads are all of one block, even when the chain moves on between two round trips.
//! 3. So they are where one URL leads to machines ten blocks apart, on a chain with a block each 200 ms.
//! 4. What is refused, and a preflight, asks nothing.

use std::time::Duration;

use e2e::chain::Chain;
use e2e::fault::{Fault, Rule};
use e2e::process::wait_until;
use e2e::seed::{self, Showcase};
use e2e::stage::{Exclusive, Stage};
use e2e::story::BUSY;
use serde_json::Value;
use tokio::sync::MutexGuard;

/// One stage without a cache, for one test at a time: they count.
async fn stage() -> (MutexGuard<'static, ()>, &'static (Stage, Showcase)) {
    static SCENE: Exclusive<(Stage, Showcase)> = Exclusive::empty();
    let (turn, scene) = SCENE.take(async || Stage::showcase(|options| options.ttl(0)).await.unwrap()).await;
    scene.0.proxy.heal();
    scene.0.proxy.reset();
    (turn, scene)
}

#[tokio::test(flavor = "multi_thread")]
async fn cold_answers_take_the_documented_round_trips() {
    let (_turn, (stage, showcase)) = stage().await;
    let (kya, unknown, busy) = (seed::kya("kyoto"), seed::kya("nobody"), showcase.lineage(BUSY));
    for (path, round_trips) in [
        ("/health", 1),
        (&kya, 1),
        (&unknown, 1),
        ("/api/v1/agent/1", 1),
        ("/api/v1/agent/4000", 1),
        ("/api/v1/agent/1/revenue", 1),
        ("/api/v1/agent/1/revenue?offset=3&limit=1", 1),
        ("/api/v1/stats", 1),
        ("/api/v1/agents", 1),
        ("/api/v1/agents?page=2&limit=50", 1),
        ("/api/v1/agents?page=1000", 1),
        ("/api/v1/stats/detailed", 2),
        ("/api/v1/agents?status=Active", 2),
        ("/api/v1/agents/compliance", 2),
        ("/api/v1/revenue/aggregate", 2),
        // Four levels, and two.
        ("/api/v1/agent/1/lineage", 4),
        (&busy, 2),
    ] {
        stage.proxy.reset();
        let answer = stage.client.get(path).await;
        assert!([200, 404].contains(&answer.status), "{path}: {}", answer.text);
        let posts = stage.proxy.reset();
        let methods: Vec<&Vec<String>> = posts.iter().map(|post| &post.methods).collect();
        let calls: usize = methods.iter().map(|methods| methods.len()).sum();
        println!("{path}: {} round trips, {calls} RPC calls as providers bill them", posts.len());
        assert_eq!(posts.len(), round_trips, "{path}: {methods:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_asks_the_chain_nothing() {
    let (_turn, (stage, _)) = stage().await;
    for (method, path) in [
        ("GET", "/nowhere"),
        ("GET", "/api/v1/agents?limit=0"),
        ("GET", "/api/v1/kya/0x12"),
        ("POST", "/api/v1/stats"),
        ("OPTIONS", "/api/v1/stats"),
    ] {
        stage.client.send(method.parse().unwrap(), path).await;
        assert_eq!(stage.proxy.posts(), 0, "{method} {path}");
    }
}

async fn register_one_more(chain: &Chain, name: &str) {
    let call = seed::registration_call(0, seed::wallet(name).address(), name, 0);
    chain.send(chain.owner(), call).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_of_one_block_though_the_chain_moves_on() {
    let (_turn, (stage, _)) = stage().await;
    for path in
        ["/api/v1/stats/detailed", "/api/v1/agents/compliance", "/api/v1/agents?status=Active&limit=100"]
    {
        let before = stage.client.get(path).await.ok();
        // The first round trip's answer is held back until the registry has changed.
        let served = stage.proxy.served();
        stage.proxy.inject(Rule::any(Fault::Delay(Duration::from_secs(2))).once());
        let (during, ()) = tokio::join!(stage.client.get(path), async {
            wait_until("read", Duration::from_secs(10), async || stage.proxy.served() > served).await;
            register_one_more(&stage.chain, path).await;
        });
        let during = during.ok();
        assert_eq!(count(&during), count(&before), "{path}: the block of the first round trip");
        let after = stage.client.get(path).await.ok();
        assert_eq!(count(&after), count(&before) + 1, "{path}: the chain has moved on");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_of_one_url_that_are_ten_blocks_of_200_ms_apart_give_an_answer_of_one_block() {
    let (_turn, (stage, showcase)) = stage().await;
    let paths = [
        "/api/v1/agents?status=Active&limit=100".to_owned(),
        "/api/v1/revenue/aggregate".to_owned(),
        showcase.lineage("atlas"),
    ];
    let mut expected = Vec::new();
    for path in &paths {
        expected.push(stage.client.get(path).await.ok());
    }
    let node = &stage.chain.node;
    // The chain has been making blocks for a minute, five a second: more than a run steps back at once.
    // Their times are those of such a chain, since a run that steps back looks for a block by its time.
    let before = node.time().await.unwrap();
    for second in 1..=60 {
        node.set_next_block_time(before + second).await.unwrap();
        node.mine(5).await.unwrap();
    }
    let blocks = async {
        let mut ticks = tokio::time::interval(Duration::from_millis(200));
        loop {
            ticks.tick().await;
            node.mine(1).await.unwrap();
        }
    };
    let questions = async {
        for round in 0..4 {
            stage.proxy.heal();
            // Every other call comes to the machine that is behind: the first of them, or the second.
            let lagging = Rule::any(Fault::Lagging(10));
            stage.proxy.inject(if round % 2 == 0 { lagging.every(2) } else { lagging.after(1).every(2) });
            for (path, expected) in paths.iter().zip(&expected) {
                stage.proxy.reset();
                assert_eq!(stage.client.get(path).await.ok(), *expected, "{path}");
                println!("{path}: {} posts", stage.proxy.posts());
            }
        }
    };
    tokio::select! {
        () = blocks => unreachable!("blocks are made until the answers are there"),
        () = questions => {}
    }
    stage.proxy.heal();
}

/// The number of agents in an answer: its total and, where it has one, its list have to agree.
fn count(answer: &Value) -> u64 {
    let total = answer["total"].as_u64().or(answer["totalAgents"].as_u64()).unwrap();
    if let Some(data) = answer["data"].as_array() {
        assert_eq!(data.len() as u64, total, "{answer}");
    }
    if let Some(counts) = answer["statusDistribution"].as_object() {
        assert_eq!(counts.values().filter_map(Value::as_u64).sum::<u64>(), total, "{answer}");
    }
    total
}
