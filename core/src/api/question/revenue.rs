//! An agent's revenue reports. The contract returns the whole history at once, so one read serves all pages.

use alloy_primitives::Address;

use crate::{
    api::{document::Document, error::Error, route::Route},
    chain::{Halt, Query, View, reader::Registry},
    eth::abi::{IAgentRegistry::getRevenueHistoryCall, RevenueReport},
    registry::{agent::AgentId, revenue::RevenueHistory},
};

/// A query for an agent's whole history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RevenueQuery {
    /// The registry's address.
    pub registry: Address,
    /// The agent.
    pub id: AgentId,
}

impl Query for RevenueQuery {
    type Output = RevenueReports;
    type Error = Error;

    fn resolve(&self, view: &View) -> Result<RevenueReports, Halt<Error>> {
        Ok(RevenueReports::read(&Registry { view, address: self.registry }, self.id)?)
    }

    fn is_one_round(&self) -> bool {
        true
    }
}

/// An agent's whole history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevenueReports(Vec<RevenueReport>);

impl RevenueReports {
    pub(super) fn read(registry: &Registry<'_>, id: AgentId) -> Result<Self, Halt> {
        let reports = registry.call(&getRevenueHistoryCall { agentId: id.0 });
        // An unknown agent's history may be empty instead of an error; its record is an error in any case.
        registry.agent(id)?;
        Ok(Self(reports?))
    }

    pub(super) fn page(&self, offset: u64, limit: u64) -> RevenueHistory {
        RevenueHistory::of(&self.0, offset, limit)
    }

    /// Returns the page of the history that a [`Route::Revenue`] asks for; an empty one for another route.
    pub fn document(&self, route: &Route) -> Document {
        let (offset, limit) = match *route {
            Route::Revenue { offset, limit, .. } => (offset, limit),
            _ => (0, 0),
        };
        Document::of(self.page(offset, limit), route)
    }

    /// Returns the size in memory, in bytes.
    pub fn size_bytes(&self) -> usize {
        let texts = |report: &RevenueReport| report.currency.capacity() + report.category.capacity();
        self.0.capacity() * size_of::<RevenueReport>() + self.0.iter().map(texts).sum::<usize>()
    }
}
