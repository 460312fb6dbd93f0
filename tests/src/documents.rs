//! The JSON documents of `service.md`, written from an [`Oracle`](crate::oracle::Oracle)'s facts.
//!
//! They show that the parts meet. That each document is right whatever the registry holds is shown against the
//! model of `core/tests/engine/evm`.

use std::collections::BTreeMap;

use registry_core::eth::timestamp::Timestamp;
use serde_json::{Map, Value, json};

use crate::oracle::{Facts, Record};

/// Most children of a lineage node that are shown.
const SHOWN_CHILDREN: usize = 50;

/// The statuses, as the contract numbers them.
const STATUSES: [&str; 4] = ["Active", "Suspended", "Revoked", "Terminated"];

/// The fields of an agent in a verdict.
const REDUCED: &str =
    "agentId creator haftungsperson agentWallet operationalScope status registeredAt lastAttestation";

/// A registry as it was read, and what the documents depend on besides.
#[derive(Debug, Clone)]
pub struct Documents {
    /// All agents; `id` is at `id - 1`.
    pub agents: Vec<Facts>,
    /// The registry's address in its EIP-55 form.
    pub registry: String,
    /// The RPC endpoint as clients see it.
    pub rpc: String,
    /// Seconds an attestation holds.
    pub grace_seconds: u64,
}

impl Documents {
    /// `/api/v1/stats`
    pub fn stats(&self) -> Value {
        json!({"totalAgents": self.agents.len(), "registryAddress": self.registry, "chain": self.rpc})
    }

    /// `/api/v1/stats/detailed`, at `now` in unix seconds
    pub fn detailed_stats(&self, now: u64) -> Value {
        let mut generations: BTreeMap<String, u64> = BTreeMap::new();
        for agent in &self.agents {
            *generations.entry(agent.record.number("generation").to_string()).or_default() += 1;
        }
        let compliant = self.agents.iter().filter(|agent| self.is_compliant(agent, now)).count();
        let rate = (compliant as f64 / self.agents.len() as f64 * 1000.0).round() / 10.0;
        let recent = "agentId creator haftungsperson agentWallet registeredAt status";
        let newest = self.agents.iter().rev().take(10);
        let mut document = self.stats();
        document["statusDistribution"] = statuses(&self.agents.iter().collect::<Vec<_>>());
        document["generationDistribution"] = json!(generations);
        document["complianceRate"] = format!("{rate:.1}").into();
        document["compliantCount"] = compliant.into();
        document["totalRevenue"] = json!(self.sums("currency"));
        document["recentRegistrations"] = newest.map(|agent| pick(&agent.record, recent)).collect();
        document
    }

    /// `/api/v1/agent/:id`
    pub fn agent(&self, id: u64, now: u64) -> Value {
        let facts = self.facts(id);
        json!({
            "agent": written(&facts.record),
            "children": facts.children,
            "compliance": self.compliance(facts, now),
        })
    }

    /// `/api/v1/agents`, with `limit` as it is answered
    pub fn agents(&self, page: usize, limit: usize, wanted: Option<&str>) -> Value {
        let is_wanted = |agent: &&Facts| wanted.is_none_or(|wanted| status(&agent.record) == wanted);
        let chosen: Vec<&Facts> = self.agents.iter().filter(is_wanted).collect();
        let shown = chosen.iter().skip((page - 1) * limit).take(limit);
        let item = |agent: &&Facts| pick(&agent.record, "agentId creator status registeredAt");
        json!({
            "total": chosen.len(),
            "page": page,
            "limit": limit,
            "totalPages": chosen.len().div_ceil(limit),
            "data": shown.map(item).collect::<Value>(),
        })
    }

    /// `/api/v1/agents/compliance`: stalest first, and in order of registration among equals
    pub fn compliance_list(&self, now: u64) -> Value {
        let mut agents: Vec<&Facts> = self.agents.iter().collect();
        agents.sort_by_key(|agent| agent.record.number("lastAttestation"));
        let item = |agent: &Facts| -> Value {
            let mut item = pick(&agent.record, "agentId creator status");
            item["compliance"] = self.compliance(agent, now);
            item
        };
        json!({"total": self.agents.len(), "data": agents.into_iter().map(item).collect::<Value>()})
    }

    /// `/api/v1/agents/compliance?limit=&cursor=`: the page behind so many agents
    pub fn compliance_page(&self, shown: usize, limit: usize, now: u64) -> Value {
        let list = self.compliance_list(now);
        let data: Vec<&Value> =
            list["data"].as_array().into_iter().flatten().skip(shown).take(limit).collect();
        let mut page = json!({"total": list["total"], "limit": limit, "data": data});
        if let Some(last) = data.last().filter(|_| shown + limit < self.agents.len()) {
            let attested =
                self.facts(last["agentId"].as_u64().expect("an id")).record.number("lastAttestation");
            page["next"] = format!("{attested}-{}", last["agentId"]).into();
        }
        page
    }

