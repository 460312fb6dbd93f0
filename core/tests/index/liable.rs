//! The agents of a liable person, compared with plain lists of the registry's records. The work for an answer
//! does not grow with the registry.

use std::collections::BTreeSet;

use registry_core::index::Bounds;
use serde_json::Map;

use crate::{TestIndex, common::prelude::*, liability};

/// Returns an agent as lists show it.
pub(crate) fn item(agent: &AgentRecord, grace: u64, now: u64) -> Value {
    let members = "agentId creator haftungsperson agentWallet operationalScope parentAgentId generation \
                   registeredAt lastAttestation status";
    let mut item = shown(agent, members);
    item["isCompliant"] = json!(is_compliant(agent, grace, now));
    item
}

/// Compares the answer about every person with the registry; `now` is the time of the question.
pub(crate) fn is_like(index: &TestIndex, registry: &PlainRegistry, now: u64) -> Result<(), String> {
    let grace = registry.grace_seconds.unwrap();
    let mut persons: BTreeSet<Address> = registry.agents.iter().map(|agent| agent.haftungsperson).collect();
    persons.insert(Address::repeat_byte(0xee));
    for person in persons {
        let of_person: Vec<&AgentRecord> =
            registry.agents.iter().filter(|agent| agent.haftungsperson == person).collect();
        let with_status =
            |status| of_person.iter().filter(|agent| usize::from(agent.status) == status).count();
        let statuses: Map<String, Value> =
            (0..4).map(|status| (STATUSES[status].into(), with_status(status).into())).collect();
        let mut lapses = of_person.clone();
        lapses.retain(|agent| is_compliant(agent, grace, now));
        lapses.sort_by_key(|agent| (agent.lastAttestation, agent.agentId));
        let lapse = |agent: &&AgentRecord| {
            let mut lapse = shown(agent, "agentId agentWallet");
            lapse["compliantUntil"] = json!(time(agent.lastAttestation + grace));
            lapse
        };
        let block = index.state().as_of().unwrap();
        for limit in [3, 100] {
            let mut items: Vec<Value> = of_person.iter().map(|agent| item(agent, grace, now)).collect();
            let bases: Vec<Value> =
                of_person.iter().map(|agent| liability::of_record(index, agent)).collect();
            items.iter_mut().zip(&bases).for_each(|(item, basis)| item["liability"] = basis.clone());
            let first = format!("/api/v1/liable/{person}?limit={limit}");
            let pages = index.pages(&first, now, Bounds::DEFAULT);
            if pages.len() != items.len().div_ceil(limit).max(1) {
                return Err(format!("{first} has {} pages", pages.len()));
            }
            let of_basis = |basis: &str| bases.iter().filter(|known| known["basis"] == basis).count();
            let counts = ["registered", "attested", "named", "unknown"].map(|basis| (basis, of_basis(basis)));
            for (basis, count) in counts {
                let filtered = format!("{first}&basis={basis}");
                let found = index.pages(&filtered, now, Bounds::DEFAULT);
                let found: usize = found.iter().map(|page| page["data"].as_array().unwrap().len()).sum();
                if found != count {
                    return Err(format!("{filtered} has {found} agents, not {count}"));
                }
            }
            for (number, found) in pages.iter().enumerate() {
                let mut document = json!({
                    "haftungsperson": person.to_checksum(None), "total": items.len(),
                    "basisDistribution": Map::from_iter(counts.map(|(basis, count)| (basis.into(), count.into()))),
                    "statusDistribution": statuses, "compliantCount": lapses.len(),
                    "expiredCount": with_status(0) - lapses.len(),
                    "nextLapses": lapses.iter().take(10).map(lapse).collect::<Vec<_>>(), "limit": limit,
                    "data": items.chunks(limit).nth(number).unwrap_or_default(),
                    "asOf": { "blockNumber": block.number, "blockTimestamp": time(block.seconds) },
                });
                if let Some(next) = found.get("next") {
                    document["next"] = next.clone();
                }
                if *found != document {
                    return Err(format!("{first}: {found}\nnot {document}"));
                }
                // From the kept sums of a person with many agents, if there are any.
                if number == 0 && !items.is_empty() {
                    let (kept, _) =
                        index.ask_within(&first, now, Bounds { candidates: 0, ..Bounds::DEFAULT });
                    document.as_object_mut().unwrap().remove("basisDistribution");
                    if kept != document {
                        return Err(format!("{first}, with many: {kept}\nnot {document}"));
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_page_of_a_persons_agents_stays_where_it_is_while_the_registry_grows() {
    let mut index = TestIndex::filled(40, 0);
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
    let targets = |agents: u64| {
        [
            &format!("liable/{person}?limit=100&cursor=20"),
            "agents?status=Active&limit=50",
            "stats/detailed",
            "agent/7/lineage",
            "agents/compliance?limit=50",
            "agents/compliance?limit=50&cursor=1700400000-0",
            // Each of these is what a third of all agents are, at least, or all.
            &format!("agents?haftungsperson={person}&sort=-attestation&compliant=false"),
            "agents?compliant=true&cursor=100",
            "agents?sort=attestation&limit=50",
            "agents?q=scope&page=2",
            "agents?q=rights+carb&generation=0&sort=-id",
            "agents?q=rights+carb&sort=attestation",
            "agents?q=nobody&parent=0&status=Active",
            // The end of a list, of what a quarter of all agents are.
            &format!("agents?status=Active&limit=50&page={}", agents / 200),
        ]
        .map(|path| format!("/api/v1/{path}"))
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
        let index = TestIndex::of(registry);
        let ask = |target: &str| index.ask_within(target, 1_700_777_600, bounds);
        let steps = |target: String| index.database.cost(|| ask(&target)).0[1];
        targets(agents).into_iter().map(steps).collect()
    };
    let (few, many) = (work(300), work(10_000));
    for ((target, few), many) in targets(10_000).into_iter().zip(few).zip(many) {
        // The agents of the one hour in which attestations lapse now are counted one by one.
        assert!(many < few * 3, "{target}: {few} steps of SQLite's machine, and {many} for 10,000 agents");
    }
}
