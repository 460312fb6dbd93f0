//! Verdicts beyond the newest block and the single wallet: at a block, with a past, many at once.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // a test's helpers may fail a test

mod common;

use alloy_primitives::{Address, U256};
use common::{NOW, Node, PlainRegistry, REGISTRY, host::read, ids_in, pinned, record};
use registry_core::{
    api::error::Error,
    api::route::{FINAL_SECONDS, Route},
    api::scan::Scan,
    chain::Limits,
    chain::QueryError,
    eth::abi::AgentRecord,
    eth::as_of::BlockId,
    eth::timestamp::Timestamp,
    registry::agent::Agent,
    registry::error_code::Code,
};
use serde_json::{Value, json};

fn wallet(id: u64) -> Address {
    record(id, 0).agentWallet
}

fn ended(id: u64, wallet_of: u64, status: u8) -> AgentRecord {
    AgentRecord { agentWallet: wallet(wallet_of), status, ..record(id, 0) }
}

/// Agents 1 to 3: 2 is revoked, and its wallet registered again as 3, below 1.
fn registered_again() -> PlainRegistry {
    let again = AgentRecord { agentWallet: wallet(2), ..record(3, 1) };
    PlainRegistry { agents: vec![record(1, 0), ended(2, 2, 2), again], ..PlainRegistry::with_agents(0) }
}

fn scan_of(registry: &PlainRegistry) -> Scan {
    let agents = registry.agents.iter().cloned().map(|record| Agent::try_from(record).unwrap());
    Scan::of_agents(REGISTRY, "http://node".into(), U256::from(604_800), &agents.collect::<Vec<_>>(), [])
}

fn ask(node: &mut Node, target: &str, scan: Option<Scan>) -> Value {
    read(node.document(Route::parse(target).unwrap(), scan, Limits::default()).unwrap())
}

/// The answer to a POST of this body.
fn post(node: &mut Node, body: &str) -> Value {
    let route = Route::parse_post("/api/v1/kya", body.as_bytes()).unwrap();
    read(node.document(route, None, Limits::default()).unwrap())
}

fn kya(of: u64) -> String {
    format!("/api/v1/kya/{}", wallet(of))
}

#[test]
fn a_cached_scan_gives_the_past_and_costs_nothing() {
    let registry = registered_again();
    let mut node = Node::new(registry.clone());
    let answer = ask(&mut node, &kya(2), Some(scan_of(&registry)));
    assert_eq!(answer["registration"], "current");
    assert_eq!(answer["decision"], "provision");
    assert_eq!(answer["reasons"], json!(["FORMER_AGENT_REVOKED"]));
    let registered_at = Timestamp::from_seconds(NOW - 1_000).to_string();
    assert_eq!(
        answer["formerAgents"],
        json!([{"agentId": 2, "status": "Revoked", "registeredAt": registered_at}])
    );
    assert_eq!((&answer["ancestorsNotActive"], answer.get("unknownBecause")), (&json!([]), None));
    assert_eq!(node.round_trips(), 1);
}

#[test]
fn a_wallet_was_never_registered_or_formerly_or_that_is_unknown() {
    let mut registry = registered_again();
    registry.agents[2].status = 3;
    let scan = Some(scan_of(&registry));
    let mut node = Node::new(registry);
    let former = ask(&mut node, &kya(2), scan.clone());
    assert_eq!((&former["registration"], &former["decision"]), (&json!("former"), &json!("deny")));
    assert_eq!(
        former["reasons"],
        json!(["NOT_REGISTERED", "FORMER_AGENT_REVOKED", "FORMER_AGENT_TERMINATED"])
    );
    assert_eq!(former["formerAgents"][0]["agentId"], 3, "the newest first");
    let never = ask(&mut node, &kya(9), scan);
    assert_eq!((&never["registration"], &never["formerAgents"]), (&json!("never"), &json!([])));
    let unknown = ask(&mut node, &kya(2), None);
    assert_eq!((&unknown["registration"], &unknown["formerAgents"]), (&json!("unknown"), &json!("unknown")));
    assert_eq!(unknown["unknownBecause"], "NOT_SCANNED");
    assert_eq!(node.round_trips(), 3);
}

