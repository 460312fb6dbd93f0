//! No query scans a table that grows: SQLite explains every statement of the store's operations, and its work
//! is measured on a journal with many rows.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use relayer_daemon::outcome::BlockHeads;
use relayer_daemon::store::events::{DeliveryResult, Replay};
use relayer_daemon::store::{Identity, Retention, Sponsorship};
use rusqlite::trace::{TraceEvent, TraceEventCodes};
use rusqlite::{Connection, StatementStatus};

use crate::prelude::*;

/// Small by nature: tables with a row, or a row for each paying key, and indexes of what is in flight.
const SMALL: [&str; 12] = [
    "budget",
    "identity",
    "archived_nonces",
    "relays USING INDEX relays_pending",
    "relays USING COVERING INDEX relays_pending",
    "relays USING INDEX relays_reserved",
    "relays USING COVERING INDEX relays_reserved",
    "nonces USING COVERING INDEX nonces_open",
    "nonces USING INDEX nonces_unchecked",
    "nonces USING COVERING INDEX nonces_unchecked",
    "nonces USING INDEX nonces_checked",
    "nonces USING COVERING INDEX nonces_checked",
];

/// Relays that ended long ago.
const OLD: i32 = 20_000;
/// The most SQLite instructions that one run of a statement may take; reading `OLD` rows takes more.
const MOST_STEPS: i32 = 15_000;

/// Statements, and the most instructions that each took.
type Statements = Arc<Mutex<BTreeMap<String, i32>>>;

fn traced(path: &Path, statements: &Statements) -> Connection {
    let mut db = Connection::open(path).unwrap();
    let statements = Arc::clone(statements);
    let note = move |event: TraceEvent<'_>| {
        if let TraceEvent::Profile(statement, _) = event {
            let steps = statement.get_status(StatementStatus::VmStep);
            let mut statements = statements.lock().unwrap();
            let most = statements.entry(statement.sql().into_owned()).or_default();
            *most = steps.max(*most);
        }
    };
    db.trace_v2(TraceEventCodes::SQLITE_TRACE_PROFILE, Some(note)).unwrap();
    db
}

/// Makes a journal with a long history: relays that were executed, nonces that were lost, relays that are
/// archived, events that were delivered.
fn aged(path: &Path) {
    drop(Store::open(path).unwrap());
    let sql = format!(
        "CREATE TEMP TABLE n AS WITH RECURSIVE n(n) AS (SELECT 10000 UNION ALL SELECT n + 1 FROM n LIMIT {OLD}) SELECT n FROM n;
         INSERT INTO relays (id, signer, forward_nonce, deadline, calldata, state, tx_hash, block_number, gas_used, created_at, finished_at)
             SELECT randomblob(32), randomblob(20), zeroblob(32), 0, x'', 'executed', zeroblob(32), n, n, n, n FROM n;
         INSERT INTO nonces (account, nonce, relay, state, mined_hash, mined_block, mined_block_hash, mined_at, finality)
             SELECT x'{account}', n, id, iif(n < 10010, 'lost', 'mined'), zeroblob(32), n, zeroblob(32), n, 3 FROM n JOIN relays ON created_at = n;
         INSERT INTO transactions (hash, account, nonce, purpose, raw, max_fee_wei, tip_wei, gas_limit, created_at)
             SELECT randomblob(32), x'{account}', n, 'relay', x'', '1', '1', 1, n FROM n;
         INSERT INTO archive (id, state, tx_hash, block_number, gas_used, finished_at, hashes)
             SELECT randomblob(32), 'executed', zeroblob(32), n, n, n, zeroblob(32) FROM n;
         INSERT INTO webhook_events (id, api_key, relay, body, created_at, expires_at, ended_at, was_delivered)
             SELECT 'evt', 'acme', randomblob(32), '{{}}', n, n, n, TRUE FROM n;",
        account = "aa".repeat(20),
    );
    let db = Connection::open(path).unwrap();
    db.pragma_update(None, "synchronous", false).unwrap();
    // Needed only while this journal is made.
    db.execute_batch("CREATE INDEX creation ON relays (created_at)").unwrap();
    db.execute_batch(&sql).unwrap();
    db.execute_batch("DROP INDEX creation").unwrap();
}

