//! The answer of `/liable/:wallet`. All agents of a person with few are read and counted. For a person with
//! [many](super::large_persons), sums are kept, and lists are read in their order.

use std::collections::BTreeMap;

use alloy_primitives::Address;

use super::{
    IndexError,
    counts::{CountKind, person_status},
    indexed_agent::{IndexedAgent, flaw},
    large_persons::by_time,
    postings::{self, MEMBERS, Property},
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
    /// Returns a page of at most `limit` agents of a liable person behind the cursor, as of `now`.
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
        let is_large = !kept.is_empty();
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
        liable.compliant_count = self.compliant_of(person, is_large, now)?;
        let active = liable.status_distribution.get(&Status::Active).copied().unwrap_or_default();
        liable.expired_count = active.saturating_sub(liable.compliant_count);
        liable.next_lapses = self.next_lapses(person, is_large, now)?;

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
        // A page of one basis ends here even if it holds fewer agents than its limit.
        if is_cut && liable.next.is_none() {
            liable.next = Some(AgentCursor::after(last));
        }
        liable.unreadable = self.flawed(flaw::RECORD)?;
        Ok(liable)
    }

    /// Counts the person's agents by status.
    pub(super) fn statuses_of(&self, person: Address) -> Result<Vec<(Status, u64)>, StoreError> {
        let kept = self.kept_statuses(person)?;
        if !kept.is_empty() {
            return Ok(kept);
        }
        let list = (Property::Person, person.to_vec());
        Ok(by_status(&tables::records(self.store, &postings::whole(self.store, &list)?)?))
    }

    /// Reads the kept counts by status of a person with many agents; none for others.
    fn kept_statuses(&self, person: Address) -> Result<Vec<(Status, u64)>, StoreError> {
        let statement = "SELECT key, agents FROM counts WHERE kind = ?1 AND key >= ?2 AND key <= ?3";
        let bound = |status| SqlValue::Blob(person_status(person, status));
        let parameters = [CountKind::Person.into(), bound(0), bound(u8::MAX)];
        query(self.store, statement, &parameters, |row| {
            let status = row.blob()?.last().copied().and_then(Status::from_number);
            Ok((status.ok_or_else(StoreError::corrupt)?, row.number()?))
        })
    }

    /// Counts the person's compliant agents: by lists of the times after the one in which the grace period
    /// ends, and one by one within that list.
    fn compliant_of(&self, person: Address, is_large: bool, now: Timestamp) -> Result<u64, StoreError> {
        let oldest = self.oldest_current(now);
        let (property, first, last) = by_time(person, is_large, oldest);
        let [first, last] = [first, last].map(SqlValue::Blob);
        let statement = "SELECT sum(agents) FROM postings WHERE kind = ?1 AND key > ?2 AND key <= ?3";
        let later = one_number(self.store, statement, &[property.into(), first.clone(), last])?;
        let statement = format!(
            "SELECT count(*) FROM {MEMBERS} CROSS JOIN agents ON agents.id = member.value \
             WHERE kind = ?1 AND postings.key = ?2 AND status = 0 AND attested >= ?3"
        );
        let within = one_number(self.store, &statement, &[property.into(), first, ordered(oldest)])?;
        Ok(later.unwrap_or(0) + within.unwrap_or(0))
    }

    fn next_lapses(&self, person: Address, is_large: bool, now: Timestamp) -> Result<Vec<Lapse>, IndexError> {
        let statement = format!(
            "SELECT agents.id, record FROM {MEMBERS} CROSS JOIN agents ON agents.id = member.value \
             WHERE kind = ?1 AND postings.key BETWEEN ?2 AND ?3 AND status = 0 AND attested >= ?4 \
             ORDER BY postings.key, attested, agents.id LIMIT ?5"
        );
        let oldest = self.oldest_current(now);
        let (property, first, last) = by_time(person, is_large, oldest);
        let [first, last] = [first, last].map(SqlValue::Blob);
        let parameters = [property.into(), first, last, ordered(oldest), NEXT_LAPSES.into()];
        let grace = self.state.grace();
        let lapse = |(id, entry): (u64, IndexedAgent)| {
            Some(Lapse {
                agent_id: id.into(),
                agent_wallet: entry.row.wallet,
                // `None` exceeds all clocks.
                compliant_until: Timestamp::from_seconds(entry.row.last_attestation.checked_add(grace)?),
            })
        };
        Ok(self.entries(&statement, &parameters)?.into_iter().filter_map(lapse).collect())
    }
}

/// Counts agents by their defined statuses.
fn by_status(agents: &BTreeMap<u64, IndexedAgent>) -> Vec<(Status, u64)> {
    let mut counts = BTreeMap::<u8, u64>::new();
    for status in agents.values().filter_map(IndexedAgent::status) {
        *counts.entry(status as u8).or_default() += 1;
    }
    counts.into_iter().filter_map(|(number, agents)| Some((Status::from_number(number)?, agents))).collect()
}
