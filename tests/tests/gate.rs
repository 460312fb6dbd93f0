//! The gate over a local chain and the real read API.
//!
//! 1. Of a thousand concurrent copies of one request exactly one is admitted.
//! 2. A cold request takes one round trip to the chain, a warm one none.
//! 3. An account with code says itself whether it signed: until its owner changes, and never by its key
//!    alone.
//! 4. A suspension refuses as soon as `/changes` announces it, and within `cache-seconds` without.
//! 5. A gate that observes admits, and records what it would have done.

use std::time::{Duration, Instant};

use alloy::hex;
use alloy::primitives::{Address, Bytes, U256};
use e2e::anvil::{AnvilOptions, CHAIN_ID, wall_clock};
use e2e::chain::Chain;
use e2e::gate::{Gate, ORIGIN};
use e2e::process::wait_until;
use e2e::proxy::Proxy;
use e2e::reverse_proxies::Kind;
use e2e::seed::{chain_of_one, registration_call, suspension, wallet};
use e2e::signed_requests::{Draft, Signed};
use e2e::stage::Stage;
use futures_util::future::join_all;
use registry_core::eth::abi::IAgentRegistry::reactivateAgentCall;
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(30);

/// What Envoy asks about a request: the target is behind the policy.
async fn ask(gate: &Gate, request: &Signed) -> e2e::signed_requests::RawAnswer {
    request.asked_by_envoy().send(gate.url()).await.unwrap()
}

fn configuration(rpc: &str, chain: &Chain) -> String {
    Kind::Envoy.gate(ORIGIN, CHAIN_ID, rpc, &chain.contracts.registry.to_string()).unwrap()
}

/// A chain with one agent, of the wallet `good`, and a proxy that counts.
async fn with_agent() -> (Chain, Proxy) {
    let chain = chain_of_one().await.unwrap();
    let proxy = Proxy::start(chain.node.url()).await.unwrap();
    (chain, proxy)
}

async fn register(chain: &Chain, id: u64, agent: Address) {
    chain.send(chain.owner(), registration_call(id, agent, "guarded", 0)).await.unwrap();
}

#[tokio::test]
async fn of_a_thousand_copies_of_a_request_one_is_admitted() {
    let (chain, proxy) = with_agent().await;
    let gate = Gate::start(&configuration(proxy.url(), &chain)).await.unwrap();
    let request = Draft::get(ORIGIN, "/items").sign(&wallet("good"), CHAIN_ID);
    let answers = join_all((0..1_000).map(|_| ask(&gate, &request))).await;
    let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(200), count(401)), (1, 999));
    assert!(answers.iter().all(|answer| answer.status == 200 || answer.body.contains("nonce_reused")));
    assert_eq!(gate.metric("kya_gate_nonces").await, Some(1.0));
}

#[tokio::test]
async fn a_cold_request_takes_one_round_trip_and_a_warm_one_none() {
    let (chain, proxy) = with_agent().await;
    let gate = Gate::start(&configuration(proxy.url(), &chain)).await.unwrap();
    for posts in [1, 0, 0] {
        proxy.reset();
        let answer = ask(&gate, &Draft::get(ORIGIN, "/").sign(&wallet("good"), CHAIN_ID)).await;
        assert_eq!((answer.status, proxy.posts()), (200, posts), "{answer:?}");
    }
    // Nothing about a request that says what it is not costs a round trip.
    let forged = Draft::get(ORIGIN, "/").sign(&wallet("good"), CHAIN_ID).asking("GET", "/other");
    assert_eq!(ask(&gate, &forged).await.status, 401);
    assert_eq!(proxy.posts(), 0);
    // A nonce that a restart has forgotten is refused as one that may have been spent.
    let early = Draft::get(ORIGIN, "/").sign(&wallet("good"), CHAIN_ID);
    let created = wall_clock();
    wait_until("a second later", PATIENCE, async || wall_clock() > created).await;
    let restarted = Gate::start(&configuration(proxy.url(), &chain)).await.unwrap();
    let answer = ask(&restarted, &early).await;
    assert!(answer.status == 401 && answer.body.contains("nonce_reused"), "{answer:?}");
}

