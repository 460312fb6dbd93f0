//! `relayer-daemon drain`: the daemon accepts no new request, finishes the accepted ones, and ends.

use e2e::{postgres::Postgres, process::Process};

use crate::prelude::*;

async fn drained(mut process: Process) -> Process {
    let status = process.exited(PATIENCE).await.unwrap();
    assert!(status.success() && process.log().contains("drained: nothing is in flight"), "{}", process.log());
    process
}

#[tokio::test]
async fn a_running_daemon_is_asked_finishes_what_it_has_and_ends() {
    let stage = RelayerFixture::set().await;
    drained(stage.options.drain().unwrap()).await;
    let (mut daemon, client) = stage.daemon().await;
    let request = stage.registration("alice");
    let posted = stage.leave_pending(&client, &request).await;

    let mut drain = stage.options.drain().unwrap();
    daemon.logged(&["draining"]).await.unwrap();
    let message = "Relayer is restarting. Please try again shortly.";
    client.get("/readyz").await.refused(503, "SHUTTING_DOWN", message);
    let late = client.relay(&stage.registration("bob")).await;
    assert!(late.refused(503, "SHUTTING_DOWN", message).number("retry-after") > 0);
    assert_eq!(client.state(&request).await.ok()["state"], "pending");
    let copy = post(&client, &request);
    // Two waiting connections, and that of this request.
    wait_until("joined", PATIENCE, async || client.metric("relayer_http_connections").await == 3.0).await;
    assert!(drain.exit_status().unwrap().is_none(), "it waits");

    stage.mine().await;
    assert_eq!(answer(copy).await.ok(), answer(posted).await.ok());
    let status = daemon.process().exited(PATIENCE).await.unwrap();
    assert!(status.success(), "{status}: {}", daemon.log());
    drained(drain).await;
    let (_daemon, client) = stage.daemon().await;
    stage.audit(&client).await;
}

#[tokio::test]
async fn without_a_daemon_the_drain_finishes_the_journal_and_says_so_where_it_is_stopped() {
    let stage = RelayerFixture::set().await;
    let (daemon, client) = start(&stage.options.clone().var("CRASH_AT", "after_accept:2")).await;
    let sent = stage.leave_pending(&client, &stage.registration("alice")).await;
    let unsigned = stage.registration("bob");
    stage.expect([&unsigned]);
    assert!(client.try_relay(&unsigned).await.is_err());
    daemon.crashed("after_accept").await.unwrap();
    assert!(sent.await.unwrap().is_err());

    let mut stopped = stage.options.drain().unwrap();
    wait_until("signed by the drain", PATIENCE, async || stage.waiting().await == 2).await;
    stopped.signal(Signal::TERM).unwrap();
    let status = stopped.exited(PATIENCE).await.unwrap();
    assert_eq!(status.code(), Some(1), "{}", stopped.log());
    assert!(stopped.log().contains("run drain again"), "{}", stopped.log());

    let (mut daemon, _client) = stage.daemon().await;
    let drain = stage.options.drain().unwrap();
    daemon.logged(&["draining"]).await.unwrap();
    daemon.kill();
    stage.mine().await;
    let drain = drained(drain).await;
    assert!(!drain.log().contains("listening"), "{}", drain.log());
    let (_daemon, client) = stage.daemon().await;
    stage.audit(&client).await;
}

#[tokio::test]
async fn a_drain_without_a_daemon_follows_orders_that_are_given_meanwhile() {
    let stage = RelayerFixture::set().await;
    let (daemon, client) = stage.daemon().await;
    let request = stage.registration("alice");
    let posted = stage.leave_pending(&client, &request).await;
    daemon.kill();
    assert!(posted.await.unwrap().is_err());
    let mut drain = stage.options.drain().unwrap();
    wait_until("recovered", PATIENCE, async || drain.log().contains("journal recovered")).await;
    for words in ["a no-op is to take its nonce", "already"] {
        let (code, printed) = stage.options.ctl(&["cancel", &request.id.to_string()]).await.unwrap();
        assert!(code == 0 && printed.contains(words), "{code}, {printed}");
    }
    stage.until_sent(2).await;
    // Neither signal ends the drain.
    for signal in [Signal::HUP, Signal::USR1] {
        drain.signal(signal).unwrap();
    }
    stage.mine().await;
    drained(drain).await;
    let (_daemon, client) = stage.daemon().await;
    assert_eq!(state(&client, &request).await, "dropped");
}

