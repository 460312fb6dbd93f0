//! A journal of an earlier version is read as it was meant: nothing is lost, paid twice or refilled by an upgrade.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::path::{Path, PathBuf};

use alloy::primitives::{Address, B256, U256};
use relayer_daemon::{
    fees::Fees,
    outcome::{Failure, Mined, Outcome},
    retention::Retention,
    store::{Identity, Inclusion, NewRelay, NewTransaction, SqliteStore, Store, StoreError},
    transaction::{Purpose, RelayTerms, SignedTransaction},
};
use rusqlite::Connection;
use tempfile::TempDir;

const NOW: u64 = 1_700_000_000;
const ACCOUNT: Address = Address::repeat_byte(0xaa);
const IDENTITY: Identity = Identity {
    chain_id: 31_337,
    genesis: Some(B256::repeat_byte(0xee)),
    forwarder: Address::repeat_byte(0xf0),
};

fn id(byte: u8) -> B256 {
    B256::repeat_byte(byte)
}

fn relay(byte: u8) -> NewRelay {
    NewRelay {
        id: id(byte),
        signer: Address::repeat_byte(byte),
        forward_nonce: U256::from(byte),
        deadline: u64::from(byte) * 1_000,
        calldata: vec![byte; 3].into(),
        client: None,
    }
}

fn terms(byte: u8) -> RelayTerms {
    let NewRelay { id, signer, forward_nonce, deadline, .. } = relay(byte);
    RelayTerms { id, signer, forward_nonce, deadline, l1_fee_wei: byte.into(), expected_gas: None }
}

fn transaction(byte: u8, purpose: Purpose) -> SignedTransaction {
    SignedTransaction {
        hash: id(byte),
        raw: vec![byte; 2].into(),
        fees: Fees { max_fee: u128::from(byte) << 64, tip: byte.into() },
        gas_limit: 100_000 + u64::from(byte),
        purpose,
    }
}

fn mined(byte: u8) -> Mined {
    Mined { tx_hash: id(byte), block_number: 40 + u64::from(byte), gas_used: 21_000 + u64::from(byte) }
}

fn file(dir: &TempDir, dump: &str) -> PathBuf {
    let path = dir.path().join("journal.sqlite");
    Connection::open(&path).unwrap().execute_batch(dump).unwrap();
    path
}

fn unversioned(dir: &TempDir) -> PathBuf {
    file(dir, include_str!("fixtures/journal_unversioned.sql"))
}

/// All that the file says, to compare two ways to read it.
fn dump(path: &Path) -> String {
    let store = SqliteStore::open(path).unwrap();
    let relays: Vec<_> = (1..=9).map(|byte| store.relay(id(byte)).unwrap()).collect();
    let budget = store.budget(1_000_000, NOW + 40).unwrap();
    let since = store.mined_since(ACCOUNT, NOW + 31).unwrap();
    format!("{relays:?} {budget:?} {:?} {since:?}", store.open_nonces(ACCOUNT).unwrap())
}

#[test]
fn a_journal_from_before_schema_versions_is_read_as_it_was_meant() {
    let dir = TempDir::new().unwrap();
    let store = SqliteStore::open(&unversioned(&dir)).unwrap();
    store.verify(&IDENTITY).unwrap();
    assert!(store.verify(&Identity { chain_id: 1, ..IDENTITY }).is_err());

    let executed = |byte, agent_id| Outcome::Executed { mined: mined(byte), agent_id };
    let dropped = |failure| Outcome::Dropped { failure };
    let replaced = [id(0x15), id(0x25)];
    for (byte, outcome, hashes) in [
        (1, Some(executed(0x11, Some(U256::from(42)))), &[id(0x11)][..]),
        (2, Some(executed(0x12, None)), &[id(0x12)]),
        (
            3,
            Some(Outcome::Reverted { mined: mined(0x13), failure: Failure::reverted("Agent not active") }),
            &[id(0x13)],
        ),
        (4, Some(dropped(Failure::budget_exhausted(77))), &[]),
        (5, Some(dropped(Failure::nonce_mismatch())), &replaced),
        (6, None, &[id(0x16), id(0x26)]),
        (7, None, &[]),
        (8, None, &[id(0x18)]),
    ] {
        let record = store.relay(id(byte)).unwrap().unwrap();
        assert_eq!((record.outcome, record.hashes.as_slice()), (outcome, hashes), "relay {byte}");
    }
    assert_eq!(store.relay(id(9)).unwrap(), None);

    let [in_flight] = store.open_nonces(ACCOUNT).unwrap().try_into().unwrap();
    assert_eq!((in_flight.nonce, in_flight.relay), (6, Some(terms(6))));
    let signed = [transaction(0x16, Purpose::Relay), transaction(0x26, Purpose::Relay)];
    assert_eq!(in_flight.transactions, signed);
    assert_eq!(store.open_nonces(Address::ZERO).unwrap(), vec![], "another account's");
    let superseded = store.mined(ACCOUNT, 5).unwrap().unwrap();
    assert_eq!(superseded.inclusion, Inclusion { tx_hash: id(0x25), block_number: 55 });
    assert_eq!(superseded.assignment.transactions[1], transaction(0x25, Purpose::Superseded));
    assert_eq!(store.next_nonce(ACCOUNT).unwrap(), Some(9));
    assert_eq!(store.highest_mined(ACCOUNT).unwrap(), Some(5));
    assert_eq!(store.mined_since(ACCOUNT, NOW + 32).unwrap(), [3, 4, 5]);

    let budget = store.budget(1_000_000, NOW + 40).unwrap();
    assert_eq!(
        (budget.window.opened_at, budget.window.settled_wei),
        (Some(NOW + 10), 90 + 190 + 290 + 21 + 22)
    );
    assert_eq!(budget.reserved_wei, 600 + 800);
    assert_eq!(store.oldest_pending().unwrap(), Some(NOW + 6));
    assert_eq!(store.unsent(NOW + 40).unwrap(), [relay(7), relay(8)]);
    assert_eq!(store.budget(1_000_000, NOW + 40).unwrap().reserved_wei, 600);
}

