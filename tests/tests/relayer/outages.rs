//! A disk that is full, a journal that is locked, and a node that stands still.

use std::path::PathBuf;

use crate::prelude::*;

fn journal(options: &DaemonOptions, ending: &str) -> PathBuf {
    let mut files = fs::read_dir(options.data_dir()).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.to_string_lossy().ends_with(ending)).expect("a journal")
}

#[tokio::test]
async fn on_a_full_disk_nothing_is_sent_and_who_hears_of_an_acceptance_finds_it() {
    let stage = Stage::set().await.var("RELAY_WAIT_SECONDS", 1);
    let (mut daemon, client) = stage.daemon().await;
    let failed = async |request: &Signed| {
        let answer = client.relay(request).await;
        if answer.status == 500 {
            answer.refused(500, "JOURNAL_FAILED", "Relayer storage failed. Nothing was sent.");
        }
        answer.status == 500
    };
    // One waits in the pool, one is accepted and not sent yet.
    let posted = stage.leave_pending(&client, &stage.registration("in flight")).await;
    assert_eq!(answer(posted).await.status, 202);
    stage.proxy.inject(Rule::on("eth_feeHistory", Fault::error(-32005, "request rate limited")));
    let [accepted, refused] = ["accepted", "refused"].map(|name| stage.registration(name));
    assert_eq!(client.relay(&accepted).await.status, 202);
    daemon.process().limit_files(Some(0)).unwrap();
    assert!(failed(&refused).await, "accepted without a journal");
    stage.proxy.heal();
    stage.mine().await;
    let calls = || ["eth_getBalance", "eth_getTransactionReceipt"].map(|method| stage.proxy.calls(method));
    let before = calls();
    wait_until("tried", PATIENCE, async || calls().iter().zip(before).all(|(now, then)| *now > then)).await;
    assert_eq!(state(&client, &accepted).await, "pending");
    assert_eq!(client.state(&refused).await.status, 404);
    assert_eq!(stage.sent().len(), 1, "sent without a journal");
    let unready = until_ready_is(&client, 503).await;
    assert!(
        unready
            .refused(503, "JOURNAL_FAILED", "Relayer storage failed. Nothing was sent.")
            .number("retry-after")
            > 0
    );
    assert_eq!(client.get("/livez").await.status, 200, "alive all the same");
    daemon.process().limit_files(None).unwrap();
    until_executed(&client, &[stage.registration("in flight"), accepted.clone()]).await;
    stage.expect([&accepted]);

    // It fills up in the middle of many: how many have room depends on how many share a commit.
    let log_length = fs::metadata(journal(&stage.options, ".sqlite-wal")).unwrap().len();
    daemon.process().limit_files(Some(log_length + 150_000)).unwrap();
    let (mut accepted, mut refused): (Vec<Signed>, Vec<Signed>) = Default::default();
    for wave in 0..40 {
        let wave = stage.registrations(&format!("wave {wave}"), 12);
        let failures = join_all(wave.iter().map(&failed)).await;
        for (request, failed) in wave.into_iter().zip(failures) {
            if failed { refused.push(request) } else { accepted.push(request) }
        }
        if !refused.is_empty() {
            break;
        }
    }
    assert!(!accepted.is_empty() && !refused.is_empty(), "{} accepted", accepted.len());
    // Dead in the middle of it, and started again on a disk with room.
    daemon.kill();
    let (_daemon, client) = start(&stage.options).await;
    until_executed(&client, &accepted).await;
    for request in &refused {
        assert_eq!(client.state(request).await.status, 404);
    }
    stage.expect(&accepted);
    stage.audit(&client).await;
}

#[tokio::test]
async fn reads_leave_a_node_that_stands_still() {
    let stage = Stage::set().await;
    let urls = format!("{},{}", stage.proxy.url(), stage.chain.node.url());
    let stage = stage.var("RPC_URL", urls);
    let (mut daemon, client) = stage.daemon().await;
    stage.register(&client, "alice").await;
    let head = stage.chain.node.height().await.unwrap();
    stage.proxy.inject(Rule::any(Fault::Stale { head }));
    stage.chain.node.mine(5).await.unwrap();
    daemon.logged(&["reads moved"]).await.unwrap();
    stage.register(&client, "bob").await;
    stage.audit(&client).await;
}
