//! `relayer-daemon drain`: nothing new is accepted, what was accepted is finished, and then it is over.
//!
//! 1. It asks a running daemon, which still says what becomes of its relays, lets copies join, and ends with
//!    success.
//! 2. Without a running daemon it finishes what the journal holds itself, unsigned requests too, and listens
//!    nowhere.
//! 3. A daemon that dies while it drains is replaced by the drain.
//! 4. Stopped before everything is mined, it says so and fails; what was in flight is not lost.
//! 5. With nothing in flight it is over at once.

use std::time::Duration;

use alloy::signers::local::PrivateKeySigner;
use e2e::daemon::{Daemon, drain};
use e2e::process::{Process, eventually};
use e2e::relay::{Signed, attest};
use rustix::process::Signal;
use serde_json::json;

use crate::audit::{PATIENCE, Stage, agent, post};

fn alice() -> PrivateKeySigner {
    agent("alice")
}

/// Waits for the end of a drain that has to succeed.
async fn drained(mut process: Process) -> Process {
    let status = process.exited(PATIENCE).await.unwrap();
    assert!(status.success() && process.log().contains("drained: nothing is in flight"), "{}", process.log());
    process
}

/// What the next daemon finds: these requests executed, each once, and everything paid for in the budget.
async fn audit(stage: &Stage, executed: &[&Signed]) {
    let (_daemon, client) = stage.daemon().await;
    stage.audit(&client, executed).await;
}

#[tokio::test]
async fn a_running_daemon_is_asked_finishes_what_it_has_and_ends() {
    let stage = Stage::set().await;
    let (mut daemon, client) = stage.daemon().await;
    stage.chain.node.set_automine(false).await.unwrap();
    let request = stage.desk.registration(&alice(), 0);
    let answer = stage.post_and_see_sent(&client, &request).await;

    let mut drain = drain(&stage.options).unwrap();
    daemon.logged(&["draining"], PATIENCE).await.unwrap();
    let message = "Relayer is restarting. Please try again shortly.";
    client.get("/readyz").await.refused(503, "SHUTTING_DOWN", message);
    let late = client.relay(&stage.desk.registration(&agent("bob"), 0)).await;
    late.refused(503, "SHUTTING_DOWN", message);
    assert!(late.number("retry-after") > 0);
    assert_eq!(client.state(&request).await.ok()["state"], "pending");
    let copy = post(&client, &request);
    eventually("joined", PATIENCE, async || {
        let open = client.get("/metrics").await.text;
        open.lines().any(|line| line == "relayer_http_connections 3").then_some(())
    })
    .await
    .unwrap();
    assert!(drain.exit_status().unwrap().is_none(), "it waits");

    stage.chain.node.mine(1).await.unwrap();
    let told = answer.await.unwrap().unwrap().ok();
    assert_eq!(copy.await.unwrap().unwrap().ok(), told);
    let status = daemon.process().exited(PATIENCE).await.unwrap();
    assert!(status.success(), "{status}: {}", daemon.log());
    drained(drain).await;
    stage.chain.node.set_automine(true).await.unwrap();
    audit(&stage, &[&request]).await;
}

#[tokio::test]
async fn without_a_daemon_the_journal_is_finished_without_listening() {
    let stage = Stage::set().await;
    let daemon = Daemon::start(&stage.options.clone().crash_at("after_accept:2")).await.unwrap();
    let client = daemon.client();
    stage.chain.node.set_automine(false).await.unwrap();
    let sent = stage.desk.registration(&alice(), 0);
    let answer = stage.post_and_see_sent(&client, &sent).await;
    let unsigned = stage.desk.registration(&agent("bob"), 0);
    assert!(client.try_relay(&unsigned).await.is_err());
    daemon.crashed("after_accept").await.unwrap();
    assert!(answer.await.unwrap().is_err());

    stage.chain.node.set_automine(true).await.unwrap();
    stage.chain.node.mine(1).await.unwrap();
    let drain = drained(drain(&stage.options).unwrap()).await;
    assert!(!drain.log().contains("listening"), "{}", drain.log());
    audit(&stage, &[&sent, &unsigned]).await;
}

#[tokio::test]
async fn a_daemon_that_dies_while_it_drains_is_replaced() {
    let stage = Stage::set().await;
    let (mut daemon, client) = stage.daemon().await;
    stage.chain.node.set_automine(false).await.unwrap();
    let request = stage.desk.registration(&alice(), 0);
    let answer = stage.post_and_see_sent(&client, &request).await;
    let drain = drain(&stage.options).unwrap();
    daemon.logged(&["draining"], PATIENCE).await.unwrap();
    daemon.kill();
    assert!(answer.await.unwrap().is_err());
    stage.chain.node.set_automine(true).await.unwrap();
    stage.chain.node.mine(1).await.unwrap();
    drained(drain).await;
    audit(&stage, &[&request]).await;
}

#[tokio::test]
async fn a_drain_that_is_stopped_says_so_and_loses_nothing() {
    let stage = Stage::set().await;
    let (daemon, client) = stage.daemon().await;
    stage.chain.node.set_automine(false).await.unwrap();
    let request = stage.desk.registration(&alice(), 0);
    let answer = stage.post_and_see_sent(&client, &request).await;
    daemon.kill();
    assert!(answer.await.unwrap().is_err());

    let mut stopped = drain(&stage.options).unwrap();
    let recovered =
        stopped.until("recovered", PATIENCE, async |log| log.contains("journal recovered").then_some(()));
    recovered.await.unwrap();
    stopped.signal(Signal::TERM).unwrap();
    let status = stopped.exited(Duration::from_secs(10)).await.unwrap();
    assert_eq!(status.code(), Some(1), "{}", stopped.log());
    assert!(stopped.log().contains("run drain again"), "{}", stopped.log());

    stage.chain.node.set_automine(true).await.unwrap();
    stage.chain.node.mine(1).await.unwrap();
    drained(drain(&stage.options).unwrap()).await;
    audit(&stage, &[&request]).await;
}

#[tokio::test]
async fn with_nothing_in_flight_it_is_over_at_once() {
    let stage = Stage::set().await;
    drained(drain(&stage.options).unwrap()).await;
    let (mut daemon, client) = stage.daemon().await;
    let registration = stage.desk.registration(&alice(), 0);
    client.relay(&registration).await.ok();
    drained(drain(&stage.options).unwrap()).await;
    assert!(daemon.process().exited(PATIENCE).await.unwrap().success());
    let (_daemon, client) = stage.daemon().await;
    let attestation = stage.desk.request(&alice(), 1, &attest(1));
    assert_eq!(client.relay(&attestation).await.ok()["success"], json!(true));
    stage.audit(&client, &[&registration, &attestation]).await;
}
