//! Sponsorship: the policy file, its reload, and the decision webhook.

use e2e::daemon::{replace, write_private};
use e2e::hooks::Delivery;

use crate::prelude::*;

pub(crate) const SECRET: &str = "a secret that both sides know";

pub(crate) fn write(options: &DaemonOptions, text: &str) {
    replace(&options.data_dir().join("policy.toml"), text);
}

/// Makes a fixture with a policy file and a private file with the secret; also returns the latter's path.
pub(crate) async fn with_policy() -> (RelayerFixture, String) {
    let stage = RelayerFixture::set().await;
    let [policy, secret] =
        ["policy.toml", "secret"].map(|name| stage.options.data_dir().join(name).display().to_string());
    write_private(secret.as_ref(), SECRET);
    (stage.var("POLICY_FILE", policy), secret)
}

/// Makes a new API key; returns it with its section of the policy file.
pub(crate) async fn key(
    stage: &RelayerFixture,
    name: &str,
    signers: &[Address],
    rest: &str,
) -> (String, String) {
    let (key, hash) = stage.options.api_key().await.unwrap();
    assert!(key.starts_with("rk_") && hash.starts_with("sha256:"), "{key} {hash}");
    let signers = if signers.is_empty() { json!("any") } else { json!(signers) };
    (key, format!("[[key]]\nname = \"{name}\"\nhash = \"{hash}\"\nsigners = {signers}\n{rest}\n"))
}

#[tokio::test]
async fn every_refusal_has_its_code_and_what_a_key_sponsors_goes_through() {
    let (stage, _) = with_policy().await;
    let missing = RelayerDaemon::refuse(&stage.options).await.unwrap();
    assert!(missing.contains("✗ policy") && missing.contains("cannot be read"), "{missing}");
    write(&stage.options, "deny = [\"0x12\"]");
    for printed in
        [RelayerDaemon::refuse(&stage.options).await.unwrap(), stage.options.check().await.unwrap().1]
    {
        assert!(printed.contains("✗ policy       deny: \"0x12\" is no address"), "{printed}");
    }
    // With a key the limits per address and per signer do not count.
    let stage = stage.var("RATE_LIMIT_PER_IP", 2).var("RATE_LIMIT_PER_SIGNER", 1);
    let (alice, mallory) = (agent("alice"), agent("mallory"));
    let few = "functions = [\"registerAgent\"]\nrequests-per-hour = 4\ngas-per-day = 900000";
    let (acme, acme_section) = key(&stage, "acme", &[alice.address()], few).await;
    let (open, open_section) = key(&stage, "open", &[], "").await;
    let sections = format!("deny = [\"{}\"]\n{acme_section}{open_section}", mallory.address());
    write(&stage.options, &format!("without-key = \"off\"\n{sections}"));
    let (is_good, printed) = stage.options.check().await.unwrap();
    assert!(is_good && printed.contains("✓ policy       2 keys, 1 denied, without a key: off"), "{printed}");
    let (mut daemon, client) = stage.daemon().await;
    let (with_acme, with_open) = (client.with_key(&acme), client.with_key(&open));

    let first = stage.registration("alice");
    let required = "API key required: send it as Authorization: Bearer";
    client.relay(&first).await.refused(401, "API_KEY_REQUIRED", required);
    let guess = client.with_key("rk_guess");
    guess.relay(&first).await.refused(401, "API_KEY_INVALID", "API key is not known");
    // Guessed keys count against the address.
    let limited = "IP rate limit exceeded (2/hour)";
    guess.relay(&first).await.refused(429, "IP_RATE_LIMITED", limited);
    let denied = with_open.relay(&stage.registration("mallory")).await;
    denied.refused(403, "SIGNER_DENIED", "This signer is not sponsored by this relayer");
    stage.relay(&with_acme, &first).await;
    let attestation = stage.desk.request(&alice, 1, &attest(1));
    let (second, bobs) = (stage.desk.registration(&alice, 1), stage.registration("bob"));
    for (request, status, code, message) in [
        (&bobs, 403, "SIGNER_NOT_SPONSORED", "This signer is not sponsored by this API key"),
        (&attestation, 403, "FUNCTION_NOT_SPONSORED", "This function is not sponsored by this API key"),
        (&second, 429, "KEY_GAS_EXHAUSTED", "API key's gas of the day is exhausted"),
        // This is the key's fifth request in an hour.
        (&first, 429, "KEY_RATE_LIMITED", "API key's rate limit exceeded (4/hour)"),
    ] {
        let answer = with_acme.relay(request).await;
        answer.refused(status, code, message);
        assert_eq!(status == 429, !answer.header("retry-after").is_empty());
    }
    with_open.relay(&first).await.refused(401, "ALREADY_RELAYED", MISMATCH);
    stage.relay(&with_open, &attestation).await;
    stage.relay(&with_open, &bobs).await;

    write(&stage.options, "without-key = \"perhaps\"\n");
    daemon.process().signal(Signal::HUP).unwrap();
    daemon.logged(&["policy not reloaded", "field=without-key", "rule=must be"]).await.unwrap();
    stage.register(&with_open, "dora").await;
    // This policy allows requests without a key again, within the limits of addresses.
    write(&stage.options, &sections);
    daemon.process().signal(Signal::HUP).unwrap();
    daemon.logged(&["policy reloaded", "2 keys, 1 denied"]).await.unwrap();
    stage.register(&client.from_address([127, 0, 0, 2]), "carol").await;
    stage.audit(&client).await;
    let log = daemon.kill();
    assert!(!log.contains(&acme) && !log.contains(&open), "a key is in the log");
}

