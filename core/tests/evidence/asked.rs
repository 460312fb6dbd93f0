//! Questions for evidence, put to a node that answers as anvil did, and in ways that nodes get wrong.

use alloy_primitives::{B256, Bytes, U256, keccak256};
use alloy_sol_types::{SolCall as _, SolInterface as _, SolValue as _};
use registry_core::{
    api::{
        error::Error,
        question::{Question, WithEvidence},
        route::Route,
    },
    chain::{Batch, Endpoints, Limits, QueryError, Reply, Run, Step},
    eth::{
        abi::{
            AgentRecord,
            IAgentRegistry::{attestationGracePeriodCall, getAgentByWalletCall},
            IMulticall3::{self, IMulticall3Calls},
        },
        multicall::CANONICAL_ADDRESS,
        timestamp::Timestamp,
    },
    evidence::{self, Layout},
    registry::error_code::Code,
};
use serde_json::{Value, json};

use super::Recorded;

/// What a node answers the first so many requests of one method.
#[derive(Clone, Debug)]
struct Wrong {
    method: &'static str,
    result: Result<Value, Value>,
    times: usize,
}

fn once(method: &'static str, result: Result<Value, Value>) -> Option<Wrong> {
    Some(Wrong { method, result, times: 1 })
}

fn always(method: &'static str, result: Result<Value, Value>) -> Option<Wrong> {
    Some(Wrong { method, result, times: usize::MAX })
}

/// Asks a node, and one behind it that does nothing wrong if there are two.
fn ask(recorded: &Recorded, mut wrong: Option<Wrong>, endpoints: usize) -> Result<String, Error> {
    let question = Question {
        route: Route::Evidence(recorded.wallet),
        registry: recorded.registry,
        chain: "http://node".into(),
        now: Timestamp::from_seconds(number(&recorded.block["timestamp"])),
        scan: None,
        excerpt: None,
    };
    let layout = (recorded.layout != Layout::AGENT_REGISTRY).then_some(recorded.layout);
    let run = Run::new(WithEvidence { question, layout }, CANONICAL_ADDRESS, Limits::default());
    let mut run = run.over(Endpoints::new(endpoints, Some(recorded.chain_id)));
    loop {
        match run.step()? {
            Step::Done(answer) => return Ok(answer.body),
            Step::Send(batch) => {
                let wrong = if batch.endpoint == 0 { &mut wrong } else { &mut None };
                run.feed(Reply { status: 200, body: reply(recorded, &batch, wrong).as_bytes() })?;
            }
        }
    }
}

fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

fn reply(recorded: &Recorded, batch: &Batch, wrong: &mut Option<Wrong>) -> String {
    let body: Value = serde_json::from_str(&batch.body).unwrap();
    let mut answer = |request: &Value| {
        let method = request["method"].as_str().unwrap();
        let result = match wrong {
            Some(wrong) if wrong.method == method && wrong.times > 0 => {
                wrong.times -= 1;
                wrong.result.clone()
            }
            _ => Ok(right(recorded, method, &request["params"])),
        };
        match result {
            Ok(result) => json!({"jsonrpc": "2.0", "id": request["id"], "result": result}),
            Err(error) => json!({"jsonrpc": "2.0", "id": request["id"], "error": error}),
        }
    };
    match body.as_array() {
        Some(requests) => requests.iter().map(answer).collect::<Value>().to_string(),
        None => answer(&body).to_string(),
    }
}

fn right(recorded: &Recorded, method: &str, params: &Value) -> Value {
    match method {
        "eth_getBlockByHash" | "eth_getBlockByNumber" => recorded.block.clone(),
        "eth_getProof" => recorded.proof.clone(),
        "eth_getCode" => serde_json::from_str(&recorded.code).unwrap(),
        "eth_chainId" => json!(format!("{:#x}", recorded.chain_id)),
        "eth_call" => {
            let data: Bytes = serde_json::from_value(params[0]["data"].clone()).unwrap();
            let Ok(IMulticall3Calls::aggregate3(calls)) = IMulticall3Calls::abi_decode(&data) else {
                return json!(called(recorded, &data));
            };
            let result = |call: &IMulticall3::Call3| IMulticall3::Result {
                success: true,
                returnData: called(recorded, &call.callData),
            };
            let results: Vec<_> = calls.calls.iter().map(result).collect();
            json!(Bytes::from(IMulticall3::aggregate3Call::abi_encode_returns(&results)))
        }
        method => panic!("unexpected {method}"),
    }
}

/// What the registry or Multicall3 returns.
fn called(recorded: &Recorded, data: &[u8]) -> Bytes {
    let word = |name: &str| U256::from(number(&recorded.block[name])).abi_encode();
    match data.first_chunk::<4>().copied().unwrap() {
        attestationGracePeriodCall::SELECTOR => 604_800_u64.abi_encode(),
        getAgentByWalletCall::SELECTOR => record(recorded).abi_encode(),
        IMulticall3::getLastBlockHashCall::SELECTOR => {
            recorded.block["parentHash"].as_str().unwrap().parse::<B256>().unwrap().abi_encode()
        }
        IMulticall3::getBlockNumberCall::SELECTOR => word("number"),
        IMulticall3::getCurrentBlockTimestampCall::SELECTOR => word("timestamp"),
        IMulticall3::getChainIdCall::SELECTOR => recorded.chain_id.abi_encode(),
        other => panic!("unexpected {other:?}"),
    }
    .into()
}

/// The agent's record, as the storage has it.
fn record(recorded: &Recorded) -> AgentRecord {
    let agent = Recorded::load("provision").make().unwrap().1.verdict.agent.unwrap();
    assert_eq!(agent.agent_wallet, recorded.wallet);
    AgentRecord {
        agentId: agent.agent_id.0,
        creator: agent.creator,
        haftungsperson: agent.haftungsperson,
        agentWallet: agent.agent_wallet,
        constitutionHash: B256::ZERO,
        capabilityHash: B256::ZERO,
        operationalScope: agent.operational_scope,
        parentAgentId: U256::ZERO,
        generation: U256::ZERO,
        selfModifying: false,
        registeredAt: agent.registered_at.seconds(),
        lastAttestation: agent.last_attestation.seconds(),
        lastRevenueReport: 0,
        status: 0,
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
        let document = ask(&recorded, once(method, result.clone()), 1);
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
    let long = always("eth_getProof", Ok(json!("0".repeat(5 << 20))));
    assert_eq!(ask(&recorded, long.clone(), 1).unwrap_err().code(), Code::TooLarge);
    for wrong in [missing, long] {
        let document = ask(&recorded, wrong, 2).unwrap();
        assert!(evidence::verify(&document, &recorded.expected()).is_ok());
    }

    // Another block's proof, another header, another chain's name.
    let (mut header, mut proof) = (recorded.block.clone(), recorded.proof.clone());
    header["stateRoot"] = json!(B256::repeat_byte(1));
    proof["accountProof"][0] = json!("0xc0");
    for (method, result) in
        [("eth_getBlockByHash", header), ("eth_getProof", proof), ("eth_chainId", json!("0x1"))]
    {
        let error = ask(&recorded, always(method, Ok(result)), 1).unwrap_err();
        let is_expected = matches!(error, Error::Evidence(_) | Error::Query(QueryError::Run(_)));
        assert!(is_expected, "{method}: {error}");
    }
}

#[test]
fn other_code_needs_its_operators_layout_and_a_wrong_one_makes_no_evidence() {
    let recorded = Recorded::load("provision");
    let code = format!("{}00\"", recorded.code.trim_end_matches('"'));
    let other = Recorded { code, ..Recorded::load("provision") };
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
