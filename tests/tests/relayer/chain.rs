//! An idle daemon notices that a real node's reorganisation has undone a mined transaction, and has it
//! executed again. `relayer-daemon/tests/sender_model.rs` draws random orders of this and other faults.

use crate::prelude::*;

#[tokio::test]
async fn a_relay_that_a_reorganisation_undid_is_executed_again() {
    let stage = RelayerFixture::set().await;
    let (mut daemon, client) = stage.daemon().await;
    stage.register(&client, "alice").await;
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
