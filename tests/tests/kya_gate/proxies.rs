//! The gate behind real proxies, each with the configuration of `docs/gate.md`.
//!
//! 1. Every kind of request gets its exact status through each proxy. On a refusal the service is never
//!    reached, and the client is told how to go on.
//! 2. Nothing that a client writes is mistaken for the gate's or the proxy's word; the service gets the gate's
//!    token, if it signs, and never a client's.
//! 3. Targets and contents reach gate and service as they were signed, or not at all.

use e2e::anvil::CHAIN_ID;
use e2e::fault::{Fault, Rule};
use e2e::gate::{Gate, ORIGIN, Service};
use e2e::hooks::Delivery;
use e2e::process::Process;
use e2e::proxy::Proxy;
use e2e::reverse_proxies::Kind;
use e2e::seed::wallet;
use e2e::signed_requests::{Draft, RawAnswer, Signed};
use e2e::verdict_tokens::{key_file, key_set, kid, new_key, signing};
use registry_core::token::Jws;

use crate::{ISSUER, chain, configuration, configuration_at, get, good, signed};

/// A proxy with a gate beside it and a service behind it.
struct Stage {
    kind: Kind,
    rpc: Proxy,
    gate: Option<Gate>,
    service: Service,
    url: String,
    _process: Process,
}

impl Stage {
    async fn start(kind: Kind) -> Self {
        let rpc = Proxy::start(chain().await.node.url()).await.unwrap();
        let gate = Gate::start(&configuration_at(kind, rpc.url()).await).await.unwrap();
        let service = Service::start().await.unwrap();
        let (process, url) = kind.start(gate.url(), service.url()).await.unwrap();
        Self { kind, rpc, gate: Some(gate), service, url, _process: process }
    }

    /// The status of the answer, and how often the service was reached.
    async fn outcome(&self, request: &Signed) -> (u16, usize) {
        let answer = request.send(&self.url).await.unwrap();
        (answer.status, self.service.take().len())
    }

    /// What reached the service.
    async fn admitted(&self, request: &Signed) -> Delivery {
        let answer = request.send(&self.url).await.unwrap();
        let log = self.gate.as_ref().map(Gate::log);
        assert_eq!(answer.status, 200, "{answer:?}\n{log:?}");
        let mut received = self.service.take();
        assert_eq!(received.len(), 1);
        received.remove(0)
    }

    /// Checks that a request is refused with this status and with these words in its body.
    async fn refused(&self, request: &Signed, status: u16, words: &str) -> RawAnswer {
        let answer = request.send(&self.url).await.unwrap();
        assert_eq!(answer.status, status, "{answer:?}");
        // Envoy answers in the gate's place where that fails.
        let is_own = status == 503 && self.kind == Kind::Envoy;
        assert!(is_own || answer.body.contains(words), "{words}: {answer:?}");
        let reached = self.service.take();
        assert!(reached.is_empty(), "{answer:?} reached the service: {reached:?}");
        answer
    }
}

