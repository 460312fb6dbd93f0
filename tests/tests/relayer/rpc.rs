//! The daemon's RPC calls, which a provider bills: pinned per relay, and per idle minute.

use std::collections::BTreeMap;

use crate::prelude::*;

/// Number of calls by method.
type Calls = BTreeMap<String, usize>;

/// Relays requests, and returns the calls of the cheapest one.
async fn least_calls(
    stage: &RelayerFixture,
    client: &Client,
    requests: &[RelayRequest],
    status: u16,
) -> Calls {
    let mut costs = Vec::new();
    for request in requests {
        stage.proxy.reset();
        assert_eq!(client.relay(request).await.status, status);
        let mut calls = Calls::new();
        for method in stage.proxy.reset().into_iter().flat_map(|post| post.methods) {
            *calls.entry(method).or_default() += 1;
        }
        costs.push(calls);
    }
    costs.into_iter().min_by_key(|calls| calls.values().sum::<usize>()).unwrap()
}

fn calls<const N: usize>(expected: [(&str, usize); N]) -> Calls {
    expected.map(|(method, count)| (method.to_owned(), count)).into()
}

#[tokio::test]
async fn a_relay_costs_eight_calls_and_an_idle_minute_nineteen_until_it_is_final() {
    let stage = RelayerFixture::set().await;
    let (_daemon, client) = stage.daemon().await;
    until_ready_is(&client, 200).await;
    let eight = [
        ("eth_call", 1),                // verify
        ("eth_feeHistory", 1),          // the price
        ("eth_getBalance", 1),          // the fee's cover
        ("eth_getTransactionCount", 2), // the next nonce, and whether it is mined
        ("eth_getTransactionReceipt", 1),
        ("eth_sendRawTransaction", 1),
        ("eth_simulateV1", 1), // the outcome, and its gas
    ];
    for (name, delay) in [("quick", 0), ("slow", 100)] {
        stage.proxy.inject(FaultRule::any(NodeFault::Delay(Duration::from_millis(delay))));
        let relays = stage.registrations(name, 3);
        stage.expect(&relays);
        assert_eq!(least_calls(&stage, &client, &relays, 200).await, calls(eight), "{name}");
        stage.proxy.heal();
    }
    let refused: Vec<_> = (90..93).map(|id| stage.desk.request(&agent("nobody"), 0, &attest(id))).collect();
    let four = [("eth_call", 1), ("eth_feeHistory", 1), ("eth_getBalance", 1), ("eth_simulateV1", 1)];
    assert_eq!(least_calls(&stage, &client, &refused, 500).await, calls(four));
    // The monitor may add a call of its own.
    let nonce = format!("/nonce/{}", agent("alice").address());
    for (path, method, most) in [("/status", "eth_getBalance", 2), (nonce.as_str(), "eth_call", 1)] {
        stage.proxy.reset();
        client.get(path).await.ok();
        assert!((1..=most).contains(&stage.proxy.calls(method)), "{path}");
    }
    stage.audit(&client).await;

    // In its first round the sender also compares the blocks of these relays with the chain.
    let round = async || {
        let seen = stage.proxy.calls("eth_getTransactionCount");
        let method = "eth_getTransactionCount";
        wait_until("a round", PATIENCE, async || stage.proxy.calls(method) > seen).await;
    };
    round().await;
    round().await;
    stage.proxy.reset();
    round().await;
    let posts = stage.proxy.log();
    let minutes = (posts[posts.len() - 1].at - posts[0].at).as_secs_f64() / 60.0;
    let calls: usize = posts.iter().map(|post| post.methods.len()).sum();
    // One further round of each loop may begin within this time.
    assert!(calls as f64 <= 19.0 * minutes + 4.0, "{calls} calls in {minutes} minutes: {posts:#?}");
}
