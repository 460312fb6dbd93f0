//! Nodes and networks that fail, through a proxy before the real node: every request is executed once all the
//! same.
//!
//! 1. The answer is lost after the node took the transaction; no answer comes at all; the node is rate
//!    limited.
//! 2. Every wording of "already known" means that the node has it.
//! 3. Every wording of "nonce too low" means looking for our own transaction, never the next nonce.
//! 4. An error that nobody knows is "maybe": the same bytes again.
//! 5. One of two endpoints dead, from the start or from one moment to the next.
//! 6. A stale node, from the start or from one moment to the next.

use e2e::daemon::Daemon;
use e2e::fault::{Fault, Rule};
use e2e::process::eventually;
use e2e::proxy::Proxy;
use e2e::relay::Signed;
use serde_json::Value;

use crate::audit::{PATIENCE, Stage, agent};

const SEND: &str = "eth_sendRawTransaction";

/// Every raw transaction the proxy has seen, in order.
pub(crate) fn raw_transactions(proxy: &Proxy) -> Vec<Value> {
    proxy
        .log()
        .into_iter()
        .filter(|post| post.body["method"] == SEND)
        .map(|post| post.body["params"][0].clone())
        .collect()
}

fn too_many_requests() -> Fault {
    Fault::Status { status: 429, body: "Too Many Requests".to_owned(), retry_after: Some(1) }
}

