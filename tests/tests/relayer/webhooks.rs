//! Outcomes pushed to the webhook of an API key. The events, their schedule and their end are in
//! `relayer-daemon/tests/store/sponsorship.rs` and `src/webhooks`.

use e2e::daemon::write_private;
use e2e::hooks::Delivery;
use e2e::signers;

use crate::policy::{SECRET, key, with_policy, write};
use crate::prelude::*;

/// Makes a fixture with a key for each receiver of the key's outcomes; also returns the keys.
pub(crate) async fn with_receivers(receivers: &[&Receiver]) -> (RelayerFixture, Vec<String>) {
    let (stage, secret) = with_policy().await;
    let (mut keys, mut policy) = (Vec::new(), String::new());
    for (index, receiver) in receivers.iter().enumerate() {
        let webhook = format!("[key.webhook]\nurl = \"{}/\"\nsecret-file = \"{secret}\"\n", receiver.url());
        let (key, section) = key(&stage, &format!("key-{index}"), &[], &webhook).await;
        keys.push(key);
        policy.push_str(&section);
    }
    write(&stage.options, &policy);
    (stage, keys)
}

fn types(hook: &Receiver) -> Vec<String> {
    hook.deliveries().iter().map(|delivery| delivery.json()["type"].as_str().unwrap().to_owned()).collect()
}

async fn until_posted(hook: &Receiver, expected: &[&str]) {
    wait_until("posted", PATIENCE, async || types(hook).len() >= expected.len()).await;
    assert_eq!(types(hook), expected);
}

#[tokio::test]
async fn each_change_of_state_is_posted_in_order_and_signed_until_it_is_final() {
    let [hook, slow] = [Receiver::start().await.unwrap(), Receiver::start().await.unwrap()];
    slow.answer_by(|_| HookReply { after: PATIENCE * 2, ..HookReply::status(200) });
    let (stage, keys) = with_receivers(&[&slow, &hook]).await;
    let (_daemon, without_key) = stage.daemon().await;
    stage.register(&without_key.with_key(&keys[0]), "slow").await;
    stage.register(&without_key, "without a key").await;
    wait_until("posted", PATIENCE, async || types(&slow) == ["relay.pending"]).await;
    let client = without_key.with_key(&keys[1]);
    let request = stage.registration("alice");
    let executed = stage.relay(&client, &request).await;
    until_posted(&hook, &["relay.pending", "relay.executed"]).await;
    assert_eq!(types(&slow), ["relay.pending"], "its first event has no answer yet");
    stage.chain.node.mine(100).await.unwrap();
    until_posted(&hook, &["relay.pending", "relay.executed", "relay.safe", "relay.finalized"]).await;

    let deliveries = hook.deliveries();
    assert!(deliveries.iter().all(|delivery| delivery.is_signed_with(SECRET)));
    let bodies: Vec<Value> = deliveries.iter().map(|delivery| delivery.json()).collect();
    assert_eq!(bodies[0]["relay"], json!({ "id": request.id, "state": "pending" }));
    for (body, finality) in bodies[1..].iter().zip(["latest", "safe", "finalized"]) {
        let mut expected = executed.clone();
        expected.as_object_mut().unwrap().remove("success");
        expected["state"] = "executed".into();
        expected["finality"] = finality.into();
        assert_eq!(body["relay"], expected);
    }
    for (delivery, body) in deliveries.iter().zip(&bodies) {
        assert_eq!(delivery.header("x-relayer-event"), body["id"].as_str().unwrap());
        assert!(body["createdAt"].as_str().unwrap().starts_with("20"), "{body}");
    }
    let ids: BTreeSet<&str> = bodies.iter().map(|body| body["id"].as_str().unwrap()).collect();
    assert_eq!(ids.len(), 4, "each event has an id of its own");
    stage.audit(&client).await;
}

