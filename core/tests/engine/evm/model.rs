//! The registry as plain lists and plain rules, written from the specification and from nothing else.

use std::collections::BTreeMap;

use alloy_primitives::{Address, keccak256};
use registry_core::eth::timestamp::Timestamp;
use serde_json::{Map, Value, json};

use crate::common::GRACE;

/// How many wallets agents share.
pub(crate) const WALLETS: usize = 5;
pub(crate) const CURRENCIES: [&str; 3] = ["EUR", "USD", "ETH"];
pub(crate) const CATEGORIES: [&str; 3] = ["api", "consulting", ""];
const STATUSES: [&str; 4] = ["Active", "Suspended", "Revoked", "Terminated"];

/// Actor 0 owns the registry, actor 4 is the haftungsperson of every agent.
pub(crate) fn actor(index: usize) -> Address {
    Address::with_last_byte(0xa0 + index as u8)
}

pub(crate) fn wallet(index: usize) -> Address {
    match u8::try_from(0xb0 + index) {
        Ok(byte) => Address::repeat_byte(byte),
        Err(_) => Address::left_padding_from(&index.to_be_bytes()),
    }
}

/// A write to the registry by an actor, to an agent where it is about one.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) by: usize,
    pub(crate) id: u64,
    pub(crate) action: Action,
}

#[derive(Clone, Debug)]
pub(crate) enum Action {
    Register {
        wallet: usize,
        parent: u64,
        self_modifying: bool,
        scope: String,
    },
    Attest,
    Report {
        amount: u64,
        currency: usize,
        category: usize,
    },
    Suspend,
    Revoke,
    Reactivate,
    Terminate,
    /// Time passes, in seconds.
    Wait(u64),
}

impl Op {
    pub(crate) fn register(by: usize, wallet: usize, parent: u64, scope: &str) -> Self {
        let action = Action::Register { wallet, parent, self_modifying: false, scope: scope.into() };
        Self { by, id: 0, action }
    }

    pub(crate) const fn wait(seconds: u64) -> Self {
        Self { by: 0, id: 0, action: Action::Wait(seconds) }
    }
}

struct Agent {
    creator: usize,
    wallet: usize,
    scope: String,
    parent: u64,
    generation: u64,
    self_modifying: bool,
    registered: u64,
    attested: u64,
    status: usize,
    /// Amount, currency, category, time.
    reports: Vec<(u64, &'static str, &'static str, u64)>,
}

#[derive(Default)]
pub(crate) struct Model {
    agents: Vec<Agent>,
}

impl Model {
    pub(crate) fn apply(&mut self, op: &Op, now: u64) -> Result<(), String> {
        let Op { by, id, ref action } = *op;
        match action {
            Action::Wait(_) => {}
            Action::Register { wallet, parent, self_modifying, scope } => {
                let mut generation = 0;
                if *parent > 0 {
                    let parent = self.agent(*parent).ok_or("Parent agent not found")?;
                    check(parent.status == 0, "Parent agent not active")?;
                    generation = parent.generation + 1;
                    check(generation <= 10, "Max generation depth exceeded")?;
                }
                check(self.holder(*wallet).is_none(), "Wallet already registered to another agent")?;
                self.agents.push(Agent {
                    creator: by,
                    wallet: *wallet,
                    scope: scope.clone(),
                    parent: *parent,
                    generation,
                    self_modifying: *self_modifying,
                    registered: now,
                    attested: now,
                    status: 0,
                    reports: Vec::new(),
                });
            }
            Action::Attest => self.own(by, id)?.attested = now,
            Action::Report { amount, currency, category } => {
                let report = (*amount, CURRENCIES[*currency], CATEGORIES[*category], now);
                self.own(by, id)?.reports.push(report);
            }
            Action::Terminate => self.own(by, id)?.status = 3,
            Action::Suspend => self.regulate(by, id, &[0], "Agent not active", 1)?,
            Action::Revoke => self.regulate(by, id, &[0, 1], "Agent not active", 2)?,
            Action::Reactivate => {
                self.regulate(by, id, &[1], "Only suspended agents can be reactivated", 0)?;
            }
        }
        Ok(())
    }

    fn agent(&self, id: u64) -> Option<&Agent> {
        self.agents.get(usize::try_from(id).ok()?.checked_sub(1)?)
    }

    fn holder(&self, wallet: usize) -> Option<u64> {
        let live = |agent: &Agent| agent.wallet == wallet && agent.status < 2;
        self.agents.iter().position(live).map(|index| index as u64 + 1)
    }

    /// The active agent, for its creator or haftungsperson.
    fn own(&mut self, by: usize, id: u64) -> Result<&mut Agent, String> {
        let agent = self.agent(id).ok_or("Agent not found")?;
        check(agent.creator == by || by == 4, "Not authorized for this agent")?;
        check(agent.status == 0, "Agent not active")?;
        Ok(&mut self.agents[id as usize - 1])
    }

