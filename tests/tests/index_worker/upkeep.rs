//! The object's alarm, and the cron trigger that restores a lost one.

use std::time::{Duration, Instant};

use alloy::primitives::Address;
use e2e::fault::{FaultRule, NodeFault};
use e2e::process::wait_until;
use e2e::stage::WorkerStage;
use e2e::stored::{set_alarms, stored};
use e2e::worker::WorkerOptions;
use futures_util::future::join_all;

use crate::snapshot::kya;
use crate::{PATIENCE, StageGuard, filled, index_status, register, suspend, suspensions_are_seen};

/// Counts alarms for work. An idle object's alarm is weeks ahead; that of an object with other settings or of
/// another format is up to an hour ahead.
fn alarms(stage: &WorkerStage) -> usize {
    set_alarms(stage).values().filter(|at| **at < Duration::from_secs(60)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_index_that_is_asked_keeps_itself_up_and_rests_without_requests() {
    let mut stage = StageGuard::with(|options| options.ttl(2)).await;
    filled(&stage.client).await;
    let ids = [
        register(&stage.chain, "kept up", "kept up", 0).await,
        register(&stage.chain, "woken", "woken", 0).await,
        register(&stage.chain, "idle", "idle", 0).await,
    ];
    suspend(&stage.chain, ids[0]).await;
    stage.proxy.reset();
    // There are no requests meanwhile.
    wait_until("refreshed", PATIENCE, async || stage.proxy.posts() > 0).await;
    suspensions_are_seen(&stage).await;

    // Only the cron trigger wakes an index that has lost its alarm.
    stage.kill_index();
    stored(&stage, "_cf_ALARM").execute("DELETE FROM _cf_ALARM", []).unwrap();
    suspend(&stage.chain, ids[1]).await;
    stage.restart_index().await.unwrap();
    stage.proxy.reset();
    // An alarm counts as lost only after it has been overdue for a while.
    wait_until("woken", PATIENCE, async || {
        stage.fire_index_cron().await.unwrap();
        stage.proxy.posts() > 0
    })
    .await;
    // From then on it goes on by itself.
    let posts = stage.proxy.posts();
    wait_until("kept up", PATIENCE, async || stage.proxy.posts() > posts).await;
    stage.index_found().await.unwrap();
    suspensions_are_seen(&stage).await;

    // Imitates a last request long ago: the alarm reads nothing from the chain and is the last one for weeks.
    wait_until("an alarm is set", PATIENCE, async || alarms(&stage) == 1).await;
    stage.kill_index();
    let forget = "UPDATE meta SET value = '0' WHERE key = 'asked_at'";
    assert_eq!(stored(&stage, "meta").execute(forget, []).unwrap(), 1);
    suspend(&stage.chain, ids[2]).await;
    stage.proxy.reset();
    stage.restart_index().await.unwrap();
    wait_until("no alarm is set any more", PATIENCE, async || alarms(&stage) == 0).await;
    stage.fire_index_cron().await.unwrap();
    assert_eq!((alarms(&stage), stage.proxy.posts()), (0, 0), "the chain was asked for no client");
    stage.index_found().await.unwrap();
    suspensions_are_seen(&stage).await;
    wait_until("an alarm is set", PATIENCE, async || alarms(&stage) == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_work_is_tried_again_after_a_pause_however_many_verdicts_are_asked_for() {
    // Refused work fails within a second.
    let stage = StageGuard::with(|options| options.ttl(2).var("RPC_DEADLINE_SECONDS", 1)).await;
    filled(&stage.client).await;
    let failures = || stage.index_log().matches("index not kept up").count();
    let (before, began) = (failures(), Instant::now());
    stage.proxy.inject(FaultRule::any(NodeFault::Refuse));
    // Each request has a wallet of its own, so that each asks the index for an excerpt.
    let client = &stage.client;
    let ask = |number: u8| async move {
        tokio::time::sleep(Duration::from_millis(200) * u32::from(number)).await;
        client.get(&kya(Address::repeat_byte(100 + number))).await
    };
    join_all((1..=50).map(ask)).await;
    let failed = failures() - before;
    // Four failures fit into ten seconds; on a busy machine the requests take longer than that.
    let took = began.elapsed();
    assert!(failed as u64 <= 2 + took.as_secs() / 5, "{failed} failures in {took:?}");
    wait_until("tried again", PATIENCE, async || failures() > before + failed).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_alarm_waits_while_a_request_works() {
    // With these TTLs a request for changes refreshes the index before the alarm does.
    let settings =
        |options: WorkerOptions| options.ttl(4).var("KYA_TTL_SECONDS", 1).var("RPC_DEADLINE_SECONDS", 8);
    let stage = StageGuard::with(settings).await;
    filled(&stage.client).await;
    let written = async || index_status(&stage).await["rows"]["written"].as_u64().unwrap();
    let before = written().await;
    stage.proxy.reset();
    wait_until("refreshed", PATIENCE, async || {
        stage.proxy.log().iter().any(|post| post.answer.get().is_some())
    })
    .await;
    stage.proxy.inject(FaultRule::any(NodeFault::Hang));
    let path = "/api/v1/changes?since=now";
    wait_until("no answer", PATIENCE, async || stage.client.get(path).await.status != 200).await;
    stage.proxy.heal();
    stage.index_found().await.unwrap();
    let more = written().await - before;
    assert!(more < 60, "{more} rows were written, most of them alarms");
}
