//! An index's stored state survives failures of its store, and changes of the endpoints.
//!
//! 1. A statement that fails at the end of a step leaves the rows as they were. The fault is in `/readyz` and
//!    in the log, the work is tried again after a pause, and a scan answers meanwhile.
//! 2. An exhausted quota is reported as such, and the index waits for it: it does not read the chain in vain.
//! 3. With another RPC URL the index goes on with its rows, and so do cursors.
//! 4. Corrupt rows are deleted and read anew.
//! 5. The object of a release with tables of another format is left as it is, its alarm no more than an hour
//!    ahead, and cursors of its changes go on.
//! 6. An object of another registry than the settings' rests, and is deleted after 30 days without a request.
//!    One that could not store its name does not rest: the next request stores it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::anvil::{dev_key, wall_clock};
use e2e::deploy::deploy;
use e2e::process::{eventually, wait_until};
use e2e::proxy::Proxy;
use e2e::stage::WorkerStage;
use e2e::stored::{all_stored, set_alarms, stored};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::{
    NEWEST, PATIENCE, StageGuard, changes_from_now, filled, index_status, is_listed, reactivate, register,
    suspend, suspensions_are_seen,
};

/// Makes the last statement of each refresh fail with this message, after others have written.
fn break_store(stage: &WorkerStage, message: &str) {
    let trigger = format!(
        "CREATE TRIGGER broken BEFORE INSERT ON meta WHEN NEW.key = 'state' \
         BEGIN SELECT RAISE(ABORT, '{message}'); END"
    );
    stored(stage, "agents").execute_batch(&trigger).unwrap();
}

fn mend_store(stage: &WorkerStage) {
    stored(stage, "agents").execute_batch("DROP TRIGGER broken").unwrap();
}

fn stored_status(stage: &WorkerStage, id: u64) -> i64 {
    let statement = "SELECT status FROM agents WHERE id = ?1";
    stored(stage, "agents").query_row(statement, [id.cast_signed()], |row| row.get(0)).unwrap()
}

async fn becomes(stage: &WorkerStage, fault: Value) {
    wait_until("the fault is told", PATIENCE, async || {
        stage.client.get(NEWEST).await;
        index_status(stage).await.get("storeFault").cloned().unwrap_or_default() == fault
    })
    .await;
}

/// Waits until the log has these words. Since this test's own connection locks the database, the first
/// failure may be another one. So this sends requests meanwhile, for which the index tries again.
async fn logged(stage: &WorkerStage, words: [&str; 2]) {
    let said = eventually("logged", PATIENCE, async || {
        stage.client.get(NEWEST).await;
        words.iter().all(|word| stage.index_log().contains(word)).then_some(())
    });
    said.await.unwrap_or_else(|error| panic!("{words:?}: {error}: {}", stage.index_log()));
}

