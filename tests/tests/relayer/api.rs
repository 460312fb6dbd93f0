//! The HTTP surface: the shapes of successful answers, and the headers of every answer. The relay's shapes in
//! each state are in `relayer-daemon/src/http/shapes.rs`.

use e2e::anvil::quantity;
use reqwest::Method;

use crate::prelude::*;

#[tokio::test]
async fn a_key_without_ether_registers_and_attests_and_all_endpoints_have_their_documented_shapes() {
    let stage = RelayerFixture::set().await;
    let (_daemon, client) = stage.daemon().await;
    let (alice, payer) = (agent("alice"), relayer().address().to_checksum(None));
    let contracts = stage.chain.contracts;
    let [registry, forwarder] = [contracts.registry, contracts.forwarder].map(|it| it.to_checksum(None));
    let domain = json!({
        "name": "MinimalForwarder", "version": "1", "chainId": 31337, "verifyingContract": forwarder,
    });
    assert_eq!(client.get("/domain").await.ok(), domain);
    let (ether, wei) = ("10000.000000000000000000", "10000000000000000000000");
    let limit = "50000000000000000";
    let mut status = client.get("/status").await.ok();
    for hash in ["policyHash", "settingsHash"] {
        assert_eq!(status[hash].take().as_str().unwrap().len(), 32);
    }
    let expected = json!({
        "relayer": payer, "balance": ether, "balanceWei": wei, "chainId": 31337, "registry": registry,
        "accounts": [{
            "address": payer, "state": "ready", "balance": ether, "balanceWei": wei, "pending": 0,
        }],
        "gasBudget": { "limitWei": limit, "usedWei": "0", "remainingWei": limit, "resetsAt": null },
        "limits": {
            "perIpPerHour": 0, "perSignerPerHour": 0, "maxRequestGas": 2_000_000, "maxBodyBytes": 65_536,
        },
        "forwarder": forwarder,
        "queue": { "depth": 0, "oldestPendingSeconds": null },
        "operator": { "intake": "open", "cordoned": [] }, "policyHash": null, "settingsHash": null,
        "version": env!("CARGO_PKG_VERSION"),
    });
    assert_eq!(status, expected);
    let path = format!("/nonce/{:#x}", alice.address());
    let shape =
        |next: u64| json!({ "address": alice.address().to_checksum(None), "nonce": next, "next": next });
    assert_eq!(client.get(&path).await.ok(), shape(0));

    let registration = stage.registration("alice");
    let answered = client.relay(&registration).await;
    let mined = stage.chain.transactions_of(relayer().address()).await.unwrap()[&0].clone();
    let receipt: Value =
        stage.chain.node.request("eth_getTransactionReceipt", json!([mined.hash])).await.unwrap();
    let gas_used = quantity(&receipt["gasUsed"]).unwrap();
    let executed = json!({
        "success": true, "id": registration.id, "txHash": mined.hash, "blockNumber": mined.block,
        "gasUsed": gas_used, "agentId": 1,
    });
    assert_eq!(answered.ok(), executed);
    assert_eq!(answered.header("x-relay-id"), registration.id.to_string());
    assert_eq!(answered.header("content-type"), "application/json");
    assert_eq!(client.get(&path).await.ok(), shape(1), "not the one that was read a moment ago");
    let budget = client.get("/status").await.ok()["gasBudget"].clone();
    assert_eq!(budget["remainingWei"], json!((50_000_000_000_000_000 - mined.paid_wei).to_string()));
    assert!(budget["resetsAt"].as_str().unwrap().ends_with(".000Z"), "{budget}");

    let told = json!({
        "id": registration.id, "state": "executed", "txHash": mined.hash, "txHashes": [mined.hash],
        "blockNumber": mined.block, "gasUsed": gas_used, "agentId": 1,
        "confirmations": 1, "finality": "latest",
    });
    assert_eq!(client.state(&registration).await.ok(), told);
    stage.expect([&registration]);
    stage.relay(&client, &stage.desk.request(&alice, 1, &attest(1))).await;
    let read = IAgentRegistry::getAgentByWalletCall { wallet: alice.address() };
    let record = stage.chain.read(stage.chain.contracts.registry, read).await.unwrap();
    assert_eq!((record.agentId, record.creator), (U256::ONE, alice.address()));
    stage.audit(&client).await;
}