#[test]
fn an_ancestors_status_is_of_now_and_not_of_the_scan() {
    let registry = registered_again();
    let scan = Some(scan_of(&registry));
    let mut node = Node::new(registry);
    node.registry.agents[0].status = 1;
    let answer = ask(&mut node, &kya(2), scan);
    assert_eq!(answer["ancestorsNotActive"], json!([{"agentId": 1, "status": "Suspended"}]));
    assert_eq!(answer["reasons"], json!(["FORMER_AGENT_REVOKED", "ANCESTOR_NOT_ACTIVE"]));
    assert_eq!(answer["decision"], "provision", "a remark decides nothing");
    assert_eq!(node.round_trips(), 1);
}

#[test]
fn a_scan_that_no_longer_holds_makes_no_clean_record() {
    let registry = registered_again();
    let scan = Some(scan_of(&registry));
    // Agent 3 has ended since; then another has been added.
    let mut node = Node::new(registry);
    node.registry.agents[2].status = 3;
    let ended_since = ask(&mut node, &kya(2), scan.clone());
    assert_eq!(ended_since["registration"], "unknown");
    assert_eq!(ended_since["unknownBecause"], "SCAN_OUTDATED");
    node.registry.agents.push(ended(4, 9, 2));
    let added_since = ask(&mut node, &kya(9), scan.clone());
    assert_eq!(added_since["registration"], "unknown");
    assert_eq!(added_since["unknownBecause"], "SCAN_OUTDATED");
    assert_eq!(node.round_trips(), 2);
    // Asked for, it is read up to date.
    let current = ask(&mut node, &format!("{}?history=1", kya(2)), scan.clone());
    assert_eq!(current["registration"], "former");
    assert_eq!(current["formerAgents"][0]["status"], "Terminated");
    assert_eq!(current["formerAgents"][1]["status"], "Revoked");
    let current = ask(&mut node, &format!("{}?history=1", kya(9)), scan);
    assert_eq!((&current["registration"], current.get("unknownBecause")), (&json!("former"), None));
}

#[test]
fn a_node_that_is_behind_the_scan_or_far_ahead_of_it_causes_no_walk() {
    let mut node = Node::new(registered_again());
    let scan = Some(scan_of(&node.registry));
    node.registry.agents.truncate(2);
    let history = format!("{}?history=1", kya(1));
    let behind = ask(&mut node, &history, scan.clone());
    assert_eq!((&behind["isRegistered"], &behind["unknownBecause"]), (&json!(true), &json!("SCAN_OUTDATED")));
    node.registry = registered_again();
    node.registry.agents.extend((4..=1_100).map(|id| record(id, 0)));
    let ahead = ask(&mut node, &history, scan);
    assert_eq!((&ahead["isRegistered"], &ahead["unknownBecause"]), (&json!(true), &json!("SCAN_OUTDATED")));
    assert_eq!(node.round_trips(), 2, "{:?}", node.log);
}

#[test]
fn the_past_is_read_without_a_scan_where_it_is_asked_for() {
    let mut node = Node::new(registered_again());
    let answer = ask(&mut node, &format!("{}?history=1", kya(2)), None);
    assert_eq!(answer["reasons"], json!(["FORMER_AGENT_REVOKED"]));
    assert!(node.round_trips() <= 3, "{:?}", node.log);
    let mut node = Node::new(PlainRegistry::with_agents(0));
    let answer = ask(&mut node, &format!("{}?history=1", kya(2)), None);
    assert_eq!(answer["registration"], "never", "of an empty registry, too");
}

/// A node whose agents' attestations expire between block 90 and the newest, 100.
fn expiring() -> Node {
    let mut node = Node::new(PlainRegistry::with_agents(2));
    node.registry.grace_seconds = Some(990);
    node
}

#[test]
fn a_verdict_at_a_block_is_read_there_and_judged_at_its_time() {
    let mut node = expiring();
    assert_eq!(ask(&mut node, &kya(1), None)["decision"], "request_renewal");
    let hash = pinned(90)["blockHash"].as_str().unwrap().to_owned();
    for block in ["90", &hash] {
        node.log.clear();
        let then = ask(&mut node, &format!("{}?block={block}", kya(1)), None);
        assert_eq!((&then["decision"], &then["asOf"]["blockNumber"]), (&json!("provision"), &json!(90)));
        assert_eq!(then["asOf"]["blockTimestamp"], Timestamp::from_seconds(NOW - 20).to_string());
        assert_eq!(then["checkedAt"], Timestamp::from_seconds(NOW).to_string());
        assert_eq!(then["unknownBecause"], "PAST_BLOCK");
        assert_eq!(node.round_trips(), 1, "{:?}", node.log);
        let agent = ask(&mut node, &format!("/api/v1/agent/1?block={block}"), None);
        assert_eq!(agent["compliance"]["secondsSinceAttestation"], 980);
        assert_eq!(agent["asOf"], then["asOf"]);
    }
    assert!(ask(&mut node, "/api/v1/agent/1", None).get("asOf").is_none());
}

