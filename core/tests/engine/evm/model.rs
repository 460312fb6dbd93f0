//! The registry as plain lists and plain rules, written from the specification and from nothing else.

use std::{collections::BTreeMap, fmt};

use alloy_primitives::{hex, keccak256};
use alloy_sol_types::SolInterface;
use registry_core::eth::abi::IAgentRegistry::{IAgentRegistryCalls as Calls, registerAgentCall};
use registry_core::eth::abi::RevenueReport;
use serde_json::Map;

use crate::common::prelude::*;

/// Number of wallets that agents share.
pub(crate) const WALLETS: usize = 5;

/// Returns the address of an actor: 0 owns the registry, 4 is the haftungsperson of every agent.
pub(crate) fn actor(index: usize) -> Address {
    Address::with_last_byte(0xa0 + index as u8)
}

pub(crate) fn wallet(index: usize) -> Address {
    match u8::try_from(0xb0 + index) {
        Ok(byte) => Address::repeat_byte(byte),
        Err(_) => Address::left_padding_from(&index.to_be_bytes()),
    }
}

/// Returns the registration of an agent that the actor 4 is liable for.
pub(crate) fn registration(wallet: Address, parent: u64, scope: &str) -> registerAgentCall {
    registerAgentCall {
        haftungsperson: actor(4),
        agentWallet: wallet,
        constitutionHash: keccak256(scope),
        capabilityHash: B256::ZERO,
        operationalScope: scope.to_owned(),
        parentAgentId: U256::from(parent),
        selfModifying: false,
    }
}

/// A write to the registry by an actor, or seconds that pass.
#[derive(Clone)]
pub(crate) enum Op {
    Call(usize, Calls),
    Wait(u64),
}

impl Op {
    pub(crate) fn register(by: usize, wallet: Address, parent: u64, scope: &str) -> Self {
        Self::Call(by, Calls::registerAgent(registration(wallet, parent, scope)))
    }
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(seconds) => write!(f, "Wait({seconds})"),
            Self::Call(by, call) => {
                let name = Calls::name_by_selector(call.selector()).unwrap_or_default();
                write!(f, "{name} by {by} {}", hex::encode(&call.abi_encode()[4..]))
            }
        }
    }
}

#[derive(Default)]
pub(crate) struct Model(PlainRegistry);

impl Model {
    pub(crate) fn apply(&mut self, op: &Op, now: u64) -> Result<(), String> {
        let Op::Call(by, call) = op else { return Ok(()) };
        match call {
            Calls::registerAgent(new) => {
                let mut generation = U256::ZERO;
                if new.parentAgentId > U256::ZERO {
                    let parent = self.agent(new.parentAgentId).ok_or("Parent agent not found")?;
                    check(parent.status == 0, "Parent agent not active")?;
                    generation = parent.generation + U256::from(1);
                    check(generation <= U256::from(10), "Max generation depth exceeded")?;
                }
                let mut holders = self.of_wallet(new.agentWallet).filter(|agent| agent.status < 2);
                check(holders.next().is_none(), "Wallet already registered to another agent")?;
                drop(holders);
                self.0.agents.push(AgentRecord {
                    creator: actor(*by),
                    haftungsperson: new.haftungsperson,
                    agentWallet: new.agentWallet,
                    constitutionHash: new.constitutionHash,
                    capabilityHash: new.capabilityHash,
                    operationalScope: new.operationalScope.clone(),
                    parentAgentId: new.parentAgentId,
                    generation,
                    selfModifying: new.selfModifying,
                    registeredAt: now,
                    lastAttestation: now,
                    ..record(self.0.agents.len() as u64 + 1, 0)
                });
            }
            Calls::attestCompliance(call) => self.own(*by, call.agentId)?.lastAttestation = now,
            Calls::reportRevenue(new) => {
                self.own(*by, new.agentId)?.lastRevenueReport = now;
                self.0.reports.push(RevenueReport {
                    agentId: new.agentId,
                    amount: new.amount,
                    currency: new.currency.clone(),
                    category: new.category.clone(),
                    periodStart: new.periodStart,
                    periodEnd: new.periodEnd,
                    reportedAt: now,
                });
            }
            Calls::terminateSelf(call) => self.own(*by, call.agentId)?.status = 3,
            Calls::suspendAgent(call) => self.regulate(*by, call.agentId, &[0], 1)?,
            Calls::revokeAgent(call) => self.regulate(*by, call.agentId, &[0, 1], 2)?,
            Calls::reactivateAgent(call) => self.regulate(*by, call.agentId, &[1], 0)?,
            _ => panic!("{op:?}"),
        }
        Ok(())
    }

