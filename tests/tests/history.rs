//! What happened to one agent, from the index behind the real Worker, over a real chain.
//!
//! 1. Events come oldest first: registered, attested, a child, suspended with the reason, reinstated,
//!    terminated; each with its block, time and transaction, a page at a time.
//! 2. What a reorg undoes is no longer in the answer.
//! 3. Where the node caps, prunes or serves no events, the answer is the same or says why it is not complete.
//! 4. Bad input is named.
//! 5. An answer is stored as agent data is; one that has to ask the chain is never as of a reorganised block.

use std::time::Duration;

use alloy::primitives::{Address, U256};
use alloy::rpc::types::TransactionReceipt;
use e2e::anvil::{AnvilOptions, quantity, wall_clock};
use e2e::chain::Chain;
use e2e::client::assert_has;
use e2e::documents::time;
use e2e::fault::{Fault, Rule};
use e2e::process::eventually;
use e2e::seed;
use e2e::stage::Stage;
use e2e::story::DAY;
use registry_core::eth::abi::IAgentRegistry::{attestComplianceCall, reactivateAgentCall, terminateSelfCall};
use serde_json::{Value, json};

const WAIT: Duration = Duration::from_secs(60);
const REASON: &str = "Operator under \"investigation\", case 7";

async fn chain() -> Chain {
    Chain::start(AnvilOptions::since(wall_clock() - DAY)).await.unwrap()
}

/// A stage that stores no answers: each is as of the newest block.
async fn stage(chain: Chain) -> Stage {
    Stage::indexed(chain, |options| options.ttl(0)).await.unwrap()
}

/// What was done, in the order of the chain.
struct Expected<'a> {
    chain: &'a Chain,
    events: Vec<Value>,
}

impl Expected<'_> {
    /// Adds the event of a transaction: these fields, and its place on the chain.
    async fn note(&mut self, receipt: &TransactionReceipt, mut event: Value) {
        let number = receipt.block_number.unwrap();
        let block = self.chain.node.block(number).await.unwrap();
        event["blockNumber"] = json!(number);
        event["time"] = json!(time(quantity(&block["timestamp"]).unwrap()));
        event["transactionHash"] = json!(receipt.transaction_hash);
        event["logIndex"] = json!(receipt.inner.logs()[0].log_index.unwrap());
        self.events.push(event);
    }
}

fn wallet(name: &str) -> Address {
    seed::wallet(name).address()
}

/// The life of agent 1, and beside it agent 2, its child.
async fn live(chain: &Chain) -> Vec<Value> {
    let (owner, id) = (chain.owner(), U256::from(1));
    let by = owner.to_string();
    let mut life = Expected { chain, events: Vec::new() };
    let registration = seed::registration_call(1, wallet("first"), "looks back", 0);
    let person = registration.haftungsperson.to_string();
    let receipt = chain.send(owner, registration).await.unwrap();
    let registered = json!({
        "event": "registered", "creator": by, "haftungsperson": person, "agentWallet": wallet("first").to_string(),
        "parentAgentId": 0, "generation": 0,
    });
    life.note(&receipt, registered).await;
    let receipt = chain.send(owner, attestComplianceCall { agentId: id }).await.unwrap();
    life.note(&receipt, json!({ "event": "attested", "by": by })).await;
    let child = seed::registration_call(2, wallet("child"), "a child", 1);
    let receipt = chain.send(owner, child).await.unwrap();
    let registered = json!({
        "event": "childRegistered", "childAgentId": 2, "creator": by, "agentWallet": wallet("child").to_string(),
    });
    life.note(&receipt, registered).await;
    let report = seed::report(1, U256::from(12_345), "EUR", "consulting", wall_clock());
    let receipt = chain.send(owner, report).await.unwrap();
    let reported = json!({
        "event": "revenueReported", "by": by, "amount": 12_345, "currency": "EUR", "category": "consulting",
    });
    life.note(&receipt, reported).await;
    chain.node.mine(40).await.unwrap();
    let receipt = chain.send(owner, seed::suspension(1, REASON)).await.unwrap();
    life.note(&receipt, json!({ "event": "suspended", "by": by, "reason": REASON })).await;
    chain.send(owner, seed::suspension(2, "another one")).await.unwrap();
    let receipt = chain.send(owner, reactivateAgentCall { agentId: id }).await.unwrap();
    life.note(&receipt, json!({ "event": "reactivated", "by": by })).await;
    // Enough that no reorganisation undoes what was.
    chain.node.mine(30).await.unwrap();
    life.events
}

