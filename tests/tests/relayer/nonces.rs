//! An assigned nonce ends by being mined and in no other way: by its relay, or by a no-op of ours.
//!
//! 1. A base fee above the cap: the same bytes go out again each block, and the relay is executed once it
//!    fits.
//! 2. A deadline that passes in flight: a no-op takes the nonce, the client gets a 401.
//! 3. A hole before our transaction, left by somebody else's that vanished: filled.

use alloy::primitives::B256;
use alloy::primitives::aliases::U48;
use e2e::anvil::wall_clock;
use e2e::daemon::Daemon;
use e2e::process::eventually;
use e2e::relay::register;
use serde_json::{Value, json};

use crate::audit::{PATIENCE, Stage, agent, post, relayer};

const SEND: &str = "eth_sendRawTransaction";

/// The raw transactions that the proxy has seen.
fn sent(stage: &Stage) -> Vec<Value> {
    let posts = stage.proxy.log().into_iter().filter(|post| post.body["method"] == SEND);
    posts.map(|post| post.body["params"][0].clone()).collect()
}

#[tokio::test]
async fn at_the_fee_cap_the_same_bytes_go_out_until_they_fit() {
    let stage = Stage::set().await;
    let daemon = Daemon::start(&stage.options.clone().var("MAX_FEE_PER_GAS_GWEI", 2)).await.unwrap();
    let client = daemon.client();
    stage.chain.node.set_automine(false).await.unwrap();
    stage.gas_costs(1_000_000_000).await;
    let request = stage.desk.registration(&agent("alice"), 0);
    let answer = stage.post_and_see_sent(&client, &request).await;

    eventually("sent again", PATIENCE, async || {
        stage.gas_costs(5_000_000_000).await;
        stage.chain.node.mine(1).await.unwrap();
        (sent(&stage).len() >= 3).then_some(())
    })
    .await
    .unwrap();
    assert!(!answer.is_finished(), "not given up");
    stage.gas_costs(1_000_000_000).await;
    stage.chain.node.set_automine(true).await.unwrap();
    stage.chain.node.mine(1).await.unwrap();
    answer.await.unwrap().unwrap().ok();
    let all = sent(&stage);
    assert!(all.iter().all(|raw| *raw == all[0]), "the same bytes each time");
    stage.audit(&client, &[&request]).await;
}

#[tokio::test]
async fn a_deadline_that_passes_in_flight_ends_in_a_no_op() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    stage.chain.node.set_automine(false).await.unwrap();
    let alice = agent("alice");
    let mut draft = stage.desk.draft(&alice, 0, &register(alice.address()));
    draft.deadline = U48::from(wall_clock() + 600);
    let request = stage.desk.sign(&alice, draft);
    let answer = stage.post_and_see_sent(&client, &request).await;

    stage.options.move_clock(700);
    eventually("replaced by a no-op", PATIENCE, async || {
        let pool: Value = stage.chain.node.request("txpool_content", json!([])).await.unwrap();
        let ours =
            pool["pending"].as_object().into_iter().flatten().flat_map(|(_, nonces)| nonces["0"].as_object());
        ours.into_iter().any(|transaction| transaction["input"] == "0x").then_some(())
    })
    .await
    .unwrap();
    stage.chain.node.mine(1).await.unwrap();
    let message = "Invalid signature or nonce mismatch";
    answer.await.unwrap().unwrap().refused(401, "DEADLINE_PASSED", message);

    assert_eq!(client.state(&request).await.ok()["state"], "dropped");
    assert_eq!(stage.chain.executions().await.unwrap(), []);
    let transactions = stage.chain.transactions_of(relayer().address()).await.unwrap();
    assert_eq!(transactions.keys().copied().collect::<Vec<_>>(), [0]);
    assert_eq!(
        client.used_wei().await,
        transactions[&0].paid_wei,
        "the no-op is charged, the rest given back"
    );
}

#[tokio::test]
async fn a_hole_that_somebody_else_left_is_filled() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    stage.chain.node.set_automine(false).await.unwrap();
    let foreign = json!([{ "from": relayer().address(), "to": relayer().address(), "value": "0x0" }]);
    let foreign: B256 = stage.chain.node.request("eth_sendTransaction", foreign).await.unwrap();
    let request = stage.desk.registration(&agent("alice"), 0);
    let answer = post(&client, &request);
    eventually("behind the foreign one", PATIENCE, async || {
        let (mined, pending) = stage.chain.nonces_of(relayer().address()).await.unwrap();
        ((mined, pending) == (0, 2)).then_some(())
    })
    .await
    .unwrap();
    let _: Value = stage.chain.node.request("anvil_dropTransaction", json!([foreign])).await.unwrap();
    stage.chain.node.set_automine(true).await.unwrap();

    answer.await.unwrap().unwrap().ok();
    // Both were ours in the end: the no-op in the hole, and the relay behind it.
    let transactions = stage.chain.transactions_of(relayer().address()).await.unwrap();
    assert_eq!(transactions.keys().copied().collect::<Vec<_>>(), [0, 1]);
    assert_ne!(transactions[&0].hash, foreign);
    stage.audit(&client, &[&request]).await;
}
