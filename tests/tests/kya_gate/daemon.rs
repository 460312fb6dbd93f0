//! The daemon itself.
//!
//! 1. A cold request takes one round trip to the chain, a warm one none, and a forged one none.
//! 2. An account with code says itself whether it signed (ERC-1271), each time.
//! 3. A gate that observes admits, and records what it would have done.
//! 4. `check` says what is wrong, and `serve` does not start with it.

use alloy::hex;
use alloy::primitives::{Address, Bytes};
use e2e::anvil::{CHAIN_ID, wall_clock};
use e2e::chain::Chain;
use e2e::gate::Gate;
use e2e::http;
use e2e::process::{free_port, wait_until};
use e2e::proxy::Proxy;
use e2e::reverse_proxies::Kind;
use e2e::seed::{chain_of_one, registration_call, wallet};

use crate::{WAIT, ask, assert_refused, chain, configuration, configuration_at, get, signed};

/// `mstore(0, shl(224, 0x1626ba7e)) return(0, 32)`: an account that accepts every signature.
const ACCEPT: &[u8] = &hex!("631626ba7e60e01b60005260206000f3");
/// One that accepts none.
const REVERT: &[u8] = &hex!("60006000fd");

/// A proxy that counts, and the configuration of a gate that reads the chain through it.
async fn counted(chain: &Chain) -> (Proxy, String) {
    let proxy = Proxy::start(chain.node.url()).await.unwrap();
    let text = configuration_at(Kind::Envoy, proxy.url()).await;
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
    // A nonce that a restart has forgotten is refused as one that may have been spent.
    let early = signed("/");
    let created = wall_clock();
    wait_until("a second later", WAIT, async || wall_clock() > created).await;
    let restarted = Gate::start(&text).await.unwrap();
    assert_refused(&ask(&restarted, &early).await, 401, "nonce_reused");
}

#[tokio::test]
async fn an_account_with_code_is_asked_about_each_signature() {
    // Its state changes without blocks, in which nothing could be proved to others.
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
async fn a_gate_that_observes_admits_and_says_what_it_would_have_done() {
    let gate = Gate::start(&(configuration(Kind::Envoy).await + "observe = true\n")).await.unwrap();
    let unsigned = ask(&gate, &get("/").unsigned()).await;
    assert_eq!((unsigned.status, unsigned.header("kya-wallet")), (200, vec![""]));
    let unknown = ask(&gate, &get("/").sign(&wallet("new"), CHAIN_ID)).await;
    assert_eq!((unknown.status, unknown.header("kya-decision")), (200, vec!["deny"]));
    for outcome in ["signature_missing", "kya_not_allowed"] {
        let line = format!("kya_gate_requests_total{{outcome=\"{outcome}\",policy=\"api\"}}");
        assert_eq!(gate.metric(&line).await, Some(1.0), "{outcome}");
    }
    wait_until("logged", WAIT, async || {
        let log = gate.log();
        log.contains("\"outcome\":\"kya_not_allowed\"") && log.contains("\"observed\":true")
    })
    .await;
    let address = wallet("new").address().to_checksum(None);
    assert!(!gate.log().contains(&address), "wallets are in no log line unless asked for");
}

#[tokio::test]
async fn check_says_what_is_wrong_and_serve_does_not_start_with_it() {
    let right = configuration(Kind::Envoy).await;
    let registry = chain().await.contracts.registry.to_string();
    let silent = format!("http://127.0.0.1:{}", free_port().unwrap());
    let silent = configuration_at(Kind::Envoy, &silent).await;
    let other = right.replace(&registry, "0x00000000000000000000000000000000000000aa");
    for (text, is_good, words) in [
        (&right, true, "✓ policy"),
        (&right, true, "http://api.example, Provision"),
        (&silent, false, "✗ source"),
        (&other, false, "No contract at 0x00000000000000000000000000000000000000AA"),
    ] {
        let (good, report) = Gate::check(text).await.unwrap();
        assert!(good == is_good && report.contains(words), "{words}: {report}");
    }
    let error = Gate::start(&silent).await.unwrap_err().to_string();
    assert!(error.contains("not started"), "{error}");
    let gate = Gate::start(&right).await.unwrap();
    for (path, status) in [("livez", 200), ("readyz", 200), ("metrics", 200), ("else", 404)] {
        let answer = http::client(WAIT).get(format!("{}/{path}", gate.url())).send().await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
    }
}