#[tokio::test]
async fn a_relays_state_can_be_asked_for_from_its_acceptance_on() {
    let stage = RelayerFixture::set().await.var("RELAY_WAIT_SECONDS", 1);
    let (_daemon, client) = stage.daemon().await;
    // Both register an agent with the same wallet, and each simulation succeeds before either is mined.
    let wanted = register(Address::repeat_byte(0x77));
    let [first, second] = ["alice", "bob"].map(|name| stage.desk.request(&agent(name), 0, &wanted));
    let pending = answer(stage.leave_pending(&client, &first).await).await;
    let hashes: Vec<_> = stage.sent().iter().map(|transaction| *transaction.tx_hash()).collect();
    let body = json!({ "id": first.id, "state": "pending", "txHashes": hashes });
    assert_eq!((pending.status, pending.json()), (202, body.clone()));
    assert_eq!(client.state(&first).await.ok(), body);
    let queue = client.get("/status").await.ok()["queue"].clone();
    assert!(queue["depth"] == 1 && queue["oldestPendingSeconds"].is_u64(), "{queue}");

    assert_eq!(answer(stage.leave_pending(&client, &second).await).await.status, 202);
    stage.mine().await;
    until_executed(&client, &[first]).await;
    wait_until("reverted", PATIENCE, async || state(&client, &second).await == "reverted").await;
    let told = client.state(&second).await.ok();
    assert_eq!(told["error"], "Wallet already registered to another agent");
    assert_eq!(told["code"], "CALL_REVERTED");
    // The reverted relay cost gas, which counts.
    assert_eq!(client.used_wei().await, stage.paid_by(&stage.accounts).await);

    let unknown = stage.desk.registration(&agent("bob"), 7);
    let message = format!("Relay not found: {}", unknown.id);
    client.state(&unknown).await.refused(404, "RELAY_NOT_FOUND", &message);
}

#[tokio::test]
async fn probes_and_metrics_answer_any_page_may_call_and_every_answer_has_a_request_id() {
    let stage = RelayerFixture::set().await;
    let (_daemon, client) = stage.daemon().await;
    assert_eq!(client.get("/livez").await.ok(), json!({ "live": true }));
    let account = json!({ "address": relayer().address().to_checksum(None), "state": "ready" });
    let ready = until_ready_is(&client, 200).await.ok();
    assert_eq!(ready, json!({ "ready": true, "accounts": [account] }));
    stage.register(&client, "alice").await;
    let metrics = client.get("/metrics").await;
    assert_eq!((metrics.status, metrics.header("content-type")), (200, "text/plain; version=0.0.4"));
    let browser = client.with("origin", "https://agents.example");
    let asks = browser.with("access-control-request-method", "POST");
    let asks = asks.with("access-control-request-headers", "content-type");
    let preflight = asks.send(Method::OPTIONS, "/relay").await;
    let [good, bad] = [browser.get("/domain").await, browser.post_relay("{}").await];
    assert_eq!([&preflight, &good, &bad].map(|answer| answer.status), [204, 200, 400]);
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
    // A request id that would break a log line is not echoed.
    for (id, is_plain) in
        [("client-17.b_2", true), ("a b", false), ("<script>", false), (&"x".repeat(65), false)]
    {
        let answer = client.with("x-request-id", id).get("/domain").await;
        assert_eq!(answer.header("x-request-id") == id, is_plain, "{id}");
    }
    for path in ["/", &format!("/nonce/{}/x", Address::ZERO)] {
        client.get(path).await.refused(404, "NOT_FOUND", "Not found");
    }
    for (method, path) in [(Method::GET, "/relay"), (Method::POST, "/status"), (Method::DELETE, "/domain")] {
        let answer = client.send(method.clone(), path).await;
        answer.refused(405, "METHOD_NOT_ALLOWED", "Method not allowed");
        assert!(!answer.header("allow").is_empty(), "{method} {path}");
    }

    stage.chain.node.set_balance(relayer().address(), U256::from(999_999_999_999_999_u64)).await.unwrap();
    until_refusing(&client, "RELAYER_BALANCE_TOO_LOW").await;
}
