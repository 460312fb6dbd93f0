//! Pages of agents that are filtered, searched or sorted: `/agents` with more parameters than a status.
//!
//! What a page takes does not grow with the registry. A page is read from one source: the SQL index of one of its filters, the full-text
//! index, the agents by id, or those by attestation. Its candidates are held against the other filters.
//!
//! ```text
//!   the filter with the fewest agents
//!        |-- at most CANDIDATES --> all of them are read, and sorted
//!        |-- more ----------------> read in the list's order, from the cursor on, until the page is full;
//!                                   after CANDIDATES of them the page ends, full or not, and its `next` goes on from there
//! ```
//!
//! So a page may hold fewer agents than its limit, where filters that many agents pass are passed by few together. A numbered page's
//! `total` is a lower bound then, and says so. Where another filter is the source, the scopes of its candidates are read and searched one
//! by one; that takes longer, and is done for fewer candidates.

use alloy_primitives::Address;

use super::{
    IndexError,
    entry::flaw,
    reader::{Bounds, Index},
    store::{Columns, Store, StoreError, Value, one_number, ordered},
    tables::{Kind, records},
    words::{expression, has_words, words},
};
use crate::{
    eth::as_of::IndexedAt,
    eth::timestamp::Timestamp,
    registry::agent::{AgentSummary, Status},
    registry::agent_query::{AgentFilter, AgentQuery, Sort, Start},
    registry::cursor::AgentCursor,
    registry::cursor::SortKey,
    registry::page::AgentList,
};

/// What a condition is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Person,
    Creator,
    Parent,
    Generation,
    Status,
    Compliance,
    Text,
}

/// A part of a statement: a `?` for each of the values.
#[derive(Clone, Debug)]
struct Clause {
    sql: &'static str,
    values: Vec<Value>,
}

/// Where candidates are read from.
#[derive(Clone, Debug)]
struct Source {
    /// The table of their ids, and the SQL index that has to be used.
    from: &'static str,
    /// What adds the agents' rows to it.
    join: &'static str,
    /// Their ids.
    id: &'static str,
    /// What all candidates meet.
    clause: Clause,
    /// The order in which they are read without sorting them.
    order: Option<SortKey>,
    /// The conditions that it stands for; an agent that meets any has a readable record.
    covers: &'static [About],
}

impl Source {
    const fn of_agents(from: &'static str, clause: Clause, order: SortKey, covers: &'static [About]) -> Self {
        Self { from, join: "", id: "agents.id", clause, order: Some(order), covers }
    }
}

/// A statement on its way.
#[derive(Default)]
struct Statement {
    sql: String,
    values: Vec<Value>,
}

impl Statement {
    fn push(&mut self, sql: &str, values: impl IntoIterator<Item = Value>) -> &mut Self {
        self.sql.push_str(sql);
        self.values.extend(values);
        self
    }
}

/// One page to read.
struct Reading<'a> {
    source: Source,
    /// What is not the source's.
    others: Vec<Clause>,
    /// The words that each candidate's scope is searched for.
    searched: Option<&'a str>,
    sort: Sort,
    /// How many candidates there are; `None` where there are so many that not all may be read.
    size: Option<u64>,
    /// Behind this.
    after: Option<AgentCursor>,
    /// Up to this, that included.
    until: Option<AgentCursor>,
}

