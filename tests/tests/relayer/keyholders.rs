//! Keys outside the daemon: in moto's AWS KMS, and in remote signers written in Python.

use e2e::keyholders::{Kms, RemoteSignerProcess};

use crate::prelude::*;

const PATH: &str = "s3cr3tsigner";
/// Time-out in seconds, enough for a working signer on a busy machine.
const SIGNER_TIMEOUT: u64 = 6;

struct SignerFixture {
    stage: RelayerFixture,
    kms: Kms,
    remote: [RemoteSignerProcess; 2],
}

impl SignerFixture {
    async fn set() -> Self {
        let mut stage = RelayerFixture::set().await;
        let kms = Kms::start().await.unwrap();
        let rich = U256::from(10).pow(U256::from(20));
        stage.chain.node.set_balance(kms.address, rich).await.unwrap();
        let keys = [dev_key(1), dev_key(2)];
        let [first, second] = keys.each_ref().map(|key| key.address());
        let start = async |key| RemoteSignerProcess::start(key, &dev_key(8)).await.unwrap();
        let remote = [start(&keys[0]).await, start(&keys[1]).await];
        stage.accounts = vec![kms.address, first, second];
        stage.options = stage.options.without("RELAYER_KEY").var("RELAYER_KEY_KMS_ADDRESS", kms.address);
        for (name, value) in kms.vars() {
            stage.options = stage.options.var(name, value);
        }
        // The second signer answers with the bytes, the first with an object.
        let urls = format!("{}/{PATH},{}/bare/{PATH}", remote[0].url(), remote[1].url());
        let stage = stage.var("RELAYER_KEY_REMOTE", urls).var("SIGNER_TIMEOUT_SECONDS", SIGNER_TIMEOUT);
        let stage = stage.var("RELAYER_KEY_REMOTE_ADDRESS", format!("{first},{second}"));
        Self { stage, kms, remote }
    }

    /// Has twelve relays executed that are posted at once; checks that exactly these accounts send them.
    async fn carried_by(&self, client: &Client, name: &str, accounts: &[usize]) {
        let (requests, before) = (self.stage.registrations(name, 12), self.stage.sent_by_each().await);
        self.stage.leave_all_pending(client, &requests).await;
        let after = self.stage.sent_by_each().await;
        let carrying = (0..after.len()).filter(|index| after[*index] > before[*index]);
        assert_eq!(carrying.collect::<Vec<_>>(), accounts, "{name}");
        self.stage.mine().await;
        until_executed(client, &requests).await;
    }

    async fn until_state(&self, client: &Client, index: usize, expected: &str) {
        let account = self.stage.accounts[index].to_string();
        let state = async |path| {
            let told = client.get(path).await.ok();
            let mut accounts = told["accounts"].as_array().unwrap().iter();
            accounts.find(|other| other["address"] == account).unwrap()["state"].clone()
        };
        wait_until(expected, PATIENCE, async || state("/status").await == expected).await;
        assert_eq!(state("/readyz").await, expected);
        let ready = client.metric(&format!("relayer_account_ready{{account=\"{account}\"}}")).await;
        assert_eq!(ready == 1.0, expected == "ready");
    }
}

fn reasons(log: &str, account: Address) -> Vec<&str> {
    let account = account.to_string();
    log.lines().filter(|line| line.contains("ERROR") && line.contains(&account)).collect()
}

#[tokio::test]
async fn a_signer_that_fails_stops_its_account_alone_and_the_others_carry_its_relays() {
    let mut signers = SignerFixture::set().await;
    let first = signers.stage.accounts[1];
    let (daemon, client) = signers.stage.daemon().await;
    signers.carried_by(&client, "all", &[0, 1, 2]).await;
    let modes = [
        ("slow", "did not answer within 6s"),
        ("refuse", "the signer refused: this signer signs nothing today"),
        ("status", "the signer refused: status 502"),
        ("other", "signed for another address"),
        ("change", "signed another transaction"),
    ];
    for (turn, (mode, why)) in modes.into_iter().enumerate() {
        signers.remote[0].mode(mode).await.unwrap();
        signers.carried_by(&client, mode, &[0, 2]).await;
        signers.until_state(&client, 1, "signerFailed").await;
        let log = daemon.log();
        let reasons = reasons(&log, first);
        assert_eq!(reasons.len(), turn + 1, "one line each: {reasons:#?}");
        assert!(reasons[turn].contains(why), "{}", reasons[turn]);
        signers.remote[0].mode("good").await.unwrap();
        signers.until_state(&client, 1, "ready").await;
    }
    // Signed transactions are mined without their signers.
    let requests = signers.stage.registrations("in flight", 6);
    signers.stage.leave_all_pending(&client, &requests).await;
    daemon.kill();
    signers.kms.pause(true).unwrap();
    signers.remote[0].mode("refuse").await.unwrap();
    let (daemon, client) = signers.stage.daemon().await;
    signers.stage.mine().await;
    until_executed(&client, &requests).await;
    signers.carried_by(&client, "one", &[2]).await;
    signers.kms.pause(false).unwrap();
    signers.remote[0].mode("good").await.unwrap();
    signers.until_state(&client, 0, "ready").await;
    signers.until_state(&client, 1, "ready").await;
    signers.carried_by(&client, "all again", &[0, 1, 2]).await;
    signers.kms.forget_keys().await.unwrap();
    signers.carried_by(&client, "forgotten", &[1, 2]).await;
    signers.stage.audit(&client).await;
    let log = daemon.kill();
    let last = reasons(&log, signers.stage.accounts[0]).pop().unwrap_or_default().to_owned();
    assert!(last.contains("the signer refused") && last.contains("NotFound"), "{last}");
    assert!(reasons(&log, signers.stage.accounts[2]).is_empty() && !log.contains(PATH));
}

