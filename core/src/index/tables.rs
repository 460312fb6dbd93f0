//! Writes agents to the store together with the sums for answers: counting agents for each answer would read
//! the whole table.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::Address;

use super::{
    changes::{Comparison, VerdictChange},
    counts::{CountKind, HOUR, RANGE, person_status, status_range},
    indexed_agent::IndexedAgent,
    large_persons, open_lists,
    postings::{PostingChanges, Property, lists_of},
    seen_events::ListedEvents,
    shard_range::ShardVersion,
    shard_table::FileSizes,
    shards::ShardChanges,
    store::{Columns, SqlValue, Store, StoreError, first_row, ids_as_json, of_ids, query, write},
    takeover,
    words::words,
};
use crate::{
    chain::logs::StatusMoment, registry::agent::Status, registry::revenue::Total, registry::row::Sum,
};

/// Agents that are deleted at once if the registry is shorter: that of another chain may be by any number.
const ENDED_AT_ONCE: u64 = 20_000;

/// The changes of one transaction, each agent's once. Reads are batched, and writes are collected until
/// [`finish`](Self::finish): a host in JavaScript has more cost, in time and memory, per statement than per
/// row.
pub(super) struct AgentWriter<'a, S> {
    store: &'a S,
    /// The version of the shards that change, with the agents' block.
    version: ShardVersion,
    /// Compares verdicts; `None` before the first complete fill.
    comparison: Option<Comparison>,
    moments: BTreeMap<u64, StatusMoment>,
    events: ListedEvents,
    /// Agents of a person up to which no sums are kept.
    few_agents: u64,
    sizes: FileSizes,
    noted: Vec<VerdictChange>,
    /// Unchanged agents that were read again.
    touched: Vec<u64>,
    /// Agents that changed.
    replaced: Vec<u64>,
    agents: Vec<[SqlValue; 13]>,
    /// Agents of which only the attestation, the reports or the events have changed.
    renewed: Vec<[SqlValue; 4]>,
    /// Agents of which only these and the status have changed.
    toggled: Vec<[SqlValue; 5]>,
    /// `None` before the first fill's end: lists and shards are then made of all agents at once.
    derived: Option<DerivedChanges>,
    scopes_out: Vec<[SqlValue; 2]>,
    scopes_in: Vec<[SqlValue; 2]>,
    /// Agents with changed or removed revenue.
    revenue_out: Vec<u64>,
    revenue_in: Vec<[SqlValue; 4]>,
    counts: BTreeMap<(CountKind, Vec<u8>), i64>,
    totals: BTreeMap<(bool, String), TotalChange>,
}

/// Changes of shards and lists, which the end of the first fill makes of all agents.
#[derive(Default)]
struct DerivedChanges {
    shards: ShardChanges,
    postings: PostingChanges,
    /// Lists of persons and times: of all persons, before it is known which have many agents.
    by_time: PostingChanges,
}

impl DerivedChanges {
    fn note(&mut self, id: u64, before: Option<&IndexedAgent>, after: Option<&IndexedAgent>) {
        self.shards.note(id, before, after);
        let [(before, time_before), (after, time_after)] =
            [before, after].map(|entry| entry.map(lists_of).unwrap_or_default());
        self.postings.note(id, before, after);
        self.by_time.note(id, time_before, time_after.into_iter().collect());
    }
}

#[derive(Default)]
struct TotalChange {
    more: Total,
    less: Total,
    agents: i64,
}

impl<'a, S: Store> AgentWriter<'a, S> {
    pub(super) fn new(
        store: &'a S,
        version: ShardVersion,
        comparison: Option<Comparison>,
        moments: BTreeMap<u64, StatusMoment>,
        events: ListedEvents,
        few_agents: u64,
        sizes: FileSizes,
    ) -> Self {
        Self {
            store,
            version,
            comparison,
            moments,
            events,
            few_agents,
            sizes,
            noted: Vec::new(),
            touched: Vec::new(),
            replaced: Vec::new(),
            agents: Vec::new(),
            renewed: Vec::new(),
            toggled: Vec::new(),
            derived: Some(DerivedChanges::default()),
            scopes_out: Vec::new(),
            scopes_in: Vec::new(),
            revenue_out: Vec::new(),
            revenue_in: Vec::new(),
            counts: BTreeMap::new(),
            totals: BTreeMap::new(),
        }
    }

    /// Leaves shards and lists as they are.
    #[must_use]
    pub(super) fn without_derived(self) -> Self {
        Self { derived: None, ..self }
    }

