//! Outcomes pushed to the webhook of an API key.
//!
//! 1. Each change of state is told, signed, in order, until it is final; other keys' relays are not told.
//! 2. A receiver that fails gets the same event again, and the relay's next one only after it; a daemon that
//!    dies loses none.
//! 3. After a day an event is given up; `replay` has it sent once more.
//! 4. A reorganisation after 15 idle minutes is told, and state and `agentId` are corrected.
//! 5. A receiver that hangs delays no other key's events.

use std::time::Duration;

use alloy::sol_types::SolCall as _;
use e2e::daemon::{Daemon, DaemonOptions, api_key, replay};
use e2e::hooks::{Receiver, Reply};
use e2e::process::eventually;
use e2e::relay::register;
use serde_json::{Value, json};

use crate::audit::{PATIENCE, Stage, agent};
use crate::policy::{PolicyFile, SECRET, key, with_key};

/// A policy with a key; this receiver is told of its relays. Returns the options, and the key.
async fn told(stage: &Stage, hook: &Receiver) -> (DaemonOptions, String) {
    let policy = PolicyFile::of(&stage.options);
    let (acme, hash) = api_key(&stage.options).await.unwrap();
    policy.write(&key("acme", &hash, &[], &webhook(&policy, hook)));
    (policy.set(stage.options.clone()), acme)
}

fn webhook(policy: &PolicyFile, hook: &Receiver) -> String {
    format!("[key.webhook]\nurl = \"{}\"\nsecret-file = \"{}\"\n", hook.url(), policy.secret())
}

/// The types of all deliveries, in order.
fn types(hook: &Receiver) -> Vec<String> {
    hook.deliveries().iter().map(|delivery| delivery.json()["type"].as_str().unwrap().to_owned()).collect()
}

async fn until_told(hook: &Receiver, expected: &[&str]) {
    let told =
        eventually("told", PATIENCE, async || (types(hook).len() >= expected.len()).then_some(())).await;
    told.unwrap_or_else(|error| panic!("{error}: {:?}", types(hook)));
    assert_eq!(types(hook), expected);
}

#[tokio::test]
async fn each_change_of_state_is_told_in_order_and_signed_until_it_is_final() {
    let stage = Stage::set().await;
    let hook = Receiver::start().await.unwrap();
    let (options, acme) = told(&stage, &hook).await;
    let daemon = Daemon::start(&options).await.unwrap();
    let client = with_key(&daemon.client(), &acme);
    let request = stage.desk.registration(&agent("alice"), 0);
    let executed = client.relay(&request).await.ok();
    // Without the key: nothing is told of it.
    daemon.client().relay(&stage.desk.registration(&agent("bob"), 0)).await.ok();
    until_told(&hook, &["relay.pending", "relay.executed"]).await;
    stage.chain.node.mine(100).await.unwrap();
    until_told(&hook, &["relay.pending", "relay.executed", "relay.safe", "relay.finalized"]).await;

    let deliveries = hook.deliveries();
    assert!(deliveries.iter().all(|delivery| delivery.is_signed_with(SECRET)));
    let bodies: Vec<Value> = deliveries.iter().map(|delivery| delivery.json()).collect();
    assert_eq!(bodies[0]["relay"], json!({ "id": request.id, "state": "pending" }));
    let told = |finality| {
        json!({
            "id": request.id, "state": "executed", "txHash": executed["txHash"],
            "blockNumber": executed["blockNumber"], "gasUsed": executed["gasUsed"], "finality": finality,
            "agentId": executed["agentId"],
        })
    };
    for (body, finality) in bodies[1..].iter().zip(["latest", "safe", "finalized"]) {
        assert_eq!(body["relay"], told(finality));
    }
    for (delivery, body) in deliveries.iter().zip(&bodies) {
        assert_eq!(delivery.headers["x-relayer-event"], body["id"].as_str().unwrap());
        assert!(body["createdAt"].as_str().unwrap().starts_with("20"), "{body}");
    }
    let mut ids: Vec<&str> = bodies.iter().map(|body| body["id"].as_str().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 4, "each event has an id of its own");
}

#[tokio::test]
async fn a_receiver_that_fails_gets_the_same_event_again_before_the_next_and_a_dead_daemon_loses_none() {
    let stage = Stage::set().await;
    let hook = Receiver::start().await.unwrap();
    hook.answer_by(|_| Reply::status(503));
    let (options, acme) = told(&stage, &hook).await;
    let mut daemon = Daemon::start(&options).await.unwrap();
    let request = stage.desk.registration(&agent("alice"), 0);
    with_key(&daemon.client(), &acme).relay(&request).await.ok();
    daemon.logged(&["event not delivered", "status 503"], PATIENCE).await.unwrap();
    until_told(&hook, &["relay.pending", "relay.pending"]).await;
    let attempts = hook.deliveries();
    assert_eq!(attempts[0].body, attempts[1].body, "the same event");
    assert!(attempts[1].at - attempts[0].at >= Duration::from_secs(4), "with a pause");

    let log = daemon.kill();
    assert!(!log.contains(hook.url()), "the log names the webhook's address");
    let _daemon = Daemon::start(&options).await.unwrap();
    hook.answer_by(|_| Reply::status(204));
    let told = eventually("told", PATIENCE, async || {
        types(&hook).contains(&"relay.executed".to_owned()).then(|| hook.deliveries())
    });
    let told = told.await.unwrap();
    let (last, before) = told.split_last().unwrap();
    assert!(before.iter().all(|delivery| delivery.body == attempts[0].body), "in order: {:?}", types(&hook));
    assert_eq!(last.json()["relay"]["agentId"], 1);
}

