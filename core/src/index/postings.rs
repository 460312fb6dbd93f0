//! Posting lists: the ids of the agents with a property, ascending, in rows of at most a hundred.
//!
//! An SQL index has an entry per agent and property, and a host bills each entry that is written. A row's
//! `first` is not above its own ids, and above all ids of the row before.
//!
//! ```text
//!   (Person, 0x12...) --> first 7: [7,12,...,530]   first 531: [544,601]
//! ```

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::Address;

use super::{
    indexed_agent::IndexedAgent,
    store::{Columns, SqlValue, Store, StoreError, ids_as_json, one_number, query, write, write_returning},
};
use crate::registry::agent::Status;

/// The property that the agents of a list share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Property {
    Status,
    Generation,
    Person,
    Creator,
    /// The parent's id; 0 for roots.
    Parent,
    /// The liable person and the time of the last attestation of an Active agent, for
    /// [persons with many agents](super::large_persons) alone.
    PersonTime,
}

impl Property {
    /// The properties of every readable agent, with the SQL expressions of their keys.
    pub(super) const OF_ALL: [(Self, &str); 5] = [
        (Self::Status, "CASE WHEN status <= 3 THEN unhex(printf('%02x', status)) END"),
        (Self::Generation, "CASE WHEN generation >= 0 THEN unhex(printf('%016x', generation)) END"),
        (Self::Person, "person"),
        (Self::Creator, "creator"),
        (Self::Parent, "parent"),
    ];
}

impl From<Property> for SqlValue {
    fn from(property: Property) -> Self {
        Self::Integer(property as i64)
    }
}

/// Key of a list: a property and its value.
pub(super) type PostingKey = (Property, Vec<u8>);

/// Returns the lists of an agent, and the list of a person and time that it may be in.
pub(super) fn lists_of(entry: &IndexedAgent) -> (Vec<PostingKey>, Option<PostingKey>) {
    if !entry.row.record_is_readable() {
        return (Vec::new(), None);
    }
    let (row, person) = (&entry.row, entry.full.haftungsperson);
    let mut lists = vec![
        (Property::Generation, row.generation.to_be_bytes().into()),
        (Property::Person, person.to_vec()),
        (Property::Creator, row.creator.to_vec()),
        (Property::Parent, row.parent.to_be_bytes().into()),
    ];
    lists.extend(entry.status().map(|status| (Property::Status, vec![status as u8])));
    let is_active = entry.status() == Some(Status::Active);
    let of_time = is_active.then(|| (Property::PersonTime, time_key(person, row.last_attestation)));
    (lists, of_time)
}

/// The first and the last id of the agents of which one step makes lists.
pub(super) type IdRange = (u64, u64);

/// Encodes a key of [`Property::PersonTime`]: attestations of 256 seconds are in one list.
pub(super) fn time_key(person: Address, attested: u64) -> Vec<u8> {
    let [time @ .., _] = attested.to_be_bytes();
    [person.as_slice(), &time].concat()
}

/// The rows of lists and the ids in them, for a statement's FROM.
pub(super) const MEMBERS: &str = "postings CROSS JOIN json_each(postings.ids) AS member";

/// Maximum ids of a row: their text is stored without overflow pages.
pub(super) const ROW_IDS: usize = 100;
/// Rows read at once.
const MOST_ROWS: usize = 1_000;

/// Reads a page of a list: at most `most` ids above `after`.
pub(super) fn page(
    store: &impl Store,
    (property, key): &PostingKey,
    after: u64,
    most: u64,
) -> Result<Vec<u64>, StoreError> {
    let (property, key) = (SqlValue::from(*property), SqlValue::Blob(key.clone()));
    let statement = "SELECT max(first) FROM postings WHERE kind = ?1 AND key = ?2 AND first <= ?3";
    let begin = one_number(store, statement, &[property.clone(), key.clone(), after.into()])?;
    let (mut begin, mut ids) = (begin.unwrap_or(0), Vec::new());
    let statement = "SELECT first, ids FROM postings WHERE kind = ?1 AND key = ?2 AND first >= ?3 \
                     ORDER BY first LIMIT ?4";
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    loop {
        // Enough rows for the rest of the page, if they are half full.
        let rows = ((most - ids.len()) / (ROW_IDS / 2)).min(MOST_ROWS) + 2;
        let parameters = [property.clone(), key.clone(), begin.into(), (rows as u64).into()];
        let found = query(store, statement, &parameters, |row| Ok((row.number()?, read_ids(row)?)))?;
        let is_last = found.len() < rows;
        for (first, of_row) in found {
            begin = first + 1;
            ids.extend(of_row.into_iter().filter(|id| *id > after));
        }
        ids.truncate(most);
        if is_last || ids.len() == most {
            return Ok(ids);
        }
    }
}

