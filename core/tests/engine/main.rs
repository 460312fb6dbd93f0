//! Runs against scripted nodes: round trips, one block for all reads, and nodes that misbehave.
//!
//! [`limits`]: limits of a node. [`nodes`]: error messages of real nodes. [`endpoints`]: failover.
//! [`verdicts`]: at a block, with a past, many at once. [`evm`]: the real contracts against a plain model.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)] // tests may fail

#[path = "../common/mod.rs"]
mod common;
mod endpoints;
mod evm;
mod limits;
mod nodes;
mod verdicts;

use std::collections::BTreeMap;

use alloy_sol_types::SolCall;
use common::host::{Host, blocks, finish};
use common::{ONE_ROUND, TWO_ROUNDS, all_targets as all, prelude::*, random::cases};
use proptest::prelude::*;
use registry_core::api::health::{Readiness, ServiceStatus};
use registry_core::{eth::abi::IAgentRegistry::getAgentCall, registry::agent::Agent};
use serde_json::value::RawValue;

const LIST: &str = TWO_ROUNDS[2];

fn node(agents: u64) -> Node {
    Node::new(PlainRegistry::with_agents(agents))
}

/// Returns a node of 30 agents with these quirks.
fn quirky(quirks: Quirks) -> Node {
    Node { quirks, ..node(30) }
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
    let agents = (1..=12).map(|id| record(id, id - 1)).collect();
    let mut node = Node::new(PlainRegistry { agents, ..PlainRegistry::default() });
    for (target, levels) in [("/api/v1/agent/1/lineage", 12), ("/api/v1/agent/4/ancestors", 4)] {
        node.log.clear();
        node.ask(target).unwrap();
        assert_eq!(node.round_trips(), levels, "{target}");
    }
    let mut node = crate::node(10_000);
    node.quirks.gas_for_calls = Some(2_200);
    for target in &TWO_ROUNDS[..4] {
        node.log.clear();
        node.ask(target).unwrap();
        assert_eq!(node.round_trips(), 2, "{target} about 10,000 agents");
    }
}

#[test]
fn a_verdict_names_its_block_without_asking_for_its_header_where_multicall_can_tell_it() {
    let latest = vec![("eth_call".to_owned(), json!("latest"))];
    for (no_tag, first, trips) in [(false, 1, 1), (true, 2, 2)] {
        let mut host = Host::new([quirky(Quirks { no_tag, ..Quirks::default() })]);
        host.known = Endpoints::new(1, None);
        // At first, the header shows whether contracts see the chain's own blocks.
        host.ask(ONE_ROUND[5]).unwrap();
        let log = std::mem::take(&mut host.nodes[0].log);
        assert_eq!((log.len(), log[0].len()), (first, 2));
        let answer = host.ask(ONE_ROUND[5]).unwrap();
        let node = &host.nodes[0];
        let timestamp = Timestamp::from_seconds(NOW).to_string();
        let parent = pinned(99)["blockHash"].clone();
        let as_of = json!({"blockNumber": 100, "blockTimestamp": timestamp, "parentHash": parent});
        assert_eq!((&answer["asOf"], node.round_trips()), (&as_of, trips));
        // Results from before the header may be of another block.
        let last = if no_tag { vec![("eth_call".to_owned(), pinned(100))] } else { latest.clone() };
        assert_eq!(node.log.last(), Some(&last));
    }
}

#[test]
fn readiness_is_one_call_once_the_node_is_known() {
    let (mut node, mut known) = (node(3), Endpoints::new(1, None));
    // At first, the header shows whether contracts see the chain's own blocks.
    for requests in [2, 1] {
        node.log.clear();
        let (service, now) = (ServiceStatus::default(), Timestamp::from_seconds(NOW));
        let ready = Readiness { registry: REGISTRY, multicall3: CANONICAL_ADDRESS, now, service };
        let mut run = Run::new(ready, CANONICAL_ADDRESS, Limits::default()).over(known.clone());
        let answer = finish(&mut run, |batch| Ok(node.post(batch))).unwrap();
        known.merge(&run.update());
        assert_eq!(read(answer)["chainId"], CHAIN_ID);
        assert_eq!(node.log.iter().map(Vec::len).collect::<Vec<_>>(), [requests]);
    }
}

