//! Who is sponsored: the policy file, its reload, and the decision webhook.
//!
//! 1. Every refusal has its status and code, and what a key sponsors goes through.
//! 2. A key's gas of the day holds over a restart, and is fresh after a day.
//! 3. A reload under load loses nothing; a bad file changes nothing, and the log names field and rule.
//! 4. A decision webhook is asked with a signed question, and obeyed; if it is slow, down, wrongly signed, or
//!    answers for another relay, the request is refused.
//! 5. A bad file stops `serve` and `check`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use alloy::primitives::Address;
use e2e::daemon::{Daemon, DaemonOptions, api_key, check};
use e2e::hooks::{Delivery, Receiver, Reply};
use e2e::process::eventually;
use e2e::relay::{RelayClient, attest};
use futures_util::future::join_all;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::audit::{PATIENCE, Stage, agent};

pub(crate) const SECRET: &str = "a secret that both sides know";

/// A policy file beside the journal.
pub(crate) struct PolicyFile(PathBuf);

impl PolicyFile {
    pub(crate) fn of(options: &DaemonOptions) -> Self {
        Self(options.data_dir().join("policy.toml"))
    }

    /// Replaces the file at once, as an editor does.
    pub(crate) fn write(&self, text: &str) {
        let draft = self.0.with_extension("draft");
        fs::write(&draft, text).and_then(|()| fs::rename(&draft, &self.0)).unwrap();
    }

    pub(crate) fn set(&self, options: DaemonOptions) -> DaemonOptions {
        options.var("POLICY_FILE", self.0.display())
    }

    /// A private file with the secret.
    pub(crate) fn secret(&self) -> String {
        let path = self.0.with_file_name("secret");
        fs::write(&path, SECRET).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    }
}

pub(crate) fn key(name: &str, hash: &str, signers: &[Address], rest: &str) -> String {
    let signers: Value = if signers.is_empty() { json!("any") } else { json!(signers) };
    format!("[[key]]\nname = \"{name}\"\nhash = \"{hash}\"\nsigners = {signers}\n{rest}\n")
}

pub(crate) fn with_key(client: &RelayClient, key: &str) -> RelayClient {
    client.with("authorization", &format!("Bearer {key}"))
}

#[tokio::test]
async fn every_refusal_has_its_code_and_what_a_key_sponsors_goes_through() {
    let stage = Stage::set().await;
    let policy = PolicyFile::of(&stage.options);
    // With a key the limits per address and per signer do not count.
    let options =
        policy.set(stage.options.clone().var("RATE_LIMIT_PER_IP", 2).var("RATE_LIMIT_PER_SIGNER", 1));
    let (alice, bob, mallory) = (agent("alice"), agent("bob"), agent("mallory"));
    let (acme, acme_hash) = api_key(&stage.options).await.unwrap();
    let (open, open_hash) = api_key(&stage.options).await.unwrap();
    assert!(acme != open && acme.starts_with("rk_") && acme_hash.starts_with("sha256:"));
    let few = "functions = [\"registerAgent\"]\nrequests-per-hour = 4";
    let keys = [key("acme", &acme_hash, &[alice.address()], few), key("open", &open_hash, &[], "")].concat();
    policy.write(&format!("without-key = \"off\"\ndeny = [\"{}\"]\n{keys}", mallory.address()));
    let mut daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let (with_acme, with_open) = (with_key(&client, &acme), with_key(&client, &open));
    let first = stage.desk.registration(&alice, 0);

    let required = "API key required: send it as Authorization: Bearer";
    client.relay(&first).await.refused(401, "API_KEY_REQUIRED", required);
    let unknown = with_key(&client, "rk_guess").relay(&first).await;
    unknown.refused(401, "API_KEY_INVALID", "API key is not known");
    // Guesses count for their address.
    let limited = with_key(&client, "rk_guess").relay(&first).await;
    limited.refused(429, "IP_RATE_LIMITED", "IP rate limit exceeded (2/hour)");

    with_acme.relay(&first).await.ok();
    let other_signer = with_acme.relay(&stage.desk.registration(&bob, 0)).await;
    other_signer.refused(403, "SIGNER_NOT_SPONSORED", "This signer is not sponsored by this API key");
    let other_function = with_acme.relay(&stage.desk.request(&alice, 1, &attest(1))).await;
    other_function.refused(403, "FUNCTION_NOT_SPONSORED", "This function is not sponsored by this API key");
    let denied = with_open.relay(&stage.desk.registration(&mallory, 0)).await;
    denied.refused(403, "SIGNER_DENIED", "This signer is not sponsored by this relayer");

    // The fourth and the fifth of this key in an hour.
    with_acme.relay(&first).await.refused(401, "ALREADY_RELAYED", "Invalid signature or nonce mismatch");
    let fifth = with_acme.relay(&first).await;
    fifth.refused(429, "KEY_RATE_LIMITED", "API key's rate limit exceeded (4/hour)");
    assert!((1..=901).contains(&fifth.number("retry-after")), "{:?}", fifth.headers);

    let others = [stage.desk.registration(&bob, 0), stage.desk.request(&alice, 1, &attest(1))];
    for request in &others {
        with_open.relay(request).await.ok();
    }
    let executed = [&first, &others[0], &others[1]];

    // Requests without a key again, within the limits of addresses.
    policy.write(&format!("deny = [\"{}\"]\n{keys}", mallory.address()));
    daemon.process().signal(Signal::HUP).unwrap();
    daemon.logged(&["policy reloaded", "2 keys, 1 denied"], PATIENCE).await.unwrap();
    let from_elsewhere = client.from_address([127, 0, 0, 2]);
    let carol = stage.desk.registration(&agent("carol"), 0);
    from_elsewhere.relay(&carol).await.ok();
    stage.audit(&client, &[executed.as_slice(), &[&carol]].concat()).await;
    let log = daemon.kill();
    assert!(!log.contains(&acme) && !log.contains(&open), "a key is in the log");
}

