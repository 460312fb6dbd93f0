//! The database's format: migrations in order, each run once, by whichever daemon comes first.
//!
//! A migration adds: the daemons of the version before go on beside it until each is replaced. One that does
//! not must raise `least` to its own version, and daemons that are older then refuse to start.

use super::{Db, Engine as _, column, first, postgres::Postgres, values};
use crate::store::StoreError;

/// Each brings the format from the version before to its own, counted from 1.
const MIGRATIONS: [&str; 4] = [
    include_str!("postgres.sql"),
    include_str!("postgres_2.sql"),
    include_str!("postgres_3.sql"),
    include_str!("postgres_4.sql"),
];
/// The format that this program writes.
const VERSION: i64 = MIGRATIONS.len() as i64;

/// The database's version, and the least one that a program must have for it; `None` for an empty database.
pub(super) fn version(db: &Db) -> Result<Option<(i64, i64)>, StoreError> {
    let query = "SELECT to_regclass('format') IS NOT NULL AS is_there";
    if first(db, query, values![], |row| column(row, "is_there"))? != Some(true) {
        return Ok(None);
    }
    let query = "SELECT version, least FROM format";
    let found = first(db, query, values![], |row| Ok((column(row, "version")?, column(row, "least")?)))?;
    let Some((version, least)) = found else { return Ok(None) };
    if least > VERSION {
        let number = |version: i64| u32::try_from(version).unwrap_or(u32::MAX);
        let file = "in the database".to_owned();
        return Err(StoreError::Format { file, found: number(version), oldest: 1, known: number(VERSION) });
    }
    Ok(Some((version, least)))
}

/// Runs the migrations that are missing, in a transaction that writes.
pub(super) fn migrate(db: &Postgres) -> Result<(), StoreError> {
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

/// Writes the version as it is.
pub(super) fn rewrite_version(db: &Db) -> Result<(), StoreError> {
    db.execute("UPDATE format SET version = version", values![]).map(drop)
}
