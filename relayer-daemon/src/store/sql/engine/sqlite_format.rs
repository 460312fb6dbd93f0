//! The file's format: one schema, with its version in the file (`PRAGMA user_version`), and the migrations
//! from older versions.

use rusqlite::{Connection, TransactionBehavior};

use crate::store::{Result, StoreError};

/// The version that this program writes.
const VERSION: u32 = 10;
/// The older versions, each with its migration to the next one. Migrations run before anything else is
/// written.
const BEFORE: [(u32, &str); 3] =
    [(7, include_str!("sqlite_8.sql")), (8, OPERATOR), (9, include_str!("sqlite_10.sql"))];
/// The tables of the operator's orders, which version 9 added.
const OPERATOR: &str = include_str!("sqlite_9.sql");

/// Creates the schema in an empty file, and brings that of an older one up to date.
pub(super) fn migrate(db: &mut Connection) -> Result<()> {
    if !is_empty(db)? && version(db)? == VERSION {
        return Ok(());
    }
    // Another process may be doing the same: only the lock's holder knows for certain.
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if is_empty(&tx)? {
        tx.execute_batch(include_str!("sqlite.sql"))?;
        tx.execute_batch(OPERATOR)?;
    } else {
        let found = version(&tx)?;
        for (_, step) in BEFORE.iter().filter(|(before, _)| *before >= found) {
            tx.execute_batch(step)?;
        }
    }
    tx.pragma_update(None, "user_version", VERSION)?;
    Ok(tx.commit()?)
}

/// Returns whether the file holds nothing yet.
///
/// # Errors
/// [`StoreError::Format`] if it holds anything but this schema or that of an older version.
pub(super) fn is_empty(db: &Connection) -> Result<bool> {
    let found = version(db)?;
    if found == VERSION || BEFORE.iter().any(|(before, _)| *before == found) {
        return Ok(false);
    }
    if found == 0 && db.query_row("SELECT count(*) = 0 FROM sqlite_schema", [], |row| row.get(0))? {
        return Ok(true);
    }
    let file = db.path().unwrap_or_default().to_owned();
    let oldest = BEFORE.first().map_or(VERSION, |(before, _)| *before);
    Err(StoreError::Format { file, found, oldest, known: VERSION })
}

/// Returns whether the file holds a journal of this version; changes nothing.
///
/// # Errors
/// [`StoreError::Older`] for an older version, [`StoreError::Format`] for anything else.
pub(super) fn is_current(db: &Connection) -> Result<bool> {
    if is_empty(db)? {
        return Ok(false);
    }
    let found = version(db)?;
    if found < VERSION {
        let file = db.path().unwrap_or_default().to_owned();
        return Err(StoreError::Older { file, found, known: VERSION });
    }
    Ok(true)
}

fn version(db: &Connection) -> Result<u32> {
    Ok(db.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

/// Writes the version unchanged: one page, whatever the file holds.
pub(super) fn rewrite_version(tx: &Connection) -> Result<()> {
    Ok(tx.pragma_update(None, "user_version", version(tx)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn a_file_of_another_format_is_refused_by_name_with_both_versions_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.sqlite");
        let mut db = Connection::open(&path).unwrap();
        for (found, sql) in [
            (0, "CREATE TABLE relays (id)"),
            (6, "PRAGMA user_version = 6"),
            (VERSION + 1, "PRAGMA user_version = 11"),
        ] {
            db.execute_batch(sql).unwrap();
            let before = std::fs::read(&path).unwrap();
            for refused in [Store::open(&path).unwrap_err(), Store::open_read_only(&path).unwrap_err()] {
                let versions = format!("has schema version {found}, this program reads 7 to {VERSION}:");
                let refused = refused.to_string();
                assert!(refused.contains(&versions) && refused.contains(path.to_str().unwrap()), "{refused}");
            }
            assert_eq!(std::fs::read(&path).unwrap(), before);
        }
        drop(db);
        std::fs::write(&path, "no journal, but longer than the header that each file of SQLite begins with")
            .unwrap();
        for refused in [Store::open(&path).unwrap_err(), Store::open_read_only(&path).unwrap_err()] {
            assert_eq!(refused.to_string(), format!("journal: {}: file is not a database", path.display()));
        }
        db = Connection::open_in_memory().unwrap();
        migrate(&mut db).unwrap();
        let before = db.total_changes();
        migrate(&mut db).unwrap();
        assert_eq!(db.total_changes(), before, "a file of this version was written to");
    }
}
