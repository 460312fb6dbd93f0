//! Questions for evidence to nodes that answer as anvil did, or with faults that real nodes have.

use alloy_primitives::{hex, keccak256};
use registry_core::{api::question::WithEvidence, evidence, evidence::Layout};

use super::Recorded;
use crate::common::{host::finish, prelude::*};

/// A fault of a node: a method, the number of its requests that are affected, and their outcome.
type NodeFault = (&'static str, u32, Result<Value, Value>);

fn always(method: &'static str, outcome: Result<Value, Value>) -> Option<NodeFault> {
    Some((method, u32::MAX, outcome))
}

/// Makes a node that answers as anvil did, except for its fault.
fn node(recorded: &Recorded, wrong: Option<NodeFault>) -> Node {
    let number = |name: &str| number_of(recorded.block[name].as_str().unwrap());
    let registry = PlainRegistry { agents: vec![record(recorded)], ..PlainRegistry::with_agents(0) };
    let mut node = Node::new(registry.clone());
    (node.address, node.chain_id, node.block) = (recorded.registry, recorded.chain_id, number("number"));
    for (block, hash) in [(node.block, "hash"), (node.block - 1, "parentHash")] {
        let hash = recorded.block[hash].as_str().unwrap().parse().unwrap();
        let (registry, seconds) = (registry.clone().into(), number("timestamp"));
        node.chain.insert(block, Mined { hash, seconds, registry, events: Vec::new() });
    }
    let code: Value = serde_json::from_str(&recorded.code).unwrap();
    let right = [
        ("eth_getBlockByHash", &recorded.block),
        ("eth_getBlockByNumber", &recorded.block),
        ("eth_getProof", &recorded.proof),
        ("eth_getCode", &code),
    ];
    let right = right.map(|(method, result)| (method, u32::MAX, Ok(result.clone())));
    node.quirks.outcomes = wrong.into_iter().chain(right).collect();
    node
}

/// Asks a node, and with two endpoints also one without a fault behind it.
fn ask(recorded: &Recorded, wrong: Option<NodeFault>, endpoints: usize) -> Result<String, Error> {
    let mut nodes = vec![node(recorded, wrong), node(recorded, None)];
    nodes.truncate(endpoints);
    ask_all(recorded, nodes).0
}

/// Asks these nodes. Returns the answer, and what is known of them afterwards.
fn ask_all(recorded: &Recorded, mut nodes: Vec<Node>) -> (Result<String, Error>, Endpoints) {
    // A node without a fault has a scripted outcome for four methods.
    let is_right = nodes[0].quirks.faulty.is_none() && nodes[0].quirks.outcomes.len() == 4;
    let now = Timestamp::from_seconds(number_of(recorded.block["timestamp"].as_str().unwrap()));
    let (route, registry) = (Route::Evidence(recorded.wallet), recorded.registry);
    let question = Question { route, registry, now, ..question("/health") };
    let layout = (recorded.layout != Layout::AGENT_REGISTRY).then_some(recorded.layout);
    let run = Run::new(WithEvidence { question, layout, block: None }, CANONICAL_ADDRESS, Limits::default());
    let mut known = Endpoints::new(nodes.len(), Some(recorded.chain_id));
    let mut run = run.over(known.clone());
    let document = finish(&mut run, |batch| nodes[batch.endpoint].reply(batch).0);
    known.merge(&run.update());
    let document = document.map(|document| {
        assert!(!is_right || nodes[0].round_trips() == 2, "{:?}", nodes[0].log);
        // A cache may keep it as long as a verdict of that block.
        assert_eq!(document.time_left(60, Timestamp::from_seconds(now.seconds() + 50)), 10);
        document.body
    });
    (document, known)
}

/// Returns the agent's record, as the storage has it.
fn record(recorded: &Recorded) -> AgentRecord {
    let agent = Recorded::load("provision").make().unwrap().1.verdict.agent.unwrap();
    assert_eq!(agent.agent_wallet, recorded.wallet);
    AgentRecord {
        agentId: agent.agent_id.0,
        creator: agent.creator,
        haftungsperson: agent.haftungsperson,
        agentWallet: agent.agent_wallet,
        operationalScope: agent.operational_scope,
        registeredAt: agent.registered_at.seconds(),
        lastAttestation: agent.last_attestation.seconds(),
        ..crate::common::record(1, 0)
    }
}

fn failure(code: i64, message: &str) -> Result<Value, Value> {
    Err(json!({"code": code, "message": message}))
}

#[test]
fn what_a_node_gets_wrong_once_is_asked_again_and_the_evidence_is_right() {
    let recorded = Recorded::load("provision");
    let no_hashes = "cannot unmarshal object into Go value of type string";
    for (method, result) in [
        ("eth_getBlockByHash", Ok(Value::Null)),
        ("eth_getProof", failure(-32005, "rate limit exceeded")),
        ("eth_getProof", failure(-32000, "header not found")),
        ("eth_getProof", failure(-32602, no_hashes)),
        ("eth_getProof", failure(-32600, "batch too large")),
    ] {
        let document = ask(&recorded, Some((method, 1, result.clone())), 1);
        let document = document.unwrap_or_else(|error| panic!("{method}, {result:?}: {error}"));
        assert!(evidence::verify(&document, &recorded.expected()).is_ok(), "{method}, {result:?}");
    }
}

#[test]
fn what_a_node_gets_wrong_for_good_is_an_error_of_its_own_or_another_endpoints_to_answer() {
    let recorded = Recorded::load("provision");
    let missing = always("eth_getProof", failure(-32601, "the method eth_getProof does not exist"));
    let error = ask(&recorded, missing.clone(), 1).unwrap_err();
    assert!(error.to_string().contains("eth_getProof does not exist"), "{error}");
    assert_eq!(error.code(), Code::NodeLacksMethod);
    let long = always("eth_getProof", Ok(json!("0".repeat(5 << 20))));
    assert_eq!(ask(&recorded, long.clone(), 1).unwrap_err().code(), Code::TooLarge);
    for wrong in [missing, long] {
        let document = ask(&recorded, wrong, 2).unwrap();
        assert!(evidence::verify(&document, &recorded.expected()).is_ok());
    }

    // Permanent refusals in words that other nodes use for temporary ones; a header with fields of its own,
    // as AuRa's; a proof, a value or code that is not the account's: the endpoint is ruled out, and a single
    // endpoint gives no proof.
    let mut own = recorded.block.clone();
    own["mixHash"] = json!(B256::repeat_byte(1));
    let changed = |pointer: &str, value: Value| {
        let mut proof = recorded.proof.clone();
        *proof.pointer_mut(pointer).unwrap() = value;
        always("eth_getProof", Ok(proof))
    };
    let paid = "eth_getProof is not available on the Free tier - upgrade to Pay As You Go";
    for wrong in [
        always("eth_getProof", failure(-32600, paid)),
        always("eth_getProof", failure(-32601, "the method eth_getProof is unavailable")),
        always("eth_getProof", failure(-32046, "Cannot fulfill request")),
        always("eth_getBlockByHash", Ok(own)),
        changed("/storageProof", json!([])),
        changed("/storageProof/0/proof", json!([])),
        changed("/storageProof/2/proof/1", json!("0xc0")),
        changed("/storageProof/2/value", json!("0x7")),
        changed("/storageHash", json!(B256::repeat_byte(1))),
        always("eth_getCode", Ok(json!("0x"))),
    ] {
        assert_eq!(ask(&recorded, wrong.clone(), 1).unwrap_err().code(), Code::NodeLacksMethod, "{wrong:?}");
        let document = ask(&recorded, wrong.clone(), 2).unwrap_or_else(|error| panic!("{wrong:?}: {error}"));
        assert!(evidence::verify(&document, &recorded.expected()).is_ok());
    }

    // A gateway refuses each batch with the request: smaller ones are answered.
    for status in [405, 403, 501, 500, 200] {
        let mut gateway = node(&recorded, None);
        let fault = if status == 200 { Fault::Html } else { Fault::Status(status) };
        gateway.quirks.faulty = Some((|_, request| request["method"] == "eth_getProof", fault));
        let (error, known) = ask_all(&recorded, vec![gateway.clone()]);
        assert_eq!(error.unwrap_err().code(), Code::NodeLacksMethod, "{status}");
        let found = known.features().next().unwrap();
        assert_eq!((found.proofs, found.batch), (Some(false), Some(true)), "{status}");
        ask_all(&recorded, vec![gateway, node(&recorded, None)]).0.unwrap();
    }

    // Another header, another block's header or proof, another chain's name: the endpoint is ruled out.
    let (mut header, mut proof) = (recorded.block.clone(), recorded.proof.clone());
    header["stateRoot"] = json!(B256::repeat_byte(1));
    proof["accountProof"][0] = json!("0xc0");
    let mut other = recorded.block.clone();
    other["hash"] = json!(B256::repeat_byte(1));
    for (method, result) in [
        ("eth_getBlockByHash", header),
        ("eth_getBlockByHash", other),
        ("eth_getProof", proof),
        ("eth_chainId", json!("0x1")),
    ] {
        let wrong = always(method, Ok(result));
        let error = ask(&recorded, wrong.clone(), 1).unwrap_err();
        assert!(matches!(error, Error::Query(QueryError::Run(_))), "{method}: {error}");
        let document = ask(&recorded, wrong, 2).unwrap_or_else(|error| panic!("{method}: {error}"));
        assert!(evidence::verify(&document, &recorded.expected()).is_ok());
    }
}

#[test]
fn other_code_needs_its_operators_layout_and_a_wrong_one_makes_no_evidence() {
    let recorded = Recorded::load("provision");
    let code = format!("{}00\"", recorded.code.trim_end_matches('"'));
    let mut other = Recorded { code, ..Recorded::load("provision") };
    let bytes = hex::decode(other.code.trim_matches('"')).unwrap();
    other.proof["codeHash"] = json!(keccak256(bytes));
    assert_eq!(ask(&other, None, 1).unwrap_err(), Error::NoLayout);
    let code_hash = recorded.code_hash();
    assert!(ask(&recorded.foreign(code_hash), None, 1).is_ok());

    let layout = Layout { code_hash: Some(code_hash), ..Layout::AGENT_REGISTRY };
    let mut persons = layout;
    std::mem::swap(&mut persons.record.creator, &mut persons.record.haftungsperson);
    for wrong in [Layout { code_hash: Some(keccak256("other")), ..layout }, persons] {
        let recorded = Recorded { layout: wrong, ..Recorded::load("provision") };
        assert!(matches!(ask(&recorded, None, 1), Err(Error::WrongLayout(_))), "{wrong:?}");
    }
}

#[test]
fn a_scope_is_too_long_by_its_bytes_in_the_contract_and_not_by_the_decoded_text() {
    let recorded = Recorded::load("provision");
    // The decoder writes three bytes for one that is not UTF-8.
    for (scope, is_too_long) in [
        ("\u{fffd}".repeat(1_400), false),
        ("\u{fffd}".repeat(4_097), true),
        ("a".repeat(4_096), false),
        ("a".repeat(4_097), true),
    ] {
        let mut node = node(&recorded, None);
        let mut registry = node.registry.clone();
        registry.agents[0].operationalScope = scope.clone();
        node.chain.values_mut().for_each(|mined| mined.registry = registry.clone().into());
        // The storage decides on the rest, and has another scope here.
        let error = ask_all(&recorded, vec![node]).0.unwrap_err();
        assert_eq!(matches!(error, Error::ScopeTooLong(_)), is_too_long, "{}: {error}", scope.len());
    }
}

#[test]
fn where_the_newest_block_alone_is_proved_block_and_proof_are_taken_anew_in_one_batch() {
    let recorded = Recorded::load("provision");
    for (code, words) in [
        (-32602, "distance to target block exceeds maximum proof window"), // reth
        (-32000, "requested block is too old, block must be within 1 blocks of the head"), // erigon 2
        (-32000, "root hash mismatch"),                                    // erigon 3
        (-32000, "historical state 0x12 is not available"),                // geth's path scheme
        (-32603, "Internal error"),
    ] {
        for refusals in 1..=2 {
            let document = ask(&recorded, Some(("eth_getProof", refusals, failure(code, words))), 1);
            let document = document.unwrap_or_else(|error| panic!("{words}, {refusals}: {error}"));
            assert!(evidence::verify(&document, &recorded.expected()).is_ok(), "{words}, {refusals}");
        }
    }
    // dRPC's free tier takes three requests: two are sent from then on, and logs need no more.
    let refused = failure(31, "Batch of more than 3 requests are not allowed on free tier");
    ask(&recorded, Some(("eth_getBlockByHash", 1, refused)), 1).unwrap();
}
