//! The size of a journal: a year of relays fits on any disk.
//!
//! `RETENTION_RELAYS=1000000 cargo test --test store a_journal -- --nocapture` is the long one, and prints
//! what it measured. It takes minutes, and some 3 GB in the directory for temporary files.

use std::env;
use std::path::Path;

use rusqlite::Connection;

use crate::carried_out::carry_out_side_by_side;
use crate::prelude::*;
use crate::sqlite::retention::prune;

fn size(path: &Path) -> (u64, u64) {
    let db = Connection::open(path).unwrap();
    let pragma = |name: &str| -> u64 {
        db.query_row(&format!("PRAGMA {name}"), [], |row| row.get::<_, i64>(0)).unwrap().cast_unsigned()
    };
    let (pages, free, page) = (pragma("page_count"), pragma("freelist_count"), pragma("page_size"));
    (pages * page, (pages - free) * page)
}

#[test]
fn a_journal_of_a_million_relays_stays_below_a_gigabyte() {
    let relays: u64 = env::var("RETENTION_RELAYS").map_or(2_000, |count| count.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.sqlite");
    let store = Store::open(&path).unwrap();
    carry_out_side_by_side(&store, &(0..relays), NOW);
    let (whole, _) = size(&path);

    let later = NOW + 30 * DAY + 1;
    let steps = prune(&store, later);
    let (after, archived) = size(&path);
    let archived_each = (archived - NEWEST.min(relays) * whole / relays) / relays;
    println!("{relays} relays: {} bytes each while whole, {archived_each} archived", whole / relays);
    println!("file {whole} bytes, then {archived} of {after} in use; {steps} steps");
    assert!(whole / relays < 3_300, "{} bytes a relay", whole / relays);
    assert!(archived_each < 500, "{archived_each} bytes an archived relay: a million are no gigabyte");

    // As many again: what was freed is used before the file grows.
    carry_out_side_by_side(&store, &(relays..2 * relays), later);
    let (again, _) = size(&path);
    println!("{relays} more: file {again} bytes");
    assert!(again < whole + relays * 500 + (1 << 20), "{again} after {whole}: free pages are not used again");

    prune(&store, later + 360 * DAY);
    let (file, used) = size(&path);
    println!("a year later: {used} of {file} bytes in use");
    assert!(used < NEWEST * 3_300 + (1 << 20), "{used} bytes for nothing but the newest");
    assert_eq!(store.relay(id(0)).unwrap(), None);
    assert!(store.relay(id(2 * relays - 1)).unwrap().is_some());
}
