//! The HTTP surface: what good answers look like, and what every answer carries.
//!
//! 1. A registration and an attestation by a key without ETH succeed, in the documented shape, and the chain
//!    agrees.
//! 2. `/domain` is exactly the EIP-712 domain.
//! 3. `/nonce/:address` counts relays in flight; it takes any case, and refuses a wrong checksum.
//! 4. `/status` has its documented fields, and they are true.
//! 5. `GET /relay/:id` tells pending, executed, reverted and dropped apart; unknown and malformed ids are
//!    refused.
//! 6. A receipt that takes too long is a 202, and the outcome is there afterwards.
//! 7. `/livez`, `/readyz` and `/metrics` answer; an empty account is not ready.
//! 8. Browsers may call from any page; request ids are echoed or made; unknown paths and methods are refused.

use alloy::primitives::{Address, U256};
use e2e::anvil::dev_account;
use e2e::daemon::Daemon;
use e2e::process::eventually;
use e2e::relay::{attest, register};
use registry_core::eth::abi::{IAgentRegistry, IForwarder};
use reqwest::Method;
use serde_json::json;

use crate::audit::{PATIENCE, Stage, agent, post, ready, relayer, settled};

/// The names of an object's fields, sorted.
fn keys(value: &serde_json::Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[tokio::test]
async fn a_key_without_ether_registers_and_attests() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    let alice = agent("alice");
    let before = stage.chain.node.time().await.unwrap();

    let registration = stage.desk.registration(&alice, 0);
    let answer = client.relay(&registration).await;
    let body = answer.ok();
    let mined = &stage.chain.transactions_of(relayer().address()).await.unwrap()[&0];
    let receipt: serde_json::Value =
        stage.chain.node.request("eth_getTransactionReceipt", json!([mined.hash])).await.unwrap();
    let gas_used: U256 = serde_json::from_value(receipt["gasUsed"].clone()).unwrap();
    assert_eq!(
        body,
        json!({
            "success": true, "id": registration.id, "txHash": mined.hash, "blockNumber": mined.block,
            "gasUsed": gas_used.to::<u64>(), "agentId": 1,
        })
    );
    assert_eq!(answer.header("x-relay-id"), registration.id.to_string());
    assert_eq!(answer.header("content-type"), "application/json");

    let attestation = stage.desk.request(&alice, 1, &attest(1));
    let body = client.relay(&attestation).await.ok();
    assert_eq!(keys(&body), ["blockNumber", "gasUsed", "id", "success", "txHash"], "no agent was registered");

    let read = IAgentRegistry::getAgentByWalletCall { wallet: alice.address() };
    let record = stage.chain.read(stage.chain.contracts.registry, read).await.unwrap();
    assert_eq!((record.agentId, record.creator), (U256::ONE, alice.address()));
    assert!(record.lastAttestation >= before);
    stage.audit(&client, &[&registration, &attestation]).await;
}

#[tokio::test]
async fn the_read_endpoints_have_their_documented_shapes() {
    let stage = Stage::set().await;
    stage.options.move_clock(0);
    let (_daemon, client) = stage.daemon().await;
    let contracts = stage.chain.contracts;

    assert_eq!(
        client.get("/domain").await.ok(),
        json!({
            "name": "MinimalForwarder", "version": "1", "chainId": 31337,
            "verifyingContract": contracts.forwarder.to_checksum(None),
        })
    );

    let fresh = client.get("/status").await.ok();
    let balance = fresh["balanceWei"].as_str().unwrap().to_owned();
    assert_eq!(balance, U256::from(10_000).saturating_mul(U256::from(10).pow(U256::from(18))).to_string());
    assert_eq!(
        fresh,
        json!({
            "relayer": relayer().address().to_checksum(None),
            "balance": "10000.000000000000000000",
            "balanceWei": balance,
            "accounts": [{
                "address": relayer().address().to_checksum(None), "state": "ready",
                "balance": "10000.000000000000000000", "balanceWei": balance, "pending": 0,
            }],
            "chainId": 31337,
            "registry": contracts.registry.to_checksum(None),
            "forwarder": contracts.forwarder.to_checksum(None),
            "gasBudget": {
                "limitWei": "50000000000000000", "usedWei": "0", "remainingWei": "50000000000000000",
                "resetsAt": null,
            },
            "limits": {
                "perIpPerHour": 0, "perSignerPerHour": 0, "maxRequestGas": 2_000_000, "maxBodyBytes": 65_536,
            },
            "queue": { "depth": 0, "oldestPendingSeconds": null },
            "version": env!("CARGO_PKG_VERSION"),
        })
    );

    client.relay(&stage.desk.registration(&agent("alice"), 0)).await.ok();
    let used = client.get("/status").await.ok();
    let wei = |field: &str| used["gasBudget"][field].as_str().unwrap().parse::<u128>().unwrap();
    let paid = stage.chain.transactions_of(relayer().address()).await.unwrap()[&0].paid_wei;
    assert_eq!((wei("usedWei"), wei("usedWei") + wei("remainingWei")), (paid, wei("limitWei")));
    let resets = used["gasBudget"]["resetsAt"].as_str().unwrap();
    assert!(resets.len() == 24 && resets.ends_with(".000Z"), "{resets}");
}