#[tokio::test]
async fn a_keys_gas_of_the_day_holds_over_a_restart_and_is_fresh_after_a_day() {
    let stage = Stage::set().await;
    let policy = PolicyFile::of(&stage.options);
    let options = policy.set(stage.options.clone());
    let (acme, hash) = api_key(&options).await.unwrap();
    policy.write(&key("acme", &hash, &[], "gas-per-day = 900000"));
    let daemon = Daemon::start(&options).await.unwrap();
    let client = with_key(&daemon.client(), &acme);
    let (alice, bob) = (agent("alice"), agent("bob"));
    let first = stage.desk.registration(&alice, 0);
    let used = client.relay(&first).await.ok()["gasUsed"].as_u64().unwrap();
    assert!((150_000..900_000).contains(&used), "{used}");
    let second = stage.desk.registration(&bob, 0);
    let exhausted = client.relay(&second).await;
    exhausted.refused(429, "KEY_GAS_EXHAUSTED", "API key's gas of the day is exhausted");
    let wait = exhausted.number("retry-after");
    assert!((86_000..=86_400).contains(&wait), "{wait}");
    assert_eq!(client.state(&second).await.status, 404, "nothing was stored");

    daemon.kill();
    let daemon = Daemon::start(&options).await.unwrap();
    let client = with_key(&daemon.client(), &acme);
    client.relay(&second).await.refused(429, "KEY_GAS_EXHAUSTED", "API key's gas of the day is exhausted");
    daemon.client().relay(&second).await.ok();
    options.move_clock(86_401);
    let third = stage.desk.registration(&agent("carol"), 0);
    client.relay(&third).await.ok();
}

