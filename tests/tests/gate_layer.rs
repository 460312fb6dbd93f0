//! The gate as a `tower` layer: its axum example, over HTTP.
//!
//! 1. A signed request is admitted, and its wallet is visible to the handler; a client's own headers are not.
//! 2. Content that is not the one that was signed reaches no handler.
//! 3. A refusal is the daemon's, byte for byte.

use alloy::signers::local::PrivateKeySigner;
use e2e::anvil::CHAIN_ID;
use e2e::chain::Chain;
use e2e::gate::{Gate, ORIGIN, start_example};
use e2e::process::Process;
use e2e::reverse_proxies::Kind;
use e2e::seed::{chain_of_one, registration_call, wallet};
use e2e::signed_requests::{Draft, RawAnswer, Signed};

struct Stage {
    _chain: Chain,
    /// The documented configuration of the daemon.
    daemon: String,
    url: String,
    _example: Process,
}

impl Stage {
    /// A chain with one agent, of the wallet `good`, and the example.
    async fn start() -> Self {
        let chain = chain_of_one().await.unwrap();
        let registry = chain.contracts.registry.to_string();
        let daemon = Kind::Envoy.gate(ORIGIN, CHAIN_ID, chain.node.url(), &registry).unwrap();
        let (_example, url) = start_example(&embedded(&daemon)).await.unwrap();
        Self { _chain: chain, daemon, url, _example }
    }

    async fn send(&self, request: &Signed) -> RawAnswer {
        request.send(&self.url).await.unwrap()
    }
}

/// The daemon's configuration without `listen` and `[proxy]`.
fn embedded(daemon: &str) -> String {
    let (before, rest) = daemon.split_once("[proxy]").unwrap();
    let (_, after) = rest.split_once("[chain]").unwrap();
    let lines = before.lines().filter(|line| !line.starts_with("listen"));
    format!("{}\n[chain]{after}", lines.collect::<Vec<_>>().join("\n"))
}

fn good() -> PrivateKeySigner {
    wallet("good")
}

#[tokio::test]
async fn a_signed_request_reaches_the_handler_with_its_wallet_and_no_word_of_the_clients() {
    let stage = Stage::start().await;
    let request = Draft::get(ORIGIN, "/items?view=full").header("kya-liable", "me").sign(&good(), CHAIN_ID);
    let admitted = stage.send(&request).await;
    assert_eq!(admitted.status, 200, "{admitted:?}");
    let agent = registration_call(1, good().address(), "guarded", 0);
    let (wallet, liable) = (agent.agentWallet.to_checksum(None), agent.haftungsperson.to_checksum(None));
    assert_eq!(admitted.body, format!("items for {wallet}, for which {liable} is liable"));
    let again = stage.send(&request).await;
    assert!(again.status == 401 && again.body.contains("nonce_reused"), "{again:?}");
    let open = Draft::get(ORIGIN, "/livez").unsigned();
    assert_eq!(stage.send(&open).await.status, 200, "a route behind the layer is open");
}

#[tokio::test]
async fn content_that_is_not_the_signed_one_reaches_no_handler() {
    let stage = Stage::start().await;
    let wallet = good().address().to_checksum(None);
    let signed = || Draft::post(ORIGIN, "/orders", r#"{"amount":"100"}"#).sign(&good(), CHAIN_ID);
    for chunked in [false, true] {
        let changed = stage.send(&signed().carrying(r#"{"amount":"900"}"#, chunked)).await;
        assert!(changed.status == 401 && changed.body.contains("bad_content_digest"), "{changed:?}");
        let without = stage.send(&signed().carrying("", chunked)).await;
        assert!(without.status == 401 && without.body.contains("bad_content_digest"), "{without:?}");
        let same = stage.send(&signed().carrying(r#"{"amount":"100"}"#, chunked)).await;
        assert_eq!(same.status, 200, "{same:?}");
        assert!(same.body.contains(&format!(r#"{wallet} orders {{"amount":"100"}}"#)), "{same:?}");
    }
    let undigested = Draft::get(ORIGIN, "/items").sign(&good(), CHAIN_ID).asking("POST", "/orders");
    assert_eq!(stage.send(&undigested.carrying("x", false)).await.status, 401);
}

#[tokio::test]
async fn a_refusal_is_the_daemons() {
    let stage = Stage::start().await;
    let daemon = Gate::start(&stage.daemon).await.unwrap();
    let draft = || Draft::post(ORIGIN, "/orders", "{}");
    for (request, status) in [
        (Draft::get(ORIGIN, "/items").unsigned(), 401),
        (draft().unsigned(), 401),
        (draft().sign(&wallet("new"), CHAIN_ID), 403),
        (draft().sign(&good(), 1), 401),
        (draft().sign(&good(), CHAIN_ID).with("signature", "%"), 400),
        (draft().sign(&good(), CHAIN_ID).asking("PUT", "/orders"), 401),
    ] {
        let asked = request.asked_by_envoy();
        let (layer, daemon) = (stage.send(&request).await, asked.send(daemon.url()).await.unwrap());
        assert_eq!((layer.status, daemon.status), (status, status), "{layer:?} {daemon:?}");
        assert_eq!(layer.body, daemon.body);
        for name in ["www-authenticate", "accept-signature", "content-type", "cache-control"] {
            assert_eq!(layer.header(name), daemon.header(name), "{name}");
        }
        let output = ["kya-wallet", "kya-agent-id", "kya-decision", "kya-liable", "kya-until"];
        assert!(output.iter().all(|name| layer.header(name) == daemon.header(name)), "{layer:?}");
        let is_challenged = !layer.header("www-authenticate").is_empty();
        assert_eq!(is_challenged, status == 401);
    }
}
