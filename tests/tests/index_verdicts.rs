//! Verdicts of a Worker with an index: the object is quick, slow, silent or away.
//!
//! 1. Chain and object are asked side by side: a verdict takes the chain's time, whatever the object's.
//! 2. An excerpt that is there in time gives the wallet's past; without it the past is unknown, and the
//!    verdict says why. It has 150 ms, however long the chain takes.
//! 3. An excerpt that comes too late is there for the next verdict.
//! 4. Where the index is away, wallets' pasts come from one scan for all who ask.

use std::time::{Duration, Instant};

use e2e::anvil::{AnvilOptions, wall_clock};
use e2e::chain::Chain;
use e2e::client::Client;
use e2e::fault::{Fault, Rule};
use e2e::process::wait_until;
use e2e::proxy::Proxy;
use e2e::repo;
use e2e::seed;
use e2e::worker::{Worker, WorkerOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

const WAIT: Duration = Duration::from_secs(60);
const AGENTS: u64 = 25;
/// The node's distance.
const NODE: Duration = Duration::from_millis(20);
/// What the machine may add to a median.
const NOISE: Duration = Duration::from_millis(30);

fn kya(id: u64) -> String {
    format!("/api/v1/kya/{}", seed::wallet(&format!("root {id}")).address())
}

/// A chain with agents that have no ancestors, and a proxy before it.
async fn chain() -> (Chain, Proxy) {
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await.unwrap();
    for id in 1..=AGENTS {
        let wallet = seed::wallet(&format!("root {id}")).address();
        chain.send(chain.owner(), seed::registration_call(id, wallet, "A root", 0)).await.unwrap();
    }
    let proxy = Proxy::start(chain.node.url()).await.unwrap();
    (chain, proxy)
}

/// A Worker with an index, and the Worker with an object as slow as a test wants it.
struct Scene {
    _chain: Chain,
    proxy: Proxy,
    options: WorkerOptions,
    client: Client,
    object: Client,
    _workers: [Worker; 2],
    _registry: TempDir,
}

impl Scene {
    async fn start(ttl: u64) -> Self {
        let (chain, proxy) = chain().await;
        let registry = TempDir::new().unwrap();
        let options = WorkerOptions::new(proxy.url(), chain.contracts.registry).ttl(0);
        let options = options.var("AGENT_TTL_SECONDS", ttl).var("CHAIN_ID", 31_337);
        let found = WorkerOptions { registry: Some(registry.path().to_owned()), ..options.clone() };
        let object = WorkerOptions {
            config: Some(repo::root().join("tests/slow-index/wrangler.toml")),
            vars: Vec::new(),
            ..found.clone()
        };
        let indexed = found.var("INDEX", "durable-object");
        let (object, worker) = tokio::try_join!(Worker::start(object), Worker::start(indexed)).unwrap();
        let (client, object_client) = (worker.client(), object.client());
        let scene = Self {
            _chain: chain,
            proxy,
            options,
            client,
            object: object_client,
            _workers: [object, worker],
            _registry: registry,
        };
        scene.object_takes(Some(0)).await;
        scene.node_takes(NODE);
        wait_until("the object is found", WAIT, async || {
            scene.client.get(&kya(1)).await.ok()["formerAgents"].is_array()
        })
        .await;
        scene
    }

    /// Sets what the object takes, silent without a time, and gives the number of questions so far.
    async fn object_takes(&self, millis: Option<u64>) -> u64 {
        let millis = millis.map(|millis| format!("&millis={millis}")).unwrap_or_default();
        self.object.get(&format!("/?agents={AGENTS}{millis}")).await.text.parse().unwrap()
    }

    fn node_takes(&self, time: Duration) {
        self.proxy.heal();
        self.proxy.inject(Rule::any(Fault::Delay(time)));
    }
}

/// A verdict of a registered agent, and the time that it took.
async fn verdict(client: &Client, id: u64) -> (Value, Duration) {
    let asked = Instant::now();
    let verdict = client.get(&kya(id)).await.ok();
    let took = asked.elapsed();
    assert_eq!((&verdict["decision"], &verdict["agent"]["agentId"]), (&json!("provision"), &json!(id)));
    (verdict, took)
}

/// Verdicts on all wallets, and their median time.
async fn verdicts(client: &Client) -> (Vec<Value>, Duration) {
    let (mut verdicts, mut times) = (Vec::new(), Vec::new());
    for id in 1..=AGENTS {
        let (verdict, took) = verdict(client, id).await;
        verdicts.push(verdict);
        times.push(took);
    }
    times.sort();
    (verdicts, times[times.len() / 2])
}

/// Whether the verdict says what the index knows, or why not.
fn knows_past(verdict: &Value) -> bool {
    if verdict["formerAgents"] == json!([]) {
        assert_eq!((&verdict["ancestorsNotActive"], verdict.get("unknownBecause")), (&json!([]), None));
        return true;
    }
    assert_eq!(verdict["formerAgents"], "unknown");
    assert_eq!(verdict["unknownBecause"], "INDEX_UNAVAILABLE");
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_verdict_takes_the_chains_time_whatever_the_object_takes() {
    let scene = Scene::start(0).await;
    let plain = Worker::start(scene.options.clone()).await.unwrap();
    let (_, without) = verdicts(&plain.client()).await;
    println!("without an index: p50 {without:?}");
    for millis in [Some(5), Some(100), None] {
        scene.object_takes(millis).await;
        let (verdicts, with) = verdicts(&scene.client).await;
        let known = verdicts.iter().filter(|verdict| knows_past(verdict)).count();
        println!("object {millis:?} ms: p50 {with:?}, the past known in {known} of {AGENTS}");
        assert!(with < without + NOISE, "object {millis:?} ms: {with:?}, without {without:?}");
        assert_eq!(scene.object_takes(Some(0)).await, AGENTS, "each verdict asks the object");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_excerpt_has_150_milliseconds_however_long_the_chain_takes() {
    let scene = Scene::start(0).await;
    let node = Duration::from_millis(500);
    scene.node_takes(node);
    for (millis, is_known) in [(Some(60), true), (Some(350), false), (None, false)] {
        scene.object_takes(millis).await;
        let (verdict, took) = verdict(&scene.client, 2).await;
        assert_eq!(knows_past(&verdict), is_known, "object {millis:?} ms: {verdict}");
        // One after the other, they would take more.
        assert!(took < node + Duration::from_millis(340), "object {millis:?} ms: {took:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_excerpt_that_comes_too_late_is_there_for_the_next_verdict() {
    let scene = Scene::start(60).await;
    scene.object_takes(Some(100)).await;
    assert!(!knows_past(&verdict(&scene.client, 3).await.0));
    wait_until("the excerpt is there", WAIT, async || knows_past(&verdict(&scene.client, 3).await.0)).await;
    assert_eq!(scene.object_takes(None).await, 1, "it is asked for once");
    assert!(knows_past(&verdict(&scene.client, 3).await.0), "the object is silent now");
    assert_eq!(scene.object_takes(None).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn pasts_that_are_asked_for_while_the_index_is_away_come_from_one_scan() {
    let (chain, proxy) = chain().await;
    let options = WorkerOptions::new(proxy.url(), chain.contracts.registry).ttl(0).var("CHAIN_ID", 31_337);
    let options = options.var("AGENT_TTL_SECONDS", 60);
    // There is no Worker that keeps the index.
    let worker = Worker::start(options.var("INDEX", "durable-object")).await.unwrap();
    worker.client().get(&kya(1)).await.ok();
    proxy.inject(Rule::any(Fault::Delay(Duration::from_millis(300))));
    proxy.reset();
    let asking: Vec<_> = (1..=AGENTS)
        .map(|id| {
            let client = worker.client();
            tokio::spawn(async move { client.get(&format!("{}?history=1", kya(id))).await.ok() })
        })
        .collect();
    for verdict in asking {
        let verdict = verdict.await.unwrap();
        assert_eq!(
            (&verdict["formerAgents"], verdict.get("unknownBecause")),
            (&json!([]), None),
            "{verdict}"
        );
    }
    // The lens is run by replacing the code of an address: its calls have three parameters.
    let calls_of = |body: &Value| body.as_array().cloned().unwrap_or_else(|| vec![body.clone()]);
    let calls = proxy.log().iter().flat_map(|post| calls_of(&post.body)).collect::<Vec<_>>();
    let walks =
        calls.iter().filter(|call| call["params"].as_array().is_some_and(|params| params.len() == 3)).count();
    println!("{walks} walks for {AGENTS} wallets");
    assert!((1..=3).contains(&walks), "{walks} walks for {AGENTS} wallets");
}
