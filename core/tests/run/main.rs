//! How a run asks: round trips, one block for all reads, and what it makes of nodes that misbehave.
#![allow(clippy::unwrap_used, clippy::panic)] // a test's helpers may fail a test

#[path = "../common/mod.rs"]
mod common;
mod limits;

use std::collections::BTreeMap;

use alloy_primitives::{Address, U256, hex};
use alloy_sol_types::SolCall;
use common::{
    NOW, Node, PlainRegistry, Quirks, Undeployed,
    host::{blocks, finish, read},
    pinned, question, record, scan_query,
};
use proptest::prelude::*;
use registry_core::{
    api::error::Error,
    api::route::Route,
    chain::{Endpoints, Limits, QueryError, Reply, Run, RunError, Step, drive},
    eth::abi::IAgentRegistry::getAgentCall,
    eth::multicall::CANONICAL_ADDRESS,
    eth::timestamp::Timestamp,
    registry::agent::Agent,
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

const ONE_ROUND: [&str; 6] = [
    "/health",
    "/api/v1/stats",
    "/api/v1/agents?limit=100",
    "/api/v1/agent/1",
    "/api/v1/agent/1/revenue",
    "/api/v1/kya/0x0000000000000000000000000000000000000001",
];
const TWO_ROUNDS: [&str; 5] = [
    "/api/v1/stats/detailed",
    "/api/v1/agents?status=Active",
    "/api/v1/agents/compliance",
    "/api/v1/revenue/aggregate",
    "/api/v1/agent/1/lineage",
];

fn node(agents: u64) -> Node {
    Node::new(PlainRegistry::with_agents(agents))
}

/// A node of 30 agents with these quirks.
fn quirky(quirks: Quirks) -> Node {
    Node { quirks, ..node(30) }
}

fn all() -> impl Iterator<Item = &'static str> {
    ONE_ROUND.into_iter().chain(TWO_ROUNDS)
}

#[test]
fn round_trips_are_as_few_as_documented() {
    for (targets, expected) in [(ONE_ROUND.as_slice(), 1), (TWO_ROUNDS.as_slice(), 2)] {
        for target in targets {
            let mut node = node(30);
            node.ask(target).unwrap();
            assert_eq!(node.round_trips(), expected, "{target}");
        }
    }
}

#[test]
fn a_thousand_agents_still_take_two_round_trips() {
    for target in &TWO_ROUNDS[..4] {
        let mut node = node(1_000);
        let answer = node.ask(target).unwrap();
        assert_eq!(node.round_trips(), 2, "{target}: {answer}");
    }
}

#[test]
fn lineage_takes_one_round_trip_per_level() {
    let mut registry = PlainRegistry::with_agents(0);
    registry.agents = (1..=12).map(|id| record(id, id - 1)).collect();
    let mut node = Node::new(registry);
    node.ask("/api/v1/agent/1/lineage").unwrap();
    assert_eq!(node.round_trips(), 12);
}

#[test]
fn a_question_of_one_round_asks_for_no_header() {
    let mut node = node(3);
    node.ask("/api/v1/agent/1").unwrap();
    assert_eq!(node.log, [vec![("eth_call".to_string(), json!("latest"))]]);
}

/// The block of that number on the usual chain, as an answer names it.
fn as_of(node: &Node, number: u64) -> Value {
    let timestamp =
        Timestamp::from_seconds(NOW - (node.block - number) * node.milliseconds_per_block / 1_000);
    json!({
        "blockNumber": number,
        "blockTimestamp": timestamp.to_string(),
        "parentHash": pinned(number - 1).get("blockHash"),
    })
}

#[test]
fn a_verdict_names_its_block_without_asking_for_it() {
    let mut node = node(3);
    let answer = node.ask(ONE_ROUND[5]).unwrap();
    assert_eq!(answer["asOf"], as_of(&node, 100));
    assert_eq!(node.log, [vec![("eth_call".to_string(), json!("latest"))]]);
}

#[test]
fn a_verdict_names_its_block_where_multicall_cannot_tell_it() {
    let mut node = node(3);
    node.quirks.no_tag = true;
    let answer = node.ask(ONE_ROUND[5]).unwrap();
    assert_eq!(answer["asOf"], as_of(&node, 100));
    assert_eq!(node.round_trips(), 3, "what was read before the header came may be of another block");
    assert_eq!(node.log[2], [("eth_call".to_string(), pinned(100))]);
}

