//! Copying a journal from a file into a Postgres database.
//!
//! All of it is one transaction of the target: what is interrupted leaves nothing there, and is run again. A
//! mark in both journals tells one that was copied before.

use std::sync::Arc;

use alloy::primitives::{Address, B256};

use super::{
    Store,
    engine::{Db, Value, column, each, single, values},
};
use crate::store::{StoreError, migration::Migration};

/// How many rows are read and sent at a time.
const STEP: i64 = 500;
/// The row of `control` that marks a copied journal; its subject is random.
const MARK: &str = "migrated";

/// A table: how a step of its rows is read, after a place in its order, how one is written, and which columns are
/// booleans.
struct Table {
    name: &'static str,
    read: &'static str,
    write: &'static str,
    count: &'static str,
    booleans: &'static [usize],
}

/// A table that is read by the place in its first column, which is not written.
macro_rules! table {
    ($name:literal by $place:literal, [$($column:literal),+], $parameters:literal, $booleans:expr) => {
        Table {
            name: $name,
            read: concat!(
                "SELECT ", $place, " AS place", $(", ", $column,)+ " FROM ", $name,
                " WHERE ", $place, " > $1 ORDER BY ", $place, " LIMIT $2"
            ),
            write: concat!("INSERT INTO ", $name, " (", table!(@list $($column),+), ") VALUES (", $parameters, ")"),
            count: concat!("SELECT count(*) AS rows FROM ", $name),
            booleans: $booleans,
        }
    };
    (@list $first:literal $(, $column:literal)*) => { concat!($first $(, ", ", $column)*) };
}

/// In an order in which each row finds those that it refers to.
const TABLES: [Table; 9] = [
    table!("relays" by "rowid", ["id", "signer", "forward_nonce", "deadline", "calldata", "l1_fee_wei", "reserved_wei",
        "state", "error_code", "error_detail", "error_retry", "tx_hash", "block_number", "gas_used", "agent_id",
        "created_at", "finished_at", "client", "expected_gas", "api_key", "sponsored_gas", "is_told"],
        "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22", &[21]),
    table!("archive" by "rowid", ["id", "state", "error_code", "error_detail", "error_retry", "tx_hash", "block_number",
        "gas_used", "agent_id", "finished_at", "finality", "hashes"],
        "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12", &[]),
    table!("webhook_events" by "sequence", ["sequence", "id", "api_key", "relay", "body", "created_at", "expires_at",
        "attempts", "due_at", "ended_at", "was_delivered"],
        "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11", &[10]),
    table!("operations" by "sequence", ["at", "operator", "command", "argument", "result"], "$1, $2, $3, $4, $5", &[]),
    // These have a row for each paying key, customer or order.
    Table {
        name: "budget",
        read: "SELECT only_row AS place, only_row, opened_at, settled_wei FROM budget WHERE only_row > $1 LIMIT $2",
        write: "INSERT INTO budget (only_row, opened_at, settled_wei) VALUES ($1, $2, $3)
                ON CONFLICT (only_row) DO UPDATE SET opened_at = excluded.opened_at, settled_wei = excluded.settled_wei",
        count: "SELECT count(*) AS rows FROM budget WHERE opened_at IS NOT NULL OR settled_wei <> '0'",
        booleans: &[],
    },
    Table {
        name: "spending",
        read: "SELECT 0 AS place, party, settled_wei FROM spending WHERE $1 < 0 AND $2 > 0",
        write: "INSERT INTO spending (party, settled_wei) VALUES ($1, $2)",
        count: "SELECT count(*) AS rows FROM spending",
        booleans: &[],
    },
    Table {
        name: "key_gas",
        read: "SELECT 0 AS place, api_key, opened_at, used FROM key_gas WHERE $1 < 0 AND $2 > 0",
        write: "INSERT INTO key_gas (api_key, opened_at, used) VALUES ($1, $2, $3)",
        count: "SELECT count(*) AS rows FROM key_gas",
        booleans: &[],
    },
    Table {
        name: "archived_nonces",
        read: "SELECT 0 AS place, account, highest FROM archived_nonces WHERE $1 < 0 AND $2 > 0",
        write: "INSERT INTO archived_nonces (account, highest) VALUES ($1, $2)",
        count: "SELECT count(*) AS rows FROM archived_nonces",
        booleans: &[],
    },
    Table {
        name: "control",
        read: "SELECT 0 AS place, name, subject, since, number FROM control WHERE $1 < 0 AND $2 > 0",
        write: "INSERT INTO control (name, subject, since, number) VALUES ($1, $2, $3, $4)",
        count: "SELECT count(*) AS rows FROM control",
        booleans: &[],
    },
];

/// The nonces, which have no order but their key's.
const NONCES: Table = Table {
    name: "nonces",
    read: "SELECT account, nonce, relay, state, mined_hash, mined_block, mined_block_hash, mined_at, finality, paid_wei,
               is_second
           FROM nonces WHERE (account, nonce) > ($1, $2) ORDER BY account, nonce LIMIT $3",
    write: "INSERT INTO nonces (account, nonce, relay, state, mined_hash, mined_block, mined_block_hash, mined_at, finality,
                paid_wei, is_second) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    count: "SELECT count(*) AS rows FROM nonces",
    booleans: &[10],
};

