//! Verdicts with a past from the index: asked beside the chain, early, late or never.

use registry_core::{
    api::question::{LateExcerpt, Question},
    api::route::Route,
    chain::{Limits, Run, drive},
    eth::{abi::AgentRecord, multicall::CANONICAL_ADDRESS},
    index::Excerpt,
};
use serde_json::{Value, json};

use crate::{
    Indexed,
    common::{question, record},
    promises::{filled, mine, show},
};

/// When the index's excerpt arrives.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Arrives {
    BeforeTheChainIsAsked,
    DuringTheRoundTrip,
    Never,
}

/// The verdict on an agent's wallet, and how many round trips it took.
fn verdict(index: &mut Indexed, of: &AgentRecord, query: &str, arrives: Arrives) -> (Value, usize) {
    let route = Route::parse(&format!("/api/v1/kya/{}{query}", of.agentWallet)).unwrap();
    let excerpt = Excerpt::of(&index.database, &index.state(), &route.wallets()).unwrap();
    let late = LateExcerpt::default();
    if arrives == Arrives::BeforeTheChainIsAsked {
        late.arrive(Some(excerpt.clone()));
    }
    index.node.log.clear();
    let asked = Question { excerpt: Some(late.clone()), ..question(&route.canonical()) };
    let node = &mut index.node;
    let answer = drive(Run::new(asked, CANONICAL_ADDRESS, Limits::default()), |batch| {
        if arrives == Arrives::DuringTheRoundTrip {
            late.arrive(Some(excerpt.clone()));
        }
        node.post(batch)
    });
    (serde_json::from_str(&answer.unwrap().body).unwrap(), index.node.round_trips())
}

#[test]
fn an_excerpt_that_arrives_during_the_round_trip_takes_no_other_one() {
    let (mut index, mut history, mut chance) = filled(40, 0);
    mine(&mut history, &mut chance, |registry| {
        registry.agents[6].status = 2;
        let wallet = registry.agents[6].agentWallet;
        registry.agents.push(AgentRecord { agentWallet: wallet, ..record(41, 2) });
        registry.agents[1].status = 1;
    });
    show(&mut index, &history);
    index.work().unwrap();
    let agents = history.blocks[&history.newest()].registry.agents.clone();
    for of in &agents[30..41] {
        let (early, trips) = verdict(&mut index, of, "", Arrives::BeforeTheChainIsAsked);
        let during = verdict(&mut index, of, "", Arrives::DuringTheRoundTrip);
        assert_eq!((&early, trips), (&during.0, 1), "{}", of.agentId);
        assert_eq!((during.0.get("unknownBecause"), during.1), (None, 1), "{}", of.agentId);
    }
    let (again, _) = verdict(&mut index, &agents[40], "", Arrives::DuringTheRoundTrip);
    assert_eq!(again["formerAgents"][0]["agentId"], 7);
    assert_eq!(again["ancestorsNotActive"][0], json!({ "agentId": 2, "status": "Suspended" }));
}

#[test]
fn a_verdict_without_its_excerpt_is_right_and_says_why_the_past_is_unknown() {
    let (mut index, history, _) = filled(40, 0);
    for of in &history.blocks[&history.newest()].registry.agents {
        let (known, _) = verdict(&mut index, of, "", Arrives::BeforeTheChainIsAsked);
        let (unknown, trips) = verdict(&mut index, of, "", Arrives::Never);
        for field in ["isRegistered", "isCompliant", "decision", "agent", "asOf"] {
            assert_eq!(unknown[field], known[field], "{field}");
        }
        assert_eq!((&unknown["formerAgents"], trips), (&json!("unknown"), 1));
        assert_eq!(unknown["unknownBecause"], "INDEX_UNAVAILABLE");
    }
}

#[test]
fn a_node_that_is_behind_the_index_or_far_ahead_of_it_causes_no_walk() {
    let (mut index, mut history, mut chance) = filled(40, 0);
    mine(&mut history, &mut chance, |registry| registry.agents.push(record(41, 0)));
    show(&mut index, &history);
    index.work().unwrap();
    let agents = history.blocks[&history.newest()].registry.agents.clone();
    index.node.block = history.newest() - 1;
    for query in ["", "?history=1"] {
        let (behind, trips) = verdict(&mut index, &agents[3], query, Arrives::BeforeTheChainIsAsked);
        assert_eq!((&behind["isRegistered"], trips), (&json!(true), 1), "{query}: {:?}", index.node.log);
        assert_eq!(behind["unknownBecause"], "INDEX_UNAVAILABLE", "{query}");
    }
    // More agents than one call reads have been registered since.
    mine(&mut history, &mut chance, |registry| registry.agents.extend((42..=1_100).map(|id| record(id, 0))));
    show(&mut index, &history);
    for query in ["", "?history=1"] {
        let (ahead, trips) = verdict(&mut index, &agents[3], query, Arrives::BeforeTheChainIsAsked);
        assert_eq!((&ahead["unknownBecause"], trips), (&json!("INDEX_UNAVAILABLE"), 1), "{query}");
    }
}