    fn agent(&self, id: U256) -> Option<&AgentRecord> {
        self.0.agents.get(id.to::<usize>().checked_sub(1)?)
    }

    fn of_wallet(&self, wallet: Address) -> impl DoubleEndedIterator<Item = &AgentRecord> {
        self.0.agents.iter().filter(move |agent| agent.agentWallet == wallet)
    }

    /// Returns the active agent, for its creator or haftungsperson.
    fn own(&mut self, by: usize, id: U256) -> Result<&mut AgentRecord, String> {
        let agent = self.agent(id).ok_or("Agent not found")?;
        check(agent.creator == actor(by) || by == 4, "Not authorized for this agent")?;
        check(agent.status == 0, "Agent not active")?;
        Ok(&mut self.0.agents[id.to::<usize>() - 1])
    }

    /// Sets another status of an agent that has one of `from`.
    fn regulate(&mut self, by: usize, id: U256, from: &[u8], to: u8) -> Result<(), String> {
        check(by == 0, "Only regulator")?;
        let agent = self.agent(id).ok_or("Agent not found")?;
        let otherwise = if to == 0 { "Only suspended agents can be reactivated" } else { "Agent not active" };
        check(from.contains(&agent.status), otherwise)?;
        self.0.agents[id.to::<usize>() - 1].status = to;
        Ok(())
    }

    /// Returns every endpoint, every agent, every wallet, and some that are not there.
    pub(crate) fn questions(&self) -> Vec<String> {
        let fixed = "stats stats/detailed agents agents?limit=3&page=2 agents/compliance revenue/aggregate";
        let mut questions: Vec<String> = fixed.split(' ').map(str::to_owned).collect();
        questions.extend(STATUSES.map(|status| format!("agents?limit=2&status={status}")));
        for id in 0..=self.0.agents.len() + 1 {
            let parts = ["", "/lineage", "/ancestors", "/revenue", "/revenue?offset=1&limit=1"];
            questions.extend(parts.map(|part| format!("agent/{id}{part}")));
        }
        for query in ["", "?history=1"] {
            questions.extend((0..=WALLETS).map(|index| format!("kya/{}{query}", wallet(index))));
        }
        questions.into_iter().map(|path| format!("/api/v1/{path}")).collect()
    }

    /// Returns the documented answer; `None` for a 404.
    pub(crate) fn answer(&self, target: &str, now: u64) -> Option<Value> {
        let parts: Vec<&str> = target.strip_prefix("/api/v1/").unwrap().split('/').collect();
        if let ["agent", id, part @ ..] = &parts[..] {
            let agent = self.agent(id.parse().unwrap())?;
            return Some(match part {
                [] => json!({
                    "agent": shown(agent, ""), "children": self.children(agent.agentId),
                    "liability": liability(agent),
                    "compliance": self.compliance(agent, now),
                }),
                ["lineage"] => self.lineage(agent, None),
                ["ancestors"] => self.ancestors(agent),
                ["revenue"] => self.revenue(agent, 0, 100),
                _ => self.revenue(agent, 1, 1),
            });
        }
        Some(match parts[..] {
            ["stats"] => json!({"totalAgents": self.0.agents.len(), "chain": "http://evm"}),
            ["stats", "detailed"] => self.detailed(now),
            ["agents", "compliance"] => self.compliance_list(now),
            ["revenue", "aggregate"] => self.aggregate(),
            ["kya", asked] => self.kya(asked, now),
            [list] => self.list(list),
            _ => panic!("{target}"),
        })
    }

    fn children(&self, id: U256) -> Vec<u64> {
        let children = self.0.agents.iter().filter(|agent| agent.parentAgentId == id);
        children.map(|agent| agent.agentId.to()).collect()
    }

    fn compliance(&self, agent: &AgentRecord, now: u64) -> Value {
        let age = now - agent.lastAttestation;
        json!({
            "isActive": agent.status == 0, "attestationCurrent": age <= GRACE, "secondsSinceAttestation": age,
            "childCount": self.children(agent.agentId).len(), "status": STATUSES[usize::from(agent.status)],
        })
    }