/// Runs every operation of [`Store`], in the cases that differ.
fn run_everything(store: &Store) {
    let shares = Shares { signer: 100, without_key: 100, client: 100, network: 100 };
    let allowance = Allowance { limit_wei: 1_000, shares };
    let identity = Identity { chain_id: 1, genesis: None, forwarder: ACCOUNT };
    store.bind(&identity).unwrap();
    store.bind(&Identity { genesis: Some(id(9)), ..identity }).unwrap();
    store.verify(&identity).unwrap();
    store.probe().unwrap();
    let relay = |number| NewRelay { client: Some("2001:db8::".parse().unwrap()), ..relay(number) };
    let dropped = dropped(InvalidSignatureOrNonce);
    for number in 1..=4 {
        store.accept(&relay(number), NOW).unwrap();
        let (key, gas_per_day) = ("acme".to_owned(), Some(100_000));
        let sponsorship = Sponsorship { key, gas: 1, gas_per_day, is_told: true };
        store.accept_sponsored(&relay(number), &sponsorship, NOW).unwrap();
        let cost = ExpectedCost { wei: 10, gas: 1, l1_fee_wei: 1, least_wei: 1, no_op_wei: 1 };
        store.reserve_share(id(number), &cost, &allowance, NOW).unwrap();
        store.look_up(&relay(number), 10, 10, &allowance, NOW).unwrap();
        store.sendable(ACCOUNT, &[id(number)]).unwrap();
        store.reserve(id(number), 11, 1_000, NOW).unwrap();
    }
    store.finish_unsent(id(4), &dropped, NOW).unwrap();
    store.accept(&relay(4), NOW).unwrap();
    store.finish_unsent(id(4), &dropped, NOW).unwrap();
    sign(store, 0, Some(1), costing(2, 1));
    sign(store, 1, None, costing(2, 2));
    sign(store, 2, Some(2), costing(2, 3));
    settle(store, 0, 1, 7, Some(executed(1)));
    store.reopen(ACCOUNT, 0, 100, NOW).unwrap();
    settle(store, 0, 1, 7, Some(executed(1)));
    settle(store, 1, 2, 7, None);
    settle(store, 77, 7, 7, None);
    store.accept(&relay(1), NOW).unwrap();
    store.lose(ACCOUNT, 2, NOW).unwrap();
    for number in [1, 9] {
        store.relay(id(number)).unwrap();
        store.accepted(id(number)).unwrap();
    }
    for result in [DeliveryResult::Retry(NOW), DeliveryResult::Delivered] {
        let due = store.due_events("acme", NOW, 4).unwrap();
        store.attempted(&due[0], result, NOW).unwrap();
    }
    store.oldest_open_event().unwrap();
    store.keys_with_open_events().unwrap();
    let replay = Replay { key: "acme".to_owned(), relay: Some(id(1)), since: NOW, given_up_only: false };
    store.replay(&replay, None, NOW).unwrap();
    assert!(!store.give_up_overdue("acme", 3 * NOW).unwrap().is_empty());
    store.unsent(NOW).unwrap();
    store.budget(1_000, NOW).unwrap();
    store.oldest_pending().unwrap();
    store.next_nonce(ACCOUNT).unwrap();
    store.open_nonces(ACCOUNT).unwrap();
    store.accounts_with_open_nonces().unwrap();
    store.unsettled(id(2)).unwrap();
    store.mined_from(ACCOUNT, 0, 16).unwrap();
    store.unsettled_accounts(NOW).unwrap();
    store.unchecked_blocks(ACCOUNT, 64).unwrap();
    store.nonces_of(ACCOUNT, &at(9), 16).unwrap();
    store.checked(ACCOUNT, &[at(9)]).unwrap();
    store.anchor(ACCOUNT).unwrap();
    let heads = BlockHeads { safe: 9, finalized: 8, seconds: 0 };
    store.promotable(ACCOUNT, &heads, NOW, 64).unwrap();
    store.promote(ACCOUNT, &heads, &[at(9)], NOW).unwrap();
    store.doubt(ACCOUNT).unwrap();
    store.undo(ACCOUNT, 1, 0, NOW).unwrap();
    store.give_up(ACCOUNT, 0).unwrap();
    store.lost(ACCOUNT).unwrap();
    store.highest_mined(ACCOUNT).unwrap();
    store.explains(ACCOUNT, 0, 3).unwrap();
    // The first nonces are now old.
    sign(store, 100_000, Some(3), costing(2, 4));
    assert!(store.prune(&Retention::of_days(30), NOW + 1_000 * DAY).unwrap() > 0);
    store.archived_nonce(ACCOUNT).unwrap();
    store.relay(id(1)).unwrap();
}

#[test]
fn no_statement_reads_all_of_a_table_that_grows() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal.sqlite");
    aged(&path);
    let statements = Statements::default();
    let store = {
        let (path, statements) = (path.clone(), Arc::clone(&statements));
        Store::start(traced(&path, &statements), move || Ok(traced(&path, &statements))).unwrap()
    };
    run_everything(&store);
    drop(store);

    let db = Connection::open(&path).unwrap();
    let statements = std::mem::take(&mut *statements.lock().unwrap());
    let mut explained = 0;
    for (sql, steps) in &statements {
        assert!(*steps < MOST_STEPS, "{steps} instructions: {sql}");
        if ["SELECT", "INSERT", "UPDATE", "DELETE"].iter().all(|verb| !sql.starts_with(verb)) {
            continue;
        }
        let mut plan = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
        let parameters = vec![None::<i64>; plan.parameter_count()];
        let plan = plan.query_map(rusqlite::params_from_iter(parameters), |row| row.get::<_, String>(3));
        for step in plan.unwrap().map(Result::unwrap) {
            // The rows of a statement, and those of a list that it is given, are no table's.
            let is_given =
                |step: &str| step.ends_with("-ROW VALUES CLAUSE") || step.starts_with("json_each ");
            let scanned = step.strip_prefix("SCAN ").filter(|step| !is_given(step));
            assert!(scanned.is_none_or(|table| SMALL.contains(&table)), "{step}: {sql}");
            explained += 1;
        }
    }
    assert!(explained > 50, "only {explained} steps: what was traced?");
}