#[tokio::test]
async fn a_reload_under_load_loses_nothing_and_a_bad_file_changes_nothing() {
    let stage = Stage::set().await;
    let policy = PolicyFile::of(&stage.options);
    let options = policy.set(stage.options.clone());
    let (acme, hash) = api_key(&options).await.unwrap();
    let good = |rest: &str| format!("without-key = \"off\"\n{}", key("acme", &hash, &[], rest));
    policy.write(&good(""));
    let mut daemon = Daemon::start(&options).await.unwrap();
    let client = with_key(&daemon.client(), &acme);
    let requests: Vec<_> =
        (0..60).map(|index| stage.desk.registration(&agent(&format!("crowd {index}")), 0)).collect();
    let crowd = tokio::spawn({
        let (client, requests) = (client.clone(), requests.clone());
        async move {
            let waves = requests.chunks(6).map(<[_]>::to_vec);
            let mut answers = Vec::new();
            for wave in waves {
                answers.extend(join_all(wave.iter().map(|request| client.relay(request))).await);
            }
            answers
        }
    });
    let mut round = 0;
    while !crowd.is_finished() {
        round += 1;
        match round % 3 {
            0 => policy.write(&good("gas-per-day = -1")),
            1 => policy.write(&good("requests-per-hour = 100000")),
            _ => policy.write(&good("gas-per-day = 1000000000")),
        }
        daemon.process().signal(Signal::HUP).unwrap();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for answer in crowd.await.unwrap() {
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    policy.write("without-key = \"perhaps\"\n");
    daemon.process().signal(Signal::HUP).unwrap();
    daemon.logged(&["policy not reloaded", "field=without-key", "rule=must be"], PATIENCE).await.unwrap();
    daemon.logged(&["policy not reloaded", "gas-per-day"], PATIENCE).await.unwrap();
    assert!(daemon.log().contains("policy reloaded"), "good files were read in between");
    // The policy from before holds.
    let late = stage.desk.registration(&agent("late"), 0);
    daemon.client().relay(&late).await.refused(
        401,
        "API_KEY_REQUIRED",
        "API key required: send it as Authorization: Bearer",
    );
    client.relay(&late).await.ok();
    let all: Vec<_> = requests.iter().chain([&late]).collect();
    stage.audit(&client, &all).await;
}

/// A daemon with a decision webhook at `url` and a key in its policy.
async fn with_decision(stage: &Stage, url: &str) -> (Daemon, RelayClient) {
    let policy = PolicyFile::of(&stage.options);
    let (acme, hash) = api_key(&stage.options).await.unwrap();
    let secret = policy.secret();
    policy.write(&format!(
        "{}\n[decision]\nurl = \"{url}\"\nsecret-file = \"{secret}\"\n",
        key("acme", &hash, &[], "")
    ));
    let daemon = Daemon::start(&policy.set(stage.options.clone())).await.unwrap();
    let client = with_key(&daemon.client(), &acme);
    (daemon, client)
}

fn allow(to: &Delivery) -> Value {
    json!({ "id": to.json()["id"], "decision": "allow" })
}

#[tokio::test]
async fn the_decision_webhook_is_asked_with_a_signed_question_and_obeyed() {
    let stage = Stage::set().await;
    let hook = Receiver::start().await.unwrap();
    let (daemon, client) = with_decision(&stage, hook.url()).await;
    let alice = agent("alice");
    let first = stage.desk.registration(&alice, 0);

    hook.answer_by(|to| {
        let deny = json!({ "id": to.json()["id"], "decision": "deny", "message": "Your trial\nhas ended" });
        Reply::signed(SECRET, to, &deny)
    });
    client.relay(&first).await.refused(403, "SPONSORSHIP_DENIED", "Your trialhas ended");
    hook.answer_by(|to| {
        Reply::signed(SECRET, to, &json!({ "id": to.json()["id"], "decision": "allow", "maxGas": 499_999 }))
    });
    let less = client.relay(&first).await;
    less.refused(403, "GAS_NOT_SPONSORED", "request.gas is above what is sponsored: 499999");
    hook.answer_by(|to| {
        Reply::signed(SECRET, to, &json!({ "id": to.json()["id"], "decision": "allow", "maxGas": 500_000 }))
    });
    client.relay(&first).await.ok();
    // A request without a key is asked about too.
    hook.answer_by(|to| Reply::signed(SECRET, to, &allow(to)));
    let second = stage.desk.request(&alice, 1, &attest(1));
    daemon.client().relay(&second).await.ok();

    let asked = hook.deliveries();
    assert_eq!(asked.len(), 4, "once for each request");
    assert!(asked.iter().all(|question| question.is_signed_with(SECRET)), "{asked:?}");
    let request = &first.signed.request;
    let expected = json!({
        "id": first.id, "key": "acme", "signer": alice.address().to_string(), "function": "registerAgent",
        "gas": "500000", "nonce": "0", "deadline": 0, "data": request.data,
    });
    assert_eq!(asked[0].json(), expected);
    assert_eq!(
        (&asked[3].json()["key"], &asked[3].json()["function"]),
        (&Value::Null, &json!("attestCompliance"))
    );
    stage.audit(&client, &[&first, &second]).await;
}

#[tokio::test]
async fn a_decision_webhook_that_is_slow_down_or_wrongly_signed_refuses() {
    let stage = Stage::set().await;
    let hook = Receiver::start().await.unwrap();
    let (mut daemon, client) = with_decision(&stage, hook.url()).await;
    let alice = agent("alice");
    let request = stage.desk.registration(&alice, 0);
    let refused = async |what: &str| {
        let started = Instant::now();
        let answer = client.relay(&request).await;
        let message = "Whether this request is sponsored could not be decided. Please try again shortly.";
        answer.refused(403, "SPONSORSHIP_UNDECIDED", message);
        assert!(started.elapsed() < Duration::from_millis(1_800), "{what}: {:?}", started.elapsed());
        assert_eq!(client.state(&request).await.status, 404, "{what}: nothing was stored");
    };
    hook.answer_by(|to| Reply::signed(SECRET, to, &allow(to)).after(Duration::from_secs(5)));
    refused("slow").await;
    daemon.logged(&["no decision by the webhook", "within a second"], PATIENCE).await.unwrap();
    hook.answer_by(|to| Reply::signed("another secret of this kind", to, &allow(to)));
    refused("another secret").await;
    daemon.logged(&["no decision by the webhook", "not signed"], PATIENCE).await.unwrap();
    hook.answer_by(|to| Reply { signature: None, ..Reply::signed(SECRET, to, &allow(to)) });
    refused("not signed").await;
    hook.answer_by(|to| {
        let other = json!({ "id": format!("{:#066x}", 7), "decision": "allow" });
        Reply::signed(SECRET, to, &other)
    });
    refused("about another relay").await;
    hook.answer_by(|to| Reply { status: 500, ..Reply::signed(SECRET, to, &allow(to)) });
    refused("a failure").await;
    hook.answer_by(|to| Reply::signed(SECRET, to, &json!({ "id": to.json()["id"], "decision": "perhaps" })));
    refused("no decision").await;
    // The question itself, sent back with its signature.
    hook.answer_by(|to| Reply {
        body: to.body.clone(),
        signature: to.headers.get("x-relayer-signature").cloned(),
        ..Reply::status(200)
    });
    refused("an echo").await;
    let (url, http) = (hook.url().to_owned(), e2e::http::client(Duration::from_secs(1)));
    drop(hook);
    eventually("down", PATIENCE, async || http.get(&url).send().await.is_err().then_some(())).await.unwrap();
    refused("down").await;
    daemon.logged(&["no decision by the webhook", "cannot be reached"], PATIENCE).await.unwrap();
    assert_eq!(stage.chain.executions().await.unwrap(), [], "nothing was sent");
    let metrics = client.get("/metrics").await.text;
    assert!(metrics.contains("relayer_decisions_total{result=\"undecided\"} 8"), "{metrics}");
}

#[tokio::test]
async fn a_bad_policy_file_stops_serve_and_check() {
    let stage = Stage::set().await;
    let policy = PolicyFile::of(&stage.options);
    let options = policy.set(stage.options.clone());
    let missing = Daemon::refuse(&options).await.unwrap();
    assert!(missing.contains("✗ policy") && missing.contains("cannot be read"), "{missing}");
    policy.write("deny = [\"0x12\"]");
    for printed in [Daemon::refuse(&options).await.unwrap(), check(&options).await.unwrap().1] {
        assert!(printed.contains("✗ policy       deny: \"0x12\" is no address"), "{printed}");
    }
    policy.write("");
    let (good, printed) = check(&options).await.unwrap();
    assert!(good && printed.contains("✓ policy       0 keys, 0 denied"), "{printed}");
}
