// Tests of Postgres alone: a server that goes and comes back, and a format that daemons of two versions see.

use super::{Journal, Postgres, SERVER, SharedStore, schema};
use crate::prelude::*;
use relayer_daemon::store::events::DeliveryResult;
use relayer_daemon::store::fleet::LEASE;
use relayer_daemon::store::{DaemonId, Identity, Retention};
use std::net::TcpListener;
use std::time::Instant;

#[test]
fn a_server_that_crashes_loses_nothing_and_is_used_again_once_it_is_back() {
    let server = Postgres::start(&["fsync=off"]);
    let url = server.schema();
    let store = Store::connect(&url).unwrap();
    assert_eq!(store.accept(&relay(1), NOW).unwrap(), Accepted::Pending);
    let unconnected = Store::connect(&url).unwrap().of_daemon(DaemonId("a".into()));
    server.crash();
    let began = Instant::now();
    for _ in 0..3 {
        assert!(store.accept(&relay(2), NOW).is_err(), "written without a server");
        assert!(store.relay(relay(1).id).is_err(), "read without a server");
    }
    assert!(matches!(store.probe(), Err(StoreError::Unreachable(_))), "{:?}", store.probe());
    // Where there is no connection nothing was sent: no commit is of unknown outcome.
    let shares = Shares { signer: 100, without_key: 100, client: 100, network: 100 };
    let cost = ExpectedCost { wei: 9, gas: 9, l1_fee_wei: 0, least_wei: 1, no_op_wei: 0 };
    let reserved = unconnected.reserve_share(id(1), &cost, &Allowance { limit_wei: 1_000, shares }, NOW);
    assert!(matches!(reserved, Err(StoreError::Unreachable(_))), "{:?}", reserved.err());
    assert_eq!(unconnected.doubts(), 0);
    // Each of the eight would wait for four seconds.
    assert!(began.elapsed() < Duration::from_secs(15), "who asks waits {:?}", began.elapsed());
    server.go_on();
    while let Err(error) = store.probe() {
        assert!(began.elapsed() < Duration::from_secs(60), "{error}");
        thread::sleep(Duration::from_millis(50));
    }
    assert!(store.relay(relay(1).id).unwrap().is_some());
    assert_eq!(store.accept(&relay(2), NOW).unwrap(), Accepted::Pending);
}

#[test]
fn a_write_that_waits_too_long_for_a_row_has_written_nothing_and_is_no_commit_of_unknown_outcome() {
    let url = SERVER.schema();
    let store = Store::connect(&url).unwrap().of_daemon(DaemonId("a".into()));
    let shares = Shares { signer: 100, without_key: 100, client: 100, network: 100 };
    let allowance = Allowance { limit_wei: 1_000, shares };
    let cost = ExpectedCost { wei: 9, gas: 9, l1_fee_wei: 0, least_wei: 1, no_op_wei: 0 };
    let identity = Identity { chain_id: 1, genesis: None, forwarder: ACCOUNT };
    let reserve = |number| store.reserve_share(id(number), &cost, &allowance, NOW).map(|reserved| reserved.denial);
    let bind = || store.bind(&Identity { genesis: Some(id(9)), ..identity });
    store.bind(&identity).unwrap();
    (1..=2).for_each(|number| drop(store.accept(&relay(number), NOW).unwrap()));
    reserve(1).unwrap();
    // One fails with its COMMIT, one in a statement that commits by itself.
    let lock = format!("SELECT 1 FROM {0}.budget, {0}.identity FOR UPDATE", schema(&url));
    let reserved = while_locked(&url, &lock, || reserve(2), || assert_eq!(bind(), Err(StoreError::Locked)));
    assert_eq!(reserved, Err(StoreError::Locked));
    assert_eq!(store.doubts(), 0);
    assert_eq!(store.identity().unwrap(), Some(identity));
    bind().unwrap();
    assert_eq!(reserve(2), Ok(None));
}

