//! What is made of all agents once they are stored, at the end of the first fill, one in each piece of work: to
//! write it agent by agent takes ten times as long.

use super::{
    large_persons,
    postings::{self, Property},
    store::{SqlValue, Store, StoreError, one_number},
};

/// The SQL indexes of agents.
const INDEXES: [&str; 4] = [
    "CREATE INDEX agents_by_place ON agents (place, wallet, id, size)",
    "CREATE INDEX agents_by_attestation ON agents (status, attested)",
    "CREATE INDEX agents_with_flaws ON agents (flaws) WHERE flaws > 0",
    "CREATE INDEX agents_by_event ON agents (substr(events, 1, 8)) \
     WHERE creator <> person AND events >= x'0000000000000001'",
];

const ALL: usize = INDEXES.len() + Property::OF_ALL.len() + 1;

/// How many are not made yet.
pub(super) fn missing(store: &impl Store) -> Result<usize, StoreError> {
    Ok(ALL.saturating_sub(made(store)?))
}

fn made(store: &impl Store) -> Result<usize, StoreError> {
    let statement = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = 'derived'";
    Ok(one_number(store, statement, &[])?.and_then(|made| usize::try_from(made).ok()).unwrap_or(0))
}

/// Makes at most so many of those that are missing. Persons with more than `few` agents have many.
pub(super) fn make(store: &impl Store, most: usize, few: u64) -> Result<(), StoreError> {
    let begun = made(store)?;
    let end = ALL.min(begun.saturating_add(most));
    for number in begun..end {
        let property = number.checked_sub(INDEXES.len()).and_then(|number| Property::OF_ALL.get(number));
        match (INDEXES.get(number), property) {
            (Some(statement), _) => drop(store.execute(statement, &[])?),
            (None, Some(property)) => postings::make(store, *property)?,
            (None, None) => large_persons::begin(store, few)?,
        }
    }
    let statement = "INSERT OR REPLACE INTO meta (key, value) VALUES ('derived', ?1)";
    store.execute(statement, &[SqlValue::Text(end.to_string())]).map(drop)
}
