//! Putting entries into the store, with the sums that answers are made of kept along: counting them anew would take
//! as long as the registry is large.

use std::collections::BTreeMap;

use alloy_primitives::Address;

use super::{
    changes::{Comparison, Noted},
    entry::Entry,
    open_lists,
    store::{Columns, Store, StoreError, Value, of_ids, write},
    words::words,
};
use crate::{chain::logs::Moment, registry::agent::Status, registry::revenue::Total, registry::row::Sum};

/// What agents are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Status,
    Generation,
    /// Active agents by the hour of their last attestation.
    AttestationHour,
    /// Not agents: their reports, under one empty key.
    Reports,
    /// By the person who is liable, and by status.
    Person,
    /// A person's Active agents, by the hour of their last attestation.
    PersonHour,
    /// By status and by range of ids: where a page begins that lies deep in a list.
    StatusRange,
}

impl From<Kind> for Value {
    fn from(kind: Kind) -> Self {
        Self::Integer(kind as i64)
    }
}

/// Seconds of an [`Kind::AttestationHour`].
pub(super) const HOUR: u64 = 3_600;

/// Ids of a [`Kind::StatusRange`].
pub(super) const RANGE: u64 = 1_024;

/// A key of [`Kind::StatusRange`].
pub(super) fn status_range(status: u8, id: u64) -> Vec<u8> {
    [&[status][..], &(id / RANGE).to_be_bytes()].concat()
}

/// A key of [`Kind::Person`].
pub(super) fn person_status(person: Address, status: u8) -> Vec<u8> {
    [person.as_slice(), &[status]].concat()
}

/// A key of [`Kind::PersonHour`].
pub(super) fn person_hour(person: Address, hour: u64) -> Vec<u8> {
    [person.as_slice(), &hour.to_be_bytes()].concat()
}

/// Changes of one transaction, each agent's put in once. They are read and written many at a time, the rows and the sums by
/// [`finish`](Self::finish): what a statement costs a host in JavaScript, in time and in memory, is by the statement more than by the row.
pub(super) struct Changes<'a, S> {
    store: &'a S,
    /// The height of their block.
    number: u64,
    /// How verdicts are compared; `None` as long as there is nothing to compare with.
    comparison: Option<Comparison>,
    moments: BTreeMap<u64, Moment>,
    noted: Vec<Noted>,
    /// Agents that are as they were, and were looked at.
    touched: Vec<u64>,
    /// Agents that are another row now, or none.
    replaced: Vec<u64>,
    agents: Vec<[Value; 11]>,
    scopes_out: Vec<[Value; 2]>,
    scopes_in: Vec<[Value; 2]>,
    /// Agents whose revenue is another one, or none.
    revenue_out: Vec<u64>,
    revenue_in: Vec<[Value; 4]>,
    counts: BTreeMap<(Kind, Vec<u8>), i64>,
    totals: BTreeMap<(bool, String), TotalChange>,
}

#[derive(Default)]
struct TotalChange {
    more: Total,
    less: Total,
    agents: i64,
}

impl<'a, S: Store> Changes<'a, S> {
    /// Changes as of the block of that height.
    pub(super) fn new(
        store: &'a S,
        number: u64,
        comparison: Option<Comparison>,
        moments: BTreeMap<u64, Moment>,
    ) -> Self {
        Self {
            store,
            number,
            comparison,
            moments,
            noted: Vec::new(),
            touched: Vec::new(),
            replaced: Vec::new(),
            agents: Vec::new(),
            scopes_out: Vec::new(),
            scopes_in: Vec::new(),
            revenue_out: Vec::new(),
            revenue_in: Vec::new(),
            counts: BTreeMap::new(),
            totals: BTreeMap::new(),
        }
    }

    /// Puts in agents as they are now; gives those that were something else before. `touch`: the height is noted of the others, too.
    pub(super) fn put(&mut self, entries: &[(u64, Entry)], touch: bool) -> Result<Vec<u64>, StoreError> {
        let ids: Vec<u64> = entries.iter().map(|(id, _)| *id).collect();
        let known = find_all(self.store, &ids)?;
        let mut changed = Vec::new();
        for (id, entry) in entries {
            let before = known.get(id);
            if before != Some(entry) {
                self.replace(*id, before, entry);
                changed.push(*id);
            } else if touch {
                self.touched.push(*id);
            }
        }
        Ok(changed)
    }

