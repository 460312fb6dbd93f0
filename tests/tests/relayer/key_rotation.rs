//! Another key takes over: the old one is drained first, budget and requests go on.
//!
//! 1. While the old key has something in flight, a daemon with another key refuses to start, and `check` says
//!    why.
//! 2. After a drain the new key goes on: what the old one paid is in the budget, what it relayed is known and
//!    not paid for twice.
//! 3. Two keys do not share one journal at the same time.

use alloy::signers::local::PrivateKeySigner;
use e2e::anvil::dev_key;
use e2e::daemon::{Daemon, check, drain};
use e2e::relay::attest;

use crate::audit::{PATIENCE, Stage, agent, settled};

fn new_key() -> PrivateKeySigner {
    dev_key(8)
}

#[tokio::test]
async fn a_new_key_takes_over_once_the_old_one_is_drained_with_its_budget_and_its_requests() {
    let stage = Stage::set().await;
    let (old, new) = (stage.options.clone(), stage.options.clone().key(&new_key()));
    let alice = agent("alice");
    let (daemon, client) = stage.daemon().await;
    let first = stage.desk.registration(&alice, 0);
    client.relay(&first).await.ok();
    stage.chain.node.set_automine(false).await.unwrap();
    let second = stage.desk.request(&alice, 1, &attest(1));
    let answer = stage.post_and_see_sent(&client, &second).await;
    let refusal = Daemon::refuse(&new).await.unwrap();
    assert!(refusal.contains("runs with this key or this journal"), "{refusal}");
    daemon.kill();
    assert!(answer.await.unwrap().is_err());

    let words = format!("{} has transactions in flight: run drain with that key first", old.relayer());
    let refusal = Daemon::refuse(&new).await.unwrap();
    assert!(refusal.contains(&words), "{refusal}");
    let (good, printed) = check(&new).await.unwrap();
    assert!(!good && printed.contains(&words), "{printed}");

    stage.chain.node.set_automine(true).await.unwrap();
    stage.chain.node.mine(1).await.unwrap();
    let mut draining = drain(&old).unwrap();
    assert!(draining.exited(PATIENCE).await.unwrap().success(), "{}", draining.log());

    let daemon = Daemon::start(&new).await.unwrap();
    let client = daemon.client();
    let paid_by = async |account| -> u128 {
        let transactions = stage.chain.transactions_of(account).await.unwrap();
        transactions.values().map(|transaction| transaction.paid_wei).sum()
    };
    let paid_by_old = paid_by(old.relayer()).await;
    assert_eq!(client.used_wei().await, paid_by_old, "the budget is carried over");
    for request in [&first, &second] {
        assert_eq!(client.state(request).await.ok()["state"], "executed");
        let message = "Invalid signature or nonce mismatch";
        client.relay(request).await.refused(401, "ALREADY_RELAYED", message);
    }
    let third = stage.desk.request(&alice, 2, &attest(1));
    client.relay(&third).await.ok();
    settled(&client).await;
    assert_eq!(paid_by(old.relayer()).await, paid_by_old, "the old key is not used any more");
    assert_eq!(client.used_wei().await, paid_by_old + paid_by(new.relayer()).await);
    let executed = stage.chain.executions().await.unwrap();
    assert_eq!(executed, [0, 1, 2].map(|nonce| (alice.address(), nonce, true)));
}
