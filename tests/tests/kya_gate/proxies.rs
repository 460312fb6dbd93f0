//! The gate behind real proxies, each with the configuration of `docs/gate.md`.
//!
//! 1. Every kind of request gets its exact status through each proxy. A refused request never reaches the
//!    service, and the answer says how to go on, also to a page of another site.
//! 2. Services over WSGI, CGI and Express never take a client's header, in whatever spelling, for one of the
//!    gate or the proxy. The service gets the gate's token, if the gate signs, and never a client's.
//! 3. Targets and contents of any length reach gate and service as they were signed, or not at all, over
//!    HTTP/1.1 and HTTP/2. An ambiguous target, or a request for another protocol, reaches no service.

use alloy::hex;
use e2e::anvil::CHAIN_ID;
use e2e::daemon::write_private;
use e2e::fault::{FaultRule, NodeFault};
use e2e::gate::{Gate, HeaderReader, ORIGIN, RawGate, RecordingService};
use e2e::hooks::Delivery;
use e2e::http;
use e2e::kya::Kya;
use e2e::process::free_port;
use e2e::proxy::Proxy;
use e2e::reverse_proxies::{PREFIX, ReverseProxyKind, RunningProxy};
use e2e::seed::wallet;
use e2e::signed_requests::{Draft, RawAnswer, SignedHttpRequest};
use e2e::verdict_tokens::{key_file, key_set, kid, new_key, signing};
use futures_util::future::join_all;
use registry_core::gate::reads_as_output_header;
use registry_core::token::Jws;
use serde_json::{Value, json};

use crate::{ISSUER, PATIENCE, chain, configuration, configuration_at, get, good, plain, signed};

/// A proxy with a gate beside it and a service behind it.
struct ProxyFixture {
    kind: ReverseProxyKind,
    rpc: Proxy,
    gate: Option<Gate>,
    service: RecordingService,
    front: RunningProxy,
}

impl ProxyFixture {
    async fn start(kind: ReverseProxyKind) -> Self {
        let rpc = Proxy::start(chain().await.node.url()).await.unwrap();
        let gate = Gate::start(&configuration_at(kind, rpc.url()).await).await.unwrap();
        let service = RecordingService::start().await.unwrap();
        let front = kind.start(gate.url(), service.url()).await.unwrap();
        Self { kind, rpc, gate: Some(gate), service, front }
    }

    /// Sends a request; returns the status, and the number of requests that reached the service.
    async fn outcome(&self, request: &SignedHttpRequest) -> (u16, usize) {
        let answer = request.send(&self.front.url).await.unwrap();
        (answer.status, self.service.take().len())
    }

    /// Sends requests over HTTP/2, without TLS and with it; returns the outcome of each.
    async fn outcomes_over_http_2(&self, request: impl Fn() -> SignedHttpRequest) -> [(u16, usize); 2] {
        let mut outcomes = [(0, 0); 2];
        for (url, outcome) in self.front.over_http_2.iter().zip(&mut outcomes) {
            let answer = request().send_over_http_2(url, &self.front.authority).await.unwrap();
            *outcome = (answer.status, self.service.take().len());
        }
        outcomes
    }

    /// Checks that a request is admitted, and returns it as it reached the service.
    async fn admitted(&self, request: &SignedHttpRequest) -> Delivery {
        let answer = request.send(&self.front.url).await.unwrap();
        let log = self.gate.as_ref().map(Gate::log);
        assert_eq!(answer.status, 200, "{answer:?}\n{log:?}");
        let mut received = self.service.take();
        assert_eq!(received.len(), 1);
        received.remove(0)
    }

    /// Checks that a request is refused with this status and with these words in its body.
    async fn refused(&self, request: &SignedHttpRequest, status: u16, words: &str) -> RawAnswer {
        let answer = request.send(&self.front.url).await.unwrap();
        assert_eq!(answer.status, status, "{answer:?}");
        // Envoy answers in place of a failed gate, and nginx refuses paths above the root.
        let is_own =
            matches!((self.kind, status), (ReverseProxyKind::Envoy, 503) | (ReverseProxyKind::Nginx, 400));
        assert!(is_own || answer.body.contains(words), "{words}: {answer:?}");
        let reached = self.service.take();
        assert!(reached.is_empty(), "{answer:?} reached the service: {reached:?}");
        answer
    }
}