    fn replace(&mut self, id: u64, before: Option<&Entry>, entry: &Entry) {
        self.compare(id, before, Some(entry));
        let same_sums = before.is_some_and(|before| before.full.sums == entry.full.sums);
        if let Some(before) = before {
            self.count(id, before, -1);
            if !same_sums {
                self.take_sums_out(id, before);
            }
        }
        self.count(id, entry, 1);
        if !same_sums {
            self.put_sums_in(id, &entry.full.sums);
        }
        let scope_before = before.map_or("", |before| &before.full.scope);
        if scope_before != entry.full.scope {
            self.take_scope_out(id, scope_before);
            self.put_scope_in(id, &entry.full.scope);
        }
        self.replaced.push(id);
        self.agents.push(entry.columns(id, self.number));
    }

    /// Takes out the agents behind `last`: the registry's counter says that there are none.
    pub(super) fn end_at(&mut self, last: u64) -> Result<(), StoreError> {
        let rows = self.store.execute("SELECT id FROM agents WHERE id > ?1", &[last.into()])?;
        let ids: Vec<u64> =
            rows.into_iter().map(|row| Columns::of(row).number()).collect::<Result<_, _>>()?;
        for (id, before) in find_all(self.store, &ids)? {
            self.compare(id, Some(&before), None);
            self.count(id, &before, -1);
            self.take_sums_out(id, &before);
            self.take_scope_out(id, &before.full.scope);
        }
        open_lists::keep(self.store, &ids)?;
        of_ids(self.store, "DELETE FROM agents WHERE id", &[], &ids).map(drop)
    }

    fn compare(&mut self, id: u64, before: Option<&Entry>, after: Option<&Entry>) {
        if let Some(comparison) = self.comparison {
            self.noted.extend(comparison.compare(id, before, after, self.moments.get(&id).copied()));
        }
    }

    fn count(&mut self, id: u64, entry: &Entry, by: i64) {
        let mut add = |kind, key: Vec<u8>, by| *self.counts.entry((kind, key)).or_default() += by;
        if let Some(status) = entry.status() {
            add(Kind::Status, vec![status as u8], by);
            add(Kind::StatusRange, status_range(status as u8, id), by);
            add(Kind::Generation, entry.row.generation.to_be_bytes().into(), by);
            let person = entry.full.haftungsperson;
            add(Kind::Person, person_status(person, status as u8), by);
            if status == Status::Active {
                let hour = entry.row.last_attestation / HOUR;
                add(Kind::AttestationHour, hour.to_be_bytes().into(), by);
                add(Kind::PersonHour, person_hour(person, hour), by);
            }
        }
        add(Kind::Reports, Vec::new(), by * i64::from(entry.full.reports));
    }

    fn put_scope_in(&mut self, id: u64, scope: &str) {
        let words = words(scope);
        if !words.is_empty() {
            self.scopes_in.push([id.into(), Value::Text(words)]);
        }
    }

    /// Takes out a text that was put in: the table has to be told which.
    fn take_scope_out(&mut self, id: u64, scope: &str) {
        let words = words(scope);
        if !words.is_empty() {
            self.scopes_out.push([id.into(), Value::Text(words)]);
        }
    }

    fn put_sums_in(&mut self, id: u64, sums: &[Sum]) {
        for Sum { is_category, text, amount } in sums {
            let change = self.totals.entry((*is_category, text.clone())).or_default();
            change.more = change.more.saturating_add(*amount);
            change.agents += 1;
            self.revenue_in.push([id.into(), u64::from(*is_category).into(), bytes(text), big(*amount)]);
        }
    }

    fn take_sums_out(&mut self, id: u64, before: &Entry) {
        for Sum { is_category, text, amount } in &before.full.sums {
            let change = self.totals.entry((*is_category, text.clone())).or_default();
            change.less = change.less.saturating_add(*amount);
            change.agents -= 1;
        }
        if !before.full.sums.is_empty() {
            self.revenue_out.push(id);
        }
    }