#[test]
fn a_journal_of_version_2_is_read_as_it_was_meant_and_its_old_relays_shrink() {
    let dir = TempDir::new().unwrap();
    let store = SqliteStore::open(&file(&dir, include_str!("fixtures/journal_version_2.sql"))).unwrap();
    store.verify(&IDENTITY).unwrap();
    let before = store.relay(id(9)).unwrap().unwrap();
    let executed = Outcome::Executed { mined: mined(0x19), agent_id: None };
    assert_eq!((before.outcome, before.hashes), (Some(executed), vec![id(0x19)]));
    let client = Some("2001:db8:1:1::".parse().unwrap());
    assert_eq!(
        store.accepted(id(9)).unwrap(),
        Some(NewRelay { client, signer: Address::repeat_byte(0x33), ..relay(9) })
    );
    let budget = store.budget(1_000_000, NOW + 45).unwrap();
    assert_eq!((budget.window.settled_wei, budget.reserved_wei), (90 + 190 + 290 + 21 + 22 + 990, 600 + 800));
    assert_eq!(store.open_nonces(ACCOUNT).unwrap().len(), 1);
    assert_eq!(store.archived_nonce(ACCOUNT).unwrap(), None);

    // Nonces of this file are old only once newer ones follow.
    let far = NewTransaction { nonce: 1_000, relay: None, transaction: transaction(0x77, Purpose::Gap) };
    store.record(ACCOUNT, &[far], NOW + 60).unwrap();
    let relays = || (1..=9).map(|byte| store.relay(id(byte)).unwrap()).collect::<Vec<_>>();
    let mut all = relays();
    let much_later = NOW + 40 * 24 * 60 * 60;
    while store.prune(&Retention::of_days(30), much_later).unwrap() > 0 {}
    assert_eq!(store.mined_since(ACCOUNT, 0).unwrap(), [0_u64; 0]);
    assert_eq!(store.archived_nonce(ACCOUNT).unwrap(), Some(9));
    assert_eq!(store.open_nonces(ACCOUNT).unwrap().len(), 2, "what is in flight stays");
    // The fourth never came to a transaction.
    all[3] = None;
    assert_eq!(relays(), all);
}

#[test]
fn a_journal_of_version_3_is_read_as_it_was_meant_and_what_it_has_in_flight_may_use_all_of_its_gas() {
    let (dir, earlier) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let path = file(&dir, include_str!("fixtures/journal_version_3.sql"));
    assert_eq!(dump(&path), dump(&file(&earlier, include_str!("fixtures/journal_version_2.sql"))));
    let store = SqliteStore::open(&path).unwrap();
    let archived = store.relay(id(10)).unwrap().unwrap();
    let executed = Outcome::Executed { mined: mined(0x1a), agent_id: None };
    assert_eq!((archived.outcome, archived.hashes), (Some(executed), vec![id(0x1a)]));
    assert_eq!(store.archived_nonce(ACCOUNT).unwrap(), Some(0));
    let [in_flight] = store.open_nonces(ACCOUNT).unwrap().try_into().unwrap();
    assert_eq!(in_flight.relay, Some(terms(6)));
    assert_eq!(in_flight.expected_wei(), (0x26 << 64) * 100_038 + 6);
}

#[test]
fn an_upgrade_happens_once() {
    let dir = TempDir::new().unwrap();
    let path = unversioned(&dir);
    let first = dump(&path);
    assert_eq!(dump(&path), first);
}

#[test]
fn an_upgrade_that_fails_leaves_the_file_as_it_was() {
    let dir = TempDir::new().unwrap();
    let path = unversioned(&dir);
    let db = Connection::open(&path).unwrap();
    let outcome = |db: &Connection| -> String {
        db.query_row("SELECT outcome FROM relays WHERE outcome LIKE '%executed%'", [], |row| row.get(0))
            .unwrap()
    };
    let good = outcome(&db);
    db.execute("UPDATE relays SET outcome = '{\"state\":\"executed\"}' WHERE outcome = ?1", [&good]).unwrap();
    let refused = SqliteStore::open(&path).unwrap_err();
    assert!(matches!(refused, StoreError::Corrupt("outcome")), "{refused}");
    db.execute("UPDATE relays SET outcome = ?1 WHERE outcome = ?2", [&good, &outcome(&db)]).unwrap();
    drop(db);
    dump(&path);
}
