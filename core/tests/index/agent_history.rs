//! The history of one agent, on nodes that cap, prune, lie about or do not have events.

use std::collections::BTreeSet;

use alloy_primitives::keccak256;
use registry_core::api::{document::Document, index_documents};
use registry_core::eth::abi::IAgentRegistry::{AgentReactivated, AgentRegistered, AgentSuspended};
use registry_core::eth::abi::IAgentRegistry::{AgentTerminated, ComplianceAttested, RevenueReported};
use registry_core::index::{self, IndexError, SqlValue, Store as _};

use crate::{TestIndex, common::host::finish_in_time, common::prelude::*, history::ChainHistory};

/// The account that does everything.
const BY: Address = Address::repeat_byte(0xb1);
/// The newest block.
const HEAD: u64 = 5_000_000;

/// Returns the time of a block; several blocks share a second.
const fn seconds(number: u64) -> u64 {
    NOW - (HEAD - number) / 5
}

/// Creates an index of agents, registered 100,000 blocks apart from block 1,000,000 on, all children of the
/// first, and a node with the events of their registrations.
fn chain(agents: u64) -> TestIndex {
    let block = |id: u64| 900_000 + id * 100_000;
    let mut registry = PlainRegistry::with_agents(agents);
    for (id, agent) in (1..).zip(&mut registry.agents) {
        (agent.registeredAt, agent.lastAttestation) = (seconds(block(id)), seconds(block(id)));
    }
    let mut history = ChainHistory::of(HEAD, registry);
    history.edit(|mined| mined.seconds = seconds(HEAD));
    let mut index = TestIndex::filled_with(history, 0);
    (index.node.milliseconds_per_block, index.node.quirks.times_logs) = (200, true);
    for id in 1..=agents {
        let registered = AgentRegistered {
            agentId: U256::from(id),
            agentWallet: record(id, 0).agentWallet,
            creator: BY,
            haftungsperson: Address::repeat_byte(2),
            parentAgentId: U256::from(u64::from(id > 1)),
            generation: U256::from(u64::from(id > 1)),
        };
        index.node.emit(block(id), &registered);
    }
    index.node.log.clear();
    index
}

fn attest(node: &mut Node, number: u64) {
    let attested = ComplianceAttested { agentId: U256::from(1), by: BY, attestedAt: seconds(number) };
    node.emit(number, &attested);
}

fn suspend(node: &mut Node, number: u64, agent: u64, reason: &str) {
    node.emit(number, &AgentSuspended { agentId: U256::from(agent), by: BY, reason: reason.to_owned() });
}

/// Emits reports of agent 1, one per block from `first` on.
fn report(node: &mut Node, first: u64, count: u64) {
    for place in 0..count {
        let (amount, currency, category) = (U256::from(place), "EUR".into(), "api".into());
        let report = RevenueReported { agentId: U256::from(1), by: BY, amount, currency, category };
        node.emit(first + place, &report);
    }
}

/// Creates the life of agent 1, in a registry of three agents.
fn life() -> TestIndex {
    let mut index = chain(3);
    let (agent, node) = (U256::from(1), &mut index.node);
    attest(node, 1_050_000);
    suspend(node, 1_150_000, 1, "sanctions \"list\" 7");
    node.emit(1_150_000, &AgentReactivated { agentId: agent, by: BY });
    report(node, 1_160_000, 1);
    node.emit(4_999_999, &AgentTerminated { agentId: agent, by: BY });
    suspend(node, 1_160_000, 2, "another agent's");
    index
}

/// Creates the life of agent 1 on a node with these logs.
fn life_with(logs: Logs) -> TestIndex {
    let mut index = life();
    index.node.quirks.logs = logs;
    index
}

/// Reads a page; `None` if the block is no longer canonical.
fn try_page(index: &mut TestIndex, target: &str) -> Result<Option<Document>, IndexError> {
    page_of(index, target, &mut Endpoints::new(1, None), &mut 0)
}

