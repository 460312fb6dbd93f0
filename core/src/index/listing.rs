//! Pages of agents that are filtered, searched or sorted: `/agents` with more parameters than a status.
//!
//! A page's cost does not grow with the registry. A page is read from one source: the posting list of one of
//! its filters, the full-text index, the agents by id, or those by attestation. Its candidates are checked
//! against the other filters.
//!
//! ```text
//!   the filter with the fewest agents
//!        |-- at most CANDIDATES --> all of them are read, and sorted
//!        |-- more ----------------> read in the list's order, from the cursor on, until the page is full;
//!                                   after CANDIDATES of them the page ends in any case, and `next` continues
//! ```
//!
//! A page may hold fewer agents than its limit, if each filter matches many agents but few match all. A
//! numbered page's `total` is then marked as a lower bound. If another filter is the source, the scopes of
//! its candidates are searched one by one, which takes longer, so fewer candidates are read.

use alloy_primitives::Address;

use super::{
    IndexError,
    candidates::{CandidateScan, CandidateSource, FilterSubject, LIST, SqlClause, SqlStatement},
    counts::CountKind,
    indexed_agent::flaw,
    postings::{MEMBERS, Property, ROW_IDS},
    reader::{Bounds, Index},
    store::{Columns, SqlValue, Store, StoreError, first_row, one_number, ordered, query},
    tables::records,
    words::{expression, has_words, words},
};
use crate::{
    eth::as_of::IndexedAt,
    eth::timestamp::Timestamp,
    registry::agent::Status,
    registry::agent_item::AgentSummary,
    registry::agent_query::{AgentFilter, AgentQuery, Start},
    registry::cursor::AgentCursor,
    registry::cursor::SortKey,
    registry::page::AgentList,
};

