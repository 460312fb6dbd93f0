//! The agents that a person is liable for, against plain lists of the registry's records. The work for an
//! answer does not grow with the registry.

use std::collections::BTreeSet;

use registry_core::index::Bounds;
use serde_json::Map;

use crate::{Indexed, common::prelude::*};

pub(crate) const STATUSES: [&str; 4] = ["Active", "Suspended", "Revoked", "Terminated"];

fn time(seconds: u64) -> String {
    Timestamp::from_seconds(seconds).to_string()
}

pub(crate) fn is_compliant(agent: &AgentRecord, grace: u64, now: u64) -> bool {
    agent.status == 0 && now.saturating_sub(agent.lastAttestation) <= grace
}

/// An agent as lists show it.
pub(crate) fn item(agent: &AgentRecord, grace: u64, now: u64) -> Value {
    json!({
        "agentId": agent.agentId.to::<u64>(),
        "creator": agent.creator.to_checksum(None),
        "haftungsperson": agent.haftungsperson.to_checksum(None),
        "agentWallet": agent.agentWallet.to_checksum(None),
        "operationalScope": agent.operationalScope,
        "parentAgentId": agent.parentAgentId.to::<u64>(),
        "generation": agent.generation.to::<u64>(),
        "registeredAt": time(agent.registeredAt),
        "lastAttestation": time(agent.lastAttestation),
        "status": STATUSES[usize::from(agent.status)],
        "isCompliant": is_compliant(agent, grace, now),
    })
}

/// Holds the answer about every person against the registry; `now` is the time of the question.
pub(crate) fn is_like(index: &Indexed, registry: &PlainRegistry, now: u64) -> Result<(), String> {
    let grace = registry.grace_seconds.unwrap();
    let mut persons: BTreeSet<Address> = registry.agents.iter().map(|agent| agent.haftungsperson).collect();
    persons.insert(Address::repeat_byte(0xee));
    for person in persons {
        let of_person =
            || registry.agents.iter().filter(|agent| agent.haftungsperson == person).collect::<Vec<_>>();
        let with_status =
            |status| of_person().into_iter().filter(|agent| usize::from(agent.status) == status).count();
        let compliant =
            || of_person().into_iter().filter(|agent| is_compliant(agent, grace, now)).collect::<Vec<_>>();
        let statuses: Map<String, Value> =
            (0..4).map(|status| (STATUSES[status].into(), with_status(status).into())).collect();
        let mut lapses = compliant();
        lapses.sort_by_key(|agent| (agent.lastAttestation, agent.agentId));
        let lapse = |agent: &AgentRecord| {
            json!({
                "agentId": agent.agentId.to::<u64>(),
                "agentWallet": agent.agentWallet.to_checksum(None),
                "compliantUntil": time(agent.lastAttestation + grace),
            })
        };
        let block = index.state().as_of().unwrap();
        for limit in [3, 100] {
            let expected: Vec<Value> = of_person().into_iter().map(|agent| item(agent, grace, now)).collect();
            let mut path = Some(format!("/api/v1/liable/{person}?limit={limit}"));
            for page in expected.chunks(limit).chain(expected.is_empty().then_some(&[][..])) {
                let asked = path.take().ok_or("a page is missing")?;
                let (found, links) = index.ask(&asked, now);
                let mut document = json!({
                    "haftungsperson": person.to_checksum(None),
                    "total": expected.len(),
                    "statusDistribution": statuses,
                    "compliantCount": compliant().len(),
                    "expiredCount": with_status(0) - compliant().len(),
                    "nextLapses": lapses.iter().take(10).map(|agent| lapse(agent)).collect::<Vec<_>>(),
                    "limit": limit,
                    "data": page,
                    "asOf": { "blockNumber": block.number, "blockTimestamp": time(block.seconds) },
                });
                if let Some(next) = found.get("next") {
                    document["next"] = next.clone();
                    path = Some(format!(
                        "/api/v1/liable/{person}?limit={limit}&cursor={}",
                        next.as_str().unwrap()
                    ));
                    let next = Route::parse(path.as_ref().unwrap()).unwrap().canonical();
                    assert!(links.unwrap().ends_with(&format!(", <{next}>; rel=\"next\"")));
                }
                if found != document {
                    return Err(format!("{asked}: {found}\nnot {document}"));
                }
            }
            if let Some(path) = path {
                return Err(format!("{path} goes on beyond the end"));
            }
        }
    }
    Ok(())
}