#[test]
fn a_longer_question_reads_everything_at_the_header_it_saw_first() {
    let mut node = node(300);
    node.ask("/api/v1/agents/compliance").unwrap();
    assert_eq!(node.log[0].len(), 3, "the header comes along with the first calls and the first rows");
    assert!(node.log[1].iter().all(|(_, block)| *block == pinned(100)), "{:?}", node.log[1]);
}

#[test]
fn a_block_between_header_and_first_calls_costs_a_round_trip_and_no_consistency() {
    let mut node = quirky(Quirks { mines_within_batches: true, ..Quirks::default() });
    node.ask("/api/v1/agents/compliance").unwrap();
    assert_eq!(node.round_trips(), 3);
    let pin = pinned(101);
    assert!(node.log[1..].iter().flatten().all(|(_, block)| *block == pin), "{:?}", node.log);
}

#[test]
fn a_node_without_eip_1898_is_read_by_number() {
    let mut node = quirky(Quirks { no_eip1898: true, ..Quirks::default() });
    let answer = node.ask("/api/v1/agents/compliance").unwrap();
    assert_eq!(answer["total"], 30);
    assert_eq!(node.log.last().unwrap()[0].1, json!("0x64"));
}

#[test]
fn a_block_the_node_does_not_have_yet_is_asked_for_again_then_pinned_further_back() {
    for (unknown, last_pin) in [(1, 100), (2, 98)] {
        let mut node = quirky(Quirks { unknown_blocks: unknown, ..Quirks::default() });
        let answer = node.ask("/api/v1/agents/compliance").unwrap();
        assert_eq!(answer["total"], 30);
        assert_eq!(node.log.last().unwrap()[0].1, pinned(last_pin), "{:?}", node.log);
    }
    let mut node = quirky(Quirks { unknown_blocks: u32::MAX, ..Quirks::default() });
    let error = node.ask("/api/v1/agents/compliance").unwrap_err();
    assert_eq!(error, RunError::BlockUnavailable.into());
}

#[test]
fn stepping_back_is_measured_in_seconds_whatever_that_is_in_blocks() {
    for (milliseconds, last_pin) in [(12_000, 998), (2_000, 998), (200, 968)] {
        let node = quirky(Quirks { unknown_blocks: 2, ..Quirks::default() });
        let mut node = Node { block: 1_000, milliseconds_per_block: milliseconds, ..node };
        node.ask("/api/v1/agents/compliance").unwrap();
        let last = &node.log.last().unwrap()[0].1;
        assert_eq!(*last, pinned(last_pin), "{milliseconds} ms a block: {:?}", node.log);
    }
}

#[test]
fn machines_ten_blocks_of_200_ms_apart_give_an_answer_of_one_block() {
    for behind in [[0, 10, 10], [10, 0, 0], [5, 10, 0]] {
        let node = quirky(Quirks { signs_records: true, ..Quirks::default() });
        let machines = behind.to_vec();
        let mut node = Node { block: 1_000, milliseconds_per_block: 200, machines, ..node };
        let answer = node.ask("/api/v1/agents/compliance").unwrap();
        let creators = blocks(&answer);
        assert_eq!((&answer["total"], creators.len()), (&json!(30), 1), "{behind:?}: {creators:?}");
        assert!(node.round_trips() <= 6, "{behind:?}: {:?}", node.log);
    }
}

#[test]
fn a_node_without_state_overrides_is_asked_another_way_and_remembered() {
    let expected = node(300).ask("/api/v1/stats/detailed").unwrap();
    for (undeployed, refusals) in
        [(Undeployed::Creation, 1), (Undeployed::Ignored, 2), (Undeployed::Refused, 2)]
    {
        let mut node = node(300);
        node.quirks.undeployed = undeployed;
        let mut known = Endpoints::new(1, None);
        let mut ask = |node: &mut Node| {
            let limits = Limits::default();
            let mut run =
                Run::new(question("/api/v1/stats/detailed"), CANONICAL_ADDRESS, limits).over(known.clone());
            let before = node.round_trips();
            let mut answer = read(finish(&mut run, |batch| Ok(node.post(batch))).unwrap());
            known.merge(&run.update());
            answer["chain"] = expected["chain"].clone();
            assert_eq!(answer, expected, "{undeployed:?}");
            node.round_trips() - before
        };
        let (first, second) = (ask(&mut node), ask(&mut node));
        assert_eq!(first, second + refusals, "{undeployed:?}");
        assert_eq!(second, 2, "{undeployed:?}");
    }
}

