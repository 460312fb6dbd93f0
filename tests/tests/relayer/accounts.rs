//! Several keys in one daemon. What stops an account, and who carries its relays, is in
//! `relayer-daemon/tests/model/several_accounts.rs`.
//!
//! 1. Eight keys on blocks of two seconds, 16 transactions of each in the pool: all relays are executed, and
//!    all keys carry their part. With `--nocapture` it prints its rate; `LOAD_RELAYS=3000` makes it a long
//!    one, `LOAD_KEYS`, `LOAD_BLOCK_MS` (0: a block for each transaction) and `LOAD_LATENCY_MS` set the keys,
//!    the blocks and what each call to the node takes.
//! 2. An account with code and one without funds are left out, and each probe says so; with new funds it is used
//!    again. A restart with transactions of several accounts pending sends none twice.

use std::collections::BTreeMap;
use std::time::Duration;

use alloy::primitives::{Address, U256};
use e2e::anvil::AnvilOptions;
use e2e::fault::{Fault, Rule};
use e2e::process::wait_until;
use e2e::relay::RelayClient;
use serde_json::{Value, json};

use crate::load::{number, stream};
use crate::stage::{PATIENCE, Stage, start, until_executed};

/// What `/status` says of an account.
pub(crate) async fn account(client: &RelayClient, account: Address) -> Value {
    let status = client.get("/status").await.ok();
    let accounts = status["accounts"].as_array().unwrap();
    accounts.iter().find(|other| other["address"] == account.to_checksum(None)).unwrap().clone()
}

/// The most transactions of one account in one block, and the most in all.
async fn fullest(stage: &Stage) -> (usize, usize) {
    let mut of_block: BTreeMap<(u64, Address), usize> = BTreeMap::new();
    for account in &stage.accounts {
        for mined in stage.chain.transactions_of(*account).await.unwrap().values() {
            *of_block.entry((mined.block, *account)).or_default() += 1;
        }
    }
    let mut of_all: BTreeMap<u64, usize> = BTreeMap::new();
    of_block.iter().for_each(|((block, _), count)| *of_all.entry(*block).or_default() += count);
    (of_block.into_values().max().unwrap(), of_all.into_values().max().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn eight_keys_share_a_stream_and_none_has_more_than_its_place_in_the_pool() {
    const PENDING: usize = 16;
    let (relays, keys) = (number("LOAD_RELAYS", 512) as usize, number("LOAD_KEYS", 8) as usize);
    let [latency, pace] = [("LOAD_LATENCY_MS", 0), ("LOAD_BLOCK_MS", 2_000)]
        .map(|(name, default)| Duration::from_millis(number(name, default)));
    let block_time = Some(pace).filter(|pace| !pace.is_zero());
    let stage = Stage::on(AnvilOptions { block_time, ..AnvilOptions::default() }).await.keys(keys);
    // Room for all that the pools may hold: the node counts gas limits.
    stage.chain.node.command("evm_setBlockGasLimit", json!(["0x20000000"])).await.unwrap();
    let direct = stage.chain.node.url().to_owned();
    stage.proxy.inject(Rule::any(Fault::Delay(latency)));
    let stage = if latency.is_zero() { stage.var("RPC_URL", direct) } else { stage };
    let stage = stage.var("DAILY_GAS_BUDGET", 1_000).var("RELAY_WAIT_SECONDS", 110);
    let stage = stage.var("MAX_PENDING_PER_KEY", PENDING).var("LOG_LEVEL", "info");
    let (_daemon, client) = stage.daemon().await;
    let requests = stage.registrations("stream", relays);
    stage.expect(&requests);
    let done = stream(&client, requests, (keys * PENDING * 2).max(96)).await;
    // The first answers come with the first block: from then on the stream flows.
    let (first, last) = (done[0].at, done[done.len() - 1].at);
    let later = done.iter().filter(|answered| answered.at >= first + pace / 2).count();
    let rate = later as f64 / (last - first).as_secs_f64();
    println!("{keys} keys, blocks of {pace:?}, {latency:?} a call: {relays} relays in {last:.1?},");
    println!("{rate:.0} relays/s after the first block; of each account {:?}", stage.sent_by_each().await);
    stage.audit(&client).await;
    assert!(!stage.sent_by_each().await.contains(&0), "an account was not used");
    if block_time.is_some() {
        let (of_account, of_all) = fullest(&stage).await;
        println!("the fullest block has {of_account} of one account, {of_all} of all");
        assert!(of_account <= PENDING, "{of_account} of one account in a block");
        assert!(keys == 1 || of_all > PENDING, "{of_all}: no more than one key would carry");
    }
}

#[tokio::test]
async fn an_account_that_cannot_be_used_is_left_out_and_each_probe_says_so() {
    let stage = Stage::set().await.keys(4);
    let [delegated, poor] = [stage.accounts[0], stage.accounts[1]];
    let code = format!("0xef0100{}", "11".repeat(20));
    stage.chain.node.command("anvil_setCode", json!([delegated, code])).await.unwrap();
    stage.chain.node.set_balance(poor, U256::from(1)).await.unwrap();
    let (is_good, printed) = stage.options.check().await.unwrap();
    assert!(is_good, "{printed}");
    for (line, account) in [("! delegation", delegated), ("! balance", poor)] {
        let line = printed.lines().find(|found| found.starts_with(line)).unwrap_or_default();
        assert!(line.contains(&account.to_string()), "{printed}");
    }
    let (daemon, client) = stage.daemon().await;
    let requests = stage.registrations("pending", 6);
    stage.leave_all_pending(&client, &requests).await;
    let ready = client.get("/readyz").await.ok();
    let expected = [("delegated", 0), ("empty", 0), ("ready", 3), ("ready", 3)];
    for (index, (state, pending)) in expected.into_iter().enumerate() {
        let told = account(&client, stage.accounts[index]).await;
        assert_eq!((&told["state"], &told["pending"]), (&json!(state), &json!(pending)), "{index}");
        assert_eq!(ready["accounts"][index]["state"], state);
        let is_ready = format!("relayer_account_ready{{account=\"{}\"}}", stage.accounts[index]);
        assert_eq!(client.metric(&is_ready).await == 1.0, state == "ready");
    }
    assert_eq!(client.metric(&format!("relayer_balance_wei{{account=\"{poor}\"}}")).await, 1.0);

    daemon.kill();
    let (_daemon, client) = start(&stage.options).await;
    let rich = U256::from(20_000) * U256::from(10).pow(U256::from(18));
    stage.chain.node.set_balance(poor, rich).await.unwrap();
    wait_until("funded", PATIENCE, async || account(&client, poor).await["state"] == "ready").await;
    stage.mine().await;
    until_executed(&client, &requests).await;
    // Richer than the others now, it gets the next relay.
    stage.register(&client, "after").await;
    assert_eq!(stage.sent_by_each().await, [0, 1, 3, 3]);
    stage.audit(&client).await;
}
