//! What workerd has stored: the SQLite files of its objects and of its cache, opened beside it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rusqlite::Connection;

use crate::stage::Stage;

const BUSY: Duration = Duration::from_secs(10);

/// The databases in which workerd has stored that table: one for each object.
pub fn all_stored(stage: &Stage, table: &str) -> Vec<Connection> {
    // Beside the objects lies what keeps the cache, in databases of the same shape.
    databases_with(table, &stage.index_state().join("do"))
}

/// The database in which workerd has stored that table of the index.
pub fn stored(stage: &Stage, table: &str) -> Connection {
    let database = all_stored(stage, table).into_iter().next().expect(table);
    database.busy_timeout(BUSY).expect("a timeout");
    database
}

/// The alarms that the index's objects have set: the object's name in workerd, and the time left.
pub fn set_alarms(stage: &Stage) -> BTreeMap<String, Duration> {
    let database = stored(stage, "_cf_ALARM");
    let mut statement = database.prepare("SELECT actor_id, scheduled_time FROM _cf_ALARM").expect("a table");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let row = |row: &rusqlite::Row<'_>| {
        let at = Duration::from_nanos(row.get::<_, i64>(1)?.unsigned_abs());
        Ok((row.get(0)?, at.saturating_sub(now)))
    };
    statement.query_map([], row).and_then(Iterator::collect).expect("alarms")
}

/// The keys of the entries that the data centre's cache of a Worker with that state directory has
/// stored: URLs. What is listed outlasts the Worker's end; an entry's file alone does not.
pub fn cached_keys(state: &Path) -> Vec<String> {
    let keys = |database: &Connection| {
        let mut statement = database.prepare("SELECT key FROM _mf_entries")?;
        statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()
    };
    let databases = databases_with("_mf_entries", state);
    databases.iter().flat_map(|database| keys(database).unwrap_or_default()).collect()
}

/// The databases below that directory that have that table. Beside them are those of workerd's own
/// objects.
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
