//! The same promises whatever the time between blocks: 200 ms, 2 s, 12 s, and a block for each transaction.
//!
//! 1. Relays of several signers, two of one signer: each executed once and charged once, nothing replaced at
//!    a flat market; and a kill with a transaction on its way changes nothing of that. All four.
//! 2. A transaction that the node takes and forgets is sent again. 200 ms and 2 s.
//! 3. A tenfold base fee is answered by a replacement. 200 ms and 2 s.
//! 4. Receipts that come a hundred blocks late: unknown is not dropped. 200 ms.

use std::time::Duration;

use alloy::consensus::Transaction as _;
use e2e::anvil::AnvilOptions;
use e2e::fault::{Fault, Rule};
use e2e::process::eventually;
use e2e::relay::{RelayClient, register};
use serde_json::{Value, json};

use crate::audit::{PATIENCE, Stage, agent, post};
use crate::chain::sent;

async fn blocks_of_200_ms() -> Stage {
    Stage::on(AnvilOptions { block_time: Some(Duration::from_millis(200)), ..AnvilOptions::default() }).await
}

/// The contracts are deployed at once.
async fn blocks_of(seconds: u64) -> Stage {
    let stage = Stage::set().await;
    stage.chain.node.set_block_seconds(seconds).await.unwrap();
    stage
}

async fn replacements(client: &RelayClient) -> String {
    let metrics = client.get("/metrics").await.text;
    let line = metrics.lines().find_map(|line| line.strip_prefix("relayer_replacements_total "));
    line.unwrap_or_else(|| panic!("{metrics}")).to_owned()
}

async fn each_request_is_executed_once_and_charged_once(mut stage: Stage) {
    stage.options = stage.options.clone().var("RELAY_WAIT_SECONDS", 100);
    let (daemon, client) = stage.daemon().await;
    let alice = agent("alice");
    let requests = [
        stage.desk.registration(&alice, 0),
        stage.desk.registration(&agent("bob"), 0),
        stage.desk.request(&alice, 1, &register(agent("alice's second").address())),
    ];
    let [first, bobs, second] = requests.each_ref().map(|request| post(&client, request));
    for answer in [first, bobs] {
        answer.await.unwrap().unwrap().ok();
    }
    assert_eq!(replacements(&client).await, "0", "at a flat market");

    // Alice's second waited for her first, so it goes out only now.
    eventually("sent", PATIENCE, async || (sent(&stage.proxy).len() == requests.len()).then_some(()))
        .await
        .unwrap();
    daemon.kill();
    // An answer or none: it may have been mined already.
    let _ = second.await.unwrap();
    let (_daemon, client) = stage.daemon().await;
    stage.audit(&client, &requests.iter().collect::<Vec<_>>()).await;
    assert_eq!(sent(&stage.proxy).len(), requests.len(), "one transaction for each");
}

#[tokio::test]
async fn in_blocks_of_200_ms_each_request_is_executed_once_and_charged_once() {
    each_request_is_executed_once_and_charged_once(blocks_of_200_ms().await).await;
}

#[tokio::test]
async fn in_blocks_of_2_s_each_request_is_executed_once_and_charged_once() {
    each_request_is_executed_once_and_charged_once(blocks_of(2).await).await;
}

#[tokio::test]
async fn in_blocks_of_12_s_each_request_is_executed_once_and_charged_once() {
    each_request_is_executed_once_and_charged_once(blocks_of(12).await).await;
}

#[tokio::test]
async fn in_instant_blocks_each_request_is_executed_once_and_charged_once() {
    each_request_is_executed_once_and_charged_once(Stage::set().await).await;
}

/// The node says that it has the transaction, once, and does not have it.
fn taken_and_forgotten() -> Rule {
    let hash = format!("{:#066x}", 1);
    Rule::on("eth_sendRawTransaction", Fault::Result(json!(hash))).once()
}