async fn every_kind_of_request_has_its_status(mut stage: ProxyFixture) {
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
    // For a request with content the gate also demands its digest.
    let order = Draft { headers: Vec::new(), ..Draft::post(ORIGIN, "/orders", "7") }.unsigned();
    let answer = stage.refused(&order, 401, "signature_missing").await;
    let accept = accept.replace("\"@query\"", r#""@query" "content-digest""#);
    assert_eq!(answer.header("accept-signature"), [accept]);

    // A page of another site sends a preflight before a signed request, and can read the answer. The
    // service's own CORS headers are replaced.
    let page = |draft: Draft| draft.header("Origin", "https://shop.example");
    let preflight = Draft { method: "OPTIONS".to_owned(), ..get("/items") };
    let preflight = page(preflight).header("Access-Control-Request-Method", "PUT");
    let preflight =
        preflight.header("Access-Control-Request-Headers", "signature,signature-input").unsigned();
    // Envoy lists the requested headers instead of `*`.
    let [allowed, exposed] = ["access-control-allow-headers", "access-control-expose-headers"];
    for (request, statuses, name) in [
        (preflight, 200..=204, allowed),
        (page(get("/items")).unsigned(), 401..=401, exposed),
        (page(get("/items")).sign(&good(), CHAIN_ID), 200..=200, exposed),
    ] {
        let answer = request.send(&stage.front.url).await.unwrap();
        assert!(statuses.contains(&answer.status), "{answer:?}");
        let origin = answer.header("access-control-allow-origin");
        assert!(matches!(origin[..], ["*" | "https://shop.example"]), "{answer:?}");
        let named = answer.header(name);
        let names_all =
            matches!(named[..], ["*"]) || (name == allowed && named == ["signature,signature-input"]);
        assert!(names_all, "{answer:?}");
        let methods = answer.header("access-control-allow-methods");
        assert!(name == exposed || matches!(methods[..], ["*" | "PUT"]), "{answer:?}");
    }
    assert_eq!(stage.service.take().len(), 1, "the signed one alone");

    stage.rpc.inject(FaultRule::on("eth_call", NodeFault::Refuse));
    stage.refused(&by("unknown yet"), 503, "signature_verification_unavailable").await;
    stage.rpc.heal();
    assert!(stage.gate.take().unwrap().terminate().await.unwrap().success(), "it ends in good order");
    let without_gate = if stage.kind == ReverseProxyKind::Envoy { 503 } else { 502 };
    stage.refused(&signed("/"), without_gate, "").await;
}

/// Names of the gate's headers.
const NAMES: [&str; 7] = [
    "KYA-Wallet",
    "KYA-Agent-Id",
    "KYA-Decision",
    "KYA-Liable",
    "KYA-Liable-Basis",
    "KYA-Until",
    "KYA-Verdict",
];

/// Makes headers that could pass for the gate's: one in some case, with some separator, twice, or named in a
/// list of another header.
fn spoofed(seed: usize) -> Vec<(String, String)> {
    let name = NAMES[seed % NAMES.len()];
    let seed = seed / NAMES.len();
    let separated = name.replace('-', ["-", "_", ".", "-"][seed % 4]);
    let cased = match seed / 4 % 4 {
        0 => separated,
        1 => separated.to_lowercase(),
        2 => separated.to_uppercase(),
        _ => separated.to_lowercase().replace("kya", "KyA"),
    };
    let mut headers = vec![(cased.clone(), "spoofed".to_owned())];
    match seed / 16 % 5 {
        0 => {}
        1 => headers.push((cased, "again".to_owned())),
        2 => headers.push(("connection".to_owned(), format!("keep-alive, {name}"))),
        3 => headers.insert(0, ("Connection".to_owned(), name.to_lowercase())),
        _ => headers.push(("trailer".to_owned(), name.to_owned())),
    }
    headers
}

/// Returns the headers that a service which folds case and separators reads as the gate's.
fn read_as_the_gates(received: &Delivery) -> Vec<(String, String)> {
    let folded = |name: &str| name.replace(|byte: char| !byte.is_ascii_alphanumeric(), "-").to_lowercase();
    let headers = received.headers.iter().filter(|(name, _)| reads_as_output_header(name.as_str()));
    let headers = headers.filter(|(_, value)| !value.is_empty());
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let mut read: Vec<_> =
        headers.map(|(name, value)| (folded(name.as_str()), text(value.as_bytes()))).collect();
    read.sort();
    read
}

/// Sends 500 spellings to a real service: each is removed, or its request is refused.
async fn each_spelling_is_removed_or_refused(stage: &ProxyFixture, service: &HeaderReader) {
    let gate = stage.gate.as_ref().unwrap();
    let front = stage.kind.start(gate.url(), &service.url).await.unwrap();
    let plain = signed("/items").send(&front.url).await.unwrap();
    let wallet = format!("KYA_WALLET={}", good().address().to_checksum(None));
    let read: Vec<&str> = plain.body.lines().collect();
    assert!(plain.status == 200 && read.contains(&wallet.as_str()) && read.len() == 6, "{plain:?}");
    let mut admitted = 0;
    for seed in 0..500 {
        let draft =
            spoofed(seed).into_iter().fold(get("/items"), |draft, (name, value)| draft.header(&name, &value));
        let answer = draft.sign(&good(), CHAIN_ID).send(&front.url).await.unwrap();
        let context = || format!("{} {:?}: {answer:?}", service.name, spoofed(seed));
        match answer.status {
            200 => assert_eq!(answer.body, plain.body, "{}", context()),
            status => assert_eq!(status, 400, "{}", context()),
        }
        admitted += usize::from(answer.status == 200);
    }
    assert!(admitted >= 200, "most spellings are removed, and not refused: {admitted}");
}

async fn no_header_of_a_client_is_taken_for_anothers(stage: &ProxyFixture) {
    let readers = HeaderReader::start_all().await.unwrap();
    join_all(readers.iter().map(|reader| each_spelling_is_removed_or_refused(stage, reader))).await;
    let underscored = get("/items").header("KYA_Wallet", "spoofed").sign(&good(), CHAIN_ID);
    assert_eq!(stage.outcome(&underscored).await, (200, 1), "the documented block removes it");

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
        // A signature over the header's target or method is none over the real one.
        let other = match value {
            "/public" => get("/public"),
            _ => Draft { method: "POST".to_owned(), ..get("/private") },
        };
        let other = other.sign(&good(), CHAIN_ID).asking("GET", "/private").with(name, value);
        stage.refused(&other, 401, "").await;
    }

    // Where the gate sets an empty value, a client's value does not get through either.
    let gate = Gate::start(&(configuration(stage.kind).await + "observe = true\n")).await.unwrap();
    let front = stage.kind.start(gate.url(), stage.service.url()).await.unwrap();
    for name in NAMES.iter().flat_map(|name| ["-", ".", "!"].map(|separator| name.replace('-', separator))) {
        let unsigned = get("/items").header(&name, "spoofed").unsigned().send(&front.url).await.unwrap();
        let received = stage.service.take();
        assert_eq!((unsigned.status, read_as_the_gates(&received[0])), (200, vec![]), "{name}");
    }
    // The gate also decides about requests that its HTTP library, and the test service's, do not take.
    let many = (0..150).fold(get("/items"), |draft, number| draft.header(&format!("x-{number}"), "a"));
    let quoted = || get("/items?q=\"x\"<>");
    for (request, outcome) in [
        (quoted().unsigned(), "signature_missing"),
        (quoted().sign(&good(), CHAIN_ID), "admitted"),
        (many.unsigned(), "signature_missing"),
    ] {
        if stage.kind == ReverseProxyKind::Envoy && request.draft.headers.len() > 100 {
            continue; // Envoy takes no more headers itself.
        }
        let line = format!("kya_gate_requests_total{{outcome=\"{outcome}\",policy=\"api\"}}");
        let before = gate.metric(&line).await.unwrap_or_default();
        let answer = request.send(&front.url).await.unwrap();
        let decided = gate.metric(&line).await.unwrap_or_default() - before;
        assert_eq!(decided, 1.0, "{request:?}: {answer:?}\n{}", gate.log());
        stage.service.take();
    }

    // The following gate signs.
    let (key, directory) = (new_key().await.unwrap(), tempfile::tempdir().unwrap());
    let file = directory.path().join("keys.json");
    key_file(&file, &key_set(&[&key])).unwrap();
    let gate = Gate::start(&(configuration(stage.kind).await + &signing(ISSUER, &file))).await.unwrap();
    let front = stage.kind.start(gate.url(), stage.service.url()).await.unwrap();
    let spoofed = get("/items").header("KYA-Verdict", "spoofed").sign(&good(), CHAIN_ID);
    let answer = spoofed.send(&front.url).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}\n{}", gate.log());
    let received = stage.service.take();
    let [token] = received[0].values("kya-verdict")[..] else { panic!("{received:?}") };
    let jws = Jws::parse(token).unwrap_or_else(|error| panic!("{token} {error}"));
    assert_eq!((jws.kid, jws.claims.aud.as_deref()), (kid(&key), Some(ORIGIN)));
}