#[test]
fn a_longer_question_reads_everything_at_the_header_it_saw_first() {
    // A block between header and first calls costs a round trip, but no consistency.
    for (mines_within_batches, trips, first) in [(false, 2, 100), (true, 3, 101)] {
        let mut node = quirky(Quirks { mines_within_batches, ..Quirks::default() });
        node.ask(LIST).unwrap();
        assert_eq!((node.round_trips(), node.log[0].len()), (trips, 3), "header, first calls and first rows");
        let pins: Vec<&Value> = node.log[1..].iter().flatten().map(|(_, block)| block).collect();
        assert!(pins.iter().all(|pin| **pin == pinned(first)), "{pins:?}");
    }
}

#[test]
fn a_block_the_node_cannot_read_by_hash_is_read_by_number_or_asked_for_again_or_further_back() {
    let unknown = |unknown_blocks| Quirks { unknown_blocks, ..Quirks::default() };
    for (quirks, last_pin) in [
        (Quirks { no_eip1898: true, ..Quirks::default() }, json!("0x64")),
        (unknown(1), pinned(100)),
        (unknown(2), pinned(98)),
    ] {
        let mut node = quirky(quirks);
        assert_eq!(node.ask(LIST).unwrap()["total"], 30);
        assert_eq!(node.log.last().unwrap().last().unwrap().1, last_pin, "{:?}", node.log);
    }
    let error = quirky(unknown(u32::MAX)).ask(LIST).unwrap_err();
    assert_eq!(error, RunError::BlockUnavailable.into());
}

#[test]
fn machines_ten_blocks_of_200_ms_apart_give_an_answer_of_one_block() {
    for behind in [[0, 10, 10], [10, 0, 0], [5, 10, 0]] {
        let node = quirky(Quirks { signs_records: true, ..Quirks::default() });
        let machines = behind.to_vec();
        let mut node = Node { block: 1_000, milliseconds_per_block: 200, machines, ..node };
        let answer = node.ask(LIST).unwrap();
        let creators = blocks(&answer);
        assert_eq!((&answer["total"], creators.len()), (&json!(30), 1), "{behind:?}: {creators:?}");
        assert!(node.round_trips() <= 6, "{behind:?}: {:?}", node.log);
    }
}

