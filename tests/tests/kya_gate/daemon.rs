//! The daemon itself.
//!
//! 1. A cold request takes one round trip to the chain, a warm or a forged one none. Strangers cause no more
//!    reads than the settings allow, and none by nginx's second request.
//! 2. The gate asks an account with code about each signature (ERC-1271).
//! 3. An agent that only names a liable person is refused until that person attests, and again once the
//!    attestation is too old.
//! 4. An observing gate admits, and records the decision that it would have made.
//! 5. Dashboard and alerts name only existing metrics.
//! 6. `check` names each fault, and `serve` does not start with it. `/readyz` reports a full nonce store. A
//!    signal ends the daemon also before it listens.

use std::time::{Duration, Instant};

use alloy::primitives::{Address, Bytes, U256};
use alloy::signers::local::PrivateKeySigner;
use e2e::anvil::{CHAIN_ID, dev_account};
use e2e::chain::Chain;
use e2e::fault::{FaultRule, NodeFault};
use e2e::gate::{ACCEPT, Gate, ORIGIN, REVERT};
use e2e::ops::{expressions, unknown};
use e2e::process::{free_port, open_many_files, wait_until};
use e2e::proxy::Proxy;
use e2e::reverse_proxies::ReverseProxyKind;
use e2e::seed::{chain_of_one, registration_call, wallet};
use e2e::signed_requests::{Draft, SignedHttpRequest};
use futures_util::future::join_all;
use registry_core::eth::abi::IAgentRegistry::{attestComplianceCall, registerAgentCall};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::{
    PATIENCE, ask, assert_refused, chain, configuration, configuration_at, get, good, plain, signed,
};

/// Starts a counting proxy, and configures a gate that reads the chain through it.
async fn counted(chain: &Chain) -> (Proxy, String) {
    let proxy = Proxy::start(chain.node.url()).await.unwrap();
    let text = configuration_at(ReverseProxyKind::Envoy, proxy.url()).await;
    (proxy, text)
}