#[tokio::test]
async fn where_no_account_can_sign_nothing_is_sent_and_what_is_wrong_from_the_start_is_named() {
    let mut signers = SignerFixture::set().await;
    let stage = &signers.stage;
    let (first, second) = (stage.accounts[1], stage.accounts[2]);
    let alone = stage.options.clone().without("RELAYER_KEY_KMS").without("RELAYER_KEY_KMS_ADDRESS");
    let alone = alone.var("RELAYER_KEY_REMOTE", format!("{}/{PATH}", signers.remote[0].url()));
    let alone = alone.var("RELAYER_KEY_REMOTE_ADDRESS", first);
    let (daemon, client) = start(&alone.var("RELAY_RETRY_SECONDS", 2)).await;
    signers.remote[0].mode("refuse").await.unwrap();
    let message = "Relayer could not sign. Nothing was sent.";
    client.relay(&stage.registration("dropped")).await.refused(500, "SIGNER_FAILED", message);
    assert_eq!(stage.sent().len(), 0);
    stage.audit(&client).await;
    drop(daemon);

    let (is_good, printed) = stage.options.check().await.unwrap();
    let warning = printed.lines().filter(|line| line.starts_with("! signer")).collect::<Vec<_>>();
    assert!(is_good && warning.len() == 1 && warning[0].contains(&first.to_string()), "{printed}");
    signers.remote[0].mode("good").await.unwrap();
    let both = stage.options.clone().var("RELAYER_KEY", format!("0x{}", "11".repeat(32)));
    assert!(RelayerDaemon::refuse(&both).await.unwrap().contains("more than one key"));
    let twice = stage.options.clone().var("RELAYER_KEY_KMS_ADDRESS", second);
    assert!(RelayerDaemon::refuse(&twice).await.unwrap().contains("has two signers"));
    // As the only key, the key in KMS determines the account.
    let only = stage.options.clone().without("RELAYER_KEY_KMS_ADDRESS").without("RELAYER_KEY_REMOTE");
    let (is_good, printed) = only.without("RELAYER_KEY_REMOTE_ADDRESS").check().await.unwrap();
    assert!(is_good && printed.contains(&signers.kms.address.to_string()), "{printed}");
    // Where the key in KMS is another account's, only that account is left out.
    let other = stage.options.clone().var("RELAYER_KEY_KMS_ADDRESS", dev_key(3).address());
    let (is_good, printed) = other.check().await.unwrap();
    let line = printed.lines().find(|line| line.starts_with("! signer")).unwrap_or_default();
    assert!(is_good && line.contains("for another address"), "{printed}");

    signers.kms.pause(true).unwrap();
    for signer in &signers.remote {
        signer.mode("refuse").await.unwrap();
    }
    let printed = RelayerDaemon::refuse(&signers.stage.options).await.unwrap();
    assert_eq!(printed.lines().filter(|line| line.starts_with("✗ signer")).count(), 3, "{printed}");
    assert!(!printed.contains(PATH), "{printed}");
}

#[tokio::test]
async fn a_relay_that_every_signer_refuses_ends_though_they_sign_other_transactions() {
    let mut signers = SignerFixture::set().await;
    signers.kms.pause(true).unwrap();
    let both = signers.stage.options.clone().without("RELAYER_KEY_KMS").without("RELAYER_KEY_KMS_ADDRESS");
    signers.stage.accounts.remove(0);
    let (_daemon, client) = start(&both.var("RELAY_RETRY_SECONDS", 4)).await;
    for signer in &signers.remote {
        signer.mode("no calls").await.unwrap();
    }
    let message = "Relayer could not sign. Nothing was sent.";
    let refused = timeout(PATIENCE, client.relay(&signers.stage.registration("refused"))).await;
    refused.unwrap().refused(500, "SIGNER_FAILED", message);
    for signer in &signers.remote {
        signer.mode("good").await.unwrap();
    }
    signers.stage.audit(&client).await;
}
