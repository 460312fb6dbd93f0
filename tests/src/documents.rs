//! The JSON documents of `service.md`, written from an [`Oracle`](crate::oracle::Oracle)'s facts.
//!
//! A second implementation on purpose, from the specification's text and without code of the core: where the
//! two differ, one of them has misread it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::oracle::{Facts, Record};

/// Most children of a lineage node that are shown.
const SHOWN_CHILDREN: usize = 50;

/// Most levels of a lineage that are shown.
const SHOWN_LEVELS: usize = 15;

/// The statuses, as the contract numbers them.
const STATUSES: [&str; 4] = ["Active", "Suspended", "Revoked", "Terminated"];

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
    /// `/health`
    pub fn health(&self) -> Value {
        json!({"status": "ok", "registry": self.registry, "rpc": self.rpc})
    }

    /// `/api/v1/stats`
    pub fn stats(&self) -> Value {
        json!({"totalAgents": self.agents.len(), "registryAddress": self.registry, "chain": self.rpc})
    }

    /// `/api/v1/stats/detailed`, at `now` in unix seconds
    pub fn detailed_stats(&self, now: u64) -> Value {
        let mut statuses = BTreeMap::from(STATUSES.map(|name| (name, 0)));
        let mut generations: BTreeMap<String, u64> = BTreeMap::new();
        for agent in &self.agents {
            *statuses.entry(status(&agent.record)).or_default() += 1;
            *generations.entry(agent.record.number("generation").to_string()).or_default() += 1;
        }
        let compliant = self.agents.iter().filter(|agent| self.is_compliant(agent, now)).count();
        let rate = match self.agents.len() {
            0 => 0.0,
            total => (compliant as f64 / total as f64 * 1000.0).round() / 10.0,
        };
        let fields = ["agentId", "creator", "haftungsperson", "agentWallet", "registeredAt", "status"];
        let newest = self.agents.iter().rev().take(10);
        let recent: Vec<Value> = newest.map(|agent| pick(&agent.record, &fields)).collect();
        let mut document = self.stats();
        document["statusDistribution"] = json!(statuses);
        document["generationDistribution"] = json!(generations);
        document["complianceRate"] = format!("{rate:.1}").into();
        document["compliantCount"] = compliant.into();
        document["totalRevenue"] = json!(self.sums("currency"));
        document["recentRegistrations"] = recent.into();
        document
    }

    /// `/api/v1/agent/:id`
    pub fn agent(&self, id: u64, now: u64) -> Value {
        let facts = self.facts(id);
        json!({
            "agent": record(&facts.record),
            "children": facts.children,
            "compliance": self.compliance(facts, now),
        })
    }

    /// `/api/v1/agents`, with `limit` as it is answered
    pub fn agents(&self, page: usize, limit: usize, wanted: Option<&str>) -> Value {
        let is_wanted = |agent: &&Facts| wanted.is_none_or(|wanted| status(&agent.record) == wanted);
        let chosen: Vec<&Facts> = self.agents.iter().filter(is_wanted).collect();
        let shown = chosen.iter().skip((page - 1) * limit).take(limit);
        let item = |agent: &&Facts| pick(&agent.record, &["agentId", "creator", "status", "registeredAt"]);
        let data: Vec<Value> = shown.map(item).collect();
        json!({
            "total": chosen.len(),
            "page": page,
            "limit": limit,
            "totalPages": chosen.len().div_ceil(limit),
            "data": data,
        })
    }

    /// `/api/v1/agents/compliance?limit=&cursor=`: the page behind so many agents
    pub fn compliance_page(&self, shown: usize, limit: usize, now: u64) -> Value {
        let mut page = self.compliance_list(now);
        let data: Vec<Value> =
            page["data"].as_array().into_iter().flatten().skip(shown).take(limit).cloned().collect();
        if shown + limit < self.agents.len() {
            let last = data.last().and_then(|item| item["agentId"].as_u64());
            let last = self.agents.iter().find(|agent| Some(agent.record.number("agentId")) == last);
            page["next"] = last.map_or(Value::Null, |agent| {
                let number = |field| agent.record.number(field);
                format!("{}-{}", number("lastAttestation"), number("agentId")).into()
            });
        }
        page["limit"] = limit.into();
        page["data"] = data.into();
        page
    }

    /// `/api/v1/agents/compliance`: stalest first, and in order of registration among equals
    pub fn compliance_list(&self, now: u64) -> Value {
        let mut agents: Vec<&Facts> = self.agents.iter().collect();
        agents.sort_by_key(|agent| agent.record.number("lastAttestation"));
        let item = |agent: &&Facts| -> Value {
            let mut item = pick(&agent.record, &["agentId", "creator", "status"]);
            item["compliance"] = self.compliance(agent, now);
            item
        };
        json!({"total": self.agents.len(), "data": agents.iter().map(item).collect::<Vec<_>>()})
    }

    /// `/api/v1/liable/:wallet` for a person's EIP-55 address, behind the agent `after`, without its block
    pub fn liable(&self, person: &str, after: u64, limit: usize, now: u64) -> Value {
        let agents: Vec<&Facts> =
            self.agents.iter().filter(|agent| agent.record.address("haftungsperson") == person).collect();
        let compliant = || agents.iter().filter(|agent| self.is_compliant(agent, now));
        let with = |wanted: &str| agents.iter().filter(|agent| status(&agent.record) == wanted).count();
        let mut lapses: Vec<&&Facts> = compliant().collect();
        lapses.sort_by_key(|agent| agent.record.number("lastAttestation"));
        let lapse = |agent: &&&Facts| {
            let mut lapse = pick(&agent.record, &["agentId", "agentWallet"]);
            lapse["compliantUntil"] =
                time(agent.record.number("lastAttestation") + self.grace_seconds).into();
            lapse
        };
        let page = || agents.iter().filter(|agent| agent.record.number("agentId") > after);
        let mut document = json!({
            "haftungsperson": person,
            "total": agents.len(),
            "statusDistribution": BTreeMap::from(STATUSES.map(|status| (status, with(status)))),
            "compliantCount": compliant().count(),
            "expiredCount": with("Active") - compliant().count(),
            "nextLapses": lapses.iter().take(10).map(lapse).collect::<Vec<_>>(),
            "limit": limit,
            "data": page().take(limit).map(|agent| self.summary(agent, now)).collect::<Vec<_>>(),
        });
        if page().count() > limit {
            document["next"] =
                page().nth(limit - 1).map(|last| last.record.number("agentId").to_string()).into();
        }
        document
    }

    /// Every agent as lists from the index have it, at `now`.
    pub fn summaries(&self, now: u64) -> Vec<Value> {
        self.agents.iter().map(|agent| self.summary(agent, now)).collect()
    }

    /// An agent as lists from the index have it.
    fn summary(&self, facts: &Facts, now: u64) -> Value {
        let mut summary = reduced(&facts.record);
        for field in ["parentAgentId", "generation"] {
            summary[field] = record(&facts.record)[field].take();
        }
        summary["isCompliant"] = self.is_compliant(facts, now).into();
        summary
    }

    /// `/api/v1/agent/:id/lineage`
    pub fn lineage(&self, id: u64) -> Value {
        self.node(id, 1)
    }

    /// `/api/v1/agent/:id/revenue`, with `limit` as it is answered
    pub fn revenue(&self, id: u64, offset: usize, limit: usize) -> Value {
        let reports = &self.facts(id).revenue;
        let data: Vec<Value> = reports.iter().skip(offset).take(limit).map(report).collect();
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

    /// `/api/v1/kya/:wallet`, for the wallet in its EIP-55 form and its agent, checked at `checked_at` (ISO
    /// 8601), without a scan of the registry and without the block it was read at
    pub fn kya(&self, wallet: &str, id: Option<u64>, now: u64, checked_at: &str) -> Value {
        let facts = id.map(|id| self.facts(id));
        let compliant = facts.filter(|facts| self.is_compliant(facts, now));
        let until = |facts: &Facts| facts.record.number("lastAttestation") + self.grace_seconds;
        json!({
            "wallet": wallet,
            "isRegistered": id.is_some(),
            "isCompliant": compliant.is_some(),
            "agent": facts.map(|facts| reduced(&facts.record)),
            "checkedAt": checked_at,
            "decision": match (facts, compliant) {
                (None, _) => "deny",
                (_, None) => "request_renewal",
                (_, Some(_)) => "provision",
            },
            "reasons": self.reasons(facts, now),
            "compliantUntil": compliant.map(|facts| time(until(facts))),
            "registration": if facts.is_some() { "current" } else { "unknown" },
            "formerAgents": "unknown",
            "ancestorsNotActive": match facts.is_none_or(|facts| facts.record.number("parentAgentId") == 0) {
                true => json!([]),
                false => json!("unknown"),
            },
            "unknownBecause": "NOT_SCANNED",
        })
    }

    /// The reasons against a wallet with this agent.
    fn reasons(&self, facts: Option<&Facts>, now: u64) -> Vec<&'static str> {
        let Some(facts) = facts else { return vec!["NOT_REGISTERED"] };
        let suspended = status(&facts.record) == "Suspended";
        let expired = self.attestation_age(facts, now) > self.grace_seconds;
        let reasons = [(suspended, "SUSPENDED"), (expired, "ATTESTATION_EXPIRED")];
        reasons.into_iter().filter_map(|(holds, reason)| holds.then_some(reason)).collect()
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

    fn node(&self, id: u64, level: usize) -> Value {
        let facts = self.facts(id);
        let mut node = json!({
            "agentId": id,
            "wallet": facts.record.address("agentWallet"),
            "generation": facts.record.number("generation"),
            "status": status(&facts.record),
            "children": [],
        });
        if facts.children.is_empty() {
            return node;
        }
        if level == SHOWN_LEVELS {
            node["note"] = format!("Depth limit of {SHOWN_LEVELS} levels reached").into();
            return node;
        }
        node["children"] =
            facts.children.iter().take(SHOWN_CHILDREN).map(|child| self.node(*child, level + 1)).collect();
        if facts.children.len() > SHOWN_CHILDREN {
            node["truncated"] = true.into();
            node["note"] = format!("Showing {SHOWN_CHILDREN} of {} children", facts.children.len()).into();
        }
        node
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

/// A full agent record.
fn record(record: &Record) -> Value {
    json!({
        "agentId": record.number("agentId"),
        "creator": record.address("creator"),
        "haftungsperson": record.address("haftungsperson"),
        "agentWallet": record.address("agentWallet"),
        "constitutionHash": record.word("constitutionHash"),
        "capabilityHash": record.word("capabilityHash"),
        "operationalScope": record.text("operationalScope"),
        "parentAgentId": record.number("parentAgentId"),
        "generation": record.number("generation"),
        "selfModifying": record.flag("selfModifying"),
        "registeredAt": time(record.number("registeredAt")),
        "lastAttestation": time(record.number("lastAttestation")),
        "lastRevenueReport": time(record.number("lastRevenueReport")),
        "status": status(record),
    })
}

/// These fields of a full record.
fn pick(full: &Record, fields: &[&str]) -> Value {
    let mut full = record(full);
    fields.iter().map(|field| ((*field).to_owned(), full[field].take())).collect::<Map<_, _>>().into()
}

/// The fields of a verdict's agent.
fn reduced(record: &Record) -> Value {
    let fields = ["agentId", "creator", "haftungsperson", "agentWallet", "operationalScope", "status"];
    pick(record, &[&fields[..], &["registeredAt", "lastAttestation"]].concat())
}

fn report(report: &Record) -> Value {
    json!({
        "amount": report.number("amount"),
        "currency": report.text("currency"),
        "category": report.text("category"),
        "periodStart": time(report.number("periodStart")),
        "periodEnd": time(report.number("periodEnd")),
        "reportedAt": time(report.number("reportedAt")),
    })
}

/// A record's status by its name.
pub fn status(record: &Record) -> &'static str {
    STATUSES[usize::try_from(record.number("status")).expect("a status")]
}

/// Unix seconds as ISO 8601 in UTC with milliseconds.
pub fn time(unix_seconds: u64) -> String {
    let (days, rest) = (unix_seconds / 86_400, unix_seconds % 86_400);
    let mut year = 1970;
    let mut day = days;
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}.000Z", month + 1, day + 1)
}

/// The unix milliseconds of such a string, by search: the inverse of [`time`].
pub fn unix_millis(text: &str) -> u64 {
    let millis: u64 = text[20..23].parse().unwrap_or_else(|_| panic!("{text}"));
    let whole = format!("{}.000Z", &text[..19]);
    let (mut low, mut high) = (1_577_836_800, 1 << 33);
    while low < high {
        let middle = (low + high) / 2;
        if time(middle) < whole { low = middle + 1 } else { high = middle }
    }
    assert_eq!(time(low), whole);
    low * 1000 + millis
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date_u() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_767_225_600, "2026-01-01T00:00:00.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(time(seconds), text);
        }
        assert_eq!(unix_millis("2026-01-01T00:00:00.123Z"), 1_767_225_600_123);
    }
}
