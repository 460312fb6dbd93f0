//! Kills, and relayers, nodes and read APIs that fail.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use alloy::primitives::{U64, U256};
use e2e::fault::{FaultRule, NodeFault};
use e2e::hooks::{Delivery, HookReply, Receiver};
use e2e::kya::Kya;
use e2e::process::{eventually, free_port};
use e2e::proxy::Proxy;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{ETHER, HOUR, KyaFixture, PATIENCE, Submission, place, register};

/// Registry of a service that is relayer and read API.
const REGISTRY: &str = "0x0000000000000000000000000000000000000002";

/// Answers as such a service, with this wallet for all agents; 404 for relays.
fn service(asked: &Delivery, wallet: &str) -> HookReply {
    HookReply::json(&match (asked.path.as_str(), asked.path.rsplit_once('/')) {
        ("/status", _) => json!({
            "chainId": 1, "registry": REGISTRY, "forwarder": REGISTRY, "limits": { "maxRequestGas": 1_000_000 },
        }),
        ("/relay", _) => json!({ "state": "pending" }),
        (_, Some(("/nonce", _))) => json!({ "next": 0 }),
        (_, Some(("/api/v1/agent", id))) => json!({ "agent": record(id.parse().unwrap(), wallet) }),
        _ => return HookReply::status(404),
    })
}

fn place_of_service(service: &Receiver) -> [&str; 8] {
    ["--chain", "1", "--registry", REGISTRY, "--api", service.url(), "--relayer", service.url()]
}

/// Returns an agent's record in the shape of a read API.
fn record(id: u64, wallet: &str) -> Value {
    let hash = format!("0x{}", "11".repeat(32));
    json!({
        "agentId": id, "creator": wallet, "haftungsperson": wallet, "agentWallet": wallet, "constitutionHash": hash,
        "capabilityHash": hash, "operationalScope": "a", "parentAgentId": 0, "generation": 0, "selfModifying": false,
        "registeredAt": "2026-11-01T00:00:00.000Z", "lastAttestation": "2026-11-20T00:00:00.000Z",
        "lastRevenueReport": null, "status": "Active",
    })
}

