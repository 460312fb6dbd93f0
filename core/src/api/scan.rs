//! A scan: the whole registry at one block, in compact rows. One scan answers `/stats/detailed`, `/agents`
//! with a status, `/agents/compliance` and `/revenue/aggregate`.

use std::sync::Arc;

use alloy_primitives::{Address, U256};

use crate::{
    api::{document::Document, error::Error, route::Route},
    chain::{
        Halt, MAX_AGENTS, Query, QueryError, RunError, View,
        lens::{Detail, Slice},
        reader::Registry,
        rows::Rows,
    },
    eth::{abi::RevenueReport, timestamp::Timestamp},
    registry::{
        agent::{Agent, AgentId, Status, UnknownStatus},
        agent_item::AgentListItem,
        compliance::{Compliance, ComplianceList, ComplianceListItem, CompliancePage},
        cursor::AgentCursor,
        page::{AgentPage, Page},
        revenue::{Largest, RevenueAggregate},
        row::Row,
        stats::{DetailedStats, RECENT_REGISTRATIONS, RecentRegistration, Stats},
    },
};

/// The whole registry at one block. Plain data, and cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    pub(crate) registry: Address,
    /// The RPC endpoint as shown to clients.
    pub(crate) chain: String,
    pub(crate) grace_seconds: U256,
    /// The last registered agents that are readable, newest first.
    pub(crate) recent: Vec<RecentRegistration>,
    /// One row for each agent, by ascending id from 1.
    rows: Arc<Rows>,
    /// The block's time: a host's clock that is behind it does not count.
    block_time: Timestamp,
}

/// A query for the whole registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanQuery {
    /// The registry's address.
    pub registry: Address,
    /// The RPC endpoint as shown to clients.
    pub chain: String,
}

impl Query for ScanQuery {
    type Output = Scan;
    type Error = Error;

    fn resolve(&self, view: &View) -> Result<Scan, Halt<Error>> {
        let registry = Registry { view, address: self.registry };
        // The first rows come along with the count.
        let first = registry.rows(1, Detail::Revenue, None);
        let (total, grace, as_of) = (registry.total(), registry.grace_period(), view.as_of());
        let (total, grace, as_of) = (total?, grace?, as_of?);
        let total = u64::try_from(total)
            .ok()
            .filter(|total| *total <= MAX_AGENTS)
            .ok_or(Halt::Error(QueryError::TooManyAgents(total)))?;
        first?;
        let (rows, recent) =
            (registry.rows(1, Detail::Revenue, Some(total)), registry.records(&recent_ids(total)));
        let (rows, recent) = (rows?, recent?);
        let recent = recent
            .into_iter()
            // The rows name the unreadable agents.
            .filter_map(|record| record.ok().map(|agent| RecentRegistration::from(&agent)))
            .collect();
        let scan = Scan::of((self.registry, self.chain.clone()), total, grace, recent, rows);
        Ok(Scan { block_time: as_of.block_timestamp, ..scan.map_err(Halt::Error)? })
    }
}

/// An agent with a readable record.
struct ReadableAgent<'a> {
    id: AgentId,
    status: Status,
    row: &'a Row,
}

impl ReadableAgent<'_> {
    /// Returns the agent's cursor in a list by attestation.
    fn place(&self) -> AgentCursor {
        AgentCursor { attested: Some(self.row.last_attestation), id: self.id.0.saturating_to() }
    }
}

impl Scan {
    /// Makes a scan of `total` agents; an error if the node left some of them out.
    pub(crate) fn of(
        (registry, chain): (Address, String),
        total: u64,
        grace_seconds: U256,
        recent: Vec<RecentRegistration>,
        rows: &Arc<Rows>,
    ) -> Result<Self, QueryError> {
        if rows.len() as u64 != total || rows.iter().any(|(_, row)| row.is_unread()) {
            return Err(RunError::Malformed.into());
        }
        let block_time = Timestamp::default();
        Ok(Self { registry, chain, grace_seconds, recent, rows: Arc::clone(rows), block_time })
    }

