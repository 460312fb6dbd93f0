//! SQL indexes and lists made of all agents once they are stored, at the end of the first fill, one step in
//! each piece of work: writing them agent by agent takes ten times as long. Lists are made of a million
//! agents at a time. An SQL index is made of all, in some three seconds of processor time for each million.

use super::{
    counts::CountKind,
    large_persons,
    postings::{self, Property},
    store::{SqlValue, Store, StoreError, first_row, one_number},
};

/// The SQL indexes of agents.
const INDEXES: [&str; 4] = [
    "CREATE INDEX agents_by_place ON agents (place, wallet, id, size)",
    "CREATE INDEX agents_by_attestation ON agents (status, attested)",
    "CREATE INDEX agents_with_flaws ON agents (flaws) WHERE flaws > 0",
    "CREATE INDEX agents_by_event ON agents (substr(events, 1, 8)) \
     WHERE creator <> person AND events >= x'0000000000000001'",
];
/// [`Config::part`](super::Config::part) by default: a list of as many takes SQLite some three seconds.
pub const PART: u64 = 1_000_000;
/// Value in `meta` once all steps are taken.
const DONE: &str = "done";

/// Remaining steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct DerivationSteps {
    next: u64,
    all: u64,
    /// Agents of a [part](postings::IdRange).
    of_part: u64,
}

impl DerivationSteps {
    /// Reads the remaining steps, with `of_part` agents in a part.
    pub(super) fn left(store: &impl Store, of_part: u64) -> Result<Self, StoreError> {
        let next = match first_row(store, "SELECT value FROM meta WHERE key = 'derived'", &[])? {
            None => 0,
            Some(mut row) => match row.text()?.as_str() {
                DONE => return Ok(Self { next: 0, all: 0, of_part }),
                number => number.parse().map_err(|_| StoreError::corrupt())?,
            },
        };
        let agents = one_number(store, "SELECT max(id) FROM agents", &[])?.unwrap_or(0);
        let parts = agents.div_ceil(of_part).max(1);
        let of_properties = (Property::OF_ALL.len() as u64 + 1) * parts;
        Ok(Self { next, all: INDEXES.len() as u64 + of_properties, of_part })
    }

    pub(super) const fn count(self) -> u64 {
        self.all.saturating_sub(self.next)
    }

    /// Takes at most `most` steps. Persons with more than `few` agents have many.
    pub(super) fn take(self, store: &impl Store, most: u64, few: u64) -> Result<(), StoreError> {
        let end = self.all.min(self.next.saturating_add(most));
        if end == self.next {
            return Ok(());
        }
        for step in self.next..end {
            self.take_one(store, step, few)?;
        }
        let value = if end == self.all { DONE.to_owned() } else { end.to_string() };
        let statement = "INSERT OR REPLACE INTO meta (key, value) VALUES ('derived', ?1)";
        store.execute(statement, &[SqlValue::Text(value)]).map(drop)
    }

    /// Begins the lists again: agents are stored anew, and existing lists may be of earlier agents.
    pub(super) fn begin_again(self, store: &impl Store) -> Result<(), StoreError> {
        let indexes = INDEXES.len() as u64;
        if self.count() == 0 || self.next <= indexes {
            return Ok(());
        }
        store.execute("DELETE FROM postings", &[])?;
        store.execute("DELETE FROM counts WHERE kind = ?1", &[CountKind::Person.into()])?;
        let statement = "UPDATE meta SET value = ?1 WHERE key = 'derived'";
        store.execute(statement, &[SqlValue::Text(indexes.to_string())]).map(drop)
    }

    fn take_one(self, store: &impl Store, step: u64, few: u64) -> Result<(), StoreError> {
        let place = usize::try_from(step).unwrap_or(usize::MAX);
        if let Some(statement) = INDEXES.get(place) {
            return store.execute(statement, &[]).map(drop);
        }
        // Property by property, and the persons with many agents after all lists of persons.
        let parts = (self.all - INDEXES.len() as u64) / (Property::OF_ALL.len() as u64 + 1);
        let step = step - INDEXES.len() as u64;
        let first = step % parts * self.of_part + 1;
        // Agents that were registered meanwhile are stored later.
        let part = (first, first + self.of_part - 1);
        match Property::OF_ALL.get(usize::try_from(step / parts).unwrap_or(usize::MAX)) {
            Some(property) => postings::make(store, *property, part),
            None => large_persons::begin(store, few, part),
        }
    }
}
