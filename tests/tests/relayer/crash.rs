//! Death at any moment: each request is executed at most once, no accepted one is lost, no nonce is skipped,
//! and the budget is unchanged.

use crate::prelude::*;

/// Crash points of `relayer-daemon/src/process/faults.rs` that each relay passes.
const POINTS: &str = "after_accept after_reserve after_simulate after_nonce after_sign after_journal \
    after_send after_receipt before_settle after_settle before_answer";

#[tokio::test]
async fn nothing_is_lost_and_nothing_done_twice_by_death_at_any_point() {
    let stage = RelayerFixture::set().await;
    for point in POINTS.split(' ') {
        // The daemon dies when the point is passed for the second time, and survives the first relay.
        let (daemon, client) = start(&stage.options.clone().var("CRASH_AT", format!("{point}:2"))).await;
        let signer = agent(point);
        let request = |nonce: u64| {
            let wallet = agent(&format!("{point} {nonce}")).address();
            stage.desk.request(&signer, nonce, &register(wallet))
        };
        stage.relay(&client, &request(0)).await;
        let used = client.used_wei().await;
        // Two more requests of this signer and the first of another one, at once.
        let requests = [request(1), request(2), stage.registration(&format!("beside {point}"))];
        stage.expect(&requests);
        let answers = requests.each_ref().map(|request| post(&client, request));
        daemon.crashed(point).await.unwrap();
        for posted in answers {
            // Some have their answer already, which then is right.
            if let Ok(answer) = posted.await.unwrap() {
                answer.ok();
            }
        }
        let (_daemon, client) = stage.daemon().await;
        assert!(client.used_wei().await >= used, "{point}: a restart refills nothing");
        // Accepted requests go on without their clients.
        wait_until("settled", PATIENCE, async || client.metric("relayer_queue_depth").await == 0.0).await;
        for request in &requests {
            // The client retries after the lost connection. 401: it was executed, which the audit checks.
            assert!([200, 401].contains(&client.relay(request).await.status));
        }
        stage.audit(&client).await;
    }
}

#[tokio::test]
async fn a_replacement_that_was_journalled_but_not_sent_is_sent_after_the_restart() {
    let stage = RelayerFixture::set().await;
    let (mut daemon, client) = start(&stage.options.clone().var("CRASH_AT", "before_replacement_send")).await;
    let request = stage.registration("alice");
    let posted = stage.leave_pending(&client, &request).await;
    // Far above the fee that was offered at one gwei.
    let mine_dear_block = async || {
        stage.gas_costs(20_000_000_000).await;
        stage.chain.node.mine(1).await.unwrap();
    };
    wait_until("replaced, and dead", PATIENCE, async || {
        mine_dear_block().await;
        daemon.process().exit_status().unwrap().is_some()
    })
    .await;
    daemon.crashed("before_replacement_send").await.unwrap();
    assert!(posted.await.unwrap().is_err(), "the client lost its connection");

    let (_daemon, client) = stage.daemon().await;
    wait_until("settled", PATIENCE, async || {
        mine_dear_block().await;
        client.metric("relayer_queue_depth").await == 0.0
    })
    .await;
    stage.audit(&client).await;
    let state = client.state(&request).await.ok();
    assert!(state["txHashes"].as_array().unwrap().len() >= 2, "{state}");
}