#[test]
fn one_scan_answers_all_questions_about_the_whole_registry() {
    let mut node = node(30);
    node.registry.reports = (1..=9).map(|id| common::report(id, id)).collect();
    let run = Run::new(scan_query(), CANONICAL_ADDRESS, Limits::default());
    let scan = drive(run, |batch| node.post(batch)).unwrap();
    for target in &TWO_ROUNDS[..4] {
        let endpoint = Route::parse(target).unwrap();
        let document = scan.document(&endpoint, Timestamp::from_seconds(NOW)).unwrap();
        let mut kept = read(document);
        let asked = node.ask(target).unwrap();
        if let Some(chain) = kept.get_mut("chain") {
            *chain = asked["chain"].clone();
        }
        assert_eq!(kept, asked, "{target}");
    }
}

#[test]
fn a_registry_without_a_grace_period_has_seven_days() {
    let mut node = node(3);
    node.registry.grace_seconds = None;
    for (age, current) in [(604_800, true), (604_801, false)] {
        node.registry.agents[0].lastAttestation = NOW - age;
        let answer = node.ask("/api/v1/agent/1").unwrap();
        assert_eq!(answer["compliance"]["attestationCurrent"], current);
    }
}

#[test]
fn a_busy_node_is_asked_again_a_little_later_and_not_forever() {
    let mut patient = node(3);
    patient.quirks.busy = 2;
    patient.ask("/api/v1/stats").unwrap();
    let mut refused = node(3);
    refused.quirks.busy = 3;
    assert_eq!(refused.ask("/api/v1/stats").unwrap_err(), RunError::Http(429).into());

    let question = question("/api/v1/stats");
    let mut run = Run::new(question, CANONICAL_ADDRESS, Limits::default());
    let delays = [0, 100, 400].map(|_| {
        let Ok(Step::Send(batch)) = run.step() else { panic!("not done") };
        let _ = run.feed(Reply { status: 503, body: b"" });
        batch.delay_ms
    });
    assert_eq!(delays, [0, 100, 400]);
}

