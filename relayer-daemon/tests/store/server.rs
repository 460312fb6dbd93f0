// What is Postgres's alone: a server that goes and comes back, and a format that daemons of two versions see.

use super::{Journal, Postgres, SERVER, schema};
use crate::prelude::*;
use std::time::Instant;

#[test]
fn a_server_that_crashes_loses_nothing_and_is_used_again_once_it_is_back() {
    let server = Postgres::start(&["fsync=off"]);
    let url = server.schema();
    let store = Store::connect(&url).unwrap();
    assert_eq!(store.accept(&relay(1), NOW).unwrap(), Accepted::Pending);
    server.crash();
    let began = Instant::now();
    for _ in 0..3 {
        assert!(store.accept(&relay(2), NOW).is_err(), "written without a server");
        assert!(store.relay(relay(1).id).is_err(), "read without a server");
    }
    assert!(matches!(store.probe(), Err(StoreError::Unreachable(_))), "{:?}", store.probe());
    assert!(began.elapsed() < Duration::from_secs(5), "who asks waits {:?}", began.elapsed());
    server.go_on();
    while let Err(error) = store.probe() {
        assert!(began.elapsed() < Duration::from_secs(30), "{error}");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(store.relay(relay(1).id).unwrap().is_some());
    assert_eq!(store.accept(&relay(2), NOW).unwrap(), Accepted::Pending);
}

#[test]
fn daemons_that_start_at_once_make_one_database_and_use_a_newer_format_that_lets_them() {
    let journal = Journal::new();
    let stores: Vec<Store> = thread::scope(|threads| {
        let opened: Vec<_> = (0..4).map(|_| threads.spawn(|| journal.open())).collect();
        opened.into_iter().map(|opened| opened.join().unwrap()).collect()
    });
    for (byte, store) in (1..).zip(&stores) {
        assert_eq!(store.accept(&relay(byte), NOW).unwrap(), Accepted::Pending);
    }
    assert_eq!(stores[0].pending().unwrap().len(), stores.len());
    let url = SERVER.schema();
    let schema = schema(&url);
    assert!(Store::connect_read_only(&url).unwrap().is_none(), "a look makes nothing");
    drop(Store::connect(&url).unwrap());
    SERVER.sql(&format!("ALTER TABLE {schema}.relays ADD COLUMN later TEXT"));
    SERVER.sql(&format!("UPDATE {schema}.format SET version = 7"));
    let store = Store::connect(&url).unwrap();
    assert_eq!(store.accept(&relay(1), NOW).unwrap(), Accepted::Pending);
    assert!(store.accepted(relay(1).id).unwrap().is_some());
    // A migration beside a running daemon.
    SERVER.sql(&format!("ALTER TABLE {schema}.relays ADD COLUMN still_later TEXT"));
    let read = (0..3).find_map(|_| store.accepted(relay(1).id).ok());
    assert_eq!(read, Some(Some(relay(1))));
    SERVER.sql(&format!("UPDATE {schema}.format SET least = 7"));
    let refused = Store::connect(&url).unwrap_err().to_string();
    assert!(refused.contains("version 7"), "{refused}");
}