async fn every_kind_of_request_has_its_status(mut stage: Stage) {
    let request = signed("/items?view=full");
    let received = stage.admitted(&request).await;
    assert_eq!(received.values("kya-wallet"), [good().address().to_checksum(None)]);
    let by = |name: &str| get("/").sign(&wallet(name), CHAIN_ID);
    let elsewhere = Draft::get("http://other.example", "/").sign(&good(), CHAIN_ID).at(ORIGIN);
    for (request, status, words) in [
        (by("suspended"), 403, r#""decision":"request_renewal","reasons":["SUSPENDED"]"#),
        (by("new"), 403, r#""decision":"deny","reasons":["NOT_REGISTERED"]"#),
        (request, 401, "nonce_reused"),
        (signed("/").with("signature", "request=("), 400, "signature_input_invalid"),
        (elsewhere, 401, "bad_signature"),
    ] {
        stage.refused(&request, status, words).await;
    }
    let answer = stage.refused(&get("/").unsigned(), 401, "signature_missing").await;
    assert_eq!(answer.header("www-authenticate"), [r#"ERC8128 error="signature_missing""#]);
    let accept =
        r#"request=("@scheme" "@authority" "@method" "@path" "@query");created;expires;tag="erc8128""#;
    assert_eq!(answer.header("accept-signature"), [accept]);

    stage.rpc.inject(Rule::on("eth_call", Fault::Refuse));
    stage.refused(&by("unknown yet"), 503, "signature_verification_unavailable").await;
    stage.rpc.heal();
    assert!(stage.gate.take().unwrap().terminate().await.unwrap().success(), "it ends in good order");
    let without_gate = if stage.kind == Kind::Envoy { 503 } else { 502 };
    stage.refused(&signed("/"), without_gate, "").await;
}

async fn no_header_of_a_client_is_taken_for_anothers(stage: &Stage) {
    let names = ["KYA-Wallet", "KYA-Agent-Id", "KYA-Decision", "KYA-Liable", "KYA-Until"];
    let spoofed = names.iter().chain(&["KYA-Verdict", "kya_wallet"]);
    let spoofed = spoofed.fold(get("/items"), |draft, name| draft.header(name, "spoofed"));
    let received = stage.admitted(&spoofed.clone().sign(&good(), CHAIN_ID)).await;
    for name in names {
        let values = received.values(&name.to_lowercase());
        assert!(values.len() == 1 && values[0] != "spoofed", "{name}: {values:?}");
    }
    assert_eq!(received.values("kya-decision"), ["provision"]);
    assert!(received.values("kya-verdict").iter().all(|verdict| verdict.is_empty()), "no verdict is signed");

    for (name, value) in [
        ("X-Forwarded-Uri", "/public"),
        ("X-Forwarded-Method", "POST"),
        ("X-Forwarded-Host", "other.example"),
        ("X-Forwarded-Proto", "https"),
        ("X-Original-URI", "/public"),
        ("X-Original-Method", "POST"),
        ("X-Original-Content", "0"),
    ] {
        let request = get("/private").header(name, value).sign(&good(), CHAIN_ID);
        assert_eq!(stage.admitted(&request).await.path, "/private", "{name}");
        // Signed for what the header says, it is not signed for what is asked.
        let other = match value {
            "/public" => get("/public"),
            _ => Draft { method: "POST".to_owned(), ..get("/private") },
        };
        let other = other.sign(&good(), CHAIN_ID).asking("GET", "/private").with(name, value);
        stage.refused(&other, 401, "").await;
    }

    // With a gate that signs.
    let (key, directory) = (new_key().await.unwrap(), tempfile::tempdir().unwrap());
    let file = directory.path().join("keys.json");
    key_file(&file, &key_set(&[&key])).unwrap();
    let gate = Gate::start(&(configuration(stage.kind).await + &signing(ISSUER, &file))).await.unwrap();
    let (_proxy, url) = stage.kind.start(gate.url(), stage.service.url()).await.unwrap();
    let answer = spoofed.sign(&good(), CHAIN_ID).send(&url).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}\n{}", gate.log());
    let received = stage.service.take();
    let [token] = received[0].values("kya-verdict")[..] else { panic!("{received:?}") };
    let jws = Jws::parse(token).unwrap_or_else(|error| panic!("{token} {error}"));
    assert_eq!((jws.kid, jws.claims.aud.as_deref()), (kid(&key), Some(ORIGIN)));
}

async fn targets_and_contents_arrive_as_they_were_signed(stage: &Stage) {
    for target in [
        "/items?policy=other&x=%2F",
        "/a%2Fb/c%20d",
        "//double//slash",
        "/a/../b/./c",
        "/a/%2e%2e/gate/other",
        "/?",
    ] {
        assert_eq!(stage.outcome(&signed(target)).await, (200, 1), "{target}");
        stage.refused(&signed(target).asking("GET", "/elsewhere"), 401, "").await;
    }
    // Braces belong in no target. Caddy, which would expand them in a path of its own, encodes them for the
    // gate: they are not what was signed.
    let expected = if stage.kind == Kind::Caddy { (401, 0) } else { (200, 1) };
    assert_eq!(stage.outcome(&signed("/i{http.request.method}")).await, expected);
    for chunked in [false, true] {
        let draft = Draft { chunked, ..Draft::post(ORIGIN, "/orders", r#"{"hello":"world"}"#) };
        let received = stage.admitted(&draft.clone().sign(&good(), CHAIN_ID)).await;
        assert_eq!((&received.method[..], &received.body[..]), ("POST", r#"{"hello":"world"}"#));
        // Content behind a signature over none.
        let empty = Draft { body: String::new(), ..draft.clone() }.sign(&good(), CHAIN_ID);
        stage.refused(&empty.carrying(&draft.body, chunked), 401, "").await;
        // Other content: Envoy alone shows it to the gate.
        let other = draft.sign(&good(), CHAIN_ID).carrying(r#"{"hello":"other"}"#, chunked);
        let expected = if stage.kind == Kind::Envoy { (401, 0) } else { (200, 1) };
        assert_eq!(stage.outcome(&other).await, expected, "chunked: {chunked}");
    }
}

async fn behind(kind: Kind) {
    let stage = Stage::start(kind).await;
    no_header_of_a_client_is_taken_for_anothers(&stage).await;
    targets_and_contents_arrive_as_they_were_signed(&stage).await;
    every_kind_of_request_has_its_status(stage).await;
}

#[tokio::test]
async fn behind_nginx() {
    behind(Kind::Nginx).await;
}

#[tokio::test]
async fn behind_caddy() {
    behind(Kind::Caddy).await;
}

#[tokio::test]
async fn behind_envoy() {
    behind(Kind::Envoy).await;
}
