//! The answer of `/liable/:wallet`: counts from kept sums, and two short lists in the order of the SQL indexes that they are read by. What it
//! takes does not grow with the number of the person's agents.

use alloy_primitives::Address;

use super::{
    IndexError,
    entry::{Entry, flaw},
    reader::Index,
    store::{Columns, Store, StoreError, Value, one_number, ordered},
    tables::{HOUR, Kind, person_hour, person_status},
};
use crate::{
    eth::as_of::IndexedAt,
    eth::timestamp::Timestamp,
    registry::agent::Status,
    registry::cursor::AgentCursor,
    registry::liable::{Lapse, Liable, NEXT_LAPSES},
};

impl<S: Store> Index<'_, S> {
    /// What a person is liable for, as of `now`: a page of at most `limit` agents behind the cursor.
    pub(crate) fn liable(
        &self,
        person: Address,
        limit: u64,
        cursor: Option<AgentCursor>,
        now: Timestamp,
    ) -> Result<Liable, IndexError> {
        self.check_statuses()?;
        let as_of = self.state.as_of().map(IndexedAt::from).unwrap_or_default();
        let mut liable = Liable::of_nobody(person, limit, as_of);
        for (status, agents) in self.statuses_of(person)? {
            liable.total += agents;
            liable.status_distribution.insert(status, agents);
        }
        liable.compliant_count = self.compliant_of(person, now)?;
        let active = liable.status_distribution.get(&Status::Active).copied().unwrap_or_default();
        liable.expired_count = active.saturating_sub(liable.compliant_count);
        liable.next_lapses = self.next_lapses(person, now)?;

        let statement = "SELECT id, record FROM agents INDEXED BY agents_by_person \
                         WHERE person = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
        let mut last = cursor.map_or(0, |cursor| cursor.id);
        // One more than is shown, to know whether there is one.
        let parameters = [Value::Blob(person.to_vec()), last.into(), (limit + 1).into()];
        for (id, entry) in self.entries(statement, &parameters)? {
            if liable.data.len() as u64 == limit {
                liable.next = Some(AgentCursor::after(last));
                break;
            }
            liable.data.push(self.summary(id, &entry, now)?);
            last = id;
        }
        liable.unreadable = self.flawed(flaw::RECORD)?;
        Ok(liable)
    }

    /// The person's agents by status.
    pub(super) fn statuses_of(&self, person: Address) -> Result<Vec<(Status, u64)>, StoreError> {
        let statement = "SELECT key, agents FROM counts WHERE kind = ?1 AND key >= ?2 AND key <= ?3";
        let bound = |status| Value::Blob(person_status(person, status));
        let rows = self.store.execute(statement, &[Kind::Person.into(), bound(0), bound(u8::MAX)])?;
        let read = |row| {
            let mut row = Columns::of(row);
            let status = row.blob()?.last().copied().and_then(Status::from_number);
            Ok((status.ok_or_else(StoreError::corrupt)?, row.number()?))
        };
        rows.into_iter().map(read).collect()
    }

    /// The person's compliant agents, counted as [`compliant`](Self::compliant) counts all.
    fn compliant_of(&self, person: Address, now: Timestamp) -> Result<u64, StoreError> {
        let oldest = self.oldest_current(now);
        let hour = oldest / HOUR;
        let bound = |hour| Value::Blob(person_hour(person, hour));
        let statement = "SELECT sum(agents) FROM counts WHERE kind = ?1 AND key > ?2 AND key <= ?3";
        let later =
            one_number(self.store, statement, &[Kind::PersonHour.into(), bound(hour), bound(u64::MAX)])?;
        let end = hour.saturating_add(1).saturating_mul(HOUR);
        let statement = "SELECT count(*) FROM agents INDEXED BY active_agents_by_person \
                         WHERE person = ?1 AND status = 0 AND attested >= ?2 AND attested < ?3";
        let within = one_number(
            self.store,
            statement,
            &[Value::Blob(person.to_vec()), ordered(oldest), ordered(end)],
        )?;
        Ok(later.unwrap_or(0) + within.unwrap_or(0))
    }

    fn next_lapses(&self, person: Address, now: Timestamp) -> Result<Vec<Lapse>, IndexError> {
        let statement = "SELECT id, record FROM agents INDEXED BY active_agents_by_person \
                         WHERE person = ?1 AND status = 0 AND attested >= ?2 ORDER BY attested, id LIMIT ?3";
        let parameters =
            [Value::Blob(person.to_vec()), ordered(self.oldest_current(now)), NEXT_LAPSES.into()];
        let grace = self.state.grace();
        let lapse = |(id, entry): (u64, Entry)| {
            Some(Lapse {
                agent_id: id.into(),
                agent_wallet: entry.full.wallet,
                // None is beyond all clocks.
                compliant_until: Timestamp::from_seconds(entry.row.last_attestation.checked_add(grace)?),
            })
        };
        Ok(self.entries(statement, &parameters)?.into_iter().filter_map(lapse).collect())
    }
}
