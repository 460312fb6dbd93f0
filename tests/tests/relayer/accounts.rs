//! Several keys in one daemon.
//!
//! 1. Eight keys on blocks of two seconds, 16 transactions of each in the pool: all relays are executed, and
//!    all keys carry their part. With `--nocapture` it prints its rate; `LOAD_RELAYS=3000` makes it a long
//!    one, `LOAD_KEYS`, `LOAD_BLOCK_MS` (0: a block for each transaction) and `LOAD_LATENCY_MS` set the keys,
//!    the blocks and what each call to the node takes.
//! 2. An account that loses its funds gets no more relays, the others go on, and each probe says so; with new
//!    funds it is used again.
//! 3. A daemon that is killed with transactions of several accounts pending sends none of them twice.
//! 4. A key that is taken out of the directory while its account has transactions in flight: the daemon does
//!    not start, and names the account. With the key back in place everything is finished.
//! 5. An account with code is left out, with a warning.

use std::collections::BTreeMap;
use std::env;
use std::time::Duration;

use alloy::primitives::{Address, U256};
use alloy::providers::Provider as _;
use alloy::signers::local::PrivateKeySigner;
use e2e::anvil::{AnvilOptions, dev_key};
use e2e::chain::Chain;
use e2e::daemon::{Daemon, DaemonOptions, check};
use e2e::fault::{Fault, Rule};
use e2e::process::eventually;
use e2e::relay::{RelayClient, Signed};
use serde_json::{Value, json};

use crate::audit::{PATIENCE, Stage, agent, executed, leave_pending, settled, stream};

fn keys(count: usize) -> Vec<PrivateKeySigner> {
    (1..=count).map(dev_key).collect()
}

fn addresses(keys: &[PrivateKeySigner]) -> Vec<Address> {
    keys.iter().map(PrivateKeySigner::address).collect()
}

pub(crate) fn registrations(stage: &Stage, name: &str, count: u64) -> Vec<Signed> {
    (0..count).map(|index| stage.desk.registration(&agent(&format!("{name} {index}")), 0)).collect()
}

/// Once nothing is in flight: exactly these requests were executed, each once; no account has a nonce that
/// waits, and the one budget counts what all of them paid. Returns how many transactions each account has
/// sent.
pub(crate) async fn audit_accounts(
    chain: &Chain,
    accounts: &[Address],
    client: &RelayClient,
    executed: &[Signed],
) -> Vec<u64> {
    settled(client).await;
    let terms =
        |request: &Signed| (request.signed.request.from, request.signed.request.nonce.to::<u64>(), true);
    let mut expected: Vec<_> = executed.iter().map(terms).collect();
    let mut found = chain.executions().await.unwrap();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "executions on chain");
    let (mut sent, mut paid) = (Vec::new(), 0);
    for account in accounts {
        let (mined, pending) = chain.nonces_of(*account).await.unwrap();
        assert_eq!(mined, pending, "nothing waits");
        let transactions = chain.transactions_of(*account).await.unwrap();
        paid += transactions.values().map(|transaction| transaction.paid_wei).sum::<u128>();
        sent.push(mined);
    }
    assert_eq!(sent.iter().sum::<u64>(), executed.len() as u64, "one transaction each");
    assert_eq!(client.used_wei().await, paid, "the budget counts what all paid");
    sent
}

/// What `/status` says of an account.
pub(crate) async fn account(client: &RelayClient, account: Address) -> Value {
    let status = client.get("/status").await.ok();
    let accounts = status["accounts"].as_array().unwrap();
    accounts.iter().find(|other| other["address"] == account.to_checksum(None)).unwrap().clone()
}