    /// Stores agents as they are now, with their seen events, and returns the ids of those with another
    /// record. With `touch`, the others are also noted as written.
    pub(super) fn put(
        &mut self,
        entries: &mut [(u64, IndexedAgent)],
        touch: bool,
    ) -> Result<Vec<u64>, StoreError> {
        let ids: Vec<u64> = entries.iter().map(|(id, _)| *id).collect();
        let known = find_all(self.store, &ids)?;
        let earlier = self.earlier((ids.first().copied().unwrap_or(1), ids.last().copied().unwrap_or(0)))?;
        let mut changed = Vec::new();
        for (id, entry) in entries {
            let before = known.get(id);
            let row_before = before.map(|before| before.as_before(entry));
            entry.events = self.events.seen(*id, entry.full.haftungsperson, row_before, self.version.block);
            if before != Some(entry) {
                self.compare(*id, before.or(earlier.get(id)), Some(entry));
                self.replace(*id, before, entry);
            } else if touch {
                self.touched.push(*id);
            }
            if !before.is_some_and(|before| before.has_record_of(entry)) {
                changed.push(*id);
            }
        }
        Ok(changed)
    }

    fn replace(&mut self, id: u64, before: Option<&IndexedAgent>, entry: &IndexedAgent) {
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
            self.scopes_out.extend(scope_row(id, scope_before));
            self.scopes_in.extend(scope_row(id, &entry.full.scope));
        }
        if let Some(derived) = &mut self.derived {
            derived.note(id, before, Some(entry));
        }
        self.replaced.push(id);
        let columns = entry.columns(id);
        match before.map(|before| before.columns(id)) {
            // Of the SQL indexes, only those by attestation, by event and by status have other entries.
            Some(before) if unchanging(&before) == unchanging(&columns) => {
                let [id, _, status, attested, .., record, events] = columns;
                match before {
                    [_, _, was, ..] if was == status => self.renewed.push([id, attested, record, events]),
                    _ => self.toggled.push([id, attested, record, events, status]),
                }
            }
            _ => self.agents.push(columns),
        }
    }

    /// Returns the earlier index's records of the agents in a range of ids, during the first fill.
    fn earlier(&self, range: (u64, u64)) -> Result<BTreeMap<u64, IndexedAgent>, StoreError> {
        match self.comparison.is_some() && self.events.is_fill() {
            true => takeover::records(self.store, range),
            false => Ok(BTreeMap::new()),
        }
    }

    /// Notes that the last change of an agent's status is of another block, with the same record.
    pub(super) fn note_moved(&mut self, entry: &IndexedAgent) {
        if let Some(derived) = &mut self.derived {
            derived.shards.note_moved(entry);
        }
    }

    /// Deletes agents beyond `last`, the registry's counter: all, or the first [`ENDED_AT_ONCE`]. Returns
    /// whether none are left.
    pub(super) fn end_at(&mut self, last: u64) -> Result<bool, StoreError> {
        let statement = "SELECT id FROM agents WHERE id > ?1 ORDER BY id LIMIT ?2";
        let ids = query(self.store, statement, &[last.into(), ENDED_AT_ONCE.into()], Columns::number)?;
        // A reorg does not undo more than these.
        for (id, before) in self.earlier((last.saturating_add(1), last.saturating_add(RANGE)))? {
            if !ids.contains(&id) {
                self.compare(id, Some(&before), None);
            }
        }
        for (id, before) in find_all(self.store, &ids)? {
            self.compare(id, Some(&before), None);
            self.count(id, &before, -1);
            self.take_sums_out(id, &before);
            if let Some(derived) = &mut self.derived {
                derived.note(id, Some(&before), None);
            }
            self.scopes_out.extend(scope_row(id, &before.full.scope));
        }
        open_lists::keep(self.store, &ids)?;
        of_ids(self.store, "DELETE FROM agents WHERE id", &[], &ids)?;
        Ok((ids.len() as u64) < ENDED_AT_ONCE)
    }

    fn compare(&mut self, id: u64, before: Option<&IndexedAgent>, after: Option<&IndexedAgent>) {
        if let Some(comparison) = self.comparison {
            self.noted.extend(comparison.compare(id, before, after, self.moments.get(&id).copied()));
        }
    }

    fn count(&mut self, id: u64, entry: &IndexedAgent, by: i64) {
        let mut add = |kind, key: Vec<u8>, by| *self.counts.entry((kind, key)).or_default() += by;
        if let Some(status) = entry.status() {
            add(CountKind::Status, vec![status as u8], by);
            add(CountKind::StatusRange, status_range(status as u8, id), by);
            add(CountKind::Generation, entry.row.generation.to_be_bytes().into(), by);
            let person = entry.full.haftungsperson;
            add(CountKind::Person, person_status(person, status as u8), by);
            if status == Status::Active {
                let hour = entry.row.last_attestation / HOUR;
                add(CountKind::AttestationHour, hour.to_be_bytes().into(), by);
            }
        }
        add(CountKind::Reports, Vec::new(), by * i64::from(entry.full.reports));
    }

    fn put_sums_in(&mut self, id: u64, sums: &[Sum]) {
        for Sum { is_category, text, amount } in sums {
            let change = self.totals.entry((*is_category, text.clone())).or_default();
            change.more = change.more.saturating_add(*amount);
            change.agents += 1;
            self.revenue_in.push([id.into(), u64::from(*is_category).into(), bytes(text), big(*amount)]);
        }
    }

    fn take_sums_out(&mut self, id: u64, before: &IndexedAgent) {
        for Sum { is_category, text, amount } in &before.full.sums {
            let change = self.totals.entry((*is_category, text.clone())).or_default();
            change.less = change.less.saturating_add(*amount);
            change.agents -= 1;
        }
        if !before.full.sums.is_empty() {
            self.revenue_out.push(id);
        }
    }

    /// Writes rows and sums, and returns the changes of verdicts.
    pub(super) fn finish(mut self) -> Result<Vec<VerdictChange>, StoreError> {
        let store = self.store;
        // A first fill keeps no sums of persons yet.
        let is_fill = self.derived.is_none();
        let persons = match is_fill {
            true => BTreeSet::new(),
            false => self.counts.keys().filter_map(person_of).collect(),
        };
        let large = large_persons::among(store, &persons)?;
        self.counts.retain(|key, by| *by != 0 && person_of(key).is_none_or(|person| large.contains(&person)));
        open_lists::keep(store, &self.replaced)?;
        let written = [&self.replaced[..], &self.touched].concat();
        if !written.is_empty() {
            let statement = "INSERT INTO written (height, ids) VALUES (?1, ?2)";
            store.execute(statement, &[self.version.block.into(), ids_as_json(&written)])?;
        }
        write(
            store,
            "INSERT OR REPLACE INTO agents (id, wallet, status, attested, parent, person, creator, generation, flaws, \
             place, size, record, events) SELECT value->>0, unhex(value->>1), value->>2, unhex(value->>3), \
             unhex(value->>4), unhex(value->>5), unhex(value->>6), value->>7, value->>8, value->>9, value->>10, \
             unhex(value->>11), unhex(value->>12) FROM json_each(?1)",
            &self.agents,
        )?;
        let update = |also: &str| {
            format!(
                "UPDATE agents SET attested = unhex(read.value->>1), record = unhex(read.value->>2), \
                 events = unhex(read.value->>3){also} FROM json_each(?1) AS read WHERE agents.id = read.value->>0"
            )
        };
        write(store, &update(""), &self.renewed)?;
        write(store, &update(", status = read.value->>4"), &self.toggled)?;
        if let Some(DerivedChanges { shards, postings, mut by_time }) = self.derived {
            let entered = postings.entered(Property::Person).filter_map(|key| Address::try_from(key).ok());
            let grown = entered.filter(|person| !large.contains(person)).collect();
            postings.write(store)?;
            by_time.retain(|(_, key)| {
                key.first_chunk().is_some_and(|person| large.contains(&Address::new(*person)))
            });
            by_time.write(store)?;
            large_persons::begin_with(store, &grown, self.few_agents)?;
            // It reads the new lists to find the children of agents with another status.
            shards.write(store, self.version, self.sizes)?;
        }
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

        let counts: Vec<[SqlValue; 3]> = self
            .counts
            .into_iter()
            .map(|((kind, key), by)| [kind.into(), SqlValue::Blob(key), SqlValue::Integer(by)])
            .collect();
        // Without the WHERE, ON would be parsed as a join's.
        write(
            store,
            "INSERT INTO counts (kind, key, agents) SELECT value->>0, unhex(value->>1), value->>2 FROM json_each(?1) \
             WHERE true ON CONFLICT (kind, key) DO UPDATE SET agents = agents + excluded.agents",
            &counts,
        )?;
        // Searching for all zeros would read all counts, and there are some for each person.
        let fewer =
            |[kind, key, by]: [SqlValue; 3]| matches!(by, SqlValue::Integer(..0)).then_some([kind, key]);
        let fewer: Vec<[SqlValue; 2]> = counts.into_iter().filter_map(fewer).collect();
        let statement = "DELETE FROM counts WHERE agents = 0 AND (kind, key) IN \
                         (SELECT value->>0, unhex(value->>1) FROM json_each(?1))";
        write(store, statement, &fewer)?;
        for ((is_category, text), change) in self.totals {
            let key = [u64::from(is_category).into(), bytes(&text)];
            let statement = "SELECT amount, agents FROM revenue_totals WHERE is_category = ?1 AND text = ?2";
            let (amount, agents) = match first_row(store, statement, &key)? {
                Some(mut row) => (Total::from_be_bytes(row.array::<40>()?), row.integer()?),
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
                    &[is_category, text, big(amount), SqlValue::Integer(agents)],
                )?,
            };
        }
        Ok(self.noted)
    }
}

