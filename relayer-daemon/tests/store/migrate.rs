// From a file to a database: nothing is lost, and nothing is copied twice.

use super::{Journal, SERVER, schema};
use crate::prelude::*;
use relayer_daemon::store::control::{Effect, Order};
use relayer_daemon::store::migration::Migration;
use relayer_daemon::store::{Identity, Sponsorship};
use std::sync::Arc;

const LIMIT: u128 = 1_000;

/// Returns a file's journal with relays in each state, and a database without any.
fn journals() -> (tempfile::TempDir, Arc<Store>, Store) {
    let dir = tempfile::tempdir().unwrap();
    let file = Arc::new(Store::open(&dir.path().join("journal.sqlite")).unwrap());
    fill(&file);
    (dir, file, Journal::fresh())
}

fn fill(store: &Store) {
    store.bind(&Identity { chain_id: 7, genesis: None, forwarder: ACCOUNT }).unwrap();
    let sponsorship = Sponsorship { key: "acme".to_owned(), gas: 100, gas_per_day: Some(900), is_told: true };
    for number in 1..=5 {
        store.accept_sponsored(&relay(number), &sponsorship, NOW).unwrap();
        store.reserve(id(number), 100, LIMIT, NOW).unwrap();
    }
    sign(store, 0, Some(1), transaction(0xa, Relay));
    settle(store, 0, 0xa, 60, Some(executed(0xa)));
    sign(store, 1, Some(2), transaction(0xb, Relay));
    sign(store, 1, Some(2), transaction(0xc, Relay));
    store.finish_unsent(id(3), &dropped(RpcTimeout), NOW + 1).unwrap();
    assert_eq!(store.order(Order::Pause, "alice"), Ok(Effect::Done));
}

#[test]
fn a_journal_moves_into_a_database_with_all_it_has_and_once() {
    let (_dir, file, database) = journals();
    let Migration::Copied(rows) = database.migrate_from(&file).unwrap() else { panic!("not copied") };
    let of = |name| rows.iter().find(|(table, _)| *table == name).unwrap().1;
    assert_eq!((of("relays"), of("nonces"), of("transactions"), of("operations")), (5, 2, 3, 1));
    let is_the_same = || {
        for number in 1..=5 {
            assert_eq!(database.relay(id(number)).unwrap(), file.relay(id(number)).unwrap());
            assert_eq!(database.accepted(id(number)).unwrap(), file.accepted(id(number)).unwrap());
        }
        assert_eq!(database.open_nonces(ACCOUNT).unwrap(), file.open_nonces(ACCOUNT).unwrap());
        assert_eq!(database.budget(LIMIT, NOW).unwrap(), file.budget(LIMIT, NOW).unwrap());
        assert_eq!(database.orders().unwrap(), file.orders().unwrap());
        assert_eq!(database.operations(0).unwrap(), file.operations(0).unwrap());
        let due = |store: &Store| store.due_events("acme", NOW + 60, 99).unwrap();
        assert_eq!(due(&database), due(&file));
        assert_eq!(database.next_nonce(ACCOUNT).unwrap(), Some(2));
        assert_eq!(database.ended_relays(0, None).unwrap(), file.ended_relays(0, None).unwrap());
    };
    is_the_same();
    assert_eq!(database.migrate_from(&file), Ok(Migration::Already), "interrupted before the file was moved");
    is_the_same();
    // What comes next has numbers of its own.
    let sponsorship = Sponsorship { key: "acme".to_owned(), gas: 100, gas_per_day: None, is_told: true };
    database.accept_sponsored(&relay(6), &sponsorship, NOW).unwrap();
    assert!(database.relay(id(6)).unwrap().is_some());
}

#[test]
fn orders_that_were_given_to_the_database_before_a_move_stay_beside_those_of_the_file() {
    // The second one is in force in both.
    for (order, reload) in [(Order::Reload, 1), (Order::Pause, 0)] {
        let (_dir, file, database) = journals();
        database.order(order, "bob").unwrap();
        let moved = database.migrate_from(&file);
        assert!(matches!(moved, Ok(Migration::Copied(_))), "{order:?}: {moved:?}");
        let operations = database.operations(0).unwrap();
        let given: Vec<_> = operations.iter().map(|it| (it.operator.as_str(), it.command.as_str())).collect();
        assert_eq!(given, [("bob", order.name()), ("alice", "pause")]);
        let orders = database.orders().unwrap();
        assert_eq!((orders.paused_since.is_some(), orders.reload), (true, reload));
        assert_eq!(database.migrate_from(&file), Ok(Migration::Already));
    }
}