#[test]
fn what_is_final_is_kept_for_long_and_what_is_not_for_the_usual_time() {
    let mut node = expiring();
    for (block, max_age) in [("90", FINAL_SECONDS), ("91", 60), ("100", 60)] {
        let route = Route::parse(&format!("{}?block={block}", kya(1))).unwrap();
        let document = node.document(route, None, Limits::default()).unwrap();
        assert_eq!(document.max_age(60, Timestamp::from_seconds(NOW)), max_age, "block {block}");
        assert_eq!(document.max_age(0, Timestamp::from_seconds(NOW)), 0);
    }
}

#[test]
fn a_block_without_state_is_not_available_and_says_so() {
    let mut node = expiring();
    node.oldest_state = 80;
    for block in ["79", "101", &format!("0x{}", "ab".repeat(32))] {
        for path in [kya(1), "/api/v1/agent/1".to_owned()] {
            node.log.clear();
            let error = node.ask(&format!("{path}?block={block}")).unwrap_err();
            let expected = Error::Query(QueryError::BlockNotAvailable(BlockId::parse(block).unwrap()));
            assert_eq!(error, expected, "{path}");
            assert_eq!((error.code(), error.status()), (Code::BlockNotAvailable, 404));
            assert!(node.round_trips() <= 3, "{:?}", node.log);
        }
    }
    assert_eq!(ask(&mut node, &format!("{}?block=80", kya(1)), None)["asOf"]["blockNumber"], 80);
}

#[test]
fn a_block_is_found_where_a_node_takes_one_request_at_a_time() {
    let mut node = expiring();
    node.quirks.batch_limit = Some(1);
    let answer = ask(&mut node, &format!("{}?block=85", kya(1)), None);
    assert_eq!((&answer["decision"], &answer["asOf"]["blockNumber"]), (&json!("provision"), &json!(85)));
}

#[test]
fn a_hundred_wallets_are_one_round_trip_at_one_block_in_order() {
    let mut node = Node::new(PlainRegistry::with_agents(60));
    let wallets: Vec<String> = (1..=100).rev().map(|id| wallet(id).to_string()).collect();
    let body = json!({"wallets": wallets}).to_string();
    let list = post(&mut node, &body);
    assert_eq!(node.round_trips(), 1);
    assert_eq!(list["total"], 100);
    for (wallet, verdict) in wallets.iter().zip(list["data"].as_array().unwrap()) {
        assert_eq!(*verdict, ask(&mut node, &format!("/api/v1/kya/{wallet}"), None), "{wallet}");
    }
}

#[test]
fn what_is_no_wallet_is_reported_in_its_place() {
    let mut node = Node::new(PlainRegistry::with_agents(2));
    let list = ask(&mut node, &format!("/api/v1/kya/{},me,{}", wallet(2), wallet(1)), None);
    let data = list["data"].as_array().unwrap();
    assert_eq!((&data[0]["agent"]["agentId"], &data[2]["agent"]["agentId"]), (&json!(2), &json!(1)));
    let error = "Invalid wallet: must be 0x followed by 40 hexadecimal digits";
    assert_eq!(data[1], json!({"wallet": "me", "error": error, "code": "INVALID_PARAMETER"}));
    node.log.clear();
    let list = post(&mut node, r#"{"wallets": ["me", ""]}"#);
    assert_eq!(node.round_trips(), 0, "a list without a wallet asks the chain nothing");
    assert_eq!(list["total"], 2);
}

#[test]
fn ancestors_are_read_up_to_the_root() {
    let mut registry = PlainRegistry::with_agents(0);
    registry.agents = (1..=4).map(|id| record(id, id - 1)).collect();
    registry.agents[0].status = 1;
    let mut node = Node::new(registry);
    let answer = ask(&mut node, "/api/v1/agent/4/ancestors", None);
    assert_eq!(ids_in(&answer["ancestors"]), [3, 2, 1]);
    assert_eq!(answer["ancestors"][2]["status"], "Suspended");
    assert_eq!(answer["ancestors"][2]["haftungsperson"], Address::repeat_byte(2).to_string());
    assert_eq!(node.round_trips(), 4);
    assert!(matches!(node.ask("/api/v1/agent/9/ancestors"), Err(Error::Query(QueryError::AgentNotFound(_)))));
}