#[test]
fn a_node_without_state_overrides_is_asked_another_way_and_remembered() {
    let expected = node(300).ask("/api/v1/stats/detailed").unwrap();
    for (undeployed, refusals) in
        [(Undeployed::Creation, 1), (Undeployed::Ignored, 3), (Undeployed::Refused, 3)]
    {
        let quirks = Quirks { undeployed, ..Quirks::default() };
        let mut host = Host::new([Node { quirks, ..node(300) }]);
        host.known = Endpoints::new(1, None);
        for trips in [2 + refusals, 2] {
            let answer = host.ask("/api/v1/stats/detailed").unwrap();
            assert_eq!((answer, host.posts()), (expected.clone(), vec![trips]), "{undeployed:?}");
        }
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
fn without_multicall3_or_registry_the_error_names_the_address() {
    let mut run = run("/api/v1/stats");
    assert!(matches!(run.step(), Ok(Step::Send(_))));
    let error = run.feed(Reply { status: 200, body: br#"[{"id":1,"result":"0x"}]"# }).unwrap_err();
    assert_eq!(error, RunError::NoMulticall(CANONICAL_ADDRESS).into());

    // Another contract is there.
    let mut other = node(3);
    let reverted = Err(json!({"code": 3, "message": "execution reverted", "data": "0x"}));
    other.quirks.outcomes = vec![("eth_call", u32::MAX, reverted)];
    let error = other.ask("/api/v1/stats").unwrap_err();
    assert_eq!(error, RunError::NoMulticall(CANONICAL_ADDRESS).into());

    let elsewhere = Question { registry: Address::ZERO, ..question("/api/v1/stats") };
    let mut node = node(0);
    let error = node.run(elsewhere).unwrap_err();
    assert_eq!(error, RunError::NoContract(Address::ZERO).into());
}

#[test]
fn an_unknown_status_is_an_error_and_not_a_guess() {
    let mut node = node(2);
    for status in [4, 252, 253, 254] {
        node.registry.agents[1].status = status;
        for target in ["/api/v1/agent/2", "/api/v1/agents", LIST, "/api/v1/agent/1/lineage"] {
            let answer = node.ask(target);
            let is_right = matches!(answer, Err(Error::Query(QueryError::UnknownStatus(_))));
            assert!(is_right, "{status}, {target}: {answer:?}");
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
        let [honest, reason] = ["Agent not found", reason].map(alloy_primitives::hex::encode);
        let answer = drive(run("/api/v1/agent/1/lineage"), |batch| {
            let (status, body) = node.post(batch);
            (status, String::from_utf8(body).unwrap().replace(&honest, &reason).into_bytes())
        });
        let tree = read(answer.unwrap());
        assert_eq!((ids_in(&tree["children"]), &tree["unreadable"]), (vec![2], &unreadable));
    }
}

/// Asserts that a node with these quirks gives the answer of a node without them.
fn is_the_same_answer(target: &str, quirks: Quirks, busy: usize) {
    let expected = node(150).ask(target).unwrap();
    let mut node = Node { quirks, faults: vec![Fault::Status(429); busy].into(), ..node(150) };
    let limits = Limits { rounds: 5_000, ..Limits::default() };
    let mut answer = node.ask_within(target, limits).unwrap();
    // The block may differ: a node that does not have the newest is read a little further back.
    if let Some(as_of) = answer.get_mut("asOf") {
        assert!((1..=100).contains(&as_of["blockNumber"].as_u64().unwrap()), "{as_of}");
        *as_of = expected["asOf"].clone();
    }
    assert_eq!(answer, expected, "{target}");
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn no_mix_of_quirks_changes_an_answer(
        which in 0usize..11,
        gas_for_calls in prop::option::of(2usize..40),
        batch_limit in prop::option::of(1usize..4),
        short_batches in prop::option::of(1usize..4),
        refuses_by_id: bool,
        (no_eip1898, no_tag) in (any::<bool>(), any::<bool>()).prop_filter("a tag is what makes numbers safe", |(a, b)| !(*a && *b)),
        unknown_blocks in 0u32..3,
        busy in 0usize..2,
        undeployed in prop::sample::select(vec![
            Undeployed::Override, Undeployed::Creation, Undeployed::Ignored, Undeployed::Refused,
        ]),
    ) {
        let quirks = Quirks {
            gas_for_calls, undeployed, batch_limit, no_eip1898, unknown_blocks, short_batches, no_tag, refuses_by_id,
            ..Quirks::default()
        };
        is_the_same_answer(all().nth(which).unwrap(), quirks, busy);
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
        let (mut replies, mut sent) = (replies.iter().cycle(), 0);
        let outcome = drive(run(all().nth(which).unwrap()), |_| {
            sent += 1;
            replies.next().cloned().unwrap()
        });
        prop_assert!(outcome.is_err());
        prop_assert!(sent <= Limits::default().rounds);
    }
}

/// Returns an object's members, numbers as written: parsed, those beyond 2^64 would lose digits.
fn members(json: &str) -> BTreeMap<String, String> {
    let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(json).unwrap();
    let text = |raw: &str| serde_json::from_str(raw).unwrap_or_else(|_| raw.to_owned());
    members.into_iter().map(|(name, raw)| (name, text(raw.get()))).collect()
}

#[test]
fn records_decode_to_the_documented_json() {
    let vectors: Vec<BTreeMap<String, Box<RawValue>>> =
        serde_json::from_str(include_str!("../vectors/agent_records.json")).unwrap();
    assert!(!vectors.is_empty());
    for vector in vectors {
        let data: String = serde_json::from_str(vector["returnData"].get()).unwrap();
        let data = alloy_primitives::hex::decode(data).unwrap();
        let agent = Agent::try_from(getAgentCall::abi_decode_returns(&data).unwrap()).unwrap();
        assert_eq!(members(&serde_json::to_string(&agent).unwrap()), members(vector["agent"].get()));
    }
}

#[test]
fn numbers_that_do_not_tell_their_block_are_left_for_hashes() {
    let quirks = Quirks {
        short_batches: Some(2),
        no_tag: true,
        unknown_blocks: 1,
        undeployed: Undeployed::Creation,
        ..Quirks::default()
    };
    is_the_same_answer(all().nth(6).unwrap(), quirks, 0);
}
