//! Several signers outside the daemon at once, one for each account: a key in AWS KMS and two remote signers.
//!
//! 1. Each signs for its account, and all accounts carry their part.
//! 2. A signer that is slow, refuses or answers for another address stops its account alone: one log line
//!    says why, the others carry its relays, and once it signs again its account is used again.
//! 3. The same where a signer is silent or refuses from the start; only if none signs there is no start.
//! 4. What is set wrongly is named.

use alloy::primitives::Address;
use alloy::signers::local::PrivateKeySigner;
use e2e::anvil::dev_key;
use e2e::daemon::{Daemon, DaemonOptions, check};
use e2e::keyholders::{Kms, RemoteSigner};
use e2e::process::eventually;
use e2e::relay::{RelayClient, Signed};

use crate::accounts::{account, audit_accounts, registrations};
use crate::audit::{PATIENCE, Stage, executed, leave_pending};
use crate::keyholders::fund;

const PATH: &str = "s3cr3tsigner";

/// A key in KMS and two remote signers, each with its account.
struct Signers {
    stage: Stage,
    kms: Kms,
    remote: [RemoteSigner; 2],
    /// The account in KMS, and those of the remote signers.
    accounts: [Address; 3],
    executed: Vec<Signed>,
}

impl Signers {
    async fn set() -> Self {
        let stage = Stage::set().await;
        let kms = Kms::start().await.unwrap();
        fund(&stage, kms.address).await;
        let keys: [PrivateKeySigner; 2] = [dev_key(1), dev_key(2)];
        let start = async |key| RemoteSigner::start(key, &dev_key(8)).await.unwrap();
        let remote = [start(&keys[0]).await, start(&keys[1]).await];
        let accounts = [kms.address, keys[0].address(), keys[1].address()];
        Self { stage, kms, remote, accounts, executed: Vec::new() }
    }

    fn options(&self) -> DaemonOptions {
        let [in_kms, first, second] = self.accounts;
        let urls = self.remote.each_ref().map(|signer| format!("{}/{PATH}", signer.url()));
        let options = self.stage.options.clone().account(first);
        let options =
            self.kms.vars().into_iter().fold(options, |options, (name, value)| options.var(name, value));
        options
            .var("RELAYER_KEY_KMS_ADDRESS", in_kms)
            .var("RELAYER_KEY_REMOTE", urls.join(","))
            .var("RELAYER_KEY_REMOTE_ADDRESS", format!("{first},{second}"))
    }

    /// Has twelve relays sent at once by these accounts, and waits until they are executed.
    async fn carried_by(&mut self, client: &RelayClient, name: &str, accounts: &[Address]) {
        let requests = registrations(&self.stage, name, 12);
        let before = self.sent().await;
        leave_pending(&self.stage, client, accounts, &requests).await;
        executed(&self.stage, client, &requests).await;
        self.executed.extend(requests);
        for ((account, before), after) in self.accounts.iter().zip(before).zip(self.sent().await) {
            assert_eq!(after > before, accounts.contains(account), "{name}: {account}, {before} and {after}");
        }
    }

    /// How many transactions each account has sent.
    async fn sent(&self) -> Vec<u64> {
        let mut sent = Vec::new();
        for account in self.accounts {
            sent.push(self.stage.chain.nonces_of(account).await.unwrap().0);
        }
        sent
    }

    async fn until_state(&self, client: &RelayClient, of: Address, state: &str) {
        eventually(state, PATIENCE, async || (account(client, of).await["state"] == state).then_some(()))
            .await
            .unwrap();
    }
}

/// The lines that say why an account is not signed for.
fn reasons(log: &str, account: Address) -> Vec<&str> {
    let account = account.to_string();
    log.lines().filter(|line| line.contains("ERROR") && line.contains(&account)).collect()
}

#[tokio::test]
async fn a_signer_that_fails_stops_its_account_alone_and_the_others_carry_its_relays() {
    let mut signers = Signers::set().await;
    let daemon = Daemon::start(&signers.options()).await.unwrap();
    let client = daemon.client();
    let [in_kms, first, second] = signers.accounts;
    signers.carried_by(&client, "all", &[in_kms, first, second]).await;

    let modes = [
        ("slow", "did not answer within 5s"),
        ("refuse", "the signer refused: this signer signs nothing today"),
        ("other", "signed for another address"),
    ];
    for (turn, (mode, why)) in modes.into_iter().enumerate() {
        signers.remote[0].mode(mode).await.unwrap();
        signers.carried_by(&client, mode, &[in_kms, second]).await;
        assert_eq!(account(&client, first).await["state"], "signerFailed");
        assert_eq!(account(&client, second).await["state"], "ready");
        let metric = format!("relayer_account_ready{{account=\"{first}\"}} 0");
        assert!(client.get("/metrics").await.text.contains(&metric));
        assert_eq!(client.get("/readyz").await.status, 200, "the others go on");
        let log = daemon.log();
        let reasons = reasons(&log, first);
        assert_eq!(reasons.len(), turn + 1, "one line each: {reasons:#?}");
        assert!(reasons[turn].contains(why), "{}", reasons[turn]);
        signers.remote[0].mode("good").await.unwrap();
        signers.until_state(&client, first, "ready").await;
    }
    signers.kms.pause(true).unwrap();
    signers.carried_by(&client, "silent", &[first, second]).await;
    signers.kms.pause(false).unwrap();
    signers.until_state(&client, in_kms, "ready").await;
    signers.carried_by(&client, "all again", &[in_kms, first, second]).await;
    audit_accounts(&signers.stage.chain, &signers.accounts, &client, &signers.executed).await;
    let log = daemon.kill();
    assert_eq!(reasons(&log, in_kms).len(), 1);
    assert!(reasons(&log, second).is_empty() && !log.contains(PATH));
}