/// Returns the liable person of a count, if it has one.
fn person_of((kind, key): &(CountKind, Vec<u8>)) -> Option<Address> {
    (*kind == CountKind::Person).then(|| key.first_chunk().map(|person| Address::new(*person)))?
}

/// Returns the columns that an attestation, a report, a suspension and a reactivation do not change.
fn unchanging(columns: &[SqlValue; 13]) -> [&SqlValue; 8] {
    let [_, wallet, _, _, parent, person, creator, generation, flaws, place, size, ..] = columns;
    [wallet, parent, person, creator, generation, flaws, place, size]
}

/// Reads the ids of agents that were written above a height, at most `most`.
pub(super) fn written_since(store: &impl Store, height: u64, most: u64) -> Result<Vec<u64>, StoreError> {
    let statement =
        "SELECT DISTINCT value FROM written, json_each(written.ids) WHERE written.height > ?1 LIMIT ?2";
    query(store, statement, &[height.into(), most.into()], Columns::number)
}

/// Deletes the notes of writes that no reorg can undo: those up to the oldest checkpoint, or up to `known`,
/// which is a known block as well.
pub(super) fn forget_written(store: &impl Store, known: u64) -> Result<(), StoreError> {
    let oldest = "SELECT min(number) FROM checkpoints";
    let statement = format!("DELETE FROM written WHERE height <= min(?1, coalesce(({oldest}), ?1))");
    store.execute(&statement, &[known.into()]).map(drop)
}