#[tokio::test]
async fn a_cold_request_takes_one_round_trip_and_a_warm_one_none() {
    let (proxy, text) = counted(chain().await).await;
    let gate = Gate::start(&text).await.unwrap();
    for posts in [1, 0, 0] {
        proxy.reset();
        let answer = ask(&gate, &signed("/")).await;
        assert_eq!((answer.status, proxy.posts()), (200, posts), "{answer:?}");
    }
    assert_eq!(gate.metric("kya_gate_nonces").await, Some(3.0));
    let forged = signed("/").asking("GET", "/other");
    assert_eq!(ask(&gate, &forged).await.status, 401);
    assert_eq!(proxy.posts(), 0);
    // After a restart, nonces of earlier signatures are unknown: those are refused as reused.
    let early = signed("/");
    assert_eq!(ask(&gate, &early).await.status, 200);
    let restarted = Gate::start(&text).await.unwrap();
    let refused = ask(&restarted, &early).await;
    assert_refused(&refused, 401, "signed_before_start");
    assert_eq!(ask(&restarted, &signed("/")).await.status, 200, "what is signed once it listens is not");
    assert_eq!(refused.header("www-authenticate"), [r#"ERC8128 error="nonce_reused""#]);
}

#[tokio::test]
async fn strangers_have_no_more_read_than_the_settings_say() {
    let (proxy, text) = counted(chain().await).await;
    open_many_files().unwrap();
    let limited = text.replace("[kya]", "reads-per-second = 1\nreads-in-flight = 10\n[kya]");
    let gate = Gate::start(&limited).await.unwrap();
    let request = signed("/");
    proxy.reset();
    let answers = join_all((0..100).map(|_| ask(&gate, &request))).await;
    let admitted = answers.iter().filter(|answer| answer.status == 200).count();
    assert_eq!((admitted, proxy.posts()), (1, 1), "a hundred copies at a cold wallet");

    // Requests by random keys, and ones with a foreign signature that only code could accept.
    let gate = Gate::start(&limited).await.unwrap();
    proxy.reset();
    let began = Instant::now();
    let strangers = (0..500).map(|_| get("/").sign(&PrivateKeySigner::random(), CHAIN_ID));
    let forged = (0..500).map(|_| get("/").sign_for(&wallet("owner"), Address::random(), CHAIN_ID));
    let requests: Vec<SignedHttpRequest> = forged.chain(strangers).collect();
    let answers = join_all(requests.iter().map(|request| ask(&gate, request))).await;
    let allowed = 1 + began.elapsed().as_secs_f64().ceil() as usize;
    let unread = answers.iter().filter(|answer| answer.status == 503).count();
    assert!(proxy.posts() <= allowed && unread >= 1_000 - allowed, "{} of {allowed}", proxy.posts());
    let refused = answers.iter().find(|answer| answer.status == 503).unwrap();
    assert_refused(refused, 503, "signature_verification_unavailable");
    let mut counted = 0.0;
    for limit in ["per_second", "in_flight"] {
        let line = format!("kya_gate_reads_refused_total{{limit=\"{limit}\"}}");
        counted += gate.metric(&line).await.unwrap_or_default();
    }
    assert!(counted >= unread as f64, "{counted} of {unread}");

    // nginx asks twice about a refused request.
    let gate = Gate::start(&text).await.unwrap();
    let forged = get("/a").sign_for(&wallet("owner"), Address::random(), CHAIN_ID);
    proxy.reset();
    for path in ["/gate/api/a", "/refusal/api/a"] {
        let refused = forged.clone().asking("GET", path).send(gate.url()).await.unwrap();
        assert_refused(&refused, 401, "bad_signature");
    }
    assert_eq!(proxy.posts(), 1);
}

#[tokio::test]
async fn each_of_more_requests_at_once_than_the_gate_may_open_files_is_answered() {
    let configuration = configuration(ReverseProxyKind::Envoy).await;
    let gate = Gate::start_with_descriptors(300, &configuration).await.unwrap();
    open_many_files().unwrap();
    let answers = join_all((0..600).map(|_| plain(gate.url(), "/gate/api/a"))).await;
    for answer in answers {
        assert_refused(&answer, 401, "signature_missing");
    }
}

#[tokio::test]
async fn unfinished_requests_hold_up_no_others() {
    let gate = Gate::start(&configuration(ReverseProxyKind::Envoy).await).await.unwrap();
    let address = gate.url().trim_start_matches("http://");
    let alive = async || {
        let began = Instant::now();
        assert_eq!(plain(gate.url(), "/livez").await.status, 200);
        began.elapsed()
    };
    // Strangers at another address than the proxy's send all but the end of a long content.
    let memory = gate.usage().unwrap().memory_from_here().unwrap();
    let head = "POST /gate/api/ HTTP/1.1\r\nhost: api.example\r\n";
    let long = format!("{head}content-length: {}\r\n\r\n{}", 8 << 20, "x".repeat((8 << 20) - 1));
    let strangers = join_all((0..40).map(async |_| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
        let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
        // The gate may close the connection before all is sent.
        let _ = stream.write_all(long.as_bytes()).await;
        stream
    }))
    .await;
    // They would hold the gate up until it closes them, after ten seconds.
    assert!(alive().await < Duration::from_secs(7));
    let grown = memory.grown().unwrap();
    assert!(grown < 16 << 20, "{grown}");
    drop(strangers);
    open_many_files().unwrap();
    let mut unfinished = Vec::new();
    // More unfinished heads than there are places for connections, and contents without an end.
    for number in 0..4_200 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let content = format!("{head}content-length: 9\r\n\r\n1");
        stream.write_all(if number % 10 == 0 { content.as_bytes() } else { head.as_bytes() }).await.unwrap();
        unfinished.push(stream);
    }
    assert!(alive().await < Duration::from_secs(7));
    assert_eq!(ask(&gate, &signed("/")).await.status, 200);
    // None is left after the time limits of heads and contents.
    let mut answer = Vec::new();
    for mut stream in unfinished {
        let ended = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut answer));
        // The gate may close the connection or reset it.
        let _ = ended.await.expect("it is closed");
    }
    let answers = String::from_utf8_lossy(&answer);
    assert!(answers.contains("content_incomplete"), "{answers}");
}

#[tokio::test]
async fn a_gate_that_can_remember_no_further_nonce_is_not_ready() {
    let text = format!("nonces = 1\n{}", configuration(ReverseProxyKind::Envoy).await);
    let gate = Gate::start(&text).await.unwrap();
    assert_eq!(ask(&gate, &signed("/")).await.status, 200);
    assert_refused(&ask(&gate, &signed("/")).await, 503, "nonce_store_full");
    let ready = plain(gate.url(), "/readyz").await;
    assert!(ready.status == 503 && ready.body.contains("nonces:"), "{ready:?}");
}

