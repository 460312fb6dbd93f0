//! Filtered and sorted pages of agents, against plain filters over the registry's records.

use registry_core::{
    abi::AgentRecord,
    index::{Bounds, Index},
    route::Endpoint,
    timestamp::Timestamp,
};
use serde_json::Value;

use crate::{CHAIN, REGISTRY, liable::item, promises::filled};

#[test]
fn pages_laid_end_to_end_are_what_a_plain_filter_finds() {
    let (index, history, mut chance) = filled(120, 0);
    let newest = &history.blocks[&history.newest()];
    let (registry, grace) = (&newest.registry, newest.registry.grace_seconds.unwrap());
    let names = ["Active", "Suspended", "Revoked", "Terminated"];
    for round in 0..400 {
        let now = newest.seconds + chance.below(900_000);
        let mut agents: Vec<&AgentRecord> = registry.agents.iter().collect();
        let example = agents[chance.below(120) as usize].clone();
        let is_compliant =
            |agent: &AgentRecord| agent.status == 0 && now.saturating_sub(agent.lastAttestation) <= grace;
        let mut query = String::new();
        if chance.once_in(3) {
            query += &format!("&haftungsperson={}", example.haftungsperson);
            agents.retain(|agent| agent.haftungsperson == example.haftungsperson);
        }
        if chance.once_in(3) {
            query += &format!("&creator={}", example.creator);
            agents.retain(|agent| agent.creator == example.creator);
        }
        if chance.once_in(4) {
            query += &format!("&parent={}", example.parentAgentId);
            agents.retain(|agent| agent.parentAgentId == example.parentAgentId);
        }
        if chance.once_in(4) {
            query += &format!("&generation={}", example.generation);
            agents.retain(|agent| agent.generation == example.generation);
        }
        if chance.once_in(3) {
            let status = chance.below(4) as u8;
            query += &format!("&status={}", names[usize::from(status)]);
            agents.retain(|agent| agent.status == status);
        }
        if chance.once_in(3) {
            let compliant = chance.once_in(2);
            query += &format!("&compliant={compliant}");
            agents.retain(|agent| is_compliant(agent) == compliant);
        }
        let sort = chance.pick(&["id", "-id", "registration", "attestation", "-attestation"]);
        agents.sort_by_key(|agent| match sort.trim_start_matches('-') {
            "attestation" => (agent.lastAttestation, agent.agentId),
            _ => (0, agent.agentId),
        });
        if sort.starts_with('-') {
            agents.reverse();
        }
        let limit = 1 + chance.below(30);
        let bounds = chance.pick(&[Bounds::DEFAULT, Bounds { candidates: 7, searched: 3 }]);
        let expected: Vec<Value> = agents.into_iter().map(|agent| item(agent, grace, now)).collect();
        let first = format!("/api/v1/agents?limit={limit}&sort={sort}{query}");
        let mut target =
            if query.is_empty() && sort.ends_with("id") { format!("{first}&cursor=0") } else { first };
        if target.contains("sort=-id") {
            target = target.replace("&cursor=0", "");
        }
        if target.contains("sort=registration") && query.is_empty() {
            target += "&cursor=0";
        }
        let mut found = Vec::new();
        loop {
            let Ok(endpoint) = Endpoint::parse(&target) else { panic!("{target}") };
            if matches!(endpoint, Endpoint::Agents { .. }) {
                // A status alone is answered as a scan answers it.
                found.clone_from(&expected);
                break;
            }
            let state = index.state();
            let of = Index::new(&index.database, &state, REGISTRY, CHAIN).within(bounds);
            let document = of.document(&endpoint, Timestamp::from_seconds(now)).unwrap();
            let page: Value = serde_json::from_str(&document.body).unwrap();
            let data = page["data"].as_array().unwrap();
            assert!(data.len() as u64 <= limit, "{target}");
            if let Some(total) = page["total"].as_u64() {
                let is_bound = page["totalIsLowerBound"] == true;
                let holds =
                    if is_bound { total <= expected.len() as u64 } else { total == expected.len() as u64 };
                assert!(holds, "round {round}: {target}: {page}\nof {}", expected.len());
            }
            found.extend(data.iter().cloned());
            let Some(next) = page["next"].as_str() else { break };
            let base = target.split("&cursor=").next().unwrap();
            target = format!("{base}&cursor={next}");
        }
        assert_eq!(found, expected, "round {round}: {target}");
    }
}
