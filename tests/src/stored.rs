//! The SQLite files of workerd's objects and of its cache, opened while it runs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;

use crate::stage::WorkerStage;

const BUSY: Duration = Duration::from_secs(10);

/// Opens the databases in which workerd has stored that table, one for each object.
pub fn all_stored(stage: &WorkerStage, table: &str) -> Vec<Connection> {
    // The cache is kept beside the objects, in databases of the same shape.
    databases_with(table, &stage.index_state().join("do"))
}

/// Opens the first database in which workerd has stored that table of the index.
pub fn stored(stage: &WorkerStage, table: &str) -> Connection {
    let database = all_stored(stage, table).into_iter().next().expect(table);
    database.busy_timeout(BUSY).expect("a timeout");
    database
}

/// Returns the time left of each alarm of the index's objects, by the object's name in workerd.
pub fn set_alarms(stage: &WorkerStage) -> BTreeMap<String, Duration> {
    let database = stored(stage, "_cf_ALARM");
    let mut statement = database.prepare("SELECT actor_id, scheduled_time FROM _cf_ALARM").expect("a table");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let row = |row: &rusqlite::Row<'_>| {
        let at = Duration::from_nanos(row.get::<_, i64>(1)?.unsigned_abs());
        Ok((row.get(0)?, at.saturating_sub(now)))
    };
    statement.query_map([], row).and_then(Iterator::collect).expect("alarms")
}

/// Returns the keys, which are URLs, of the cache entries of a Worker with that state directory. A listed
/// entry outlasts the Worker's end; an entry's file alone does not.
pub fn cached_keys(state: &Path) -> Vec<String> {
    let keys = |database: &Connection| {
        let mut statement = database.prepare("SELECT key FROM _mf_entries")?;
        statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()
    };
    let databases = databases_with("_mf_entries", state);
    databases.iter().flat_map(|database| keys(database).unwrap_or_default()).collect()
}

/// Opens the databases below that directory with that table. workerd's own objects have theirs there, too.
fn databases_with(table: &str, directory: &Path) -> Vec<Connection> {
    let mut files = Vec::new();
    sqlite_files(directory, &mut files);
    let has = "SELECT 1 FROM sqlite_master WHERE name = ?1";
    let mut databases: Vec<Connection> =
        files.iter().filter_map(|path| Connection::open(path).ok()).collect();
    databases.retain(|database| database.query_row(has, [table], |_| Ok(())).is_ok());
    databases
}

fn sqlite_files(directory: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            sqlite_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "sqlite") {
            files.push(path);
        }
    }
}