/// Reads an agent with its sums.
pub(super) fn find(store: &impl Store, id: u64) -> Result<Option<IndexedAgent>, StoreError> {
    Ok(find_all(store, &[id])?.remove(&id))
}

/// Reads the existing ones of these agents, without their sums.
pub(super) fn records(store: &impl Store, ids: &[u64]) -> Result<BTreeMap<u64, IndexedAgent>, StoreError> {
    let rows = of_ids(store, "SELECT id, record, events FROM agents WHERE id", &[], ids)?;
    rows.into_iter().map(|mut row| IndexedAgent::read_with_events(&mut row)).collect()
}

/// Returns the ids of agents that differ from their stored rows. A record that cannot be read now says
/// nothing against the stored one.
pub(super) fn differing(store: &impl Store, entries: &[(u64, IndexedAgent)]) -> Result<Vec<u64>, StoreError> {
    let ids: Vec<u64> = entries.iter().map(|(id, _)| *id).collect();
    let known = find_all(store, &ids)?;
    let differs = |(id, entry): &&(u64, IndexedAgent)| match known.get(id) {
        Some(known) => !known.has_record_of(entry) && (entry.flaws() == 0 || known.flaws() != 0),
        None => true,
    };
    Ok(entries.iter().filter(differs).map(|(id, _)| *id).collect())
}

/// Reads the existing ones of these agents, with their sums.
pub(super) fn find_all(store: &impl Store, ids: &[u64]) -> Result<BTreeMap<u64, IndexedAgent>, StoreError> {
    let mut entries = records(store, ids)?;
    let reporting: Vec<u64> =
        entries.iter().filter(|(_, entry)| entry.full.reports > 0).map(|(id, _)| *id).collect();
    let statement = "SELECT id, is_category, text, amount FROM revenue WHERE id";
    for mut row in of_ids(store, statement, &[], &reporting)? {
        if let Some(entry) = entries.get_mut(&row.number()?) {
            entry.full.sums.push(sum(&mut row)?);
        }
    }
    entries.values_mut().for_each(IndexedAgent::sort_sums);
    Ok(entries)
}

/// Reads a row of kind, text and amount.
pub(super) fn sum(row: &mut Columns) -> Result<Sum, StoreError> {
    let is_category = row.integer()? != 0;
    let text = String::from_utf8(row.blob()?).map_err(|_| StoreError::corrupt())?;
    Ok(Sum { is_category, text, amount: Total::from_be_bytes(row.array::<40>()?) })
}

/// Returns a row of the full-text index, which removal needs as well; `None` for a text without words.
fn scope_row(id: u64, scope: &str) -> Option<[SqlValue; 2]> {
    let words = words(scope);
    (!words.is_empty()).then(|| [id.into(), SqlValue::Text(words)])
}

/// Encodes a text as bytes, so that any content survives unchanged.
fn bytes(text: &str) -> SqlValue {
    SqlValue::Blob(text.as_bytes().into())
}

fn big(amount: Total) -> SqlValue {
    SqlValue::Blob(amount.to_be_bytes::<40>().into())
}
