//! What happened to one agent, by the events of a real chain.
//!
//! Events come oldest first, each with its block, time and transaction, a page at a time; suspensions have their
//! reason. What a reorganisation undoes is no longer in the answer. Where the node has no events, the answer says
//! so.

use alloy::primitives::U256;
use alloy::rpc::types::TransactionReceipt;
use e2e::anvil::quantity;
use e2e::chain::Chain;
use e2e::client::assert_has;
use e2e::documents::time;
use e2e::fault::{Fault, Rule};
use e2e::seed;
use registry_core::eth::abi::IAgentRegistry::{
    attestComplianceCall, nextAgentIdCall, reactivateAgentCall, terminateSelfCall,
};
use serde_json::{Value, json};

use crate::Turn;

const REASON: &str = "Operator under \"investigation\", case 7";

/// The event of a transaction: these fields, and its place on the chain.
async fn event(chain: &Chain, receipt: &TransactionReceipt, mut event: Value) -> Value {
    let number = receipt.block_number.unwrap();
    let block = chain.node.block(number).await.unwrap();
    event["blockNumber"] = json!(number);
    event["time"] = json!(time(quantity(&block["timestamp"]).unwrap()));
    event["transactionHash"] = json!(receipt.transaction_hash);
    event["logIndex"] = json!(receipt.inner.logs()[0].log_index.unwrap());
    event
}

/// The life of an agent; its id, and its events.
async fn live(chain: &Chain) -> (u64, Vec<Value>) {
    let (owner, registry) = (chain.owner(), chain.contracts.registry);
    let id: u64 = chain.read(registry, nextAgentIdCall {}).await.unwrap().to();
    let (agent, by) = (U256::from(id), owner.to_string());
    let registration = seed::registration_call(id, seed::wallet("looks back").address(), "looks back", 0);
    let registered = json!({
        "event": "registered", "creator": by, "haftungsperson": registration.haftungsperson.to_string(),
        "agentWallet": registration.agentWallet.to_string(), "parentAgentId": 0, "generation": 0,
    });
    let attested = json!({ "event": "attested", "by": by });
    let suspended = json!({ "event": "suspended", "by": by, "reason": REASON });
    let reactivated = json!({ "event": "reactivated", "by": by });
    let mut life = Vec::new();
    for (receipt, told) in [
        (chain.send(owner, registration).await, registered),
        (chain.send(owner, attestComplianceCall { agentId: agent }).await, attested),
        (chain.send(owner, seed::suspension(id, REASON)).await, suspended),
        (chain.send(owner, reactivateAgentCall { agentId: agent }).await, reactivated),
    ] {
        life.push(event(chain, &receipt.unwrap(), told).await);
    }
    (id, life)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_is_told_as_it_was_and_what_was_undone_is_not() {
    let stage = Turn::with(|options| options.ttl(0)).await;
    let (chain, client) = (&stage.chain, &stage.client);
    let (id, life) = live(chain).await;
    let path = format!("/api/v1/agent/{id}/history");
    let answer = client.get(&path).await;
    let history = answer.ok();
    assert_eq!(history["asOf"]["blockNumber"], answer.number("x-as-of-block"));
    assert_eq!(answer.header("link"), format!("<{path}>; rel=\"first\""));
    let expected = json!({
        "agentId": id, "complete": true, "fromBlock": life[0]["blockNumber"], "limit": 50, "data": life,
        "asOf": history["asOf"],
    });
    assert_eq!(history, expected);

    let first = client.get(&format!("{path}?limit=3")).await;
    let next = format!("{path}?limit=3&cursor={}", first.ok()["next"].as_str().unwrap());
    assert!(first.header("link").ends_with(&format!(", <{next}>; rel=\"next\"")), "{:?}", first.headers);
    let second = client.get(&next).await.ok();
    assert_eq!((&first.ok()["data"], &second["data"]), (&json!(life[..3]), &json!(life[3..])));
    assert_eq!(second.get("next"), None);

    // What is undone is gone from the answer; what came instead is in it.
    chain.send(chain.owner(), terminateSelfCall { agentId: U256::from(id) }).await.unwrap();
    let data = client.get(&path).await.ok()["data"].clone();
    assert_eq!(data.as_array().unwrap().last().unwrap()["event"], "terminated");
    chain.node.reorganise(1).await.unwrap();
    let receipt = chain.send(chain.owner(), attestComplianceCall { agentId: U256::from(id) }).await.unwrap();
    let attested = json!({ "event": "attested", "by": chain.owner().to_string() });
    let life = [life, vec![event(chain, &receipt, attested).await]].concat();
    assert_eq!(client.get(&path).await.ok()["data"], json!(life));

    let missing = Fault::error(-32601, "the method eth_getLogs does not exist");
    stage.proxy.inject(Rule::on("eth_getLogs", missing));
    let incomplete = json!({ "complete": false, "incompleteBecause": "NO_LOGS", "data": [] });
    assert_has(&client.get(&path).await.ok(), incomplete, "without logs");
}
