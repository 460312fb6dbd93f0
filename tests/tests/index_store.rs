//! What an index has stored: it survives failures of its store, and changes of the endpoints.
//!
//! 1. A statement that fails, also in the middle of a step, leaves the rows as they were. The fault is in
//!    `/readyz` and in the log, the work is tried again after a pause, and the chain is not read meanwhile.
//! 2. A quota that is used up is named so, and waited for.
//! 3. Rows that are not as they were written are deleted and read anew.
//! 4. With another RPC URL the index goes on with its rows, and so do cursors.

use std::time::Duration;

use e2e::anvil::{AnvilOptions, wall_clock};
use e2e::chain::Chain;
use e2e::client::Answer;
use e2e::process::{eventually, wait_until};
use e2e::proxy::Proxy;
use e2e::seed;
use e2e::stage::Stage;
use e2e::stored::{all_stored, stored};
use serde_json::{Value, json};

const WAIT: Duration = Duration::from_secs(60);
const AGENTS: u64 = 10;
/// Answered by the index, or else from a scan.
const DETAILED: &str = "/api/v1/stats/detailed";
/// Answered by the index alone.
const NEWEST: &str = "/api/v1/agents?sort=-id&limit=1";

/// A stage with a complete index and a TTL of a second, and a cursor of its changes.
async fn filled() -> (Stage, String) {
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await.unwrap();
    seed::many(&chain, AGENTS).await.unwrap();
    let stage = Stage::indexed(chain, |options| options.ttl(1)).await.unwrap();
    wait_until("filled", WAIT, async || stage.client.get(NEWEST).await.status == 200).await;
    let cursor = stage.client.get("/api/v1/changes?since=now").await.ok()["next"].clone();
    (stage, cursor.as_str().unwrap().to_owned())
}

async fn suspend(stage: &Stage, id: u64) {
    stage.chain.send(stage.chain.owner(), seed::suspension(id, "end to end")).await.unwrap();
}

/// Makes the last statement of each refresh fail with this message, after others have written.
fn break_store(stage: &Stage, message: &str) {
    let trigger = format!(
        "CREATE TRIGGER broken BEFORE INSERT ON meta WHEN NEW.key = 'state' \
         BEGIN SELECT RAISE(ABORT, '{message}'); END"
    );
    stored(stage, "agents").execute_batch(&trigger).unwrap();
}

fn mend_store(stage: &Stage) {
    stored(stage, "agents").execute_batch("DROP TRIGGER broken").unwrap();
}

async fn index_status(stage: &Stage) -> Value {
    stage.client.get("/readyz").await.ok()["index"].clone()
}

async fn changes(stage: &Stage, cursor: &str) -> Answer {
    stage.client.get(&format!("/api/v1/changes?since={cursor}")).await
}

/// The agents with a change of verdict since the cursor, once there is one.
async fn changed(stage: &Stage, cursor: &str) -> Vec<Value> {
    let mut ids = Vec::new();
    wait_until("the change is listed", WAIT, async || {
        let answer = changes(stage, cursor).await;
        assert_ne!(answer.status, 410, "the index was filled anew: {}", answer.text);
        if answer.status == 200 {
            let list = answer.ok();
            ids = list["data"].as_array().unwrap().iter().map(|change| change["agentId"].clone()).collect();
        }
        !ids.is_empty()
    })
    .await;
    ids
}

/// The status that the index has stored of an agent.
fn stored_status(stage: &Stage, id: u32) -> i64 {
    let statement = "SELECT status FROM agents WHERE id = ?1";
    stored(stage, "agents").query_row(statement, [id], |row| row.get(0)).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_keeps_its_rows_and_goes_on_once_it_works() {
    let (stage, cursor) = filled().await;
    break_store(&stage, "disk I/O error");
    suspend(&stage, 3).await;
    wait_until("the fault is told", WAIT, async || {
        stage.client.get(NEWEST).await;
        index_status(&stage).await["storeFault"] == "failed"
    })
    .await;
    assert_eq!(stored_status(&stage, 3), 0, "a step that failed at its end has written nothing");
    assert_eq!(index_status(&stage).await["percent"], 100);
    let log = stage.index_log();
    assert!(log.contains("disk I/O error") && log.contains("tried again in 5 s"), "{log}");
    // The rows are too old to answer, and a scan does.
    let detailed = stage.client.get(DETAILED).await.ok();
    assert_eq!(detailed["statusDistribution"]["Suspended"], 2);

    mend_store(&stage);
    assert_eq!(changed(&stage, &cursor).await, [json!(3)]);
    wait_until("the fault is over", WAIT, async || index_status(&stage).await.get("storeFault").is_none())
        .await;
    assert_eq!(stored_status(&stage, 3), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_that_is_used_up_is_named_and_waited_for() {
    let (mut stage, cursor) = filled().await;
    break_store(&stage, "Exceeded allowed rows written in Durable Objects free tier.");
    suspend(&stage, 3).await;
    wait_until("the fault is told", WAIT, async || {
        stage.client.get(NEWEST).await;
        index_status(&stage).await["storeFault"] == "outOfQuota"
    })
    .await;
    wait_until("the rows are older than the TTL", WAIT, async || {
        changes(&stage, &cursor).await.status == 503
    })
    .await;
    stage.proxy.reset();
    for _ in 0..3 {
        changes(&stage, &cursor).await.failed(503, "INDEXING");
    }
    assert_eq!(stage.proxy.posts(), 0, "the chain is read although nothing can be stored");
    let log = stage.index_log();
    assert!(log.contains("no quota left") && log.contains("tried again in 600 s"), "{log}");

    // As if the quota's day were over: an object that starts anew tries at once.
    stage.kill_index();
    mend_store(&stage);
    stage.restart_index().await.unwrap();
    stage.index_found().await.unwrap();
    assert_eq!(changed(&stage, &cursor).await, [json!(3)]);
    assert_eq!(index_status(&stage).await.get("storeFault"), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_that_are_not_as_they_were_written_are_read_anew() {
    let (stage, _) = filled().await;
    let ruin = "UPDATE agents SET record = x'00'";
    assert_eq!(stored(&stage, "agents").execute(ruin, []).unwrap() as u64, AGENTS);
    wait_until("found", WAIT, async || {
        stage.client.get(NEWEST).await;
        stage.index_log().contains("index store is corrupt: it is deleted, and filled anew")
    })
    .await;
    let newest = eventually("answered again", WAIT, async || {
        let answer = stage.client.get(NEWEST).await;
        (answer.status == 200).then(|| answer.ok())
    });
    let newest = newest.await.unwrap();
    assert_eq!((&newest["total"], &newest["data"][0]["agentId"]), (&json!(AGENTS), &json!(AGENTS)));
}

#[tokio::test(flavor = "multi_thread")]
async fn with_another_rpc_url_the_index_and_its_cursors_go_on() {
    let (mut stage, cursor) = filled().await;
    suspend(&stage, 3).await;
    let other = Proxy::start(stage.chain.node.url()).await.unwrap();
    let url = format!("{}/with/another/k3y", other.url());
    stage.restart_with(|options| options.var("RPC_URL", url)).await.unwrap();
    assert_eq!(changed(&stage, &cursor).await, [json!(3)]);
    assert_eq!(all_stored(&stage, "agents").len(), 1, "another object has been filled");
    assert!(other.posts() > 0);
}
