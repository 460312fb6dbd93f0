//! What workerd has stored of an index: the SQLite files of its objects, opened beside it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;

use crate::stage::Stage;

/// How long workerd may hold a lock.
const BUSY: Duration = Duration::from_secs(10);

/// The databases in which workerd has stored that table: one for each object.
///
/// # Panics
///
/// If the stage has no index.
pub fn all_stored(stage: &Stage, table: &str) -> Vec<Connection> {
    let mut files = Vec::new();
    // Beside it are those of workerd's own objects.
    let state = stage.index_state().expect("the stage has an index");
    sqlite_files(&state.join("v3/do"), &mut files);
    let has = "SELECT 1 FROM sqlite_master WHERE name = ?1";
    let mut databases: Vec<Connection> =
        files.iter().filter_map(|path| Connection::open(path).ok()).collect();
    databases.retain(|database| database.query_row(has, [table], |_| Ok(())).is_ok());
    databases
}

/// The database in which workerd has stored that table of the index.
///
/// # Panics
///
/// If there is none.
pub fn stored(stage: &Stage, table: &str) -> Connection {
    let database = all_stored(stage, table).into_iter().next().expect(table);
    database.busy_timeout(BUSY).expect("a timeout");
    database
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