async fn a_forgotten_transaction_is_sent_again(stage: Stage) {
    let (_daemon, client) = stage.daemon().await;
    let request = stage.desk.registration(&agent("alice"), 0);
    stage.proxy.inject(taken_and_forgotten());
    client.relay(&request).await.ok();
    assert_eq!(sent(&stage.proxy).len(), 1, "the same bytes");
    assert!(stage.proxy.calls("eth_sendRawTransaction") > 1);
    stage.audit(&client, &[&request]).await;
}

#[tokio::test]
async fn in_blocks_of_200_ms_a_forgotten_transaction_is_sent_again() {
    a_forgotten_transaction_is_sent_again(blocks_of_200_ms().await).await;
}

#[tokio::test]
async fn in_blocks_of_2_s_a_forgotten_transaction_is_sent_again() {
    a_forgotten_transaction_is_sent_again(blocks_of(2).await).await;
}

async fn a_tenfold_base_fee_is_answered_by_a_replacement(stage: Stage) {
    let (_daemon, client) = stage.daemon().await;
    let request = stage.desk.registration(&agent("alice"), 0);
    // No block takes the first one before the price has gone up.
    stage.proxy.inject(taken_and_forgotten());
    let answer = post(&client, &request);
    eventually("sent", PATIENCE, async || (!sent(&stage.proxy).is_empty()).then_some(())).await.unwrap();
    let first = sent(&stage.proxy)[0].max_fee_per_gas();
    eventually("mined", PATIENCE, async || {
        // Empty blocks make it cheaper, so each block gets the price anew.
        stage.gas_costs(u64::try_from(first).unwrap() * 5).await;
        answer.is_finished().then_some(())
    })
    .await
    .unwrap();
    answer.await.unwrap().unwrap().ok();
    for pair in sent(&stage.proxy).windows(2) {
        assert!(pair[1].max_fee_per_gas() * 10 >= pair[0].max_fee_per_gas() * 11, "{pair:?}");
        let tips = [&pair[0], &pair[1]].map(|transaction| transaction.max_priority_fee_per_gas().unwrap());
        assert!(tips[1] * 10 >= tips[0] * 11, "{tips:?}");
    }
    assert!(sent(&stage.proxy).len() > 1, "replaced");
    stage.audit(&client, &[&request]).await;
}

#[tokio::test]
async fn in_blocks_of_200_ms_a_tenfold_base_fee_is_answered_by_a_replacement() {
    a_tenfold_base_fee_is_answered_by_a_replacement(blocks_of_200_ms().await).await;
}

#[tokio::test]
async fn in_blocks_of_2_s_a_tenfold_base_fee_is_answered_by_a_replacement() {
    a_tenfold_base_fee_is_answered_by_a_replacement(blocks_of(2).await).await;
}

#[tokio::test]
async fn in_blocks_of_200_ms_a_receipt_that_is_a_hundred_blocks_late_drops_nothing() {
    let mut stage = blocks_of_200_ms().await;
    stage.options = stage.options.clone().var("RELAY_WAIT_SECONDS", 100);
    let (_daemon, client) = stage.daemon().await;
    let request = stage.desk.registration(&agent("alice"), 0);
    stage.proxy.inject(Rule::on("eth_getTransactionReceipt", Fault::Result(Value::Null)));
    let answer = post(&client, &request);
    eventually("executed", PATIENCE, async || {
        (stage.chain.executions().await.unwrap().len() == 1).then_some(())
    })
    .await
    .unwrap();
    let block = async || {
        let block: alloy::primitives::U64 =
            stage.chain.node.request("eth_blockNumber", json!([])).await.unwrap();
        block.to::<u64>()
    };
    let mined = block().await;
    eventually("a hundred blocks", PATIENCE, async || (block().await >= mined + 100).then_some(()))
        .await
        .unwrap();
    assert_eq!(client.state(&request).await.ok()["state"], "pending", "unknown is not dropped");
    stage.proxy.heal();
    answer.await.unwrap().unwrap().ok();
    assert_eq!(sent(&stage.proxy).len(), 1);
    stage.audit(&client, &[&request]).await;
}
