//! The cost of cached answers, in ratios that hold on a busy machine: a light version of `cargo xtask bench`.
//!
//! 1. A warm answer costs little more than `/livez`, which reads nothing.
//! 2. It costs less than the same answer of a Worker in JavaScript.
//! 3. The peers in the measurement give the same answers.
//! 4. A new instance gives its first answer within 60 ms.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use e2e::chain::Chain;
use e2e::client::without;
use e2e::proxy::Proxy;
use e2e::seed::{self, Showcase};
use e2e::server::{LIVEZ, Server, ServerKind};
use e2e::stage::Exclusive;
use e2e::worker::WorkerOptions;
use serde_json::{Value, json};
use tokio::sync::MutexGuard;

const SECONDS: u32 = 1;
/// Turns of two paths under load before they are compared.
const TURNS: usize = 2;
/// Minimum rate, as a part of `/livez`'s requests a second. On a quiet machine it is above 0.7.
const LEAST_RATE: f64 = 0.5;
/// Maximum processor time, as a multiple of `/livez`'s. On a quiet machine it is below 1.7.
const MOST_CPU: f64 = 2.5;
/// Maximum time of a new instance's first answer. On a quiet machine it is about 12 ms.
const FIRST_ANSWER: Duration = Duration::from_millis(60);

/// A registry and the servers that answer for it.
struct Setup {
    showcase: Showcase,
    _proxy: Proxy,
    servers: Vec<Server>,
    options: WorkerOptions,
    _chain: Chain,
}

impl Setup {
    async fn start() -> Self {
        let (chain, showcase) = seed::showcase_chain().await.unwrap();
        let proxy = Proxy::start(chain.node.url()).await.unwrap();
        let options = WorkerOptions::new(proxy.url(), chain.contracts.registry)
            .var("CHAIN_ID", 31_337)
            // Requests are counted, and never refused.
            .var("RATE_LIMIT_PER_MINUTE", 1_000_000_000);
        let mut servers = Vec::new();
        for kind in ServerKind::ALL {
            servers.push(Server::start(kind, &options, json!({})).await.unwrap());
        }
        Self { showcase, _proxy: proxy, servers, options, _chain: chain }
    }

    fn server(&self, kind: ServerKind) -> &Server {
        self.servers.iter().find(|server| server.kind == kind).unwrap()
    }
}

/// Takes one registry and its servers, for one test at a time, since the tests measure.
async fn setup() -> (MutexGuard<'static, ()>, &'static Setup) {
    static SETUP: Exclusive<Setup> = Exclusive::empty();
    SETUP.take(Setup::start).await
}

/// Measures until a figure is good, at most `most` times: other work on the machine can spoil a figure, but
/// cannot make a slow answer quick.
async fn once_in<T: Debug>(most: usize, what: &str, good: impl Fn(&T) -> bool, measure: impl AsyncFn() -> T) {
    let mut seen = Vec::new();
    while !seen.last().is_some_and(&good) {
        assert!(seen.len() < most, "{what}: {seen:?}");
        seen.push(measure().await);
    }
    println!("{what}: {seen:?}");
}

/// Ratios of the second of two loads to the first.
#[derive(Debug, Clone, Copy)]
struct Ratio {
    rate: f64,
    cpu: f64,
}

/// Puts load on two paths in turns, so that a slow phase of the machine slows both.
async fn ratio(first: (&Server, &str), second: (&Server, &str)) -> Ratio {
    let (mut rates, mut cpu) = ([0.0; 2], [0.0; 2]);
    for _ in 0..TURNS {
        for (index, (server, path)) in [first, second].into_iter().enumerate() {
            let load = server.load(path, SECONDS, None).await.unwrap();
            rates[index] += load.per_second;
            cpu[index] += load.cpu.as_secs_f64();
        }
    }
    Ratio { rate: rates[1] / rates[0], cpu: cpu[1] / cpu[0] }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_answer_costs_little_more_than_livez() {
    let (_turn, setup) = setup().await;
    let (server, kya) = (setup.server(ServerKind::Worker), seed::kya("kyoto"));
    // Warm up: the runtime compiles hot code better.
    for path in [LIVEZ, &kya] {
        server.load(path, SECONDS, None).await.unwrap();
    }
    let is_good = |ratio: &Ratio| ratio.rate >= LEAST_RATE && ratio.cpu <= MOST_CPU;
    for path in [&kya, "/api/v1/agent/1", "/api/v1/stats/detailed"] {
        once_in(4, path, is_good, async || ratio((server, LIVEZ), (server, path)).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_kya_takes_less_cpu_than_a_javascript_workers() {
    let (_turn, setup) = setup().await;
    let path = seed::kya("kyoto");
    let (worker, hono) = (setup.server(ServerKind::Worker), setup.server(ServerKind::Hono));
    for server in [worker, hono] {
        server.load(&path, SECONDS, None).await.unwrap();
    }
    let is_good = |ratio: &Ratio| ratio.cpu < 1.0;
    once_in(4, &path, is_good, async || ratio((hono, &path), (worker, &path)).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_instance_gives_its_first_answer_within_60_milliseconds() {
    let (_turn, setup) = setup().await;
    let first_answer = async || {
        let server = Server::start(ServerKind::Worker, &setup.options, json!({})).await.unwrap();
        let client = server.client();
        let began = Instant::now();
        assert_eq!(client.get(LIVEZ).await.status, 200);
        began.elapsed()
    };
    once_in(8, LIVEZ, |time| *time <= FIRST_ANSWER, first_answer).await;
}

/// Removes the clock fields of a document, and the block and the wallet's past, which peers lack.
fn without_clocks(document: Value) -> Value {
    let past = ["asOf", "registration", "formerAgents", "ancestorsNotActive", "unknownBecause"];
    let mut document = without(document, &[&past[..], &["checkedAt", "secondsSinceAttestation"]].concat());
    if let Some(reasons) = document.get_mut("reasons").and_then(Value::as_array_mut) {
        let is_remark = |text: &str| text.starts_with("FORMER") || text.starts_with("ANCESTOR");
        reasons.retain(|reason| !reason.as_str().is_some_and(is_remark));
    }
    document
}

#[tokio::test(flavor = "multi_thread")]
async fn the_peers_answer_what_the_worker_answers() {
    let (_turn, setup) = setup().await;
    let worker = setup.server(ServerKind::Worker).client();
    let wallets = ["kyoto", "forgetful", "impostor", "heir", "paused", "nobody", "lost-key"];
    let agents = ["atlas", "harbour", "silent", "gone", "quoted", "family"];
    let agents = agents.map(|agent| setup.showcase.path(agent));
    let wrong = ["/api/v1/agent/4000", "/api/v1/agent/x", "/api/v1/kya/0x12", "/nowhere"].map(String::from);
    for path in wallets.map(seed::kya).iter().chain(&agents).chain(&wrong) {
        let expected = worker.get(path).await;
        for kind in [ServerKind::Hono, ServerKind::Express] {
            let answer = setup.server(kind).client().get(path).await;
            assert_eq!(answer.status, expected.status, "{kind:?}: {path}: {}", answer.text);
            let (answer, wanted) = (answer.json(), expected.json());
            if expected.status == 200 {
                assert_eq!(without_clocks(answer), without_clocks(wanted), "{kind:?}: {path}");
            } else {
                assert_eq!(answer["code"], wanted["code"], "{kind:?}: {path}");
            }
        }
    }
}
