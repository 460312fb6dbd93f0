//! Statistics over the whole registry.

use std::collections::BTreeMap;

use alloy_primitives::{Address, U256};
use serde::{Serialize, Serializer};

use crate::{
    eth::json,
    eth::timestamp::Timestamp,
    registry::agent::{Agent, AgentId, Status},
    registry::revenue::Total,
};

/// The most agents in `recentRegistrations` (`service.md` section 8).
pub const RECENT_REGISTRATIONS: usize = 10;

/// The answer of `/stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// Number of agents ever registered.
    #[serde(with = "json::Integer")]
    pub total_agents: U256,
    /// The registry's address.
    #[serde(with = "json::Checksummed")]
    pub registry_address: Address,
    /// Scheme and host of the RPC endpoint.
    pub chain: String,
}

/// An item of `recentRegistrations`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RecentRegistration {
    /// The agent.
    pub agent_id: AgentId,
    /// The wallet that registered it.
    #[serde(with = "json::Checksummed")]
    pub creator: Address,
    /// The wallet of the liable person.
    #[serde(with = "json::Checksummed")]
    pub haftungsperson: Address,
    /// The agent's own wallet.
    #[serde(with = "json::Checksummed")]
    pub agent_wallet: Address,
    /// Time of registration.
    pub registered_at: Timestamp,
    /// Its status.
    pub status: Status,
}

/// The answer of `/stats/detailed`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DetailedStats {
    /// The three fields of `/stats`.
    #[serde(flatten)]
    pub stats: Stats,
    /// Agents per status; all four keys are always there.
    #[serde(with = "ByStatus")]
    pub status_distribution: BTreeMap<Status, u64>,
    /// Agents per generation.
    #[serde(with = "json::IntegersByKey")]
    pub generation_distribution: BTreeMap<U256, u64>,
    /// Compliant agents in percent of all agents, with one decimal place; `"0.0"` where there are none.
    pub compliance_rate: String,
    /// Number of compliant agents.
    pub compliant_count: u64,
    /// Reported revenue in cents, by currency: the hundred largest sums.
    #[serde(with = "json::IntegersByKey")]
    pub total_revenue: BTreeMap<String, Total>,
    /// The sum of the revenue in all other currencies. Absent where there are none.
    #[serde(with = "json::OptionalInteger", skip_serializing_if = "Option::is_none")]
    pub other_revenue: Option<Total>,
    /// The last registered agents, newest first.
    pub recent_registrations: Vec<RecentRegistration>,
    /// Agents with an unreadable record, which count only in `totalAgents`, or with unreadable revenue, which
    /// is not in the sums. Absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<AgentId>,
}

impl DetailedStats {
    /// Makes the statistics of no agents.
    pub(crate) fn empty(stats: Stats) -> Self {
        Self {
            stats,
            status_distribution: ByStatus::zeros(),
            compliance_rate: percentage(0, 0),
            ..Self::default()
        }
    }

    /// Sets the compliance rate, once all agents are counted.
    pub(crate) fn rate(&mut self) {
        self.compliance_rate = percentage(self.compliant_count, self.status_distribution.values().sum());
    }

    /// Counts one agent.
    pub(crate) fn count(&mut self, status: Status, generation: U256, is_compliant: bool) {
        *self.status_distribution.entry(status).or_default() += 1;
        *self.generation_distribution.entry(generation).or_default() += 1;
        self.compliant_count += u64::from(is_compliant);
    }
}

impl From<&Agent> for RecentRegistration {
    fn from(agent: &Agent) -> Self {
        Self {
            agent_id: agent.agent_id,
            creator: agent.creator,
            haftungsperson: agent.haftungsperson,
            agent_wallet: agent.agent_wallet,
            registered_at: agent.registered_at,
            status: agent.status,
        }
    }
}

/// Formats `part` in percent of `whole`, rounded half up to one decimal place.
fn percentage(part: u64, whole: u64) -> String {
    let (part, whole) = (u128::from(part), u128::from(whole.max(1)));
    let tenths = (part * 1000 + whole / 2) / whole;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Serialization of counts by status, for `#[serde(with)]`.
pub(crate) struct ByStatus;

impl ByStatus {
    /// Returns counts of 0 for all four keys.
    pub(crate) fn zeros() -> BTreeMap<Status, u64> {
        Status::ALL.iter().map(|status| (*status, 0)).collect()
    }

    pub(crate) fn serialize<S: Serializer>(
        counts: &BTreeMap<Status, u64>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(counts.iter().map(|(status, count)| (status.name(), count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages_round_half_up_and_never_divide_by_zero() {
        for (part, whole, text) in
            [(0, 0, "0.0"), (0, 7, "0.0"), (1, 3, "33.3"), (2, 3, "66.7"), (1, 16, "6.3"), (7, 7, "100.0")]
        {
            assert_eq!(percentage(part, whole), text);
        }
    }
}