#[tokio::test]
async fn a_send_whose_answer_never_comes_is_repeated_byte_for_byte() {
    let stage = Stage::set().await;
    let daemon = Daemon::start(&stage.options.clone().var("RPC_TIMEOUT_SECONDS", 1)).await.unwrap();
    let client = daemon.client();
    let mut executed = Vec::new();
    for (name, fault) in [
        ("lost", Fault::LoseAnswer),
        ("hanging", Fault::HangAfterwards),
        ("refused", Fault::Refuse),
        ("silent", Fault::Hang),
        ("limited", too_many_requests()),
        ("limited in JSON", Fault::error(429, "Too Many Requests")),
        ("broken", Fault::Garbage("<html>".to_owned())),
        ("unknown", Fault::error(-32000, "something nobody has seen yet")),
        ("unknown, but taken", Fault::ErrorAfterwards { code: -32603, message: "Internal error".to_owned() }),
    ] {
        stage.proxy.reset();
        stage.proxy.inject(Rule::on(SEND, fault).once());
        let request = stage.desk.registration(&agent(name), 0);
        let answer = client.relay(&request).await;
        assert_eq!(answer.status, 200, "{name}: {}", answer.text);
        let sent = raw_transactions(&stage.proxy);
        assert!(sent.iter().all(|raw| *raw == sent[0]), "{name}: other bytes were sent");
        executed.push(request);
    }
    stage.audit(&client, &executed.iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn reads_that_fail_once_are_asked_again() {
    let stage = Stage::set().await;
    let daemon = Daemon::start(&stage.options.clone().var("RPC_TIMEOUT_SECONDS", 1)).await.unwrap();
    let client = daemon.client();
    let mut executed = Vec::new();
    for fault in
        [too_many_requests(), Fault::error(-32005, "request rate limited"), Fault::Refuse, Fault::Hang]
    {
        for method in [
            "eth_call",
            "eth_getBalance",
            "eth_feeHistory",
            "eth_getTransactionCount",
            "eth_getTransactionReceipt",
        ] {
            stage.proxy.inject(Rule::on(method, fault.clone()).once());
        }
        let request = stage.desk.registration(&agent(&format!("reader {}", executed.len())), 0);
        let answer = client.relay(&request).await;
        assert_eq!(answer.status, 200, "{fault:?}: {}", answer.text);
        stage.proxy.heal();
        executed.push(request);
    }
    stage.audit(&client, &executed.iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn every_wording_of_already_known_means_that_the_node_has_it() {
    let wordings = [
        (-32000, "already known"),
        (-32000, "ALREADY_EXISTS: already known"),
        (-32000, "known transaction: 0xabc"),
        (-32000, "Known transaction"),
        (-32010, "AlreadyKnown"),
        (-32003, "transaction already imported"),
        (-32010, "Transaction with the same hash was already imported."),
        (-32000, "existing tx with same hash"),
        (-32000, "transaction already exists"),
        (-32000, "already in mempool"),
        (-32000, "tx already in the txpool"),
    ];
    executed_whatever_the_node_says(&wordings, true).await;
}

#[tokio::test]
async fn every_wording_of_nonce_too_low_means_looking_for_our_own_transaction() {
    let wordings = [
        (-32000, "nonce too low: next nonce 5, tx nonce 4"),
        (-32000, "nonce too low"),
        (-32001, "Nonce too low"),
        (-32003, "nonce too low"),
        (-32010, "OldNonce, Current nonce: 5, nonce of rejected tx: 4"),
        (-32010, "OwnNonceAlreadyUsed"),
        (-32010, "Transaction nonce is too low. Try incrementing the nonce."),
        (-32000, "transaction nonce below current account nonce: nonce below current"),
        (-32000, "invalid transaction nonce"),
    ];
    // It was taken and mined, and the node says so in its way; and it was not taken, and the node is wrong.
    executed_whatever_the_node_says(&wordings, true).await;
    executed_whatever_the_node_says(&wordings[..2], false).await;
}

/// Relays one request for each answer to its first sending, whether or not the node took it.
async fn executed_whatever_the_node_says(wordings: &[(i64, &str)], taken: bool) {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    let mut executed: Vec<Signed> = Vec::new();
    for &(code, message) in wordings {
        stage.proxy.reset();
        let fault = if taken {
            Fault::ErrorAfterwards { code, message: message.to_owned() }
        } else {
            Fault::error(code, message)
        };
        stage.proxy.inject(Rule::on(SEND, fault).once());
        let request = stage.desk.registration(&agent(&format!("{code} {message}")), 0);
        let answer = client.relay(&request).await;
        assert_eq!(answer.status, 200, "{message}: {}", answer.text);
        let sent = raw_transactions(&stage.proxy);
        assert!(sent.iter().all(|raw| *raw == sent[0]), "{message}: other bytes were sent");
        if taken {
            assert_eq!(sent.len(), 1, "{message}: sent again");
        }
        executed.push(request);
    }
    stage.audit(&client, &executed.iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn with_one_of_two_endpoints_dead_everything_goes_on() {
    let stage = Stage::set().await;
    let second = Proxy::start(stage.chain.node.url()).await.unwrap();
    let dead = format!("http://127.0.0.1:{}", e2e::process::free_port().unwrap());
    let options =
        stage.options.clone().var("RPC_URL", format!("{dead},{},{}", stage.proxy.url(), second.url()));
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let mut executed = vec![stage.desk.registration(&agent("one"), 0)];
    client.relay(&executed[0]).await.ok();

    // The one that reads stuck to dies too.
    stage.proxy.inject(Rule::any(Fault::Refuse));
    executed.push(stage.desk.registration(&agent("two"), 0));
    client.relay(&executed[1]).await.ok();
    let asked = second.calls("eth_getTransactionReceipt");
    assert!(asked > 0, "reads moved");

    // It comes back, the other one dies.
    stage.proxy.heal();
    second.inject(Rule::any(Fault::Refuse));
    executed.push(stage.desk.registration(&agent("three"), 0));
    client.relay(&executed[2]).await.ok();
    audit_at(&stage, &client, &executed).await;
}

#[tokio::test]
async fn transactions_go_to_every_endpoint_and_reads_stay_with_one() {
    let stage = Stage::set().await;
    let second = Proxy::start(stage.chain.node.url()).await.unwrap();
    let options = stage.options.clone().var("RPC_URL", format!("{},{}", stage.proxy.url(), second.url()));
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let request = stage.desk.registration(&agent("alice"), 0);
    client.relay(&request).await.ok();
    // The first acceptance is enough to go on; the other endpoint gets its bytes all the same.
    eventually("sent to both", PATIENCE, async || {
        ((stage.proxy.calls(SEND), second.calls(SEND)) == (1, 1)).then_some(())
    })
    .await
    .unwrap();
    assert!(stage.proxy.calls("eth_call") > 0);
    assert_eq!(second.calls("eth_call"), 0, "a JSON-RPC error is no reason to move");
    // A refusal by one node does not count as long as another has it.
    second.inject(Rule::on(SEND, Fault::error(-32000, "intrinsic gas too low")));
    let other = stage.desk.registration(&agent("bob"), 0);
    client.relay(&other).await.ok();
    audit_at(&stage, &client, &[request, other]).await;
}

#[tokio::test]
async fn a_stale_node_is_left_for_a_fresh_one() {
    let stage = Stage::set().await;
    let second = Proxy::start(stage.chain.node.url()).await.unwrap();
    let options = stage.options.clone().var("RPC_URL", format!("{},{}", stage.proxy.url(), second.url()));
    let mut daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let first = stage.desk.registration(&agent("alice"), 0);
    client.relay(&first).await.ok();

    // From now on the node that is read from knows no new block.
    let head = stage.chain.transactions_of(stage.options.relayer()).await.unwrap()[&0].block;
    stage.proxy.inject(Rule::any(Fault::Stale { head }));
    stage.chain.node.mine(5).await.unwrap();
    let second_request = stage.desk.registration(&agent("bob"), 0);
    relayed_in_time(&client, &second_request).await;
    daemon.logged(&["reads moved"], PATIENCE).await.unwrap();
    audit_at(&stage, &client, &[first.clone(), second_request.clone()]).await;

    // A daemon that meets the stale node first leaves it too.
    let successor = daemon;
    successor.kill();
    let mut daemon = Daemon::start(&options).await.unwrap();
    daemon.logged(&["reads moved"], PATIENCE).await.unwrap();
    let client = daemon.client();
    let third = stage.desk.registration(&agent("carol"), 0);
    relayed_in_time(&client, &third).await;
    audit_at(&stage, &client, &[first, second_request, third]).await;
}

/// Two looks at the endpoints may take as long as a client is kept waiting: then it is told the id.
async fn relayed_in_time(client: &e2e::relay::RelayClient, request: &Signed) {
    let answer = client.relay(request).await;
    assert!(matches!(answer.status, 200 | 202), "{}", answer.text);
}

async fn audit_at(stage: &Stage, client: &e2e::relay::RelayClient, executed: &[Signed]) {
    eventually("settled", PATIENCE, async || (client.depth().await == 0).then_some(())).await.unwrap();
    stage.audit(client, &executed.iter().collect::<Vec<_>>()).await;
}