    fn detailed(&self, now: u64) -> Value {
        let agents = &self.0.agents;
        let count = |of: &dyn Fn(&AgentRecord) -> bool| agents.iter().filter(|agent| of(agent)).count();
        let statuses: Map<String, Value> = (0..4)
            .map(|status| (STATUSES[status].into(), count(&|a| usize::from(a.status) == status).into()))
            .collect();
        let generations: Map<String, Value> = (0..=10)
            .map(|number| (number.to_string(), count(&|agent| agent.generation == U256::from(number)).into()))
            .filter(|(_, count)| *count != 0)
            .collect();
        let compliant = count(&|agent| is_compliant(agent, GRACE, now));
        let rate = 100.0 * compliant as f64 / agents.len().max(1) as f64;
        let recent = "agentId creator haftungsperson agentWallet registeredAt status";
        json!({
            "totalAgents": agents.len(), "chain": "http://evm", "statusDistribution": statuses,
            "generationDistribution": generations, "compliantCount": compliant,
            "complianceRate": format!("{:.1}", (rate * 10.0 + 1e-9).round() / 10.0),
            "totalRevenue": self.aggregate()["byCurrency"],
            "recentRegistrations": agents.iter().rev().take(10).map(|a| shown(a, recent)).collect::<Value>(),
        })
    }

