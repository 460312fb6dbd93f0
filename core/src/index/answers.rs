//! Answers from the store, equal to those that a scan at the same block gives: the same pure functions make them.

use alloy_primitives::{Address, U256};

use super::{
    IndexError, State, changes,
    entry::{Entry, flaw},
    listing::Bounds,
    store::{Columns, Store, StoreError, Value, one_number, ordered},
    tables::{self, HOUR, Kind},
};
use crate::{
    chain::QueryError,
    eth::timestamp::Timestamp,
    registry::{
        agent::{AgentId, AgentListItem, AgentSummary, Status, UnknownStatus},
        changes::{ChangeList, Since},
        lineage::{self, Children, Fetched, LineageNode, MAX_CHILDREN, Member, Relative},
        page::{AgentPage, Page},
        revenue::RevenueAggregate,
        row::Row,
        stats::{DetailedStats, RECENT_REGISTRATIONS, RecentRegistration, Stats},
    },
};

/// An index whose rows are of one block, to be asked.
#[derive(Debug)]
pub struct Index<'a, S> {
    pub(super) store: &'a S,
    pub(crate) state: &'a State,
    registry: Address,
    /// The RPC endpoint as shown to clients.
    chain: &'a str,
    pub(super) bounds: Bounds,
}

impl<'a, S: Store> Index<'a, S> {
    /// The index in `store`, whose state is `state`; `chain` is the RPC endpoint as shown to clients.
    pub const fn new(store: &'a S, state: &'a State, registry: Address, chain: &'a str) -> Self {
        Self { store, state, registry, chain, bounds: Bounds::DEFAULT }
    }

    /// The same, reading less or more for a page of a list.
    #[must_use]
    pub const fn within(self, bounds: Bounds) -> Self {
        Self { bounds, ..self }
    }

    /// So many changes of verdicts, from there on.
    ///
    /// # Errors
    ///
    /// [`IndexError::CursorExpired`], [`IndexError::Incomplete`], [`IndexError::Store`].
    pub fn changes(&self, since: Since, limit: u64) -> Result<ChangeList, IndexError> {
        changes::list(self.store, self.state, since, limit)
    }

    /// Agents with one of these flaws, by id.
    pub(super) fn flawed(&self, flaws: i64) -> Result<Vec<AgentId>, StoreError> {
        let statement = "SELECT id FROM agents INDEXED BY agents_with_flaws \
                         WHERE flaws > 0 AND flaws & ?1 > 0 ORDER BY id";
        let rows = self.store.execute(statement, &[Value::Integer(flaws)])?;
        rows.into_iter().map(|row| Ok(AgentId::from(Columns::of(row).number()?))).collect()
    }

    /// Fails where a readable record has a status that is not defined, as a scan does.
    pub(super) fn check_statuses(&self) -> Result<(), IndexError> {
        let Some(AgentId(agent_id)) = self.flawed(flaw::STATUS)?.into_iter().next() else { return Ok(()) };
        let id = u64::try_from(agent_id).unwrap_or(u64::MAX);
        let number = tables::find(self.store, id)?.map_or(u8::MAX, |entry| entry.row.status);
        Err(QueryError::from(UnknownStatus { agent_id, number }).into())
    }

    /// Counts under each key of a kind.
    pub(super) fn counts(&self, kind: Kind) -> Result<Vec<(Vec<u8>, u64)>, StoreError> {
        let statement = "SELECT key, agents FROM counts WHERE kind = ?1 ORDER BY key";
        let read = |row| {
            let mut row = Columns::of(row);
            Ok((row.blob()?, row.number()?))
        };
        self.store.execute(statement, &[kind.into()])?.into_iter().map(read).collect()
    }

    /// Agents by status.
    pub(super) fn statuses(&self) -> Result<Vec<(Status, u64)>, StoreError> {
        let read = |(key, agents): (Vec<u8>, u64)| {
            let status = key.first().copied().and_then(Status::from_number);
            Ok((status.ok_or_else(StoreError::corrupt)?, agents))
        };
        self.counts(Kind::Status)?.into_iter().map(read).collect()
    }