impl<S: Store> Index<'_, S> {
    /// A page of agents, as of `now`.
    pub(crate) fn listing(&self, query: &AgentQuery, now: Timestamp) -> Result<AgentList, IndexError> {
        self.check_statuses()?;
        let as_of = self.state.as_of().map(IndexedAt::from).unwrap_or_default();
        let unreadable = self.flawed(flaw::RECORD)?;
        let Some(filter) = settled(&query.filter) else {
            let none = AgentList::of(query, (0, false), Vec::new(), None, as_of);
            return Ok(AgentList { unreadable, ..none });
        };
        let (source, size) = self.source(&filter, query.sort.key, now)?;
        let searched = filter.text.as_deref().filter(|_| !source.covers.contains(&About::Text));
        let others =
            self.conditions(&filter, now).into_iter().filter(|(about, _)| !source.covers.contains(about));
        let mut others: Vec<Clause> = others.map(|(_, clause)| clause).collect();
        if source.covers.is_empty() {
            others.push(Clause { sql: "agents.flaws & ? = 0", values: vec![Value::Integer(flaw::RECORD)] });
        }
        let (after, skipped) = match query.start {
            Start::Page(number) => (None, number.saturating_sub(1).saturating_mul(query.limit)),
            Start::Cursor(cursor) => (Some(cursor), 0),
        };
        let mut reading = Reading { source, others, searched, sort: query.sort, size, after, until: None };
        if searched.is_some() || (size.is_none() && reading.has_others()) {
            reading.until = self.last_candidate(&reading)?;
        }
        let known = match query.start {
            Start::Page(_) => self.total(&filter, &reading, now)?,
            Start::Cursor(_) => Some((0, false)),
        };
        // One more than is shown, to know whether there is one.
        let (ids, found) = self.passing(&reading, skipped, query.limit + 1, known.is_none())?;
        let total = known.unwrap_or((found, reading.until.is_some()));
        let (agents, next) = self.page(&reading, &ids, query.limit, now)?;
        let list = AgentList::of(query, total, agents, next, as_of);
        Ok(AgentList { unreadable, ..list })
    }

    fn conditions(&self, filter: &AgentFilter, now: Timestamp) -> Vec<(About, Clause)> {
        // Words are no condition of a statement.
        let AgentFilter { haftungsperson, creator, parent, generation, status, compliant, text: _ } = filter;
        let address = |address: &Address| Value::Blob(address.to_vec());
        let compliance = compliant.map(|compliant| match compliant {
            true => "agents.attested >= ?",
            false => "(agents.status > 0 OR agents.attested < ?)",
        });
        let oldest = ordered(self.oldest_current(now));
        let conditions = [
            (About::Person, "agents.person = ?", haftungsperson.as_ref().map(address)),
            (About::Creator, "agents.creator = ?", creator.as_ref().map(address)),
            (About::Parent, "agents.parent = ?", parent.map(ordered)),
            (About::Generation, "agents.generation = ?", generation.map(Value::from)),
            (About::Status, "agents.status = ?", status.map(|status| Value::Integer(status as i64))),
            (About::Compliance, compliance.unwrap_or_default(), compliance.map(|_| oldest)),
        ];
        let set = |(about, sql, value): (About, &'static str, Option<Value>)| {
            Some((about, Clause { sql, values: vec![value?] }))
        };
        conditions.into_iter().filter_map(set).collect()
    }

    /// The source for a page, and how many candidates it has, if all of them may be read.
    fn source(
        &self,
        filter: &AgentFilter,
        key: SortKey,
        now: Timestamp,
    ) -> Result<(Source, Option<u64>), StoreError> {
        let clause = |sql, value| Clause { sql, values: vec![value] };
        let address = |address: &Address| Value::Blob(address.to_vec());
        let of = |from, sql, value, covers| Source::of_agents(from, clause(sql, value), SortKey::Id, covers);
        let mut sources = Vec::new();
        sources.extend(filter.text.as_deref().map(|text| Source {
            from: "scopes",
            join: " CROSS JOIN agents ON agents.id = scopes.rowid",
            id: "scopes.rowid",
            clause: clause("scopes MATCH ?", Value::Text(expression(text))),
            order: Some(SortKey::Id),
            covers: &[About::Text],
        }));
        sources.extend(filter.haftungsperson.as_ref().map(|person| {
            of("agents INDEXED BY agents_by_person", "agents.person = ?", address(person), &[About::Person])
        }));
        sources.extend(filter.creator.as_ref().map(|creator| {
            of(
                "agents INDEXED BY agents_by_creator",
                "agents.creator = ?",
                address(creator),
                &[About::Creator],
            )
        }));
        sources.extend(filter.parent.map(|parent| {
            of("agents INDEXED BY agents_by_parent", "agents.parent = ?", ordered(parent), &[About::Parent])
        }));
        sources.extend(filter.generation.map(|generation| {
            let covers = &[About::Generation];
            of("agents INDEXED BY agents_by_generation", "agents.generation = ?", generation.into(), covers)
        }));
        let oldest = ordered(self.oldest_current(now));
        let both: &[About] = &[About::Status, About::Compliance];
        let by_attestation = "agents INDEXED BY active_agents_by_attestation";
        let active = |sql, values, covers| {
            Source::of_agents(by_attestation, Clause { sql, values }, SortKey::Attestation, covers)
        };
        match (filter.status, filter.compliant) {
            (_, Some(true)) => {
                sources.push(active("agents.status = 0 AND agents.attested >= ?", vec![oldest], both));
            }
            (Some(_), Some(false)) => {
                sources.push(active("agents.status = 0 AND agents.attested < ?", vec![oldest], both));
            }
            (None, Some(false)) => sources.push(Source {
                from: "(SELECT id AS candidate FROM agents INDEXED BY agents_by_status WHERE status BETWEEN 1 AND 3 UNION ALL \
                       SELECT id FROM agents INDEXED BY active_agents_by_attestation WHERE status = 0 AND attested < ?)",
                join: " CROSS JOIN agents ON agents.id = candidate",
                id: "candidate",
                clause: clause("TRUE", oldest),
                order: None,
                covers: both,
            }),
            (Some(Status::Active), None) if key == SortKey::Attestation => {
                sources.push(active("agents.status = 0", Vec::new(), &[About::Status]));
            }
            (Some(status), None) => {
                let value = Value::Integer(status as i64);
                sources.push(of("agents INDEXED BY agents_by_status", "agents.status = ?", value, &[About::Status]));
            }
            (None, None) => {}
        }
        let all = Clause { sql: "TRUE", values: Vec::new() };
        let whole = match key {
            SortKey::Id => Source::of_agents("agents NOT INDEXED", all, key, &[]),
            SortKey::Attestation => {
                Source::of_agents("agents INDEXED BY agents_by_attestation", all, key, &[])
            }
        };
        let most = self.bounds.candidates;
        let mut smallest: Option<(u64, &Source)> = None;
        for source in &sources {
            let count = self.count(source, most + 1)?;
            if count <= most && smallest.is_none_or(|(fewest, _)| count < fewest) {
                smallest = Some((count, source));
            }
        }
        Ok(match smallest {
            Some((size, source)) => (source.clone(), Some(size)),
            None => (sources.into_iter().find(|source| source.order == Some(key)).unwrap_or(whole), None),
        })
    }

    /// How many candidates a source has; `most` of them are counted.
    fn count(&self, source: &Source, most: u64) -> Result<u64, StoreError> {
        let mut statement = Statement::default();
        statement.push("SELECT count(*) FROM (SELECT 1 FROM ", []).push(source.from, []);
        statement.push(" WHERE ", []).push(source.clause.sql, source.clause.values.clone());
        statement.push(" LIMIT ?)", [most.into()]);
        Ok(one_number(self.store, &statement.sql, &statement.values)?.unwrap_or(0))
    }

    /// The last candidate that is read for a page; `None` where there are so few that all are.
    fn last_candidate(&self, reading: &Reading<'_>) -> Result<Option<AgentCursor>, StoreError> {
        let Bounds { candidates, searched, .. } = self.bounds;
        let most = if reading.searched.is_some() { searched } else { candidates };
        let columns = match reading.sort.key {
            SortKey::Id => reading.source.id,
            SortKey::Attestation => "agents.id, agents.attested",
        };
        let mut statement = reading.select(columns, false);
        statement.push(" LIMIT 1 OFFSET ?", [most.saturating_sub(1).into()]);
        let Some(row) = self.store.execute(&statement.sql, &statement.values)?.into_iter().next() else {
            return Ok(None);
        };
        let mut row = Columns::of(row);
        let id = row.number()?;
        let attested = match reading.sort.key {
            SortKey::Id => None,
            SortKey::Attestation => Some(u64::from_be_bytes(row.array()?)),
        };
        Ok(Some(AgentCursor { attested, id }))
    }

    /// Of the agents that pass all filters, `most` behind the first `skipped` ones, in the list's order; and, if that is to be counted,
    /// how many pass.
    fn passing(
        &self,
        reading: &Reading<'_>,
        skipped: u64,
        most: u64,
        is_counted: bool,
    ) -> Result<(Vec<u64>, u64), StoreError> {
        if let Some(wanted) = reading.searched {
            let statement = reading.select("agents.id, agents.record", true);
            let mut found = self.entries(&statement.sql, &statement.values)?;
            found.retain(|(_, entry)| has_words(&entry.full.scope, wanted));
            let [first, most] = [skipped, most].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
            let ids = found.iter().map(|(id, _)| *id).skip(first).take(most).collect();
            return Ok((ids, found.len() as u64));
        }
        let count = if is_counted { "count(*) OVER ()" } else { "0" };
        let mut statement = reading.select(&format!("{}, {count}", reading.source.id), true);
        statement.push(" LIMIT ? OFFSET ?", [most.into(), skipped.into()]);
        let (mut ids, mut count) = (Vec::new(), 0);
        for row in self.store.execute(&statement.sql, &statement.values)? {
            let mut row = Columns::of(row);
            ids.push(row.number()?);
            count = row.number()?;
        }
        if is_counted && ids.is_empty() && skipped > 0 {
            // A page behind the last one: the first agent tells how many there are.
            (_, count) = self.passing(reading, 0, 1, true)?;
        }
        Ok((ids, count))
    }

    /// The agents of a page, of which `ids` has one more where there is one, and where the next page begins.
    fn page(
        &self,
        reading: &Reading<'_>,
        ids: &[u64],
        limit: u64,
        now: Timestamp,
    ) -> Result<(Vec<AgentSummary>, Option<AgentCursor>), IndexError> {
        let (shown, has_more) = match ids.split_at_checked(usize::try_from(limit).unwrap_or(usize::MAX)) {
            Some((shown, more)) => (shown, !more.is_empty()),
            None => (ids, false),
        };
        let entries = records(self.store, shown)?;
        let (mut agents, mut last) = (Vec::new(), None);
        for id in shown {
            let entry = entries.get(id).ok_or_else(StoreError::corrupt)?;
            let attested = (reading.sort.key == SortKey::Attestation).then_some(entry.row.last_attestation);
            last = Some(AgentCursor { attested, id: *id });
            agents.push(self.summary(*id, entry, now)?);
        }
        Ok((agents, if has_more { last } else { reading.until }))
    }

    /// How many agents the list has, and whether there may be more; `None` where those that are found have to be counted.
    fn total(
        &self,
        filter: &AgentFilter,
        reading: &Reading<'_>,
        now: Timestamp,
    ) -> Result<Option<(u64, bool)>, StoreError> {
        if let Some(total) = self.kept_total(filter, now)? {
            return Ok(Some((total, false)));
        }
        if reading.has_others() {
            return Ok(None);
        }
        if let Some(size) = reading.size {
            return Ok(Some((size, false)));
        }
        let most = self.bounds.counted;
        let count = self.count(&reading.source, most + 1)?;
        Ok(Some((count.min(most), count > most)))
    }

    /// The total of a list whose agents are counted as they change.
    fn kept_total(&self, filter: &AgentFilter, now: Timestamp) -> Result<Option<u64>, StoreError> {
        let AgentFilter { haftungsperson, generation, status, compliant, .. } = *filter;
        let others = AgentFilter {
            haftungsperson: None,
            generation: None,
            status: None,
            compliant: None,
            ..filter.clone()
        };
        if others != AgentFilter::default() {
            return Ok(None);
        }
        let of_status = |counts: Vec<(Status, u64)>| -> u64 {
            let counted =
                counts.into_iter().filter(|(found, _)| status.is_none_or(|status| status == *found));
            counted.map(|(_, agents)| agents).sum()
        };
        Ok(match (haftungsperson, generation, compliant) {
            (None, None, None) => Some(of_status(self.statuses()?)),
            (None, None, Some(true)) => Some(self.compliant(now)?),
            (None, None, Some(false)) => {
                Some(of_status(self.statuses()?).saturating_sub(self.compliant(now)?))
            }
            (Some(person), None, None) => Some(of_status(self.statuses_of(person)?)),
            (None, Some(generation), None) if status.is_none() => {
                let counts = self.counts(Kind::Generation)?;
                let key = generation.to_be_bytes();
                Some(counts.iter().find(|(found, _)| *found == key).map_or(0, |(_, agents)| *agents))
            }
            _ => None,
        })
    }
}

