//! What happened to one agent, on nodes that cap, prune, lie about or do not have events.

use std::collections::BTreeSet;

use alloy_primitives::{Address, B256, U256, keccak256};
use registry_core::{
    api::document::Document,
    api::index_documents,
    api::route::Route,
    chain::{Endpoints, Limits, QueryError, Reply, Step},
    eth::abi::IAgentRegistry::{
        AgentReactivated, AgentRegistered, AgentSuspended, AgentTerminated, ComplianceAttested,
        RevenueReported,
    },
    eth::multicall::CANONICAL_ADDRESS,
    eth::timestamp::Timestamp,
    index::{self, IndexError, SqlValue, Store as _},
};
use serde_json::{Value, json};

use crate::{
    Indexed, REGISTRY,
    common::{Node, PlainRegistry, number_of, record},
    event_node::{EventNode, HEAD, Serves, seconds},
    history::{Chance, History},
};

/// Whoever does something.
const BY: Address = Address::repeat_byte(0xb1);

/// An index of so many agents, registered 100,000 blocks apart from block 1,000,000 on, all children of the
/// first, and a node that knows of their registrations.
fn chain(agents: u64) -> (Indexed, EventNode) {
    let block = |id: u64| 900_000 + id * 100_000;
    let mut registry = PlainRegistry { grace_seconds: Some(604_800), ..PlainRegistry::default() };
    for id in 1..=agents {
        let mut agent = record(id, u64::from(id > 1));
        (agent.registeredAt, agent.lastAttestation) = (seconds(block(id)), seconds(block(id)));
        registry.agents.push(agent);
    }
    let mut history = History::new(0, &mut Chance(7));
    history.push(HEAD, seconds(HEAD), registry, Vec::new());
    let mut indexed = Indexed::new(Node::new(PlainRegistry::default()), 10_000, 0);
    indexed.config.limits = Limits::default();
    crate::promises::show(&mut indexed, &history);
    indexed.work().unwrap();
    let mut node = EventNode::new(history.blocks[&HEAD].hash);
    for id in 1..=agents {
        node.emit(block(id), &registration(id, u64::from(id > 1)));
    }
    (indexed, node)
}

fn registration(id: u64, parent: u64) -> AgentRegistered {
    AgentRegistered {
        agentId: U256::from(id),
        agentWallet: Address::left_padding_from(&id.to_be_bytes()),
        creator: BY,
        haftungsperson: Address::repeat_byte(2),
        parentAgentId: U256::from(parent),
        generation: U256::from(parent),
    }
}

fn attested(number: u64) -> ComplianceAttested {
    ComplianceAttested { agentId: U256::from(1), by: BY, attestedAt: seconds(number) }
}

/// Reports of agent 1, one a block from there on.
fn report(node: &mut EventNode, first: u64, count: u64) {
    for amount in 0..count {
        let report = RevenueReported {
            agentId: U256::from(1),
            by: BY,
            amount: U256::from(amount),
            currency: "EUR".into(),
            category: "api".into(),
        };
        node.emit(first + amount, &report);
    }
}

/// The life of agent 1, in a registry of three agents.
fn life() -> (Indexed, EventNode) {
    let (indexed, mut node) = chain(3);
    let (agent, reason) = (U256::from(1), "sanctions \"list\" 7".to_owned());
    node.emit(1_050_000, &attested(1_050_000));
    node.emit(1_150_000, &AgentSuspended { agentId: agent, by: BY, reason });
    node.emit(1_150_000, &AgentReactivated { agentId: agent, by: BY });
    report(&mut node, 1_160_000, 1);
    node.emit(4_999_999, &AgentTerminated { agentId: agent, by: BY });
    // Somebody else's.
    let reason = "not this one".into();
    node.emit(1_160_000, &AgentSuspended { agentId: U256::from(2), by: BY, reason });
    (indexed, node)
}