#[test]
fn without_multicall3_or_registry_the_error_names_the_address() {
    let mut run = Run::new(question("/api/v1/stats"), CANONICAL_ADDRESS, Limits::default());
    assert!(matches!(run.step(), Ok(Step::Send(_))));
    let error = run.feed(Reply { status: 200, body: br#"{"id":0,"result":"0x"}"# }).unwrap_err();
    assert_eq!(error, RunError::NoMulticall(CANONICAL_ADDRESS).into());

    let mut elsewhere = question("/api/v1/stats");
    elsewhere.registry = Address::ZERO;
    let mut node = node(0);
    let run = Run::new(elsewhere, CANONICAL_ADDRESS, Limits::default());
    let error = drive(run, |batch| node.post(batch)).unwrap_err();
    assert_eq!(error, RunError::NoContract(Address::ZERO).into());
}

#[test]
fn an_unknown_status_is_an_error_and_not_a_guess() {
    let mut node = node(2);
    node.registry.agents[1].status = 4;
    for target in
        ["/api/v1/agent/2", "/api/v1/agents", "/api/v1/agents/compliance", "/api/v1/agent/1/lineage"]
    {
        assert!(matches!(node.ask(target), Err(Error::Query(QueryError::UnknownStatus(_)))), "{target}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_mix_of_quirks_changes_an_answer(
        which in 0usize..11,
        gas_for_calls in prop::option::of(2usize..40),
        batch_limit in prop::option::of(1usize..4),
        short_batches in prop::option::of(1usize..4),
        refuses_by_id: bool,
        (no_eip1898, no_tag) in (any::<bool>(), any::<bool>()).prop_filter("a tag is what makes numbers safe", |(a, b)| !(*a && *b)),
        unknown_blocks in 0u32..3,
        busy in 0u32..2,
        undeployed in prop::sample::select(vec![
            Undeployed::Override, Undeployed::Creation, Undeployed::Ignored, Undeployed::Refused,
        ]),
    ) {
        let target = all().nth(which).unwrap();
        let expected = node(150).ask(target).unwrap();
        let mut node = node(150);
        node.quirks = Quirks {
            gas_for_calls, undeployed, batch_limit, no_eip1898, unknown_blocks, short_batches, busy, no_tag, refuses_by_id,
            ..Quirks::default()
        };
        let limits = Limits { rounds: 5_000, ..Limits::default() };
        let mut answer = node.ask_within(target, limits).unwrap();
        // Which block it is may differ: a node that does not have the newest is read a little further back.
        if let Some(as_of) = answer.get_mut("asOf") {
            prop_assert!((1..=100).contains(&as_of["blockNumber"].as_u64().unwrap()), "{as_of}");
            *as_of = expected["asOf"].clone();
        }
        prop_assert_eq!(answer, expected, "{}", target);
    }

    #[test]
    fn any_replies_end_the_run_within_its_limits(
        which in 0usize..11,
        replies in prop::collection::vec((200u16..600, prop_oneof![
            prop::collection::vec(any::<u8>(), 0..60),
            r#"\[?\{"id":[01],"(result":("0x"|"0x00"|null|\{\})|error":\{"code":-3[0-9]{4},"message":"(header not found|out of gas|timeout|x)"\})\}\]?"#
                .prop_map(String::into_bytes),
        ]), 1..8),
    ) {
        let mut replies = replies.iter().cycle();
        let mut sent = 0;
        let run = Run::new(question(all().nth(which).unwrap()), CANONICAL_ADDRESS, Limits::default());
        let outcome = drive(run, |_| {
            sent += 1;
            replies.next().cloned().unwrap()
        });
        prop_assert!(outcome.is_err());
        prop_assert!(sent <= Limits::default().rounds);
    }
}

#[derive(Deserialize)]
struct Vector {
    #[serde(rename = "returnData")]
    return_data: String,
    agent: BTreeMap<String, Box<RawValue>>,
}

#[test]
fn records_decode_to_the_documented_json() {
    let vectors: Vec<Vector> = serde_json::from_str(include_str!("../vectors/agent_records.json")).unwrap();
    assert!(!vectors.is_empty());
    for Vector { return_data, agent: expected } in vectors {
        let data = hex::decode(return_data).unwrap();
        let agent = Agent::try_from(getAgentCall::abi_decode_returns(&data).unwrap()).unwrap();
        let written = serde_json::to_string(&agent).unwrap();
        let written: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&written).unwrap();
        assert_eq!(written.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
        for (field, expected) in &expected {
            // Numbers are compared as text: parsed, those beyond 2^64 would lose the digits in question.
            let (expected, written) = (expected.get(), written[field].get());
            let meaning = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            assert!(
                written == expected || meaning(written).is_string() && meaning(written) == meaning(expected),
                "{field}: {written}, not {expected}"
            );
        }
    }
}

#[test]
fn a_lineage_takes_no_other_revert_for_an_absent_agent() {
    let mut registry = PlainRegistry::with_agents(3);
    // Among the children of agent 1 is one that the registry does not have.
    registry.agents[2].agentId = U256::from(99);
    let mut node = Node::new(registry);
    for (reason, unreadable) in [("Agent not found", Value::Null), ("Registry paused", json!([99]))] {
        let [honest, reason] = ["Agent not found", reason].map(hex::encode);
        let run = Run::new(question("/api/v1/agent/1/lineage"), CANONICAL_ADDRESS, Limits::default());
        let answer = drive(run, |batch| {
            let (status, body) = node.post(batch);
            (status, String::from_utf8(body).unwrap().replace(&honest, &reason).into_bytes())
        });
        let tree: Value = serde_json::from_str(&answer.unwrap().body).unwrap();
        assert_eq!((common::ids_in(&tree["children"]), &tree["unreadable"]), (vec![2], &unreadable));
    }
}