#[tokio::test]
async fn after_a_day_an_event_is_given_up_and_replay_has_it_sent_once_more() {
    let stage = Stage::set().await;
    let hook = Receiver::start().await.unwrap();
    hook.answer_by(|_| Reply::status(500));
    let (options, acme) = told(&stage, &hook).await;
    let mut daemon = Daemon::start(&options).await.unwrap();
    let request = stage.desk.registration(&agent("alice"), 0);
    with_key(&daemon.client(), &acme).relay(&request).await.ok();
    daemon.logged(&["event not delivered", "given_up=false"], PATIENCE).await.unwrap();
    options.move_clock(86_500);
    // The first is given up, then the second, which waited for it, is as old.
    eventually("given up", PATIENCE, async || {
        (daemon.log().matches("given_up=true").count() == 2).then_some(())
    })
    .await
    .unwrap();
    let metrics = daemon.client().get("/metrics").await.text;
    assert!(metrics.contains("relayer_webhook_attempts_total{result=\"given_up\"} 2"), "{metrics}");

    hook.answer_by(|_| Reply::status(200));
    let before = hook.deliveries().len();
    let id = request.id.to_string();
    let printed = replay(&options, &["--api-key", "acme", "--relay", &id, "--given-up"]).await.unwrap();
    assert!(printed.contains("2 events are delivered once more"), "{printed}");
    let again = eventually("sent once more", PATIENCE, async || {
        let all = types(&hook);
        (all.len() >= before + 2).then(|| all[before..].to_vec())
    });
    assert_eq!(again.await.unwrap(), ["relay.pending", "relay.executed"]);
    let all = hook.deliveries();
    assert_eq!(all[before].body, all[0].body, "with the same id");
    let none = replay(&options, &["--api-key", "acme", "--given-up"]).await.unwrap();
    assert!(none.contains("0 events"), "{none}");
}

#[tokio::test]
async fn a_reorganisation_after_15_idle_minutes_is_told_and_state_and_agent_are_corrected() {
    let stage = Stage::set().await;
    let hook = Receiver::start().await.unwrap();
    let (options, acme) = told(&stage, &hook).await;
    let mut daemon = Daemon::start(&options).await.unwrap();
    let client = with_key(&daemon.client(), &acme);
    let request = stage.desk.registration(&agent("alice"), 0);
    let executed = client.relay(&request).await.ok();
    assert_eq!(executed["agentId"], 1);
    until_told(&hook, &["relay.pending", "relay.executed"]).await;
    // Two rounds of the watch, which has found the block on the chain and has nothing else to do.
    options.move_clock(15 * 60 + 1);
    let rounds = async || {
        let text = client.get("/metrics").await.text;
        let line = text.lines().find(|line| line.starts_with("relayer_sender_rounds_total")).unwrap();
        line.split(' ').next_back().unwrap().parse::<f64>().unwrap()
    };
    let before = rounds().await;
    eventually("idle", PATIENCE, async || (rounds().await >= before + 2.0).then_some(())).await.unwrap();

    // In place of the block another one, with a registration that takes the agent's id.
    let (other, owner) = (agent("other").address(), stage.chain.owner());
    let rival = json!({
        "from": owner, "to": stage.chain.contracts.registry, "gas": "0x1e8480",
        "input": alloy::hex::encode_prefixed(register(other).abi_encode()),
    });
    let _: Value = stage.chain.node.request("anvil_reorg", json!([1, [[rival, 0]]])).await.unwrap();
    stage.chain.node.mine(2).await.unwrap();
    daemon.logged(&["reorganisation"], PATIENCE).await.unwrap();
    until_told(&hook, &["relay.pending", "relay.executed", "relay.reorganised", "relay.executed"]).await;
    let events = hook.deliveries();
    assert_eq!(events[2].json()["relay"], json!({ "id": request.id, "state": "pending" }));
    let told = events[3].json()["relay"].clone();
    let state = client.state(&request).await.ok();
    assert_eq!((&told["agentId"], &state["agentId"]), (&json!(2), &json!(2)));
    assert_eq!((&told["state"], &state["state"]), (&json!("executed"), &json!("executed")));
    assert_eq!((&told["blockNumber"], &told["txHash"]), (&state["blockNumber"], &state["txHash"]));
    assert!(told["blockNumber"].as_u64() > executed["blockNumber"].as_u64(), "{told}");
}

#[tokio::test]
async fn a_receiver_that_hangs_delays_no_other_keys_events() {
    let stage = Stage::set().await;
    let (slow, quick) = (Receiver::start().await.unwrap(), Receiver::start().await.unwrap());
    slow.answer_by(|_| Reply::status(200).after(Duration::from_secs(60)));
    let policy = PolicyFile::of(&stage.options);
    let mut text = String::new();
    let mut keys = Vec::new();
    for (name, hook) in [("slow", &slow), ("quick", &quick)] {
        let (api_key, hash) = api_key(&stage.options).await.unwrap();
        text.push_str(&key(name, &hash, &[], &webhook(&policy, hook)));
        keys.push(api_key);
    }
    policy.write(&text);
    let daemon = Daemon::start(&policy.set(stage.options.clone())).await.unwrap();
    for (index, name) in ["slow", "quick"].into_iter().enumerate() {
        let client = with_key(&daemon.client(), &keys[index]);
        client.relay(&stage.desk.registration(&agent(name), 0)).await.ok();
    }
    let within = Duration::from_secs(5);
    eventually("told", within, async || (types(&quick).len() == 2).then_some(())).await.unwrap();
    assert_eq!(types(&slow), ["relay.pending"], "its first event has no answer yet");
}