/// Reads all ids of a list.
pub(super) fn whole(store: &impl Store, list: &PostingKey) -> Result<Vec<u64>, StoreError> {
    page(store, list, 0, u64::MAX)
}

fn read_ids(row: &mut Columns) -> Result<Vec<u64>, StoreError> {
    serde_json::from_str(&row.text()?).map_err(|_| StoreError::corrupt())
}

/// Returns the statement that makes lists of the columns `key` and `id` of these rows; its first parameter is
/// the property.
pub(super) fn making(rows: &str) -> String {
    format!(
        "INSERT INTO postings (kind, key, first, agents, ids) \
         SELECT ?1, key, min(id), count(*), json_group_array(id ORDER BY id) FROM \
         (SELECT key, id, (row_number() OVER (PARTITION BY key ORDER BY id) - 1) / {ROW_IDS} AS part FROM ({rows})) \
         GROUP BY key, part"
    )
}

/// Makes the lists of a property, one of [`Property::OF_ALL`], of a part of all agents.
pub(super) fn make(
    store: &impl Store,
    (property, key): (Property, &str),
    (first, last): IdRange,
) -> Result<(), StoreError> {
    let rows =
        format!("SELECT {key} AS key, id FROM agents WHERE id BETWEEN ?2 AND ?3 AND {key} IS NOT NULL");
    store.execute(&making(&rows), &[property.into(), first.into(), last.into()]).map(drop)
}

/// The changes of lists in one transaction.
#[derive(Default)]
pub(super) struct PostingChanges(BTreeMap<PostingKey, BTreeMap<u64, bool>>);

/// Rows of a list by their `first` ids.
type PostingRows = BTreeMap<u64, Vec<u64>>;

impl PostingChanges {
    /// Notes that an agent leaves lists and enters others.
    pub(super) fn note(
        &mut self,
        id: u64,
        before: impl IntoIterator<Item = PostingKey>,
        after: Vec<PostingKey>,
    ) {
        let mut entered = after;
        for key in before {
            match entered.iter().position(|other| *other == key) {
                Some(place) => drop(entered.swap_remove(place)),
                None => drop(self.0.entry(key).or_default().insert(id, false)),
            }
        }
        for key in entered {
            self.0.entry(key).or_default().insert(id, true);
        }
    }

    /// Returns the keys of a property with agents that enter.
    pub(super) fn entered(&self, property: Property) -> impl Iterator<Item = &[u8]> {
        let of_property = self.0.iter().filter(move |((of, _), _)| *of == property);
        of_property.filter(|(_, changes)| changes.values().any(|enters| *enters)).map(|((_, key), _)| &**key)
    }

    /// Keeps the changes of these lists.
    pub(super) fn retain(&mut self, keep: impl Fn(&PostingKey) -> bool) {
        self.0.retain(|key, _| keep(key));
    }

    /// Writes the rows that change.
    pub(super) fn write(self, store: &impl Store) -> Result<(), StoreError> {
        let mut lists = self.stored(store)?;
        let (mut removed, mut written) = (Vec::new(), Vec::new());
        for (key, changes) in self.0 {
            let stored = lists.remove(&key).unwrap_or_default();
            let rows = changed(&stored, &changes);
            let [kind, blob] = [key.0.into(), SqlValue::Blob(key.1)];
            for first in stored.keys().filter(|first| !rows.contains_key(first)) {
                removed.push([kind.clone(), blob.clone(), (*first).into()]);
            }
            for (first, ids) in rows.iter().filter(|(first, ids)| stored.get(first) != Some(ids)) {
                let text = ids_as_json(ids);
                written.push([kind.clone(), blob.clone(), (*first).into(), (ids.len() as u64).into(), text]);
            }
        }
        // One by one: a statement for all would read each list to its end.
        for row in removed {
            store.execute("DELETE FROM postings WHERE kind = ?1 AND key = ?2 AND first = ?3", &row)?;
        }
        let statement = "INSERT OR REPLACE INTO postings (kind, key, first, agents, ids) \
                         SELECT value->>0, unhex(value->>1), value->>2, value->>3, value->>4 FROM json_each(?1)";
        write(store, statement, &written)
    }