/// A page, or `None` where the block is no more canonical.
fn try_page(indexed: &Indexed, node: &mut EventNode, target: &str) -> Result<Option<Document>, IndexError> {
    let Ok(Route::History { id, limit, cursor }) = Route::parse(target) else { panic!("{target}") };
    let endpoints = Endpoints::new(1, None);
    let config =
        index::Config { registry: REGISTRY, multicall3: CANONICAL_ADDRESS, ..indexed.config.clone() };
    let asked = (id, limit, cursor);
    let query = index::HistoryQuery::new(&indexed.database, &indexed.state(), REGISTRY, asked)?;
    let mut history = query.run(&config, endpoints);
    for _ in 0..200 {
        let fed = match history.step() {
            Ok(Step::Done(history)) => return Ok(Some(index_documents::history(history))),
            Ok(Step::Send(batch)) => match node.post(&batch) {
                Ok(body) => history.feed(Reply { status: 200, body: &body }),
                Err(failure) => history.fail(failure),
            },
            Err(error) => Err(error),
        };
        match fed {
            Err(QueryError::BlockNotAvailable(_)) => return Ok(None),
            fed => fed?,
        }
    }
    panic!("no end");
}

fn page(indexed: &Indexed, node: &mut EventNode, target: &str) -> Value {
    let document = try_page(indexed, node, target).unwrap().unwrap();
    let page: Value = serde_json::from_str(&document.body).unwrap();
    let (path, links) = (target.split('?').next().unwrap(), document.links.unwrap());
    assert!(links.starts_with(&format!("<{path}")), "{links}");
    assert_eq!(links.contains("rel=\"next\""), page["next"].is_string());
    assert_eq!(page["asOf"]["blockNumber"], HEAD);
    page
}

/// All pages of agent 1's history; every one has to say the same of what is missing.
fn all(indexed: &Indexed, node: &mut EventNode, limit: usize) -> (Vec<Value>, Value) {
    let path = format!("/api/v1/agent/1/history?limit={limit}");
    let first = page(indexed, node, &path);
    let (mut told, mut next) = (first["data"].as_array().unwrap().clone(), first["next"].clone());
    while let Some(cursor) = next.as_str() {
        let page = page(indexed, node, &format!("{path}&cursor={cursor}"));
        assert!(page["data"].as_array().unwrap().len() <= limit);
        assert_eq!(
            (&page["complete"], &page["fromBlock"]),
            (&first["complete"], &first["fromBlock"]),
            "{page}"
        );
        told.extend_from_slice(page["data"].as_array().unwrap());
        next = page["next"].clone();
    }
    (told, first)
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

const LIFE: [&str; 8] = [
    "registered",
    "attested",
    "childRegistered",
    "suspended",
    "reactivated",
    "revenueReported",
    "childRegistered",
    "terminated",
];

/// Positions of the events: they are told once, and in order.
fn in_order(events: &[Value]) {
    let place = |event: &Value| (event["blockNumber"].as_u64().unwrap(), event["logIndex"].as_u64().unwrap());
    let places: Vec<_> = events.iter().map(place).collect();
    assert!(places.is_sorted(), "{places:?}");
    assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len());
}

#[test]
fn a_life_is_told_oldest_first_with_block_time_transaction_and_reason() {
    let (indexed, mut node) = life();
    let page = page(&indexed, &mut node, "/api/v1/agent/1/history");
    let events = page["data"].as_array().unwrap();
    assert_eq!(names(events), LIFE);
    in_order(events);
    assert_eq!((&page["complete"], &page["fromBlock"]), (&json!(true), &json!(1_000_000)));
    assert_eq!((page.get("next"), page.get("incompleteBecause")), (None, None));
    let by = BY.to_checksum(None);
    let time = |number| Timestamp::from_seconds(seconds(number)).to_string();
    assert_eq!(
        events[3],
        json!({
            "event": "suspended", "by": by, "reason": "sanctions \"list\" 7",
            "blockNumber": 1_150_000, "time": time(1_150_000), "logIndex": 3,
            "transactionHash": keccak256([1_150_000_u64.to_be_bytes(), 3_u64.to_be_bytes()].concat()),
        })
    );
    assert_eq!((&events[0]["creator"], &events[0]["parentAgentId"]), (&json!(by), &json!(0)));
    assert_eq!((&events[2]["childAgentId"], &events[6]["childAgentId"]), (&json!(2), &json!(3)));
    assert_eq!((&events[5]["amount"], &events[5]["currency"]), (&json!(0), &json!("EUR")));
    assert_eq!((node.batches, node.calls), (2, 2), "the agent, and its children");
}

