//! A liable person and their agents: the answer of `/liable/:wallet`.

use std::collections::BTreeMap;

use alloy_primitives::Address;
use serde::Serialize;

use crate::{
    eth::as_of::IndexedAt,
    eth::json,
    eth::timestamp::Timestamp,
    registry::agent::{AgentId, AgentSummary, Status},
    registry::cursor::AgentCursor,
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

/// The answer of `/liable/:wallet`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Liable {
    /// The person.
    #[serde(with = "json::Checksummed")]
    pub haftungsperson: Address,
    /// How many agents name this person, of any status.
    pub total: u64,
    /// Agents per status; all four keys are always there.
    #[serde(with = "ByStatus")]
    pub status_distribution: BTreeMap<Status, u64>,
    /// How many are Active with a current attestation.
    pub compliant_count: u64,
    /// How many are Active with a lapsed attestation.
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
    /// A person without agents.
    pub fn none(haftungsperson: Address, limit: u64, as_of: IndexedAt) -> Self {
        Self { haftungsperson, status_distribution: ByStatus::zeros(), limit, as_of, ..Self::default() }
    }
}