#[tokio::test(flavor = "multi_thread")]
async fn a_life_is_told_as_it_was_and_what_was_undone_is_not() {
    let chain = chain().await;
    let mut life = live(&chain).await;
    let stage = stage(chain).await;
    let (chain, client, path) = (&stage.chain, &stage.client, "/api/v1/agent/1/history");

    let answer = client.get(path).await;
    let history = answer.ok();
    let block = answer.number("x-as-of-block");
    assert_eq!(history["asOf"]["blockNumber"], block);
    assert_eq!(answer.header("link"), format!("<{path}>; rel=\"first\""));
    let mut expected = json!({
        "agentId": 1, "complete": true, "fromBlock": life[0]["blockNumber"], "limit": 50, "data": life,
        "asOf": history["asOf"],
    });
    assert_eq!(history, expected);

    // A page at a time.
    let (mut page, mut pages) = (format!("{path}?limit=4"), Vec::new());
    loop {
        let answer = client.get(&page).await;
        let body = answer.ok();
        assert_eq!((&body["complete"], &body["fromBlock"]), (&json!(true), &expected["fromBlock"]));
        pages.extend(body["data"].as_array().unwrap().clone());
        let Some(next) = body["next"].as_str() else { break };
        page = format!("{path}?limit=4&cursor={next}");
        let links = answer.header("link");
        assert!(links.ends_with(&format!(", <{page}>; rel=\"next\"")), "{links}");
    }
    assert_eq!(pages, life);

    // What is undone is gone from the answer; what came instead is in it.
    chain.send(chain.owner(), terminateSelfCall { agentId: U256::from(1) }).await.unwrap();
    chain.node.mine(1).await.unwrap();
    let last = |body: &Value| body["data"].as_array().unwrap().last().unwrap()["event"].clone();
    assert_eq!(last(&client.get(path).await.ok()), "terminated");
    chain.node.reorganise(3).await.unwrap();
    assert_eq!(client.get(path).await.ok()["data"], json!(life));
    let receipt = chain.send(chain.owner(), attestComplianceCall { agentId: U256::from(1) }).await.unwrap();
    let mut more = Expected { chain, events: Vec::new() };
    more.note(&receipt, json!({ "event": "attested", "by": chain.owner().to_string() })).await;
    life.append(&mut more.events);
    expected["data"] = json!(life);

    // Nodes that cap the list of logs, have no logs, or lack the method.
    for (fault, because) in [
        (Fault::LogsOfBlocks(50), None),
        (Fault::LogsOfBlocks(3), None),
        (Fault::LogResults(2), None),
        (Fault::Result(json!([])), Some("EVENTS_MISSING")),
        (Fault::error(-32601, "the method eth_getLogs does not exist"), Some("NO_LOGS")),
    ] {
        stage.proxy.inject(Rule::on("eth_getLogs", fault.clone()));
        let history = client.get(path).await.ok();
        stage.proxy.heal();
        if let Some(because) = because {
            let incomplete = json!({ "complete": false, "incompleteBecause": because, "data": [] });
            assert_has(&history, incomplete, &format!("{fault:?}"));
            assert_eq!(history.get("fromBlock"), None, "{fault:?}");
        } else {
            expected["asOf"] = history["asOf"].clone();
            assert_eq!(history, expected, "{fault:?}");
        }
    }

    for (path, status, message) in [
        ("/api/v1/agent/3/history", 404, "Agent not found: 3"),
        ("/api/v1/agent/0/history", 404, "Agent not found: 0"),
        ("/api/v1/agent/x/history", 400, "Invalid id: must be a whole number"),
        ("/api/v1/agent/1/history?limit=0", 400, "Invalid limit: must be a whole number of at least 1"),
        ("/api/v1/agent/1/history?cursor=7", 400, "Invalid cursor: must be the `next` of an earlier answer"),
    ] {
        let refused = client.get(path).await.error(status);
        assert!(refused.starts_with(message), "{path}: {refused}");
    }
    stage.proxy.inject(Rule::any(Fault::Refuse));
    client.get(path).await.failed(500, "RPC_UNAVAILABLE");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_is_kept_as_agent_data_is_but_never_told_as_of_a_block_that_was_reorganised() {
    let chain = chain().await;
    live(&chain).await;
    let undone = attestComplianceCall { agentId: U256::from(1) };
    chain.send(chain.owner(), undone).await.unwrap();
    let stage = Stage::indexed(chain, |options| options.var("RATE_LIMIT_PER_MINUTE", 100)).await.unwrap();
    let path = "/api/v1/agent/1/history";
    let first = eventually("answered", WAIT, async || {
        let answer = stage.client.get(path).await;
        (answer.status == 200).then_some(answer)
    })
    .await
    .unwrap();
    assert_eq!(first.header("cache-control"), "public, max-age=300");
    let known = stage.client.with("if-none-match", first.header("etag"));
    stage.proxy.reset();
    let again = known.get(path).await;
    assert_eq!((again.status, again.header("x-cache"), stage.proxy.posts()), (304, "HIT", 0));
    let (before, after) = (first.number("x-ratelimit-remaining"), again.number("x-ratelimit-remaining"));
    assert!(before == after + 5 || after == 95, "five, or the first of a window: {before} {after}");

    // The index's rows may be kept for as long; but what it asks for now is of a block that is no more.
    assert_eq!(first.ok()["data"].as_array().unwrap().len(), 7);
    stage.chain.node.reorganise(1).await.unwrap();
    let anew = stage.client.get(&format!("{path}?limit=60")).await.ok();
    assert_eq!(anew["data"].as_array().unwrap().len(), 6, "{anew}");
    assert_eq!(anew["data"][5]["event"], "reactivated");
}
