//! The daily gas budget, used up by real spending: refused with a time to wait, not ready, without a call or
//! a write, also after a restart, and fresh a day after the first use. One address's share is its own. On a
//! node without `eth_simulateV1` a relay reserves its gas limit.

use crate::prelude::*;

const DAY: u64 = 86_400;

#[tokio::test]
async fn a_spent_budget_refuses_survives_a_restart_and_is_fresh_after_a_day() {
    let stage = Stage::set().await.var("DAILY_GAS_BUDGET", "0.01");
    let (daemon, client) = start(&stage.options.clone().var("BUDGET_SHARE_PER_IP", 1)).await;
    let unknown = Fault::error(-32601, "the method eth_simulateV1 does not exist/is not available");
    stage.proxy.inject(Rule::on("eth_simulateV1", unknown));
    stage.gas_costs(1_000_000_000).await;
    let posted = stage.leave_pending(&client, &stage.registration("first")).await;
    let reserved = client.used_wei().await;
    assert!((1_000_000_000_000_000..1_500_000_000_000_000).contains(&reserved), "{reserved}");
    stage.mine().await;
    answer(posted).await.ok();
    stage.proxy.heal();
    let second = stage.registration("second");
    let message = "This address's share of the daily gas budget is exhausted. Try again tomorrow.";
    client.relay(&second).await.refused(429, "BUDGET_SHARE_EXHAUSTED", message);
    stage.relay(&client.from_address(Ipv4Addr::new(127, 0, 2, 1)), &second).await;
    let used = client.used_wei().await;
    assert_eq!(used, stage.paid_by(&stage.accounts).await);
    daemon.kill();

    let (_daemon, client) =
        start(&stage.options.clone().var("DAILY_GAS_BUDGET", format!("0.{used:018}"))).await;
    assert_eq!(client.used_wei().await, used, "a restart refills nothing");
    let third = stage.registration("third");
    let costly = ["eth_feeHistory", "eth_call", "eth_simulateV1"];
    let calls = costly.map(|method| stage.proxy.calls(method));
    let spent = "Daily gas budget exhausted. Try again tomorrow.";
    for (clock, wait) in [(0, DAY - 600..=DAY), (DAY - 600, 1..=600)] {
        stage.options.move_clock(clock as i64);
        let answer = client.relay(&third).await;
        answer.refused(429, "GAS_BUDGET_EXHAUSTED", spent);
        assert!(wait.contains(&answer.number("retry-after")), "{:?}", answer.headers);
    }
    until_ready_is(&client, 503).await.refused(503, "GAS_BUDGET_EXHAUSTED", spent);
    assert_eq!(costly.map(|method| stage.proxy.calls(method)), calls);
    assert_eq!(client.state(&third).await.status, 404, "it was written");

    stage.options.move_clock(DAY as i64 + 1);
    assert_eq!(client.used_wei().await, 0, "a day after the first use");
    stage.gas_costs(200_000_000).await;
    stage.relay(&client, &third).await;
    let last = stage.chain.transactions_of(stage.accounts[0]).await.unwrap();
    assert_eq!(client.used_wei().await, last.last_key_value().unwrap().1.paid_wei, "a new window");
}
