//! Liable persons with many agents. An answer about a person with few agents counts all of them; for a person
//! with many, sums and a list by time are kept.

use std::collections::BTreeSet;

use alloy_primitives::{Address, hex};

use super::{
    counts::CountKind,
    postings::{IdRange, MEMBERS, Property, making, time_key},
    store::{SqlValue, Store, StoreError, query},
};

/// [`Config::few_agents`](super::Config::few_agents) by default: the maximum candidates of a list's page.
pub const FEW_AGENTS: u64 = 1_500;

fn as_json(persons: &BTreeSet<Address>) -> SqlValue {
    let digits: Vec<String> = persons.iter().map(hex::encode).collect();
    SqlValue::Text(serde_json::to_string(&digits).unwrap_or_default())
}

/// Returns the persons among these with kept sums.
pub(super) fn among(
    store: &impl Store,
    persons: &BTreeSet<Address>,
) -> Result<BTreeSet<Address>, StoreError> {
    if persons.is_empty() {
        return Ok(BTreeSet::new());
    }
    let statement = "SELECT unhex(value) FROM json_each(?1) WHERE EXISTS (SELECT * FROM counts WHERE kind = ?2 \
                     AND key >= unhex(value || '00') AND key <= unhex(value || 'ff'))";
    read(store, statement, &[as_json(persons), CountKind::Person.into()])
}

fn read(
    store: &impl Store,
    statement: &str,
    parameters: &[SqlValue],
) -> Result<BTreeSet<Address>, StoreError> {
    let persons = query(store, statement, parameters, |row| Ok(row.array::<20>()?.into()))?;
    Ok(persons.into_iter().collect())
}

/// Begins sums for those of these persons that have more than `few` agents.
pub(super) fn begin_with(
    store: &impl Store,
    persons: &BTreeSet<Address>,
    few: u64,
) -> Result<(), StoreError> {
    if persons.is_empty() {
        return Ok(());
    }
    let statement = "SELECT unhex(value) FROM json_each(?1) WHERE \
                     (SELECT sum(agents) FROM postings WHERE kind = ?2 AND key = unhex(value)) > ?3";
    let large = read(store, statement, &[as_json(persons), Property::Person.into(), few.into()])?;
    keep(store, &large, (1, 1 << 53))
}

/// Begins sums for all persons with more than `few` agents, at the end of the first fill, and counts their
/// agents of this part.
pub(super) fn begin(store: &impl Store, few: u64, part: IdRange) -> Result<(), StoreError> {
    let statement = "SELECT key FROM postings WHERE kind = ?1 GROUP BY key HAVING sum(agents) > ?2";
    keep(store, &read(store, statement, &[Property::Person.into(), few.into()])?, part)
}

fn keep(store: &impl Store, large: &BTreeSet<Address>, (first, last): IdRange) -> Result<(), StoreError> {
    if large.is_empty() {
        return Ok(());
    }
    let of_persons = format!(
        "FROM {MEMBERS} CROSS JOIN agents ON agents.id = member.value \
         WHERE kind = ?2 AND postings.key IN (SELECT unhex(value) FROM json_each(?3)) \
         AND postings.first BETWEEN ?4 AND ?5"
    );
    let given = |kind: SqlValue| [kind, Property::Person.into(), as_json(large), first.into(), last.into()];
    let counts = format!(
        "INSERT INTO counts (kind, key, agents) \
         SELECT ?1, unhex(hex(person) || printf('%02x', status)), count(*) {of_persons} AND status <= 3 \
         GROUP BY person, status ON CONFLICT (kind, key) DO UPDATE SET agents = agents + excluded.agents"
    );
    store.execute(&counts, &given(CountKind::Person.into()))?;
    let rows = format!(
        "SELECT unhex(hex(person) || substr(hex(attested), 1, 14)) AS key, agents.id AS id {of_persons} AND status = 0"
    );
    store.execute(&making(&rows), &given(Property::PersonTime.into())).map(drop)
}

/// Returns the property and the key bounds of the lists of a person's Active agents by attestation time: the
/// list with the second `from`, and the last one. For a person with few agents it is one list of all agents.
pub(super) fn by_time(person: Address, is_large: bool, from: u64) -> (Property, Vec<u8>, Vec<u8>) {
    match is_large {
        true => (Property::PersonTime, time_key(person, from), time_key(person, u64::MAX)),
        false => (Property::Person, person.to_vec(), person.to_vec()),
    }
}