impl<S: Store> Index<'_, S> {
    /// Returns a page of agents as of `now`.
    pub(crate) fn listing(&self, query: &AgentQuery, now: Timestamp) -> Result<AgentList, IndexError> {
        self.check_statuses()?;
        let as_of = self.state.as_of().map(IndexedAt::from).unwrap_or_default();
        let unreadable = self.flawed(flaw::RECORD)?;
        let Some(filter) = settled(&query.filter) else {
            let none = AgentList::of(query, (0, false), Vec::new(), None, as_of);
            return Ok(AgentList { unreadable, ..none });
        };
        let (source, size) = self.source(&filter, query.sort.key, now)?;
        let searched = filter.text.as_deref().filter(|_| !source.covers.contains(&FilterSubject::Text));
        let others =
            self.conditions(&filter, now).into_iter().filter(|(about, _)| !source.covers.contains(about));
        let mut others: Vec<SqlClause> = others.map(|(_, clause)| clause).collect();
        if source.covers.is_empty() {
            others.push(SqlClause {
                sql: "agents.flaws & ? = 0",
                values: vec![SqlValue::Integer(flaw::RECORD)],
            });
        }
        let (after, skipped) = match query.start {
            Start::Page(number) => (None, number.saturating_sub(1).saturating_mul(query.limit)),
            Start::Cursor(cursor) => (Some(cursor), 0),
        };
        let mut scan = CandidateScan {
            source,
            others,
            searched,
            sort: query.sort,
            size,
            after,
            until: None,
            last_row: None,
        };
        if size.is_none() && scan.source.from == MEMBERS {
            let shown = skipped.saturating_add(query.limit).saturating_add(1);
            scan.last_row =
                self.last_row(&scan, if scan.has_others() { self.bounds.candidates } else { shown })?;
        }
        if searched.is_some() || (size.is_none() && scan.has_others()) {
            scan.until = self.last_candidate(&scan)?;
        }
        let known = match query.start {
            Start::Page(_) => self.total(&filter, &scan, now)?,
            Start::Cursor(_) => Some((0, false)),
        };
        // One more than shown, to detect a next page.
        let (ids, found) = self.passing(&scan, skipped, query.limit + 1, known.is_none())?;
        let total = known.unwrap_or((found, scan.until.is_some()));
        let (agents, next) = self.page(&scan, &ids, query.limit, now)?;
        let list = AgentList::of(query, total, agents, next, as_of);
        Ok(AgentList { unreadable, ..list })
    }

    fn conditions(&self, filter: &AgentFilter, now: Timestamp) -> Vec<(FilterSubject, SqlClause)> {
        // Words are not a condition of a statement.
        let AgentFilter { haftungsperson, creator, parent, generation, status, compliant, text: _ } = filter;
        let address = |address: &Address| SqlValue::Blob(address.to_vec());
        let compliance = compliant.map(|compliant| match compliant {
            true => "agents.attested >= ?",
            false => "(agents.status > 0 OR agents.attested < ?)",
        });
        let oldest = ordered(self.oldest_current(now));
        let conditions = [
            (FilterSubject::Person, "agents.person = ?", haftungsperson.as_ref().map(address)),
            (FilterSubject::Creator, "agents.creator = ?", creator.as_ref().map(address)),
            (FilterSubject::Parent, "agents.parent = ?", parent.map(ordered)),
            (FilterSubject::Generation, "agents.generation = ?", generation.map(SqlValue::from)),
            (
                FilterSubject::Status,
                "agents.status = ?",
                status.map(|status| SqlValue::Integer(status as i64)),
            ),
            (FilterSubject::Compliance, compliance.unwrap_or_default(), compliance.map(|_| oldest)),
        ];
        let set = |(about, sql, value): (FilterSubject, &'static str, Option<SqlValue>)| {
            Some((about, SqlClause { sql, values: vec![value?] }))
        };
        conditions.into_iter().filter_map(set).collect()
    }

    /// Chooses the source of a page, and returns its number of candidates if all of them may be read.
    fn source(
        &self,
        filter: &AgentFilter,
        key: SortKey,
        now: Timestamp,
    ) -> Result<(CandidateSource, Option<u64>), StoreError> {
        let mut sources = Vec::new();
        sources.extend(filter.text.as_deref().map(|text| CandidateSource {
            from: "scopes",
            merges_statuses: false,
            join: " CROSS JOIN agents ON agents.id = scopes.rowid",
            id: "scopes.rowid",
            clause: SqlClause { sql: "scopes MATCH ?", values: vec![SqlValue::Text(expression(text))] },
            order: Some(SortKey::Id),
            covers: &[FilterSubject::Text],
        }));
        let AgentFilter { haftungsperson, creator, parent, generation, .. } = filter;
        let numbers = [
            (Property::Parent, parent, &[FilterSubject::Parent]),
            (Property::Generation, generation, &[FilterSubject::Generation]),
        ];
        let persons = [
            (Property::Person, haftungsperson, &[FilterSubject::Person]),
            (Property::Creator, creator, &[FilterSubject::Creator]),
        ];
        for (property, person, covers) in persons {
            sources
                .extend(person.map(|person| CandidateSource::of_list(property, person.as_slice(), covers)));
        }
        for (property, number, covers) in numbers {
            sources.extend(
                number.map(|number| CandidateSource::of_list(property, &number.to_be_bytes(), covers)),
            );
        }
        let oldest = ordered(self.oldest_current(now));
        let both: &[FilterSubject] = &[FilterSubject::Status, FilterSubject::Compliance];
        let by_attestation = "agents INDEXED BY agents_by_attestation";
        let active = |sql, values, covers| {
            CandidateSource::of_agents(
                by_attestation,
                SqlClause { sql, values },
                SortKey::Attestation,
                covers,
            )
        };
        match (filter.status, filter.compliant) {
            (_, Some(true)) => {
                sources.push(active("agents.status = 0 AND agents.attested >= ?", vec![oldest], both));
            }
            (Some(_), Some(false)) => {
                sources.push(active("agents.status = 0 AND agents.attested < ?", vec![oldest], both));
            }
            (None, Some(false)) => sources.push(CandidateSource {
                from: "(SELECT id AS candidate FROM agents INDEXED BY agents_by_attestation WHERE status BETWEEN 1 AND 3 UNION ALL \
                       SELECT id FROM agents INDEXED BY agents_by_attestation WHERE status = 0 AND attested < ?)",
                merges_statuses: false,
                join: " CROSS JOIN agents ON agents.id = candidate",
                id: "candidate",
                clause: SqlClause { sql: "TRUE", values: vec![oldest] },
                order: None,
                covers: both,
            }),
            (Some(Status::Active), None) if key == SortKey::Attestation => {
                sources.push(active("agents.status = 0", Vec::new(), &[FilterSubject::Status]));
            }
            (Some(status), None) => {
                sources.push(CandidateSource::of_list(
                    Property::Status,
                    &[status as u8],
                    &[FilterSubject::Status],
                ));
            }
            (None, None) => {}
        }
        let all = SqlClause { sql: "TRUE", values: Vec::new() };
        let whole = match key {
            SortKey::Id => CandidateSource::of_agents("agents NOT INDEXED", all, key, &[]),
            SortKey::Attestation => CandidateSource {
                merges_statuses: true,
                ..CandidateSource::of_agents(by_attestation, all, key, &[])
            },
        };
        let most = self.bounds.candidates;
        let mut smallest: Option<(u64, &CandidateSource)> = None;
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

    /// Counts the candidates of a source, up to `most`.
    fn count(&self, source: &CandidateSource, most: u64) -> Result<u64, StoreError> {
        let mut statement = SqlStatement::default();
        statement.push("SELECT count(*) FROM (SELECT 1 FROM ", []).push(source.from, []);
        statement.push(" WHERE ", []).push(source.clause.sql, source.clause.values.clone());
        statement.push(" LIMIT ?)", [most.into()]);
        Ok(one_number(self.store, &statement.sql, &statement.values)?.unwrap_or(0))
    }

    /// Returns the first id of the posting list's row with the last of `candidates` candidates; `None` if the
    /// rows are far from full, and more have to be read.
    fn last_row(&self, scan: &CandidateScan<'_>, candidates: u64) -> Result<Option<u64>, StoreError> {
        let direction = scan.direction();
        let mut statement = SqlStatement::default();
        let rows = format!(
            "SELECT first FROM (SELECT first, sum(agents) OVER (ORDER BY first{direction}) AS so_far \
             FROM (SELECT first, agents FROM postings WHERE {LIST}"
        );
        statement.push(&rows, scan.source.clause.values.clone());
        if let Some(AgentCursor { id, .. }) = scan.after {
            scan.bound_rows(&mut statement, scan.behind(), id);
        }
        let rows = candidates / (ROW_IDS as u64 / 4) + 4;
        statement.push(
            &format!(
                " ORDER BY first{direction} LIMIT ?)) WHERE so_far >= ? ORDER BY first{direction} LIMIT 1"
            ),
            [rows.into(), candidates.saturating_add(ROW_IDS as u64).into()],
        );
        one_number(self.store, &statement.sql, &statement.values)
    }

    /// Returns the last candidate to read for a page; `None` if all may be read.
    fn last_candidate(&self, scan: &CandidateScan<'_>) -> Result<Option<AgentCursor>, StoreError> {
        let Bounds { candidates, searched, .. } = self.bounds;
        let most = if scan.searched.is_some() { searched } else { candidates };
        let columns = match scan.sort.key {
            SortKey::Id => scan.source.id,
            SortKey::Attestation => "agents.id, agents.attested",
        };
        let mut statement = scan.select(columns, false);
        statement.push(" LIMIT 1 OFFSET ?", [most.saturating_sub(1).into()]);
        let Some(mut row) = first_row(self.store, &statement.sql, &statement.values)? else {
            return Ok(None);
        };
        let id = row.number()?;
        let attested = match scan.sort.key {
            SortKey::Id => None,
            SortKey::Attestation => Some(u64::from_be_bytes(row.array()?)),
        };
        Ok(Some(AgentCursor { attested, id }))
    }

    /// Reads the ids of at most `most` agents that pass all filters, after the first `skipped` ones, in the
    /// list's order, and the number of agents that pass, if `is_counted`.
    fn passing(
        &self,
        scan: &CandidateScan<'_>,
        skipped: u64,
        most: u64,
        is_counted: bool,
    ) -> Result<(Vec<u64>, u64), StoreError> {
        if let Some(wanted) = scan.searched {
            let statement = scan.select("agents.id, agents.record", true);
            let mut found = self.entries(&statement.sql, &statement.values)?;
            found.retain(|(_, entry)| has_words(&entry.full.scope, wanted));
            let [first, most] = [skipped, most].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
            let ids = found.iter().map(|(id, _)| *id).skip(first).take(most).collect();
            return Ok((ids, found.len() as u64));
        }
        let count = if is_counted { "count(*) OVER ()" } else { "0" };
        let mut statement = scan.select(&format!("{}, {count}", scan.source.id), true);
        statement.push(" LIMIT ? OFFSET ?", [most.into(), skipped.into()]);
        let read = |row: &mut Columns| Ok((row.number()?, row.number()?));
        let found = query(self.store, &statement.sql, &statement.values, read)?;
        let mut count = found.last().map_or(0, |(_, count)| *count);
        let ids: Vec<u64> = found.into_iter().map(|(id, _)| id).collect();
        if is_counted && ids.is_empty() && skipped > 0 {
            // Beyond the last page: the first agent's row has the count.
            (_, count) = self.passing(scan, 0, 1, true)?;
        }
        Ok((ids, count))
    }

    /// Reads a page's agents, and the start of the next page. If there is one, `ids` holds one more id.
    fn page(
        &self,
        scan: &CandidateScan<'_>,
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
            let attested = (scan.sort.key == SortKey::Attestation).then_some(entry.row.last_attestation);
            last = Some(AgentCursor { attested, id: *id });
            agents.push(self.summary(*id, entry, now)?);
        }
        Ok((agents, if has_more { last } else { scan.until }))
    }

    /// Returns the number of agents in the list, and whether it is a lower bound; `None` if the results have
    /// to be counted.
    fn total(
        &self,
        filter: &AgentFilter,
        scan: &CandidateScan<'_>,
        now: Timestamp,
    ) -> Result<Option<(u64, bool)>, StoreError> {
        if let Some(total) = self.kept_total(filter, now)? {
            return Ok(Some((total, false)));
        }
        if scan.has_others() {
            return Ok(None);
        }
        if let Some(size) = scan.size {
            return Ok(Some((size, false)));
        }
        let most = self.bounds.counted;
        let count = self.count(&scan.source, most + 1)?;
        Ok(Some((count.min(most), count > most)))
    }

    /// Returns the total, if such agents are counted on every change.
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
                let counts = self.counts(CountKind::Generation)?;
                let key = generation.to_be_bytes();
                Some(counts.iter().find(|(found, _)| *found == key).map_or(0, |(_, agents)| *agents))
            }
            _ => None,
        })
    }
}

/// Normalizes a filter; `None` if no agent can pass it.
fn settled(filter: &AgentFilter) -> Option<AgentFilter> {
    let (status, compliant) = match (filter.status, filter.compliant) {
        (None | Some(Status::Active), Some(true)) => (Some(Status::Active), Some(true)),
        (Some(_), Some(true)) => return None,
        (Some(Status::Active), compliant) => (Some(Status::Active), compliant),
        // Only Active agents are compliant.
        (Some(status), _) => (Some(status), None),
        (None, compliant) => (None, compliant),
    };
    let text = filter.text.as_deref().map(words);
    if text.as_ref().is_some_and(String::is_empty) {
        return None;
    }
    Some(AgentFilter { status, compliant, text, ..filter.clone() })
}