#[tokio::test]
async fn the_next_nonce_counts_relays_in_flight() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    let alice = agent("alice");
    let address = alice.address();
    let path = format!("/nonce/{address}");
    let shape =
        |nonce: u64, next: u64| json!({ "address": address.to_checksum(None), "nonce": nonce, "next": next });
    assert_eq!(client.get(&path).await.ok(), shape(0, 0));

    stage.chain.node.set_automine(false).await.unwrap();
    let registration = stage.desk.registration(&alice, 0);
    let answer = stage.post_and_see_sent(&client, &registration).await;
    assert_eq!(client.get(&path).await.ok(), shape(0, 1));
    stage.chain.node.mine(1).await.unwrap();
    answer.await.unwrap().unwrap().ok();
    for spelling in [format!("{address}"), format!("{address:#x}"), format!("0x{:X}", address)] {
        let spelling = spelling.replace("0x0x", "0x");
        assert_eq!(client.get(&format!("/nonce/{spelling}")).await.ok(), shape(1, 1), "{spelling}");
    }

    let flipped: String = address
        .to_checksum(None)
        .chars()
        .enumerate()
        .map(|(at, c)| match c {
            _ if at < 2 => c,
            c if c.is_ascii_uppercase() => c.to_ascii_lowercase(),
            c => c.to_ascii_uppercase(),
        })
        .collect();
    let message = "Invalid address: must be 0x and 40 hex digits, with a right checksum if in mixed case";
    for bad in [flipped.as_str(), "0x12", "alice.eth", &address.to_string()[2..], &format!("{address}00")] {
        client.get(&format!("/nonce/{bad}")).await.refused(400, "INVALID_ADDRESS", message);
    }
}

#[tokio::test]
async fn a_relays_state_can_be_asked_for_from_its_acceptance_on() {
    let stage = Stage::set().await;
    let options = stage.options.clone().var("RELAY_WAIT_SECONDS", 1);
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let (alice, bob) = (agent("alice"), agent("bob"));

    stage.chain.node.set_automine(false).await.unwrap();
    let registration = stage.desk.registration(&alice, 0);
    let answer = client.relay(&registration).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let pending = answer.json();
    let hashes = pending["txHashes"].as_array().unwrap();
    assert_eq!(pending, json!({ "id": registration.id, "state": "pending", "txHashes": [hashes[0]] }));
    assert_eq!(client.state(&registration).await.ok(), pending);
    assert_eq!(answer.header("x-relay-id"), registration.id.to_string());
    let queue = client.get("/status").await.ok()["queue"].clone();
    assert_eq!(queue["depth"], 1);
    assert!(queue["oldestPendingSeconds"].as_u64().is_some_and(|age| age < 10), "{queue}");

    stage.chain.node.mine(1).await.unwrap();
    stage.chain.node.set_automine(true).await.unwrap();
    settled(&client).await;
    let executed = client.state(&registration).await.ok();
    assert_eq!(
        keys(&executed),
        [
            "agentId",
            "blockNumber",
            "confirmations",
            "finality",
            "gasUsed",
            "id",
            "state",
            "txHash",
            "txHashes"
        ],
        "{executed}"
    );
    assert_eq!((&executed["state"], &executed["agentId"]), (&json!("executed"), &json!(1)));
    assert_eq!((&executed["txHash"], &executed["txHashes"]), (&hashes[0], &json!([hashes[0]])));

    // Refused before anything was sent: dropped, with the reason.
    let refused = stage.desk.request(&bob, 0, &attest(9));
    client.relay(&refused).await.refused(500, "CALL_REVERTED", "Agent not found");
    assert_eq!(
        client.state(&refused).await.ok(),
        json!({
            "id": refused.id, "state": "dropped", "error": "Agent not found", "code": "CALL_REVERTED", "txHashes": [],
        })
    );

    let unknown = stage.desk.registration(&bob, 7);
    let message = format!("Relay not found: {}", unknown.id);
    client.state(&unknown).await.refused(404, "RELAY_NOT_FOUND", &message);
    for malformed in ["0x12", "latest", &format!("{}00", unknown.id)] {
        let message = "Invalid relay id: must be 0x and 64 hex digits";
        client.get(&format!("/relay/{malformed}")).await.refused(400, "INVALID_ID", message);
    }
}