#[tokio::test]
async fn an_account_with_code_is_asked_about_each_signature() {
    // This test changes state without blocks, so its chain is not the shared one: proofs on it would fail.
    let chain = chain_of_one().await.unwrap();
    let (proxy, text) = counted(&chain).await;
    let account: Address = "0x00000000000000000000000000000000c0ffee01".parse().unwrap();
    chain.send(chain.owner(), registration_call(3, account, "guarded", 0)).await.unwrap();
    let gate = Gate::start(&text).await.unwrap();
    for (code, status) in [(ACCEPT, 200), (ACCEPT, 200), (REVERT, 401), (ACCEPT, 200)] {
        chain.node.set_code(account, &Bytes::from_static(code)).await.unwrap();
        proxy.reset();
        let request = get("/").sign_for(&wallet("owner"), account, CHAIN_ID);
        let answer = ask(&gate, &request).await;
        assert_eq!((answer.status, proxy.posts()), (status, 1), "{answer:?}");
        match status {
            200 => assert_eq!(answer.header("kya-wallet"), [account.to_checksum(None)]),
            _ => assert_refused(&answer, 401, "bad_signature"),
        }
    }
}

#[tokio::test]
async fn an_agent_is_admitted_once_the_liable_person_that_it_names_attests_for_it() {
    let chain = chain_of_one().await.unwrap();
    let (proxy, text) = counted(&chain).await;
    let person = dev_account(1);
    let named = registration_call(2, wallet("named").address(), "guarded", 0);
    chain.send(chain.owner(), registerAgentCall { haftungsperson: person, ..named }).await.unwrap();
    let text = format!("{text}liable.allow = [\"{person}\"]\nliable.attested-days = 1\n");
    let text = text.replace("[kya]", "[kya]\ncache-seconds = 0");
    let gate = Gate::start(&text).await.unwrap();
    let request = || get("/").sign(&wallet("named"), CHAIN_ID);
    let refused = ask(&gate, &request()).await;
    assert_refused(&refused, 403, "principal_not_allowed");
    assert!(refused.body.contains(r#""type":"liable_not_proved""#), "{refused:?}");

    chain.send(person, attestComplianceCall { agentId: U256::from(2) }).await.unwrap();
    let admitted = ask(&gate, &request()).await;
    assert_eq!(admitted.status, 200, "{admitted:?}");
    assert_eq!(admitted.header("kya-liable-basis"), ["attested"]);
    // An attestation that was found is not looked up again.
    proxy.reset();
    assert_eq!((ask(&gate, &request()).await.status, proxy.calls("eth_getLogs")), (200, 0));
    // It is once it is too old, within `cache-seconds`.
    chain.node.advance(2 * 86_400).await.unwrap();
    assert_refused(&ask(&gate, &request()).await, 403, "principal_not_allowed");
    chain.send(person, attestComplianceCall { agentId: U256::from(2) }).await.unwrap();
    assert_eq!(ask(&gate, &request()).await.status, 200);
}

#[tokio::test]
async fn a_gate_that_observes_admits_and_says_what_it_would_have_done() {
    let gate =
        Gate::start(&(configuration(ReverseProxyKind::Envoy).await + "observe = true\n")).await.unwrap();
    let unsigned = ask(&gate, &get("/").unsigned()).await;
    assert_eq!((unsigned.status, unsigned.header("kya-wallet")), (200, vec![""]));
    // Faults of a client or of the content do not change the answer either. For content that was not compared
    // with its digest no wallet is named.
    let long = Draft::post(ORIGIN, "/", &"x".repeat(9 << 20)).sign(&good(), CHAIN_ID);
    for request in [get("/a/../b").unsigned(), get("/").header("KYA_Wallet", "0x").unsigned(), long] {
        let answer = ask(&gate, &request).await;
        assert_eq!((answer.status, answer.header("kya-wallet")), (200, vec![""]));
    }
    let unknown = ask(&gate, &get("/").sign(&wallet("new"), CHAIN_ID)).await;
    assert_eq!((unknown.status, unknown.header("kya-decision")), (200, vec!["deny"]));
    for (outcome, count) in [
        ("signature_missing", 1.0),
        ("kya_not_allowed", 1.0),
        ("content_too_long", 1.0),
        ("ambiguous_target", 1.0),
        ("reserved_header", 1.0),
    ] {
        let line = format!("kya_gate_requests_total{{outcome=\"{outcome}\",policy=\"api\"}}");
        assert_eq!(gate.metric(&line).await, Some(count), "{outcome}");
    }
    wait_until("logged", PATIENCE, async || {
        let log = gate.log();
        log.contains("\"outcome\":\"kya_not_allowed\"") && log.contains("\"observed\":true")
    })
    .await;
    let address = wallet("new").address().to_checksum(None);
    assert!(!gate.log().contains(&address), "wallets are in no log line unless asked for");
}

#[tokio::test]
async fn every_metric_in_dashboard_and_alerts_is_one_of_the_gates() {
    let (proxy, text) = counted(chain().await).await;
    let text = text.replace("[kya]", "reads-per-second = 2\n[kya]");
    let gate = Gate::start(&text).await.unwrap();
    ask(&gate, &signed("/")).await;
    ask(&gate, &signed("/")).await;
    proxy.inject(FaultRule::any(NodeFault::Refuse).once());
    for _ in 0..3 {
        ask(&gate, &get("/").sign(&PrivateKeySigner::random(), CHAIN_ID)).await;
    }
    let mut metrics = plain(gate.url(), "/metrics").await.body;
    // This metric appears with the first change that a read API announces.
    metrics += "\nkya_gate_changes_total{kind=\"change\"} 0";
    // These appear with configured domains.
    metrics += "\nkya_gate_domain_fetches_total{domain=\"acme.example\",result=\"ok\"} 0";
    metrics += "\nkya_gate_domain_read_seconds{domain=\"acme.example\"} 0";
    metrics += "\nkya_gate_domain_wallets{domain=\"acme.example\",state=\"waiting\"} 0";
    let expressions = expressions("kya-gate").unwrap();
    assert!(expressions.len() > 15, "only {} expressions: what was read?", expressions.len());
    for expression in &expressions {
        let unknown = unknown(expression, &metrics, "kya_gate_");
        assert!(unknown.is_empty(), "{unknown:?}: {expression}\n{metrics}");
    }
}

#[tokio::test]
async fn a_gate_that_waits_for_an_endpoint_before_its_start_ends_in_good_order() {
    for signal in [Signal::TERM, Signal::INT] {
        let endpoint = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", endpoint.local_addr().unwrap());
        let text = configuration_at(ReverseProxyKind::Envoy, &url).await;
        let mut process = Gate::starting(&text).unwrap();
        let accepted = tokio::time::timeout(PATIENCE, endpoint.accept()).await;
        // The connection is held open without an answer.
        let _connection = accepted.expect("it is asked").unwrap();
        process.signal(signal).unwrap();
        assert!(process.exited(PATIENCE).await.unwrap().success(), "{signal:?}: {}", process.log());
    }
}

#[tokio::test]
async fn check_says_what_is_wrong_and_serve_does_not_start_with_it() {
    let right = configuration(ReverseProxyKind::Envoy).await;
    let registry = chain().await.contracts.registry.to_string();
    let silent = format!("http://127.0.0.1:{}", free_port().unwrap());
    let silent = configuration_at(ReverseProxyKind::Envoy, &silent).await;
    let other = right.replace(&registry, "0x00000000000000000000000000000000000000aa");
    let contract = format!("{right}liable.allow = [\"{registry}\"]\n");
    let second_silent = right.replace("rpc = [", "rpc = [\"http://127.0.0.1:1\", ");
    for (text, is_good, words) in [
        (&right, true, "✓ policy"),
        (&second_silent, true, "! source    http://127.0.0.1:1: RPC endpoint unreachable"),
        (&right, true, "http://api.example, Provision"),
        (&contract, true, "which has code: make sure"),
        (&silent, false, "✗ source"),
        (&other, false, "No contract at 0x00000000000000000000000000000000000000AA"),
    ] {
        let (good, report) = Gate::check(text).await.unwrap();
        assert!(good == is_good && report.contains(words), "{words}: {report}");
    }
    let error = Gate::start(&silent).await.unwrap_err().to_string();
    assert!(error.contains("not started"), "{error}");
    let gate = Gate::start(&right).await.unwrap();
    for (path, status) in [("/livez", 200), ("/readyz", 200), ("/metrics", 200), ("/else", 404)] {
        assert_eq!(plain(gate.url(), path).await.status, status, "{path}");
    }
}
