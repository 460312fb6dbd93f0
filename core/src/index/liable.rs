//! The answer of `/liable/:wallet`. Of a person with few agents all are read, and counted; of one with
//! [many](super::large_persons), sums are kept, and lists are read in their order.

use std::collections::BTreeMap;

use alloy_primitives::Address;

use super::{
    IndexError,
    counts::{CountKind, person_status},
    indexed_agent::{IndexedAgent, flaw},
    postings::{self, MEMBERS, Property, time_key},
    reader::Index,
    store::{SqlValue, Store, StoreError, one_number, ordered, query},
    tables,
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
        let list = (Property::Person, person.to_vec());
        let kept = self.kept_statuses(person)?;
        let total: u64 = kept.iter().map(|(_, agents)| agents).sum();
        let few = match total <= self.bounds.candidates {
            true => Some(tables::records(self.store, &postings::whole(self.store, &list)?)?),
            false => None,
        };
        let statuses = few.as_ref().map_or(kept, by_status);
        for (status, agents) in statuses {
            liable.total += agents;
            liable.status_distribution.insert(status, agents);
        }
        (liable.compliant_count, liable.next_lapses) = match &few {
            Some(agents) => self.current_among(agents, now),
            None => (self.compliant_of(person, now)?, self.next_lapses(person, now)?),
        };
        let active = liable.status_distribution.get(&Status::Active).copied().unwrap_or_default();
        liable.expired_count = active.saturating_sub(liable.compliant_count);

        if liable.total <= self.bounds.candidates {
            let mut counts = ByBasis::default();
            few.iter().flat_map(BTreeMap::values).for_each(|entry| counts.count(self.liability(entry).basis));
            liable.basis_distribution = Some(counts);
        }

        let mut last = cursor.map_or(0, |cursor| cursor.id);
        // One more than shown, to detect a next page.
        let most = if basis.is_some() { self.bounds.candidates.max(limit) } else { limit } + 1;
        let found = match few {
            Some(mut agents) => agents.split_off(&last.saturating_add(1)),
            None => tables::records(self.store, &postings::page(self.store, &list, last, most)?)?,
        };
        let found: Vec<_> = found.into_iter().take(usize::try_from(most).unwrap_or(usize::MAX)).collect();
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

    /// The person's agents by status.
    pub(super) fn statuses_of(&self, person: Address) -> Result<Vec<(Status, u64)>, StoreError> {
        let kept = self.kept_statuses(person)?;
        if !kept.is_empty() {
            return Ok(kept);
        }
        let list = (Property::Person, person.to_vec());
        Ok(by_status(&tables::records(self.store, &postings::whole(self.store, &list)?)?))
    }

    /// The same of a person with many agents; nothing of others.
    fn kept_statuses(&self, person: Address) -> Result<Vec<(Status, u64)>, StoreError> {
        let statement = "SELECT key, agents FROM counts WHERE kind = ?1 AND key >= ?2 AND key <= ?3";
        let bound = |status| SqlValue::Blob(person_status(person, status));
        let parameters = [CountKind::Person.into(), bound(0), bound(u8::MAX)];
        query(self.store, statement, &parameters, |row| {
            let status = row.blob()?.last().copied().and_then(Status::from_number);
            Ok((status.ok_or_else(StoreError::corrupt)?, row.number()?))
        })
    }

    /// The number of compliant agents among these, and those whose attestations lapse first.
    fn current_among(&self, agents: &BTreeMap<u64, IndexedAgent>, now: Timestamp) -> (u64, Vec<Lapse>) {
        let oldest = self.oldest_current(now);
        let is_compliant = |entry: &IndexedAgent| {
            entry.status() == Some(Status::Active) && entry.row.last_attestation >= oldest
        };
        let mut current: Vec<_> = agents.iter().filter(|(_, entry)| is_compliant(entry)).collect();
        current.sort_by_key(|(id, entry)| (entry.row.last_attestation, **id));
        let first = current.iter().take(NEXT_LAPSES as usize);
        (current.len() as u64, first.filter_map(|(id, entry)| self.lapse(**id, entry)).collect())
    }

    /// The compliant agents of a person with many: counted by lists of the times after the one in which the grace
    /// period ends, and one by one within it.
    fn compliant_of(&self, person: Address, now: Timestamp) -> Result<u64, StoreError> {
        let oldest = self.oldest_current(now);
        let [first, last] = [oldest, u64::MAX].map(|time| SqlValue::Blob(time_key(person, time)));
        let kind = SqlValue::from(Property::PersonTime);
        let statement = "SELECT sum(agents) FROM postings WHERE kind = ?1 AND key > ?2 AND key <= ?3";
        let later = one_number(self.store, statement, &[kind.clone(), first.clone(), last])?;
        let statement = format!(
            "SELECT count(*) FROM {MEMBERS} CROSS JOIN agents ON agents.id = member.value \
             WHERE kind = ?1 AND postings.key = ?2 AND attested >= ?3"
        );
        let within = one_number(self.store, &statement, &[kind, first, ordered(oldest)])?;
        Ok(later.unwrap_or(0) + within.unwrap_or(0))
    }

    /// The agents of a person with many whose attestations lapse first.
    fn next_lapses(&self, person: Address, now: Timestamp) -> Result<Vec<Lapse>, IndexError> {
        let statement = format!(
            "SELECT agents.id, record FROM {MEMBERS} CROSS JOIN agents ON agents.id = member.value \
             WHERE kind = ?1 AND postings.key BETWEEN ?2 AND ?3 AND attested >= ?4 \
             ORDER BY postings.key, attested, agents.id LIMIT ?5"
        );
        let oldest = self.oldest_current(now);
        let [first, last] = [oldest, u64::MAX].map(|time| SqlValue::Blob(time_key(person, time)));
        let parameters = [Property::PersonTime.into(), first, last, ordered(oldest), NEXT_LAPSES.into()];
        let first = self.entries(&statement, &parameters)?;
        Ok(first.iter().filter_map(|(id, entry)| self.lapse(*id, entry)).collect())
    }

    fn lapse(&self, id: u64, entry: &IndexedAgent) -> Option<Lapse> {
        // `None` exceeds all clocks.
        let until = entry.row.last_attestation.checked_add(self.state.grace())?;
        Some(Lapse {
            agent_id: id.into(),
            agent_wallet: entry.full.wallet,
            compliant_until: Timestamp::from_seconds(until),
        })
    }
}

/// Agents by their defined statuses.
fn by_status(agents: &BTreeMap<u64, IndexedAgent>) -> Vec<(Status, u64)> {
    let mut counts = BTreeMap::<u8, u64>::new();
    for status in agents.values().filter_map(IndexedAgent::status) {
        *counts.entry(status as u8).or_default() += 1;
    }
    counts.into_iter().filter_map(|(number, agents)| Some((Status::from_number(number)?, agents))).collect()
}
