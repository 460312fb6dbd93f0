//! The daily gas budget, used up by real spending: a refusal has a time to wait, shows in `/readyz`, and
//! takes no call and no write, also after a restart.

use crate::prelude::*;

const DAY: u64 = 86_400;

#[tokio::test]
async fn a_spent_budget_refuses_also_after_a_restart() {
    let stage = RelayerFixture::set().await;
    let (daemon, client) = stage.daemon().await;
    stage.register(&client, "first").await;
    let used = client.used_wei().await;
    assert_eq!(used, stage.paid_by(&stage.accounts).await);
    daemon.kill();

    let (_daemon, client) =
        start(&stage.options.clone().var("DAILY_GAS_BUDGET", format!("0.{used:018}"))).await;
    assert_eq!(client.used_wei().await, used, "a restart refills nothing");
    let second = stage.registration("second");
    let costly = ["eth_feeHistory", "eth_call", "eth_simulateV1"];
    let calls = costly.map(|method| stage.proxy.calls(method));
    let spent = "Daily gas budget exhausted. Try again tomorrow.";
    let answer = client.relay(&second).await;
    answer.refused(429, "GAS_BUDGET_EXHAUSTED", spent);
    assert!((DAY - 600..=DAY).contains(&answer.number("retry-after")), "{:?}", answer.headers);
    until_refusing(&client, "GAS_BUDGET_EXHAUSTED").await;
    assert_eq!(costly.map(|method| stage.proxy.calls(method)), calls);
    assert_eq!(client.state(&second).await.status, 404, "it was written");
}