#[tokio::test]
async fn libraries_of_standard_webhooks_verify_before_during_and_after_an_exchange_of_secrets() {
    let [old, new] = ["whsec_b2xkIHNlY3JldCBvZiAyNCBieXRlcyEh", "whsec_bmV3IHNlY3JldCBvZiAyNCBieXRlcyEh"];
    let hook = Receiver::start().await.unwrap();
    let (stage, _) = with_policy().await;
    let file = |name: &str, secret: &str| {
        let path = stage.options.data_dir().join(name);
        write_private(&path, secret);
        path.display().to_string()
    };
    let (old_file, new_file) = (file("old", old), file("new", new));
    let (key, section) = key(&stage, "acme", &[], "").await;
    let webhook = |secrets: &str| format!("{section}[key.webhook]\nurl = \"{}/\"\n{secrets}\n", hook.url());
    write(&stage.options, &webhook(&format!("secret-file = \"{old_file}\"")));
    let (mut daemon, client) = stage.daemon().await;
    let client = client.with_key(&key);
    for (reloads, name, secrets, expected) in [
        (0, "alice", format!("secret-file = \"{old_file}\""), [true, false]),
        (1, "bob", format!("secret-files = [\"{old_file}\", \"{new_file}\"]"), [true, true]),
        (2, "carol", format!("secret-file = \"{new_file}\""), [false, true]),
    ] {
        if reloads > 0 {
            write(&stage.options, &webhook(&secrets));
            daemon.process().signal(Signal::HUP).unwrap();
            let is_reloaded = async || daemon.log().matches("policy reloaded").count() == reloads;
            wait_until("reloaded", PATIENCE, is_reloaded).await;
        }
        stage.register(&client, name).await;
        wait_until("posted", PATIENCE, async || types(&hook) == ["relay.pending", "relay.executed"]).await;
        let deliveries = hook.take();
        let by_crate = |delivery: &Delivery| {
            [old, new].map(|secret| {
                let webhook = standardwebhooks::Webhook::new(secret).unwrap();
                webhook.verify(delivery.body.as_bytes(), &delivery.headers).is_ok()
            })
        };
        assert!(deliveries.iter().all(|delivery| by_crate(delivery) == expected), "{name}: {deliveries:?}");
        let as_sent = |delivery: &Delivery| {
            let headers = ["webhook-id", "webhook-timestamp", "webhook-signature"];
            let headers = headers.map(|name| (name.to_owned(), Value::from(delivery.header(name))));
            json!({ "body": delivery.body, "headers": Value::Object(headers.into_iter().collect()) })
        };
        let sent = Value::from_iter(deliveries.iter().map(as_sent)).to_string();
        let by_npm = signers::node("verify-webhooks.mjs", &[&sent, old, new]).await.unwrap();
        assert_eq!(by_npm, json!([expected, expected]), "{name}");
    }
}

#[tokio::test]
async fn a_failed_event_is_sent_again_through_a_kill_given_up_after_a_day_and_replayed() {
    let hook = Receiver::start().await.unwrap();
    hook.answer_by(|_| HookReply::status(503));
    let (stage, keys) = with_receivers(&[&hook]).await;
    let (mut daemon, client) = stage.daemon().await;
    let request = stage.registration("alice");
    stage.relay(&client.with_key(&keys[0]), &request).await;
    daemon.logged(&["event not delivered", "status 503", "given_up=false"]).await.unwrap();
    until_posted(&hook, &["relay.pending", "relay.pending"]).await;
    let attempts = hook.deliveries();
    assert_eq!(attempts[0].body, attempts[1].body, "the same event");
    assert!(attempts[1].at - attempts[0].at >= Duration::from_secs(4), "with a pause");
    let log = daemon.kill();
    assert!(!log.contains(hook.url()), "the log names the webhook's address");

    let (daemon, client) = stage.daemon().await;
    stage.options.move_clock(86_500);
    // The first event is given up, and then the second, which waited for it and is as old.
    let given_up = async || daemon.log().matches("given_up=true").count() == 2;
    wait_until("given up", PATIENCE, given_up).await;
    assert_eq!(client.metric("relayer_webhook_attempts_total{result=\"given_up\"}").await, 2.0);
    hook.answer_by(|_| HookReply::status(200));
    let before = hook.deliveries().len();
    let id = request.id.to_string();
    let chosen = ["--api-key", "key-0", "--relay", &id, "--since", "2026-01-01", "--given-up"];
    let printed = stage.options.replay(&chosen).await.unwrap();
    assert!(printed.contains("2 events are delivered once more"), "{printed}");
    wait_until("sent once more", PATIENCE, async || types(&hook).len() >= before + 2).await;
    assert_eq!(types(&hook)[before..], ["relay.pending", "relay.executed"]);
    assert_eq!(hook.deliveries()[before].body, attempts[0].body, "with the same id");
    let printed = stage.options.replay(&chosen).await.unwrap();
    assert!(printed.contains("0 events"), "{printed}");
}
