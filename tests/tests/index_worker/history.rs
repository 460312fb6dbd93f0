//! What happened to one agent, by the events of a real chain.
//!
//! Events come oldest first, each with its block, time and transaction; suspensions have their reason. What a
//! reorganisation undoes is no longer in the answer. Pages, and nodes without events: `core/tests/index`.

use alloy::primitives::U256;
use alloy::rpc::types::TransactionReceipt;
use e2e::anvil::quantity;
use e2e::chain::{Chain, time};
use e2e::seed;
use registry_core::eth::abi::IAgentRegistry::revokeAgentCall;
use serde_json::{Value, json};

use crate::{Turn, reactivate};

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
    let (owner, id) = (chain.owner(), chain.total().await.unwrap() + 1);
    let registration = seed::registration_call(id, seed::wallet("looks back").address(), "looks back", 0);
    let registered = json!({
        "event": "registered", "creator": owner.to_string(),
        "haftungsperson": registration.haftungsperson.to_string(),
        "agentWallet": registration.agentWallet.to_string(), "parentAgentId": 0, "generation": 0,
    });
    let suspended = json!({ "event": "suspended", "by": owner.to_string(), "reason": REASON });
    let first = chain.send(owner, registration).await.unwrap();
    let second = chain.send(owner, seed::suspension(id, REASON)).await.unwrap();
    (id, vec![event(chain, &first, registered).await, event(chain, &second, suspended).await])
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

    // What is undone is gone from the answer; what came instead is in it.
    reactivate(chain, id).await;
    assert_eq!(client.get(&path).await.ok()["data"][2]["event"], "reactivated");
    chain.node.reorganise(1).await.unwrap();
    let call = revokeAgentCall { agentId: U256::from(id), reason: REASON.to_owned() };
    let receipt = chain.send(chain.owner(), call).await.unwrap();
    let revoked = json!({ "event": "revoked", "by": chain.owner().to_string(), "reason": REASON });
    let life = [life, vec![event(chain, &receipt, revoked).await]].concat();
    assert_eq!(client.get(&path).await.ok()["data"], json!(life));
}