/// The most transactions of one account in one block, and the most in all.
async fn fullest(chain: &Chain, keys: &[PrivateKeySigner]) -> (usize, usize) {
    let (mut of_account, mut of_all) = (0, 0);
    for number in 1..=chain.node.height().await.unwrap() {
        let block = chain.node.provider.get_block_by_number(number.into()).full().await.unwrap().unwrap();
        let mut counts: BTreeMap<Address, usize> = BTreeMap::new();
        for transaction in block.transactions.into_transactions() {
            let sender = transaction.inner.signer();
            if keys.iter().any(|key| key.address() == sender) {
                *counts.entry(sender).or_default() += 1;
            }
        }
        of_account = counts.values().copied().chain([of_account]).max().unwrap();
        of_all = of_all.max(counts.values().sum());
    }
    (of_account, of_all)
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_keys_share_a_stream_and_none_has_more_than_its_place_in_the_pool() {
    const PENDING: usize = 16;
    const LEAST_CLIENTS: usize = 96;
    let number = |name: &str, default: u64| env::var(name).map_or(default, |count| count.parse().unwrap());
    let relays = number("LOAD_RELAYS", 512);
    let keys = keys(number("LOAD_KEYS", 8) as usize);
    let latency = Duration::from_millis(number("LOAD_LATENCY_MS", 0));
    let block_ms = number("LOAD_BLOCK_MS", 2_000);
    let block_time = (block_ms > 0).then(|| Duration::from_millis(block_ms));
    let stage = Stage::on(AnvilOptions { block_time, ..AnvilOptions::default() }).await;
    // Room for all that the pools may hold: the node counts gas limits.
    stage.chain.node.command("evm_setBlockGasLimit", json!(["0x20000000"])).await.unwrap();
    if !latency.is_zero() {
        stage.proxy.inject(Rule::any(Fault::Delay(latency)));
    }
    let url = if latency.is_zero() { stage.chain.node.url() } else { stage.proxy.url() };
    let options = DaemonOptions::new(url, stage.chain.contracts, &keys[0])
        .keys(&keys)
        .var("DAILY_GAS_BUDGET", 1_000)
        .var("RELAY_WAIT_SECONDS", 110)
        .var("MAX_PENDING_PER_KEY", PENDING)
        .var("LOG_LEVEL", "info");
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let requests = registrations(&stage, "stream", relays);

    let clients = (keys.len() * PENDING * 2).max(LEAST_CLIENTS);
    let done = stream(&client, requests.clone(), clients).await;
    let done: Vec<Duration> = done.into_iter().map(|answered| answered.at).collect();
    // The first answers come with the first block: from then on the stream flows.
    let (first, last) = (done[0], done[done.len() - 1]);
    let of_first_block = done.iter().filter(|at| **at < first + Duration::from_millis(block_ms / 2)).count();
    let rate = (done.len() - of_first_block) as f64 / (last - first).as_secs_f64();
    println!(
        "{} keys, blocks of {block_ms} ms, {latency:?} a call: {relays} relays in {last:.1?}, {rate:.0} relays/s \
         after the first block",
        keys.len()
    );

    if !latency.is_zero() {
        let methods =
            ["eth_getBalance", "eth_feeHistory", "eth_call", "eth_simulateV1", "eth_getTransactionCount"];
        let calls = |method: &&'static str| (*method, stage.proxy.calls(method) as f64 / relays as f64);
        println!(
            "calls per relay: {:.2?} of {:.1}",
            methods.iter().map(calls).collect::<Vec<_>>(),
            stage.proxy.posts() as f64 / relays as f64
        );
    }
    let sent = audit_accounts(&stage.chain, &addresses(&keys), &client, &requests).await;
    println!("transactions of each account: {sent:?}");
    assert!(sent.iter().all(|count| *count > 0), "an account was not used: {sent:?}");
    if block_time.is_some() {
        let (of_account, of_all) = fullest(&stage.chain, &keys).await;
        println!("the fullest block has {of_account} of one account, {of_all} of all");
        assert!(of_account <= PENDING, "{of_account} of one account in a block");
        assert!(keys.len() == 1 || of_all > PENDING, "{of_all}: no more than one key would carry");
    }
}

#[tokio::test]
async fn an_account_without_funds_gets_no_more_relays_and_the_others_go_on() {
    let stage = Stage::set().await;
    let keys = keys(3);
    let options = stage.options.clone().keys(&keys);
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let mut requests = registrations(&stage, "before", 6);
    for request in &requests {
        client.relay(request).await.ok();
    }
    let (poor, text) = (keys[1].address(), keys[1].address().to_checksum(None));
    let (before, _) = stage.chain.nonces_of(poor).await.unwrap();
    assert!(before > 0, "the richest one gets the next relay");
    stage.chain.node.set_balance(poor, U256::from(1)).await.unwrap();

    let during = registrations(&stage, "during", 9);
    for request in &during {
        client.relay(request).await.ok();
    }
    assert_eq!(stage.chain.nonces_of(poor).await.unwrap(), (before, before), "it sent one all the same");
    eventually("empty", PATIENCE, async || (account(&client, poor).await["state"] == "empty").then_some(()))
        .await
        .unwrap();
    let ready = client.get("/readyz").await.ok();
    let states: Vec<&Value> = ready["accounts"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert_eq!(states, ["ready", "empty", "ready"]);
    let metrics = client.get("/metrics").await.text;
    for line in [
        format!("relayer_account_ready{{account=\"{text}\"}} 0"),
        format!("relayer_balance_wei{{account=\"{text}\"}} 1"),
        format!("relayer_account_ready{{account=\"{}\"}} 1", keys[0].address()),
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}:\n{metrics}");
    }
    let (good, printed) = check(&options).await.unwrap();
    let warning = printed.lines().find(|line| line.starts_with("! balance")).unwrap_or_default();
    assert!(good && warning.contains(&text) && warning.contains("less than 0.001"), "{printed}");

    // Richer than the others now, it gets the next relay.
    let rich = U256::from(20_000) * U256::from(10).pow(U256::from(18));
    stage.chain.node.set_balance(poor, rich).await.unwrap();
    eventually("funded", PATIENCE, async || (account(&client, poor).await["state"] == "ready").then_some(()))
        .await
        .unwrap();
    let after = registrations(&stage, "after", 1);
    client.relay(&after[0]).await.ok();
    assert_eq!(stage.chain.nonces_of(poor).await.unwrap(), (before + 1, before + 1), "not used again");
    requests.extend(during.into_iter().chain(after));
    audit_accounts(&stage.chain, &addresses(&keys), &client, &requests).await;
}

#[tokio::test]
async fn a_restart_with_transactions_of_several_accounts_pending_sends_nothing_twice() {
    let stage = Stage::set().await;
    let keys = keys(3);
    let options = stage.options.clone().keys(&keys);
    let daemon = Daemon::start(&options).await.unwrap();
    let requests = registrations(&stage, "pending", 9);
    leave_pending(&stage, &daemon.client(), &addresses(&keys), &requests).await;
    daemon.kill();
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    for key in &keys {
        assert_eq!(account(&client, key.address()).await["pending"], 3, "an equal share");
    }
    executed(&stage, &client, &requests).await;
    assert_eq!(audit_accounts(&stage.chain, &addresses(&keys), &client, &requests).await, [3, 3, 3]);
}

#[tokio::test]
async fn a_key_that_is_taken_out_with_transactions_in_flight_is_named_and_nothing_starts_without_it() {
    let stage = Stage::set().await;
    let keys = keys(3);
    let options = stage.options.clone().keys(&keys);
    let daemon = Daemon::start(&options).await.unwrap();
    let requests = registrations(&stage, "pending", 6);
    leave_pending(&stage, &daemon.client(), &addresses(&keys), &requests).await;
    daemon.kill();

    let fewer = options.clone().keys(&keys[..2]);
    let words = format!("{} has transactions in flight", keys[2].address());
    let refusal = Daemon::refuse(&fewer).await.unwrap();
    assert!(refusal.contains(&words), "{refusal}");
    let (good, printed) = check(&fewer).await.unwrap();
    assert!(!good && printed.contains(&words), "{printed}");

    let daemon = Daemon::start(&options.keys(&keys)).await.unwrap();
    let client = daemon.client();
    executed(&stage, &client, &requests).await;
    assert_eq!(audit_accounts(&stage.chain, &addresses(&keys), &client, &requests).await, [2, 2, 2]);
    drop(daemon);

    // With nothing in flight the key may go.
    let daemon = Daemon::start(&fewer.keys(&keys[..2])).await.unwrap();
    let client = daemon.client();
    let more = registrations(&stage, "more", 2);
    for request in &more {
        client.relay(request).await.ok();
    }
    audit_accounts(&stage.chain, &addresses(&keys), &client, &[requests, more].concat()).await;
}

#[tokio::test]
async fn an_account_with_code_is_left_out_with_a_warning() {
    let stage = Stage::set().await;
    let keys = keys(2);
    let options = stage.options.clone().keys(&keys);
    let code = format!("0xef0100{}", "11".repeat(20));
    stage.chain.node.command("anvil_setCode", json!([keys[0].address(), code])).await.unwrap();
    let (good, printed) = check(&options).await.unwrap();
    let warning = printed.lines().find(|line| line.starts_with("! delegation")).unwrap_or_default();
    assert!(good && warning.contains(&keys[0].address().to_string()), "{printed}");
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let requests = registrations(&stage, "left out", 4);
    for request in &requests {
        client.relay(request).await.ok();
    }
    assert_eq!(account(&client, keys[0].address()).await["state"], "delegated");
    assert_eq!(audit_accounts(&stage.chain, &addresses(&keys), &client, &requests).await, [0, 4]);
}
