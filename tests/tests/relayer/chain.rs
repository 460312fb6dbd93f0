//! A real node's pool and its reorganisations. The orders in which these and other faults come are drawn by
//! `relayer-daemon/tests/sender_model.rs`.
//!
//! A transaction that the node dropped is sent again; blocks that cost ten times as much are answered by a
//! replacement that the node takes; and a reorganisation that takes a mined transaction back is noticed in
//! idle time, and undone.

use alloy::consensus::Transaction as _;

use crate::prelude::*;

#[tokio::test]
async fn a_transaction_outlives_the_nodes_pool_a_tenfold_price_and_a_reorganisation() {
    let stage = Stage::set().await;
    let (mut daemon, client) = stage.daemon().await;
    let request = stage.registration("alice");
    let posted = stage.leave_pending(&client, &request).await;
    let first = stage.sent()[0].clone();
    let hash = *first.tx_hash();
    let dropped: Option<B256> =
        stage.chain.node.request("anvil_dropTransaction", json!([hash])).await.unwrap();
    assert_eq!(dropped, Some(hash));
    wait_until("in the pool again", PATIENCE, async || stage.waiting().await == 1).await;
    assert_eq!(stage.sent().len(), 1, "the same bytes");

    wait_until("mined", PATIENCE, async || {
        // Empty blocks make it cheaper, so each block gets the price anew.
        stage.gas_costs(first.max_fee_per_gas() * 5).await;
        stage.chain.node.mine(1).await.unwrap();
        posted.is_finished()
    })
    .await;
    answer(posted).await.ok();
    let sent = stage.sent();
    assert!(sent.len() > 1, "replaced");
    for pair in sent.windows(2) {
        let [old, new] = [&pair[0], &pair[1]];
        assert_eq!((new.nonce(), new.input(), new.to()), (old.nonce(), old.input(), old.to()));
        let tips = [old, new].map(|transaction| transaction.max_priority_fee_per_gas().unwrap());
        assert!(tips[1] * 10 >= tips[0] * 11, "{tips:?}");
        assert!(new.max_fee_per_gas() * 10 >= old.max_fee_per_gas() * 11, "{old:?} {new:?}");
    }
    let hashes: Vec<&B256> = sent.iter().map(|transaction| transaction.tx_hash()).collect();
    assert_eq!(client.state(&request).await.ok()["txHashes"], json!(hashes), "every transaction tried");

    stage.gas_costs(1_000_000_000).await;
    stage.chain.node.set_automine(true).await.unwrap();
    let before = client.used_wei().await;
    stage.register(&client, "bob").await;
    let undone = client.used_wei().await - before;
    stage.chain.node.reorganise(1).await.unwrap();
    stage.chain.node.mine(2).await.unwrap();
    assert_eq!(stage.chain.executions().await.unwrap().len(), 1, "the second one is gone");
    daemon.logged(&["reorganisation"]).await.unwrap();
    wait_until("executed again", PATIENCE, async || stage.chain.executions().await.unwrap().len() == 2).await;
    stage.audit_after_reorganisation(&client, undone).await;
}
