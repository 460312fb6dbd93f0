//! The agents of a liable person: the answer of `/liable/:wallet`.

use std::collections::BTreeMap;

use alloy_primitives::Address;
use serde::Serialize;

use crate::{
    eth::as_of::IndexedAt,
    eth::json,
    eth::timestamp::Timestamp,
    registry::agent::{AgentId, Status},
    registry::agent_item::AgentSummary,
    registry::cursor::AgentCursor,
    registry::liability::Basis,
    registry::stats::ByStatus,
};

/// The most attestations in `nextLapses`.
pub const NEXT_LAPSES: u64 = 10;

/// An attestation that will lapse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Lapse {
    /// The agent.
    pub agent_id: AgentId,
    /// The agent's own wallet.
    #[serde(with = "json::Checksummed")]
    pub agent_wallet: Address,
    /// The last second at which the agent is compliant without another attestation.
    pub compliant_until: Timestamp,
}

/// Numbers of a person's agents by the basis of the liability.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ByBasis {
    /// The person sent or signed the registration.
    pub registered: u64,
    /// The person attested or reported revenue in the last 90 days.
    pub attested: u64,
    /// The person is known to have done neither.
    pub named: u64,
    /// Not all events of the agent are known.
    pub unknown: u64,
}

impl ByBasis {
    /// Counts an agent. Lists have no acceptances.
    pub(crate) const fn count(&mut self, basis: Basis) {
        let count = match basis {
            Basis::Registered => &mut self.registered,
            Basis::Attested => &mut self.attested,
            Basis::Named => &mut self.named,
            Basis::Accepted | Basis::Unknown => &mut self.unknown,
        };
        *count += 1;
    }
}

/// The answer of `/liable/:wallet`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Liable {
    /// The person.
    #[serde(with = "json::Checksummed")]
    pub haftungsperson: Address,
    /// Number of agents of any status that name this person.
    pub total: u64,
    /// Agents per status; all four keys are always there.
    #[serde(with = "ByStatus")]
    pub status_distribution: BTreeMap<Status, u64>,
    /// Agents by basis; absent if there are too many to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basis_distribution: Option<ByBasis>,
    /// Number of agents that are Active with a current attestation.
    pub compliant_count: u64,
    /// Number of agents that are Active with a lapsed attestation.
    pub expired_count: u64,
    /// The next lapses of compliant agents, the soonest first; at most ten.
    pub next_lapses: Vec<Lapse>,
    /// The page size used: the one requested, capped.
    pub limit: u64,
    /// The person's agents by ascending id, from the cursor on.
    pub data: Vec<AgentSummary>,
    /// The cursor of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<AgentCursor>,
    /// The block of the answer.
    pub as_of: IndexedAt,
    /// Unreadable agents of the registry, which count nowhere above. Absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<AgentId>,
}

impl Liable {
    /// Makes the answer for a person without agents.
    pub fn none(haftungsperson: Address, limit: u64, as_of: IndexedAt) -> Self {
        Self { haftungsperson, status_distribution: ByStatus::zeros(), limit, as_of, ..Self::default() }
    }
}
