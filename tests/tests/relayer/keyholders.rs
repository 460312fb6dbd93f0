//! The key that pays is outside the daemon: in AWS KMS, or in a remote signer.
//!
//! 1. Relays are signed and executed by either, whatever form the remote signer's answer has.
//! 2. A signer that is slow, refuses, fails, answers for another address or signs another transaction:
//!    nothing is sent, a log line says why, and once it signs again the relay is executed.
//! 3. What is wrong with a signer at the start stops `serve` and `check`; no output shows its URL's path.

use alloy::primitives::{Address, U256};
use e2e::anvil::dev_key;
use e2e::daemon::{Daemon, DaemonOptions, check};
use e2e::keyholders::{Kms, RemoteSigner};
use e2e::process::eventually;
use e2e::relay::attest;
use serde_json::{Value, json};

use crate::audit::{PATIENCE, Stage, agent, relayer};

const SEND: &str = "eth_sendRawTransaction";
const PATH: &str = "s3cr3tsigner";

pub(crate) async fn fund(stage: &Stage, account: Address) {
    let wei = U256::from(10).pow(U256::from(20));
    let _: Value = stage.chain.node.request("anvil_setBalance", json!([account, wei])).await.unwrap();
}

fn remote(stage: &Stage, signer: &RemoteSigner, path: &str) -> DaemonOptions {
    let account = relayer().address();
    let options = stage.options.clone().account(account).var("RELAYER_KEY_REMOTE_ADDRESS", account);
    options.var("RELAYER_KEY_REMOTE", format!("{}/{path}", signer.url()))
}

#[tokio::test]
async fn relays_are_signed_by_kms_and_a_kms_that_is_silent_or_lost_the_key_sends_nothing() {
    let stage = Stage::set().await;
    let mut kms = Kms::start().await.unwrap();
    fund(&stage, kms.address).await;
    let options = stage.options.clone().account(kms.address).var("RELAY_WAIT_SECONDS", 6);
    let options = kms.vars().into_iter().fold(options, |options, (name, value)| options.var(name, value));
    let mut daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let alice = agent("alice");
    let first = stage.desk.registration(&alice, 0);
    client.relay(&first).await.ok();
    assert_eq!(client.get("/status").await.ok()["relayer"], kms.address.to_string());

    kms.pause(true).unwrap();
    stage.proxy.reset();
    let second = stage.desk.request(&alice, 1, &attest(1));
    assert_eq!(client.relay(&second).await.status, 202);
    daemon.logged(&["not signed", "did not answer within 5s"], PATIENCE).await.unwrap();
    assert_eq!(stage.proxy.calls(SEND), 0);
    kms.pause(false).unwrap();
    eventually("executed", PATIENCE, async || {
        (client.state(&second).await.ok()["state"] == "executed").then_some(())
    })
    .await
    .unwrap();
    crate::audit::audit(&stage.chain, &options, &client, &[&first, &second]).await;

    kms.forget_keys().await.unwrap();
    stage.proxy.reset();
    assert_eq!(client.relay(&stage.desk.registration(&agent("bob"), 0)).await.status, 202);
    daemon.logged(&["not signed", "the signer refused", "NotFound"], PATIENCE).await.unwrap();
    assert_eq!(stage.proxy.calls(SEND), 0);
}

