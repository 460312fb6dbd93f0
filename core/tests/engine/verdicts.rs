//! Verdicts beyond the newest block and the single wallet: at a block, with a past, many at once.

use alloy_sol_types::SolCall;
use registry_core::eth::abi::IAgentRegistry::getAgentCall;
use registry_core::{api::route::FINAL_SECONDS, api::scan::Scan};

use crate::common::prelude::*;

fn wallet(id: u64) -> Address {
    record(id, 0).agentWallet
}

fn ended(id: u64, wallet_of: u64, status: u8) -> AgentRecord {
    AgentRecord { agentWallet: wallet(wallet_of), status, ..record(id, 0) }
}

/// Returns a node with agents 1 to 3: 2 is revoked, and its wallet registered again as 3, below 1.
fn registered_again() -> Node {
    let again = AgentRecord { agentWallet: wallet(2), ..record(3, 1) };
    let agents = vec![record(1, 0), ended(2, 2, 2), again];
    Node::new(PlainRegistry { agents, ..PlainRegistry::with_agents(0) })
}

fn ask(node: &mut Node, target: &str, scan: Option<&Scan>) -> Value {
    read(node.document(Route::parse(target).unwrap(), scan.cloned(), Limits::default()).unwrap())
}

/// Returns the answer to a POST of this body.
fn post(node: &mut Node, body: &str) -> Value {
    let route = Route::parse_post("/api/v1/kya", body.as_bytes()).unwrap();
    read(node.document(route, None, Limits::default()).unwrap())
}

fn kya(of: u64) -> String {
    format!("/api/v1/kya/{}", wallet(of))
}

/// Asserts the members of an answer, by their JSON pointers; absent is `null`.
#[track_caller]
fn has(answer: &Value, expected: &Value) {
    for (pointer, value) in expected.as_object().unwrap() {
        assert_eq!(answer.pointer(pointer).unwrap_or(&Value::Null), value, "{pointer} of {answer}");
    }
}

#[test]
fn a_cached_scan_gives_the_past_and_costs_nothing() {
    let mut node = registered_again();
    let scan = Some(node.registry.scan());
    let answer = ask(&mut node, &kya(2), scan.as_ref());
    let registered_at = Timestamp::from_seconds(NOW - 1_000).to_string();
    let former = json!([{"agentId": 2, "status": "Revoked", "registeredAt": registered_at}]);
    let expected = json!({
        "/registration": "current", "/decision": "provision", "/reasons": ["FORMER_AGENT_REVOKED"],
        "/formerAgents": former, "/ancestorsNotActive": [], "/unknownBecause": null,
    });
    has(&answer, &expected);
    // The status of an ancestor is of now, and not of the scan; a remark decides nothing.
    node.registry.agents[0].status = 1;
    let answer = ask(&mut node, &kya(2), scan.as_ref());
    let expected = json!({
        "/ancestorsNotActive": [{"agentId": 1, "status": "Suspended"}],
        "/reasons": ["FORMER_AGENT_REVOKED", "ANCESTOR_NOT_ACTIVE"], "/decision": "provision",
    });
    has(&answer, &expected);
    assert_eq!(node.round_trips(), 2);
}

#[test]
fn of_a_cached_scan_a_wallet_was_never_registered_or_formerly() {
    let mut node = registered_again();
    node.registry.agents[2].status = 3;
    let scan = Some(node.registry.scan());
    let expected = json!({
        "/registration": "former", "/decision": "deny",
        "/reasons": ["NOT_REGISTERED", "FORMER_AGENT_REVOKED", "FORMER_AGENT_TERMINATED"],
        "/formerAgents/0/agentId": 3,
    });
    has(&ask(&mut node, &kya(2), scan.as_ref()), &expected);
    let never = json!({"/registration": "never", "/formerAgents": []});
    has(&ask(&mut node, &kya(9), scan.as_ref()), &never);
    assert_eq!(node.round_trips(), 2);
}

#[test]
fn a_scan_that_no_longer_holds_makes_no_clean_record() {
    let mut node = registered_again();
    let scan = Some(node.registry.scan());
    let outdated = json!({"/registration": "unknown", "/unknownBecause": "SCAN_OUTDATED"});
    // Agent 3 has ended since; then another has been added.
    node.registry.agents[2].status = 3;
    has(&ask(&mut node, &kya(2), scan.as_ref()), &outdated);
    node.registry.agents.push(ended(4, 9, 2));
    has(&ask(&mut node, &kya(9), scan.as_ref()), &outdated);
    assert_eq!(node.round_trips(), 2);
    // Asked for, it is read up to date.
    let expected = json!({
        "/registration": "former", "/formerAgents/0/status": "Terminated",
        "/formerAgents/1/status": "Revoked",
    });
    has(&ask(&mut node, &format!("{}?history=1", kya(2)), scan.as_ref()), &expected);
    let former = json!({"/registration": "former", "/unknownBecause": null});
    has(&ask(&mut node, &format!("{}?history=1", kya(9)), scan.as_ref()), &former);
}

#[test]
fn a_node_that_is_behind_the_scan_or_far_ahead_of_it_causes_no_walk() {
    let mut node = registered_again();
    let (scan, all) = (Some(node.registry.scan()), node.registry.agents.clone());
    let added = (4..=1_100).map(|id| record(id, 0));
    for agents in [all[..2].to_vec(), all.into_iter().chain(added).collect()] {
        node.registry.agents = agents;
        node.log.clear();
        let answer = ask(&mut node, &format!("{}?history=1", kya(1)), scan.as_ref());
        has(&answer, &json!({"/isRegistered": true, "/unknownBecause": "SCAN_OUTDATED"}));
        assert_eq!(node.round_trips(), 1, "{:?}", node.log);
    }
}

