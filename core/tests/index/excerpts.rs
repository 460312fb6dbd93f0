//! Verdicts with a past from the index: its excerpt arrives early, during the round trip, or never.

use registry_core::api::question::LateExcerpt;

use crate::{TestIndex, common::prelude::*, liability, promises::verdict};

/// Returns the [`verdict`] on an agent's wallet with an excerpt that arrives during the first round trip.
fn during(index: &mut TestIndex, of: &AgentRecord) -> (Value, usize) {
    let (late, excerpt) = (LateExcerpt::default(), index.excerpt(&[of.agentWallet]));
    let asked = question(&format!("/api/v1/kya/{}", of.agentWallet));
    let asked = Question { excerpt: Some(late.clone()), ..asked };
    index.node.log.clear();
    let answer = drive(Run::new(asked, CANONICAL_ADDRESS, Limits::default()), |batch| {
        late.arrive(Some(excerpt.clone()));
        index.node.post(batch)
    });
    (read(answer.unwrap()), index.node.round_trips())
}

#[test]
fn an_excerpt_that_arrives_during_the_round_trip_takes_no_other_one() {
    let mut index = TestIndex::filled(40, 0);
    index.mine(|registry, _| {
        registry.agents[6].status = 2;
        let wallet = registry.agents[6].agentWallet;
        registry.agents.push(AgentRecord { agentWallet: wallet, ..record(41, 2) });
        registry.agents[1].status = 1;
    });
    index.refresh();
    let agents = index.agents();
    for of in &agents[30..41] {
        let (early, during) = (verdict(&mut index, of), during(&mut index, of));
        assert_eq!((&early, early.1), (&during, 1), "{}", of.agentId);
        assert_eq!(during.0.get("unknownBecause"), None, "{}", of.agentId);
    }
    let (again, _) = during(&mut index, &agents[40]);
    assert_eq!(again["formerAgents"][0]["agentId"], 7);
    assert_eq!(again["ancestorsNotActive"][0], json!({ "agentId": 2, "status": "Suspended" }));
}

#[test]
fn a_verdict_without_its_excerpt_is_right_and_says_why_the_past_is_unknown() {
    let mut index = TestIndex::filled(40, 0);
    for of in &index.agents() {
        let (known, _) = verdict(&mut index, of);
        let unknown = index.ask_node(&format!("/api/v1/kya/{}", of.agentWallet), LateExcerpt::default());
        let unknown = read(unknown);
        for field in ["isRegistered", "isCompliant", "decision", "agent", "asOf"] {
            assert_eq!(unknown[field], known[field], "{field}");
        }
        assert_eq!((&unknown["formerAgents"], index.node.round_trips()), (&json!("unknown"), 1));
        assert_eq!(unknown["unknownBecause"], "INDEX_UNAVAILABLE");
    }
}

#[test]
fn the_ancestors_of_an_agent_that_the_index_lacks_are_unknown_until_it_has_it() {
    let mut index = TestIndex::filled(40, 0);
    index.mine(|registry, _| registry.agents.push(record(41, 2)));
    index.show();
    let newer = index.agents()[40].clone();
    let (before, _) = verdict(&mut index, &newer);
    assert_eq!(
        (&before["ancestorsNotActive"], &before["unknownBecause"]),
        (&json!("unknown"), &json!("INDEX_UNAVAILABLE"))
    );
    index.refresh();
    let (after, _) = verdict(&mut index, &newer);
    assert_eq!((after["ancestorsNotActive"].is_array(), after.get("unknownBecause")), (true, None));
}

#[test]
fn an_attestation_after_the_verdicts_block_is_not_told() {
    let mut index = TestIndex::filled(10, 0);
    index.attest(1, 1);
    index.refresh();
    let attested_at = liability::attest(&mut index, 3, true);
    index.refresh();
    let agent = index.agents()[2].clone();
    let said = |verdict: &Value| ["basis", "attestedAt"].map(|member| verdict["liability"][member].clone());
    let (at, _) = verdict(&mut index, &agent);
    assert_eq!(said(&at), [json!("attested"), json!(time(attested_at))]);
    index.node.block -= 1;
    let (before, _) = verdict(&mut index, &agent);
    assert!(before["asOf"]["blockTimestamp"].as_str() < at["asOf"]["blockTimestamp"].as_str());
    assert_eq!(said(&before), [json!("unknown"), Value::Null]);
}
