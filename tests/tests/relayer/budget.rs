//! The daily gas budget: real spending uses it up, and nothing but time gives it back.
//!
//! 1. Used up by real spending: message, status, `Retry-After`; the refused request was not sent and stays
//!    good.
//! 2. A restart does not refill it.
//! 3. It refills 24 hours after its first use, not before.
//! 4. What a transaction will need is reserved while it is in flight, and what it did not cost is given back.
//!    Where only that stands in the way, a client is told seconds and not tomorrow.
//! 5. One address does not spend everybody's budget.
//! 6. Once the budget is spent, a request costs neither RPC calls nor a write.
//! 7. On a node without `eth_simulateV1` the worst case is reserved.

use e2e::daemon::Daemon;
use e2e::fault::{Fault, Rule};
use e2e::relay::{RelayClient, Signed};

use crate::audit::{Stage, agent};

const DAY: i64 = 86_400;
const EXHAUSTED: &str = "Daily gas budget exhausted. Try again tomorrow.";
const TOO_SMALL: &str =
    "What is left of the daily gas budget does not cover this request. A cheaper one may fit.";

/// Refused for the budget, of which too little is left for a request like this; how many seconds the client
/// is told to wait.
async fn too_small(client: &RelayClient, request: &Signed) -> u64 {
    let answer = client.relay(request).await;
    answer.refused(429, "BUDGET_TOO_SMALL", TOO_SMALL);
    answer.number("retry-after")
}

#[tokio::test]
async fn the_budget_is_used_up_by_spending_survives_a_restart_and_refills_a_day_after_its_first_use() {
    let mut stage = Stage::set().await;
    stage.options = stage.options.clone().var("DAILY_GAS_BUDGET", "0.003");
    let (daemon, client) = stage.daemon().await;

    let mut executed: Vec<Signed> = Vec::new();
    let refused = loop {
        assert!(executed.len() < 30, "the budget is never used up");
        // Without this the price of gas would fall with every block that is not half full.
        stage.gas_costs(1_000_000_000).await;
        let request = stage.desk.registration(&agent(&format!("spender {}", executed.len())), 0);
        let answer = client.relay(&request).await;
        if answer.status != 200 {
            break request;
        }
        executed.push(request);
    };
    assert!(executed.len() >= 2, "real spending, not a first reservation, used it up");
    let wait = too_small(&client, &refused).await;
    assert!((DAY as u64 - 60..=DAY as u64).contains(&wait), "{wait}");
    let used = client.used_wei().await;
    let budget = &client.get("/status").await.ok()["gasBudget"];
    assert_eq!(budget["limitWei"], "3000000000000000");
    let remaining: u128 = budget["remainingWei"].as_str().unwrap().parse().unwrap();
    assert_eq!(used + remaining, 3_000_000_000_000_000, "within the limit, to the wei");
    assert_eq!(stage.proxy.calls("eth_sendRawTransaction"), executed.len(), "the refused one was not sent");

    daemon.kill();
    let (_daemon, client) = stage.daemon().await;
    assert_eq!(client.used_wei().await, used, "a restart refills nothing");
    too_small(&client, &refused).await;

    stage.options.move_clock(DAY - 120);
    let wait = too_small(&client, &refused).await;
    assert!((60..=120).contains(&wait), "{wait}");
    assert_eq!(client.used_wei().await, used);

    stage.options.move_clock(DAY + 1);
    assert_eq!(client.used_wei().await, 0, "a day after the first use");
    client.relay(&refused).await.ok();
    let last = stage.chain.transactions_of(stage.options.relayer()).await.unwrap();
    assert_eq!(client.used_wei().await, last.last_key_value().unwrap().1.paid_wei, "a new window");
}

