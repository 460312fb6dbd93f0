//! Statistics over the whole registry.

use alloc::{collections::BTreeMap, format, string::String, vec::Vec};

use alloy_primitives::{Address, U256};
use serde::{Serialize, Serializer};

use crate::{
    abi::RevenueReport,
    agent::{Agent, AgentId, Status},
    compliance::Compliance,
    json,
    revenue::{RevenueAggregate, Total},
    timestamp::Timestamp,
};

/// How many agents `recentRegistrations` holds at most (`service.md` section 8).
pub const RECENT_REGISTRATIONS: usize = 10;

/// The answer of `/stats`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// How many agents were ever registered.
    #[serde(with = "json::Integer")]
    pub total_agents: U256,
    /// The registry's address.
    #[serde(with = "json::Checksummed")]
    pub registry_address: Address,
    /// The RPC endpoint, scheme and host only.
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
    /// The wallet of the person who is liable for it.
    #[serde(with = "json::Checksummed")]
    pub haftungsperson: Address,
    /// The agent's own wallet.
    #[serde(with = "json::Checksummed")]
    pub agent_wallet: Address,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// Its state.
    pub status: Status,
}

/// The answer of `/stats/detailed`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
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
    /// How many agents are compliant.
    pub compliant_count: u64,
    /// Reported revenue in cents, by currency.
    #[serde(with = "json::IntegersByKey")]
    pub total_revenue: BTreeMap<String, Total>,
    /// The last registered agents, newest first.
    pub recent_registrations: Vec<RecentRegistration>,
}

impl DetailedStats {
    /// Counts over all `agents` (by ascending id) and all their `reports`, at `now`.
    pub fn of<'a>(
        stats: Stats,
        agents: &[Agent],
        reports: impl IntoIterator<Item = &'a RevenueReport>,
        grace_seconds: U256,
        now: Timestamp,
    ) -> Self {
        let mut status_distribution: BTreeMap<_, _> =
            Status::ALL.into_iter().map(|status| (status, 0)).collect();
        let mut generation_distribution = BTreeMap::new();
        let mut compliant_count = 0;
        for agent in agents {
            *status_distribution.entry(agent.status).or_default() += 1;
            *generation_distribution.entry(agent.generation).or_default() += 1;
            let compliance = Compliance::of(agent, U256::ZERO, grace_seconds, now);
            compliant_count += u64::from(compliance.is_compliant());
        }
        Self {
            stats,
            status_distribution,
            generation_distribution,
            compliance_rate: percentage(compliant_count, agents.len() as u64),
            compliant_count,
            total_revenue: RevenueAggregate::of(reports).by_currency,
            recent_registrations: agents.iter().rev().take(RECENT_REGISTRATIONS).map(Into::into).collect(),
        }
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

/// `part` in percent of `whole`, rounded half up to one decimal place.
fn percentage(part: u64, whole: u64) -> String {
    let (part, whole) = (u128::from(part), u128::from(whole.max(1)));
    let tenths = (part * 1000 + whole / 2) / whole;
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Counts by status, for `#[serde(with)]`.
pub(crate) struct ByStatus;

impl ByStatus {
    fn serialize<S: Serializer>(counts: &BTreeMap<Status, u64>, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(counts.iter().map(|(status, count)| (status.name(), count)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::agent;

    #[test]
    fn percentages_round_half_up_and_never_divide_by_zero() {
        for (part, whole, text) in
            [(0, 0, "0.0"), (0, 7, "0.0"), (1, 3, "33.3"), (2, 3, "66.7"), (1, 16, "6.3"), (7, 7, "100.0")]
        {
            assert_eq!(percentage(part, whole), text);
        }
    }

    #[test]
    fn the_last_ten_come_newest_first() {
        let agents: Vec<_> = (1..=13).map(agent).collect();
        let stats =
            Stats { total_agents: U256::from(13), registry_address: Address::ZERO, chain: String::new() };
        let detailed = DetailedStats::of(stats, &agents, [], U256::ZERO, Timestamp::from_seconds(0));
        let ids: Vec<u64> =
            detailed.recent_registrations.iter().map(|recent| recent.agent_id.0.to::<u64>()).collect();
        assert_eq!(ids, (4..=13).rev().collect::<Vec<_>>());
        assert_eq!(detailed.status_distribution[&Status::Active], 13);
        assert_eq!(detailed.status_distribution.len(), 4);
    }
}