/// The transactions, which refer to nonces.
const TRANSACTIONS: Table = table!("transactions" by "rowid", ["hash", "account", "nonce", "purpose", "raw",
    "max_fee_wei", "tip_wei", "gas_limit", "created_at"], "$1, $2, $3, $4, $5, $6, $7, $8, $9", &[]);

impl Store {
    /// Copies the journal `source`, which no daemon uses, into this empty one. One that was copied before is left
    /// as it is.
    ///
    /// # Errors
    /// The store's, and where the numbers of rows differ: nothing was copied.
    pub fn migrate_from(&self, source: &Arc<Self>) -> Result<Migration, StoreError> {
        let mark = source.migration_mark()?;
        let source = Arc::clone(source);
        self.write(move |target| {
            if let Some(refused) = look(&source, target, &mark)? {
                return Ok(refused);
            }
            let mut rows = Vec::new();
            for table in &TABLES {
                rows.push((table.name, copy(&source, target, table)?));
            }
            rows.push((NONCES.name, copy_nonces(&source, target)?));
            rows.push((TRANSACTIONS.name, copy(&source, target, &TRANSACTIONS)?));
            for table in TABLES.iter().chain([&NONCES, &TRANSACTIONS]) {
                let [there, here] = [source.read(|db| count(db, table))?, count(target, table)?];
                if there != here {
                    let text = format!("{}: {there} rows in the file, {here} copied", table.name);
                    return Err(StoreError::Engine(text));
                }
            }
            // What is written next comes after what was copied.
            target
                .statements()
                .next_sequence
                .map_or(Ok(()), |next| target.query(next, values![]).map(drop))?;
            Ok(Migration::Copied(rows))
        })
    }

    /// The mark of this journal, which is made with the first question.
    fn migration_mark(&self) -> Result<[u8; 16], StoreError> {
        self.write(|db| {
            let query = "SELECT subject FROM control WHERE name = $1";
            if let Some(mark) = single(db, query, values![MARK])? {
                return Ok(mark);
            }
            let mark = alloy::primitives::FixedBytes::<16>::random().0;
            let write = "INSERT INTO control (name, subject, since, number) VALUES ($1, $2, $3, 0)";
            db.run(write, values![MARK, mark, db.now_ms()?.div_euclid(1_000)])?;
            Ok(mark)
        })
    }
}

/// Why nothing is copied, if so.
fn look(source: &Store, target: &Db, mark: &[u8; 16]) -> Result<Option<Migration>, StoreError> {
    let marks: Vec<Vec<u8>> = each(target, "SELECT subject FROM control WHERE name = $1", values![MARK])?;
    if marks.iter().any(|other| other == mark) {
        return Ok(Some(Migration::Already));
    }
    let pending = "SELECT id FROM relays WHERE state = 'pending'";
    let open: Vec<B256> = source.read(|db| each(db, pending, values![]))?;
    if let Some(both) = each(target, pending, values![])?.into_iter().find(|id| open.contains(id)) {
        return Ok(Some(Migration::OpenInBoth(both)));
    }
    let accounts: Vec<Address> = each(target, "SELECT DISTINCT account FROM nonces", values![])?;
    if let Some(account) = accounts.first() {
        return Ok(Some(Migration::HasAccount(*account)));
    }
    for table in TABLES.iter().filter(|table| table.name != "control" && table.name != "operations") {
        if count(target, table)? > 0 {
            return Ok(Some(Migration::NotEmpty(table.name)));
        }
    }
    Ok(None)
}

fn count(db: &Db, table: &Table) -> Result<u64, StoreError> {
    Ok(single(db, table.count, values![])?.unwrap_or_default())
}

fn copy(source: &Store, target: &Db, table: &Table) -> Result<u64, StoreError> {
    let (mut place, mut copied) = (-1_i64, 0);
    loop {
        let rows = source.read(|db| db.query(table.read, values![place, STEP]))?;
        let Some(last) = rows.last() else { return Ok(copied) };
        place = column(last, "place")?;
        for row in &rows {
            write(target, table, row.values().get(1..).unwrap_or_default())?;
        }
        copied += rows.len() as u64;
        flush(target)?;
    }
}

fn copy_nonces(source: &Store, target: &Db) -> Result<u64, StoreError> {
    let (mut account, mut nonce, mut copied) = (Vec::<u8>::new(), -1_i64, 0);
    loop {
        let after = values![account.clone(), nonce, STEP];
        let rows = source.read(|db| db.query(NONCES.read, after))?;
        let Some(last) = rows.last() else { return Ok(copied) };
        (account, nonce) = (column(last, "account")?, column(last, "nonce")?);
        for row in &rows {
            write(target, &NONCES, row.values())?;
        }
        copied += rows.len() as u64;
        flush(target)?;
    }
}

fn write(target: &Db, table: &Table, row: &[Value]) -> Result<(), StoreError> {
    let mut row = row.to_vec();
    for index in table.booleans {
        if let Some(value) = row.get_mut(*index) {
            *value = Value::Bool(*value == Value::Integer(1));
        }
    }
    target.run(table.write, &row)
}

/// Waits until all is written that was sent.
fn flush(target: &Db) -> Result<(), StoreError> {
    target.query("SELECT count(*) AS sent FROM identity", values![]).map(drop)
}