type DecisionRule = fn(&Delivery) -> HookReply;

/// Signs a decision about the relay of a question.
fn decided(to: &Delivery, secret: &str, mut decision: Value) -> HookReply {
    decision["id"] = to.json()["id"].clone();
    HookReply::signed(secret, to, &decision)
}

fn allow(to: &Delivery) -> HookReply {
    decided(to, SECRET, json!({ "decision": "allow" }))
}

#[tokio::test]
async fn the_decision_webhook_is_asked_with_a_signed_question_and_without_a_good_answer_it_is_refused() {
    let (stage, secret) = with_policy().await;
    let hook = Receiver::start().await.unwrap();
    let (acme, section) = key(&stage, "acme", &[], "").await;
    let decision = format!("{section}\n[decision]\nurl = \"{}/\"\nsecret-file = \"{secret}\"\n", hook.url());
    write(&stage.options, &decision);
    let (mut daemon, without_key) = stage.daemon().await;
    let client = without_key.with_key(&acme);
    let (alice, first) = (agent("alice"), stage.registration("alice"));
    hook.answer_by(|to| {
        decided(to, SECRET, json!({ "decision": "deny", "message": "Your trial\nhas ended" }))
    });
    client.relay(&first).await.refused(403, "SPONSORSHIP_DENIED", "Your trialhas ended");
    hook.answer_by(|to| decided(to, SECRET, json!({ "decision": "allow", "maxGas": 499_999 })));
    let message = "request.gas is above what is sponsored: 499999";
    client.relay(&first).await.refused(403, "GAS_NOT_SPONSORED", message);
    let undecided: [(&str, DecisionRule); 6] = [
        ("within a second", |to| HookReply { after: Duration::from_secs(30), ..allow(to) }),
        ("not signed", |to| decided(to, "another secret", json!({ "decision": "allow" }))),
        ("about another relay", |to| {
            HookReply::signed(SECRET, to, &json!({ "id": B256::repeat_byte(7), "decision": "allow" }))
        }),
        ("status 500", |to| HookReply { status: 500, ..allow(to) }),
        ("cannot be read", |to| decided(to, SECRET, json!({ "decision": "perhaps" }))),
        // The webhook returns the question itself with its signature.
        ("cannot be read", |to| HookReply {
            body: to.body.clone(),
            header: Some(("x-relayer-signature", to.header("x-relayer-signature").to_owned())),
            ..HookReply::status(200)
        }),
    ];
    let message = "Whether this request is sponsored could not be decided. Please try again shortly.";
    for (why, rule) in undecided {
        hook.answer_by(rule);
        client.relay(&first).await.refused(403, "SPONSORSHIP_UNDECIDED", message);
        daemon.logged(&["no decision by the webhook", why]).await.unwrap();
        assert_eq!(client.state(&first).await.status, 404, "{why}: it was stored");
    }
    assert_eq!(client.metric("relayer_decisions_total{result=\"undecided\"}").await, 6.0);

    hook.answer_by(|to| decided(to, SECRET, json!({ "decision": "allow", "maxGas": 500_000 })));
    stage.relay(&client, &first).await;
    // The webhook is asked about a request without a key, too.
    hook.answer_by(allow);
    stage.relay(&without_key, &stage.desk.request(&alice, 1, &attest(1))).await;
    stage.audit(&client).await;
    let asked = hook.deliveries();
    assert_eq!(asked.len(), 10, "once for each request");
    assert!(asked.iter().all(|question| question.is_signed_with(SECRET)), "{asked:?}");
    let expected = json!({
        "id": first.id, "key": "acme", "signer": alice.address().to_string(), "function": "registerAgent",
        "gas": "500000", "nonce": "0", "deadline": 0, "data": first.signed.request.data,
    });
    assert_eq!(asked[0].json(), expected);
    let last = asked[9].json();
    assert_eq!((&last["key"], &last["function"]), (&Value::Null, &json!("attestCompliance")));

    let url = hook.url().to_owned();
    drop(hook);
    let probe = e2e::http::client(PATIENCE);
    wait_until("down", PATIENCE, async || probe.get(&url).send().await.is_err()).await;
    client.relay(&stage.registration("bob")).await.refused(403, "SPONSORSHIP_UNDECIDED", message);
    daemon.logged(&["no decision by the webhook", "cannot be reached"]).await.unwrap();
}