#[tokio::test]
async fn an_account_with_code_is_admitted_until_its_owner_changes() {
    let (chain, proxy) = with_agent().await;
    let account: Address = "0x00000000000000000000000000000000c0ffee01".parse().unwrap();
    chain.node.set_code(account, &smart_wallet()).await.unwrap();
    set_owner(&chain, account, wallet("owner").address()).await;
    register(&chain, 2, account).await;
    let gate = Gate::start(&configuration(proxy.url(), &chain)).await.unwrap();
    let signed_by = |key: &str| Draft::get(ORIGIN, "/").sign_for(&wallet(key), account, CHAIN_ID);
    let admitted = ask(&gate, &signed_by("owner")).await;
    assert_eq!(admitted.status, 200, "{admitted:?}");
    assert_eq!(admitted.header("kya-wallet"), [account.to_checksum(None).to_lowercase()]);
    for posts in [1, 1] {
        // It is asked about each signature.
        proxy.reset();
        assert_eq!(ask(&gate, &signed_by("owner")).await.status, 200);
        assert_eq!(proxy.posts(), posts);
    }
    assert_eq!(ask(&gate, &signed_by("good")).await.status, 401, "another owner");
    set_owner(&chain, account, wallet("good").address()).await;
    let refused = ask(&gate, &signed_by("owner")).await;
    assert!(refused.status == 401 && refused.body.contains("bad_signature"), "{refused:?}");
    assert_eq!(ask(&gate, &signed_by("good")).await.status, 200, "the new owner");
}

async fn set_owner(chain: &Chain, account: Address, owner: Address) {
    let slot = U256::ZERO;
    chain.node.command("anvil_setStorageAt", json!([account, slot, owner.into_word()])).await.unwrap();
    chain.node.mine(1).await.unwrap();
}

/// A wallet whose owner, in its first slot, signs for it: what most of them do, by hand.
fn smart_wallet() -> Bytes {
    let recover = [
        "600435600052",         // mstore(0, hash)
        "60a43560f81c602052",   // mstore(32, v)
        "606435604052",         // mstore(64, r)
        "608435606052",         // mstore(96, s)
        "60206000608060006001", // ecrecover: 32 bytes to 0, from 128 bytes at 0
        "5afa50",               // staticcall(gas(), 1, ...)
        "60005460005114",       // recovered == owner
    ]
    .concat();
    let accept = "631626ba7e60e01b60005260206000f3";
    let refuse = "60006000fd";
    let accept_at = (recover.len() + 6 + refuse.len()) / 2;
    hex::decode(format!("{recover}60{accept_at:02x}57{refuse}5b{accept}")).unwrap().into()
}