/// Reads a page with known facts about the endpoints, and adds the elapsed milliseconds to `took`.
fn page_of(
    index: &mut TestIndex,
    target: &str,
    known: &mut Endpoints,
    took: &mut u32,
) -> Result<Option<Document>, IndexError> {
    let Ok(Route::History { id, limit, cursor }) = Route::parse(target) else { panic!("{target}") };
    let state = index.state();
    let query = index::HistoryQuery::new(&index.database, &state, REGISTRY, (id, limit, cursor))?;
    let mut run = query.run(&index.config, known.clone());
    let node = &mut index.node;
    match finish_in_time(&mut run, known, took, |batch| node.reply(batch)) {
        Ok(history) => Ok(Some(index_documents::history(history))),
        Err(QueryError::BlockNotAvailable(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn page(index: &mut TestIndex, query: &str) -> Value {
    let path = "/api/v1/agent/1/history";
    let mut document = try_page(index, &format!("{path}{query}")).unwrap().unwrap();
    let links = document.links.take().unwrap();
    let page = read(document);
    assert!(links.starts_with(&format!("<{path}")), "{links}");
    assert_eq!(links.contains("rel=\"next\""), page["next"].is_string());
    assert_eq!(page["asOf"]["blockNumber"], HEAD);
    page
}

fn data(page: &Value) -> &[Value] {
    page["data"].as_array().unwrap()
}

/// Reads all events of agent 1, and the first page. All pages have to say the same about missing events.
fn all(index: &mut TestIndex, limit: usize) -> (Vec<Value>, Value) {
    let first = page(index, &format!("?limit={limit}"));
    let (mut events, mut next) = (data(&first).to_vec(), first["next"].clone());
    while let Some(cursor) = next.as_str() {
        let page = page(index, &format!("?limit={limit}&cursor={cursor}"));
        assert!(data(&page).len() <= limit);
        for member in ["complete", "fromBlock", "incompleteBecause"] {
            assert_eq!(page[member], first[member], "{page}");
        }
        events.extend_from_slice(data(&page));
        next = page["next"].clone();
    }
    (events, first)
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

/// Returns the positions of the events, which have to be listed once, and in order.
fn in_order(events: &[Value]) -> Vec<(u64, u64)> {
    let place = |event: &Value| (event["blockNumber"].as_u64().unwrap(), event["logIndex"].as_u64().unwrap());
    let places: Vec<_> = events.iter().map(place).collect();
    assert!(places.is_sorted(), "{places:?}");
    assert_eq!(places.iter().collect::<BTreeSet<_>>().len(), places.len());
    places
}

/// Counts the `eth_getLogs` calls so far.
fn log_calls(index: &TestIndex) -> usize {
    index.node.log.iter().flatten().filter(|(method, _)| method == "eth_getLogs").count()
}

#[test]
fn a_life_is_listed_oldest_first_with_block_time_transaction_and_reason() {
    let mut index = life();
    let page = page(&mut index, "");
    let events = data(&page);
    assert_eq!(names(events), LIFE);
    in_order(events);
    assert_eq!((&page["complete"], &page["fromBlock"]), (&json!(true), &json!(1_000_000)));
    assert_eq!((page.get("next"), page.get("incompleteBecause")), (None, None));
    let by = BY.to_checksum(None);
    let suspended = json!({
        "event": "suspended", "by": by, "reason": "sanctions \"list\" 7",
        "blockNumber": 1_150_000, "time": time(seconds(1_150_000)), "logIndex": 3,
        "transactionHash": keccak256([1_150_000_u64.to_be_bytes(), 3_u64.to_be_bytes()].concat()),
    });
    assert_eq!(events[3], suspended);
    assert_eq!((&events[0]["creator"], &events[0]["parentAgentId"]), (&json!(by), &json!(0)));
    assert_eq!((&events[2]["childAgentId"], &events[6]["childAgentId"]), (&json!(2), &json!(3)));
    assert_eq!((&events[5]["amount"], &events[5]["currency"]), (&json!(0), &json!("EUR")));
    assert_eq!((index.node.round_trips(), log_calls(&index)), (2, 2), "the agent, and its children");
}

#[test]
fn any_events_are_listed_once_and_in_order_by_any_node_that_has_them() {
    for seed in 1..=100 {
        let mut random = Random(seed);
        let mut index = chain(1 + random.below(4));
        let node = &mut index.node;
        let mut block = 1_000_001;
        for _ in 0..random.below(30) {
            block = (block + random.pick(&[0, 0, 1, 300, 90_000, 400_000])).min(HEAD);
            if random.once_in(3) {
                report(node, block, 1);
            } else {
                attest(node, block);
            }
        }
        node.quirks.logs = random.pick(&[
            Logs::All,
            Logs::Blocks(4_000_000),
            Logs::Blocks(50_000),
            Logs::Blocks(10_000),
            Logs::Blocks(5_000),
            Logs::Results(40),
            Logs::Bytes(10_000),
        ]);
        node.quirks.times_logs = random.once_in(2);
        // The registration of agent 1, its children's, and all else that is there is about agent 1.
        let place = |(number, log): &(u64, Value)| (*number, number_of(log["logIndex"].as_str().unwrap()));
        let mut expected: Vec<(u64, u64)> = node.emitted.iter().map(place).collect();
        expected.sort_unstable();
        let (events, first) = all(&mut index, random.pick(&[1, 2, 7, 100]));
        let logs = index.node.quirks.logs;
        assert_eq!((in_order(&events), &first["complete"]), (expected, &json!(true)), "{seed}: {logs:?}");
        let is_timed = |event: &Value| event["time"] == time(seconds(event["blockNumber"].as_u64().unwrap()));
        assert!(events.iter().all(is_timed), "{seed}: {events:?}");
    }
}

#[test]
fn what_the_index_was_refused_for_all_agents_together_limits_no_single_one() {
    let mut index = life();
    let of_state = "SELECT value FROM meta WHERE key = 'state'";
    let rows = index.database.execute(of_state, &[]).unwrap();
    let SqlValue::Text(state) = &rows[0][0] else { panic!("{rows:?}") };
    let mut state: Value = serde_json::from_str(state).unwrap();
    assert!(state["logRange"].is_null());
    state["logRange"] = json!([10, 3]);
    let parameters = [SqlValue::Text(state.to_string())];
    index.database.execute("UPDATE meta SET value = ?1 WHERE key = 'state'", &parameters).unwrap();
    index.kept = None;
    let page = page(&mut index, "");
    assert_eq!((names(data(&page)), &page["complete"]), (LIFE.to_vec(), &json!(true)));
}

#[test]
fn an_answer_takes_a_bounded_number_of_calls_and_where_that_is_too_few_it_says_from_where_on_it_knows() {
    for logs in [Logs::Blocks(1_000), Logs::Blocks(10), Logs::Blocks(1)] {
        let (events, first) = all(&mut life_with(logs), 100);
        assert_eq!((&first["complete"], &first["incompleteBecause"]), (&json!(false), &json!("LOG_RANGE")));
        assert_eq!(names(&events), ["terminated"], "{logs:?}");
        let known_from = first["fromBlock"].as_u64().unwrap();
        assert!((HEAD - 95 * 1_000..HEAD).contains(&known_from), "{known_from}");
    }
    // A node may refuse long ranges in any words: BSC's, geth's and Base's public ones.
    for words in [
        (-32005, "limit exceeded"),
        (-32000, "query timeout exceeded"),
        (-32002, "request timed out"),
        (-32011, "no backend is currently healthy to serve traffic"),
    ] {
        let mut index = life_with(Logs::Blocks(50_000));
        index.node.quirks.range_refusal = Some(words);
        let (events, first) = all(&mut index, 100);
        assert_eq!((names(&events), &first["complete"]), (LIFE.to_vec(), &json!(true)), "{words:?}");
    }
    // Later pages say the same.
    let mut index = life_with(Logs::Blocks(1_000));
    report(&mut index.node, 4_950_000, 3);
    let (events, first) = all(&mut index, 2);
    assert_eq!((&first["incompleteBecause"], events.len()), (&json!("LOG_RANGE"), 4));
    for blocks in [10_000, 3_000, 10] {
        let mut index = life_with(Logs::Blocks(blocks));
        page(&mut index, "");
        let (calls, batches) = (log_calls(&index), index.node.round_trips());
        assert!(calls <= 3 * 95 + 30 && batches <= 50, "{calls} {batches}");
    }
}

#[test]
fn a_range_that_is_refused_without_a_word_is_made_shorter_and_what_is_answered_in_time_is_kept() {
    let target = "/api/v1/agent/1/history?limit=100";
    for (fault, most) in [
        (Fault::Hangs, 400_000),
        (Fault::Hangs, 10_000),
        (Fault::Status(504), 10_000),
        (Fault::Status(502), 400_000),
        (Fault::Status(413), 400_000),
        (Fault::Html, 400_000),
        (Fault::Unreachable, 400_000),
    ] {
        let mut index = life_with(Logs::Blocks(most));
        index.node.quirks.faulty = Some((Node::is_long_range, fault.clone()));
        let (mut known, mut took) = (Endpoints::new(1, None), 0);
        let mut ask = || page_of(&mut index, target, &mut known, &mut took).map(|page| (page.unwrap(), took));
        // Each attempt at a node that hangs takes seconds: the second request begins where the first one
        // ended.
        let first = ask();
        assert!(first.is_ok() || (fault == Fault::Hangs && most == 10_000), "{fault:?}: {first:?}");
        let (page, took) = ask().unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert!(took < 3_000, "{fault:?}: {took} ms");
        let page = read(page);
        assert!(most < 400_000 || names(data(&page)) == LIFE, "{fault:?}: {page}");
        assert_eq!(names(data(&page)).last(), Some(&"terminated"), "{fault:?}: {page}");
    }
    // A node that is down has no logs that could be refused.
    for (fault, message) in [
        (Fault::Hangs, "RPC endpoint did not answer within"),
        (Fault::Unreachable, "RPC endpoint unreachable"),
        (Fault::Status(502), "RPC endpoint answered HTTP 502"),
    ] {
        let mut index = life();
        index.node.faults = vec![fault; 100].into();
        let error = try_page(&mut index, target).unwrap_err();
        assert!(error.to_string().starts_with(message), "{error}");
        assert!(index.node.round_trips() <= 6, "{message}: {} posts", index.node.round_trips());
    }
}

#[test]
fn a_history_goes_on_at_the_last_block_once_the_node_serves_its_logs() {
    let mut index = life();
    (0..2).for_each(|_| attest(&mut index.node, HEAD));
    index.node.quirks.logs_behind = true;
    let mut latest = page(&mut index, "");
    let mut events = data(&latest).to_vec();
    assert_eq!(names(&events), LIFE);
    // At the block's first event, and at its second one.
    for _ in 0..2 {
        let next = format!("?limit=1&cursor={}", latest["next"].as_str().unwrap());
        index.node.quirks.logs_behind = true;
        let refused = try_page(&mut index, &format!("/api/v1/agent/1/history{next}"));
        assert_eq!(refused, Err(RunError::BlockUnavailable.into()), "{next}");
        index.node.quirks.logs_behind = false;
        latest = page(&mut index, &next);
        events.extend_from_slice(data(&latest));
    }
    assert_eq!((in_order(&events).len(), &latest["complete"]), (LIFE.len() + 2, &json!(true)));
    assert_eq!(latest.get("next"), None);
}

#[test]
fn a_node_that_serves_no_logs_is_left_for_one_that_may() {
    let missing = Err(json!({"code": -32601, "message": "the method eth_getLogs does not exist"}));
    for (outcome, endpoints, because) in
        [(missing.clone(), 1, json!("NO_LOGS")), (missing, 2, Value::Null), (Ok(Value::Null), 2, Value::Null)]
    {
        let mut index = life();
        // The first endpoint is asked once.
        index.node.quirks.outcomes = vec![("eth_getLogs", 1, outcome)];
        let mut known = Endpoints::new(endpoints, Some(CHAIN_ID));
        let page = page_of(&mut index, "/api/v1/agent/1/history", &mut known, &mut 0).unwrap().unwrap();
        assert_eq!(read(page)["incompleteBecause"], because, "{endpoints}");
        let logs: Vec<_> = known.features().map(|found| found.logs).collect();
        assert_eq!(logs[0], Some(false), "{logs:?}");
    }
}

#[test]
fn a_refusal_without_a_word_of_ranges_that_passes_makes_no_range_shorter() {
    let mut index = life();
    index.node.quirks.outcomes =
        vec![("eth_getLogs", 1, Err(json!({"code": -32603, "message": "try again later"})))];
    assert_eq!(page(&mut index, "")["complete"], true);
    let logs = index.node.log.iter().flatten().filter(|(method, _)| method == "eth_getLogs");
    let ranges: Vec<_> = logs.map(|(_, filter)| [&filter["fromBlock"], &filter["toBlock"]]).collect();
    assert_eq!((ranges.len() > 1, ranges.first()), (true, ranges.get(1)), "{ranges:?}");
}

#[test]
fn an_event_whose_block_has_no_header_is_not_asked_for_without_end() {
    let mut index = life();
    let quirks = &mut index.node.quirks;
    (quirks.times_logs, quirks.headers_from) = (false, 4_999_999);
    quirks.faulty = Some((|node, _| node.log.len() > 100, Fault::Unreachable));
    assert_eq!(try_page(&mut index, "/api/v1/agent/1/history"), Ok(None));
}

#[test]
fn thousands_of_reports_are_pages_none_of_which_reads_them_all() {
    // At once after the registration, and after years without any.
    for first in [1_000_001, 4_900_000] {
        let mut index = chain(1);
        report(&mut index.node, first, 1_200);
        index.node.quirks.logs = Logs::Results(200);
        if first == 1_000_001 {
            assert_eq!(data(&page(&mut index, "?limit=100")).len(), 100);
            assert!(log_calls(&index) <= 60, "{}", log_calls(&index));
        }
        let (events, page) = all(&mut index, 100);
        assert_eq!((events.len(), &page["complete"]), (1_201, &json!(true)));
        in_order(&events);
    }
}

#[test]
fn texts_of_any_length_end_a_page_early() {
    let mut index = chain(1);
    (1_000_001..1_000_005).for_each(|number| suspend(&mut index.node, number, 1, &"x".repeat(200_000)));
    assert_eq!(data(&page(&mut index, "")).len(), 2, "the registration, and one of them");
    assert_eq!(all(&mut index, 100).0.len(), 5);
}

#[test]
fn a_node_without_the_events_is_found_out_and_the_answer_says_why_it_is_not_complete() {
    for (logs, because, expected) in [
        (Some(Logs::Empty), "EVENTS_MISSING", &[][..]),
        (Some(Logs::From(1_000_001)), "EVENTS_MISSING", &LIFE[1..]),
        (Some(Logs::From(1_155_000)), "EVENTS_MISSING", &LIFE[5..]),
        (Some(Logs::Unsupported), "NO_LOGS", &[][..]),
        (None, "NO_LOGS", &[][..]),
        (Some(Logs::Blocks(0)), "NO_LOGS", &[][..]),
    ] {
        for limit in [100, 2] {
            let mut index = logs.map_or_else(life, life_with);
            index.node.quirks.batch_limit = logs.is_none().then_some(1);
            let (events, first) = all(&mut index, limit);
            assert_eq!((&first["complete"], &first["incompleteBecause"]), (&json!(false), &json!(because)));
            assert_eq!((names(&events), first.get("fromBlock")), (expected.to_vec(), None), "{logs:?}");
        }
    }
    let mut index = life();
    index.node.quirks.outcomes = vec![("eth_getLogs", u32::MAX, Ok(Value::Null))];
    assert_eq!(page(&mut index, "")["incompleteBecause"], "NO_LOGS");
    // A node that forgot the registration between two pages.
    let mut index = life();
    let first = page(&mut index, "?limit=3");
    index.node.quirks.logs = Logs::From(1_100_000);
    let second = page(&mut index, &format!("?limit=3&cursor={}", first["next"].as_str().unwrap()));
    assert_eq!((&first["complete"], &second["complete"]), (&json!(true), &json!(false)));
    assert_eq!(second["incompleteBecause"], "EVENTS_MISSING");
    // A child that the registry has, and no event announced.
    let mut index = life();
    index.node.emitted.retain(|(_, log)| log["topics"][1] != json!(B256::from(U256::from(3))));
    assert_eq!(page(&mut index, "")["incompleteBecause"], "EVENTS_MISSING");
}

#[test]
fn a_node_that_has_pruned_its_headers_gives_what_is_left() {
    for denial in [None, Some((4444, "Pruned history unavailable")), Some((-32000, "header not found"))] {
        for (headers_from, expected, because) in [
            (900_000, &LIFE[..], Value::Null),
            (1_120_000, &LIFE[3..], json!("EVENTS_MISSING")),
            (HEAD - 500, &LIFE[7..], json!("EVENTS_MISSING")),
        ] {
            let mut index = life_with(Logs::Blocks(50_000));
            (index.node.quirks.headers_from, index.node.quirks.no_header) = (headers_from, denial);
            // Its events of those blocks are gone, too.
            index.node.emitted.retain(|(number, _)| *number >= headers_from);
            let (events, first) = all(&mut index, 2);
            assert_eq!(names(&events), expected, "{headers_from}");
            assert_eq!(first["incompleteBecause"], because, "{headers_from}");
            assert_eq!(first["complete"], because.is_null(), "{headers_from}");
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
    for (number, lie) in lies.iter().enumerate() {
        let mut index = life();
        index.node.quirks.changes_logs = Some(*lie);
        let refused = try_page(&mut index, "/api/v1/agent/1/history");
        assert!(matches!(refused, Err(IndexError::Query(_))), "{number}: {refused:?}");
    }
    // As the index reads them for its rows.
    let mut index = TestIndex::filled(3, 0);
    index.node.quirks.changes_logs = Some(lies[2]);
    index.attest(1, 1);
    index.show();
    assert!(index.work().unwrap_err().to_string().contains("malformed"));
    // The header of another number.
    let mut index = life();
    let other = crate::common::header(5, [B256::repeat_byte(5), B256::ZERO], 9);
    index.node.quirks.outcomes = vec![("eth_getBlockByNumber", u32::MAX, Ok(other))];
    let refused = try_page(&mut index, "/api/v1/agent/1/history").unwrap_err();
    assert!(refused.to_string().contains("at another block than asked"), "{refused}");
}

#[test]
fn events_of_a_block_that_was_reorganised_are_not_listed() {
    // The index's block is another one now; then the event's is.
    let [mut head, mut event] = [life(), life()];
    head.node.chain.get_mut(&HEAD).unwrap().hash = B256::repeat_byte(9);
    event.node.quirks.times_logs = false;
    event.node.quirks.changes_logs = Some(|log| log["blockHash"] = json!(B256::repeat_byte(9)));
    for mut index in [head, event] {
        assert_eq!(try_page(&mut index, "/api/v1/agent/1/history"), Ok(None));
    }
}

#[test]
fn an_agent_that_is_not_registered_has_no_history() {
    let mut index = life();
    for id in ["0", "4", &U256::MAX.to_string()] {
        let refused = try_page(&mut index, &format!("/api/v1/agent/{id}/history")).unwrap_err();
        assert_eq!(refused.to_string(), format!("Agent not found: {id}"));
    }
    assert_eq!(index.node.round_trips(), 0);
}
