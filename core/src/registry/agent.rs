//! One agent: its id, its status, and the documented shapes of its record.

use std::fmt;

use alloy_primitives::{Address, B256, U256};
use serde::{Serialize, Serializer};

use crate::{eth::abi::AgentRecord, eth::json, eth::timestamp::Timestamp};

/// An agent's id: a `uint256` of the registry, counted from 1. Serializes as a JSON number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentId(pub U256);

impl fmt::Display for AgentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<u64> for AgentId {
    fn from(id: u64) -> Self {
        Self(U256::from(id))
    }
}

impl Serialize for AgentId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        json::Integer::serialize(&self.0, serializer)
    }
}

/// An agent's state (`service.md` section 3). Revoked and Terminated are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Status {
    /// In good standing.
    Active,
    /// Stopped by a regulator, who may reactivate or revoke it.
    Suspended,
    /// Ended by a regulator; its wallet is free again.
    Revoked,
    /// Ended by its own side; its wallet is free again.
    Terminated,
}

impl Status {
    /// All of them, in the order of the contract's numbers.
    pub const ALL: [Self; 4] = [Self::Active, Self::Suspended, Self::Revoked, Self::Terminated];

    /// The name the API uses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Suspended => "Suspended",
            Self::Revoked => "Revoked",
            Self::Terminated => "Terminated",
        }
    }

    /// The status of that name, exactly as documented.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.name() == name)
    }

    /// Whether it is final: the agent's wallet is free again.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Revoked | Self::Terminated)
    }

    /// The status behind the contract's number; `None` for a number it does not define.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// An agent's record (`service.md` section 2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// The agent's id.
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
    /// Hash of the rules it says it follows.
    #[serde(with = "json::Hash")]
    pub constitution_hash: B256,
    /// Hash of what it says it can do.
    #[serde(with = "json::Hash")]
    pub capability_hash: B256,
    /// What it says it is for: free text by whoever registered it.
    pub operational_scope: String,
    /// The agent it descends from; 0 for a root.
    pub parent_agent_id: AgentId,
    /// Its depth in the lineage; 0 for a root.
    #[serde(with = "json::Integer")]
    pub generation: U256,
    /// It may change its own code.
    pub self_modifying: bool,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// When it last attested its compliance.
    pub last_attestation: Timestamp,
    /// When it last reported revenue; 1970-01-01T00:00:00.000Z if it never did.
    pub last_revenue_report: Timestamp,
    /// Its state.
    pub status: Status,
}

/// The registry gave a status number that it does not define.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("agent {agent_id} has the unknown status {number}")]
pub struct UnknownStatus {
    /// The agent whose record says so.
    pub agent_id: U256,
    /// The number found.
    pub number: u8,
}

impl TryFrom<AgentRecord> for Agent {
    type Error = UnknownStatus;

    fn try_from(record: AgentRecord) -> Result<Self, UnknownStatus> {
        let status = Status::from_number(record.status)
            .ok_or(UnknownStatus { agent_id: record.agentId, number: record.status })?;
        Ok(Self {
            agent_id: AgentId(record.agentId),
            creator: record.creator,
            haftungsperson: record.haftungsperson,
            agent_wallet: record.agentWallet,
            constitution_hash: record.constitutionHash,
            capability_hash: record.capabilityHash,
            operational_scope: record.operationalScope,
            parent_agent_id: AgentId(record.parentAgentId),
            generation: record.generation,
            self_modifying: record.selfModifying,
            registered_at: Timestamp::from_seconds(record.registeredAt),
            last_attestation: Timestamp::from_seconds(record.lastAttestation),
            last_revenue_report: Timestamp::from_seconds(record.lastRevenueReport),
            status,
        })
    }
}

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
    /// Its state.
    pub status: Status,
    /// When it was registered.
    pub registered_at: Timestamp,
}

impl From<&Agent> for AgentListItem {
    fn from(agent: &Agent) -> Self {
        Self {
            agent_id: agent.agent_id,
            creator: agent.creator,
            status: agent.status,
            registered_at: agent.registered_at,
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
    /// The wallet of the person who is liable for it.
    #[serde(with = "json::Checksummed")]
    pub haftungsperson: Address,
    /// The agent's own wallet.
    #[serde(with = "json::Checksummed")]
    pub agent_wallet: Address,
    /// The beginning of what it says it is for: 256 bytes at most, where `/agent/:id` has it all.
    pub operational_scope: String,
    /// The agent it descends from; 0 for a root.
    pub parent_agent_id: AgentId,
    /// Its depth in the lineage; 0 for a root.
    pub generation: u64,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// When it last attested its compliance.
    pub last_attestation: Timestamp,
    /// Its state.
    pub status: Status,
    /// It is Active, and its attestation is current.
    pub is_compliant: bool,
}
