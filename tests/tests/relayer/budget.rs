//! The daily gas budget: real spending uses it up, and nothing but time gives it back.
//!
//! 1. Used up by real spending: message, status, `Retry-After`; the refused request was not sent and stays good.
//! 2. A restart does not refill it.
//! 3. It refills 24 hours after its first use, not before.
//! 4. What a transaction may cost is reserved while it is in flight, and what it did not cost is given back.

use e2e::daemon::Daemon;
use e2e::relay::{RelayClient, Signed};

use crate::audit::{Stage, agent};

const DAY: i64 = 86_400;
const MESSAGE: &str = "Daily gas budget exhausted. Try again tomorrow.";

/// Refused for the budget; how many seconds the client is told to wait.
async fn exhausted(client: &RelayClient, request: &Signed) -> u64 {
    let answer = client.relay(request).await;
    answer.refused(429, "GAS_BUDGET_EXHAUSTED", MESSAGE);
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
    let wait = exhausted(&client, &refused).await;
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
    exhausted(&client, &refused).await;

    stage.options.move_clock(DAY - 120);
    let wait = exhausted(&client, &refused).await;
    assert!((60..=120).contains(&wait), "{wait}");
    assert_eq!(client.used_wei().await, used);

    stage.options.move_clock(DAY + 1);
    assert_eq!(client.used_wei().await, 0, "a day after the first use");
    client.relay(&refused).await.ok();
    let last = stage.chain.transactions_of(stage.options.relayer()).await.unwrap();
    assert_eq!(client.used_wei().await, last.last_key_value().unwrap().1.paid_wei, "a new window");
}

#[tokio::test]
async fn what_is_in_flight_is_reserved_at_its_worst_and_settled_at_its_real_price() {
    let stage = Stage::set().await;
    // Room for two transactions at their worst, not for three.
    let options = stage.options.clone().var("DAILY_GAS_BUDGET", "0.003");
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    stage.chain.node.set_automine(false).await.unwrap();
    stage.gas_costs(1_000_000_000).await;

    let first = stage.desk.registration(&agent("first"), 0);
    let answer = stage.post_and_see_sent(&client, &first).await;
    let reserved = client.used_wei().await;
    assert!((1_000_000_000_000_000..1_500_000_000_000_000).contains(&reserved), "{reserved}");
    let second = stage.desk.registration(&agent("second"), 0);
    let second_answer = crate::audit::post(&client, &second);
    e2e::process::eventually("reserved", crate::audit::PATIENCE, async || {
        (client.used_wei().await > reserved * 19 / 10).then_some(())
    })
    .await
    .unwrap();

    let third = stage.desk.registration(&agent("third"), 0);
    exhausted(&client, &third).await;
    stage.chain.node.set_automine(true).await.unwrap();
    stage.chain.node.mine(1).await.unwrap();
    answer.await.unwrap().unwrap().ok();
    second_answer.await.unwrap().unwrap().ok();
    assert!(client.used_wei().await < reserved, "two real prices are less than one worst case");
    client.relay(&third).await.ok();
    stage.audit(&client, &[&first, &second, &third]).await;
}
