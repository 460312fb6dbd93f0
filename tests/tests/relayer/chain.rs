//! Chains that forget, stall, reprice and reorganise: no request is lost, none is executed twice, no nonce is
//! skipped.
//!
//! 1. A transaction that the node dropped is sent again.
//! 2. Mining paused and the base fee up tenfold: a replacement with both fees at least 10 % up, and one
//!    execution.
//! 3. A reorganisation takes a mined transaction back: it is sent again, noticed at the next relay or in idle
//!    time.
//! 4. The node restarted on its port, its pool empty: sent again.
//! 5. Foreign transactions from the relayer's key: before a relay, and in place of one.
//! 6. Somebody else executed the request: a no-op takes the nonce, the client gets a 401.

use alloy::consensus::{Transaction as _, TxEnvelope};
use alloy::eips::eip2718::Decodable2718 as _;
use alloy::hex;
use alloy::primitives::{B256, U256};
use e2e::fault::{Fault, Rule};
use e2e::process::eventually;
use e2e::proxy::Proxy;
use registry_core::eth::abi::IForwarder;
use serde_json::{Value, json};

use crate::audit::{PATIENCE, Stage, agent, relayer};

/// Every transaction that was sent through the proxy, in order, repetitions left out.
pub(crate) fn sent(proxy: &Proxy) -> Vec<TxEnvelope> {
    let mut found: Vec<TxEnvelope> = Vec::new();
    for post in proxy.log() {
        if post.body["method"] == "eth_sendRawTransaction" {
            let raw = hex::decode(post.body["params"][0].as_str().unwrap()).unwrap();
            let transaction = TxEnvelope::decode_2718_exact(&raw).unwrap();
            if found.iter().all(|other| other.tx_hash() != transaction.tx_hash()) {
                found.push(transaction);
            }
        }
    }
    found
}

#[tokio::test]
async fn a_dropped_transaction_is_sent_again() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    stage.chain.node.set_automine(false).await.unwrap();
    let request = stage.desk.registration(&agent("alice"), 0);
    let answer = stage.post_and_see_sent(&client, &request).await;

    let hash = *sent(&stage.proxy)[0].tx_hash();
    let dropped: Option<B256> =
        stage.chain.node.request("anvil_dropTransaction", json!([hash])).await.unwrap();
    assert_eq!(dropped, Some(hash));
    assert_eq!(stage.chain.nonces_of(relayer().address()).await.unwrap(), (0, 0));
    stage.chain.node.set_automine(true).await.unwrap();
    answer.await.unwrap().unwrap().ok();
    assert_eq!(sent(&stage.proxy).len(), 1, "the same bytes");
    stage.audit(&client, &[&request]).await;
}

#[tokio::test]
async fn a_tenfold_base_fee_is_answered_by_a_replacement_with_both_fees_raised() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    stage.chain.node.set_automine(false).await.unwrap();
    let request = stage.desk.registration(&agent("alice"), 0);
    let answer = stage.post_and_see_sent(&client, &request).await;
    let first = sent(&stage.proxy)[0].clone();

    let tenfold = u64::try_from(first.max_fee_per_gas()).unwrap() * 5;
    // Blocks go by, and what is in the pool is too cheap for all of them.
    eventually("replaced", PATIENCE, async || {
        stage.gas_costs(tenfold).await;
        stage.chain.node.mine(1).await.unwrap();
        (sent(&stage.proxy).len() > 1).then_some(())
    })
    .await
    .unwrap();
    stage.gas_costs(tenfold).await;
    eventually("mined", PATIENCE, async || {
        stage.chain.node.mine(1).await.unwrap();
        answer.is_finished().then_some(())
    })
    .await
    .unwrap();
    answer.await.unwrap().unwrap().ok();

    let all = sent(&stage.proxy);
    for pair in all.windows(2) {
        let (old, new) = (&pair[0], &pair[1]);
        assert_eq!((new.nonce(), new.input(), new.to()), (old.nonce(), old.input(), old.to()));
        assert!(new.max_fee_per_gas() * 10 >= old.max_fee_per_gas() * 11, "{old:?} {new:?}");
        let tips = [old, new].map(|transaction| transaction.max_priority_fee_per_gas().unwrap());
        assert!(tips[1] * 10 >= tips[0] * 11, "{tips:?}");
    }
    let hashes: Vec<B256> = all.iter().map(|transaction| *transaction.tx_hash()).collect();
    assert_eq!(client.state(&request).await.ok()["txHashes"], json!(hashes), "every transaction tried");
    stage.audit(&client, &[&request]).await;
}

