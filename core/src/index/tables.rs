//! Putting entries into the store, with the sums that answers are made of kept along: counting them anew would take
//! as long as the registry is large.

use std::collections::BTreeMap;

use alloy_primitives::Address;

use super::{
    changes::{Comparison, Noted},
    entry::Entry,
    hint::Moment,
    store::{Columns, Store, StoreError, Value, one_number},
    words::words,
};
use crate::{agent::Status, lens::Sum, revenue::Total};

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
}

impl From<Kind> for Value {
    fn from(kind: Kind) -> Self {
        Self::Integer(kind as i64)
    }
}

/// Seconds of an [`Kind::AttestationHour`].
pub(super) const HOUR: u64 = 3_600;

/// A key of [`Kind::Person`].
pub(super) fn person_status(person: Address, status: u8) -> Vec<u8> {
    [person.as_slice(), &[status]].concat()
}

/// A key of [`Kind::PersonHour`].
pub(super) fn person_hour(person: Address, hour: u64) -> Vec<u8> {
    [person.as_slice(), &hour.to_be_bytes()].concat()
}

/// Changes of one transaction. [`finish`](Self::finish) writes the sums.
pub(super) struct Changes<'a, S> {
    store: &'a S,
    /// How verdicts are compared; `None` as long as there is nothing to compare with.
    comparison: Option<Comparison>,
    moments: BTreeMap<u64, Moment>,
    noted: Vec<Noted>,
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
    pub(super) fn new(store: &'a S, comparison: Option<Comparison>, moments: BTreeMap<u64, Moment>) -> Self {
        Self {
            store,
            comparison,
            moments,
            noted: Vec::new(),
            counts: BTreeMap::new(),
            totals: BTreeMap::new(),
        }
    }

    /// Puts in an agent as it is at the block of that height; true where it was something else before. `touch`: the
    /// height is noted even if nothing has changed.
    pub(super) fn put(
        &mut self,
        id: u64,
        entry: &Entry,
        number: u64,
        touch: bool,
    ) -> Result<bool, StoreError> {
        let before = find(self.store, id)?;
        if before.as_ref() == Some(entry) {
            if touch {
                let statement = "UPDATE agents SET changed_at = ?2 WHERE id = ?1";
                self.store.execute(statement, &[id.into(), number.into()])?;
            }
            return Ok(false);
        }
        self.compare(id, before.as_ref(), Some(entry));
        let same_sums = before.as_ref().is_some_and(|before| before.full.sums == entry.full.sums);
        if let Some(before) = &before {
            self.count(before, -1);
            if !same_sums {
                self.take_sums_out(id, before)?;
            }
        }
        self.count(entry, 1);
        if !same_sums {
            self.put_sums_in(id, &entry.full.sums)?;
        }
        let scope_before = before.as_ref().map_or("", |before| &before.full.scope);
        if scope_before != entry.full.scope {
            self.take_scope_out(id, scope_before)?;
            self.put_scope_in(id, &entry.full.scope)?;
        }
        let [wallet, status, attested, parent, person, creator, generation, flaws, record] = entry.columns();
        self.store.execute(
            "INSERT OR REPLACE INTO agents (id, wallet, status, attested, parent, person, creator, generation, flaws, \
             changed_at, record) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
            &[id.into(), wallet, status, attested, parent, person, creator, generation, flaws, number.into(), record],
        )?;
        Ok(true)
    }

    /// Takes out the agents behind `last`: the registry's counter says that there are none.
    pub(super) fn end_at(&mut self, last: u64) -> Result<(), StoreError> {
        let beyond = self.store.execute("SELECT id FROM agents WHERE id > ?1", &[last.into()])?;
        for row in beyond {
            let id = Columns::of(row).number()?;
            let Some(before) = find(self.store, id)? else { continue };
            self.compare(id, Some(&before), None);
            self.count(&before, -1);
            self.take_sums_out(id, &before)?;
            self.take_scope_out(id, &before.full.scope)?;
            self.store.execute("DELETE FROM agents WHERE id = ?1", &[id.into()])?;
        }
        Ok(())
    }

    fn compare(&mut self, id: u64, before: Option<&Entry>, after: Option<&Entry>) {
        if let Some(comparison) = self.comparison {
            self.noted.extend(comparison.compare(id, before, after, self.moments.get(&id).copied()));
        }
    }

    fn count(&mut self, entry: &Entry, by: i64) {
        let mut add = |kind, key: Vec<u8>, by| *self.counts.entry((kind, key)).or_default() += by;
        if let Some(status) = entry.status() {
            add(Kind::Status, vec![status as u8], by);
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

    fn put_scope_in(&self, id: u64, scope: &str) -> Result<(), StoreError> {
        let statement = "INSERT INTO scopes (rowid, scope) VALUES (?1, ?2)";
        self.write_scope(statement, id, scope)
    }

    /// Takes out a text that was put in: the table has to be told which.
    fn take_scope_out(&self, id: u64, scope: &str) -> Result<(), StoreError> {
        let statement = "INSERT INTO scopes (scopes, rowid, scope) VALUES ('delete', ?1, ?2)";
        self.write_scope(statement, id, scope)
    }

    fn write_scope(&self, statement: &str, id: u64, scope: &str) -> Result<(), StoreError> {
        let words = words(scope);
        if words.is_empty() {
            return Ok(());
        }
        self.store.execute(statement, &[id.into(), Value::Text(words)]).map(drop)
    }

    fn put_sums_in(&mut self, id: u64, sums: &[Sum]) -> Result<(), StoreError> {
        for Sum { is_category, text, amount } in sums {
            let change = self.totals.entry((*is_category, text.clone())).or_default();
            change.more = change.more.saturating_add(*amount);
            change.agents += 1;
            self.store.execute(
                "INSERT INTO revenue (id, is_category, text, amount) VALUES (?1, ?2, ?3, ?4)",
                &[id.into(), u64::from(*is_category).into(), bytes(text), big(*amount)],
            )?;
        }
        Ok(())
    }

    fn take_sums_out(&mut self, id: u64, before: &Entry) -> Result<(), StoreError> {
        for Sum { is_category, text, amount } in &before.full.sums {
            let change = self.totals.entry((*is_category, text.clone())).or_default();
            change.less = change.less.saturating_add(*amount);
            change.agents -= 1;
        }
        if before.full.sums.is_empty() {
            return Ok(());
        }
        self.store.execute("DELETE FROM revenue WHERE id = ?1", &[id.into()]).map(drop)
    }

    /// Writes the sums; the changes of verdicts.
    pub(super) fn finish(self) -> Result<Vec<Noted>, StoreError> {
        for ((kind, key), by) in self.counts.into_iter().filter(|(_, by)| *by != 0) {
            let statement = "INSERT INTO counts (kind, key, agents) VALUES (?1, ?2, ?3) \
                             ON CONFLICT (kind, key) DO UPDATE SET agents = agents + ?3 RETURNING agents";
            let [kind, key] = [kind.into(), Value::Blob(key)];
            let parameters = [kind.clone(), key.clone(), Value::Integer(by)];
            // Looking for those that are 0 would read all of them, and there are some for each person.
            if one_number(self.store, statement, &parameters)? == Some(0) {
                self.store.execute("DELETE FROM counts WHERE kind = ?1 AND key = ?2", &[kind, key])?;
            }
        }
        for ((is_category, text), change) in self.totals {
            let key = [u64::from(is_category).into(), bytes(&text)];
            let statement = "SELECT amount, agents FROM revenue_totals WHERE is_category = ?1 AND text = ?2";
            let (amount, agents) = match self.store.execute(statement, &key)?.into_iter().next() {
                Some(row) => {
                    let mut row = Columns::of(row);
                    (Total::from_be_bytes(row.array::<40>()?), row.integer()?)
                }
                None => (Total::ZERO, 0),
            };
            let amount = amount.saturating_add(change.more).saturating_sub(change.less);
            let [is_category, text] = key;
            match agents + change.agents {
                0 => self.store.execute(
                    "DELETE FROM revenue_totals WHERE is_category = ?1 AND text = ?2",
                    &[is_category, text],
                )?,
                agents => self.store.execute(
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
    let rows = store.execute("SELECT record FROM agents WHERE id = ?1", &[id.into()])?;
    let Some(row) = rows.into_iter().next() else { return Ok(None) };
    let mut entry = Entry::unpack(&Columns::of(row).blob()?)?;
    if entry.full.reports > 0 {
        let statement =
            "SELECT is_category, text, amount FROM revenue WHERE id = ?1 ORDER BY is_category, text";
        entry.full.sums =
            store.execute(statement, &[id.into()])?.into_iter().map(sum).collect::<Result<_, _>>()?;
    }
    Ok(Some(entry))
}

/// A row of category or not, text and amount.
pub(super) fn sum(row: Vec<Value>) -> Result<Sum, StoreError> {
    let mut row = Columns::of(row);
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