#[tokio::test]
async fn a_delegated_account_without_the_function_is_refused_although_its_key_signed() {
    let (chain, proxy) = with_agent().await;
    let gate = Gate::start(&configuration(proxy.url(), &chain)).await.unwrap();
    // EIP-7702: the account's code is a delegation, here to the registry's.
    let delegation = [&hex!("ef0100"), chain.contracts.registry.as_slice()].concat();
    chain.node.set_code(wallet("good").address(), &delegation.into()).await.unwrap();
    let refused = ask(&gate, &Draft::get(ORIGIN, "/").sign(&wallet("good"), CHAIN_ID)).await;
    assert!(refused.status == 401 && refused.body.contains("bad_signature"), "{refused:?}");
    let eoa_only = configuration(proxy.url(), &chain) + "accounts = \"eoa-only\"\n";
    let gate = Gate::start(&eoa_only).await.unwrap();
    let refused = ask(&gate, &Draft::get(ORIGIN, "/").sign(&wallet("good"), CHAIN_ID)).await;
    assert_eq!(
        refused.header("www-authenticate"),
        [r#"erc8128 error="unsupported_account", account="eoa-only""#]
    );
}

/// Seconds until the wallet `good` is refused, in requests of its own.
async fn refused_after(gate: &Gate, within: Duration) -> Duration {
    let started = Instant::now();
    wait_until("refused", within, async || {
        let answer = ask(gate, &Draft::get(ORIGIN, "/").sign(&wallet("good"), CHAIN_ID)).await;
        assert!(matches!(answer.status, 200 | 403), "{answer:?}");
        answer.status == 403
    })
    .await;
    started.elapsed()
}

#[tokio::test]
async fn a_suspension_refuses_within_the_caches_time_without_a_restart() {
    let (chain, proxy) = with_agent().await;
    let short = configuration(proxy.url(), &chain).replace("[kya]\n", "[kya]\ncache-seconds = 2\n");
    let gate = Gate::start(&short).await.unwrap();
    assert_eq!(ask(&gate, &Draft::get(ORIGIN, "/").sign(&wallet("good"), CHAIN_ID)).await.status, 200);
    chain.send(chain.owner(), suspension(1, "a test")).await.unwrap();
    let after = refused_after(&gate, Duration::from_secs(10)).await;
    println!("refused {after:?} after the suspension, with cache-seconds = 2");
    assert!(after < Duration::from_secs(4), "{after:?}");
}

#[tokio::test]
async fn a_suspension_refuses_as_soon_as_changes_announces_it() {
    let chain = Chain::start(AnvilOptions::default()).await.unwrap();
    register(&chain, 1, wallet("good").address()).await;
    // The index reads the chain each second while a stream is open.
    let stage = Stage::indexed(chain, |options| options.ttl(1)).await.unwrap();
    let source = format!("api = \"{}\"\ncache-seconds = 600", stage.worker.url());
    let registry = format!("registry = \"{}\"", stage.chain.contracts.registry);
    let text = configuration(stage.chain.node.url(), &stage.chain);
    assert_eq!(text.matches(&registry).count(), 1, "{text}");
    let gate = Gate::start(&text.replace(&registry, &source)).await.unwrap();
    wait_until("followed", PATIENCE, async || gate.metric("kya_gate_following_changes").await == Some(1.0))
        .await;
    assert_eq!(ask(&gate, &Draft::get(ORIGIN, "/").sign(&wallet("good"), CHAIN_ID)).await.status, 200);
    stage.chain.send(stage.chain.owner(), suspension(1, "a test")).await.unwrap();
    wait_until("announced", PATIENCE, async || {
        gate.metric("kya_gate_changes_total{kind=\"change\"}").await == Some(1.0)
    })
    .await;
    // From then on no request is admitted: the first one is refused.
    let answer = ask(&gate, &Draft::get(ORIGIN, "/").sign(&wallet("good"), CHAIN_ID)).await;
    assert!(answer.status == 403 && answer.body.contains("SUSPENDED"), "{answer:?}");
    stage.chain.send(stage.chain.owner(), reactivateAgentCall { agentId: U256::from(1) }).await.unwrap();
    wait_until("admitted again", PATIENCE, async || {
        ask(&gate, &Draft::get(ORIGIN, "/").sign(&wallet("good"), CHAIN_ID)).await.status == 200
    })
    .await;
}

#[tokio::test]
async fn a_gate_that_observes_admits_and_says_what_it_would_have_done() {
    let (chain, proxy) = with_agent().await;
    let gate = Gate::start(&(configuration(proxy.url(), &chain) + "observe = true\n")).await.unwrap();
    let unsigned = ask(&gate, &Draft::get(ORIGIN, "/").unsigned()).await;
    assert_eq!((unsigned.status, unsigned.header("kya-wallet")), (200, vec![""]));
    let unknown = ask(&gate, &Draft::get(ORIGIN, "/").sign(&wallet("new"), CHAIN_ID)).await;
    assert_eq!((unknown.status, unknown.header("kya-decision")), (200, vec!["deny"]));
    let counted = |outcome: &str| format!("kya_gate_requests_total{{outcome=\"{outcome}\",policy=\"api\"}}");
    assert_eq!(gate.metric(&counted("signature_missing")).await, Some(1.0));
    assert_eq!(gate.metric(&counted("kya_not_allowed")).await, Some(1.0));
    let log = gate.log();
    assert!(log.contains("\"outcome\":\"kya_not_allowed\"") && log.contains("\"observed\":true"), "{log}");
    let address = wallet("new").address().to_checksum(None);
    assert!(!log.contains(&address), "wallets are in no log line unless asked for");
}