/// Replaces the last block by an empty one and two more.
async fn reorganise(stage: &Stage) {
    let _: Value = stage.chain.node.request("anvil_reorg", json!([1, []])).await.unwrap();
    stage.chain.node.mine(2).await.unwrap();
}

#[tokio::test]
async fn a_reorganisation_is_noticed_in_idle_time_and_undone() {
    let stage = Stage::set().await;
    let (mut daemon, client) = stage.daemon().await;
    let request = stage.desk.registration(&agent("alice"), 0);
    client.relay(&request).await.ok();
    let undone = client.used_wei().await;
    reorganise(&stage).await;
    assert_eq!(stage.chain.executions().await.unwrap(), [], "it is gone");
    daemon.logged(&["reorganisation"], PATIENCE).await.unwrap();
    eventually("executed again", PATIENCE, async || {
        (stage.chain.executions().await.unwrap().len() == 1).then_some(())
    })
    .await
    .unwrap();
    stage.audit_after_reorganisation(&client, &[&request], undone).await;
}

#[tokio::test]
async fn a_relay_becomes_final_with_its_block_and_its_state_says_so() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    let request = stage.desk.registration(&agent("alice"), 0);
    client.relay(&request).await.ok();
    let state = client.state(&request).await.ok();
    assert_eq!((&state["confirmations"], &state["finality"]), (&json!(1), &json!("latest")));
    stage.chain.node.mine(100).await.unwrap();
    let state = eventually("final", PATIENCE, async || {
        let state = client.state(&request).await.ok();
        (state["finality"] == "finalized").then_some(state)
    })
    .await
    .unwrap();
    assert!(state["confirmations"].as_u64().unwrap() > 100, "{state}");
    stage.audit(&client, &[&request]).await;
}

#[tokio::test]
async fn a_relay_after_a_reorganisation_waits_for_what_the_reorganisation_took_back() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    let first = stage.desk.registration(&agent("alice"), 0);
    client.relay(&first).await.ok();
    let undone = client.used_wei().await;
    reorganise(&stage).await;
    let second = stage.desk.registration(&agent("bob"), 0);
    client.relay(&second).await.ok();
    stage.audit_after_reorganisation(&client, &[&first, &second], undone).await;
}

#[tokio::test]
async fn a_node_that_restarts_without_its_pool_gets_the_transaction_again() {
    let mut stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    let before = stage.desk.registration(&agent("alice"), 0);
    client.relay(&before).await.ok();
    stage.chain.node.set_automine(false).await.unwrap();
    let request = stage.desk.registration(&agent("bob"), 0);
    let answer = stage.post_and_see_sent(&client, &request).await;

    stage.chain.node.stop().await.unwrap();
    let sends = stage.proxy.calls("eth_getTransactionCount");
    eventually("asking a node that is not there", PATIENCE, async || {
        (stage.proxy.calls("eth_getTransactionCount") > sends + 1).then_some(())
    })
    .await
    .unwrap();
    stage.chain.node.resume().await.unwrap();
    answer.await.unwrap().unwrap().ok();
    stage.audit(&client, &[&before, &request]).await;
}