    fn regulate(
        &mut self,
        by: usize,
        id: u64,
        from: &[usize],
        otherwise: &str,
        to: usize,
    ) -> Result<(), String> {
        check(by == 0, "Only regulator")?;
        let agent = self.agent(id).ok_or("Agent not found")?;
        check(from.contains(&agent.status), otherwise)?;
        self.agents[id as usize - 1].status = to;
        Ok(())
    }

    /// Every endpoint, every agent, every wallet, and some that are not there.
    pub(crate) fn questions(&self) -> Vec<String> {
        let fixed = [
            "stats",
            "stats/detailed",
            "agents",
            "agents?limit=3&page=2",
            "agents/compliance",
            "revenue/aggregate",
        ];
        let mut questions: Vec<String> = fixed.map(|path| format!("/api/v1/{path}")).into();
        questions.extend(STATUSES.map(|status| format!("/api/v1/agents?limit=2&status={status}")));
        for id in 0..=self.agents.len() + 1 {
            questions.extend(
                ["", "/lineage", "/ancestors", "/revenue", "/revenue?offset=1&limit=1"]
                    .map(|part| format!("/api/v1/agent/{id}{part}")),
            );
        }
        for query in ["", "?history=1"] {
            questions.extend((0..=WALLETS).map(|index| format!("/api/v1/kya/{}{query}", wallet(index))));
        }
        questions
    }

    /// The documented answer, times as unix seconds; `None` for a 404.
    pub(crate) fn answer(&self, target: &str, now: u64) -> Option<Value> {
        let path = target.strip_prefix("/api/v1/").unwrap();
        let parts: Vec<&str> = path.split('/').collect();
        Some(match parts[..] {
            ["stats"] => self.stats(now),
            ["stats", "detailed"] => self.detailed(now),
            ["agents", "compliance"] => self.compliance_list(now),
            ["revenue", "aggregate"] => self.aggregate(),
            ["agent", id] => self.detail(id.parse().unwrap(), now)?,
            ["agent", id, "lineage"] => {
                self.agent(id.parse().unwrap())?;
                self.lineage(id.parse().unwrap())
            }
            ["agent", id, "ancestors"] => self.ancestors(id.parse().unwrap())?,
            ["agent", id, "revenue"] => self.revenue(id.parse().unwrap(), 0, 100)?,
            ["agent", id, _] => self.revenue(id.parse().unwrap(), 1, 1)?,
            ["kya", address] => match address.strip_suffix("?history=1") {
                Some(address) => self.kya_with_past(address, now),
                None => self.kya(address, now),
            },
            [list] => self.list(list),
            _ => panic!("{target}"),
        })
    }

    fn ids(&self) -> impl DoubleEndedIterator<Item = u64> + use<> {
        1..=self.agents.len() as u64
    }

    fn children(&self, id: u64) -> Vec<u64> {
        self.ids().filter(|child| self.agents[*child as usize - 1].parent == id).collect()
    }

    fn compliant(&self, id: u64, now: u64) -> bool {
        self.agent(id).is_some_and(|agent| agent.status == 0 && now - agent.attested <= GRACE)
    }

    fn record(&self, id: u64) -> Map<String, Value> {
        let agent = self.agent(id).unwrap();
        let Value::Object(record) = json!({
            "agentId": id, "creator": actor(agent.creator).to_string(), "haftungsperson": actor(4).to_string(),
            "agentWallet": wallet(agent.wallet).to_string(), "constitutionHash": keccak256(&agent.scope).to_string(),
            "capabilityHash": format!("0x{}", "0".repeat(64)), "operationalScope": agent.scope,
            "parentAgentId": agent.parent, "generation": agent.generation, "selfModifying": agent.self_modifying,
            "registeredAt": agent.registered, "lastAttestation": agent.attested,
            "lastRevenueReport": agent.reports.last().map_or(0, |report| report.3), "status": STATUSES[agent.status],
        }) else {
            unreachable!()
        };
        record
    }

    fn part(&self, id: u64, fields: &[&str]) -> Map<String, Value> {
        let mut record = self.record(id);
        record.retain(|field, _| fields.contains(&field.as_str()));
        record
    }

    fn compliance(&self, id: u64, now: u64) -> Value {
        let agent = self.agent(id).unwrap();
        json!({
            "isActive": agent.status == 0, "attestationCurrent": now - agent.attested <= GRACE,
            "secondsSinceAttestation": now - agent.attested, "childCount": self.children(id).len(),
            "status": STATUSES[agent.status],
        })
    }

    fn detail(&self, id: u64, now: u64) -> Option<Value> {
        self.agent(id)?;
        Some(json!({
            "agent": self.record(id), "children": self.children(id), "compliance": self.compliance(id, now),
        }))
    }

