//! The harness itself, on a real node: what the other tests stand on.
//!
//! 1. The showcase has one of everything it promises, and ends behind the wall clock.
//! 2. The proxy counts posts and calls, batches included.
//! 3. Each fault does to the client, and to the node, what it says.
//! 4. A rule strikes when it should: after so many calls, so often, for calls that contain a text.
//! 5. A stopped node comes back on its port with its state.
//! 6. Two chains at once do not meet.
//! 7. The states that a node keeps on disk are bounded, and gone with it.
//! 8. Transactions that come at once, in any order, are all mined.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use alloy::primitives::{Address, U256};
use alloy::providers::Provider as _;
use e2e::anvil::{Anvil, AnvilOptions, dev_account, wall_clock};
use e2e::chain::Chain;
use e2e::documents::status;
use e2e::fault::{Fault, Rule};
use e2e::http;
use e2e::oracle::Oracle;
use e2e::process::{eventually, wait_until};
use e2e::proxy::Proxy;
use e2e::seed;
use e2e::story::{BUSY, BUSY_CHILDREN, DAY};
use futures_util::future::join_all;
use serde_json::{Value, json};

#[tokio::test(flavor = "multi_thread")]
async fn the_showcase_has_one_of_everything() {
    let (chain, showcase) = seed::showcase_chain().await.unwrap();
    let agents = Oracle::new(chain.node.url(), chain.contracts.registry).unwrap().all().await.unwrap();
    assert_eq!(agents.len() as u64, showcase.total);
    let count = agents.len() - BUSY_CHILDREN;
    assert!((20..=30).contains(&count), "about 25, and the fleet: {count}");

    let statuses: BTreeSet<&str> = agents.iter().map(|agent| status(&agent.record)).collect();
    assert_eq!(statuses.len(), 4, "{statuses:?}");
    let ages: Vec<u64> =
        agents.iter().map(|agent| wall_clock() - agent.record.number("lastAttestation")).collect();
    assert!(ages.iter().any(|age| *age < DAY) && ages.iter().any(|age| *age > 7 * DAY), "{ages:?}");
    assert_eq!(agents.iter().map(|agent| agent.record.number("generation")).max(), Some(3));
    assert!(agents.iter().any(|agent| agent.children.len() > 50));
    let currencies: BTreeSet<String> =
        agents.iter().flat_map(|agent| &agent.revenue).map(|report| report.text("currency")).collect();
    assert!(currencies.len() >= 3, "{currencies:?}");
    assert!(agents.iter().any(|agent| !agent.record.text("operationalScope").is_ascii()));
    let record = |name: &str| &agents[usize::try_from(showcase.id(name)).unwrap() - 1].record;
    assert_eq!(record("heir").address("agentWallet"), record("lost-key").address("agentWallet"));
    assert_eq!(status(record("lost-key")), "Revoked");
    assert_eq!(agents[usize::try_from(showcase.id(BUSY)).unwrap() - 1].children.len(), BUSY_CHILDREN + 1);
    assert!(chain.node.time().await.unwrap() <= wall_clock(), "the chain is not ahead of its readers");
}

/// Posts a JSON-RPC body; `None` when the connection ends without an answer, or none comes within a second.
async fn post(proxy: &Proxy, body: &Value) -> Option<(u16, String)> {
    let response = http::client(Duration::from_secs(1)).post(proxy.url()).json(body).send().await.ok()?;
    Some((response.status().as_u16(), response.text().await.ok()?))
}

