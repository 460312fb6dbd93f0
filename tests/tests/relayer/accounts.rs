//! Eight keys in one daemon, on blocks of two seconds, 16 transactions of each in the pool: all relays are
//! executed, and all keys carry their part. With `--nocapture` it prints its rate; `LOAD_RELAYS=3000` makes
//! it a long one, `LOAD_KEYS`, `LOAD_BLOCK_MS` (0: a block for each transaction) and `LOAD_LATENCY_MS` (of
//! each call) set the rest.

use std::collections::BTreeMap;
use std::time::Duration;

use alloy::primitives::Address;
use e2e::anvil::AnvilOptions;
use e2e::fault::{Fault, Rule};
use serde_json::json;

use crate::load::{number, stream};
use crate::stage::Stage;

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
