//! Journals that commit 3ad2b3d wrote (`tests/fixtures/3ad2b3d`), with relays in each state: each is found as
//! `GET /relay/:id` of that version described it.

use std::{collections::BTreeSet, fs};

use alloy::primitives::{Address, B256};
use relayer_daemon::{outcome::RelayOutcome, store::Identity, store::Store};
use serde_json::{Value, from_value, json};

fn fixture(name: &str) -> String {
    fs::read_to_string(format!("{}/../tests/fixtures/3ad2b3d/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

fn is_as_described(store: &Store, description: &str) {
    let said: Value = serde_json::from_str(&fixture(description)).unwrap();
    let (now, status) = (said["writtenAt"].as_u64().unwrap(), &said["status"]);
    let forwarder = from_value(status["forwarder"].clone()).unwrap();
    store.bind(&Identity { chain_id: 31_337, genesis: None, forwarder }).unwrap();
    let [mut queued, mut sent] = [BTreeSet::new(), BTreeSet::new()];
    for (name, expected) in said["relays"].as_array().unwrap().iter().map(|it| (&it["name"], &it["relay"])) {
        let id: B256 = from_value(expected["id"].clone()).unwrap();
        let record = store.relay(id).unwrap().unwrap();
        let outcome = record.outcome.as_ref();
        let (mined, failure, agent) = outcome.map_or((None, None, None), RelayOutcome::parts);
        let found = json!({
            "state": outcome.map_or("pending", RelayOutcome::state),
            "txHash": mined.map(|mined| mined.tx_hash), "blockNumber": mined.map(|mined| mined.block_number),
            "gasUsed": mined.map(|mined| mined.gas_used), "finality": mined.and(record.finality),
            "agentId": agent.map(|agent| agent.to::<u64>()), "code": failure.map(|failure| failure.code),
            "error": failure.map(|failure| failure.message()), "txHashes": record.hashes,
        });
        for (field, found) in found.as_object().unwrap() {
            assert_eq!(found, &expected[field], "{name}: {field}");
        }
        if outcome.is_none() {
            if record.hashes.is_empty() {
                queued.insert(id)
            } else {
                sent.insert(id)
            };
        }
    }
    assert_eq!((queued.len(), sent.len()), (2, 4));
    let budget = store.budget(1, now).unwrap();
    let used = budget.window.settled_wei + budget.reserved_wei;
    assert_eq!(status["gasBudget"]["usedWei"], used.to_string());
    assert_eq!(store.due_events("umbrella", now + 60, 9).unwrap().len(), 1, "its next event waits for it");
    let accounts: Vec<Address> = from_value(said["accounts"].clone()).unwrap();
    let open = accounts.iter().flat_map(|account| store.open_nonces(*account).unwrap());
    assert_eq!(open.filter_map(|nonce| Some(nonce.relay?.id)).collect::<BTreeSet<B256>>(), sent);
    assert_eq!(store.lost(accounts[0]).unwrap().len(), 1);
    assert!(store.archived_nonce(accounts[0]).unwrap().is_some());
    assert_eq!(store.unsent(now).unwrap().iter().map(|relay| relay.id).collect::<BTreeSet<B256>>(), queued);
}

#[test]
fn a_file_of_an_old_version_is_read_as_it_was_left() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.sqlite");
    rusqlite::Connection::open(&path).unwrap().execute_batch(&fixture("journal.sqlite.sql")).unwrap();
    is_as_described(&Store::open(&path).unwrap(), "journal.sqlite.json");
}

#[test]
fn a_file_of_an_old_version_is_left_as_it_is_by_what_needs_the_present_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("journal.sqlite");
    let connect = || rusqlite::Connection::open(&path).unwrap();
    assert!(Store::open_existing(&path).unwrap().is_none());
    assert!(!path.exists());
    connect().execute_batch(&fixture("journal.sqlite.sql")).unwrap();
    let refused = Store::open_existing(&path).unwrap_err().to_string();
    assert!(refused.contains("has schema version 7, this program writes "), "{refused}");
    assert!(refused.ends_with(": start the daemon first"), "{refused}");
    let version: u32 = connect().query_row("PRAGMA user_version", [], |row| row.get(0)).unwrap();
    assert_eq!(version, 7);
    drop(Store::open(&path).unwrap());
    assert!(Store::open_existing(&path).unwrap().is_some());
}

#[cfg(feature = "postgres")]
#[test]
fn a_database_of_an_old_version_is_read_as_it_was_left() {
    use crate::postgres::SERVER;
    SERVER.sql(&fixture("journal.postgres.sql"));
    let url = SERVER.schema();
    let (server, _) = url.split_once("%3D").unwrap();
    let store = Store::connect(&format!("{server}%3Djournal_3ad2b3d")).unwrap();
    is_as_described(&store, "journal.postgres.json");
}
