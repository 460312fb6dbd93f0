//! What an answer from the cache costs: the light version of `cargo xtask bench`.
//!
//! 1. However many ask, the chain is asked once.
//! 2. The peers that the Worker is measured beside answer the same.

use std::time::Duration;

use e2e::anvil::AnvilOptions;
use e2e::chain::Chain;
use e2e::contestant::{Bundles, Contestant, Kind};
use e2e::load::Load;
use e2e::process::eventually;
use e2e::proxy::Proxy;
use e2e::seed::{self, Showcase};
use e2e::stage::run;
use e2e::worker::WorkerOptions;
use serde_json::{Value, json};
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// Seconds under load at a time.
const SECONDS: u32 = 2;

/// A registry and all who answer about it.
struct Field {
    showcase: Showcase,
    proxy: Proxy,
    servers: Vec<Contestant>,
    _chain: Chain,
}

impl Field {
    fn server(&self, kind: Kind) -> &Contestant {
        self.servers.iter().find(|server| server.kind == kind).unwrap()
    }
}

/// One field, for one test at a time: they measure.
async fn field() -> (MutexGuard<'static, ()>, &'static Field) {
    static FIELD: OnceCell<Field> = OnceCell::const_new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let field = FIELD
        .get_or_init(async || {
            let options =
                AnvilOptions { genesis_time: Some(seed::showcase_genesis()), ..AnvilOptions::default() };
            let chain = Chain::start(options).await.unwrap();
            let showcase = seed::showcase(&chain).await.unwrap();
            let proxy = Proxy::start(chain.node.url()).await.unwrap();
            let bundles = Bundles::make().await.unwrap();
            let options = WorkerOptions::new(proxy.url(), chain.contracts.registry)
                .var("CHAIN_ID", 31_337)
                // Counted, and never refused.
                .var("RATE_LIMIT_PER_MINUTE", 1_000_000_000);
            let mut servers = Vec::new();
            for kind in Kind::ALL {
                servers.push(Contestant::start(kind, &bundles, &options).await.unwrap());
            }
            Field { showcase, proxy, servers, _chain: chain }
        })
        .await;
    (turn, field)
}

async fn until_cached(server: &Contestant, path: &str) {
    let client = server.client();
    eventually("cached", Duration::from_secs(20), async || {
        let answer = client.get(path).await;
        assert_eq!(answer.status, 200, "{}: {path}: {}", server.kind.name(), answer.text);
        (answer.header("x-cache") == "HIT").then_some(())
    })
    .await
    .unwrap();
}

async fn load(server: &Contestant, path: &str) -> Load {
    Load::on(&format!("{}{path}", server.url()), &server.usage, SECONDS).await.unwrap()
}

#[test]
fn under_load_the_chain_is_asked_once() {
    run(async {
        let (_turn, field) = field().await;
        let server = field.server(Kind::Ours);
        for path in [
            // Asked for by no other test.
            format!("/api/v1/kya/{}", seed::wallet("zurich").address()),
            format!("/api/v1/agent/{}", field.showcase.id("zurich")),
        ] {
            field.proxy.reset();
            until_cached(server, &path).await;
            load(server, &path).await;
            let posts = field.proxy.reset();
            assert_eq!(posts.len(), 1, "{path}: {posts:?}");
        }
    });
}

/// A document without what moves by the clock alone.
fn without_clocks(mut document: Value) -> Value {
    for (object, field) in [("", "checkedAt"), ("/compliance", "secondsSinceAttestation")] {
        if let Some(value) = document.pointer_mut(object).and_then(|object| object.get_mut(field)) {
            *value = json!("masked");
        }
    }
    document
}

#[test]
fn the_peers_answer_what_the_worker_answers() {
    run(async {
        let (_turn, field) = field().await;
        let ours = field.server(Kind::Ours).client();
        let wallets = ["kyoto", "forgetful", "impostor", "heir", "paused", "nobody", "lost-key"];
        let kya = wallets.map(|agent| format!("/api/v1/kya/{}", seed::wallet(agent).address()));
        let agents = ["atlas", "harbour", "silent", "gone", "quoted", "family"]
            .map(|agent| format!("/api/v1/agent/{}", field.showcase.id(agent)));
        let wrong =
            ["/api/v1/agent/4000", "/api/v1/agent/x", "/api/v1/kya/0x12", "/nowhere"].map(String::from);
        for path in kya.iter().chain(&agents).chain(&wrong) {
            let expected = ours.get(path).await;
            for kind in [Kind::Hono, Kind::Express] {
                for attempt in ["first", "second"] {
                    let answer = field.server(kind).client().get(path).await;
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