    fn stats(&self, _: u64) -> Value {
        json!({"totalAgents": self.agents.len(), "chain": "http://evm"})
    }

    fn detailed(&self, now: u64) -> Value {
        let mut stats = self.stats(now);
        let count = |of: &dyn Fn(&Agent) -> bool| self.agents.iter().filter(|agent| of(agent)).count();
        let statuses: Map<String, Value> =
            (0..4).map(|s| (STATUSES[s].into(), count(&|a| a.status == s).into())).collect();
        let generations: Map<String, Value> = (0..=10)
            .map(|generation| (generation.to_string(), count(&|agent| agent.generation == generation)))
            .filter(|(_, count)| *count > 0)
            .map(|(generation, count)| (generation, count.into()))
            .collect();
        let compliant = self.ids().filter(|id| self.compliant(*id, now)).count();
        let rate = 100.0 * compliant as f64 / self.agents.len().max(1) as f64;
        let recent = ["agentId", "creator", "haftungsperson", "agentWallet", "registeredAt", "status"];
        stats["statusDistribution"] = statuses.into();
        stats["generationDistribution"] = generations.into();
        stats["complianceRate"] = format!("{:.1}", (rate * 10.0 + 1e-9).round() / 10.0).into();
        stats["compliantCount"] = compliant.into();
        stats["totalRevenue"] = self.aggregate()["byCurrency"].clone();
        stats["recentRegistrations"] =
            self.ids().rev().take(10).map(|id| Value::from(self.part(id, &recent))).collect();
        stats
    }

    fn list(&self, list: &str) -> Value {
        let parameter = |name: &str| {
            let (_, query) = list.split_once('?')?;
            query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
        };
        let page: usize = parameter("page").map_or(1, |text| text.parse().unwrap());
        let limit: usize = parameter("limit").map_or(20, |text| text.parse().unwrap());
        let matching: Vec<u64> = self
            .ids()
            .filter(|id| {
                parameter("status").is_none_or(|status| STATUSES[self.agent(*id).unwrap().status] == status)
            })
            .collect();
        let item = |id: &u64| Value::from(self.part(*id, &["agentId", "creator", "status", "registeredAt"]));
        let data: Value = matching.iter().skip((page - 1) * limit).take(limit).map(item).collect();
        json!({
            "total": matching.len(), "page": page, "limit": limit,
            "totalPages": matching.len().div_ceil(limit), "data": data,
        })
    }

    fn compliance_list(&self, now: u64) -> Value {
        let mut ids: Vec<u64> = self.ids().collect();
        ids.sort_by_key(|id| self.agent(*id).unwrap().attested);
        let item = |id: u64| {
            let mut item = self.part(id, &["agentId", "creator", "status"]);
            item.insert("compliance".into(), self.compliance(id, now));
            Value::from(item)
        };
        json!({"total": ids.len(), "data": ids.into_iter().map(item).collect::<Value>()})
    }

    fn lineage(&self, id: u64) -> Value {
        let agent = self.agent(id).unwrap();
        let children: Value = self.children(id).into_iter().map(|child| self.lineage(child)).collect();
        json!({
            "agentId": id, "wallet": wallet(agent.wallet).to_string(), "generation": agent.generation,
            "status": STATUSES[agent.status], "children": children,
        })
    }

    fn revenue(&self, id: u64, offset: usize, limit: usize) -> Option<Value> {
        let reports = &self.agent(id)?.reports;
        let record = |(amount, currency, category, at): &(u64, &str, &str, u64)| {
            json!({
                "amount": amount, "currency": currency, "category": category,
                "periodStart": 5, "periodEnd": 7, "reportedAt": at,
            })
        };
        let data: Value = reports.iter().skip(offset).take(limit).map(record).collect();
        Some(json!({"total": reports.len(), "offset": offset, "limit": limit, "data": data}))
    }

    fn aggregate(&self) -> Value {
        let (mut currencies, mut categories) = (BTreeMap::<&str, u128>::new(), BTreeMap::<&str, u128>::new());
        let (mut count, mut total) = (0, 0u128);
        for (amount, currency, category, _) in self.agents.iter().flat_map(|agent| &agent.reports) {
            let amount = u128::from(*amount);
            *currencies.entry(currency).or_default() += amount;
            *categories.entry(category).or_default() += amount;
            (count, total) = (count + 1, total + amount);
        }
        // Beyond 64 bits a parsed number is a float, here as in the answer it is compared with.
        let number = |sum: u128| serde_json::from_str::<Value>(&sum.to_string()).unwrap();
        let object = |sums: BTreeMap<&str, u128>| -> Map<String, Value> {
            sums.into_iter().map(|(key, sum)| (key.to_string(), number(sum))).collect()
        };
        json!({
            "totalReports": count, "totalAmount": number(total),
            "byCurrency": object(currencies), "byCategory": object(categories),
        })
    }

