//! Providers and disks that fail for a while: what was accepted waits for them, and nobody is told what is
//! not so.
//!
//! 1. A provider answers 429 for some seconds: relays wait, their clients hear 202, and all of them are
//!    executed.
//! 2. The disk is full: nothing is sent. Who is refused was not journalled, who was journalled waits, and
//!    with room on the disk the same daemon goes on.
//! 3. The disk fills up while many write: who hears of an acceptance finds it, killed daemon or not.

use std::fs;

use e2e::daemon::{Daemon, DaemonOptions};
use e2e::fault::{Fault, Rule};
use e2e::process::eventually;
use e2e::relay::{RelayClient, Signed};
use serde_json::json;

use crate::audit::{PATIENCE, Stage, agent, post};
use crate::faults::raw_transactions;

const NOT_STORED: &str = "Relayer storage failed. Nothing was sent.";

async fn executed(client: &RelayClient, request: &Signed) {
    eventually("executed", PATIENCE, async || {
        (client.state(request).await.ok()["state"] == "executed").then_some(())
    })
    .await
    .unwrap();
}

/// Bytes in the file that every commit appends to.
fn log_length(options: &DaemonOptions) -> u64 {
    fs::read_dir(options.data_dir())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.file_name().to_string_lossy().ends_with("-wal"))
        .map(|entry| entry.metadata().unwrap().len())
        .sum()
}

#[tokio::test]
async fn a_provider_that_limits_for_some_seconds_drops_nothing() {
    let stage = Stage::set().await;
    let daemon = Daemon::start(&stage.options.clone().var("RELAY_WAIT_SECONDS", 1)).await.unwrap();
    let client = daemon.client();
    let limited = Fault::Status { status: 429, body: "Too Many Requests".to_owned(), retry_after: Some(1) };
    stage.proxy.inject(Rule::any(limited));
    let requests = ["alice", "bob", "carol"].map(|name| stage.desk.registration(&agent(name), 0));
    for answer in requests.each_ref().map(|request| post(&client, request)) {
        let answer = answer.await.unwrap().unwrap();
        assert_eq!((answer.status, &answer.json()["state"]), (202, &json!("pending")), "{}", answer.text);
    }
    stage.proxy.heal();
    for request in &requests {
        executed(&client, request).await;
    }
    stage.audit(&client, &requests.each_ref()).await;
}

#[tokio::test]
async fn a_provider_that_fails_where_the_nonce_is_asked_drops_nothing() {
    let stage = Stage::set().await;
    let daemon = Daemon::start(&stage.options.clone().var("RELAY_WAIT_SECONDS", 1)).await.unwrap();
    let client = daemon.client();
    stage.proxy.inject(Rule::on("eth_getTransactionCount", Fault::error(-32005, "request rate limited")));
    let request = stage.desk.registration(&agent("alice"), 0);
    let answer = client.relay(&request).await;
    assert_eq!((answer.status, &answer.json()["state"]), (202, &json!("pending")), "{}", answer.text);
    stage.proxy.heal();
    executed(&client, &request).await;
    stage.audit(&client, &[&request]).await;
}

#[tokio::test]
async fn on_a_full_disk_nothing_is_sent_and_what_was_journalled_goes_on_once_there_is_room() {
    let stage = Stage::set().await;
    let mut daemon = Daemon::start(&stage.options.clone().var("RELAY_WAIT_SECONDS", 1)).await.unwrap();
    let client = daemon.client();
    let [in_flight, accepted, refused] =
        ["in flight", "accepted", "refused"].map(|name| stage.desk.registration(&agent(name), 0));

    stage.chain.node.set_automine(false).await.unwrap();
    assert_eq!(stage.post_and_see_sent(&client, &in_flight).await.await.unwrap().unwrap().status, 202);
    stage.proxy.inject(Rule::on("eth_feeHistory", Fault::error(-32005, "request rate limited")));
    let answer = client.relay(&accepted).await;
    assert_eq!(answer.status, 202, "{}", answer.text);

    daemon.process().limit_files(Some(0)).unwrap();
    client.relay(&refused).await.refused(500, "JOURNAL_FAILED", NOT_STORED);
    stage.proxy.heal();
    stage.chain.node.mine(1).await.unwrap();
    stage.chain.node.set_automine(true).await.unwrap();
    // The one that was accepted comes as far as it can, and the receipt of the other is seen.
    let (balances, receipts) =
        (stage.proxy.calls("eth_getBalance"), stage.proxy.calls("eth_getTransactionReceipt"));
    eventually("tried", PATIENCE, async || {
        (stage.proxy.calls("eth_getBalance") > balances
            && stage.proxy.calls("eth_getTransactionReceipt") > receipts)
            .then_some(())
    })
    .await
    .unwrap();
    for request in [&in_flight, &accepted] {
        assert_eq!(client.state(request).await.ok()["state"], "pending", "nothing else is in the journal");
    }
    assert_eq!(client.state(&refused).await.status, 404);
    let sent = raw_transactions(&stage.proxy);
    assert!(sent.iter().all(|raw| *raw == sent[0]), "nothing was sent but the one before, again");

    daemon.process().limit_files(None).unwrap();
    executed(&client, &in_flight).await;
    executed(&client, &accepted).await;
    let answer = client.relay(&refused).await;
    assert!([200, 202].contains(&answer.status), "{}", answer.text);
    executed(&client, &refused).await;
    stage.audit(&client, &[&in_flight, &accepted, &refused]).await;
}

#[tokio::test]
async fn whoever_hears_of_an_acceptance_finds_it_though_the_disk_filled_up_in_the_middle() {
    let stage = Stage::set().await;
    let options = stage.options.clone().var("RELAY_WAIT_SECONDS", 1);
    let mut daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    // Room for some of them: how many depends on how many share a commit.
    daemon.process().limit_files(Some(log_length(&options) + 150_000)).unwrap();
    let (mut accepted, mut refused): (Vec<Signed>, Vec<Signed>) = Default::default();
    while refused.is_empty() {
        let first = accepted.len();
        assert!(first < 480, "the disk has room for everybody");
        let wave: Vec<Signed> = (first..first + 12)
            .map(|index| stage.desk.registration(&agent(&format!("crowd {index}")), 0))
            .collect();
        let answers: Vec<_> = wave.iter().map(|request| post(&client, request)).collect();
        for (request, answer) in wave.into_iter().zip(answers) {
            let answer = answer.await.unwrap().unwrap();
            match answer.status {
                200 | 202 => {
                    assert_eq!(client.state(&request).await.status, 200, "{}", answer.text);
                    accepted.push(request);
                }
                500 => {
                    answer.refused(500, "JOURNAL_FAILED", NOT_STORED);
                    refused.push(request);
                }
                _ => panic!("{}: {}", answer.status, answer.text),
            }
        }
    }
    assert!(!accepted.is_empty(), "nobody was accepted");

    // Dead in the middle of it, and started again on a disk with room.
    daemon.kill();
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    for request in &accepted {
        executed(&client, request).await;
    }
    for request in &refused {
        assert_eq!(client.state(request).await.status, 404);
    }
    stage.audit(&client, &accepted.iter().collect::<Vec<_>>()).await;
}
