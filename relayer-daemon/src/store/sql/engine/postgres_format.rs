//! The database's format: migrations in order, each run once, by the daemon that comes first.
//!
//! A migration only adds: older daemons go on beside it until each is replaced. One that does more must raise
//! `least` to its own version; older daemons then refuse to start.

use super::{Db, SqlConnection as _, column, first, postgres::Postgres, values};
use crate::store::{Result, StoreError};

/// Each migration brings the format from the version before to its own, counted from 1.
const MIGRATIONS: [&str; 5] = [
    include_str!("postgres.sql"),
    include_str!("postgres_2.sql"),
    include_str!("postgres_3.sql"),
    include_str!("postgres_4.sql"),
    include_str!("postgres_5.sql"),
];
/// The format that this program writes.
const VERSION: i64 = MIGRATIONS.len() as i64;
/// Stands in the place of a file's name.
const PLACE: &str = "in the database";

/// Returns the database's version, and the least one that a program must have; `None` for an empty database.
pub(super) fn version(db: &Db) -> Result<Option<(i64, i64)>> {
    let query = "SELECT to_regclass('format') IS NOT NULL AS is_there";
    if first(db, query, values![], |row| column(row, "is_there"))? != Some(true) {
        return Ok(None);
    }
    let query = "SELECT version, least FROM format";
    let found = first(db, query, values![], |row| Ok((column(row, "version")?, column(row, "least")?)))?;
    let Some((version, least)) = found else { return Ok(None) };
    if least > VERSION {
        let (file, found) = (PLACE.to_owned(), number(version));
        return Err(StoreError::Format { file, found, oldest: 1, known: number(VERSION) });
    }
    Ok(Some((version, least)))
}

/// Returns whether the database holds a store of this program's version, or of a later compatible one.
///
/// # Errors
/// [`StoreError::Older`] for an older version.
pub(super) fn is_current(db: &Db) -> Result<bool> {
    let Some((found, _)) = version(db)? else { return Ok(false) };
    if found < VERSION {
        let (file, found) = (PLACE.to_owned(), number(found));
        return Err(StoreError::Older { file, found, known: number(VERSION) });
    }
    Ok(true)
}

fn number(version: i64) -> u32 {
    u32::try_from(version).unwrap_or(u32::MAX)
}

/// Runs the migrations that are missing, in a transaction that writes.
pub(super) fn migrate(db: &Postgres) -> Result<()> {
    let before = version(db)?;
    if before.is_none() {
        db.batch(
            "CREATE TABLE format (
                 only_row BIGINT PRIMARY KEY CHECK (only_row = 1), version BIGINT NOT NULL, least BIGINT NOT NULL);
             INSERT INTO format VALUES (1, 0, 1)",
        )?;
    }
    let before = before.map_or(0, |(version, _)| version);
    for (version, migration) in (1..).zip(MIGRATIONS).filter(|(version, _)| *version > before) {
        db.batch(migration)?;
        db.execute("UPDATE format SET version = $1", values![version])?;
    }
    Ok(())
}

/// Writes the version unchanged.
pub(super) fn rewrite_version(db: &Db) -> Result<()> {
    db.execute("UPDATE format SET version = version", values![]).map(drop)
}
