//! What an answer from the cache costs, in ratios that a busy machine keeps: the light version of `cargo
//! xtask bench`.
//!
//! 1. A warm answer takes little more of the machine than `/livez`, which reads nothing.
//! 2. It takes less than the same answer of a Worker in JavaScript.
//! 3. However many ask, the chain is asked once.
//! 4. The peers that the Worker is measured beside answer the same.
//! 5. A new instance gives its first answer within 60 ms.

use std::time::{Duration, Instant};

use e2e::anvil::AnvilOptions;
use e2e::chain::Chain;
use e2e::load::Load;
use e2e::process::eventually;
use e2e::proxy::Proxy;
use e2e::seed::{self, Showcase};
use e2e::server::{Bundles, Kind, Server};
use e2e::stage::run;
use e2e::worker::WorkerOptions;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// Seconds under load at a time.
const SECONDS: u32 = 1;

/// How often two paths take turns under load before they are compared.
const TURNS: usize = 2;

/// How often they are compared, if need be: what else the machine does can spoil a ratio, and nothing can
/// make a slow answer quick.
const ROUNDS: usize = 4;

/// The least part of `/livez`'s requests a second. On a quiet machine it is above 0.7.
const LEAST_RATE: f64 = 0.5;

/// The most processor time, as a multiple of `/livez`'s. On a quiet machine it is below 1.7.
const MOST_CPU: f64 = 2.5;

/// The most time that a new instance may take for its first answer. On a quiet machine it is about 12 ms.
const FIRST_ANSWER: Duration = Duration::from_millis(60);

/// The most instances that are started until one answers in time.
const STARTS: usize = 8;

/// Says that the Worker runs.
const LIVEZ: &str = "/livez";

/// A registry and all who answer about it.
struct Setup {
    showcase: Showcase,
    proxy: Proxy,
    servers: Vec<Server>,
    bundles: Bundles,
    options: WorkerOptions,
    _chain: Chain,
}

impl Setup {
    fn server(&self, kind: Kind) -> &Server {
        self.servers.iter().find(|server| server.kind == kind).unwrap()
    }
}

/// One registry and its servers, for one test at a time: they measure.
async fn setup() -> (MutexGuard<'static, ()>, &'static Setup) {
    static SETUP: OnceCell<Setup> = OnceCell::const_new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let setup = SETUP
        .get_or_init(async || {
            let options =
                AnvilOptions { genesis_time: Some(seed::showcase_genesis()), ..AnvilOptions::default() };
            let chain = Chain::start(options).await.unwrap();
            let showcase = seed::showcase(&chain).await.unwrap();
            let proxy = Proxy::start(chain.node.url()).await.unwrap();
            let bundles = Bundles::make(&Kind::ALL).await.unwrap();
            let options = WorkerOptions::new(proxy.url(), chain.contracts.registry)
                .var("CHAIN_ID", 31_337)
                // No block comes after the registry's, however long a busy machine takes.
                .var("MAX_HEAD_AGE_SECONDS", 0)
                // Counted, and never refused.
                .var("RATE_LIMIT_PER_MINUTE", 1_000_000_000);
            let mut servers = Vec::new();
            for kind in Kind::ALL {
                servers.push(Server::start(kind, &bundles, &options).await.unwrap());
            }
            Setup { showcase, proxy, servers, bundles, options, _chain: chain }
        })
        .await;
    (turn, setup)
}

async fn until_cached(server: &Server, path: &str) {
    let client = server.client();
    eventually("cached", Duration::from_secs(20), async || {
        let answer = client.get(path).await;
        assert_eq!(answer.status, 200, "{}: {path}: {}", server.kind.name(), answer.text);
        (answer.header("x-cache") == "HIT").then_some(())
    })
    .await
    .unwrap();
}

async fn load(server: &Server, path: &str) -> Load {
    Load::on(&format!("{}{path}", server.url()), &server.usage, SECONDS).await.unwrap()
}

/// How two loads compare, the second by the first.
#[derive(Debug, Clone, Copy)]
struct Ratio {
    rate: f64,
    cpu: f64,
}

/// Puts load on two paths in turns, so that what slows the machine down for a while slows both.
async fn ratio(first: (&Server, &str), second: (&Server, &str)) -> Ratio {
    let (mut rates, mut cpu) = ([0.0; 2], [0.0; 2]);
    for _ in 0..TURNS {
        for (index, (server, path)) in [first, second].into_iter().enumerate() {
            if path != LIVEZ {
                until_cached(server, path).await;
            }
            let load = load(server, path).await;
            rates[index] += load.per_second;
            cpu[index] += load.cpu.as_secs_f64();
        }
    }
    Ratio { rate: rates[1] / rates[0], cpu: cpu[1] / cpu[0] }
}

