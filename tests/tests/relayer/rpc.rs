//! How often the daemon asks its node: a provider's bill, pinned.
//!
//! 1. Per relay: so many calls of each method, and no more for a refused one than it needs.
//! 2. Idle: one round of calls every 15 seconds; until the last relay is final, it has one call more, however
//!    many there are.

use std::collections::BTreeMap;
use std::time::Duration;

use e2e::fault::{Fault, Rule};
use e2e::process::eventually;
use e2e::proxy::{Post, Proxy};
use e2e::relay::{RelayClient, attest};

use crate::audit::{PATIENCE, Stage, agent, ready, settled};

fn counted(posts: &[Post]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for method in posts.iter().flat_map(|post| &post.methods) {
        *counts.entry(method.as_str()).or_default() += 1;
    }
    counts
}

/// What an idle daemon asks in one round: the monitor's two calls and the sender's one, each at its own
/// moment of the same 15 seconds.
const IDLE: [&str; 3] = ["eth_getBalance", "eth_getBlockByNumber", "eth_getTransactionCount"];

/// Waits for one round with so many reads of blocks, and returns it.
async fn idle_round(proxy: &Proxy, blocks: usize) -> Vec<Post> {
    proxy.reset();
    eventually("a round", PATIENCE, async || {
        let over = IDLE.iter().all(|method| proxy.calls(method) > 0);
        (over && proxy.calls("eth_getBlockByNumber") >= blocks).then_some(())
    })
    .await
    .unwrap();
    proxy.reset()
}

/// One relay after the other, each with so many calls.
async fn relays_cost_eight_calls(stage: &Stage, client: &RelayClient) {
    for name in ["alice", "bob"] {
        stage.proxy.reset();
        client.relay(&stage.desk.registration(&agent(name), 0)).await.ok();
        assert_eq!(
            counted(&stage.proxy.reset()),
            BTreeMap::from([
                ("eth_call", 1),                // verify
                ("eth_feeHistory", 1),          // the price
                ("eth_getBalance", 1),          // enough?
                ("eth_getTransactionCount", 2), // the next nonce; mined?
                ("eth_getTransactionReceipt", 1),
                ("eth_sendRawTransaction", 1),
                ("eth_simulateV1", 1), // will it succeed, and with how much gas?
            ]),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_relay_through_a_slow_endpoint_costs_no_more_calls() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    ready(&client, PATIENCE).await;
    stage.proxy.inject(Rule::any(Fault::Delay(Duration::from_millis(100))));
    relays_cost_eight_calls(&stage, &client).await;
}

#[tokio::test]
async fn a_relay_costs_eight_calls_and_an_idle_minute_sixteen_until_it_is_final() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    // The monitor's first round is over once the daemon is ready; its next is 15 seconds away.
    ready(&client, PATIENCE).await;
    relays_cost_eight_calls(&stage, &client).await;
    stage.proxy.reset();
    client.relay(&stage.desk.request(&agent("alice"), 1, &attest(99))).await;
    assert_eq!(
        counted(&stage.proxy.reset()),
        BTreeMap::from([
            ("eth_call", 1),
            ("eth_feeHistory", 1),
            ("eth_getBalance", 1),
            ("eth_simulateV1", 1)
        ]),
        "a refused one"
    );
    settled(&client).await;

    // In its first round the sender asks what is final, and compares the blocks of both relays with the
    // chain.
    idle_round(&stage.proxy, 1 + 3 + 2).await;
    // Then one block stands for all that are not final: the monitor reads one, the sender another.
    let first = idle_round(&stage.proxy, 2).await;
    let started = first.last().unwrap().at;
    let second = idle_round(&stage.proxy, 2).await;
    for round in [&first, &second] {
        let mut expected: BTreeMap<&str, usize> = IDLE.map(|method| (method, 1)).into();
        expected.insert("eth_getBlockByNumber", 2);
        assert_eq!(counted(round), expected);
    }
    let apart = second.last().unwrap().at - started;
    assert!(apart >= Duration::from_secs(12), "a round every 15 seconds: {apart:?}");
}

#[tokio::test]
async fn reading_endpoints_cost_one_call_at_most() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    ready(&client, PATIENCE).await;
    let nonce = format!("/nonce/{}", agent("alice").address());
    for (path, calls) in
        [("/domain", 0), ("/livez", 0), ("/readyz", 0), ("/metrics", 0), ("/status", 1), (nonce.as_str(), 1)]
    {
        stage.proxy.reset();
        client.get(path).await;
        assert_eq!(stage.proxy.posts(), calls, "{path}");
    }
}