#[test]
fn whatever_a_node_serves_at_once_the_same_history_is_told() {
    for times_logs in [true, false] {
        for serves in [
            Serves::All,
            Serves::Blocks(4_000_000),
            Serves::Blocks(50_000),
            Serves::Blocks(10_000),
            Serves::Blocks(5_000),
            Serves::Results(2),
            Serves::Bytes(3_000),
        ] {
            for limit in [100, 3, 1] {
                let (indexed, mut node) = life();
                (node.serves, node.times_logs) = (serves, times_logs);
                let (told, first) = all(&indexed, &mut node, limit);
                assert_eq!(names(&told), LIFE, "{serves:?} {limit}");
                in_order(&told);
                assert_eq!(
                    (&first["complete"], &first["fromBlock"]),
                    (&json!(true), &json!(1_000_000)),
                    "{serves:?}"
                );
                assert_eq!(told[3]["time"], Timestamp::from_seconds(seconds(1_150_000)).to_string());
            }
        }
    }
}

#[test]
fn any_events_are_told_once_and_in_order_by_any_node_that_has_them() {
    for seed in 1..=150 {
        let mut chance = Chance(seed);
        let (indexed, mut node) = chain(1 + chance.below(4));
        let mut block = 1_000_001;
        for _ in 0..chance.below(30) {
            block = (block + chance.pick(&[0, 0, 1, 300, 90_000, 400_000])).min(HEAD);
            if chance.once_in(3) {
                report(&mut node, block, 1);
            } else {
                node.emit(block, &attested(block));
            }
        }
        node.serves = chance.pick(&[
            Serves::All,
            Serves::Blocks(HEAD / 2),
            Serves::Blocks(6_000),
            Serves::Results(40),
            Serves::Bytes(10_000),
        ]);
        node.times_logs = chance.once_in(2);
        // The registration of agent 1, its children's, and all else that is there is about agent 1.
        let mut expected: Vec<(u64, u64)> = node
            .logs
            .iter()
            .map(|(number, log)| (*number, number_of(log["logIndex"].as_str().unwrap())))
            .collect();
        expected.sort_unstable();
        let limit = chance.pick(&[1, 2, 7, 100]);
        let (told, first) = all(&indexed, &mut node, limit);
        let place =
            |event: &Value| (event["blockNumber"].as_u64().unwrap(), event["logIndex"].as_u64().unwrap());
        let places: Vec<(u64, u64)> = told.iter().map(place).collect();
        assert_eq!(
            (places, &first["complete"]),
            (expected, &json!(true)),
            "{seed}: {:?} {limit}",
            node.serves
        );
    }
}

#[test]
fn what_the_index_was_refused_for_all_agents_together_limits_no_single_one() {
    let (indexed, mut node) = life();
    let of_state = "SELECT value FROM meta WHERE key = 'state'";
    let rows = indexed.database.execute(of_state, &[]).unwrap();
    let SqlValue::Text(state) = &rows[0][0] else { panic!("{rows:?}") };
    let mut state: Value = serde_json::from_str(state).unwrap();
    assert!(state["logRange"].is_null());
    state["logRange"] = json!([10, 3]);
    let parameters = [SqlValue::Text(state.to_string())];
    indexed.database.execute("UPDATE meta SET value = ?1 WHERE key = 'state'", &parameters).unwrap();
    let page = page(&indexed, &mut node, "/api/v1/agent/1/history");
    assert_eq!((names(page["data"].as_array().unwrap()), &page["complete"]), (LIFE.to_vec(), &json!(true)));
}