    fn kya(&self, address: &str, now: u64) -> Value {
        let id = (0..WALLETS)
            .find(|index| wallet(*index).to_string() == address)
            .and_then(|index| self.holder(index));
        let fields = [
            "agentId",
            "creator",
            "haftungsperson",
            "agentWallet",
            "operationalScope",
            "status",
            "registeredAt",
            "lastAttestation",
        ];
        let compliant = id.is_some_and(|id| self.compliant(id, now));
        let attested = id.map(|id| self.agent(id).unwrap().attested);
        let mut reasons = Vec::new();
        match id {
            None => reasons.push("NOT_REGISTERED"),
            Some(id) if self.agent(id).unwrap().status == 1 => reasons.push("SUSPENDED"),
            Some(_) => {}
        }
        if attested.is_some_and(|attested| now - attested > GRACE) {
            reasons.push("ATTESTATION_EXPIRED");
        }
        json!({
            "wallet": address, "isRegistered": id.is_some(),
            "isCompliant": compliant,
            "agent": id.map(|id| self.part(id, &fields)), "checkedAt": now,
            "decision": if compliant { "provision" } else if id.is_some() { "request_renewal" } else { "deny" },
            "reasons": reasons,
            "compliantUntil": attested.filter(|_| compliant).map(|attested| attested + GRACE),
            "registration": if id.is_some() { "current" } else { "unknown" },
            "formerAgents": "unknown",
            "ancestorsNotActive": match id.is_none_or(|id| self.path(id).is_empty()) {
                true => json!([]),
                false => json!("unknown"),
            },
            "unknownBecause": "NOT_SCANNED",
        })
    }

    fn kya_with_past(&self, address: &str, now: u64) -> Value {
        let mut kya = self.kya(address, now);
        let is_of = |id: &u64| wallet(self.agent(*id).unwrap().wallet).to_string() == address;
        let ended: Vec<u64> =
            self.ids().rev().filter(is_of).filter(|id| self.agent(*id).unwrap().status > 1).collect();
        let item = |id: &u64| Value::from(self.part(*id, &["agentId", "status", "registeredAt"]));
        if kya["isRegistered"] == false {
            kya["registration"] = if ended.is_empty() { "never" } else { "former" }.into();
        }
        kya["formerAgents"] = ended.iter().take(20).map(item).collect();
        if ended.len() > 20 {
            kya["formerAgentsTruncated"] = true.into();
        }
        let above = kya["agent"]["agentId"].as_u64().map(|id| self.path(id)).unwrap_or_default();
        let item = |id: &u64| json!({"agentId": id, "status": STATUSES[self.agent(*id).unwrap().status]});
        let inactive: Vec<u64> = above.into_iter().filter(|id| self.agent(*id).unwrap().status > 0).collect();
        kya["ancestorsNotActive"] = inactive.iter().map(item).collect();
        let has = |status| ended.iter().any(|id| self.agent(*id).unwrap().status == status);
        for (holds, remark) in [
            (has(2), "FORMER_AGENT_REVOKED"),
            (has(3), "FORMER_AGENT_TERMINATED"),
            (!inactive.is_empty(), "ANCESTOR_NOT_ACTIVE"),
        ] {
            if holds {
                kya["reasons"].as_array_mut().unwrap().push(remark.into());
            }
        }
        kya.as_object_mut().unwrap().remove("unknownBecause");
        kya
    }

    /// The ids above an agent, its parent first.
    fn path(&self, id: u64) -> Vec<u64> {
        let parent = |id: &u64| Some(self.agent(*id)?.parent).filter(|parent| *parent > 0);
        std::iter::successors(parent(&id), parent).collect()
    }

    fn ancestors(&self, id: u64) -> Option<Value> {
        self.agent(id)?;
        let item = |id: u64| {
            let agent = self.agent(id).unwrap();
            json!({
                "agentId": id, "wallet": wallet(agent.wallet).to_string(), "haftungsperson": actor(4).to_string(),
                "status": STATUSES[agent.status], "generation": agent.generation,
            })
        };
        let above: Value = self.path(id).into_iter().map(item).collect();
        Some(json!({"agentId": id, "ancestors": above}))
    }
}

fn check(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

/// An answer with its timestamps as unix seconds, and without the registry's address, which the model has
/// not.
pub(crate) fn plain_times(answer: Value) -> Value {
    match answer {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(name, _)| name != "registryAddress");
            kept.map(|(name, value)| (name, plain_times(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.into_iter().map(plain_times).collect(),
        Value::String(text) => {
            Timestamp::parse(&text).map_or(Value::String(text), |time| time.seconds().into())
        }
        other => other,
    }
}
