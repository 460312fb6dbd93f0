//! A release with tables of another format takes over from the index of the release before, which is left as
//! it is. `any_history` has such releases, too; this file uses the storage of a `RegistryIndex` object that
//! commit 3ad2b3d wrote (`tests/fixtures/3ad2b3d`).

use std::fs;

use registry_core::index::alarm::{AlarmRequest, KEPT_MILLIS, RESTS_MILLIS, RETRY_MILLIS};
use registry_core::index::{IndexError, SqlValue, Store as _, StoreError, prepare, takeover};
use registry_core::liability::Basis;
use registry_core::registry::changes::{Cursor, Since, Standing};

use crate::{TestIndex, common::database::Database, common::prelude::*, history::ChainHistory};

fn fixture(name: &str) -> String {
    fs::read_to_string(format!("{}/../tests/fixtures/3ad2b3d/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// Reads all rows of an index.
fn dump(database: &Database) -> Vec<Vec<SqlValue>> {
    let tables = ["meta", "agents", "ends", "changes", "counts", "shards", "checkpoints", "revenue"];
    let schema = "SELECT name, sql FROM sqlite_schema ORDER BY name".to_owned();
    let statements = tables.into_iter().map(|table| format!("SELECT * FROM {table}")).chain([schema]);
    statements.flat_map(|statement| database.execute(&statement, &[]).unwrap()).collect()
}

/// Takes over from the index of the release before, and returns the new index's database.
pub(crate) fn taken_over(earlier: &Database, now: u64) -> Database {
    let (before, database) = (dump(earlier), Database::new());
    assert_eq!(prepare(earlier), Err(StoreError::OtherFormat));
    while let Some(place) = takeover::next(&database).unwrap() {
        let part = takeover::part(earlier, place).unwrap();
        let sent = serde_json::to_string(&(place, part)).unwrap();
        let (place, part) = serde_json::from_str(&sent).unwrap();
        takeover::take(&database, place, part, now * 1_000).unwrap();
    }
    assert_eq!(dump(earlier), before, "the earlier index is left as it is");
    database
}

impl TestIndex {
    /// Begins another release, with an index in an object of its own beside one of this format.
    pub(crate) fn is_released(&mut self, format: u64) {
        let of_both: &[&str] = &[
            "UPDATE changes SET was = was & 7, is_now = is_now & 7",
            "DELETE FROM changes WHERE was = is_now",
            "DROP INDEX IF EXISTS agents_by_event",
            "DROP TABLE postings",
        ];
        let of_11: &[&str] =
            &["ALTER TABLE agents DROP COLUMN events", "ALTER TABLE changes DROP COLUMN liable"];
        let version = format!("UPDATE meta SET value = '{format}' WHERE key = 'version'");
        let of_format = if format == 11 { of_11 } else { &[] };
        for statement in [version.as_str()].iter().chain(of_both).chain(of_format) {
            self.database.execute(statement, &[]).unwrap();
        }
        self.now += 1;
        self.database = taken_over(&self.database, self.now);
        self.kept = None;
        // The new index knows nothing of earlier events.
        if let Some((_, standings, _)) = &mut self.standings {
            let forget = |standing: &mut Standing| {
                standing.basis = standing.basis.filter(|basis| *basis == Basis::Registered);
            };
            standings.values_mut().for_each(forget);
        }
    }
}

/// Restores the registry of the stored agents, without revenue.
fn registry_of(database: &Database) -> PlainRegistry {
    let statement = "SELECT status, wallet, person, creator, parent, attested, substr(record, 23, 8), generation, \
                     substr(record, 99) FROM agents ORDER BY id";
    let agents = (1..).zip(database.execute(statement, &[]).unwrap()).map(|(id, row)| {
        let blob = |column: usize| match &row[column] {
            SqlValue::Blob(bytes) => bytes.clone(),
            other => panic!("{other:?}"),
        };
        let integer = |column: usize| match row[column] {
            SqlValue::Integer(number) => u64::try_from(number).unwrap(),
            ref other => panic!("{other:?}"),
        };
        let number = |column| u64::from_be_bytes(blob(column).try_into().unwrap());
        AgentRecord {
            status: u8::try_from(integer(0)).unwrap(),
            agentWallet: Address::from_slice(&blob(1)),
            haftungsperson: Address::from_slice(&blob(2)),
            creator: Address::from_slice(&blob(3)),
            lastAttestation: number(5),
            registeredAt: number(6),
            generation: U256::from(integer(7)),
            operationalScope: String::from_utf8(blob(8)).unwrap(),
            ..record(id, number(4))
        }
    });
    PlainRegistry { agents: agents.collect(), grace_seconds: Some(604_800), ..PlainRegistry::default() }
}

#[test]
fn an_index_that_3ad2b3d_wrote_is_left_as_it_is_and_its_cursors_lead_to_what_changed_since() {
    let earlier = Database::restored(&fixture("index.sqlite.sql"));
    let showcase: Value = serde_json::from_str(&fixture("showcase.json")).unwrap();
    let told = &showcase["answers"].as_array().unwrap().last().unwrap()["answer"]["data"];
    let began = 1_795_808_783_273;
    let mut registry = registry_of(&earlier);
    registry.agents[1].status = 1;
    let mut index = TestIndex::new(ChainHistory::of(40, registry), 30, 0);
    (index.now, index.config.layout) = (showcase["writtenAt"].as_u64().unwrap() + 1, None);
    index.database = taken_over(&earlier, index.now);
    let since = |index: &TestIndex, began, number| index.changes(Since::Cursor(Cursor { began, number }), 10);
    assert_eq!(since(&index, began, 0), Err(IndexError::Incomplete { percent: 0 }));
    index.catch_up().unwrap();
    let all = since(&index, began, 0).unwrap().data;
    let found = serde_json::to_value(&all).unwrap();
    for (place, told) in told.as_array().unwrap().iter().enumerate() {
        for field in ["agentId", "wallet", "from", "to", "blockNumber", "time"] {
            assert_eq!(found[place][field], told[field], "{field} of {found}");
        }
    }
    let later = since(&index, began, 2).unwrap();
    assert_eq!((later.data.as_slice(), later.data[0].agent_id.0), (&all[2..], U256::from(2)));
    assert_eq!(later.data.len(), 1, "{later:?}");
    // A cursor that the earlier index gave after the takeover belongs to its own changes alone.
    assert_eq!(since(&index, began, 3), Err(IndexError::CursorExpired));
    let next = later.next;
    assert!(next.began > began && since(&index, next.began, next.number).unwrap().data.is_empty());
    // A release with format 12 keeps the liable wallets of its changes, too.
    let indexes = "SELECT count(*) FROM sqlite_schema WHERE type = 'index' AND sql LIKE '%ON agents %'";
    let of_liable = |index: &TestIndex| {
        let rows = "SELECT number, agent, wallet, liable, was & 7, is_now & 7, block, seconds FROM changes";
        (index.database.execute(rows, &[]).unwrap(), index.database.execute(indexes, &[]).unwrap())
    };
    let before = of_liable(&index);
    assert!(before.0.iter().any(|row| matches!(row[3], SqlValue::Blob(_))), "{before:?}");
    index.is_released(12);
    index.catch_up().unwrap();
    assert_eq!(of_liable(&index), before);
    // An abandoned takeover leaves no parts: they would tell all other agents' registrations.
    let half = Database::new();
    for (now, place) in [(1_000, takeover::PartKey::State), (500_000, takeover::PartKey::Ends(0))] {
        assert!(takeover::is_awaited(&half, now).unwrap());
        takeover::take(&half, place, takeover::part(&earlier, place).unwrap(), now).unwrap();
    }
    assert!(takeover::is_awaited(&half, 700_000).unwrap(), "it has answered since");
    assert!(!takeover::is_awaited(&half, 1_300_000).unwrap());
    assert_eq!(takeover::next(&half).unwrap(), None);
    (index.database, index.kept) = (half, None);
    index.catch_up().unwrap();
    let told = index.database.number("SELECT count(*) FROM changes");
    assert_eq!((told, since(&index, began, 0)), (0, Err(IndexError::CursorExpired)));
    // So it does if the earlier index is gone half-way.
    for gone_at in [2, 3] {
        let half = Database::new();
        for _ in 0..gone_at {
            let place = takeover::next(&half).unwrap().unwrap();
            takeover::take(&half, place, takeover::part(&earlier, place).unwrap(), 1_000).unwrap();
        }
        let place = takeover::next(&half).unwrap().unwrap();
        assert_eq!(
            takeover::take(&half, place, takeover::TakeoverPart::default(), 2_000),
            Ok(()),
            "{place:?}"
        );
        assert_eq!(takeover::next(&half).unwrap(), None);
        for rows in ["meta WHERE key = 'state'", "ends", "changes"] {
            assert_eq!(half.number(&format!("SELECT count(*) FROM {rows}")), 0, "{rows}");
        }
    }
    // An index has to go on without an earlier one, and without an answer for ten minutes.
    let empty = Database::restored("");
    let begun = [Database::new(), Database::new()];
    let part = takeover::part(&empty, takeover::PartKey::State).unwrap();
    takeover::take(&begun[0], takeover::PartKey::State, part, 1).unwrap();
    assert!([1_000, 600_999].into_iter().all(|now| takeover::is_awaited(&begun[1], now).unwrap()));
    assert!(takeover::next(&begun[1]).unwrap().is_some());
    assert!(!takeover::is_awaited(&begun[1], 601_000).unwrap());
    assert_eq!(begun.each_ref().map(|database| takeover::next(database).unwrap()), [None, None]);
}

#[test]
fn a_takeover_postpones_the_deletion_of_the_earlier_index() {
    let (now, minute) = (NOW * 1_000, 60_000);
    let (rests, kept) = (now + RESTS_MILLIS, now + KEPT_MILLIS);
    // Twenty minutes before the deletion, and an hour after it was due.
    let (expires, expired) = (now + 20 * minute - KEPT_MILLIS, now - RESTS_MILLIS - KEPT_MILLIS);
    for (asked_at, pending, set) in [
        (now, None, Some(rests)),
        (now, Some(now + minute), None),
        (now, Some(kept), Some(rests)),
        (now, Some(now - RETRY_MILLIS + 1), None),
        (now, Some(now - RETRY_MILLIS), Some(rests)),
        (expires, None, Some(kept)),
        (expires, Some(now + 20 * minute), Some(kept)),
        (expired, Some(now), Some(kept)),
        // The part before has postponed it.
        (expires, Some(kept - minute), None),
    ] {
        let request = AlarmRequest::of_takeover(asked_at, now);
        assert_eq!(request.at(pending, now), set, "asked at {asked_at}, {pending:?} of {now}");
    }
}