    /// Reads the rows that the changes affect.
    fn stored(&self, store: &impl Store) -> Result<BTreeMap<PostingKey, PostingRows>, StoreError> {
        let properties: BTreeMap<i64, Property> = self.0.keys().map(|(of, _)| (*of as i64, *of)).collect();
        let asked: Vec<[SqlValue; 3]> = self
            .0
            .iter()
            .flat_map(|((of, key), changes)| {
                changes.keys().map(|id| [(*of).into(), SqlValue::Blob(key.clone()), (*id).into()])
            })
            .collect();
        let of_list = "kind = asked.value->>0 AND key = unhex(asked.value->>1)";
        let statement = format!(
            "SELECT DISTINCT kind, postings.key, first, ids FROM json_each(?1) AS asked CROSS JOIN postings \
             WHERE kind = asked.value->>0 AND postings.key = unhex(asked.value->>1) AND first = coalesce(\
             (SELECT max(first) FROM postings WHERE {of_list} AND first <= asked.value->>2), \
             (SELECT min(first) FROM postings WHERE {of_list}))"
        );
        let mut lists = BTreeMap::<PostingKey, PostingRows>::new();
        for mut row in write_returning(store, &statement, &asked)? {
            let property = *properties.get(&row.integer()?).ok_or_else(StoreError::corrupt)?;
            let (key, first) = (row.blob()?, row.number()?);
            lists.entry((property, key)).or_default().insert(first, read_ids(&mut row)?);
        }
        Ok(lists)
    }
}

/// Returns the rows of a list after changes. An overfull row is cut into equal parts; ids appended at its end
/// begin a new row.
fn changed(stored: &PostingRows, changes: &BTreeMap<u64, bool>) -> PostingRows {
    let mut rows: BTreeMap<u64, BTreeSet<u64>> =
        stored.iter().map(|(first, ids)| (*first, ids.iter().copied().collect())).collect();
    for (id, enters) in changes {
        let first = rows.range(..=id).next_back().or(rows.iter().next()).map_or(*id, |(first, _)| *first);
        let ids = rows.entry(first).or_default();
        if *enters {
            ids.insert(*id)
        } else {
            ids.remove(id)
        };
    }
    let mut cut = PostingRows::new();
    for (first, ids) in rows {
        let ids: Vec<u64> = ids.into_iter().collect();
        let last_before = stored.get(&first).and_then(|ids| ids.last().copied()).unwrap_or(0);
        let is_appended = ids.get(ROW_IDS).is_some_and(|id| *id > last_before);
        let parts = ids.len().div_ceil(ROW_IDS).max(1);
        let most = if is_appended { ROW_IDS } else { ids.len().div_ceil(parts).max(1) };
        for (number, ids) in ids.chunks(most).enumerate() {
            let Some(lowest) = ids.first() else { continue };
            cut.insert(if number == 0 { first.min(*lowest) } else { *lowest }, ids.to_vec());
        }
    }
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stay_within_their_size_and_order_whatever_is_added_and_removed() {
        let (mut rows, mut expected) = (PostingRows::new(), BTreeSet::new());
        let mut random = 7_u64;
        for round in 0..400 {
            let mut changes = BTreeMap::new();
            for _ in 0..=round % 60 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let (id, enters) = (1 + (random >> 33) % 3_000, random >> 63 == 0 || round < 200);
                changes.insert(id, enters);
            }
            for (id, enters) in &changes {
                if *enters {
                    expected.insert(*id)
                } else {
                    expected.remove(id)
                };
            }
            rows = changed(&rows, &changes);
            let all: Vec<u64> = rows.values().flatten().copied().collect();
            assert_eq!(all, expected.iter().copied().collect::<Vec<_>>(), "round {round}");
            for (first, ids) in &rows {
                assert!((1..=ROW_IDS).contains(&ids.len()) && ids[0] >= *first, "{first}: {ids:?}");
            }
        }
        assert!(rows.len() < expected.len() / 20, "{} rows", rows.len());
        // In order, as agents are registered, rows are full.
        let appended = (0..25).fold(PostingRows::new(), |rows, part| {
            changed(&rows, &(part * 40 + 1..=part * 40 + 40).map(|id| (id, true)).collect())
        });
        assert_eq!(appended.values().map(Vec::len).collect::<Vec<_>>(), [100; 10]);
    }

    #[test]
    fn a_key_holds_the_attestations_of_256_seconds_in_the_order_of_time() {
        let key = |seconds| time_key(Address::repeat_byte(7), seconds);
        assert_eq!((key(512), key(767) == key(512)), ([&[7; 20][..], &[0, 0, 0, 0, 0, 0, 2]].concat(), true));
        assert!(key(768) > key(767) && key(u64::MAX) > key(1 << 40));
    }
}
