//! Know your agent: the verdict on a wallet.

use alloc::string::String;

use alloy_primitives::{Address, U256};
use serde::Serialize;

use crate::{
    agent::{Agent, AgentId, Status},
    compliance::{Compliance, lapses_at},
    json,
    timestamp::Timestamp,
};

/// The KYA result of `service.md` section 2, the answer of `/kya/:wallet`.
///
/// How to read it: `is_compliant` means provision; registered but not compliant means ask for an attestation;
/// not registered means deny, or ask for registration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kya {
    /// The wallet asked about, checksummed.
    #[serde(serialize_with = "json::address")]
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

/// The reduced agent record inside a [`Kya`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs)] // the fields are the specification's
pub struct KyaAgent {
    pub agent_id: AgentId,
    #[serde(serialize_with = "json::address")]
    pub creator: Address,
    #[serde(serialize_with = "json::address")]
    pub haftungsperson: Address,
    #[serde(serialize_with = "json::address")]
    pub agent_wallet: Address,
    pub operational_scope: String,
    pub status: Status,
    pub registered_at: Timestamp,
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