    /// Makes a scan of these agents, by ascending id from 1, and their reports.
    pub fn of_agents<'a>(
        registry: Address,
        chain: String,
        grace_seconds: U256,
        agents: &[Agent],
        reports: impl IntoIterator<Item = &'a RevenueReport>,
    ) -> Self {
        let recent = agents.iter().rev().take(RECENT_REGISTRATIONS).map(RecentRegistration::from).collect();
        let mut slice = Slice { rows: agents.iter().map(Row::from).collect(), ..Slice::default() };
        slice.take_sums(RevenueAggregate::of(reports));
        let mut rows = Rows::starting_at(1);
        rows.fold(1, slice);
        Self {
            registry,
            chain,
            grace_seconds,
            recent,
            rows: Arc::new(rows),
            block_time: Timestamp::default(),
        }
    }

    /// Returns the answer of a route [about the registry](Route::is_about_registry), as of `now` or the
    /// scan's block, whichever is later.
    ///
    /// # Errors
    ///
    /// [`QueryError::UnknownStatus`] where the registry gave one, [`Error::NotFound`] for another route.
    pub fn document(&self, route: &Route, now: Timestamp) -> Result<Document, Error> {
        let now = now.max(self.block_time);
        Ok(match route {
            Route::DetailedStats => Document::of(self.detailed_stats(now)?, route),
            Route::Agents { page, status: Some(status) } => {
                Document::of(self.agents_of(*page, *status)?, route)
            }
            Route::Compliance(page) => Document::of(self.compliance(*page, now)?, route),
            Route::RevenueAggregate => Document::of(self.revenue(), route),
            _ => return Err(Error::NotFound),
        })
    }

    /// Returns all agents, by ascending id from 1.
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// Returns the approximate size in memory, in bytes.
    pub fn size_bytes(&self) -> usize {
        self.rows.size_bytes() + size_of::<Self>() + self.recent.len() * size_of::<RecentRegistration>()
    }

    fn members(&self) -> impl DoubleEndedIterator<Item = Result<ReadableAgent<'_>, UnknownStatus>> + Clone {
        self.rows.iter().filter(|(_, row)| row.record_is_readable()).map(|(id, row)| {
            let (agent_id, number) = (U256::from(id), row.status);
            let status = Status::from_number(number).ok_or(UnknownStatus { agent_id, number })?;
            Ok(ReadableAgent { id: AgentId(agent_id), status, row })
        })
    }

    fn unreadable(&self, is_unreadable: impl Fn(&Row) -> bool) -> Vec<AgentId> {
        let rows = self.rows.iter().filter(|(_, row)| is_unreadable(row));
        rows.map(|(id, _)| AgentId(U256::from(id))).collect()
    }

    /// Returns the answer of `/stats/detailed`.
    ///
    /// # Errors
    ///
    /// [`QueryError::UnknownStatus`] where the registry gave one.
    pub fn detailed_stats(&self, now: Timestamp) -> Result<DetailedStats, Error> {
        let stats = Stats {
            total_agents: U256::from(self.rows.len()),
            registry_address: self.registry,
            chain: self.chain.clone(),
        };
        let mut stats = DetailedStats::empty(stats);
        for member in self.members() {
            let ReadableAgent { status, row, .. } = member.map_err(QueryError::from)?;
            stats.count(status, U256::from(row.generation), self.judge(status, row, 0, now).is_compliant());
        }
        stats.rate();
        (stats.total_revenue, stats.other_revenue) = Largest::of(&self.rows.revenue.by_currency).into_sums();
        stats.recent_registrations.clone_from(&self.recent);
        stats.unreadable = self.unreadable(|row| !row.record_is_readable() || !row.history_is_readable);
        Ok(stats)
    }

    fn agents_of(&self, page: Page, status: Status) -> Result<AgentPage, Error> {
        let (mut total, mut data) = (0_u64, Vec::new());
        for member in self.members() {
            let ReadableAgent { id, status: found, row } = member.map_err(QueryError::from)?;
            if found == status {
                let on_page = u128::from(total) >= page.skipped() && (data.len() as u64) < page.limit;
                if on_page {
                    data.push(AgentListItem {
                        agent_id: id,
                        creator: row.creator,
                        status,
                        registered_at: Timestamp::from_seconds(row.registered_at),
                        liability: None,
                    });
                }
                total += 1;
            }
        }
        let unreadable = self.unreadable(|row| !row.record_is_readable());
        Ok(AgentPage { unreadable, ..AgentPage::of(page, U256::from(total), data) })
    }

    /// Returns the answer of `/agents/compliance`: all agents, or a page of them.
    ///
    /// # Errors
    ///
    /// [`QueryError::UnknownStatus`] where the registry gave one.
    pub fn compliance(&self, page: Option<CompliancePage>, now: Timestamp) -> Result<ComplianceList, Error> {
        // Counts by parent id, from 0 on.
        let mut children = vec![0_u32; self.rows.len() + 1];
        let mut stalest_first = Vec::with_capacity(self.rows.len());
        for member in self.members() {
            let member = member.map_err(QueryError::from)?;
            let parent = usize::try_from(member.row.parent).unwrap_or(usize::MAX);
            if let Some(count) = children.get_mut(parent) {
                *count += 1;
            }
            stalest_first.push(member);
        }
        stalest_first.sort_by_key(ReadableAgent::place);
        let mut next = None;
        if let Some(CompliancePage { limit, cursor }) = page {
            let behind = stalest_first.partition_point(|member| Some(member.place()) <= cursor);
            stalest_first.drain(..behind);
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            if stalest_first.len() > limit {
                stalest_first.truncate(limit);
                next = stalest_first.last().map(ReadableAgent::place);
            }
        }
        let item = |ReadableAgent { id, status, row }| {
            let index = usize::try_from(id.0).unwrap_or(usize::MAX);
            let child_count = children.get(index).copied().unwrap_or_default();
            ComplianceListItem {
                agent_id: id,
                creator: row.creator,
                status,
                compliance: self.judge(status, row, child_count, now),
            }
        };
        let data = stalest_first.into_iter().map(item).collect();
        let unreadable = self.unreadable(|row| !row.record_is_readable());
        let limit = page.map(|page| page.limit);
        Ok(ComplianceList { total: self.rows.len(), limit, data, next, unreadable })
    }

    fn revenue(&self) -> RevenueAggregate {
        self.rows.revenue.shown(self.unreadable(|row| !row.history_is_readable))
    }

    fn judge(&self, status: Status, row: &Row, children: u32, now: Timestamp) -> Compliance {
        let attested = Timestamp::from_seconds(row.last_attestation);
        Compliance::judge(status, attested, U256::from(children), self.grace_seconds, now)
    }
}

