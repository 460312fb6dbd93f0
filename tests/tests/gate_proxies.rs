//! The gate behind real proxies, each with the configuration of `docs/gate.md`.
//!
//! 1. The exact status of every kind of request through each proxy: one table.
//! 2. On a refusal the service is never reached, and the client is told how to go on.
//! 3. Nothing that a client writes is mistaken for the gate's or the proxy's word.
//! 4. Targets and contents reach gate and service as they were signed, or not at all.

use std::time::Duration;

use alloy::signers::local::PrivateKeySigner;
use e2e::fault::{Fault, Rule};
use e2e::gate::{Gate, ORIGIN, Received, Service};
use e2e::process::Process;
use e2e::proxy::Proxy;
use e2e::reverse_proxies::Kind;
use e2e::seed::{registration_call, suspension, wallet};
use e2e::signed_requests::{Draft, RawAnswer, Signed};
use e2e::verdict_tokens::{key_file, key_set, kid, new_key, signing};
use e2e::{
    anvil::{AnvilOptions, CHAIN_ID},
    chain::Chain,
};
use registry_core::token::Jws;

/// A proxy with a gate beside it and a service behind it.
struct Stage {
    kind: Kind,
    rpc: Proxy,
    gate: Option<Gate>,
    service: Service,
    url: String,
    _process: Process,
    _chain: Chain,
}

impl Stage {
    /// A chain on which the wallet `good` is compliant and `suspended` is not; `new` is not registered.
    async fn start(kind: Kind) -> Self {
        let chain = Chain::start(AnvilOptions::default()).await.unwrap();
        for (id, name) in [(1, "good"), (2, "suspended")] {
            let call = registration_call(id, wallet(name).address(), "guarded", 0);
            chain.send(chain.owner(), call).await.unwrap();
        }
        chain.send(chain.owner(), suspension(2, "a test")).await.unwrap();
        let rpc = Proxy::start(chain.node.url()).await.unwrap();
        let registry = chain.contracts.registry.to_string();
        let configuration = kind.gate(ORIGIN, CHAIN_ID, rpc.url(), &registry).unwrap();
        let gate = Gate::start(&configuration).await.unwrap();
        let service = Service::start().await.unwrap();
        let (process, url) = kind.start(gate.url(), service.url()).await.unwrap();
        Self { kind, rpc, gate: Some(gate), service, url, _process: process, _chain: chain }
    }

    async fn send(&self, request: &Signed) -> RawAnswer {
        request.send(&self.url).await.unwrap()
    }

    /// What reached the service.
    async fn admitted(&self, request: &Signed) -> Received {
        let answer = self.send(request).await;
        assert_eq!((answer.status, self.kind), (200, self.kind), "{answer:?}\n{}", self.log());
        let mut received = self.service.take();
        assert_eq!(received.len(), 1, "{:?}", self.kind);
        received.remove(0)
    }

    async fn refused(&self, request: &Signed) -> RawAnswer {
        let answer = self.send(request).await;
        let reached = self.service.take();
        assert!(reached.is_empty(), "{:?}: {answer:?} reached the service: {reached:?}", self.kind);
        answer
    }

    fn log(&self) -> String {
        self.gate.as_ref().map(Gate::log).unwrap_or_default()
    }
}

fn good() -> PrivateKeySigner {
    wallet("good")
}

fn get(target: &str) -> Draft {
    Draft::get(ORIGIN, target)
}

fn with_status(status: u16, code: &str, answer: &RawAnswer, kind: Kind) {
    assert_eq!(answer.status, status, "{kind:?}, {code}: {answer:?}");
    // Envoy answers in the gate's place where that fails.
    if status != 503 || kind != Kind::Envoy {
        assert!(answer.body.contains(&format!("\"reason\":\"{code}\"")), "{kind:?}, {code}: {answer:?}");
    }
}