#[tokio::test]
async fn a_drain_says_that_it_waits_for_an_account_to_be_uncordoned() {
    let stage = RelayerFixture::set().await;
    let (mut daemon, client) = stage.daemon().await;
    let (sent, behind) = (stage.registration("alice"), stage.desk.request(&agent("alice"), 1, &attest(1)));
    let _posted = stage.leave_pending(&client, &sent).await;
    let _waiting = post(&client, &behind);
    wait_until("accepted", PATIENCE, async || client.state(&behind).await.status == 200).await;
    let account = stage.accounts[0].to_string();
    assert_eq!(stage.options.ctl(&["cordon", &account]).await.unwrap().0, 0);
    let drain = stage.options.drain().unwrap();
    daemon.logged(&["every account is cordoned"]).await.unwrap();
    stage.mine().await;
    assert_eq!(stage.options.ctl(&["uncordon", &account]).await.unwrap().0, 0);
    stage.until_sent(2).await;
    stage.mine().await;
    let status = daemon.process().exited(PATIENCE).await.unwrap();
    assert!(status.success(), "{status}: {}", daemon.log());
    drained(drain).await;
    let (_daemon, client) = stage.daemon().await;
    assert_eq!(state(&client, &behind).await, "executed");
}

#[tokio::test]
async fn alone_on_a_shared_database_the_drain_finishes_what_a_killed_daemon_has_left() {
    let postgres = Postgres::start(&[]);
    let stage = RelayerFixture::set().await.var("STORE_URL", postgres.schema()).var("LOG_LEVEL", "info");
    let (daemon, client) = stage.daemon().await;
    let sent = stage.leave_pending(&client, &stage.registration("alice")).await;
    daemon.kill();
    assert!(sent.await.unwrap().is_err());
    let mut drain = stage.options.drain().unwrap();
    let recovered = async || drain.log().contains("journal recovered");
    wait_until("the killed daemon's lease is over", PATIENCE, recovered).await;
    assert!(drain.exit_status().unwrap().is_none(), "{}", drain.log());
    stage.mine().await;
    drained(drain).await;
    let (_daemon, client) = stage.daemon().await;
    stage.audit(&client).await;
}

#[tokio::test]
async fn a_new_key_takes_over_once_the_old_one_is_drained_with_its_budget_and_its_requests() {
    let mut stage = RelayerFixture::set().await;
    let (old, new) = (
        stage.options.clone(),
        stage.options.clone().var("RELAYER_KEY", hex::encode_prefixed(dev_key(8).to_bytes())),
    );
    let alice = agent("alice");
    let (daemon, client) = stage.daemon().await;
    stage.register(&client, "alice").await;
    let second = stage.desk.request(&alice, 1, &attest(1));
    let posted = stage.leave_pending(&client, &second).await;
    let refusal = RelayerDaemon::refuse(&new).await.unwrap();
    assert!(refusal.contains("runs with this key or this journal"), "{refusal}");
    daemon.kill();
    assert!(posted.await.unwrap().is_err());
    let words = format!("{} has transactions in flight: run drain with that key first", stage.accounts[0]);
    let refusal = RelayerDaemon::refuse(&new).await.unwrap();
    let (is_good, printed) = new.check().await.unwrap();
    assert!(!is_good && [refusal, printed].iter().all(|text| text.contains(&words)));

    stage.mine().await;
    drained(old.drain().unwrap()).await;
    let (_daemon, client) = start(&new).await;
    let paid_by_old = stage.paid_by(&stage.accounts).await;
    assert_eq!(client.used_wei().await, paid_by_old, "the budget is carried over");
    client.relay(&second).await.refused(401, "ALREADY_RELAYED", MISMATCH);
    stage.relay(&client, &stage.desk.request(&alice, 2, &attest(1))).await;
    assert_eq!(stage.paid_by(&stage.accounts).await, paid_by_old, "the old key is not used any more");
    stage.chain.node.mine(100).await.unwrap();
    let is_final = async || client.state(&second).await.ok()["finality"] == "finalized";
    wait_until("final without the old key", PATIENCE, is_final).await;
    stage.accounts.push(dev_key(8).address());
    stage.audit(&client).await;
}
