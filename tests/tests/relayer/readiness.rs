//! `GET /readyz`: it knows when a relay could not be carried out, and says why, always with 503.
//!
//! 1. A journal that cannot be written.
//! 2. A sender whose rounds do not come to an end, while the chain answers otherwise.
//! 3. A budget that pays no relay any more, until its window ends.
//! 4. An account that is nearly empty is in `api`.

use std::time::Duration;

use e2e::daemon::{Daemon, DaemonOptions};
use e2e::fault::{Fault, Rule};
use e2e::process::{Process, Spawn, eventually};
use e2e::relay::RelayClient;
use serde_json::json;

use crate::audit::{PATIENCE, Stage, agent, ready};

/// Several rounds of the monitor, and the silence that the sender is allowed.
const LONG: Duration = Duration::from_secs(120);

/// Waits until the daemon is not ready, for this reason.
async fn not_ready(client: &RelayClient, code: &str) {
    let answer = eventually("not ready", LONG, async || {
        Some(client.get("/readyz").await).filter(|answer| answer.status != 200)
    });
    let answer = answer.await.unwrap();
    assert_eq!((answer.status, &answer.json()["code"]), (503, &json!(code)), "{}", answer.text);
    assert!(answer.number("retry-after") > 0);
    assert_eq!(client.get("/livez").await.status, 200, "alive all the same");
}

/// Another process that holds the journal's write lock until it is dropped.
async fn lock_journal(options: &DaemonOptions) -> Process {
    const HOLD: &str = "import sqlite3, sys, time\n\
        sqlite3.connect(sys.argv[1], isolation_level=None).execute('BEGIN IMMEDIATE')\n\
        print('held', flush=True)\n\
        time.sleep(600)";
    let journal = std::fs::read_dir(options.data_dir())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "sqlite"));
    let mut holder =
        Spawn::new("lock", "python3").args(["-c", HOLD]).arg(journal.expect("a journal")).start().unwrap();
    holder.until("held", PATIENCE, async |log| log.contains("held").then_some(())).await.unwrap();
    holder
}

#[tokio::test]
async fn a_journal_that_cannot_be_written_is_not_ready() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    ready(&client, LONG).await;
    let holder = lock_journal(&stage.options).await;
    not_ready(&client, "JOURNAL_FAILED").await;
    drop(holder);
    ready(&client, LONG).await;
    let request = stage.desk.registration(&agent("alice"), 0);
    client.relay(&request).await.ok();
    stage.audit(&client, &[&request]).await;
}

#[tokio::test]
async fn a_sender_that_stands_still_is_not_ready() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    ready(&client, LONG).await;
    stage.proxy.inject(Rule::on("eth_getTransactionCount", Fault::error(-32603, "internal error")));
    not_ready(&client, "SENDER_STALLED").await;
    stage.proxy.heal();
    ready(&client, LONG).await;
}

#[tokio::test]
async fn a_budget_that_pays_no_relay_is_not_ready_until_its_window_ends() {
    let stage = Stage::set().await;
    stage.options.move_clock(0);
    let (mut daemon, client) = stage.daemon().await;
    client.relay(&stage.desk.registration(&agent("alice"), 0)).await.ok();
    let paid = client.used_wei().await;
    daemon.terminate().await.unwrap();

    // A wei more than was paid already.
    let options = stage.options.clone().var("DAILY_GAS_BUDGET", format!("0.{:018}", paid + 1));
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    not_ready(&client, "GAS_BUDGET_EXHAUSTED").await;
    stage.options.move_clock(24 * 60 * 60);
    ready(&client, LONG).await;
}
