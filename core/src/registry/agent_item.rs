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
    /// When it was registered.
    pub registered_at: Timestamp,
    /// Its liable wallet, and what ties it to the agent. Absent in a list of one status that is read from the
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
    /// What ties that wallet to the agent.
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
    /// When it was registered.
    pub registered_at: Timestamp,
    /// When it last attested its compliance.
    pub last_attestation: Timestamp,
    /// Its status.
    pub status: Status,
    /// Whether it is Active and its attestation current.
    pub is_compliant: bool,
}