#[test]
fn a_step_of_a_move_may_take_longer_than_a_relays_write() {
    let dir = tempfile::tempdir().unwrap();
    let file = Arc::new(Store::open(&dir.path().join("journal.sqlite")).unwrap());
    fill(&file);
    let url = SERVER.schema();
    let (database, schema) = (Store::connect(&url).unwrap(), schema(&url));
    // Longer than the server and the daemon wait for a write. The table gets one row.
    SERVER.sql(&format!(
        "CREATE FUNCTION {schema}.slow() RETURNS trigger LANGUAGE plpgsql AS
             'BEGIN PERFORM pg_sleep(9); RETURN NULL; END';
         CREATE TRIGGER slow AFTER INSERT ON {schema}.operations EXECUTE FUNCTION {schema}.slow()"
    ));
    assert!(matches!(database.migrate_from(&file), Ok(Migration::Copied(_))));
}

#[test]
fn a_move_fails_if_the_database_is_written_to_meanwhile_and_nothing_is_reserved_there_until_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let file = Arc::new(Store::open(&dir.path().join("journal.sqlite")).unwrap());
    fill(&file);
    // The second one writes what a daemon would. The first shows that this transaction has locked the budget:
    // the row's version is its own.
    let rows = [
        (
            "IF NOT EXISTS (SELECT 1 FROM SCHEMA.budget WHERE xmin = pg_current_xact_id()::xid)
             THEN RAISE EXCEPTION 'the budget is not locked'; END IF;",
            true,
        ),
        ("INSERT INTO SCHEMA.key_gas VALUES ('other', 0, 0) ON CONFLICT DO NOTHING;", false),
    ];
    for (meanwhile, is_copied) in rows {
        let url = SERVER.schema();
        let (database, schema) = (Store::connect(&url).unwrap(), schema(&url));
        let meanwhile = meanwhile.replace("SCHEMA", schema);
        SERVER.sql(&format!(
            "CREATE FUNCTION {schema}.meanwhile() RETURNS trigger LANGUAGE plpgsql AS
                 $$ BEGIN {meanwhile} RETURN NULL; END $$;
             CREATE TRIGGER meanwhile AFTER INSERT ON {schema}.relays
                 FOR EACH ROW EXECUTE FUNCTION {schema}.meanwhile()"
        ));
        let moved = database.migrate_from(&file);
        match is_copied {
            true => assert!(matches!(moved, Ok(Migration::Copied(_))), "{moved:?}"),
            false => {
                let is_counted =
                    |text: &str| text.starts_with("key_gas: 1 rows in the file, 1 copied, 2 here");
                assert!(matches!(&moved, Err(StoreError::Engine(text)) if is_counted(text)), "{moved:?}");
            }
        }
        assert_eq!(database.relay(id(1)).unwrap().is_some(), is_copied, "{moved:?}");
    }
}

#[test]
fn a_database_that_holds_another_journal_is_refused_and_left_as_it_is() {
    let (_dir, file, database) = journals();
    database.accept(&relay(2), NOW).unwrap();
    assert_eq!(database.migrate_from(&file), Ok(Migration::OpenInBoth(id(2))));
    database.finish_unsent(id(2), &dropped(RpcTimeout), NOW).unwrap();
    assert_eq!(database.migrate_from(&file), Ok(Migration::NotEmpty("relays")));
    sign(&database, 9, None, transaction(0xd, Relay));
    assert_eq!(database.migrate_from(&file), Ok(Migration::HasAccount(ACCOUNT)));
    assert_eq!(database.relay(id(1)).unwrap(), None);
    assert_eq!(file.relay(id(1)).unwrap().unwrap().outcome, Some(executed(0xa)));
}