#[tokio::test]
async fn a_call_that_fails_only_when_it_is_mined_is_reverted_and_not_executed() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    let (alice, bob) = (agent("alice"), agent("bob"));
    stage.chain.node.set_automine(false).await.unwrap();

    // Both want the same wallet for their agent, and both are told in advance that they may have it.
    let wanted = register(Address::repeat_byte(0x77));
    let first = stage.desk.request(&alice, 0, &wanted);
    let second = stage.desk.request(&bob, 0, &wanted);
    let first_answer = stage.post_and_see_sent(&client, &first).await;
    let second_answer = post(&client, &second);
    eventually("both sent", PATIENCE, async || {
        let (mined, pending) = stage.chain.nonces_of(relayer().address()).await.unwrap();
        (pending == mined + 2).then_some(())
    })
    .await
    .unwrap();
    stage.chain.node.mine(1).await.unwrap();

    first_answer.await.unwrap().unwrap().ok();
    let message = "Wallet already registered to another agent";
    second_answer.await.unwrap().unwrap().refused(500, "CALL_REVERTED", message);
    let state = client.state(&second).await.ok();
    assert_eq!((&state["state"], &state["error"]), (&json!("reverted"), &json!(message)));
    assert!(state["txHash"].is_string(), "{state}");

    // The failed one cost gas and a nonce of its signer, and counts.
    let used = client.used_wei().await;
    let transactions = stage.chain.transactions_of(relayer().address()).await.unwrap();
    assert_eq!(used, transactions.values().map(|transaction| transaction.paid_wei).sum::<u128>());
    let nonce = IForwarder::getNonceCall { from: bob.address() };
    assert_eq!(stage.chain.read(stage.chain.contracts.forwarder, nonce).await.unwrap(), U256::ONE);
    client.relay(&second).await.refused(401, "ALREADY_RELAYED", "Invalid signature or nonce mismatch");
}

#[tokio::test]
async fn probes_and_metrics_answer_and_an_empty_account_is_not_ready() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    assert_eq!(client.get("/livez").await.ok(), json!({ "live": true }));
    ready(&client, PATIENCE).await;
    let account = json!({ "address": relayer().address().to_checksum(None), "state": "ready" });
    assert_eq!(client.get("/readyz").await.ok(), json!({ "ready": true, "accounts": [account] }));

    client.relay(&stage.desk.registration(&agent("alice"), 0)).await.ok();
    let metrics = client.get("/metrics").await;
    assert_eq!((metrics.status, metrics.header("content-type")), (200, "text/plain; version=0.0.4"));
    for line in [
        "relayer_relays_total{state=\"executed\"} 1",
        "relayer_relay_seconds_count 1",
        "relayer_http_requests_total{route=\"relay\",status=\"200\"} 1",
        &format!("relayer_transactions_total{{account=\"{}\",purpose=\"relay\"}} 1", relayer().address()),
        "relayer_queue_depth 0",
        "relayer_budget_limit_wei 50000000000000000",
    ] {
        assert!(metrics.text.lines().any(|found| found == line), "{line} not in:\n{}", metrics.text);
    }

    stage.chain.node.set_balance(relayer().address(), U256::from(999_999_999_999_999_u64)).await.unwrap();
    let not_ready = eventually("not ready", PATIENCE, async || {
        Some(client.get("/readyz").await).filter(|answer| answer.status != 200)
    });
    let message = "Relayer balance too low. Please try again later or use direct mode.";
    not_ready.await.unwrap().refused(503, "RELAYER_BALANCE_TOO_LOW", message);
    assert_eq!(client.get("/livez").await.ok(), json!({ "live": true }), "alive all the same");
}

#[tokio::test]
async fn any_page_may_call_and_every_answer_has_a_request_id() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    let browser = client.with("origin", "https://agents.example");

    let preflight = browser
        .with("access-control-request-method", "POST")
        .with("access-control-request-headers", "content-type")
        .send(Method::OPTIONS, "/relay", None)
        .await
        .unwrap();
    assert_eq!(preflight.status, 204);
    let good = browser.get("/domain").await;
    let bad = browser.post("{}").await;
    assert_eq!((good.status, bad.status), (200, 400));
    for answer in [&preflight, &good, &bad] {
        assert_eq!(answer.header("access-control-allow-origin"), "*");
        assert_eq!(answer.header("cache-control"), "no-store");
        for exposed in ["X-Request-Id", "Retry-After"] {
            assert!(answer.header("access-control-expose-headers").contains(exposed));
        }
        assert!(answer.header("x-request-id").len() >= 16, "{:?}", answer.headers);
    }
    assert!(preflight.header("access-control-allow-headers").contains("Content-Type"));
    assert!(preflight.header("access-control-allow-methods").contains("POST"));

    assert_ne!(good.header("x-request-id"), bad.header("x-request-id"));
    let named = client.with("x-request-id", "client-17.b_2").get("/domain").await;
    assert_eq!(named.header("x-request-id"), "client-17.b_2");
    // Nothing that would break a log line comes back.
    for forged in ["a b", "<script>", &"x".repeat(65)] {
        let answer = client.with("x-request-id", forged).get("/domain").await;
        assert_ne!(answer.header("x-request-id"), forged);
    }

    client.get("/").await.refused(404, "NOT_FOUND", "Not found");
    client.get(&format!("/nonce/{}/x", dev_account(0))).await.refused(404, "NOT_FOUND", "Not found");
    for (method, path) in [(Method::GET, "/relay"), (Method::POST, "/status"), (Method::DELETE, "/domain")] {
        let answer = client.send(method.clone(), path, None).await.unwrap();
        answer.refused(405, "METHOD_NOT_ALLOWED", "Method not allowed");
        assert!(!answer.header("allow").is_empty(), "{method} {path}");
    }
}