pub(super) async fn address_of_key(user: &Kya, name: &str) -> String {
    user.run(&["key", name]).await.unwrap().ok()["address"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relayer_that_lies_or_is_gone_holds_nothing_for_longer_than_its_request_is_valid() {
    let scene = KyaFixture::start().await;
    let registry = scene.registry.clone();
    let liar = Receiver::start().await.unwrap();
    let terms = json!({
        "chainId": 31_337, "registry": registry, "forwarder": scene.chain.contracts.forwarder,
        "limits": { "maxRequestGas": 1_000_000 },
    });
    // The hash is that of the registry's deployment, or of no transaction.
    let deployed: Value =
        scene.chain.node.request("eth_getBlockByNumber", json!(["0x1", false])).await.unwrap();
    let nothing = json!("0x".to_owned() + &"11".repeat(32));
    let deployed = deployed["transactions"][0].clone();
    let says = "the relayer says executed, and";
    for (id, transaction, expected) in
        [(1, nothing, says), (2, deployed, says), (3, Value::Null, "cannot be read")]
    {
        let key = format!("agent-{id}.key");
        let wallet = scene.key(&key).await.to_string();
        let command = register(&key, &wallet);
        let terms = terms.clone();
        let executed = json!({
            "state": "executed", "txHash": transaction, "blockNumber": 1, "finality": "finalized",
            "confirmations": 100, "agentId": 7,
        });
        liar.answer_by(move |asked| match asked.path.as_str() {
            "/status" => HookReply::json(&terms),
            path if path.starts_with("/nonce/") => HookReply::json(&json!({ "next": 0 })),
            // The request may have been executed though only half of the answer arrives.
            _ if executed["txHash"].is_null() => {
                HookReply { body: executed.to_string()[..40].to_owned(), ..HookReply::status(200) }
            }
            _ => HookReply::json(&executed),
        });
        let here = place(scene.chain.node.url(), &registry);
        let of_liar = [&command[..], &here, &["--relayer", liar.url(), "--timeout", "1"]].concat();
        let told = scene.user.run(&of_liar).await.unwrap().error(4);
        assert!(told.contains(expected), "{told}");
        // Then it is gone, and the user names another relayer: the first one's request may still be executed.
        drop(liar.take());
        liar.answer_by(|_| HookReply::status(503));
        let short = [&command[..], &["--timeout", "1"]].concat();
        assert_eq!(scene.run(&short, Submission::Relayed).await.status, Some(4));
        // It may be until its deadline, after which the forwarder refuses it.
        scene.chain.node.advance(2 * HOUR).await.unwrap();
        scene.chain.node.mine(1).await.unwrap();
        let registered = scene.run(&command, Submission::Relayed).await.ok();
        assert_eq!(registered["agentId"], id, "{registered}");
    }
    assert_eq!(scene.chain.total().await.unwrap(), 3);
    // The request was executed, and the relayer is gone: the record shows it.
    let wallet = scene.key("agent-4.key").await.to_string();
    let command = register("agent-4.key", &wallet);
    scene.killed("after_send", &command, Submission::Relayed).await;
    let total = || scene.chain.total();
    let executed = async || (total().await.ok()? == 4).then_some(());
    eventually("the relay to be executed", PATIENCE, executed).await.unwrap();
    drop(scene.relayer);
    let place = [&place(scene.chain.node.url(), &registry)[..], &["--timeout", "1"]].concat();
    let told = scene.user.run(&[&command[..], &place].concat()).await.unwrap().ok();
    assert_eq!((&told["agentId"], &told["already"]), (&json!(4), &json!(true)), "{told}");
    // A record shows nothing of another call, which stays in flight.
    let terms = terms.clone();
    liar.answer_by(move |asked| match asked.path.as_str() {
        "/status" => HookReply::json(&terms),
        path if path.starts_with("/nonce/") => HookReply::json(&json!({ "next": 1 })),
        _ => HookReply::status(503),
    });
    let attest = ["attest", "4", "--key", "agent-4.key", "--relayer", liar.url()];
    assert_eq!(scene.user.run(&[&attest[..], &place].concat()).await.unwrap().status, Some(4));
    for _ in 0..2 {
        assert_eq!(scene.user.run(&[&command[..], &place].concat()).await.unwrap().status, Some(4));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_read_api_says_nothing_of_an_agent_and_an_api_key_goes_to_the_named_relayer_alone() {
    let (user, other) = (Kya::new().unwrap(), Receiver::start().await.unwrap());
    other.answer_by(|_| HookReply { body: "<h1>Not found</h1>".to_owned(), ..HookReply::status(404) });
    let prefix = format!("{}/registry", other.url());
    let place =
        ["--chain", "1", "--registry", "0x0000000000000000000000000000000000000001", "--api", &prefix];
    let status = user.run(&[&["status", "1"][..], &place].concat()).await.unwrap().error(1);
    assert!(status.contains("no read API answers at"), "{status}");
    let asked = other.take();
    assert_eq!(asked.last().unwrap().path, "/registry/api/v1/agent/1", "{asked:?}");

    other.answer_by(|_| HookReply { status: 429, ..HookReply::json(&json!({ "error": "busy" })) });
    user.run(&["key", "agent.key"]).await.unwrap().ok();
    let url = format!("{}/items?token=secret", other.url());
    let signed = ["sign", "GET", &url, "--chain", "1", "--key", "agent.key", "--send"];
    assert_eq!(user.run(&signed).await.unwrap().with(3)["status"], 429);
    let large = "x".repeat((16 << 20) + 1);
    other.answer_by(move |_| HookReply { body: large.clone(), ..HookReply::status(200) });
    let large = user.run(&signed).await.unwrap().error(1);
    assert!(large.contains("HTTP 200, is larger than"), "{large}");
    let nothing = format!("http://127.0.0.1:{}/?token=secret", free_port().unwrap());
    let silent = ["sign", "GET", &nothing, "--chain", "1", "--key", "agent.key", "--send"];
    let silent = user.run(&silent).await.unwrap();
    assert!(silent.status == Some(3) && !format!("{silent:?}").contains("secret"), "{silent:?}");

    other.take();
    let document = json!({
        "version": 1, "chainId": 1, "registry": "0x0000000000000000000000000000000000000001",
        "relayers": [other.url()], "readApis": [other.url()],
    });
    other.answer_by(move |asked| match asked.path.as_str() {
        "/.well-known/agent-registry" => HookReply::json(&document),
        path if path.contains("/api/v1/kya/") => HookReply::json(&json!({ "isRegistered": false })),
        _ => HookReply::status(503),
    });
    let command = register("agent.key", "0x0000000000000000000000000000000000000002");
    for (place, expected) in [
        (["--at", other.url()].to_vec(), ""),
        ([&place[..], &["--relayer", other.url()]].concat(), "Bearer rk_secret"),
    ] {
        let command = [&command[..], &place].concat();
        let ended = user.run_with(&[("KYA_RELAYER_KEY", "rk_secret")], &command).await.unwrap();
        assert_eq!(ended.status, Some(3), "{ended:?}");
        let asked = other.take();
        assert!(asked.iter().any(|asked| asked.path == "/status"), "{asked:?}");
        for asked in asked {
            let expected = if asked.path == "/status" { expected } else { "" };
            assert_eq!(asked.header("authorization"), expected, "{}", asked.path);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_that_are_set_to_nothing_count_as_not_set_and_another_directory_posts_nothing_twice() {
    let (user, other) = (Kya::new().unwrap(), Receiver::start().await.unwrap());
    user.run(&["key", "agent.key"]).await.unwrap().ok();
    other.answer_by(|asked| match asked.path.as_str() {
        path if path.starts_with("/relay") => HookReply::json(&json!({ "state": "pending" })),
        path if path.starts_with("/api/v1/kya/") => HookReply::json(&json!({ "isRegistered": false })),
        _ => service(asked, REGISTRY),
    });
    let place = place_of_service(&other);
    let command = [&register("agent.key", REGISTRY)[..], &place, &["--timeout", "1"]].concat();
    let words: Vec<String> = command.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "export HOME=$PWD XDG_STATE_HOME= KYA_STATE_DIR= KYA_RPC_URL= KYA_RELAYER_KEY=
        for directory in a b; do
            mkdir $directory && cp agent.key constitution.md capabilities.json $directory
            (cd $directory && kya {}) || [ $? = 4 ]
        done",
        words.join(" ")
    );
    user.shell(&script).await.unwrap();
    let asked = other.take();
    assert_eq!(asked.iter().filter(|asked| asked.method == "POST").count(), 1, "{asked:?}");
    assert!(asked.iter().all(|asked| asked.header("authorization").is_empty()), "{asked:?}");

    // A key from a file ends with a line feed.
    user.run_with(&[("KYA_RELAYER_KEY", "rk_secret\n")], &command).await.unwrap().error(4);
    let asked = other.take();
    let shown = asked.iter().find(|asked| asked.path == "/status").map(|asked| asked.header("authorization"));
    assert_eq!(shown, Some("Bearer rk_secret"), "{asked:?}");
    let two = user.run_with(&[("KYA_RELAYER_KEY", "rk_secret\nrk_other")], &command).await.unwrap().error(2);
    assert!(two.contains("KYA_RELAYER_KEY") && !two.contains("secret"), "{two}");
    let homeless =
        [("KYA_STATE_DIR", ""), ("STATE_DIRECTORY", ""), ("XDG_STATE_HOME", "state"), ("HOME", "")];
    let homeless = user.run_with(&homeless, &command).await.unwrap().error(2);
    assert!(homeless.contains("--state"), "{homeless}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_the_base_fee_outgrows_is_replaced_and_done_once() {
    let scene = KyaFixture::start().await;
    let (wallet, node) = (scene.key("agent.key").await, &scene.chain.node);
    node.set_balance(wallet, ETHER).await.unwrap();
    node.set_automine(false).await.unwrap();
    let person = wallet.to_string();
    let command = register("agent.key", &person);
    scene.killed("after_send", &command, Submission::Direct).await;
    let base_fee = U256::from(300_000_000_000_u64);
    node.command("anvil_setNextBlockBaseFeePerGas", json!([base_fee])).await.unwrap();
    node.mine(1).await.unwrap();
    assert_eq!(scene.chain.total().await.unwrap(), 0, "its fee is too low");
    node.set_automine(true).await.unwrap();
    let registered = scene.run(&command, Submission::Direct).await.ok();
    assert_eq!((&registered["agentId"], &registered["transaction"]["repeated"]), (&json!(1), &json!(true)));
    let sent: U64 = node.request("eth_getTransactionCount", json!([wallet, "latest"])).await.unwrap();
    assert_eq!((sent.to::<u64>(), scene.chain.total().await.unwrap()), (1, 1), "once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_behind_a_nonce_that_nothing_fills_names_both_and_holds_the_key_for_an_hour() {
    let scene = KyaFixture::start().await;
    let (wallet, node) = (scene.key("agent.key").await, &scene.chain.node);
    node.set_balance(wallet, ETHER).await.unwrap();
    // The machine's clock is behind the chain's: the hour begins with the sending all the same.
    node.advance(2 * HOUR).await.unwrap();
    node.set_automine(false).await.unwrap();
    node.command("anvil_impersonateAccount", json!([wallet])).await.unwrap();
    let other = json!([{ "from": wallet, "to": wallet, "value": "0x1" }]);
    let other: Value = node.request("eth_sendTransaction", other).await.unwrap();
    let person = wallet.to_string();
    let command = register("agent.key", &person);
    scene.killed("after_send", &command, Submission::Direct).await;
    node.command("anvil_dropTransaction", json!([other])).await.unwrap();
    let short = [&command[..], &["--timeout", "1"]].concat();
    let waits = scene.run(&short, Submission::Direct).await.error(4);
    assert!(waits.contains("it has nonce 1, and the account is at nonce 0"), "{waits}");
    node.advance(2 * HOUR).await.unwrap();
    node.set_automine(true).await.unwrap();
    let registered = scene.run(&command, Submission::Direct).await.ok();
    assert_eq!((&registered["agentId"], &registered["transaction"]["repeated"]), (&json!(1), &json!(false)));
    assert_eq!(scene.chain.total().await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_at_each_step_and_repeated_nothing_is_done_twice() {
    let scene = KyaFixture::start().await;
    let liable = scene.key("liable.key").await.to_string();
    let mut agents = 0;
    for way in [Submission::Relayed, Submission::Direct] {
        for point in ["before_send", "after_send", "before_report", "before_print"] {
            let name = format!("{way:?}-{point}.key");
            let wallet = scene.key(&name).await;
            scene.chain.node.set_balance(wallet, ETHER).await.unwrap();
            let command = register(&name, &liable);
            scene.killed(point, &command, way).await;
            let registered = scene.run(&command, way).await.ok();
            agents += 1;
            let id = agents.to_string();
            assert_eq!(registered["agentId"], agents, "{way:?} {point}: {registered}");
            assert_eq!(registered["transaction"]["repeated"], true, "{way:?} {point}: {registered}");
            assert_eq!(scene.chain.total().await.unwrap(), agents, "{way:?} {point}");

            let command = ["attest", &id, "--key", &name];
            scene.killed(point, &command, way).await;
            let attested = scene.run(&command, way).await.ok();
            let sent = &attested["attested"][0]["transaction"];
            assert_eq!(sent["repeated"], true, "{way:?} {point}: {attested}");
            assert_eq!(scene.attestations(agents).await.len(), 1, "{way:?} {point}");
            // A command after a completed one is a new attestation.
            scene.run(&command, way).await.ok();
            assert_eq!(scene.attestations(agents).await.len(), 2, "{way:?} {point}");
        }
        // Two concurrent commands of one key take turns, and the second finds the first one's agent.
        let name = format!("{way:?}.key");
        let wallet = scene.key(&name).await;
        scene.chain.node.set_balance(wallet, ETHER).await.unwrap();
        let command = register(&name, &liable);
        let (one, other) = tokio::join!(scene.run(&command, way), scene.run(&command, way));
        agents += 1;
        let both = [one.ok(), other.ok()].map(|registered| registered["agentId"].clone());
        assert_eq!((both, scene.chain.total().await.unwrap()), ([json!(agents), json!(agents)], agents));

        let id = agents.to_string();
        let command = ["terminate", &id, "--key", &name, "--yes"];
        scene.killed("after_send", &command, way).await;
        scene.run(&command, way).await.ok();
        let again = scene.run(&command, way).await.ok();
        assert_eq!(again["transaction"], Value::Null, "{again}");
        let status = scene.run(&["status", &id], Submission::Read).await.with(1);
        assert_eq!(status["status"], "Terminated");
        // Once the agent of an unreported registration has ended, the next command registers a new one.
        let command = register(&name, &liable);
        scene.killed("before_print", &command, way).await;
        let id = (agents + 1).to_string();
        scene.run(&["terminate", &id, "--key", &name, "--yes"], way).await.ok();
        let registered = scene.run(&command, way).await.ok();
        agents += 2;
        let told = (&registered["agentId"], &registered["transaction"]["repeated"]);
        assert_eq!(told, (&json!(agents), &json!(false)), "{way:?}: {registered}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_could_not_be_printed_is_told_by_the_repetition_and_done_once() {
    let scene = KyaFixture::start().await;
    let wallet = scene.key("agent.key").await.to_string();
    scene.run(&register("agent.key", &wallet), Submission::Relayed).await.ok();
    let command = ["attest", "1", "--key", "agent.key"];
    let words = scene.at(&command, Submission::Relayed).join(" ");
    for _ in 0..2 {
        scene.user.shell(&format!("kya {words} > /dev/full || [ $? = 3 ]")).await.unwrap();
    }
    let attested = scene.run(&command, Submission::Relayed).await.ok();
    assert_eq!(attested["attested"][0]["transaction"]["repeated"], true, "{attested}");
    assert_eq!(scene.attestations(1).await.len(), 1);
    let attested = scene.run(&command, Submission::Relayed).await.ok();
    assert_eq!(attested["attested"][0]["transaction"]["repeated"], false, "{attested}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_told_with_its_reason_and_keeps_nothing() {
    let scene = KyaFixture::start().await;
    let wallet = scene.key("agent.key").await.to_string();
    let command = register("agent.key", &wallet);
    let fails = async |words: &[&str], way, status, reason: &str| {
        let failed = scene.run(words, way).await.error(status);
        assert!(failed.contains(reason), "{reason}: {failed}");
    };
    // Without a state directory, or without gas, nothing is done, and a repetition may do it.
    fails(&[&command[..], &["--state", "agent.key"]].concat(), Submission::Relayed, 3, "the state directory")
        .await;
    fails(&command, Submission::Direct, 3, "nsufficient funds").await;
    // A long scope replaces the one of the command.
    let scope = "Does what it is told. ".repeat(400);
    let mut long = command.clone();
    let at = long.iter().position(|word| *word == "--scope").unwrap() + 1;
    long[at] = &scope;
    fails(&long, Submission::Relayed, 1, "gas, which may be too little for").await;
    assert_eq!(scene.chain.total().await.unwrap(), 0);

    let forwarder = scene.chain.contracts.forwarder.to_string();
    let place = place(scene.chain.node.url(), &forwarder);
    let other = scene.user.run(&[&["status", "1"][..], &place].concat()).await.unwrap().error(1);
    assert!(other.contains("which is the registry?"), "{other}");
    scene.run(&command, Submission::Relayed).await.ok();
    assert_eq!(scene.chain.total().await.unwrap(), 1, "nothing was left in flight");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_apis_record_is_of_the_block_of_its_verdict() {
    let (user, api) = (Kya::new().unwrap(), Receiver::start().await.unwrap());
    let wallet = "0xF8BAF884A2a20d918e118b6de84D1B1bB02f5eb1";
    let until = "2026-11-27T00:00:00.000Z";
    api.answer_by(move |asked| {
        let mut record = record(7, wallet);
        let body = match asked.path.as_str() {
            "/.well-known/agent-registry" => json!({ "version": 1, "chainId": 1, "registry": wallet }),
            path if path == format!("/api/v1/kya/{wallet}") => json!({
                "isRegistered": true, "isCompliant": true, "compliantUntil": until, "agent": { "agentId": 7 },
                "asOf": { "blockNumber": 99 },
            }),
            "/api/v1/agent/7?block=99" => json!({ "agent": record, "liability": { "basis": "registered" } }),
            // The record without a block has a later attestation.
            "/api/v1/agent/7" => {
                record["lastAttestation"] = "2026-11-22T00:00:00.000Z".into();
                json!({ "agent": record, "liability": { "basis": "attested" } })
            }
            _ => return HookReply::status(404),
        };
        HookReply::json(&body)
    });
    for subject in [wallet, "7"] {
        let status =
            user.run(&["status", subject, "--at", api.url(), "--api", api.url()]).await.unwrap().ok();
        let told = (&status["lastAttestation"], &status["compliantUntil"], &status["basis"]);
        let expected = (&json!("2026-11-20T00:00:00.000Z"), &json!(until), &json!("registered"));
        assert_eq!(told, expected, "{subject}: {status}");
        assert_eq!(status["wallet"], wallet, "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watcher_of_a_liable_wallet_attests_where_the_node_lists_no_events_for_now() {
    let scene = KyaFixture::start().await;
    scene.key("agent.key").await;
    let liable = scene.key("liable.key").await.to_string();
    scene.run(&register("agent.key", &liable), Submission::Relayed).await.ok();
    let node = Proxy::start(scene.chain.node.url()).await.unwrap();
    node.inject(FaultRule::on("eth_getLogs", NodeFault::status(429)));
    let watch = ["attest", "1", "--watch", "--every", "1", "--yes", "--key", "liable.key"];
    let place = place(node.url(), &scene.registry);
    let command = [&watch[..], &place, &["--relayer", scene.relayer.url()]].concat();
    let mut watcher = scene.user.spawn("", &command).start().unwrap();
    watcher.announced("agent 1: attested", PATIENCE).await.unwrap();
    assert!(node.calls("eth_getLogs") > 0, "{}", watcher.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_for_several_agents_that_is_repeated_sends_nothing_twice_and_tells_all() {
    let (user, relayer) = (Kya::new().unwrap(), Receiver::start().await.unwrap());
    let wallet = address_of_key(&user, "agent.key").await;
    let executed = json!({
        "state": "executed", "txHash": format!("0x{}", "11".repeat(32)), "blockNumber": 1, "finality": "latest",
        "confirmations": 1,
    });
    // `kya` requests the state of each relay after its post; only the first `most` relays are executed.
    let carry_out = |most: usize| {
        let (wallet, executed, posts) = (wallet.clone(), executed.clone(), AtomicUsize::new(0));
        relayer.answer_by(move |asked| {
            posts.fetch_add(usize::from(asked.method == "POST"), Ordering::SeqCst);
            match asked.path.starts_with("/relay/") {
                true if posts.load(Ordering::SeqCst) <= most => HookReply::json(&executed),
                true => HookReply::json(&json!({ "state": "pending" })),
                false => service(asked, &wallet),
            }
        });
    };
    let posts = || relayer.take().iter().filter(|asked| asked.method == "POST").count();
    let place = place_of_service(&relayer);
    let attest = async |ids: &[&str]| {
        let options = ["--key", "agent.key", "--timeout", "1"];
        user.run(&[&["attest"][..], ids, &options, &place].concat()).await.unwrap()
    };
    let repeated = |attested: Value| -> Vec<Value> {
        let attested = attested["attested"].as_array().unwrap();
        attested.iter().map(|attested| attested["transaction"]["repeated"].clone()).collect()
    };
    carry_out(1);
    attest(&["1", "2"]).await.error(4);
    carry_out(usize::MAX);
    assert_eq!(repeated(attest(&["1", "2"]).await.ok()), [true, true]);
    assert_eq!(posts(), 2);
    // All was reported: the next command is a new one.
    assert_eq!(repeated(attest(&["1", "2"]).await.ok()), [false, false]);
    assert_eq!(posts(), 2);
    // After a command for another agent, the first one can still be repeated.
    carry_out(0);
    attest(&["3"]).await.error(4);
    carry_out(usize::MAX);
    assert_eq!(repeated(attest(&["4"]).await.ok()), [false]);
    assert_eq!(repeated(attest(&["3"]).await.ok()), [true]);
    assert_eq!(posts(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relayer_that_takes_a_request_and_does_not_answer_is_waited_for_until_the_timeout() {
    let (user, relayer) = (Kya::new().unwrap(), Receiver::start().await.unwrap());
    let wallet = address_of_key(&user, "agent.key").await;
    let attest = ["attest", "1", "--key", "agent.key", "--timeout", "1"];
    let command = [&attest[..], &place_of_service(&relayer)].concat();
    // Status 3: nothing is in flight before the signature.
    for (silent, status) in [("/status", 3), ("/relay/", 4)] {
        let wallet = wallet.clone();
        relayer.answer_by(move |asked| match asked.path.starts_with(silent) {
            true => HookReply { after: PATIENCE, ..HookReply::status(200) },
            false => service(asked, &wallet),
        });
        // The time-out of the request to the relayer by itself is more than two minutes.
        let ended = timeout(Duration::from_secs(90), user.run(&command)).await.expect("--timeout is kept");
        assert!(ended.unwrap().error(status).contains("no answer came in time"), "{silent}");
    }
}
