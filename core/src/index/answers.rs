//! Answers from the store. The same pure functions make them from a scan, so that both agree at one block.

use std::collections::BTreeMap;

use alloy_primitives::{Address, U256};

use super::{
    IndexError, changes,
    counts::{self, CountKind},
    indexed_agent::{IndexedAgent, flaw},
    postings::{self, MEMBERS, Property},
    reader::Index,
    store::{Columns, SqlValue, Store, StoreError, first_row, ids_as_json, of_ids, query},
    tables,
};
use crate::{
    chain::QueryError,
    eth::timestamp::Timestamp,
    liability::WalletEvents,
    registry::{
        agent::{AgentId, Fetched, Status},
        agent_item::AgentListItem,
        changes::{ChangeList, Since},
        lineage::{self, LineageNode, MAX_CHILDREN, Member, Relative},
        page::{AgentPage, Page},
        revenue::{Largest, RevenueAggregate},
        row::Sum,
        stats::{DetailedStats, RECENT_REGISTRATIONS, RecentRegistration, Stats},
    },
};

/// Sums of revenue read at once.
const SUMS: u64 = 1_000;

impl<S: Store> Index<'_, S> {
    /// Reads at most `limit` changes of verdicts.
    ///
    /// # Errors
    ///
    /// [`IndexError::CursorExpired`], [`IndexError::Incomplete`], [`IndexError::Store`].
    pub fn changes(&self, since: Since, limit: u64) -> Result<ChangeList, IndexError> {
        self.changes_naming(None, since, limit)
    }

    /// Reads changes of verdicts of the agents that name this liable wallet, or of all.
    pub(crate) fn changes_naming(
        &self,
        liable: Option<Address>,
        since: Since,
        limit: u64,
    ) -> Result<ChangeList, IndexError> {
        changes::list(self.store, self.state, liable, since, limit)
    }

    /// Returns the known events by an agent's liable wallet at the index's block; `None` if there is no such
    /// agent.
    ///
    /// # Errors
    ///
    /// [`IndexError::Store`].
    pub fn wallet_events(&self, id: u64) -> Result<Option<WalletEvents>, IndexError> {
        let agent = tables::find(self.store, id)?;
        Ok(agent.map(|agent| self.state.wallet_events(&agent)))
    }

    pub(crate) fn detailed_stats(&self, now: Timestamp) -> Result<DetailedStats, IndexError> {
        self.check_statuses()?;
        let mut stats = DetailedStats::empty(Stats {
            total_agents: U256::from(self.state.total),
            registry_address: self.registry,
            chain: self.chain.to_owned(),
        });
        stats.status_distribution.extend(self.statuses()?);
        for (key, agents) in self.counts(CountKind::Generation)? {
            stats.generation_distribution.insert(U256::from_be_slice(&key), agents);
        }
        stats.compliant_count = self.compliant(now)?;
        stats.rate();
        let revenue = self.revenue()?;
        (stats.total_revenue, stats.other_revenue) = (revenue.by_currency, revenue.other_currencies);
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
                agent_wallet: entry.row.wallet,
                registered_at: Timestamp::from_seconds(entry.row.registered_at),
                status,
            });
        }
        Ok(recent)
    }

    pub(crate) fn agents_of(&self, page: Page, status: Status) -> Result<AgentPage, IndexError> {
        self.check_statuses()?;
        let counts = self.counts(CountKind::Status)?;
        let total = counts.iter().find(|(key, _)| *key == [status as u8]).map_or(0, |(_, agents)| *agents);
        let mut data = Vec::new();
        if let Some(skipped) = u64::try_from(page.skipped()).ok().filter(|skipped| *skipped < total) {
            let (first, before) = self.range_of(status, skipped)?;
            let list = (Property::Status, vec![status as u8]);
            let skipped = skipped.saturating_sub(before);
            let most = skipped.saturating_add(page.limit);
            let ids = postings::page(self.store, &list, first.saturating_sub(1), most)?;
            let ids = ids.get(usize::try_from(skipped).unwrap_or(usize::MAX)..).unwrap_or_default();
            for (id, entry) in tables::records(self.store, ids)? {
                data.push(AgentListItem {
                    agent_id: id.into(),
                    creator: entry.row.creator,
                    status,
                    registered_at: Timestamp::from_seconds(entry.row.registered_at),
                    // A scan has none either: its rows hold no liable wallet.
                    liability: None,
                });
            }
        }
        let unreadable = self.flawed(flaw::RECORD)?;
        Ok(AgentPage { unreadable, ..AgentPage::of(page, U256::from(total), data) })
    }

    /// Finds the id range with the agent of this status that has `skipped` predecessors: its first id, and
    /// the number of agents of the status before the range.
    fn range_of(&self, status: Status, skipped: u64) -> Result<(u64, u64), StoreError> {
        let statement = "SELECT key, before FROM \
                         (SELECT key, sum(agents) OVER (ORDER BY key) - agents AS before FROM counts \
                         WHERE kind = ?1 AND key BETWEEN ?2 AND ?3) \
                         WHERE before <= ?4 ORDER BY key DESC LIMIT 1";
        let [first, last] = [0, u64::MAX].map(|id| SqlValue::Blob(counts::status_range(status as u8, id)));
        let parameters = [CountKind::StatusRange.into(), first, last, skipped.into()];
        let row = first_row(self.store, statement, &parameters)?;
        let mut row = row.ok_or_else(StoreError::corrupt)?;
        let [_, range @ ..] = row.array::<9>()?;
        Ok((u64::from_be_bytes(range) * counts::RANGE, row.number()?))
    }

    pub(crate) fn revenue(&self) -> Result<RevenueAggregate, IndexError> {
        let mut revenue = RevenueAggregate::default();
        for (_, reports) in self.counts(CountKind::Reports)? {
            revenue.total_reports = revenue.total_reports.saturating_add(reports);
        }
        // Agents may make up any number of keys, which are never in memory together.
        let statement = "SELECT is_category, text, amount FROM revenue_totals \
                         WHERE (is_category, text) > (?1, ?2) ORDER BY is_category, text LIMIT ?3";
        let (mut currencies, mut categories) = (Largest::default(), Largest::default());
        let mut after = [SqlValue::Integer(-1), SqlValue::Blob(Vec::new())];
        loop {
            let [is_category, text] = after.clone();
            let sums = self.store.execute(statement, &[is_category, text, SUMS.into()])?;
            let Some([is_category, text, ..]) = sums.last().map(Vec::as_slice) else { break };
            after = [is_category.clone(), text.clone()];
            for sum in sums {
                let Sum { is_category, text, amount } = tables::sum(&mut Columns::of(sum))?;
                if is_category {
                    categories.add(text, amount);
                } else {
                    revenue.total_amount = revenue.total_amount.saturating_add(amount);
                    currencies.add(text, amount);
                }
            }
        }
        (revenue.by_currency, revenue.other_currencies) = currencies.into_sums();
        (revenue.by_category, revenue.other_categories) = categories.into_sums();
        revenue.unreadable = self.flawed(flaw::HISTORY)?;
        Ok(revenue)
    }

    pub(crate) fn lineage(&self, id: AgentId) -> Result<LineageNode, IndexError> {
        if !self.flawed(flaw::RECORD)?.is_empty() {
            // An unreadable agent's parent is known only from the parent's own list.
            return Err(IndexError::Uncovered);
        }
        let root = u64::try_from(id.0)
            .map(|root| self.members(&[root]))
            .unwrap_or_else(|_| Ok(BTreeMap::new()))?
            .remove(&id.0);
        let root = root.ok_or(QueryError::AgentNotFound(id))?;
        lineage::grow(root, |ids| {
            let numbers: Vec<u64> = ids.iter().filter_map(|id| u64::try_from(*id).ok()).collect();
            let mut members = self.members(&numbers)?;
            let member = |id: &U256| {
                members.remove(id).map_or(Fetched::Absent, |found| Fetched::Found(Box::new(found)))
            };
            Ok(ids.iter().map(member).collect())
        })
    }

    /// Reads the agents with these ids and their children, by id, in as many statements for all as for one.
    fn members(&self, ids: &[u64]) -> Result<BTreeMap<U256, Member>, IndexError> {
        let mut members = BTreeMap::new();
        for mut row in of_ids(self.store, "SELECT id, record FROM agents WHERE id", &[], ids)? {
            let (id, entry) = IndexedAgent::read(&mut row)?;
            let agent = Relative {
                agent_id: id.into(),
                wallet: entry.row.wallet,
                generation: U256::from(entry.row.generation),
                status: entry.known_status(id).map_err(QueryError::from)?,
                creator: entry.row.creator,
                liable: entry.full.haftungsperson,
                is_root: entry.row.parent == 0,
            };
            members.insert(U256::from(id), Member { agent, children: Vec::new().into() });
        }
        let counts = "SELECT key, sum(agents) FROM postings WHERE kind = ?1 AND key IN \
                      (SELECT unhex(printf('%016x', value)) FROM json_each(?2)) GROUP BY key";
        // Each row of a list has at least one child, so that MAX_CHILDREN rows suffice.
        let first = format!(
            "SELECT postings.key, member.value FROM json_each(?2) AS asked CROSS JOIN {MEMBERS} \
             WHERE kind = ?1 AND postings.key = unhex(printf('%016x', asked.value)) AND first <= \
             coalesce((SELECT first FROM postings AS list WHERE list.kind = ?1 \
             AND list.key = unhex(printf('%016x', asked.value)) ORDER BY first LIMIT 1 OFFSET ?3), first) \
             ORDER BY first, member.value"
        );
        let pair = |row: &mut Columns| Ok((U256::from(u64::from_be_bytes(row.array()?)), row.number()?));
        let asked = [Property::Parent.into(), ids_as_json(ids)];
        for (parent, total) in query(self.store, counts, &asked, pair)? {
            members.entry(parent).and_modify(|member| member.children.total = U256::from(total));
        }
        let asked = [&asked[..], &[(MAX_CHILDREN as u64 - 1).into()]].concat();
        for (parent, id) in query(self.store, &first, &asked, pair)? {
            members.entry(parent).and_modify(|member| {
                let children = &mut member.children.ids;
                if children.len() < MAX_CHILDREN {
                    children.push(U256::from(id))
                }
            });
        }
        Ok(members)
    }
}