#[tokio::test]
async fn what_is_in_flight_is_reserved_by_its_need_and_settled_at_its_real_price() {
    let stage = Stage::set().await;
    // Room for two transactions as they were simulated, not for three.
    let options = stage.options.clone().var("DAILY_GAS_BUDGET", "0.002");
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    stage.chain.node.set_automine(false).await.unwrap();
    stage.gas_costs(1_000_000_000).await;

    let first = stage.desk.registration(&agent("first"), 0);
    let answer = stage.post_and_see_sent(&client, &first).await;
    let reserved = client.used_wei().await;
    assert!((700_000_000_000_000..1_000_000_000_000_000).contains(&reserved), "{reserved}");
    let second = stage.desk.registration(&agent("second"), 0);
    let second_answer = crate::audit::post(&client, &second);
    e2e::process::eventually("reserved", crate::audit::PATIENCE, async || {
        (client.used_wei().await > reserved * 19 / 10).then_some(())
    })
    .await
    .unwrap();

    let third = stage.desk.registration(&agent("third"), 0);
    let message =
        "The rest of the daily gas budget is reserved for relays in flight. Please try again shortly.";
    let refusal = client.relay(&third).await;
    refusal.refused(503, "BUDGET_RESERVED", message);
    assert!((1..60).contains(&refusal.number("retry-after")));
    stage.chain.node.set_automine(true).await.unwrap();
    stage.chain.node.mine(1).await.unwrap();
    answer.await.unwrap().unwrap().ok();
    second_answer.await.unwrap().unwrap().ok();
    assert!(client.used_wei().await < reserved, "two real prices are less than one need with its margins");
    client.relay(&third).await.ok();
    stage.audit(&client, &[&first, &second, &third]).await;
}

#[tokio::test]
async fn one_address_does_not_spend_everybodys_budget() {
    let mut stage = Stage::set().await;
    let options = stage.options.clone().var("DAILY_GAS_BUDGET", "0.004").var("BUDGET_SHARE_PER_IP", 50);
    stage.options = options;
    let (_daemon, client) = stage.daemon().await;
    let greedy = client.from_address([127, 0, 1, 1]);
    let mut executed = Vec::new();
    let refused = loop {
        assert!(executed.len() < 30, "the share is never used up");
        stage.gas_costs(1_000_000_000).await;
        let request = stage.desk.registration(&agent(&format!("greedy {}", executed.len())), 0);
        let answer = greedy.relay(&request).await;
        if answer.status != 200 {
            answer.refused(429, "BUDGET_TOO_SMALL", TOO_SMALL);
            assert!(answer.number("retry-after") > 80_000);
            break request;
        }
        executed.push(request);
    };
    assert!(executed.len() >= 2, "real spending used it up");
    assert!(client.used_wei().await <= 2_000_000_000_000_000, "half of it");

    stage.gas_costs(1_000_000_000).await;
    let modest = client.from_address([127, 0, 2, 1]);
    modest.relay(&refused).await.ok();
    executed.push(refused);
    stage.audit(&client, &executed.iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn once_the_budget_is_spent_a_request_costs_neither_calls_nor_a_write() {
    let stage = Stage::set().await;
    let (daemon, client) = stage.daemon().await;
    let first = stage.desk.registration(&agent("first"), 0);
    client.relay(&first).await.ok();
    let used = client.used_wei().await;
    daemon.kill();

    let ether = format!("0.{used:018}");
    let daemon = Daemon::start(&stage.options.clone().var("DAILY_GAS_BUDGET", ether)).await.unwrap();
    let client = daemon.client();
    let costly = ["eth_feeHistory", "eth_call", "eth_simulateV1"];
    let calls = costly.map(|method| stage.proxy.calls(method));
    let second = stage.desk.registration(&agent("second"), 0);
    client.relay(&second).await.refused(429, "GAS_BUDGET_EXHAUSTED", EXHAUSTED);
    assert_eq!(costly.map(|method| stage.proxy.calls(method)), calls);
    assert_eq!(client.state(&second).await.status, 404, "nothing was written");
}

#[tokio::test]
async fn a_node_that_does_not_simulate_gas_means_worst_cases() {
    let stage = Stage::set().await;
    let unknown = Fault::error(-32601, "the method eth_simulateV1 does not exist/is not available");
    stage.proxy.inject(Rule::on("eth_simulateV1", unknown));
    let (_daemon, client) = stage.daemon().await;
    stage.chain.node.set_automine(false).await.unwrap();
    stage.gas_costs(1_000_000_000).await;
    let request = stage.desk.registration(&agent("first"), 0);
    let answer = stage.post_and_see_sent(&client, &request).await;
    let reserved = client.used_wei().await;
    assert!((1_000_000_000_000_000..1_500_000_000_000_000).contains(&reserved), "{reserved}");
    stage.chain.node.set_automine(true).await.unwrap();
    stage.chain.node.mine(1).await.unwrap();
    answer.await.unwrap().unwrap().ok();
    let other = stage.desk.registration(&agent("second"), 0);
    client.relay(&other).await.ok();
    assert_eq!(stage.proxy.calls("eth_simulateV1"), 1, "asked once");
    stage.audit(&client, &[&request, &other]).await;
}