impl Reading<'_> {
    /// Whether candidates are held against anything.
    fn has_others(&self) -> bool {
        self.searched.is_some() || !self.others.is_empty()
    }

    /// Reads candidates in the list's order, all conditions met or only the source's.
    fn select(&self, columns: &str, whole: bool) -> Statement {
        let needs_rows = self.sort.key == SortKey::Attestation || (whole && self.has_others());
        let join = if needs_rows { self.source.join } else { "" };
        let mut statement = Statement::default();
        statement.push(&format!("SELECT {columns} FROM {}{join}", self.source.from), []);
        self.bound(&mut statement, whole);
        self.order(&mut statement);
        statement
    }

    /// Pushes the conditions; all of them, or only the source's and where the page begins.
    fn bound(&self, statement: &mut Statement, whole: bool) {
        statement.push(" WHERE ", []).push(self.source.clause.sql, self.source.clause.values.clone());
        let (behind, up_to) = if self.sort.is_descending { ("<", ">=") } else { (">", "<=") };
        for (cursor, comparison) in [(self.after, behind), (self.until.filter(|_| whole), up_to)] {
            let Some(AgentCursor { attested, id }) = cursor else { continue };
            match self.sort.key {
                SortKey::Id => {
                    // The full-text index takes only integers for bounds of its ids, and reads on to its end where there is none. A store in
                    // JavaScript has but floating-point numbers.
                    let bound = format!(" AND {} {comparison} CAST(? AS INTEGER)", self.source.id);
                    statement.push(&bound, [id.into()]);
                }
                SortKey::Attestation => {
                    let values = [ordered(attested.unwrap_or(0)), id.into()];
                    statement.push(&format!(" AND (agents.attested, agents.id) {comparison} (?, ?)"), values);
                }
            }
        }
        if whole {
            for clause in &self.others {
                statement.push(" AND ", []).push(clause.sql, clause.values.clone());
            }
        }
    }

    fn order(&self, statement: &mut Statement) {
        let direction = if self.sort.is_descending { " DESC" } else { "" };
        let order = match self.sort.key {
            SortKey::Id => format!(" ORDER BY {}{direction}", self.source.id),
            SortKey::Attestation => format!(" ORDER BY agents.attested{direction}, agents.id{direction}"),
        };
        statement.push(&order, []);
    }
}

/// The same filter with as little in it as says the same; `None` where no agent can pass it.
fn settled(filter: &AgentFilter) -> Option<AgentFilter> {
    let (status, compliant) = match (filter.status, filter.compliant) {
        (None | Some(Status::Active), Some(true)) => (Some(Status::Active), Some(true)),
        (Some(_), Some(true)) => return None,
        (Some(Status::Active), compliant) => (Some(Status::Active), compliant),
        // Whoever is not Active is not compliant.
        (Some(status), _) => (Some(status), None),
        (None, compliant) => (None, compliant),
    };
    let text = filter.text.as_deref().map(words);
    if text.as_ref().is_some_and(String::is_empty) {
        return None;
    }
    Some(AgentFilter { status, compliant, text, ..filter.clone() })
}