#[tokio::test]
async fn relays_are_signed_by_a_remote_signer_whatever_form_its_answer_has() {
    let stage = Stage::set().await;
    let signer = RemoteSigner::start(&relayer(), &dev_key(8)).await.unwrap();
    let alice = agent("alice");
    let mut executed = Vec::new();
    for (nonce, path) in [(0, ""), (1, "bare")] {
        let daemon = Daemon::start(&remote(&stage, &signer, path)).await.unwrap();
        let request = match nonce {
            0 => stage.desk.registration(&alice, 0),
            _ => stage.desk.request(&alice, nonce, &attest(1)),
        };
        daemon.client().relay(&request).await.ok();
        executed.push(request);
    }
    let daemon = Daemon::start(&remote(&stage, &signer, "")).await.unwrap();
    stage.audit(&daemon.client(), &executed.iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn a_signer_that_is_slow_refuses_or_signs_for_another_sends_nothing_until_it_signs_again() {
    let stage = Stage::set().await;
    let signer = RemoteSigner::start(&relayer(), &dev_key(8)).await.unwrap();
    let options = remote(&stage, &signer, PATH).var("SIGNER_TIMEOUT_SECONDS", 1).var("RELAY_WAIT_SECONDS", 1);
    let mut daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let mut executed = Vec::new();
    for (mode, why) in [
        ("slow", "did not answer within 1s"),
        ("refuse", "the signer refused: this signer signs nothing today"),
        ("status", "the signer refused: status 502"),
        ("other", "signed for another address"),
        ("change", "signed another transaction"),
    ] {
        signer.mode(mode).await.unwrap();
        stage.proxy.reset();
        let request = stage.desk.registration(&agent(mode), 0);
        assert_eq!(client.relay(&request).await.status, 202, "{mode}");
        daemon.logged(&["not signed", why], PATIENCE).await.unwrap();
        assert_eq!(stage.proxy.calls(SEND), 0, "{mode}: something was sent");
        assert_eq!(client.state(&request).await.ok()["txHashes"], json!([]), "{mode}");
        signer.mode("good").await.unwrap();
        eventually("executed", PATIENCE, async || {
            (client.state(&request).await.ok()["state"] == "executed").then_some(())
        })
        .await
        .unwrap();
        executed.push(request);
    }
    stage.audit(&client, &executed.iter().collect::<Vec<_>>()).await;
    assert!(!daemon.kill().contains(PATH), "the log shows the path of the signer's URL");
}

#[tokio::test]
async fn a_relay_that_cannot_be_signed_for_is_dropped_with_a_code_and_nothing_sent() {
    let stage = Stage::set().await;
    let signer = RemoteSigner::start(&relayer(), &dev_key(8)).await.unwrap();
    let options = remote(&stage, &signer, "").var("RELAY_RETRY_SECONDS", 2);
    let daemon = Daemon::start(&options).await.unwrap();
    signer.mode("refuse").await.unwrap();
    stage.proxy.reset();
    let answer = daemon.client().relay(&stage.desk.registration(&agent("alice"), 0)).await;
    answer.refused(500, "SIGNER_FAILED", "Relayer could not sign. Nothing was sent.");
    assert_eq!(stage.proxy.calls(SEND), 0);
}

#[tokio::test]
async fn a_signer_that_is_wrong_from_the_start_stops_serve_and_check() {
    let stage = Stage::set().await;
    let signer = RemoteSigner::start(&relayer(), &dev_key(8)).await.unwrap();
    let good = remote(&stage, &signer, PATH);
    let (is_good, printed) = check(&good).await.unwrap();
    assert!(is_good && printed.contains(&format!("by the signer at {}", signer.url())), "{printed}");
    signer.mode("other").await.unwrap();
    for printed in [Daemon::refuse(&good).await.unwrap(), check(&good).await.unwrap().1] {
        assert!(printed.contains("✗ signer") && printed.contains("for another address"), "{printed}");
        assert!(!printed.contains(PATH), "{printed}");
    }
    let both = good.clone().key(&relayer());
    assert!(Daemon::refuse(&both).await.unwrap().contains("more than one key"));
    let nowhere = good.clone().without("RELAYER_KEY_REMOTE_ADDRESS");
    assert!(Daemon::refuse(&nowhere).await.unwrap().contains("RELAYER_KEY_REMOTE_ADDRESS"));
    let dead = good
        .var("RELAYER_KEY_REMOTE", format!("http://127.0.0.1:{}/{PATH}", e2e::process::free_port().unwrap()));
    let printed = Daemon::refuse(&dead).await.unwrap();
    assert!(
        printed.contains("✗ signer") && printed.contains("cannot be reached") && !printed.contains(PATH),
        "{printed}"
    );
}