#[test]
fn a_warm_answer_costs_little_more_than_livez() {
    run(async {
        let (_turn, setup) = setup().await;
        let server = setup.server(Kind::Worker);
        let kya = format!("/api/v1/kya/{}", seed::wallet("kyoto").address());
        // What runs often is compiled better than what ran a few times.
        for path in [LIVEZ, &kya] {
            load(server, path).await;
        }
        for path in [&kya, "/api/v1/agent/1", "/api/v1/stats/detailed"] {
            let mut seen = Vec::new();
            let affordable = loop {
                let ratio = ratio((server, LIVEZ), (server, path)).await;
                seen.push(ratio);
                if ratio.rate >= LEAST_RATE && ratio.cpu <= MOST_CPU {
                    break true;
                }
                if seen.len() == ROUNDS {
                    break false;
                }
            };
            println!("{path}: {seen:?}");
            assert!(affordable, "{path}: at least {LEAST_RATE} and at most {MOST_CPU}: {seen:?}");
        }
    });
}

#[test]
fn a_warm_kya_takes_less_cpu_than_a_javascript_workers() {
    run(async {
        let (_turn, setup) = setup().await;
        let path = format!("/api/v1/kya/{}", seed::wallet("kyoto").address());
        let (worker, hono) = (setup.server(Kind::Worker), setup.server(Kind::Hono));
        for server in [worker, hono] {
            until_cached(server, &path).await;
            load(server, &path).await;
        }
        let mut seen = Vec::new();
        while seen.len() < ROUNDS && !seen.last().is_some_and(|ratio: &Ratio| ratio.cpu < 1.0) {
            seen.push(ratio((hono, &path), (worker, &path)).await);
        }
        println!("{seen:?}");
        assert!(seen.last().is_some_and(|ratio| ratio.cpu < 1.0), "{seen:?}");
    });
}

#[test]
fn under_load_the_chain_is_asked_once() {
    run(async {
        let (_turn, setup) = setup().await;
        let server = setup.server(Kind::Worker);
        for path in [
            // WalletInput for by no other test.
            format!("/api/v1/kya/{}", seed::wallet("zurich").address()),
            format!("/api/v1/agent/{}", setup.showcase.id("zurich")),
        ] {
            setup.proxy.reset();
            until_cached(server, &path).await;
            load(server, &path).await;
            let posts = setup.proxy.reset();
            assert_eq!(posts.len(), 1, "{path}: {posts:?}");
        }
    });
}

#[test]
fn a_new_instance_gives_its_first_answer_within_60_milliseconds() {
    run(async {
        let (_turn, setup) = setup().await;
        let mut seen = Vec::new();
        // Load on the machine can delay an answer, but nothing makes a slow start quick.
        while seen.len() < STARTS && !seen.last().is_some_and(|time| *time <= FIRST_ANSWER) {
            let server = Server::start(Kind::Worker, &setup.bundles, &setup.options).await.unwrap();
            let client = server.client();
            let began = Instant::now();
            assert_eq!(client.get(LIVEZ).await.status, 200);
            seen.push(began.elapsed());
        }
        println!("{seen:?}");
        assert!(seen.last().is_some_and(|time| *time <= FIRST_ANSWER), "{seen:?}");
    });
}

/// A document without what moves by the clock alone, and without the block and the wallet's past, of which
/// the peers know nothing.
fn without_clocks(mut document: Value) -> Value {
    if let Some(fields) = document.as_object_mut() {
        for field in ["asOf", "registration", "formerAgents", "ancestorsNotActive", "unknownBecause"] {
            fields.remove(field);
        }
    }
    if let Some(reasons) = document.get_mut("reasons").and_then(Value::as_array_mut) {
        let is_remark = |reason: &Value| {
            reason.as_str().is_some_and(|text| text.starts_with("FORMER") || text.starts_with("ANCESTOR"))
        };
        reasons.retain(|reason| !is_remark(reason));
    }
    for (object, setup) in [("", "checkedAt"), ("/compliance", "secondsSinceAttestation")] {
        if let Some(value) = document.pointer_mut(object).and_then(|object| object.get_mut(setup)) {
            *value = json!("masked");
        }
    }
    document
}

#[test]
fn the_peers_answer_what_the_worker_answers() {
    run(async {
        let (_turn, setup) = setup().await;
        let worker = setup.server(Kind::Worker).client();
        let wallets = ["kyoto", "forgetful", "impostor", "heir", "paused", "nobody", "lost-key"];
        let kya = wallets.map(|agent| format!("/api/v1/kya/{}", seed::wallet(agent).address()));
        let agents = ["atlas", "harbour", "silent", "gone", "quoted", "family"]
            .map(|agent| format!("/api/v1/agent/{}", setup.showcase.id(agent)));
        let wrong =
            ["/api/v1/agent/4000", "/api/v1/agent/x", "/api/v1/kya/0x12", "/nowhere"].map(String::from);
        for path in kya.iter().chain(&agents).chain(&wrong) {
            let expected = worker.get(path).await;
            for kind in [Kind::Hono, Kind::Express] {
                for attempt in ["first", "second"] {
                    let answer = setup.server(kind).client().get(path).await;
                    let name = kind.name();
                    assert_eq!(answer.status, expected.status, "{name}, {attempt}: {path}: {}", answer.text);
                    if answer.status == 200 {
                        let (answer, expected) = (answer.json(), expected.json());
                        assert_eq!(
                            without_clocks(answer),
                            without_clocks(expected),
                            "{name}, {attempt}: {path}"
                        );
                    } else {
                        assert_eq!(
                            answer.json()["code"],
                            expected.json()["code"],
                            "{name}, {attempt}: {path}"
                        );
                    }
                }
            }
        }
    });
}
