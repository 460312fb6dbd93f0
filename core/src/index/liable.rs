//! The answer of `/liable/:wallet`: counts from kept sums, and two short lists read in the order of their SQL
//! indexes. Its cost does not grow with the number of the person's agents, but for the counts by basis and a
//! page of one basis, which read no more agents than a list has candidates.

use alloy_primitives::Address;

use super::{
    IndexError,
    indexed_agent::{IndexedAgent, flaw},
    reader::Index,
    store::{SqlValue, Store, StoreError, one_number, ordered, query},
    tables::{CountKind, HOUR, person_hour, person_status},
};
use crate::{
    eth::as_of::IndexedAt,
    eth::timestamp::Timestamp,
    registry::agent::Status,
    registry::cursor::AgentCursor,
    registry::liability::Basis,
    registry::liable::{ByBasis, Lapse, Liable, NEXT_LAPSES},
};

impl<S: Store> Index<'_, S> {
    /// What a person is liable for as of `now`: a page of at most `limit` agents behind the cursor.
    pub(crate) fn liable(
        &self,
        person: Address,
        limit: u64,
        cursor: Option<AgentCursor>,
        basis: Option<Basis>,
        now: Timestamp,
    ) -> Result<Liable, IndexError> {
        self.check_statuses()?;
        let as_of = self.state.as_of().map(IndexedAt::from).unwrap_or_default();
        let mut liable = Liable::none(person, limit, as_of);
        for (status, agents) in self.statuses_of(person)? {
            liable.total += agents;
            liable.status_distribution.insert(status, agents);
        }
        liable.compliant_count = self.compliant_of(person, now)?;
        let active = liable.status_distribution.get(&Status::Active).copied().unwrap_or_default();
        liable.expired_count = active.saturating_sub(liable.compliant_count);
        liable.next_lapses = self.next_lapses(person, now)?;

        liable.basis_distribution = self.bases_of(person, liable.total)?;

        let statement = "SELECT id, record, events FROM agents INDEXED BY agents_by_person \
                         WHERE person = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
        let mut last = cursor.map_or(0, |cursor| cursor.id);
        // One more than shown, to detect a next page.
        let most = if basis.is_some() { self.bounds.candidates.max(limit) } else { limit } + 1;
        let parameters = [SqlValue::Blob(person.to_vec()), last.into(), most.into()];
        let found = query(self.store, statement, &parameters, IndexedAgent::read_with_events)?;
        let is_cut = found.len() as u64 == most;
        for (id, entry) in found {
            if basis.is_some_and(|basis| self.liability(&entry).basis != basis) {
                last = id;
                continue;
            }
            if liable.data.len() as u64 == limit {
                liable.next = Some(AgentCursor::after(last));
                break;
            }
            liable.data.push(self.summary(id, &entry, now)?);
            last = id;
        }
        // A page of one basis ends after so many agents in any case.
        if is_cut && liable.next.is_none() {
            liable.next = Some(AgentCursor::after(last));
        }
        liable.unreadable = self.flawed(flaw::RECORD)?;
        Ok(liable)
    }

    /// The person's agents by basis, if there are few enough to read them all.
    fn bases_of(&self, person: Address, total: u64) -> Result<Option<ByBasis>, StoreError> {
        if total > self.bounds.candidates {
            return Ok(None);
        }
        let statement = "SELECT id, record, events FROM agents INDEXED BY agents_by_person WHERE person = ?1";
        let mut counts = ByBasis::default();
        let person = [SqlValue::Blob(person.to_vec())];
        for (_, entry) in query(self.store, statement, &person, IndexedAgent::read_with_events)? {
            counts.count(self.liability(&entry).basis);
        }
        Ok(Some(counts))
    }

    /// The person's agents by status.
    pub(super) fn statuses_of(&self, person: Address) -> Result<Vec<(Status, u64)>, StoreError> {
        let statement = "SELECT key, agents FROM counts WHERE kind = ?1 AND key >= ?2 AND key <= ?3";
        let bound = |status| SqlValue::Blob(person_status(person, status));
        let parameters = [CountKind::Person.into(), bound(0), bound(u8::MAX)];
        query(self.store, statement, &parameters, |row| {
            let status = row.blob()?.last().copied().and_then(Status::from_number);
            Ok((status.ok_or_else(StoreError::corrupt)?, row.number()?))
        })
    }

    /// The person's compliant agents, counted as in [`compliant`](Self::compliant).
    fn compliant_of(&self, person: Address, now: Timestamp) -> Result<u64, StoreError> {
        let oldest = self.oldest_current(now);
        let hour = oldest / HOUR;
        let bound = |hour| SqlValue::Blob(person_hour(person, hour));
        let statement = "SELECT sum(agents) FROM counts WHERE kind = ?1 AND key > ?2 AND key <= ?3";
        let later =
            one_number(self.store, statement, &[CountKind::PersonHour.into(), bound(hour), bound(u64::MAX)])?;
        let end = hour.saturating_add(1).saturating_mul(HOUR);
        let statement = "SELECT count(*) FROM agents INDEXED BY active_agents_by_person \
                         WHERE person = ?1 AND status = 0 AND attested >= ?2 AND attested < ?3";
        let within = one_number(
            self.store,
            statement,
            &[SqlValue::Blob(person.to_vec()), ordered(oldest), ordered(end)],
        )?;
        Ok(later.unwrap_or(0) + within.unwrap_or(0))
    }

    fn next_lapses(&self, person: Address, now: Timestamp) -> Result<Vec<Lapse>, IndexError> {
        let statement = "SELECT id, record FROM agents INDEXED BY active_agents_by_person \
                         WHERE person = ?1 AND status = 0 AND attested >= ?2 ORDER BY attested, id LIMIT ?3";
        let parameters =
            [SqlValue::Blob(person.to_vec()), ordered(self.oldest_current(now)), NEXT_LAPSES.into()];
        let grace = self.state.grace();
        let lapse = |(id, entry): (u64, IndexedAgent)| {
            Some(Lapse {
                agent_id: id.into(),
                agent_wallet: entry.full.wallet,
                // `None` exceeds all clocks.
                compliant_until: Timestamp::from_seconds(entry.row.last_attestation.checked_add(grace)?),
            })
        };
        Ok(self.entries(statement, &parameters)?.into_iter().filter_map(lapse).collect())
    }
}