/// Returns the ids that `recentRegistrations` shows, newest first.
pub(crate) fn recent_ids(total: u64) -> Vec<U256> {
    (1..=total).rev().take(RECENT_REGISTRATIONS).map(U256::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::fixture::agent;
    use proptest::prelude::*;

    fn scan(agents: &[Agent]) -> Scan {
        Scan::of_agents(Address::ZERO, String::new(), U256::from(604_800), agents, [])
    }

    fn body(scan: &Scan, target: &str) -> serde_json::Value {
        let route = Route::parse(&format!("/api/v1/{target}")).unwrap();
        let document = scan.document(&route, Timestamp::from_seconds(9)).unwrap();
        serde_json::from_str(&document.body).unwrap()
    }

    /// Returns agents from id 1 on that last attested at these seconds.
    fn attested_at(seconds: &[u64]) -> Vec<Agent> {
        let agent = |(seconds, id): (&u64, u64)| Agent {
            last_attestation: Timestamp::from_seconds(*seconds),
            ..agent(id)
        };
        seconds.iter().zip(1..).map(agent).collect()
    }

    #[test]
    fn unreadable_agents_are_named_where_they_are_left_out() {
        let mut scan = scan(&(1..=3).map(agent).collect::<Vec<_>>());
        let heavy = Row { history_is_readable: false, ..Row::from(&agent(2)) };
        let slice = Slice { rows: vec![heavy, Row::UNREADABLE], ..Slice::default() };
        Arc::make_mut(&mut scan.rows).fold(2, slice);
        for (target, unreadable, field, expected) in [
            ("stats/detailed", "[2,3]", "complianceRate", r#""100.0""#),
            ("revenue/aggregate", "[2,3]", "totalReports", "0"),
            ("agents?status=Active", "[3]", "total", "2"),
            ("agents/compliance", "[3]", "total", "3"),
        ] {
            let body = body(&scan, target);
            let found = ["unreadable", field].map(|field| body[field].to_string());
            assert_eq!(found, [unreadable, expected], "{target}");
        }
    }

    proptest! {
        #[test]
        fn pages_of_it_stay_where_they_are_while_the_registry_grows(
            stamps in prop::collection::vec(0u64..50, 1..40),
            limit in 1u64..9,
        ) {
            let mut agents = attested_at(&stamps);
            let (now, mut cursor, mut shown) = (Timestamp::from_seconds(60), None, Vec::new());
            let whole = scan(&agents).compliance(None, now).unwrap();
            loop {
                let page = scan(&agents).compliance(Some(CompliancePage { limit, cursor }), now).unwrap();
                prop_assert_eq!((page.limit, page.total), (Some(limit), agents.len()));
                shown.extend(page.data);
                if shown.len() >= whole.data.len() || page.next.is_none() {
                    break;
                }
                cursor = page.next;
                // A new agent has just attested.
                let id = agents.len() as u64 + 1;
                agents.push(Agent { last_attestation: Timestamp::from_seconds(50), ..agent(id) });
            }
            shown.truncate(whole.data.len());
            prop_assert_eq!(shown, whole.data);
        }
    }
}
