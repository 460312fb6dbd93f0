//! The harness itself, on a real node: the base of the other tests.
//!
//! 1. Each fault has its documented effect on client and node. A delayed answer is counted with its delay.
//! 2. Transactions that arrive at once, in any order, are all mined.

use std::time::{Duration, Instant};

use alloy::providers::Provider as _;
use e2e::anvil::{Anvil, AnvilOptions, dev_account};
use e2e::fault::{FaultRule, NodeFault};
use e2e::http;
use e2e::process::wait_until;
use e2e::proxy::Proxy;
use futures_util::future::join_all;
use serde_json::{Value, json};

/// Longer than any answer takes on a busy machine.
const LONG: Duration = Duration::from_secs(60);

/// Posts a JSON-RPC body; returns `None` where the connection ends without an answer, or none comes in time.
async fn post(proxy: &Proxy, body: &Value, within: Duration) -> Option<(u16, String)> {
    let response = http::client(within).post(proxy.url()).json(body).send().await.ok()?;
    Some((response.status().as_u16(), response.text().await.ok()?))
}

fn call(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

/// Sends a transfer; the sender's nonce counts those that the node accepted.
async fn transfer(proxy: &Proxy, within: Duration) -> Option<(u16, String)> {
    let params = json!([{"from": dev_account(5), "to": dev_account(6), "value": "0x1"}]);
    post(proxy, &call(1, "eth_sendTransaction", params), within).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_does_what_it_says() {
    let node = Anvil::start(AnvilOptions::default()).await.unwrap();
    let proxy = Proxy::start(node.url()).await.unwrap();
    // The fault; whether the node carries out the call; the status and a word of the client's answer.
    for (fault, done, answer) in [
        (NodeFault::status(429), false, Some((429, "http 429"))),
        (NodeFault::Garbage("<html>".into()), false, Some((200, "<html>"))),
        (NodeFault::Refuse, false, None),
        (NodeFault::Hang, false, None),
        (NodeFault::LoseAnswer, true, None),
        (NodeFault::HangAfterwards, true, None),
        (NodeFault::Delay(Duration::from_millis(300)), true, Some((200, "result"))),
        (NodeFault::error(-32000, "nonce too low"), false, Some((200, "nonce too low"))),
        (NodeFault::Result(json!("0xfeed")), false, Some((200, "0xfeed"))),
    ] {
        let sent = async || node.provider.get_transaction_count(dev_account(5)).pending().await.unwrap();
        let before = sent().await;
        let (started, slow) = (Instant::now(), matches!(fault, NodeFault::Delay(_)));
        proxy.inject(FaultRule::on("eth_sendTransaction", fault.clone()));
        let within = if answer.is_some() { LONG } else { Duration::from_secs(1) };
        let got = transfer(&proxy, within).await;
        match (answer, &got) {
            (None, None) => {}
            (Some((status, word)), Some((code, text))) => {
                assert!(status == *code && text.contains(word), "{fault:?}: {got:?}");
            }
            _ => panic!("{fault:?}: {got:?}"),
        }
        assert_eq!(sent().await - before, u64::from(done), "{fault:?}");
        assert!(!slow || started.elapsed() >= Duration::from_millis(300));
        let posts = proxy.reset();
        let took = posts[0].answer.get().map(|answer| answer.at - posts[0].at);
        assert!(!slow || took >= Some(Duration::from_millis(300)), "{took:?}");
        proxy.heal();
    }
    assert!(transfer(&proxy, LONG).await.unwrap().1.contains("result"), "healed");
}

/// Anvil by itself leaves some of them in its pool for ever.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_that_come_at_once_are_all_mined() {
    let node = Anvil::start(AnvilOptions::default()).await.unwrap();
    let (sender, url) = (dev_account(0), node.url());
    for round in 0..10 {
        let sends = (0..20).map(|index| async move {
            let nonce = format!("{:#x}", round * 20 + index);
            let request =
                json!([{"from": sender, "to": sender, "value": "0x1", "nonce": nonce, "gas": "0x5208"}]);
            let call = call(1, "eth_sendTransaction", request);
            http::client(LONG).post(url).json(&call).send().await.unwrap();
        });
        join_all(sends).await;
        let mined = async || node.provider.get_transaction_count(sender).await.unwrap();
        wait_until("all mined", LONG, async || mined().await == (round + 1) * 20).await;
    }
}