#[test]
fn an_answer_takes_a_bounded_number_of_calls_and_where_that_is_too_few_it_says_from_where_on_it_knows() {
    for serves in [Serves::Blocks(1_000), Serves::Blocks(10), Serves::Blocks(1)] {
        let (indexed, mut node) = life();
        node.serves = serves;
        let (told, first) = all(&indexed, &mut node, 100);
        assert_eq!((&first["complete"], &first["incompleteBecause"]), (&json!(false), &json!("LOG_RANGE")));
        assert_eq!(names(&told), ["terminated"], "{serves:?}");
        let known_from = first["fromBlock"].as_u64().unwrap();
        assert!((HEAD - 95 * 1_000..HEAD).contains(&known_from), "{known_from}");
    }
    // A later page says the same.
    let (indexed, mut node) = life();
    report(&mut node, 4_950_000, 3);
    node.serves = Serves::Blocks(1_000);
    let (mut target, mut pages) = ("/api/v1/agent/1/history?limit=2".to_owned(), 0);
    loop {
        let page = page(&indexed, &mut node, &target);
        assert_eq!(page["incompleteBecause"], "LOG_RANGE", "{page}");
        pages += 1;
        let Some(cursor) = page["next"].as_str() else { break };
        target = format!("/api/v1/agent/1/history?limit=2&cursor={cursor}");
    }
    assert!(pages > 1);
    for blocks in [10_000, 3_000, 10] {
        let (indexed, mut node) = life();
        node.serves = Serves::Blocks(blocks);
        page(&indexed, &mut node, "/api/v1/agent/1/history");
        assert!(node.calls <= 3 * 95 + 30 && node.batches <= 50, "{} {}", node.calls, node.batches);
    }
}

#[test]
fn thousands_of_reports_are_pages_none_of_which_reads_them_all() {
    // At once after the registration, and after years without any.
    for first in [1_000_001, 4_900_000] {
        let (indexed, mut node) = chain(1);
        report(&mut node, first, 1_200);
        node.serves = Serves::Results(200);
        let (told, page) = all(&indexed, &mut node, 100);
        assert_eq!((told.len(), &page["complete"]), (1_201, &json!(true)));
        in_order(&told);
    }
    let (indexed, mut node) = chain(1);
    report(&mut node, 1_000_001, 1_200);
    node.serves = Serves::Results(200);
    let page = page(&indexed, &mut node, "/api/v1/agent/1/history?limit=100");
    assert_eq!(page["data"].as_array().unwrap().len(), 100);
    assert!(node.calls <= 60, "{}", node.calls);
}

#[test]
fn texts_of_any_length_end_a_page_early() {
    let (indexed, mut node) = chain(1);
    for number in 0..4 {
        let reason = "x".repeat(200_000);
        node.emit(1_000_001 + number, &AgentSuspended { agentId: U256::from(1), by: BY, reason });
    }
    let first = page(&indexed, &mut node, "/api/v1/agent/1/history");
    assert_eq!(first["data"].as_array().unwrap().len(), 2, "the registration, and one of them");
    let (told, _) = all(&indexed, &mut node, 100);
    assert_eq!(told.len(), 5);
}