/// Waits until there are changes since this cursor, all of them of this agent.
async fn only_changed(stage: &WorkerStage, cursor: &str, id: u64) {
    wait_until("the change is listed", PATIENCE, async || {
        let answer = stage.client.get(&format!("/api/v1/changes?since={cursor}")).await;
        assert_ne!(answer.status, 410, "the index was filled anew: {}", answer.text);
        let data = answer.json()["data"].as_array().cloned().unwrap_or_default();
        assert!(data.iter().all(|change| change["agentId"] == id), "{data:?}");
        !data.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_survive_failures_of_the_store_and_other_endpoints() {
    let mut stage = StageGuard::with(|options| options.ttl(1)).await;
    let id = register(&stage.chain, "stored", "stored", 0).await;
    is_listed(&stage, id).await;

    stage.client.get("/api/v1/changes?since=1-1").await.failed(410, "CURSOR_EXPIRED");
    let cursor = changes_from_now(&stage.client).await;
    break_store(&stage, "disk I/O error");
    suspend(&stage.chain, id).await;
    becomes(&stage, json!("failed")).await;
    assert_eq!(stored_status(&stage, id), 0, "a step that failed at its end has written nothing");
    assert_eq!(index_status(&stage).await["percent"], 100);
    logged(&stage, ["disk I/O error", "tried again in 5 s"]).await;
    // The rows are too old to answer, so a scan does.
    suspensions_are_seen(&stage).await;
    assert_eq!(index_status(&stage).await["storeFault"], "failed");
    mend_store(&stage);
    only_changed(&stage, &cursor, id).await;
    becomes(&stage, Value::Null).await;
    assert_eq!(stored_status(&stage, id), 1);

    let cursor = changes_from_now(&stage.client).await;
    break_store(&stage, "Exceeded allowed rows written in Durable Objects free tier.");
    reactivate(&stage.chain, id).await;
    becomes(&stage, json!("outOfQuota")).await;
    let path = format!("/api/v1/changes?since={cursor}");
    wait_until("older than the TTL", PATIENCE, async || stage.client.get(&path).await.status == 503).await;
    stage.proxy.reset();
    for _ in 0..3 {
        stage.client.get(&path).await.failed(503, "INDEXING");
    }
    assert_eq!(stage.proxy.posts(), 0, "the chain is read although nothing can be stored");
    logged(&stage, ["no quota left", "tried again in 600 s"]).await;
    // Imitates the end of the quota's day: an object that starts anew tries at once.
    stage.kill_index();
    mend_store(&stage);
    stage.restart_index().await.unwrap();
    stage.index_found().await.unwrap();
    only_changed(&stage, &cursor, id).await;
    assert_eq!(index_status(&stage).await.get("storeFault"), None);

    let (cursor, objects) = (changes_from_now(&stage.client).await, all_stored(&stage, "agents").len());
    suspend(&stage.chain, id).await;
    let other = Proxy::start(stage.chain.node.url()).await.unwrap();
    let url = format!("{}/with/another/k3y", other.url());
    stage.restart_unless(|options| options.ttl(1).var("RPC_URL", &url)).await;
    only_changed(&stage, &cursor, id).await;
    assert_eq!(all_stored(&stage, "agents").len(), objects, "another object has been filled");
    assert!(other.posts() > 0);
    stage.restart_unless(|options| options.ttl(1)).await;

    stored(&stage, "agents").execute("UPDATE agents SET record = x'00'", []).unwrap();
    wait_until("found", PATIENCE, async || {
        stage.client.get(NEWEST).await;
        stage.index_log().contains("index store is corrupt: it is deleted, and filled anew")
    })
    .await;
    is_listed(&stage, id).await;
}

/// Returns the rows of the tables that an earlier release also has.
fn dump(database: &Connection) -> Vec<String> {
    let tables = ["meta", "agents", "changes", "ends", "counts", "shards", "checkpoints"];
    let rows = tables.iter().flat_map(|table| {
        let mut statement = database.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let columns = statement.column_count();
        let row = |row: &rusqlite::Row<'_>| {
            (0..columns)
                .map(|column| row.get::<_, rusqlite::types::Value>(column))
                .collect::<Result<Vec<_>, _>>()
        };
        let rows = statement.query_map([], row).unwrap().map(Result::unwrap).collect::<Vec<_>>();
        rows.into_iter().map(move |row| format!("{table}: {row:?}"))
    });
    rows.collect()
}

/// Returns the files of all objects but this one.
fn others(own: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(own.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let is_object = |file: &PathBuf| {
        let is_database = file.extension().is_some_and(|extension| extension == "sqlite");
        is_database && file != own && name(file).len() == 64
    };
    files.filter(is_object).collect()
}

/// Returns the name in workerd of the object with this file.
fn name(file: &Path) -> &str {
    file.file_stem().unwrap().to_str().unwrap()
}

/// Waits until the next alarm of the object with this file is half an hour to an hour ahead: not one for
/// work, and the object of an earlier release does no work before it.
async fn rests(stage: &WorkerStage, file: &Path) {
    let seconds = || set_alarms(stage).get(name(file)).map(Duration::as_secs);
    let is_far = || seconds().is_some_and(|left| (1_800..=3_600).contains(&left));
    wait_until("the object rests", PATIENCE, async || is_far()).await;
}

/// Removes a database with its write-ahead log.
fn remove(file: &Path) {
    for suffix in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{suffix}", file.display()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_with_other_tables_leaves_the_earlier_object_and_goes_on_from_its_changes() {
    let mut stage = StageGuard::with(|options| options.ttl(1)).await;
    is_listed(&stage, register(&stage.chain, "before", "before", 0).await).await;
    let own = PathBuf::from(stored(&stage, "agents").path().unwrap());
    // Each earlier format gets an object of any name: the index takes over from the first one with rows.
    let earlier = <[PathBuf; 4]>::try_from(others(&own)).unwrap();
    for (earlier, format) in earlier.into_iter().zip(["11", "12", "13", "14"]) {
        let wallet = format!("of {format}");
        let wallet = wallet.as_str();
        let id = register(&stage.chain, wallet, wallet, 0).await;
        is_listed(&stage, id).await;
        let cursor = changes_from_now(&stage.client).await;
        stage.kill_index();
        // Imitates the earlier release: its tables, in the object of its name.
        stored(&stage, "agents").execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
        remove(&earlier);
        fs::copy(&own, &earlier).unwrap();
        remove(&own);
        let database = Connection::open(&earlier).unwrap();
        let version = format!("UPDATE meta SET value = '{format}' WHERE key = 'version'");
        database.execute_batch("DROP TABLE segments").unwrap();
        database.execute_batch(&version).unwrap();
        if format != "14" {
            database.execute_batch("DROP TABLE postings").unwrap();
        }
        if ["11", "12"].contains(&format) {
            database.execute_batch("DROP INDEX agents_by_event; DROP TABLE earlier").unwrap();
        }
        if format == "11" {
            let columns = "ALTER TABLE agents DROP COLUMN events; ALTER TABLE changes DROP COLUMN liable";
            database.execute_batch(columns).unwrap();
        }
        let before = dump(&database);
        let alarm = "INSERT OR REPLACE INTO _cf_ALARM (actor_id, scheduled_time, actor_name) \
                 SELECT ?2, scheduled_time, actor_name FROM _cf_ALARM WHERE actor_id = ?1";
        stored(&stage, "_cf_ALARM").execute(alarm, [name(&own), name(&earlier)]).unwrap();
        suspend(&stage.chain, id).await;
        stage.restart_index().await.unwrap();
        only_changed(&stage, &cursor, id).await;
        let statement = "SELECT status FROM agents WHERE id = ?1";
        let status = |database: &Connection| {
            database.query_row(statement, [id.cast_signed()], |row| row.get::<_, i64>(0)).unwrap()
        };
        let own_status = status(&Connection::open(&own).unwrap());
        assert_eq!((own_status, status(&database)), (1, 0), "in an object of its own");
        rests(&stage, &earlier).await;
        assert_eq!(dump(&database), before, "should the earlier release be deployed again, it finds its own");
        stage.kill_index();
        remove(&earlier);
        stage.restart_index().await.unwrap();
        stage.index_found().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_object_of_another_registry_than_the_settings_rests_and_is_deleted_after_thirty_days() {
    let mut stage = StageGuard::with(|options| options.ttl(1)).await;
    let id = register(&stage.chain, "resting", "resting", 0).await;
    is_listed(&stage, id).await;
    let other = deploy(stage.chain.node.url(), dev_key(0)).await.unwrap().registry;
    let database = stored(&stage, "agents");
    let own = PathBuf::from(database.path().unwrap());
    let before = others(&own);
    stage.restart_unless(|options| options.ttl(1).var("REGISTRY_ADDRESS", other)).await;
    rests(&stage, &own).await;
    let agents: i64 = database.query_row("SELECT count(*) FROM agents", [], |row| row.get(0)).unwrap();
    assert_eq!(agents, id.cast_signed(), "the rows are of the registry that they were of");
    // Imitates a last request 29, and then 30 days ago.
    for (days, is_kept) in [(29, true), (30, false)] {
        stage.kill_index();
        let at = ((wall_clock() - days * 86_400) * 1_000).to_string();
        let asked = "UPDATE meta SET value = ?1 WHERE key = 'asked_at'";
        let object = Connection::open(&own).unwrap();
        assert_eq!(object.execute(asked, [at]), Ok(1));
        // The object stores the time of its alarm, too.
        object.execute_batch("UPDATE _cf_METADATA SET value = 1 WHERE key = 1").unwrap();
        drop(object);
        let now = "UPDATE _cf_ALARM SET scheduled_time = 1 WHERE actor_id = ?1";
        assert_eq!(stored(&stage, "_cf_ALARM").execute(now, [name(&own)]).unwrap(), 1);
        stage.restart_index().await.unwrap();
        let tables = "SELECT count(*) FROM sqlite_master WHERE name = 'agents'";
        let has_rows = || Connection::open(&own).unwrap().query_row(tables, [], |row| row.get::<_, bool>(0));
        match is_kept {
            true => rests(&stage, &own).await,
            false => wait_until("deleted", PATIENCE, async || has_rows() == Ok(false)).await,
        }
        assert_eq!(has_rows(), Ok(is_kept), "after {days} days");
    }
    // Restores the stage, which the tests share.
    stage.kill_index();
    others(&own).iter().filter(|file| !before.contains(file)).for_each(|file| remove(file));
    stage.restart_unless(|options| options.ttl(1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_could_not_be_stored_is_stored_by_the_next_request() {
    let mut stage = StageGuard::with(|options| options.ttl(2)).await;
    filled(&stage.client).await;
    stage.kill_index();
    let refuse = "DELETE FROM meta WHERE key = 'object'; \
                  CREATE TRIGGER broken BEFORE INSERT ON meta WHEN NEW.key = 'object' \
                  BEGIN SELECT RAISE(ABORT, 'disk I/O error'); END";
    stored(&stage, "agents").execute_batch(refuse).unwrap();
    stage.restart_index().await.unwrap();
    stage.index_found().await.unwrap();
    mend_store(&stage);
    let name = "SELECT count(*) FROM meta WHERE key = 'object'";
    let is_named = || stored(&stage, "agents").query_row(name, [], |row| row.get::<_, bool>(0)).unwrap();
    // A request that the Worker's cache answers does not reach the object.
    wait_until("named", PATIENCE, async || stage.client.get(NEWEST).await.status == 200 && is_named()).await;
    stage.proxy.reset();
    // The alarm works only for an object with the name of the settings. There are no requests meanwhile.
    wait_until("refreshed", PATIENCE, async || stage.proxy.posts() > 0).await;
}
