//! The storage of a `RegistryIndex` object, as commit 3ad2b3d left it (`tests/fixtures/3ad2b3d`), gives the
//! answers that this version's Worker gave from it.

use std::fs;

use registry_core::{
    api::route::Route,
    eth::timestamp::Timestamp,
    index::{Index, Phase, State, prepare},
};
use serde_json::Value;

use crate::{common::database::Database, liability};

fn fixture(name: &str) -> String {
    fs::read_to_string(format!("{}/../tests/fixtures/3ad2b3d/{name}", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

#[test]
fn the_storage_of_an_old_version_gives_the_answers_it_gave() {
    let database = Database::restored(&fixture("index.sqlite.sql"));
    prepare(&database).unwrap();
    let state = State::load(&database).unwrap();
    assert_eq!((state.phase, state.as_of().unwrap().number), (Phase::Complete, 22));
    let showcase: Value = serde_json::from_str(&fixture("showcase.json")).unwrap();
    let registry = showcase["registry"].as_str().unwrap().parse().unwrap();
    let index = Index::new(&database, &state, registry, showcase["rpc"].as_str().unwrap());
    let now = Timestamp::from_seconds(showcase["writtenAt"].as_u64().unwrap());
    for told in showcase["answers"].as_array().unwrap() {
        let path = told["path"].as_str().unwrap();
        let found = match Route::parse(path).unwrap() {
            Route::Changes { since, limit, .. } => serde_json::to_value(index.changes(since, limit).unwrap()),
            route => serde_json::from_str(&index.document(&route, now).unwrap().body),
        };
        let mut found = found.unwrap();
        liability::take(&mut found);
        for (field, expected) in told["answer"].as_object().unwrap() {
            // The Worker adds the block.
            assert!(field == "asOf" || found[field] == *expected, "{path}: {field}: {found}");
        }
    }
}