#[tokio::test]
async fn each_proxy_answers_each_request_with_its_exact_status() {
    let mut table: Vec<(&str, Vec<u16>)> = Vec::new();
    for (column, kind) in Kind::ALL.into_iter().enumerate() {
        let mut stage = Stage::start(kind).await;
        let mut row = |name: &'static str, answer: &RawAnswer| {
            if column == 0 {
                table.push((name, Vec::new()));
            }
            table.iter_mut().find(|(row, _)| *row == name).unwrap().1.push(answer.status);
        };
        let request = get("/items?view=full").sign(&good(), CHAIN_ID);
        let received = stage.admitted(&request).await;
        assert_eq!(received.header("kya-wallet"), [good().address().to_checksum(None)]);
        row("provision", &RawAnswer { status: 200, ..RawAnswer::default() });

        let answer = stage.refused(&get("/").sign(&wallet("suspended"), CHAIN_ID)).await;
        with_status(403, "kya_not_allowed", &answer, kind);
        assert!(
            answer.body.contains(r#""decision":"request_renewal","reasons":["SUSPENDED"]"#),
            "{answer:?}"
        );
        row("renewal", &answer);
        let answer = stage.refused(&get("/").sign(&wallet("new"), CHAIN_ID)).await;
        with_status(403, "kya_not_allowed", &answer, kind);
        assert!(answer.body.contains(r#""decision":"deny","reasons":["NOT_REGISTERED"]"#), "{answer:?}");
        row("deny", &answer);

        let answer = stage.refused(&get("/").unsigned()).await;
        with_status(401, "signature_missing", &answer, kind);
        assert_eq!(answer.header("www-authenticate"), [r#"erc8128 error="signature_missing""#], "{kind:?}");
        let accept =
            r#"request=("@scheme" "@authority" "@method" "@path" "@query");created;expires;tag="erc8128""#;
        assert_eq!(answer.header("accept-signature"), [accept], "{kind:?}");
        row("unsigned", &answer);
        let answer = stage.refused(&request).await;
        with_status(401, "nonce_reused", &answer, kind);
        row("replayed", &answer);
        let answer = stage.refused(&get("/").sign(&good(), CHAIN_ID).with("signature", "request=(")).await;
        with_status(400, "signature_input_invalid", &answer, kind);
        row("malformed", &answer);
        let answer =
            stage.refused(&Draft::get("http://other.example", "/").sign(&good(), CHAIN_ID).at(ORIGIN)).await;
        with_status(401, "bad_signature", &answer, kind);
        row("another host", &answer);

        stage.rpc.inject(Rule::on("eth_call", Fault::Refuse));
        let answer = stage.refused(&get("/").sign(&wallet("unknown yet"), CHAIN_ID)).await;
        with_status(503, "signature_verification_unavailable", &answer, kind);
        row("KYA away", &answer);
        stage.rpc.heal();
        let gate = stage.gate.take().unwrap();
        assert!(gate.terminate().await.unwrap().success(), "it ends in good order");
        let answer = stage.refused(&get("/").sign(&good(), CHAIN_ID)).await;
        row("gate away", &answer);
    }
    println!("{:<14} {:?}", "", Kind::ALL);
    for (name, statuses) in &table {
        println!("{name:<14} {statuses:?}");
    }
    let expected = [
        ("provision", vec![200, 200, 200]),
        ("renewal", vec![403, 403, 403]),
        ("deny", vec![403, 403, 403]),
        ("unsigned", vec![401, 401, 401]),
        ("replayed", vec![401, 401, 401]),
        ("malformed", vec![400, 400, 400]),
        ("another host", vec![401, 401, 401]),
        ("KYA away", vec![503, 503, 503]),
        ("gate away", vec![502, 502, 503]),
    ];
    assert_eq!(table, expected);
}

#[tokio::test]
async fn what_a_client_writes_is_never_the_gates_or_the_proxys_word() {
    for kind in Kind::ALL {
        let stage = Stage::start(kind).await;
        let mut spoofed = get("/items");
        for name in [
            "KYA-Wallet",
            "KYA-Agent-Id",
            "KYA-Decision",
            "KYA-Liable",
            "KYA-Until",
            "KYA-Verdict",
            "kya_wallet",
        ] {
            spoofed = spoofed.header(name, "spoofed");
        }
        let received = stage.admitted(&spoofed.sign(&good(), CHAIN_ID)).await;
        for name in ["kya-wallet", "kya-agent-id", "kya-decision", "kya-liable", "kya-until"] {
            let values = received.header(name);
            assert!(values.len() == 1 && values[0] != "spoofed", "{kind:?}, {name}: {values:?}");
        }
        assert_eq!(received.header("kya-decision"), ["provision"]);
        // This gate signs no verdicts.
        assert!(received.header("kya-verdict").iter().all(|verdict| verdict.is_empty()), "{kind:?}");

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
            assert_eq!(stage.admitted(&request).await.target, "/private", "{kind:?}, {name}");
            // Signed for what the header says, it is not signed for what is asked.
            let other = match name {
                "X-Forwarded-Uri" | "X-Original-URI" => {
                    get("/public").sign(&good(), CHAIN_ID).asking("GET", "/private")
                }
                _ => Draft { method: "POST".to_owned(), ..get("/private") }
                    .sign(&good(), CHAIN_ID)
                    .asking("GET", "/private"),
            };
            let answer = stage.refused(&other.with(name, value)).await;
            assert_eq!(answer.status, 401, "{kind:?}, {name}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn through_each_proxy_the_service_gets_the_gates_token_and_never_a_clients() {
    let chain = Chain::start(AnvilOptions::default()).await.unwrap();
    chain.send(chain.owner(), registration_call(1, good().address(), "guarded", 0)).await.unwrap();
    let (key, directory) = (new_key().await.unwrap(), tempfile::tempdir().unwrap());
    let file = directory.path().join("keys.json");
    key_file(&file, &key_set(&[&key])).unwrap();
    for kind in Kind::ALL {
        let registry = chain.contracts.registry.to_string();
        let configuration = kind.gate(ORIGIN, CHAIN_ID, chain.node.url(), &registry).unwrap();
        let gate = Gate::start(&(configuration + &signing("https://kya.example", &file))).await.unwrap();
        let service = Service::start().await.unwrap();
        let (_proxy, url) = kind.start(gate.url(), service.url()).await.unwrap();
        let spoofed = get("/items").header("KYA-Verdict", "spoofed").sign(&good(), CHAIN_ID);
        let answer = spoofed.send(&url).await.unwrap();
        assert_eq!(answer.status, 200, "{kind:?}: {answer:?}\n{}", gate.log());
        let received = service.take();
        let [token] = received[0].header("kya-verdict")[..] else { panic!("{kind:?}: {received:?}") };
        let jws = Jws::parse(token).unwrap_or_else(|error| panic!("{kind:?}: {token} {error}"));
        assert_eq!((jws.kid, jws.claims.aud.as_deref()), (kid(&key), Some(ORIGIN)), "{kind:?}");
    }
}

#[tokio::test]
async fn targets_and_contents_arrive_as_they_were_signed() {
    for kind in Kind::ALL {
        let stage = Stage::start(kind).await;
        for target in [
            "/items?policy=other&x=%2F",
            "/a%2Fb/c%20d",
            "//double//slash",
            "/a/../b/./c",
            "/a/%2e%2e/gate/other",
            "/?",
        ] {
            let request = get(target).sign(&good(), CHAIN_ID);
            let answer = stage.send(&request).await;
            let received = stage.service.take();
            assert_eq!(
                (answer.status, received.len()),
                (200, 1),
                "{kind:?}, {target}: {answer:?}\n{}",
                stage.log()
            );
            // The same request for any other target is refused.
            let answer =
                stage.refused(&get(target).sign(&good(), CHAIN_ID).asking("GET", "/elsewhere")).await;
            assert_eq!(answer.status, 401, "{kind:?}, {target}");
        }
        // Braces belong in no target. Caddy, which would expand them in a path of its own, encodes them for the
        // gate: they are not what was signed.
        let answer = stage.send(&get("/i{http.request.method}").sign(&good(), CHAIN_ID)).await;
        let expected = if kind == Kind::Caddy { (401, 0) } else { (200, 1) };
        assert_eq!((answer.status, stage.service.take().len()), expected, "{kind:?}");
        for chunked in [false, true] {
            let draft = Draft { chunked, ..Draft::post(ORIGIN, "/orders", r#"{"hello":"world"}"#) };
            let received = stage.admitted(&draft.clone().sign(&good(), CHAIN_ID)).await;
            assert_eq!(received.body, r#"{"hello":"world"}"#, "{kind:?}, chunked: {chunked}");
            assert_eq!(received.method, "POST");
            // Content behind a signature over none.
            let empty = Draft { body: String::new(), ..draft.clone() }.sign(&good(), CHAIN_ID);
            let answer = stage.refused(&empty.carrying(&draft.body, chunked)).await;
            assert_eq!(answer.status, 401, "{kind:?}, chunked: {chunked}: {answer:?}");
            // Other content: Envoy alone shows it to the gate.
            let other = draft.sign(&good(), CHAIN_ID).carrying(r#"{"hello":"other"}"#, chunked);
            let answer = stage.send(&other).await;
            let reached = stage.service.take().len();
            let expected = if kind == Kind::Envoy { (401, 0) } else { (200, 1) };
            assert_eq!((answer.status, reached), expected, "{kind:?}, chunked: {chunked}");
        }
    }
}

#[tokio::test]
async fn check_says_what_is_wrong_and_serve_does_not_start_with_it() {
    let configuration = |rpc: &str| {
        Kind::Envoy.gate(ORIGIN, CHAIN_ID, rpc, "0x00000000000000000000000000000000000000aa").unwrap()
    };
    let silent = format!("http://127.0.0.1:{}", e2e::process::free_port().unwrap());
    let (good, report) = Gate::check(&configuration(&silent)).await.unwrap();
    assert!(!good && report.contains("✗ source") && report.contains("chain: "), "{report}");
    let chain = Chain::start(AnvilOptions::default()).await.unwrap();
    let (good, report) = Gate::check(&configuration(chain.node.url())).await.unwrap();
    assert!(
        !good && report.contains("No contract at 0x00000000000000000000000000000000000000AA"),
        "{report}"
    );
    let error = Gate::start(&configuration(&silent)).await.unwrap_err().to_string();
    assert!(error.contains("not started"), "{error}");
    let registry = chain.contracts.registry.to_string();
    let right = Kind::Envoy.gate(ORIGIN, CHAIN_ID, chain.node.url(), &registry).unwrap();
    let (good, report) = Gate::check(&right).await.unwrap();
    assert!(
        good && report.contains("✓ policy") && report.contains("http://api.example, Provision"),
        "{report}"
    );
    let gate = Gate::start(&right).await.unwrap();
    let probe = e2e::http::client(Duration::from_secs(10));
    for (path, status) in [("livez", 200), ("readyz", 200), ("metrics", 200), ("else", 404)] {
        let answer = probe.get(format!("{}/{path}", gate.url())).send().await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
    }
}