    fn list(&self, list: &str) -> Value {
        let parameter = |name: &str| {
            let (_, query) = list.split_once('?')?;
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        let page: usize = parameter("page").map_or(1, |text| text.parse().unwrap());
        let limit: usize = parameter("limit").map_or(20, |text| text.parse().unwrap());
        let is_asked = |agent: &&AgentRecord| {
            parameter("status").is_none_or(|status| STATUSES[usize::from(agent.status)] == status)
        };
        let matching: Vec<&AgentRecord> = self.0.agents.iter().filter(is_asked).collect();
        let item = |agent: &&AgentRecord| {
            let mut item = shown(agent, "agentId creator status registeredAt");
            if parameter("status").is_none() {
                item["liability"] = liability(agent);
            }
            item
        };
        json!({
            "total": matching.len(), "page": page, "limit": limit,
            "totalPages": matching.len().div_ceil(limit),
            "data": matching.iter().skip((page - 1) * limit).take(limit).map(item).collect::<Value>(),
        })
    }

    fn compliance_list(&self, now: u64) -> Value {
        let mut agents: Vec<&AgentRecord> = self.0.agents.iter().collect();
        agents.sort_by_key(|agent| agent.lastAttestation);
        let item = |agent: &AgentRecord| {
            let mut item = shown(agent, "agentId creator status");
            item["compliance"] = self.compliance(agent, now);
            item
        };
        json!({"total": agents.len(), "data": agents.into_iter().map(item).collect::<Value>()})
    }

    fn lineage(&self, agent: &AgentRecord, parent: Option<&AgentRecord>) -> Value {
        let children = self.0.agents.iter().filter(|child| child.parentAgentId == agent.agentId);
        let mut node = shown(agent, "agentId generation status");
        node["wallet"] = json!(agent.agentWallet.to_string());
        if !agent.parentAgentId.is_zero() {
            let is_of = |parent: &AgentRecord| {
                [parent.creator, parent.agentWallet, parent.haftungsperson].contains(&agent.creator)
            };
            node["parentBasis"] = json!(match parent {
                None => "unknown",
                Some(parent) if is_of(parent) => "registered",
                Some(_) => "named",
            });
        }
        node["children"] = children.map(|child| self.lineage(child, Some(agent))).collect();
        node
    }

    fn revenue(&self, agent: &AgentRecord, offset: usize, limit: usize) -> Value {
        let reports = self.0.reports.iter().filter(|report| report.agentId == agent.agentId);
        let record = |report: &RevenueReport| {
            json!({
                "amount": report.amount.to::<u64>(), "currency": report.currency, "category": report.category,
                "periodStart": time(5), "periodEnd": time(7), "reportedAt": time(report.reportedAt),
            })
        };
        let data: Value = reports.clone().skip(offset).take(limit).map(record).collect();
        json!({"total": reports.count(), "offset": offset, "limit": limit, "data": data})
    }

    fn aggregate(&self) -> Value {
        // Beyond 64 bits a parsed number is a float, here as in the answer it is compared with.
        let number = |sum: u128| serde_json::from_str::<Value>(&sum.to_string()).unwrap();
        let reports = &self.0.reports;
        let sums = |key: fn(&RevenueReport) -> &String| -> Map<String, Value> {
            let mut sums = BTreeMap::<&String, u128>::new();
            reports.iter().for_each(|r| *sums.entry(key(r)).or_default() += r.amount.to::<u128>());
            sums.into_iter().map(|(key, sum)| (key.clone(), number(sum))).collect()
        };
        json!({
            "totalReports": reports.len(), "totalAmount": number(reports.iter().map(|r| r.amount.to::<u128>()).sum()),
            "byCurrency": sums(|report| &report.currency), "byCategory": sums(|report| &report.category),
        })
    }

    fn kya(&self, asked: &str, now: u64) -> Value {
        let address = asked.trim_end_matches("?history=1");
        let of_wallet = || self.of_wallet(address.parse().unwrap());
        let agent = of_wallet().find(|agent| agent.status < 2);
        let above = agent.map(|agent| self.path(agent)).unwrap_or_default();
        let compliant = agent.is_some_and(|agent| is_compliant(agent, GRACE, now));
        let is_expired = agent.is_some_and(|agent| now - agent.lastAttestation > GRACE);
        let fields =
            "agentId creator haftungsperson agentWallet operationalScope status registeredAt lastAttestation";
        let mut kya = json!({
            "wallet": address, "isRegistered": agent.is_some(), "isCompliant": compliant,
            "agent": agent.map(|agent| shown(agent, fields)), "checkedAt": time(now),
            "decision": if compliant { "provision" } else if agent.is_some() { "request_renewal" } else { "deny" },
            "compliantUntil": agent.filter(|_| compliant).map(|agent| time(agent.lastAttestation + GRACE)),
            "registration": if agent.is_some() { "current" } else { "unknown" },
            "formerAgents": "unknown", "unknownBecause": "NOT_SCANNED",
            "ancestorsNotActive": if above.is_empty() { json!([]) } else { json!("unknown") },
        });
        if let Some(agent) = agent {
            kya["liability"] = liability(agent);
        }
        let mut reasons = vec![
            (agent.is_none(), "NOT_REGISTERED"),
            (agent.is_some_and(|agent| agent.status == 1), "SUSPENDED"),
            (is_expired, "ATTESTATION_EXPIRED"),
        ];
        if address != asked {
            let ended: Vec<&AgentRecord> = of_wallet().rev().filter(|agent| agent.status > 1).collect();
            let inactive: Vec<_> = above.into_iter().filter(|agent| agent.status > 0).collect();
            let has = |status| ended.iter().any(|agent| agent.status == status);
            reasons.extend([
                (has(2), "FORMER_AGENT_REVOKED"),
                (has(3), "FORMER_AGENT_TERMINATED"),
                (!inactive.is_empty(), "ANCESTOR_NOT_ACTIVE"),
            ]);
            if agent.is_none() {
                kya["registration"] = if ended.is_empty() { "never" } else { "former" }.into();
            }
            let former = ended.iter().take(20).map(|agent| shown(agent, "agentId status registeredAt"));
            kya["formerAgents"] = former.collect();
            if ended.len() > 20 {
                kya["formerAgentsTruncated"] = true.into();
            }
            kya["ancestorsNotActive"] = inactive.iter().map(|agent| shown(agent, "agentId status")).collect();
            kya.as_object_mut().unwrap().remove("unknownBecause");
        }
        let reasons = reasons.into_iter().filter(|(holds, _)| *holds);
        kya["reasons"] = reasons.map(|(_, reason)| reason).collect();
        kya
    }

    /// Returns the agents above an agent, its parent first.
    fn path(&self, agent: &AgentRecord) -> Vec<&AgentRecord> {
        let parent = |agent: &AgentRecord| self.agent(agent.parentAgentId);
        std::iter::successors(parent(agent), |above| parent(above)).collect()
    }

    fn ancestors(&self, agent: &AgentRecord) -> Value {
        let item = |above: &AgentRecord| {
            let mut item = shown(above, "agentId haftungsperson status generation");
            item["wallet"] = json!(above.agentWallet.to_string());
            item
        };
        let above: Value = self.path(agent).into_iter().map(item).collect();
        json!({"agentId": agent.agentId.to::<u64>(), "ancestors": above})
    }
}

/// Returns the liability that a record alone states.
fn liability(agent: &AgentRecord) -> Value {
    let basis = if agent.creator == agent.haftungsperson { "registered" } else { "unknown" };
    let mut liability = json!({"wallet": agent.haftungsperson.to_string(), "basis": basis});
    if !agent.parentAgentId.is_zero() {
        liability["parentBasis"] = "unknown".into();
    }
    liability
}

fn check(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}
