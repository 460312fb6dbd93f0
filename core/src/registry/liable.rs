//! A person, and the agents that they are liable for: the answer of `/liable/:wallet`.

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

/// How many attestations `nextLapses` holds at most.
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
    /// The last second at which the agent is compliant, if nobody attests.
    pub compliant_until: Timestamp,
}

/// The answer of `/liable/:wallet`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Liable {
    /// The person.
    #[serde(with = "json::Checksummed")]
    pub haftungsperson: Address,
    /// How many agents name this person, whatever their status.
    pub total: u64,
    /// The same per status; all four keys are always there.
    #[serde(with = "ByStatus")]
    pub status_distribution: BTreeMap<Status, u64>,
    /// Agents that are Active, and whose attestation is current.
    pub compliant_count: u64,
    /// Agents that are Active, and whose attestation has lapsed.
    pub expired_count: u64,
    /// The compliant agents whose attestations lapse next, the soonest first; at most ten.
    pub next_lapses: Vec<Lapse>,
    /// The page size used: what was asked for, cut to the maximum.
    pub limit: u64,
    /// The person's agents by ascending id, from the cursor on.
    pub data: Vec<AgentSummary>,
    /// The cursor of the next page; absent on the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<AgentCursor>,
    /// The block that the answer is as of.
    pub as_of: IndexedAt,
    /// Agents of the registry that cannot be read, and count nowhere above. Absent where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<AgentId>,
}

impl Liable {
    /// A person whom no agent names.
    pub fn of_nobody(haftungsperson: Address, limit: u64, as_of: IndexedAt) -> Self {
        Self {
            haftungsperson,
            total: 0,
            status_distribution: Status::ALL.into_iter().map(|status| (status, 0)).collect(),
            compliant_count: 0,
            expired_count: 0,
            next_lapses: Vec::new(),
            limit,
            data: Vec::new(),
            next: None,
            as_of,
            unreadable: Vec::new(),
        }
    }
}
