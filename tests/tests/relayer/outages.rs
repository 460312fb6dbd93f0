//! A disk that is full.

use crate::prelude::*;

#[tokio::test]
async fn on_a_full_disk_nothing_is_sent_and_who_hears_of_an_acceptance_finds_it() {
    let stage = RelayerFixture::set().await.var("RELAY_WAIT_SECONDS", 1);
    let (mut daemon, client) = stage.daemon().await;
    let message = "Relayer storage failed. Nothing was sent.";
    // One relay waits in the pool, one is accepted and not sent yet.
    let posted = stage.leave_pending(&client, &stage.registration("in flight")).await;
    assert_eq!(answer(posted).await.status, 202);
    stage.proxy.inject(FaultRule::on("eth_feeHistory", NodeFault::error(-32005, "request rate limited")));
    let [accepted, refused] = ["accepted", "refused"].map(|name| stage.registration(name));
    assert_eq!(client.relay(&accepted).await.status, 202);
    daemon.process().limit_files(Some(0)).unwrap();
    client.relay(&refused).await.refused(500, "JOURNAL_FAILED", message);
    stage.proxy.heal();
    stage.mine().await;
    let calls = || ["eth_getBalance", "eth_getTransactionReceipt"].map(|method| stage.proxy.calls(method));
    let before = calls();
    wait_until("tried", PATIENCE, async || calls().iter().zip(before).all(|(now, then)| *now > then)).await;
    assert_eq!(state(&client, &accepted).await, "pending");
    assert_eq!(client.state(&refused).await.status, 404);
    assert_eq!(stage.sent().len(), 1, "sent without a journal");
    let unready = until_ready_is(&client, 503).await;
    assert!(unready.refused(503, "JOURNAL_FAILED", message).number("retry-after") > 0);
    assert_eq!(client.metric("relayer_ready").await, 0.0, "an alert fires, though no request comes");
    assert_eq!(client.get("/livez").await.status, 200, "alive all the same");
    daemon.process().limit_files(None).unwrap();
    until_executed(&client, &[stage.registration("in flight"), accepted.clone()]).await;
    until_ready_is(&client, 200).await;
    assert_eq!(client.metric("relayer_ready").await, 1.0);
    stage.expect([&accepted]);
    stage.audit(&client).await;
}
