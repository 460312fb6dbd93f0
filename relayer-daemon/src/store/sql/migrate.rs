//! Copying a journal from a file into a Postgres database.
//!
//! The copy is one transaction of the target: if it is interrupted, nothing is left there, and it is run
//! again. A mark in both journals shows that one was copied before.

use std::{ops::Range, sync::Arc};

use alloy::primitives::Address;

use super::{
    Store,
    engine::{Db, Row, Value, each, single, values},
    locks, relays,
};
use crate::store::{Result, StoreError, migration::Migration};

/// Rows that are read and sent at a time.
const STEP: usize = 500;
/// The row of `control` that marks a copied journal; its subject is random.
const MARK: &str = "migrated";

/// The tables of orders, which the target may have been given before.
const ORDERS: [&str; 2] = ["control", "operations"];

/// A table to be copied.
struct Table {
    name: &'static str,
    /// The columns that order its rows.
    key: &'static [&'static str],
    /// True if the key is written, too; if not, the target has keys of its own.
    has_own_key: bool,
    /// The condition of the rows to be copied.
    rows: &'static str,
    /// The clause for a row that is there already.
    conflict: &'static str,
}

const fn table(name: &'static str, key: &'static [&'static str]) -> Table {
    Table { name, key, has_own_key: true, rows: "TRUE", conflict: "" }
}

const fn in_order(name: &'static str, key: &'static [&'static str]) -> Table {
    Table { has_own_key: false, ..table(name, key) }
}

/// The tables, in an order in which each row finds those that it refers to.
const TABLES: [Table; 11] = [
    in_order("relays", &["rowid"]),
    in_order("archive", &["rowid"]),
    table("webhook_events", &["sequence"]),
    in_order("operations", &["sequence"]),
    Table {
        rows: "opened_at IS NOT NULL OR settled_wei <> '0'",
        conflict: "ON CONFLICT (only_row) DO UPDATE
             SET opened_at = excluded.opened_at, settled_wei = excluded.settled_wei",
        ..table("budget", &["only_row"])
    },
    table("spending", &["party"]),
    table("key_gas", &["api_key"]),
    table("archived_nonces", &["account"]),
    // An order that is in force in both stays as the database has it.
    Table { conflict: "ON CONFLICT DO NOTHING", ..table("control", &["name", "subject"]) },
    table("nonces", &["account", "nonce"]),
    in_order("transactions", &["rowid"]),
];

/// The booleans, which a file has as integers.
const BOOLEANS: [&str; 3] = ["is_told", "was_delivered", "is_second"];

impl Store {
    /// Copies the journal `source`, which no daemon uses, into this one, which is empty but for orders. One
    /// that was copied before is left as it is.
    ///
    /// # Errors
    /// The store's, and [`StoreError::Engine`] if the numbers of rows differ: nothing was copied.
    pub fn migrate_from(&self, source: &Arc<Self>) -> Result<Migration> {
        let mark = source.migration_mark()?;
        let source = Arc::clone(source);
        self.write(move |target| {
            target.take_time()?;
            // The file's budget replaces this one: daemons that run already reserve nothing meanwhile.
            locks::budget(target)?;
            if let Some(refused) = look(&source, target, &mark)? {
                return Ok(refused);
            }
            let mut rows = Vec::new();
            for table in &TABLES {
                let copied = copy(&source, target, table)?;
                let [there, here] = [source.read(|db| count(db, table))?, count(target, table)?];
                let may_have_more = ORDERS.contains(&table.name);
                if there != copied || here < there || (here > there && !may_have_more) {
                    let name = table.name;
                    let text = format!("{name}: {there} rows in the file, {copied} copied, {here} here");
                    return Err(StoreError::Engine(text));
                }
                rows.push((table.name, copied));
            }
            // Later writes come after what was copied.
            target
                .statements()
                .next_sequence
                .map_or(Ok(()), |next| target.query(next, values![]).map(drop))?;
            Ok(Migration::Copied(rows))
        })
    }

    /// Returns the mark of this journal; makes it if there is none.
    fn migration_mark(&self) -> Result<[u8; 16]> {
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

/// Returns the reason why nothing is copied, if so.
fn look(source: &Store, target: &Db, mark: &[u8; 16]) -> Result<Option<Migration>> {
    let marks: Vec<Vec<u8>> = each(target, "SELECT subject FROM control WHERE name = $1", values![MARK])?;
    if marks.iter().any(|other| other == mark) {
        return Ok(Some(Migration::Already));
    }
    if let Some(both) = relays::pending(target)?.intersection(&source.pending()?).next() {
        return Ok(Some(Migration::OpenInBoth(*both)));
    }
    let accounts: Vec<Address> = each(target, "SELECT DISTINCT account FROM nonces", values![])?;
    if let Some(account) = accounts.first() {
        return Ok(Some(Migration::HasAccount(*account)));
    }
    for table in TABLES.iter().filter(|table| !ORDERS.contains(&table.name)) {
        if count(target, table)? > 0 {
            return Ok(Some(Migration::NotEmpty(table.name)));
        }
    }
    Ok(None)
}

/// Leaks a statement of a table: it is made once, in a program that copies and ends.
fn statement(text: String) -> &'static str {
    text.leak()
}

fn count(db: &Db, Table { name, rows, .. }: &Table) -> Result<u64> {
    let query = statement(format!("SELECT count(*) FROM {name} WHERE {rows}"));
    Ok(single(db, query, values![])?.unwrap_or_default())
}

fn copy(source: &Store, target: &Db, table: &Table) -> Result<u64> {
    let Table { name, key, rows, conflict, .. } = table;
    let keys = key.join(", ");
    let read = |after: &str| {
        statement(format!("SELECT {keys}, * FROM {name} WHERE ({rows}) {after} ORDER BY {keys} LIMIT {STEP}"))
    };
    let numbered =
        |range: Range<usize>| range.map(|index| format!("${}", index + 1)).collect::<Vec<_>>().join(", ");
    let (first, next) = (read(""), read(&format!("AND ({keys}) > ({})", numbered(0..key.len()))));
    let (mut after, mut copied, mut write) = (None::<Vec<Value>>, 0, None);
    loop {
        let (query, place) = after.take().map_or((first, Vec::new()), |place| (next, place));
        let found = source.read(|db| db.query(query, &place))?;
        let Some(last) = found.last() else { return Ok(copied) };
        after = last.values().get(..key.len()).map(<[Value]>::to_vec);
        let columns = |row: &Row| -> Vec<(String, Value)> {
            let columns = row.columns().skip(key.len());
            let written = columns.filter(|(column, _)| table.has_own_key || !key.contains(column));
            written.map(|(column, value)| (column.to_owned(), of_postgres(column, value))).collect()
        };
        let insert = *write.get_or_insert_with(|| {
            let columns: Vec<String> = columns(last).into_iter().map(|(column, _)| column).collect();
            let values = numbered(0..columns.len());
            statement(format!("INSERT INTO {name} ({}) VALUES ({values}) {conflict}", columns.join(", ")))
        });
        for row in &found {
            let values: Vec<Value> = columns(row).into_iter().map(|(_, value)| value).collect();
            target.run(insert, &values)?;
        }
        copied += found.len() as u64;
        // Waits until all is written that was sent.
        target.query("SELECT count(*) AS sent FROM identity", values![])?;
    }
}

fn of_postgres(column: &str, value: &Value) -> Value {
    if BOOLEANS.contains(&column) { Value::Bool(*value == Value::Integer(1)) } else { value.clone() }
}