#[tokio::test]
async fn a_signer_that_fails_from_the_start_stops_its_account_alone_until_it_signs() {
    let mut signers = Signers::set().await;
    let [in_kms, first, second] = signers.accounts;
    signers.kms.pause(true).unwrap();
    signers.remote[0].mode("refuse").await.unwrap();
    let options = signers.options();
    let (is_good, printed) = check(&options).await.unwrap();
    let warned = |account: Address| {
        let account = account.to_string();
        printed.lines().any(|line| line.starts_with("! signer") && line.contains(&account))
    };
    assert!(is_good && warned(in_kms) && warned(first) && !warned(second), "{printed}");

    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    signers.carried_by(&client, "one", &[second]).await;
    let log = daemon.log();
    for (account, why) in [(in_kms, "did not answer within 5s"), (first, "the signer refused")] {
        let reasons = reasons(&log, account);
        assert!(reasons.len() == 1 && reasons[0].contains(why), "{reasons:#?}");
    }
    // Each is tried again and again.
    for account in [in_kms, first] {
        let account = account.to_string();
        eventually("tried twice", PATIENCE, async || {
            let log = daemon.log();
            let tries = log.lines().filter(|line| line.contains("in vain") && line.contains(&account));
            (tries.count() >= 2).then_some(())
        })
        .await
        .unwrap();
    }
    signers.kms.pause(false).unwrap();
    signers.remote[0].mode("good").await.unwrap();
    signers.until_state(&client, in_kms, "ready").await;
    signers.until_state(&client, first, "ready").await;
    signers.carried_by(&client, "all", &[in_kms, first, second]).await;
    audit_accounts(&signers.stage.chain, &signers.accounts, &client, &signers.executed).await;
    drop(daemon);

    signers.kms.pause(true).unwrap();
    for signer in &signers.remote {
        signer.mode("refuse").await.unwrap();
    }
    let printed = Daemon::refuse(&options).await.unwrap();
    assert_eq!(printed.lines().filter(|line| line.starts_with("✗ signer")).count(), 3, "{printed}");
    assert!(!printed.contains(PATH), "{printed}");
}

#[tokio::test]
async fn an_account_that_broken_signers_leave_in_flight_is_finished_once_they_sign() {
    let mut signers = Signers::set().await;
    let options = signers.options();
    let daemon = Daemon::start(&options).await.unwrap();
    let requests = registrations(&signers.stage, "in flight", 6);
    leave_pending(&signers.stage, &daemon.client(), &signers.accounts, &requests).await;
    daemon.kill();
    // What was signed is mined without them.
    signers.kms.pause(true).unwrap();
    signers.remote[0].mode("refuse").await.unwrap();
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    executed(&signers.stage, &client, &requests).await;
    audit_accounts(&signers.stage.chain, &signers.accounts, &client, &requests).await;
    signers.kms.pause(false).unwrap();
}

#[tokio::test]
async fn what_is_set_wrongly_for_several_signers_is_named() {
    let signers = Signers::set().await;
    let [in_kms, first, second] = signers.accounts;
    let options = signers.options();
    for (name, value, words) in [
        (
            "RELAYER_KEY_KMS_ADDRESS",
            String::new(),
            "RELAYER_KEY_KMS has 1 keys and RELAYER_KEY_KMS_ADDRESS 0",
        ),
        ("RELAYER_KEY_KMS_ADDRESS", "0x12".to_owned(), "RELAYER_KEY_KMS_ADDRESS: entry 1"),
        ("RELAYER_KEY_KMS_ADDRESS", second.to_string(), "has two signers"),
        ("RELAYER_KEY_REMOTE_ADDRESS", first.to_string(), "2 URLs for the 1 addresses"),
        ("RELAYER_KEY_REMOTE_ADDRESS", format!("{first},{first}"), "has two signers"),
    ] {
        let printed = Daemon::refuse(&options.clone().var(name, value)).await.unwrap();
        assert!(printed.contains(words) && !printed.contains(PATH), "{printed}");
    }
    // The key in KMS is another account's: that account alone is left out.
    let other = options.var("RELAYER_KEY_KMS_ADDRESS", dev_key(3).address());
    let (is_good, printed) = check(&other).await.unwrap();
    let line = printed.lines().find(|line| line.starts_with("! signer")).unwrap_or_default();
    assert!(
        is_good && line.contains("for another address") && !line.contains(&in_kms.to_string()),
        "{printed}"
    );
}