#[test]
fn a_page_of_a_persons_agents_stays_where_it_is_while_the_registry_grows() {
    let mut index = Indexed::filled(40, 0);
    let (person, now) = (index.agents()[0].haftungsperson, index.newest().seconds);
    let (first, _) = index.ask(&format!("/api/v1/liable/{person}?limit=3"), now);
    let second = format!("/api/v1/liable/{person}?limit=3&cursor={}", first["next"].as_str().unwrap());
    let (before, _) = index.ask(&second, now);
    (0..30).for_each(|_| index.history.mine(3, &mut index.random));
    index.refresh();
    let (after, _) = index.ask(&second, now);
    assert_eq!(ids_in(&before["data"]), ids_in(&after["data"]));
    assert!(after["total"].as_u64() > before["total"].as_u64());
}

#[test]
fn answers_about_ten_thousand_agents_take_no_more_work_than_those_about_three_hundred() {
    let person = Address::repeat_byte(0x77);
    let targets = [
        format!("/api/v1/liable/{person}?limit=100&cursor=20"),
        "/api/v1/agents?status=Active&limit=50".to_owned(),
        "/api/v1/stats/detailed".to_owned(),
        "/api/v1/agent/7/lineage".to_owned(),
        "/api/v1/agents/compliance?limit=50".to_owned(),
        "/api/v1/agents/compliance?limit=50&cursor=1700400000-0".to_owned(),
        // Each of these is what a third of all agents are, at least, or all.
        format!("/api/v1/agents?haftungsperson={person}&sort=-attestation&compliant=false"),
        "/api/v1/agents?compliant=true&cursor=100".to_owned(),
        "/api/v1/agents?sort=attestation&limit=50".to_owned(),
        "/api/v1/agents?q=scope&page=2".to_owned(),
        "/api/v1/agents?q=rights+carb&generation=0&sort=-id".to_owned(),
        "/api/v1/agents?q=rights+carb&sort=attestation".to_owned(),
        "/api/v1/agents?q=nobody&parent=0&status=Active".to_owned(),
    ];
    // Beside these the end of a list, of what a quarter of all agents are.
    let targets = |agents: u64| {
        let end = format!("/api/v1/agents?status=Active&limit=50&page={}", agents / 200);
        targets.iter().cloned().chain([end])
    };
    let bounds = Bounds { counted: 80, candidates: 80, searched: 40 };
    let work = |agents: u64| -> Vec<u64> {
        let mut registry = PlainRegistry::with_agents(agents);
        for (id, agent) in (1..).zip(&mut registry.agents) {
            (agent.parentAgentId, agent.generation) = (U256::ZERO, U256::ZERO);
            agent.haftungsperson = person;
            agent.lastAttestation = 1_700_000_000 + id * 7_919 % 777_600;
            agent.status = (id % 4) as u8;
            if id % 3 == 0 {
                agent.operationalScope = "carbon rights".to_owned();
            }
        }
        let index = Indexed::of(registry);
        let steps = |target: String| {
            index.database.steps.take();
            index.ask_within(&target, 1_700_777_600, bounds);
            index.database.steps.take().values().sum()
        };
        targets(agents).map(steps).collect()
    };
    let (few, many) = (work(300), work(10_000));
    for ((target, few), many) in targets(10_000).zip(few).zip(many) {
        // The agents of the one hour in which attestations lapse now are counted one by one.
        assert!(many < few * 3, "{target}: {few} steps of SQLite's machine, and {many} for 10,000 agents");
    }
}