    pub(crate) fn detailed_stats(&self, now: Timestamp) -> Result<DetailedStats, IndexError> {
        self.check_statuses()?;
        let mut stats = DetailedStats::empty(Stats {
            total_agents: U256::from(self.state.total),
            registry_address: self.registry,
            chain: self.chain.to_owned(),
        });
        stats.status_distribution.extend(self.statuses()?);
        for (key, agents) in self.counts(Kind::Generation)? {
            stats.generation_distribution.insert(U256::from_be_slice(&key), agents);
        }
        stats.compliant_count = self.compliant(now)?;
        stats.rate();
        stats.total_revenue = self.revenue()?.by_currency;
        stats.recent_registrations = self.recent()?;
        stats.unreadable = self.flawed(flaw::RECORD | flaw::HISTORY)?;
        Ok(stats)
    }

    /// The second from which on attestations are current.
    pub(super) fn oldest_current(&self, now: Timestamp) -> u64 {
        now.seconds().saturating_sub(self.state.grace())
    }

    /// An agent, in a list.
    pub(super) fn summary(&self, id: u64, entry: &Entry, now: Timestamp) -> Result<AgentSummary, IndexError> {
        let Row { creator, registered_at, last_attestation, parent, generation, .. } = entry.row;
        let status = entry.known_status(id).map_err(QueryError::from)?;
        Ok(AgentSummary {
            agent_id: id.into(),
            creator,
            haftungsperson: entry.full.haftungsperson,
            agent_wallet: entry.full.wallet,
            operational_scope: entry.full.scope.clone(),
            parent_agent_id: parent.into(),
            generation,
            registered_at: Timestamp::from_seconds(registered_at),
            last_attestation: Timestamp::from_seconds(last_attestation),
            status,
            is_compliant: status == Status::Active && last_attestation >= self.oldest_current(now),
        })
    }

    /// Active agents whose attestation is current: by hours, and agent by agent in the one that the grace period ends in.
    pub(super) fn compliant(&self, now: Timestamp) -> Result<u64, StoreError> {
        let oldest = self.oldest_current(now);
        let hour = oldest / HOUR;
        let later = one_number(
            self.store,
            "SELECT sum(agents) FROM counts WHERE kind = ?1 AND key > ?2",
            &[Kind::AttestationHour.into(), ordered(hour)],
        )?;
        let end = hour.saturating_add(1).saturating_mul(HOUR);
        // 0 is Active, as that index has it: no row of the table itself is read.
        let statement = "SELECT count(*) FROM agents INDEXED BY active_agents_by_attestation \
                         WHERE status = 0 AND attested >= ?1 AND attested < ?2";
        let within = one_number(self.store, statement, &[ordered(oldest), ordered(end)])?;
        Ok(later.unwrap_or(0) + within.unwrap_or(0))
    }

    fn recent(&self) -> Result<Vec<RecentRegistration>, IndexError> {
        let statement = "SELECT id, record FROM agents WHERE id > ?1 ORDER BY id DESC";
        let before = self.state.total.saturating_sub(RECENT_REGISTRATIONS as u64);
        let mut recent = Vec::new();
        for (id, entry) in self.entries(statement, &[before.into()])? {
            let Some(status) = entry.status() else { continue };
            recent.push(RecentRegistration {
                agent_id: id.into(),
                creator: entry.row.creator,
                haftungsperson: entry.full.haftungsperson,
                agent_wallet: entry.full.wallet,
                registered_at: Timestamp::from_seconds(entry.row.registered_at),
                status,
            });
        }
        Ok(recent)
    }

    pub(super) fn entries(
        &self,
        statement: &str,
        parameters: &[Value],
    ) -> Result<Vec<(u64, Entry)>, StoreError> {
        let read = |row| {
            let mut row = Columns::of(row);
            Ok((row.number()?, Entry::unpack(&row.blob()?)?))
        };
        self.store.execute(statement, parameters)?.into_iter().map(read).collect()
    }

    pub(crate) fn agents_of(&self, page: Page, status: Status) -> Result<AgentPage, IndexError> {
        self.check_statuses()?;
        let counts = self.counts(Kind::Status)?;
        let total = counts.iter().find(|(key, _)| *key == [status as u8]).map_or(0, |(_, agents)| *agents);
        let mut data = Vec::new();
        if let Some(skipped) = u64::try_from(page.skipped()).ok().filter(|skipped| *skipped < total) {
            let (first, before) = self.range_of(status, skipped)?;
            let statement = "SELECT id, record FROM agents INDEXED BY agents_by_status \
                             WHERE status = ?1 AND id >= ?2 ORDER BY id LIMIT ?3 OFFSET ?4";
            let skipped = skipped.saturating_sub(before).into();
            let parameters = [Value::Integer(status as i64), first.into(), page.limit.into(), skipped];
            for (id, entry) in self.entries(statement, &parameters)? {
                data.push(AgentListItem {
                    agent_id: id.into(),
                    creator: entry.row.creator,
                    status,
                    registered_at: Timestamp::from_seconds(entry.row.registered_at),
                });
            }
        }
        let unreadable = self.flawed(flaw::RECORD)?;
        Ok(AgentPage { unreadable, ..AgentPage::of(page, U256::from(total), data) })
    }

