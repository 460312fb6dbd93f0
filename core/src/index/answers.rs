//! Answers from the store, equal to those that a scan at the same block gives: the same pure functions make them.

use alloy_primitives::U256;

use super::{
    IndexError, changes,
    entry::flaw,
    reader::Index,
    store::{Columns, Store, StoreError, Value, ordered},
    tables::{self, Kind},
};
use crate::{
    chain::QueryError,
    eth::timestamp::Timestamp,
    registry::{
        agent::{AgentId, AgentListItem, Status},
        changes::{ChangeList, Since},
        lineage::{self, Children, Fetched, LineageNode, MAX_CHILDREN, Member, Relative},
        page::{AgentPage, Page},
        revenue::RevenueAggregate,
        stats::{DetailedStats, RECENT_REGISTRATIONS, RecentRegistration, Stats},
    },
};

impl<S: Store> Index<'_, S> {
    /// So many changes of verdicts, from there on.
    ///
    /// # Errors
    ///
    /// [`IndexError::CursorExpired`], [`IndexError::Incomplete`], [`IndexError::Store`].
    pub fn changes(&self, since: Since, limit: u64) -> Result<ChangeList, IndexError> {
        changes::list(self.store, self.state, since, limit)
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