#[tokio::test]
async fn a_foreign_transaction_between_relays_is_stepped_over() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    let first = stage.desk.registration(&agent("alice"), 0);
    client.relay(&first).await.ok();
    let foreign = json!([{ "from": relayer().address(), "to": relayer().address(), "value": "0x0" }]);
    let _: B256 = stage.chain.node.request("eth_sendTransaction", foreign).await.unwrap();
    let second = stage.desk.registration(&agent("bob"), 0);
    client.relay(&second).await.ok();
    let nonces: Vec<u64> = sent(&stage.proxy).iter().map(|transaction| transaction.nonce()).collect();
    assert_eq!(nonces, [0, 2]);
    assert_eq!(stage.chain.executions().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_nonce_taken_by_a_foreign_transaction_costs_time_but_no_request() {
    let mut stage = Stage::set().await;
    // Half a minute goes by before the nonce is given up: a receipt may just be late.
    stage.options = stage.options.clone().var("RELAY_WAIT_SECONDS", 120);
    let (_daemon, client) = stage.daemon().await;
    stage.chain.node.set_automine(false).await.unwrap();
    let request = stage.desk.registration(&agent("alice"), 0);
    let answer = stage.post_and_see_sent(&client, &request).await;

    // The node forgets ours, and somebody with the key is faster with the same nonce.
    stage.proxy.inject(Rule::on("eth_sendRawTransaction", Fault::error(-32000, "nonce too low")).times(3));
    let hash = *sent(&stage.proxy)[0].tx_hash();
    let _: Value = stage.chain.node.request("anvil_dropTransaction", json!([hash])).await.unwrap();
    let foreign =
        json!([{ "from": relayer().address(), "to": relayer().address(), "value": "0x0", "nonce": "0x0" }]);
    let _: B256 = stage.chain.node.request("eth_sendTransaction", foreign).await.unwrap();
    stage.chain.node.mine(5).await.unwrap();
    stage.chain.node.set_automine(true).await.unwrap();

    answer.await.unwrap().unwrap().ok();
    assert_eq!(
        stage.chain.executions().await.unwrap(),
        [(agent("alice").address(), 0, true)],
        "executed once, with another nonce"
    );
    let metrics = client.get("/metrics").await.text;
    assert!(
        metrics
            .lines()
            .any(|line| line.starts_with("relayer_foreign_nonces_total{") && line.ends_with("} 1")),
        "an alarm for the operator"
    );
}

#[tokio::test]
async fn a_request_that_somebody_else_executed_is_not_paid_for_again() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    stage.chain.node.set_automine(false).await.unwrap();
    let request = stage.desk.registration(&agent("alice"), 0);
    let answer = stage.post_and_see_sent(&client, &request).await;
    let first = sent(&stage.proxy)[0].clone();

    // Another relayer has the same signed request and pays a price that ours does not offer.
    let price = first.max_fee_per_gas() * 5;
    let other = json!([{
        "from": e2e::anvil::dev_account(8), "to": stage.chain.contracts.forwarder, "data": first.input(),
        "gas": "0xf4240", "maxFeePerGas": U256::from(price * 2), "maxPriorityFeePerGas": U256::from(price / 10),
    }]);
    let _: B256 = stage.chain.node.request("eth_sendTransaction", other).await.unwrap();
    eventually("given up", PATIENCE, async || {
        stage.gas_costs(u64::try_from(price).unwrap()).await;
        stage.chain.node.mine(1).await.unwrap();
        answer.is_finished().then_some(())
    })
    .await
    .unwrap();
    let message = "Invalid signature or nonce mismatch";
    answer.await.unwrap().unwrap().refused(401, "INVALID_SIGNATURE_OR_NONCE", message);

    let last = sent(&stage.proxy).pop().unwrap();
    assert_eq!((last.to(), last.nonce(), last.input().len()), (Some(relayer().address()), 0, 0), "a no-op");
    assert_eq!(client.state(&request).await.ok()["state"], "dropped");
    assert_eq!(stage.chain.executions().await.unwrap().len(), 1);
    let nonce = IForwarder::getNonceCall { from: agent("alice").address() };
    assert_eq!(stage.chain.read(stage.chain.contracts.forwarder, nonce).await.unwrap(), U256::ONE);
    let transactions = stage.chain.transactions_of(relayer().address()).await.unwrap();
    let paid: u128 = transactions.values().map(|transaction| transaction.paid_wei).sum();
    assert_eq!(client.used_wei().await, paid, "the no-op is charged too");
}