    /// `/api/v1/liable/:wallet` for a person's EIP-55 address, behind the agent `after`, without its block
    pub fn liable(&self, person: &str, after: u64, limit: usize, now: u64) -> Value {
        let is_liable = |agent: &&Facts| agent.record.address("haftungsperson") == person;
        let agents: Vec<&Facts> = self.agents.iter().filter(is_liable).collect();
        let mut compliant = agents.clone();
        compliant.retain(|agent| self.is_compliant(agent, now));
        compliant.sort_by_key(|agent| agent.record.number("lastAttestation"));
        let lapse = |agent: &&Facts| -> Value {
            let mut lapse = pick(&agent.record, "agentId agentWallet");
            lapse["compliantUntil"] =
                time(agent.record.number("lastAttestation") + self.grace_seconds).into();
            lapse
        };
        let (mut page, distribution) = (agents.clone(), statuses(&agents));
        page.retain(|agent| agent.record.number("agentId") > after);
        let mut document = json!({
            "haftungsperson": person,
            "total": agents.len(),
            "compliantCount": compliant.len(),
            "expiredCount": distribution["Active"].as_u64().map(|active| active - compliant.len() as u64),
            "statusDistribution": distribution,
            "nextLapses": compliant.iter().take(10).map(lapse).collect::<Value>(),
            "limit": limit,
            "data": page.iter().take(limit).map(|agent| self.summary(agent, now)).collect::<Value>(),
        });
        if page.len() > limit {
            document["next"] = page[limit - 1].record.number("agentId").to_string().into();
        }
        document
    }

    /// Every agent as lists from the index have it, at `now`.
    pub fn summaries(&self, now: u64) -> Vec<Value> {
        self.agents.iter().map(|agent| self.summary(agent, now)).collect()
    }

    /// An agent as lists from the index have it.
    fn summary(&self, facts: &Facts, now: u64) -> Value {
        let mut summary = pick(&facts.record, &format!("{REDUCED} parentAgentId generation"));
        summary["isCompliant"] = self.is_compliant(facts, now).into();
        summary
    }

    /// `/api/v1/agent/:id/lineage` of an agent with at most 15 levels below it
    pub fn lineage(&self, id: u64) -> Value {
        let Facts { record, children, .. } = self.facts(id);
        let shown = children.iter().take(SHOWN_CHILDREN);
        let mut node = json!({
            "agentId": id,
            "wallet": record.address("agentWallet"),
            "generation": record.number("generation"),
            "status": status(record),
            "children": shown.map(|child| self.lineage(*child)).collect::<Value>(),
        });
        if children.len() > SHOWN_CHILDREN {
            node["truncated"] = true.into();
            node["note"] = format!("Showing {SHOWN_CHILDREN} of {} children", children.len()).into();
        }
        node
    }

    /// `/api/v1/agent/:id/revenue`, with `limit` as it is answered
    pub fn revenue(&self, id: u64, offset: usize, limit: usize) -> Value {
        let reports = &self.facts(id).revenue;
        let fields = "amount currency category periodStart periodEnd reportedAt";
        let data: Value =
            reports.iter().skip(offset).take(limit).map(|report| pick(report, fields)).collect();
        json!({"total": reports.len(), "offset": offset, "limit": limit, "data": data})
    }

    /// `/api/v1/revenue/aggregate`
    pub fn revenue_aggregate(&self) -> Value {
        let reports = || self.agents.iter().flat_map(|agent| &agent.revenue);
        json!({
            "totalReports": reports().count(),
            "totalAmount": reports().map(|report| report.number("amount")).sum::<u64>(),
            "byCurrency": self.sums("currency"),
            "byCategory": self.sums("category"),
        })
    }

    fn facts(&self, id: u64) -> &Facts {
        &self.agents[usize::try_from(id).expect("an id of a test") - 1]
    }

    fn attestation_age(&self, facts: &Facts, now: u64) -> u64 {
        now.saturating_sub(facts.record.number("lastAttestation"))
    }

    fn is_compliant(&self, facts: &Facts, now: u64) -> bool {
        status(&facts.record) == "Active" && self.attestation_age(facts, now) <= self.grace_seconds
    }

    fn compliance(&self, facts: &Facts, now: u64) -> Value {
        let age = self.attestation_age(facts, now);
        json!({
            "isActive": status(&facts.record) == "Active",
            "attestationCurrent": age <= self.grace_seconds,
            "secondsSinceAttestation": age,
            "childCount": facts.children.len(),
            "status": status(&facts.record),
        })
    }

    /// All amounts, added up by a field of the reports.
    fn sums(&self, field: &str) -> BTreeMap<String, u64> {
        let mut sums = BTreeMap::new();
        for report in self.agents.iter().flat_map(|agent| &agent.revenue) {
            *sums.entry(report.text(field)).or_default() += report.number("amount");
        }
        sums
    }
}

/// A record as documents have it: times in ISO 8601, a status by its name.
fn written(record: &Record) -> Value {
    let mut written = record.0.clone();
    for (name, value) in written.as_object_mut().into_iter().flatten() {
        let is_time = name.ends_with("At") || name.starts_with("last") || name.starts_with("period");
        match value.as_u64() {
            Some(seconds) if is_time => *value = time(seconds).into(),
            Some(_) if name == "status" => *value = status(record).into(),
            _ => {}
        }
    }
    written
}

/// These fields of it.
fn pick(record: &Record, fields: &str) -> Value {
    let mut all = written(record);
    fields.split(' ').map(|field| (field.to_owned(), all[field].take())).collect::<Map<_, _>>().into()
}

/// How many agents there are of each status.
fn statuses(agents: &[&Facts]) -> Value {
    let count = |name| agents.iter().filter(|agent| status(&agent.record) == name).count();
    json!(BTreeMap::from(STATUSES.map(|name| (name, count(name)))))
}

/// A record's status by its name.
pub fn status(record: &Record) -> &'static str {
    STATUSES[usize::try_from(record.number("status")).expect("a status")]
}

/// Unix seconds as ISO 8601 in UTC with milliseconds.
pub fn time(unix_seconds: u64) -> String {
    Timestamp::from_seconds(unix_seconds).to_string()
}