    /// The range of ids in which the agent of that status is that has so many before it: its first id, and how many agents of the status
    /// come before the range.
    fn range_of(&self, status: Status, skipped: u64) -> Result<(u64, u64), StoreError> {
        let statement = "SELECT key, before FROM \
                         (SELECT key, sum(agents) OVER (ORDER BY key) - agents AS before FROM counts \
                         WHERE kind = ?1 AND key BETWEEN ?2 AND ?3) \
                         WHERE before <= ?4 ORDER BY key DESC LIMIT 1";
        let [first, last] = [0, u64::MAX].map(|id| Value::Blob(tables::status_range(status as u8, id)));
        let parameters = [Kind::StatusRange.into(), first, last, skipped.into()];
        let row = self.store.execute(statement, &parameters)?.into_iter().next();
        let mut row = Columns::of(row.ok_or_else(StoreError::corrupt)?);
        let [_, range @ ..] = row.array::<9>()?;
        Ok((u64::from_be_bytes(range) * tables::RANGE, row.number()?))
    }

    /// How many children an agent has; an unreadable record names no parent.
    fn children_of(&self, id: u64) -> Result<u64, StoreError> {
        let statement = "SELECT count(*) FROM agents INDEXED BY agents_by_parent WHERE parent = ?1";
        Ok(one_number(self.store, statement, &[ordered(id)])?.unwrap_or(0))
    }

    pub(crate) fn revenue(&self) -> Result<RevenueAggregate, IndexError> {
        let mut revenue = RevenueAggregate::default();
        for (_, reports) in self.counts(Kind::Reports)? {
            revenue.total_reports = revenue.total_reports.saturating_add(reports);
        }
        for row in self.store.execute("SELECT is_category, text, amount FROM revenue_totals", &[])? {
            let sum = tables::sum(Columns::of(row))?;
            if sum.is_category {
                revenue.by_category.insert(sum.text, sum.amount);
            } else {
                revenue.total_amount = revenue.total_amount.saturating_add(sum.amount);
                revenue.by_currency.insert(sum.text, sum.amount);
            }
        }
        revenue.unreadable = self.flawed(flaw::HISTORY)?;
        Ok(revenue)
    }

    pub(crate) fn lineage(&self, id: AgentId) -> Result<LineageNode, IndexError> {
        if !self.flawed(flaw::RECORD)?.is_empty() {
            // Whose child an agent is that cannot be read, only its parent's list tells.
            return Err(IndexError::Uncovered);
        }
        let root = u64::try_from(id.0).ok().map(|root| self.member(root)).transpose()?.flatten();
        let root = root.ok_or(QueryError::AgentNotFound(id))?;
        lineage::grow(root, |ids| {
            let fetch = |id: &U256| {
                let member = u64::try_from(*id).ok().map(|id| self.member(id)).transpose()?.flatten();
                Ok(member.map_or(Fetched::Absent, |member| Fetched::Member(Box::new(member))))
            };
            ids.iter().map(fetch).collect()
        })
    }

    fn member(&self, id: u64) -> Result<Option<Member>, IndexError> {
        let found = self.entries("SELECT id, record FROM agents WHERE id = ?1", &[id.into()])?;
        let Some((_, entry)) = found.into_iter().next() else { return Ok(None) };
        let statement = "SELECT id FROM agents WHERE parent = ?1 ORDER BY id LIMIT ?2";
        let shown = self.store.execute(statement, &[ordered(id), (MAX_CHILDREN as u64).into()])?;
        let ids: Vec<U256> = shown
            .into_iter()
            .map(|row| Ok(U256::from(Columns::of(row).number()?)))
            .collect::<Result<_, StoreError>>()?;
        let total = if ids.len() < MAX_CHILDREN { ids.len() as u64 } else { self.children_of(id)? };
        let agent = Relative {
            agent_id: id.into(),
            wallet: entry.full.wallet,
            generation: U256::from(entry.row.generation),
            status: entry.known_status(id).map_err(QueryError::from)?,
        };
        Ok(Some(Member { agent, children: Children { ids, total: U256::from(total) } }))
    }
}
