//! A registry, as plain lists.

use std::{cell::OnceCell, fmt};

use alloy_primitives::{Address, B256, U256};
use alloy_sol_types::{Revert, SolError, SolInterface, SolValue};
use registry_core::eth::abi::{AgentRecord, IAgentRegistry::IAgentRegistryCalls as Calls, RevenueReport};
use registry_core::{api::scan::Scan, eth::timestamp::Timestamp, registry::agent::Agent};
use serde_json::{Value, json};

use super::{NOW, REGISTRY};

#[derive(Clone, Debug, Default)]
pub(crate) struct PlainRegistry {
    /// Agent 1 is the first.
    pub(crate) agents: Vec<AgentRecord>,
    pub(crate) reports: Vec<RevenueReport>,
    /// `None`: a contract without `attestationGracePeriod()`.
    pub(crate) grace_seconds: Option<u64>,
    pub(crate) roots: Roots,
}

/// The roots of the registry's storage and of the state with it, once a node has served them. A copy, which
/// may be changed, has none.
#[derive(Default)]
pub(crate) struct Roots(pub(crate) OnceCell<(B256, B256)>);

impl Clone for Roots {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Roots {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

impl PlainRegistry {
    /// Creates `count` active agents, all children of agent 1 except itself.
    pub(crate) fn with_agents(count: u64) -> Self {
        let agents = (1..=count).map(|id| record(id, u64::from(id > 1))).collect();
        Self { agents, grace_seconds: Some(604_800), ..Self::default() }
    }

    /// Returns the scan of this registry.
    pub(crate) fn scan(&self) -> Scan {
        let agents = self.agents.iter().map(|agent| Agent::try_from(agent.clone()).unwrap());
        let (agents, grace) = (agents.collect::<Vec<_>>(), U256::from(self.grace_seconds.unwrap()));
        Scan::of_agents(REGISTRY, "http://node".into(), grace, &agents, &self.reports)
    }

    /// Answers a call: return data, or revert data, which is empty for an unknown function.
    pub(super) fn call(&self, data: &[u8]) -> Result<Vec<u8>, Vec<u8>> {
        let revert = |reason: &str| Err(Revert::from(reason).abi_encode());
        let Ok(call) = Calls::abi_decode(data) else { return Err(Vec::new()) };
        let agent = |id: U256| self.agents.get(usize::try_from(id).ok()?.checked_sub(1)?);
        match call {
            Calls::getAgent(call) => match agent(call.agentId) {
                // The lens cannot read it, either.
                Some(record) if record.status == 255 => Err(Vec::new()),
                Some(record) => Ok(record.abi_encode()),
                None => revert("Agent not found"),
            },
            Calls::getAgentByWallet(call) => {
                match self.agents.iter().find(|agent| agent.agentWallet == call.wallet && agent.status < 2) {
                    Some(record) => Ok(record.abi_encode()),
                    None => revert("No agent registered for this wallet"),
                }
            }
            Calls::getChildren(call) => {
                let of = |agent: &&AgentRecord| agent.parentAgentId == call.agentId;
                Ok(self.agents.iter().filter(of).map(|agent| agent.agentId).collect::<Vec<_>>().abi_encode())
            }
            Calls::getRevenueHistory(call) => {
                let of = |report: &&RevenueReport| report.agentId == call.agentId;
                Ok(self.reports.iter().filter(of).cloned().collect::<Vec<_>>().abi_encode())
            }
            Calls::complianceStatus(call) => match agent(call.agentId) {
                Some(record) => {
                    let of = |agent: &&AgentRecord| agent.parentAgentId == call.agentId;
                    let children = U256::from(self.agents.iter().filter(of).count());
                    Ok((record.status == 0, true, 0_u64, children, U256::from(record.status))
                        .abi_encode_params())
                }
                None => revert("Agent not found"),
            },
            Calls::nextAgentId(_) => Ok(U256::from(self.agents.len() + 1).abi_encode()),
            Calls::attestationGracePeriod(_) => match self.grace_seconds {
                Some(seconds) => Ok(U256::from(seconds).abi_encode()),
                None => Err(Vec::new()),
            },
            _ => Err(Vec::new()),
        }
    }
}

pub(crate) fn record(id: u64, parent: u64) -> AgentRecord {
    AgentRecord {
        agentId: U256::from(id),
        creator: Address::repeat_byte(1),
        haftungsperson: Address::repeat_byte(2),
        agentWallet: Address::left_padding_from(&id.to_be_bytes()),
        constitutionHash: B256::repeat_byte(3),
        capabilityHash: B256::repeat_byte(4),
        operationalScope: format!("scope {id}"),
        parentAgentId: U256::from(parent),
        generation: U256::from(u64::from(parent > 0)),
        selfModifying: false,
        registeredAt: NOW - 1_000,
        lastAttestation: NOW - 1_000,
        lastRevenueReport: 0,
        status: 0,
    }
}

/// Returns a report of agent `id`, distinguished by its amount.
pub(crate) fn report(id: u64, amount: u64) -> RevenueReport {
    RevenueReport {
        agentId: U256::from(id),
        amount: U256::from(amount),
        currency: "EUR".into(),
        category: "api".into(),
        periodStart: 5,
        periodEnd: 7,
        reportedAt: NOW - 500,
    }
}

pub(crate) fn is_compliant(agent: &AgentRecord, grace: u64, now: u64) -> bool {
    agent.status == 0 && now.saturating_sub(agent.lastAttestation) <= grace
}

pub(crate) const STATUSES: [&str; 4] = ["Active", "Suspended", "Revoked", "Terminated"];

/// Returns a time as documents write it.
pub(crate) fn time(seconds: u64) -> String {
    Timestamp::from_seconds(seconds).to_string()
}

/// Returns these members of a record as documents show it; all of them if none is named.
pub(crate) fn shown(agent: &AgentRecord, members: &str) -> Value {
    let mut shown = json!({
        "agentId": agent.agentId.to::<u64>(), "creator": agent.creator.to_checksum(None),
        "haftungsperson": agent.haftungsperson.to_checksum(None),
        "agentWallet": agent.agentWallet.to_checksum(None), "constitutionHash": agent.constitutionHash,
        "capabilityHash": agent.capabilityHash, "operationalScope": agent.operationalScope,
        "parentAgentId": agent.parentAgentId.to::<u64>(), "generation": agent.generation.to::<u64>(),
        "selfModifying": agent.selfModifying, "registeredAt": time(agent.registeredAt),
        "lastAttestation": time(agent.lastAttestation), "lastRevenueReport": time(agent.lastRevenueReport),
        "status": STATUSES[usize::from(agent.status)],
    });
    let is_asked = |name: &str| members.is_empty() || members.split(' ').any(|member| member == name);
    shown.as_object_mut().unwrap().retain(|name, _| is_asked(name));
    shown
}
