//! Know your agent: the verdict on a wallet.

use alloy_primitives::{Address, U256};
use serde::Serialize;

use crate::{
    agent::{Agent, AgentId, Status},
    compliance::{Compliance, lapses_at},
    json,
    timestamp::Timestamp,
};

/// The verdict on a wallet (`service.md` section 2), the answer of `/kya/:wallet`.
///
/// How to read it: compliant means provision; registered but not compliant means ask for an attestation; not
/// registered means deny, or ask for registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Kya {
    /// The wallet asked about, checksummed.
    #[serde(with = "json::Checksummed")]
    pub wallet: Address,
    /// A live agent has this wallet.
    pub is_registered: bool,
    /// That agent is Active and its attestation current.
    pub is_compliant: bool,
    /// The agent, in short; `null` where there is none.
    pub agent: Option<KyaAgent>,
    /// When the verdict was given, by the host's clock.
    pub checked_at: Timestamp,
    /// The first second at which the attestation is no longer current; `None` where no time changes the verdict.
    #[serde(skip)]
    pub valid_until: Option<Timestamp>,
}

/// An agent's record, reduced to what a verdict on its wallet needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct KyaAgent {
    /// The agent's id.
    pub agent_id: AgentId,
    /// The wallet that registered it.
    #[serde(with = "json::Checksummed")]
    pub creator: Address,
    /// The wallet of the person who is liable for it.
    #[serde(with = "json::Checksummed")]
    pub haftungsperson: Address,
    /// The agent's own wallet: the one asked about.
    #[serde(with = "json::Checksummed")]
    pub agent_wallet: Address,
    /// What it says it is for: free text by whoever registered it.
    pub operational_scope: String,
    /// Its state.
    pub status: Status,
    /// When it was registered.
    pub registered_at: Timestamp,
    /// When it last attested its compliance.
    pub last_attestation: Timestamp,
}

impl Kya {
    /// The verdict on `wallet` at `now`; `agent` is the live agent the registry has for it.
    pub fn of(wallet: Address, agent: Option<Agent>, grace_seconds: U256, now: Timestamp) -> Self {
        let is_compliant = agent
            .as_ref()
            .is_some_and(|agent| Compliance::of(agent, U256::ZERO, grace_seconds, now).is_compliant());
        let valid_until =
            agent.as_ref().filter(|_| is_compliant).and_then(|agent| lapses_at(agent, grace_seconds));
        Self {
            wallet,
            is_registered: agent.is_some(),
            is_compliant,
            agent: agent.map(KyaAgent::from),
            checked_at: now,
            valid_until,
        }
    }
}

impl From<Agent> for KyaAgent {
    fn from(agent: Agent) -> Self {
        Self {
            agent_id: agent.agent_id,
            creator: agent.creator,
            haftungsperson: agent.haftungsperson,
            agent_wallet: agent.agent_wallet,
            operational_scope: agent.operational_scope,
            status: agent.status,
            registered_at: agent.registered_at,
            last_attestation: agent.last_attestation,
        }
    }
}
