//! Dying at any moment: each request is executed at most once, none that was accepted is lost, no nonce is
//! skipped, and the budget is what it was.
//!
//! 1. Dead at each named point of the pipeline, with other requests before it and beside it, and started
//!    again.
//! 2. Dead after a replacement was journalled and before it was sent.
//! 3. Dead while the transaction waits in the pool: the reservation is as before, the client is told the
//!    outcome.
//! 4. SIGTERM during a relay: gone within 5 seconds with a clean exit, and the relay goes on after a restart.
//! 5. A second process with the same key is refused as long as the first one lives.

use std::time::Duration;

use e2e::daemon::Daemon;
use e2e::process::eventually;
use e2e::relay::{RelayClient, Signed, attest};
use serde_json::json;

use crate::audit::{PATIENCE, Stage, agent, post, settled};

/// What a client does that lost its connection: sends the same signed request until it knows the outcome.
async fn insist(client: &RelayClient, request: &Signed) {
    let answer = client.relay(request).await;
    if answer.status == 401 {
        // Relayed before: the journal knows how it ended.
        assert_eq!(client.state(request).await.ok()["state"], "executed", "{}", answer.text);
    } else {
        answer.ok();
    }
}

/// Dies at the second passage of `point`; the first relay passed it alive.
async fn survives_death_at(point: &str) {
    let stage = Stage::set().await;
    let options = stage.options.clone().crash_at(&format!("{point}:2"));
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let alice = agent("alice");
    let first = stage.desk.registration(&alice, 0);
    client.relay(&first).await.ok();
    let used = client.used_wei().await;

    // One signer's next two, and another signer's first, all at once.
    let requests = [
        stage.desk.request(&alice, 1, &attest(1)),
        stage.desk.request(&alice, 2, &attest(1)),
        stage.desk.registration(&agent("bob"), 0),
    ];
    let answers: Vec<_> = requests.iter().map(|request| post(&client, request)).collect();
    daemon.crashed(point).await.unwrap();
    for answer in answers {
        // Some had their answer already; none had a wrong one.
        if let Ok(answer) = answer.await.unwrap() {
            answer.ok();
        }
    }

    let (_daemon, client) = stage.daemon().await;
    assert!(client.used_wei().await >= used, "{point}: a restart refills nothing");
    // Whatever had been accepted goes on without its client.
    settled(&client).await;
    for request in &requests {
        insist(&client, request).await;
    }
    stage.audit(&client, &[&first, &requests[0], &requests[1], &requests[2]]).await;
}

macro_rules! dead_at {
    ($($name:ident),* $(,)?) => {$(
        #[tokio::test]
        async fn $name() {
            survives_death_at(stringify!($name)).await;
        }
    )*};
}

/// One test for each point of the pipeline, named after it.
mod nothing_is_lost_and_nothing_done_twice_by_death {
    use super::survives_death_at;

    dead_at!(
        after_accept,
        after_reserve,
        after_simulate,
        after_nonce,
        after_sign,
        after_journal,
        after_send,
        after_receipt,
        before_settle,
        after_settle,
        before_answer,
    );
}

#[tokio::test]
async fn a_replacement_that_was_journalled_but_not_sent_is_sent_after_the_restart() {
    let stage = Stage::set().await;
    let options = stage.options.clone().crash_at("before_replacement_send");
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    stage.chain.node.set_automine(false).await.unwrap();
    let request = stage.desk.registration(&agent("alice"), 0);
    let answer = stage.post_and_see_sent(&client, &request).await;
    // 20 gwei: far above what was offered when it was 1.
    eventually("replaced, and dead", PATIENCE, async || {
        stage.gas_costs(20_000_000_000).await;
        stage.chain.node.mine(1).await.unwrap();
        answer.is_finished().then_some(())
    })
    .await
    .unwrap();
    assert!(answer.await.unwrap().is_err(), "the client lost its connection");
    daemon.crashed("before_replacement_send").await.unwrap();

    let (_daemon, client) = stage.daemon().await;
    eventually("settled", PATIENCE, async || {
        stage.gas_costs(20_000_000_000).await;
        stage.chain.node.mine(1).await.unwrap();
        (client.depth().await == 0).then_some(())
    })
    .await
    .unwrap();
    stage.audit(&client, &[&request]).await;
    let state = client.state(&request).await.ok();
    assert!(state["txHashes"].as_array().unwrap().len() >= 2, "{state}");
}

#[tokio::test]
async fn killed_with_a_transaction_in_the_pool_the_reservation_stays_and_the_outcome_comes() {
    let stage = Stage::set().await;
    let (daemon, client) = stage.daemon().await;
    stage.chain.node.set_automine(false).await.unwrap();
    let request = stage.desk.registration(&agent("alice"), 0);
    let answer = stage.post_and_see_sent(&client, &request).await;
    let reserved = client.used_wei().await;
    let state = client.state(&request).await.ok();
    daemon.kill();
    assert!(answer.await.unwrap().is_err());

    let (_daemon, client) = stage.daemon().await;
    assert_eq!(client.used_wei().await, reserved, "exactly as before");
    assert_eq!(client.state(&request).await.ok(), state, "no second transaction");
    // The client comes back with the same request, and joins it.
    let joined = post(&client, &request);
    eventually("joined and mined", PATIENCE, async || {
        stage.chain.node.mine(1).await.unwrap();
        joined.is_finished().then_some(())
    })
    .await
    .unwrap();
    let answer = joined.await.unwrap().unwrap();
    assert_eq!(answer.ok()["agentId"], 1);
    stage.audit(&client, &[&request]).await;
}

#[tokio::test]
async fn sigterm_during_a_relay_ends_within_5_seconds_and_loses_nothing() {
    let stage = Stage::set().await;
    let (mut daemon, client) = stage.daemon().await;
    stage.chain.node.set_automine(false).await.unwrap();
    let request = stage.desk.registration(&agent("alice"), 0);
    let answer = stage.post_and_see_sent(&client, &request).await;

    let (status, took) = daemon.terminate().await.unwrap();
    assert!(status.success(), "{status}: {}", daemon.log());
    assert!(took < Duration::from_secs(5), "{took:?}");
    let answer = answer.await.unwrap().unwrap();
    assert_eq!(
        (answer.status, &answer.json()["state"]),
        (202, &json!("pending")),
        "the client is told to come back"
    );
    assert!(client.try_relay(&request).await.is_err(), "nobody listens");

    stage.chain.node.mine(1).await.unwrap();
    stage.chain.node.set_automine(true).await.unwrap();
    let (mut daemon, client) = stage.daemon().await;
    stage.audit(&client, &[&request]).await;
    let (status, took) = daemon.terminate().await.unwrap();
    assert!(status.success() && took < Duration::from_secs(2), "idle, it leaves at once: {took:?}");
}

#[tokio::test]
async fn a_second_process_with_the_same_key_is_refused_while_the_first_one_lives() {
    let stage = Stage::set().await;
    let (daemon, _client) = stage.daemon().await;
    let refusal = Daemon::refuse(&stage.options).await.unwrap();
    assert!(refusal.contains(") runs with this key or this journal"), "{refusal}");
    daemon.kill();
    let (_daemon, client) = stage.daemon().await;
    client.relay(&stage.desk.registration(&agent("alice"), 0)).await.ok();
}