fn call(id: u64, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

async fn proxied() -> (Anvil, Proxy) {
    let node = Anvil::start(AnvilOptions::default()).await.unwrap();
    let proxy = Proxy::start(node.url()).await.unwrap();
    (node, proxy)
}

async fn ask(proxy: &Proxy, body: &Value) -> Value {
    serde_json::from_str(&post(proxy, body).await.unwrap().1).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_proxy_counts_posts_and_calls() {
    let (_node, proxy) = proxied().await;
    let number = call(1, "eth_blockNumber", json!([]));
    assert_eq!(ask(&proxy, &number).await["result"], "0x0");
    let batch = json!([call(7, "eth_chainId", json!([])), number, call(9, "eth_chainId", json!([]))]);
    let answers = ask(&proxy, &batch).await;
    assert_eq!(answers.as_array().unwrap().len(), 3);
    assert_eq!((proxy.posts(), proxy.served()), (2, 2));
    assert_eq!(["eth_chainId", "eth_blockNumber", "eth_call"].map(|method| proxy.calls(method)), [2, 2, 0]);
    let log = proxy.reset();
    assert_eq!(log[1].body, batch);
    assert_eq!((proxy.posts(), proxy.served()), (0, 2));
}

/// A transfer; the sender's nonce counts those that the node took.
async fn transfer(proxy: &Proxy) -> Option<(u16, String)> {
    let params = json!([{"from": dev_account(5), "to": dev_account(6), "value": "0x1"}]);
    post(proxy, &call(1, "eth_sendTransaction", params)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_fault_does_what_it_says() {
    let (node, proxy) = proxied().await;
    let known = "already known";
    // The fault; whether the node does what it was asked; the client's answer: status, and a word of it.
    for (fault, done, answer) in [
        (Fault::status(429), false, Some((429, "http 429"))),
        (Fault::Garbage("<html>".into()), false, Some((200, "<html>"))),
        (Fault::Refuse, false, None),
        (Fault::Hang, false, None),
        (Fault::LoseAnswer, true, None),
        (Fault::HangAfterwards, true, None),
        (Fault::Delay(Duration::from_millis(300)), true, Some((200, "result"))),
        (Fault::error(-32000, "nonce too low"), false, Some((200, "nonce too low"))),
        (Fault::ErrorAfterwards { code: -32000, message: known.into() }, true, Some((200, known))),
        (Fault::Result(json!("0xfeed")), false, Some((200, "0xfeed"))),
    ] {
        let sent = async || node.provider.get_transaction_count(dev_account(5)).pending().await.unwrap();
        let before = sent().await;
        let (started, slow) = (Instant::now(), matches!(fault, Fault::Delay(_)));
        proxy.inject(Rule::on("eth_sendTransaction", fault.clone()));
        let got = transfer(&proxy).await;
        match (answer, &got) {
            (None, None) => {}
            (Some((status, word)), Some((code, text))) => {
                assert!(status == *code && text.contains(word), "{fault:?}: {got:?}");
            }
            _ => panic!("{fault:?}: {got:?}"),
        }
        assert_eq!(sent().await - before, u64::from(done), "{fault:?}");
        assert!(!slow || started.elapsed() >= Duration::from_millis(300));
        proxy.heal();
    }
    assert!(transfer(&proxy).await.unwrap().1.contains("result"), "healed");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_of_a_batch_can_fail_alone() {
    let (_node, proxy) = proxied().await;
    proxy.inject(Rule::on("eth_chainId", Fault::error(-32005, "limit exceeded")));
    let batch = json!([call(1, "eth_blockNumber", json!([])), call(2, "eth_chainId", json!([]))]);
    let answers = ask(&proxy, &batch).await;
    assert_eq!((&answers[0]["id"], &answers[0]["result"]), (&json!(1), &json!("0x0")));
    assert_eq!((&answers[1]["id"], &answers[1]["error"]["code"]), (&json!(2), &json!(-32005)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_node_knows_nothing_above_its_head() {
    let (node, proxy) = proxied().await;
    node.set_balance(dev_account(9), U256::from(1)).await.unwrap();
    node.mine(1).await.unwrap();
    let seen = node.block(1).await.unwrap();
    let (_, hash) = transfer(&proxy).await.unwrap();
    let hash: Value = serde_json::from_str(&hash).unwrap();
    let mined = async || Some(node.block(2).await.unwrap()).filter(|block| !block.is_null());
    let unseen = eventually("mined", Duration::from_secs(5), mined).await.unwrap();

    proxy.inject(Rule::any(Fault::Stale { head: 1 }));
    assert_eq!(ask(&proxy, &call(1, "eth_blockNumber", json!([]))).await["result"], "0x1");
    let latest = ask(&proxy, &call(1, "eth_getBlockByNumber", json!(["latest", false]))).await;
    assert_eq!(latest["result"]["hash"], seen["hash"]);
    let nonce = ask(&proxy, &call(1, "eth_getTransactionCount", json!([dev_account(5), "latest"]))).await;
    assert_eq!(nonce["result"], "0x0", "before the transfer");
    let receipt = ask(&proxy, &call(1, "eth_getTransactionReceipt", json!([hash["result"]]))).await;
    assert_eq!(receipt["result"], Value::Null);
    let to = json!({"to": Address::ZERO});
    for (block, known) in [
        (json!("0x1"), true),
        (json!("0x2"), false),
        (json!({"blockHash": seen["hash"]}), true),
        (json!({"blockHash": unseen["hash"]}), false),
    ] {
        let answer = ask(&proxy, &call(1, "eth_call", json!([to, block]))).await;
        assert_eq!(answer["error"]["message"] != "header not found", known, "{block}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_strikes_when_it_should() {
    let (_node, proxy) = proxied().await;
    proxy.inject(Rule::on("eth_chainId", Fault::Result(json!("struck"))).after(2).times(2));
    let mut struck = Vec::new();
    for _ in 0..6 {
        struck.push(ask(&proxy, &call(1, "eth_chainId", json!([]))).await["result"] == "struck");
    }
    assert_eq!(struck, [false, false, true, true, false, false]);

    let account = dev_account(4).to_string();
    proxy.inject(Rule::on("eth_getBalance", Fault::Result(json!("struck"))).containing(&account));
    let balance = async |account: Address| {
        ask(&proxy, &call(1, "eth_getBalance", json!([account, "latest"]))).await["result"].clone()
    };
    assert_eq!(balance(dev_account(4)).await, "struck");
    assert_ne!(balance(dev_account(5)).await, "struck");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_node_comes_back_on_its_port_with_its_state() {
    let mut chain = Chain::start(AnvilOptions::default()).await.unwrap();
    seed::many(&chain, 3).await.unwrap();
    let (url, registry) = (chain.node.url().to_owned(), chain.contracts.registry);
    chain.node.stop().await.unwrap();
    assert!(Oracle::new(&url, registry).unwrap().total().await.is_err(), "the node is stopped");
    chain.node.resume().await.unwrap();
    assert_eq!(chain.node.url(), url);
    assert_eq!(Oracle::new(&url, registry).unwrap().total().await.unwrap(), 3);
    seed::many(&chain, 1).await.unwrap();
    assert_eq!(Oracle::new(&url, registry).unwrap().total().await.unwrap(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_chains_at_once_do_not_meet() {
    let (one, two) =
        tokio::join!(Chain::start(AnvilOptions::default()), Chain::start(AnvilOptions::default()));
    let (one, two) = (one.unwrap(), two.unwrap());
    seed::many(&one, 2).await.unwrap();
    let total = async |chain: &Chain| {
        Oracle::new(chain.node.url(), chain.contracts.registry).unwrap().total().await.unwrap()
    };
    assert_eq!((total(&one).await, total(&two).await), (2, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_states_on_disk_are_bounded_and_gone_with_the_node() {
    let mut node = Anvil::start(AnvilOptions::default()).await.unwrap();
    node.mine(1_000).await.unwrap();
    let scratch = node.process().scratch().to_owned();
    let (mut directories, mut states) = (vec![scratch.clone()], 0);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_dir() {
                directories.push(entry.path());
            } else {
                states += 1;
            }
        }
    }
    assert!((100..=220).contains(&states), "{states} files, of which one is the log");
    drop(node);
    assert!(!scratch.exists());
}

/// Anvil alone leaves some of them in its pool for ever.
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
            http::client(Duration::from_secs(60)).post(url).json(&call).send().await.unwrap();
        });
        join_all(sends).await;
        wait_until("all mined", Duration::from_secs(60), async || {
            node.provider.get_transaction_count(sender).await.unwrap() == (round + 1) * 20
        })
        .await;
    }
}