#[test]
fn a_node_without_the_events_is_found_out_and_the_answer_says_why_it_is_not_complete() {
    for (serves, because, told) in [
        (Serves::Nothing, "EVENTS_MISSING", &[][..]),
        (Serves::From(1_000_001), "EVENTS_MISSING", &LIFE[1..]),
        (Serves::From(1_155_000), "EVENTS_MISSING", &LIFE[5..]),
        (Serves::Unsupported, "NO_LOGS", &[][..]),
        (Serves::NoBatches, "NO_LOGS", &[][..]),
        (Serves::Blocks(0), "NO_LOGS", &[][..]),
    ] {
        for limit in [100, 2] {
            let (indexed, mut node) = life();
            node.serves = serves;
            let (events, first) = all(&indexed, &mut node, limit);
            assert_eq!((&first["complete"], &first["incompleteBecause"]), (&json!(false), &json!(because)));
            assert_eq!((names(&events), first.get("fromBlock")), (told.to_vec(), None), "{serves:?}");
        }
    }
    // A node that forgot the registration between two pages.
    let (indexed, mut node) = life();
    let first = page(&indexed, &mut node, "/api/v1/agent/1/history?limit=3");
    node.serves = Serves::From(1_100_000);
    let cursor = first["next"].as_str().unwrap();
    let target = format!("/api/v1/agent/1/history?limit=3&cursor={cursor}");
    let second = page(&indexed, &mut node, &target);
    assert_eq!((&first["complete"], &second["complete"]), (&json!(true), &json!(false)));
    assert_eq!(second["incompleteBecause"], "EVENTS_MISSING");
    // A child that the registry has, and no event announced.
    let (indexed, mut node) = life();
    node.logs.retain(|(_, log)| log["topics"][1] != json!(B256::from(U256::from(3))));
    let page = page(&indexed, &mut node, "/api/v1/agent/1/history");
    assert_eq!(page["incompleteBecause"], "EVENTS_MISSING");
}

#[test]
fn a_node_that_has_pruned_its_headers_gives_what_is_left() {
    for denial in [None, Some((4444, "Pruned history unavailable")), Some((-32000, "header not found"))] {
        for (headers_from, told, complete) in
            [(900_000, &LIFE[..], true), (1_120_000, &LIFE[3..], false), (HEAD - 500, &LIFE[7..], false)]
        {
            let (indexed, mut node) = life();
            (node.headers_from, node.denial) = (headers_from, denial);
            // Its events of those blocks are gone, too.
            node.logs.retain(|(number, _)| *number >= headers_from);
            node.serves = Serves::Blocks(50_000);
            let (events, first) = all(&indexed, &mut node, 2);
            assert_eq!(
                (names(&events), &first["complete"]),
                (told.to_vec(), &json!(complete)),
                "{headers_from}"
            );
            let because = (!complete).then(|| json!("EVENTS_MISSING"));
            assert_eq!(first.get("incompleteBecause"), because.as_ref(), "{headers_from}");
        }
    }
}

#[test]
fn what_was_not_asked_for_is_no_part_of_an_answer() {
    let lies: [fn(&mut Value); 7] = [
        |log| log["address"] = json!(BY),
        |log| log["removed"] = json!(true),
        |log| log["blockNumber"] = json!("0x4c4b41"),
        |log| log["topics"][1] = json!(B256::from(U256::from(9))),
        |log| log["topics"][0] = json!(B256::repeat_byte(9)),
        |log| log["data"] = json!("0x00"),
        |log| log["logIndex"] = json!(null),
    ];
    for (number, lie) in lies.into_iter().enumerate() {
        let (indexed, mut node) = life();
        node.lies = Some(lie);
        let refused = try_page(&indexed, &mut node, "/api/v1/agent/1/history");
        assert!(matches!(refused, Err(IndexError::Query(_))), "{number}: {refused:?}");
    }
}

#[test]
fn events_of_a_block_that_was_reorganised_are_not_told() {
    // The index's block is another one now.
    let (indexed, mut node) = life();
    node.head = B256::repeat_byte(9);
    assert_eq!(try_page(&indexed, &mut node, "/api/v1/agent/1/history"), Ok(None));
    // The event's block is.
    let (indexed, mut node) = life();
    node.times_logs = false;
    node.lies = Some(|log| log["blockHash"] = json!(B256::repeat_byte(9)));
    assert_eq!(try_page(&indexed, &mut node, "/api/v1/agent/1/history"), Ok(None));
}

#[test]
fn an_agent_that_is_not_registered_has_no_history() {
    let (indexed, mut node) = life();
    for id in ["0", "4", &U256::MAX.to_string()] {
        let refused = try_page(&indexed, &mut node, &format!("/api/v1/agent/{id}/history")).unwrap_err();
        assert_eq!(refused.to_string(), format!("Agent not found: {id}"));
    }
    assert_eq!(node.batches, 0);
}