#[test]
fn the_past_is_read_without_a_scan_where_it_is_asked_for() {
    let mut node = registered_again();
    let answer = ask(&mut node, &format!("{}?history=1", kya(2)), None);
    assert_eq!(answer["reasons"], json!(["FORMER_AGENT_REVOKED"]));
    assert!(node.round_trips() <= 3, "{:?}", node.log);
    let mut node = Node::new(PlainRegistry::with_agents(0));
    let answer = ask(&mut node, &format!("{}?history=1", kya(2)), None);
    assert_eq!(answer["registration"], "never", "of an empty registry, too");
}

#[test]
fn ancestors_above_one_that_cannot_be_read_are_unknown() {
    let agents = vec![ended(1, 1, 2), record(2, 1), record(3, 2)];
    let mut node = Node::new(PlainRegistry { agents, ..PlainRegistry::with_agents(0) });
    node.quirks.undeployed = Undeployed::Refused;
    node.quirks.heavy = vec![getAgentCall { agentId: U256::from(2) }.abi_encode()];
    let expected = json!({"/ancestorsNotActive": "unknown", "/unknownBecause": "UNREADABLE_AGENTS"});
    has(&ask(&mut node, &format!("{}?history=1", kya(3)), None), &expected);
}

#[test]
fn ancestors_beyond_the_depth_limit_are_unknown() {
    let agents: Vec<AgentRecord> = (1..=17).map(|id| record(id, id - 1)).collect();
    let mut node = Node::new(PlainRegistry { agents, ..PlainRegistry::with_agents(0) });
    node.registry.agents[0].status = 2;
    let known =
        json!({"/ancestorsNotActive": [{"agentId": 1, "status": "Revoked"}], "/unknownBecause": null});
    let unknown = json!({"/ancestorsNotActive": "unknown", "/unknownBecause": "TOO_MANY_AGENTS"});
    for (id, expected) in [(15, known), (16, unknown.clone()), (17, unknown)] {
        has(&ask(&mut node, &format!("{}?history=1", kya(id)), None), &expected);
    }
}

/// Returns a node with attestations that expire between block 90 and the newest, 100.
fn expiring() -> Node {
    let mut node = Node::new(PlainRegistry::with_agents(2));
    node.registry.grace_seconds = Some(990);
    node
}

#[test]
fn a_verdict_at_a_block_is_read_there_and_judged_at_its_time() {
    let mut node = expiring();
    assert_eq!(ask(&mut node, &kya(1), None)["decision"], "request_renewal");
    let time = |seconds| json!(Timestamp::from_seconds(seconds).to_string());
    let hash = pinned(90)["blockHash"].as_str().unwrap().to_owned();
    for block in ["90", &hash] {
        node.log.clear();
        let then = ask(&mut node, &format!("{}?block={block}", kya(1)), None);
        let expected = json!({
            "/decision": "provision", "/asOf/blockNumber": 90, "/asOf/blockTimestamp": time(NOW - 20),
            "/checkedAt": time(NOW), "/unknownBecause": "PAST_BLOCK",
        });
        has(&then, &expected);
        assert_eq!(node.round_trips(), 1, "{:?}", node.log);
        let agent = ask(&mut node, &format!("/api/v1/agent/1?block={block}"), None);
        has(&agent, &json!({"/compliance/secondsSinceAttestation": 980, "/asOf": then["asOf"].clone()}));
    }
    assert!(ask(&mut node, "/api/v1/agent/1", None).get("asOf").is_none());
    // A node that takes one request at a time.
    node.quirks.batch_limit = Some(1);
    let then = ask(&mut node, &format!("{}?block=85", kya(1)), None);
    has(&then, &json!({"/decision": "provision", "/asOf/blockNumber": 85}));
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
fn a_hundred_wallets_are_one_round_trip_at_one_block_in_order() {
    let mut node = Node::new(PlainRegistry::with_agents(60));
    let wallets: Vec<String> = (1..=100).rev().map(|id| wallet(id).to_string()).collect();
    let list = post(&mut node, &json!({"wallets": wallets}).to_string());
    assert_eq!((node.round_trips(), &list["total"]), (1, &json!(100)));
    for (wallet, verdict) in wallets.iter().zip(list["data"].as_array().unwrap()) {
        assert_eq!(*verdict, ask(&mut node, &format!("/api/v1/kya/{wallet}"), None), "{wallet}");
    }
}

#[test]
fn what_is_no_wallet_is_reported_in_its_place() {
    let mut node = Node::new(PlainRegistry::with_agents(2));
    let list = ask(&mut node, &format!("/api/v1/kya/{},me,{}", wallet(2), wallet(1)), None);
    let error = "Invalid wallet: must be 0x followed by 40 hexadecimal digits";
    let expected = json!({
        "/data/0/agent/agentId": 2, "/data/1": {"wallet": "me", "error": error, "code": "INVALID_PARAMETER"},
        "/data/2/agent/agentId": 1,
    });
    has(&list, &expected);
    node.log.clear();
    assert_eq!(post(&mut node, r#"{"wallets": ["me", ""]}"#)["total"], 2);
    assert_eq!(node.round_trips(), 0, "a list without a wallet asks the chain nothing");
}