fn until(query: &str, answer: &str) {
    let began = Instant::now();
    while SERVER.sql(query) != answer {
        assert!(began.elapsed() < Duration::from_secs(20), "{query}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Locks rows of the URL's schema by this statement, does `work` until that waits for them, then `meanwhile`,
/// and unlocks the rows. Returns the result of `work`.
fn while_locked<T: Send>(url: &str, lock: &str, work: impl FnOnce() -> T + Send, meanwhile: impl FnOnce()) -> T {
    let is_holder = format!("holder.query LIKE '%{}.%pg_sleep%' AND holder.pid <> pg_backend_pid()", schema(url));
    let holder = format!("FROM pg_stat_activity AS holder WHERE {is_holder}");
    thread::scope(|threads| {
        threads.spawn(|| SERVER.try_sql(&format!("{lock}; SELECT pg_sleep(20)")));
        until(&format!("SELECT count(*) {holder} AND holder.wait_event = 'PgSleep'"), "1");
        let work = threads.spawn(work);
        let blocked = "FROM pg_stat_activity AS waiting JOIN pg_stat_activity AS holder
             ON holder.pid = ANY (pg_blocking_pids(waiting.pid))";
        until(&format!("SELECT count(*) {blocked} WHERE {is_holder}"), "1");
        meanwhile();
        SERVER.sql(&format!("SELECT pg_terminate_backend(holder.pid) {holder}"));
        work.join().unwrap()
    })
}

#[test]
fn a_replacement_that_waits_for_another_request_with_its_forwarder_nonce_does_not_hold_the_budget() {
    let url = SERVER.schema();
    let store = Store::connect(&url).unwrap();
    for number in [1, 2] {
        store.accept(&NewRelay { signer: ACCOUNT, ..relay(number) }, NOW).unwrap();
    }
    store.accept(&relay(3), NOW).unwrap();
    sign(&store, 0, Some(1), transaction(0xa, Relay));
    let rival = format!("SELECT 1 FROM {}.relays WHERE id = '\\x{:x}' FOR UPDATE", schema(&url), id(2));
    let replaced = while_locked(
        &url,
        &rival,
        || store.record_replacement(ACCOUNT, id(1), &signed(0, Some(1), 0xb), 1, 1_000, NOW),
        || assert_eq!(store.reserve(id(3), 1, 1_000, NOW), Ok(true)),
    );
    assert_eq!(replaced, Ok(true));
}

/// Returns the statement that locks an account's lease.
fn lease(shared: &SharedStore, account: Address, lock: &str) -> String {
    format!("SELECT 1 FROM {}.account_leases WHERE account = '\\x{account:x}' {lock}", schema(&shared.url))
}

#[test]
fn leases_are_taken_in_the_order_of_their_accounts_whatever_that_of_the_settings() {
    let shared = SharedStore::new();
    let [first, second] = [0xa1, 0xa2].map(Address::repeat_byte);
    let [one, two] = ["one", "two"].map(|id| shared.store.of_daemon(DaemonId(id.into())));
    one.beat(&[first, second], false, None).unwrap();
    shared.pass(LEASE * 2);
    let held = while_locked(
        &shared.url,
        &lease(&shared, first, "FOR KEY SHARE"),
        || two.beat(&[second, first], false, None).unwrap().held,
        || drop(SERVER.sql(&lease(&shared, second, "FOR KEY SHARE NOWAIT"))),
    );
    assert_eq!(held.len(), 2);
}

#[test]
fn a_daemon_whose_leases_have_run_out_renews_none_while_it_waits_for_one_before_it() {
    let shared = SharedStore::new();
    let [first, second] = [0xa1, 0xa2].map(Address::repeat_byte);
    let [one, two] = ["one", "two"].map(|id| shared.store.of_daemon(DaemonId(id.into())));
    one.beat(&[first], false, None).unwrap();
    two.beat(&[second], false, None).unwrap();
    shared.pass(LEASE * 2);
    // As the beat of the other one has it, which would wait for the second lease in turn.
    let held = while_locked(
        &shared.url,
        &lease(&shared, first, "FOR NO KEY UPDATE"),
        || two.beat(&[first, second], false, None).unwrap().held,
        || drop(SERVER.sql(&lease(&shared, second, "FOR NO KEY UPDATE NOWAIT"))),
    );
    assert_eq!(held.len(), 2);
}

#[test]
fn a_client_is_charged_while_pruning_waits_for_a_relay() {
    let shared = SharedStore::new();
    let store = shared.store.of_daemon(DaemonId("a".into()));
    let charge = || store.charge_rate("ip 192.0.2.7".to_owned(), 20);
    assert_eq!(charge(), Ok(Ok(())));
    store.accept(&relay(1), NOW).unwrap();
    store.finish_unsent(id(1), &dropped(RpcTimeout), NOW).unwrap();
    shared.pass(Duration::from_secs(60 * 60));
    let pruned = while_locked(
        &shared.url,
        &format!("SELECT 1 FROM {}.relays FOR UPDATE", schema(&shared.url)),
        || store.prune(&Retention::of_days(30), NOW + DAY + 1),
        || assert_eq!(charge(), Ok(Ok(()))),
    );
    assert_eq!(pruned, Ok(1));
}

#[test]
fn of_several_hosts_the_first_that_answers_as_a_primary_is_used() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let standby = Postgres::start(&["default_transaction_read_only=on"]);
    let url = SERVER.schema();
    let (hosts, rest) = url.strip_prefix("postgres://postgres@").unwrap().split_once('/').unwrap();
    let port = silent.local_addr().unwrap().port();
    let url = format!("postgres://postgres@127.0.0.1:{port},{}:5432,{hosts}:5432/{rest}", standby.host());
    let began = Instant::now();
    let store = Store::connect(&url).unwrap();
    assert_eq!(store.accept(&relay(1), NOW).unwrap(), Accepted::Pending);
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

/// Statements that each read what was asked for, not all that there is, also by statistics of a table of
/// which nearly all is over.
#[test]
fn an_event_is_found_by_its_relay_among_many_open_ones_of_a_table_of_delivered_ones() {
    let url = SERVER.schema();
    let (store, schema) = (Store::connect(&url).unwrap(), schema(&url));
    let fill = |from: u32, count: u32, ended: &str| {
        SERVER.sql(&format!(
            "INSERT INTO {schema}.webhook_events (id, api_key, relay, body, created_at, expires_at, due_at, ended_at)
             SELECT 'evt', 'acme', sha256(int8send(n / 4)), '{{}}', n, n, CASE WHEN {ended} IS NULL AND n % 4 = 0 THEN n END,
                 {ended} FROM generate_series({from}::BIGINT, {from} + {count} - 1) AS n"
        ));
    };
    fill(0, 100_000, "n");
    SERVER.sql(&format!("ANALYZE {schema}.webhook_events"));
    fill(100_000, 20_000, "NULL::BIGINT");
    let read = || -> u64 {
        let sum = "SELECT sum(seq_tup_read + idx_tup_fetch) FROM pg_stat_user_tables
             WHERE relname = 'webhook_events' AND schemaname = ";
        // A session tells what it has read once it has ended.
        let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'relayer-daemon' AND query LIKE '%webhook%'";
        let began = Instant::now();
        while SERVER.sql(sessions) != "0" && began.elapsed() < Duration::from_secs(10) {
            thread::sleep(Duration::from_millis(20));
        }
        SERVER.sql(&format!("{sum} '{schema}'")).parse().unwrap()
    };
    let before = read();
    let due = store.due_events("acme", 101_000, 4).unwrap();
    store.attempted(&due[0], DeliveryResult::Delivered, NOW).unwrap();
    assert_eq!(store.oldest_open_event().unwrap(), Some(100_001));
    drop(store);
    assert!(read() - before < 100, "{} rows read", read() - before);
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

#[test]
fn a_database_of_an_old_version_is_left_as_it_is_by_what_needs_the_present_one() {
    let url = SERVER.schema();
    let schema = schema(&url);
    let set = |version: u32| drop(SERVER.sql(&format!("UPDATE {schema}.format SET version = {version}")));
    assert!(Store::connect_existing(&url).unwrap().is_none());
    let tables = format!("SELECT count(*) FROM pg_tables WHERE schemaname = '{schema}'");
    assert_eq!(SERVER.sql(&tables), "0");
    drop(Store::connect(&url).unwrap());
    set(3);
    let refused = Store::connect_existing(&url).unwrap_err().to_string();
    assert!(refused.contains("has schema version 3, this program writes "), "{refused}");
    assert!(refused.ends_with(": start the daemon first"), "{refused}");
    assert_eq!(SERVER.sql(&format!("SELECT version FROM {schema}.format")), "3");
    set(99);
    assert!(Store::connect_existing(&url).unwrap().is_some(), "a later format that lets it write");
}