    /// Writes the rows and the sums; the changes of verdicts.
    pub(super) fn finish(self) -> Result<Vec<Noted>, StoreError> {
        let store = self.store;
        open_lists::keep(store, &self.replaced)?;
        of_ids(store, "UPDATE agents SET changed_at = ? WHERE id", &[self.number.into()], &self.touched)?;
        write(
            store,
            "INSERT OR REPLACE INTO agents (id, wallet, status, attested, parent, person, creator, generation, flaws, \
             changed_at, record) SELECT value->>0, unhex(value->>1), value->>2, unhex(value->>3), unhex(value->>4), \
             unhex(value->>5), unhex(value->>6), value->>7, value->>8, value->>9, unhex(value->>10) FROM json_each(?1)",
            &self.agents,
        )?;
        write(
            store,
            "INSERT INTO scopes (scopes, rowid, scope) SELECT 'delete', value->>0, value->>1 FROM json_each(?1)",
            &self.scopes_out,
        )?;
        write(
            store,
            "INSERT INTO scopes (rowid, scope) SELECT value->>0, value->>1 FROM json_each(?1)",
            &self.scopes_in,
        )?;
        of_ids(store, "DELETE FROM revenue WHERE id", &[], &self.revenue_out)?;
        write(
            store,
            "INSERT INTO revenue (id, is_category, text, amount) \
             SELECT value->>0, value->>1, unhex(value->>2), unhex(value->>3) FROM json_each(?1)",
            &self.revenue_in,
        )?;

        let counts: Vec<[Value; 3]> = self
            .counts
            .into_iter()
            .filter(|(_, by)| *by != 0)
            .map(|((kind, key), by)| [kind.into(), Value::Blob(key), Value::Integer(by)])
            .collect();
        // Without a WHERE, ON would be read as a join's.
        write(
            store,
            "INSERT INTO counts (kind, key, agents) SELECT value->>0, unhex(value->>1), value->>2 FROM json_each(?1) \
             WHERE true ON CONFLICT (kind, key) DO UPDATE SET agents = agents + excluded.agents",
            &counts,
        )?;
        // Looking for those that are 0 would read all of them, and there are some for each person.
        let fewer = |[kind, key, by]: [Value; 3]| matches!(by, Value::Integer(..0)).then_some([kind, key]);
        let fewer: Vec<[Value; 2]> = counts.into_iter().filter_map(fewer).collect();
        let statement = "DELETE FROM counts WHERE agents = 0 AND (kind, key) IN \
                         (SELECT value->>0, unhex(value->>1) FROM json_each(?1))";
        write(store, statement, &fewer)?;
        for ((is_category, text), change) in self.totals {
            let key = [u64::from(is_category).into(), bytes(&text)];
            let statement = "SELECT amount, agents FROM revenue_totals WHERE is_category = ?1 AND text = ?2";
            let (amount, agents) = match store.execute(statement, &key)?.into_iter().next() {
                Some(row) => {
                    let mut row = Columns::of(row);
                    (Total::from_be_bytes(row.array::<40>()?), row.integer()?)
                }
                None => (Total::ZERO, 0),
            };
            let amount = amount.saturating_add(change.more).saturating_sub(change.less);
            let [is_category, text] = key;
            match agents + change.agents {
                0 => store.execute(
                    "DELETE FROM revenue_totals WHERE is_category = ?1 AND text = ?2",
                    &[is_category, text],
                )?,
                agents => store.execute(
                    "INSERT OR REPLACE INTO revenue_totals (is_category, text, amount, agents) VALUES (?1, ?2, ?3, ?4)",
                    &[is_category, text, big(amount), Value::Integer(agents)],
                )?,
            };
        }
        Ok(self.noted)
    }
}

/// The entry of an agent, with its sums.
pub(super) fn find(store: &impl Store, id: u64) -> Result<Option<Entry>, StoreError> {
    Ok(find_all(store, &[id])?.remove(&id))
}

/// The entries of those of these agents that there are, without their sums.
pub(super) fn records(store: &impl Store, ids: &[u64]) -> Result<BTreeMap<u64, Entry>, StoreError> {
    let read = |row| {
        let mut row = Columns::of(row);
        Ok((row.number()?, Entry::unpack(&row.blob()?)?))
    };
    of_ids(store, "SELECT id, record FROM agents WHERE id", &[], ids)?.into_iter().map(read).collect()
}

/// The same with their sums.
fn find_all(store: &impl Store, ids: &[u64]) -> Result<BTreeMap<u64, Entry>, StoreError> {
    let mut entries = records(store, ids)?;
    let reporting: Vec<u64> =
        entries.iter().filter(|(_, entry)| entry.full.reports > 0).map(|(id, _)| *id).collect();
    let statement = "SELECT id, is_category, text, amount FROM revenue WHERE id";
    for row in of_ids(store, statement, &[], &reporting)? {
        let mut row = Columns::of(row);
        if let Some(entry) = entries.get_mut(&row.number()?) {
            entry.full.sums.push(sum(row)?);
        }
    }
    entries.values_mut().for_each(Entry::sort_sums);
    Ok(entries)
}

/// A row of category or not, text and amount.
pub(super) fn sum(mut row: Columns) -> Result<Sum, StoreError> {
    let is_category = row.integer()? != 0;
    let text = String::from_utf8(row.blob()?).map_err(|_| StoreError::corrupt())?;
    Ok(Sum { is_category, text, amount: Total::from_be_bytes(row.array::<40>()?) })
}

/// Texts are kept as bytes: whatever they hold, they come back as they went in.
fn bytes(text: &str) -> Value {
    Value::Blob(text.as_bytes().into())
}

fn big(amount: Total) -> Value {
    Value::Blob(amount.to_be_bytes::<40>().into())
}
