//! Many transactions mined by one block: how their receipts are read, as a provider bills it.
//!
//! 1. One call for all of them; one for each where the node does not know `eth_getBlockReceipts`, which it is
//!    asked once, and where they are fewer than `BLOCK_RECEIPTS_FROM`.
//! 2. Several accounts with transactions in one block share that call.
//! 3. Receipts that do not come keep no relay from being sent: the count alone makes room in the pool.

use alloy::primitives::Address;
use alloy::signers::local::PrivateKeySigner;
use e2e::anvil::dev_key;
use e2e::daemon::Daemon;
use e2e::fault::{Fault, Rule};
use e2e::process::eventually;
use e2e::relay::{RelayClient, Signed};

use crate::accounts::registrations;
use crate::audit::{PATIENCE, Stage, executed, leave_pending, post, relayer};

const SINGLE: &str = "eth_getTransactionReceipt";
const BLOCK: &str = "eth_getBlockReceipts";
const RELAYS: u64 = 12;

/// Has one block mine twelve relays of these accounts; returns how often a single receipt and a block's were
/// asked for.
async fn calls(
    stage: &Stage,
    client: &RelayClient,
    accounts: &[Address],
    requests: &[Signed],
) -> (usize, usize) {
    leave_pending(stage, client, accounts, requests).await;
    stage.proxy.reset();
    executed(stage, client, requests).await;
    (stage.proxy.calls(SINGLE), stage.proxy.calls(BLOCK))
}

#[tokio::test]
async fn receipts_of_relays_that_one_block_has_mined_are_one_call_where_the_node_knows_it() {
    let stage = Stage::set().await;
    let (mut daemon, client) = stage.daemon().await;
    let accounts = [relayer().address()];
    let mut all = Vec::new();
    let mut round = async |client: &RelayClient, name: &str| {
        let requests = registrations(&stage, name, RELAYS);
        let calls = calls(&stage, client, &accounts, &requests).await;
        all.extend(requests);
        calls
    };
    assert_eq!(round(&client, "by block").await, (0, 1));
    let unknown = Fault::error(-32_601, "the method eth_getBlockReceipts does not exist/is not available");
    stage.proxy.inject(Rule::on(BLOCK, unknown));
    assert_eq!(round(&client, "unknown").await, (12, 1), "as before, and the question");
    assert_eq!(round(&client, "remembered").await, (12, 0));
    stage.proxy.heal();
    daemon.terminate().await.unwrap();

    let options = stage.options.clone().var("BLOCK_RECEIPTS_FROM", RELAYS + 1);
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    assert_eq!(round(&client, "too few").await, (12, 0));
    stage.audit(&client, &all.iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn accounts_whose_transactions_one_block_has_mined_share_its_receipts() {
    let stage = Stage::set().await;
    let keys: Vec<PrivateKeySigner> = (1..=3).map(dev_key).collect();
    let daemon = Daemon::start(&stage.options.clone().keys(&keys)).await.unwrap();
    let requests = registrations(&stage, "shared", RELAYS);
    let accounts: Vec<Address> = keys.iter().map(PrivateKeySigner::address).collect();
    let (single, block) = calls(&stage, &daemon.client(), &accounts, &requests).await;
    // Most often it is one call. On a busy machine an account may look seconds after another.
    assert!(single == 0 && (1..=keys.len()).contains(&block), "{single} and {block} calls");
}

#[tokio::test]
async fn receipts_that_do_not_come_keep_no_relay_from_being_sent() {
    let stage = Stage::set().await;
    // Longer than this test waits.
    let options = stage.options.clone().var("RPC_TIMEOUT_SECONDS", 2 * PATIENCE.as_secs());
    let options = options.var("MAX_PENDING_PER_KEY", 4).var("BLOCK_RECEIPTS_FROM", 0);
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    stage.proxy.inject(Rule::on(SINGLE, Fault::Hang));
    let requests = registrations(&stage, "unanswered", RELAYS);
    for request in &requests {
        drop(post(&client, request));
    }
    eventually("all mined", PATIENCE, async || {
        (stage.chain.nonces_of(relayer().address()).await.unwrap() == (RELAYS, RELAYS)).then_some(())
    })
    .await
    .unwrap();
    daemon.kill();
    stage.proxy.heal();
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    executed(&stage, &client, &requests).await;
    stage.audit(&client, &requests.iter().collect::<Vec<_>>()).await;
}
