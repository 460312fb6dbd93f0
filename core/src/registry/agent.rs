//! One agent: its id, its status, and the documented shapes of its record.

use std::fmt;

use alloy_primitives::{Address, B256, U256};
use serde::{Serialize, Serializer};
use strum::VariantArray as _;

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
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Status {
    /// In good standing.
    Active,
    /// Stopped by a regulator, which may reactivate or revoke it.
    Suspended,
    /// Ended by a regulator; its wallet is free again.
    Revoked,
    /// Ended by its own side; its wallet is free again.
    Terminated,
}

impl Status {
    /// All statuses, in the order of the contract's numbers.
    pub const ALL: &[Self] = Self::VARIANTS;

    /// Returns the name in the API.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Returns the status with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|status| status.name() == name)
    }

    /// Returns whether the status is final, so that the agent's wallet is free again.
    pub const fn has_ended(self) -> bool {
        matches!(self, Self::Revoked | Self::Terminated)
    }

    /// Returns the status with the contract's number; `None` for a number that the contract does not define.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }
}

/// The result of reading an agent by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fetched<T> {
    /// The agent.
    Found(Box<T>),
    /// The registry has no such agent.
    Absent,
    /// The agent's record cannot be read.
    Unreadable,
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
    /// The wallet of the liable person.
    #[serde(with = "json::Checksummed")]
    pub haftungsperson: Address,
    /// The agent's own wallet.
    #[serde(with = "json::Checksummed")]
    pub agent_wallet: Address,
    /// Hash of the rules that it claims to follow.
    #[serde(with = "json::Hash")]
    pub constitution_hash: B256,
    /// Hash of the capabilities that it claims.
    #[serde(with = "json::Hash")]
    pub capability_hash: B256,
    /// Its purpose: free text, given at registration.
    pub operational_scope: String,
    /// The agent it descends from; 0 for a root.
    pub parent_agent_id: AgentId,
    /// Its depth in the lineage; 0 for a root.
    #[serde(with = "json::Integer")]
    pub generation: U256,
    /// True if it may change its own code.
    pub self_modifying: bool,
    /// Time of registration.
    pub registered_at: Timestamp,
    /// Time of its last attestation.
    pub last_attestation: Timestamp,
    /// Time of its last revenue report; 1970-01-01T00:00:00.000Z if it never reported any.
    pub last_revenue_report: Timestamp,
    /// Its status.
    pub status: Status,
}

/// A record with a status number that the contract does not define.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("agent {agent_id} has the unknown status {number}")]
pub struct UnknownStatus {
    /// The agent.
    pub agent_id: U256,
    /// The number in its record.
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
