//! Agents as lists show them.

use alloy_primitives::Address;
use serde::Serialize;

use crate::{
    eth::json,
    eth::timestamp::Timestamp,
    registry::agent::{Agent, AgentId, Status},
    registry::liability::Liability,
};

/// An item of `/agents`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AgentListItem {
    /// The agent.
    pub agent_id: AgentId,
    /// The wallet that registered it.
    #[serde(with = "json::Checksummed")]
    pub creator: Address,
    /// Its status.
    pub status: Status,
    /// Time of registration.
    pub registered_at: Timestamp,
    /// Its liable wallet and the basis of its liability. Absent in a list of one status that is read from the
    /// chain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub liability: Option<Liability>,
}

impl From<&Agent> for AgentListItem {
    fn from(agent: &Agent) -> Self {
        Self {
            agent_id: agent.agent_id,
            creator: agent.creator,
            status: agent.status,
            registered_at: agent.registered_at,
            liability: Some(Liability::of_record(agent)),
        }
    }
}

/// An agent in a list from the registry's index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AgentSummary {
    /// The agent.
    pub agent_id: AgentId,
    /// The wallet that registered it.
    #[serde(with = "json::Checksummed")]
    pub creator: Address,
    /// The wallet of the liable person.
    #[serde(with = "json::Checksummed")]
    pub haftungsperson: Address,
    /// That wallet and the basis of its liability.
    pub liability: Liability,
    /// The agent's own wallet.
    #[serde(with = "json::Checksummed")]
    pub agent_wallet: Address,
    /// The beginning of its purpose, at most 256 bytes; `/agent/:id` has all of it.
    pub operational_scope: String,
    /// The agent it descends from; 0 for a root.
    pub parent_agent_id: AgentId,
    /// Its depth in the lineage; 0 for a root.
    pub generation: u64,
    /// Time of registration.
    pub registered_at: Timestamp,
    /// Time of its last attestation.
    pub last_attestation: Timestamp,
    /// Its status.
    pub status: Status,
    /// True if it is Active and its attestation current.
    pub is_compliant: bool,
}