async fn targets_and_contents_arrive_as_they_were_signed(stage: &ProxyFixture) {
    for target in ["/items?policy=other&x=%2F", "/c%20d/%C3%BC", "/?"] {
        assert_eq!(stage.admitted(&signed(target)).await.path, target);
        assert_eq!(stage.outcomes_over_http_2(|| signed(target)).await, [(200, 1); 2], "{target}");
        stage.refused(&signed(target).asking("GET", "/elsewhere"), 401, "").await;
    }
    let ambiguous = "/a%2Fb //double//slash /a/../b /a/%2e%2e/gate/other /a/..%2f..%2fpublic /a;b /%61 \
        /i{http.request.method}";
    for target in ambiguous.split_whitespace() {
        stage.refused(&signed(target), 400, "ambiguous_target").await;
    }
    // Bytes that are not UTF-8 are the client's fault, and log no alarm.
    let raw = get("/m\u{fc}nchen").unsigned().send(&stage.front.url).await.unwrap();
    assert!(matches!(raw.status, 400 | 401), "{raw:?}");
    let log = stage.gate.as_ref().map(Gate::log).unwrap_or_default();
    assert!(!log.contains("not decided"), "{log}");
    if stage.kind.is_caddy() {
        let stripped = stage.admitted(&signed(&format!("{PREFIX}/items?a=b"))).await;
        assert_eq!(stripped.path, "/items?a=b");
    }
    let settings = Some("AAMAAABkAARAAAAAAAIAAAAA");
    for (protocol, settings) in [("h2c", settings), ("h2c", None), ("websocket", None), ("TLS/1.0", None)] {
        let names = if settings.is_some() { "Upgrade, HTTP2-Settings" } else { "Upgrade" };
        let upgrade = get("/live").header("Connection", names).header("Upgrade", protocol);
        let upgrade = settings.map_or(upgrade.clone(), |settings| upgrade.header("HTTP2-Settings", settings));
        let upgrade = upgrade.sign(&good(), CHAIN_ID);
        let answer = upgrade.send(&stage.front.url).await.unwrap();
        let reached = stage.service.take();
        let asks = |received: &Delivery| !received.values("upgrade").is_empty();
        assert!(!reached.iter().any(asks), "{protocol}: {answer:?} {reached:?}");
    }
    for chunked in [false, true] {
        let draft = Draft { chunked, ..Draft::post(ORIGIN, "/orders", r#"{"hello":"world"}"#) };
        let received = stage.admitted(&draft.clone().sign(&good(), CHAIN_ID)).await;
        assert_eq!((&received.method[..], &received.body[..]), ("POST", r#"{"hello":"world"}"#));
        let signed = || draft.clone().sign(&good(), CHAIN_ID);
        assert_eq!(stage.outcomes_over_http_2(signed).await, [(200, 1); 2]);
        // Content after a signature over empty content.
        let empty = Draft { body: String::new(), ..draft.clone() }.sign(&good(), CHAIN_ID);
        let hidden = empty.carrying(&draft.body, chunked);
        stage.refused(&hidden, 401, "content_digest_required").await;
        let outcomes = stage.outcomes_over_http_2(|| hidden.clone()).await;
        assert_eq!(outcomes, [(401, 0); 2], "without a length: {chunked}");
        // Other content than the signed one: only Envoy passes it to the gate.
        let other = draft.sign(&good(), CHAIN_ID).carrying(r#"{"hello":"other"}"#, chunked);
        let expected = if stage.kind == ReverseProxyKind::Envoy { (401, 0) } else { (200, 1) };
        assert_eq!(stage.outcome(&other).await, expected, "chunked: {chunked}");
    }
    requests_without_content_are_admitted_and_none_hides_any(stage).await;
    // The content is longer than a proxy's limit for subrequests; Envoy's filter limits what it passes on.
    let long = Draft::post(ORIGIN, "/orders", &"x".repeat(20 << 20));
    let is_passed_on = stage.kind == ReverseProxyKind::Envoy;
    let admitted = stage.outcome(&long.clone().sign(&good(), CHAIN_ID)).await;
    assert_eq!(admitted, if is_passed_on { (413, 0) } else { (200, 1) });
    let denied = stage.outcome(&long.sign(&wallet("new"), CHAIN_ID)).await;
    assert_eq!(denied, if is_passed_on { (413, 0) } else { (403, 0) });
}

/// Digest of empty content, as this project's clients send it.
const OF_NOTHING: (&str, &str) = ("content-digest", "sha-256=:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=:");

async fn requests_without_content_are_admitted_and_none_hides_any(stage: &ProxyFixture) {
    let (is_caddy, is_envoy) = (stage.kind.is_caddy(), stage.kind == ReverseProxyKind::Envoy);
    // OPTIONS is a preflight here.
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"] {
        let draft = Draft { method: method.to_owned(), ..get("/orders/7") };
        let is_read = matches!(method, "GET" | "HEAD");
        let (yes, no) = ((200, 1), (401, 0));
        for (header, http_1, http_2) in [
            (Some(("content-length", "0")), true, true),
            (Some(OF_NOTHING), true, true),
            // Without a length, a request over HTTP/1.1 has no content, but Caddy does not pass that on.
            (None, is_read || !is_caddy, is_read || is_envoy),
        ] {
            let draft = header.map_or(draft.clone(), |(name, value)| draft.clone().header(name, value));
            let signed = || draft.clone().sign(&good(), CHAIN_ID);
            let expected = |is_admitted| if is_admitted { yes } else { no };
            assert_eq!(stage.outcome(&signed()).await, expected(http_1), "{method} {header:?}");
            let outcomes = stage.outcomes_over_http_2(signed).await;
            assert_eq!(outcomes, [expected(http_2); 2], "{method} {header:?}");
        }
        // Envoy, and nginx over HTTP/1.1, see the content of a GET without a length.
        let is_seen = !is_read || is_envoy;
        for name in ["X-Original-Content", "X-Other"] {
            let hidden = || draft.clone().header(name, "0").sign(&good(), CHAIN_ID).carrying("hidden", true);
            if is_seen || !is_caddy {
                assert_eq!(stage.outcome(&hidden()).await, no, "{method} {name}");
            }
            if is_seen {
                assert_eq!(stage.outcomes_over_http_2(hidden).await, [no; 2], "{method} {name}");
            }
        }
        let announced = draft.sign(&good(), CHAIN_ID).carrying("announced", false);
        assert_eq!(stage.outcome(&announced).await, no, "{method}");
        assert_eq!(stage.outcomes_over_http_2(|| announced.clone()).await, [no; 2], "{method}");
    }
}

async fn behind(kind: ReverseProxyKind) {
    let stage = ProxyFixture::start(kind).await;
    no_header_of_a_client_is_taken_for_anothers(&stage).await;
    targets_and_contents_arrive_as_they_were_signed(&stage).await;
    let log = stage.front.process.log();
    assert!(!log.to_lowercase().contains("deprecated"), "{log}");
    every_kind_of_request_has_its_status(stage).await;
}

#[tokio::test]
async fn behind_nginx() {
    behind(ReverseProxyKind::Nginx).await;
}

#[tokio::test]
async fn the_pages_command_prints_a_signed_200_and_an_unsigned_one_is_a_401_behind_each_proxy() {
    let user = Kya::new().unwrap();
    write_private(&user.path("agent.key"), &hex::encode(good().to_bytes()));
    let service = RecordingService::start().await.unwrap();
    for kind in [ReverseProxyKind::Nginx, ReverseProxyKind::Caddy, ReverseProxyKind::Envoy] {
        let port = free_port().unwrap();
        let origin = format!("http://127.0.0.1:{port}");
        let text = configuration(kind).await.replace(ORIGIN, &origin);
        let (good_to_start, report) = Gate::check(&text).await.unwrap();
        assert!(good_to_start, "{report}");
        let gate = Gate::start(&text).await.unwrap();
        let _front = kind.start_on(port, gate.url(), service.url()).await.unwrap();
        let command = ReverseProxyKind::command(&origin, "agent.key", CHAIN_ID).unwrap();
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let answer = user.run(&command).await.unwrap().ok();
        let expected = (&json!(200), &json!(good().address().to_string()));
        assert_eq!((&answer["status"], &answer["signedBy"]), expected, "{answer}");
        let unsigned = http::client(PATIENCE).get(format!("{origin}/items")).send().await.unwrap();
        assert_eq!(unsigned.status(), 401, "{kind:?}");
        assert_eq!(unsigned.json::<Value>().await.unwrap()["reason"], "signature_missing", "{kind:?}");
        assert_eq!(service.take().len(), 1, "{kind:?}");
    }
}

#[tokio::test]
async fn nginx_asks_without_the_content_and_shows_none_of_its_own_places() {
    let (gate, service) = (RawGate::start().unwrap(), RecordingService::start().await.unwrap());
    let front = ReverseProxyKind::Nginx.start(gate.url(), service.url()).await.unwrap();
    Draft::post(ORIGIN, "/orders", "7").unsigned().send(&front.url).await.unwrap();
    assert!(service.take().is_empty(), "it is refused");
    for place in ["/gate/", "/refusal/"] {
        let asked = gate.next().unwrap();
        let (head, content) = asked.split_once("\r\n\r\n").unwrap();
        let is_a = |method| head.starts_with(&format!("{method} {place}"));
        assert!(is_a("GET") || is_a("POST"), "{head}");
        assert!(content.is_empty() && !head.to_lowercase().contains("content-length"), "{asked}");
    }
    for place in ["/_gate", "/_gate_refusal"] {
        assert_eq!(plain(&front.url, place).await.status, 404, "{place}");
    }
}

#[tokio::test]
async fn the_documents_of_the_gate_are_found_through_each_proxy() {
    let (gate, service) = (RawGate::start().unwrap(), RecordingService::start().await.unwrap());
    for kind in [ReverseProxyKind::Nginx, ReverseProxyKind::Caddy, ReverseProxyKind::Envoy] {
        let front = kind.start(gate.url(), service.url()).await.unwrap();
        for document in ["/.well-known/erc8128", "/.well-known/agent-registry"] {
            assert_eq!(plain(&front.url, document).await.status, 200, "{kind:?}");
            let asked = gate.next().unwrap();
            assert!(asked.starts_with(&format!("GET {document} ")), "the gate answers by itself: {asked}");
        }
    }
    assert!(service.take().is_empty(), "it has no such places");
}

#[tokio::test]
async fn behind_caddy() {
    behind(ReverseProxyKind::Caddy).await;
}

#[tokio::test]
async fn behind_other_versions_of_caddy() {
    // One that takes the gate's empty headers for missing ones, the last one that passes on underscores, and
    // the newest.
    for version in ["caddy-2.10.2", "caddy-2.11.1", "caddy-2.11.7"] {
        behind(ReverseProxyKind::PackagedCaddy(version)).await;
    }
}

#[tokio::test]
async fn behind_envoy() {
    behind(ReverseProxyKind::Envoy).await;
}
