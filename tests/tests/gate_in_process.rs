//! The gate in a service's own process, from the package `agent-registry/gate`, beside the daemon.
//!
//! 1. All cases of `tests/gate/cases.json` have one answer: of the daemon, of the adapter that asks a daemon,
//!    and of the gate in process, with verdicts from the chain and from the read API, in Node 20, in Node 22,
//!    and in workerd.
//! 2. Of many copies of one request over two instances exactly one is admitted: with Redis, by the clients of
//!    node-redis and ioredis, shared with a daemon of the same prefix; and with a Durable Object.
//!    Requests signed before Redis was killed are not admitted again.
//! 3. A cold request takes one round trip to the chain, a warm or a forged one none; all together take no
//!    more than `chain.reads-per-second`, and no request leaves anything in memory.
//! 4. Services on Hono, Express, Fastify and Fetch's `Request` admit requests that the package signs, once
//!    and unchanged, by a daemon and in process, and read only the gate's own headers; without a daemon's
//!    answer they admit none.

use std::env;
use std::path::PathBuf;

use alloy::hex;
use alloy::primitives::{Address, B256, Bytes};
use alloy::signers::SignerSync as _;
use anyhow::Result;
use e2e::anvil::{CHAIN_ID, wall_clock};
use e2e::chain::Chain;
use e2e::gate::{ACCEPT, Gate, ORIGIN, REVERT, embedded, start_with_redis};
use e2e::redis::Redis;
use e2e::repo;
use e2e::reverse_proxies::ReverseProxyKind;
use e2e::seed::{chain_of_one, registration_call, suspension, wallet};
use e2e::signers::{node, printed};
use e2e::worker::{Worker, WorkerOptions};
use registry_core::eth::abi::IAgentRegistry::registerAgentCall;
use registry_core::liability::{Acceptance, DecimalId};
use registry_core::registry::well_known;
use serde_json::{Value, json};
use tokio::process::Command;

/// Policies that the cases need beside the documented `[policy.api]`.
const POLICIES: &str = r#"
[policy]
long = { allow = ["provision"], longest-validity = 300, replayable = "elsewhere" }
tenant = { allow = ["provision"], components = ["x-tenant"] }
eoa = { allow = ["provision"], accounts = "eoa-only" }
principals = { allow = ["provision"], wallets = ["0x00000000000000000000000000000000000000aa"] }
renewal = { allow = ["provision", "request_renewal"] }
all = { allow = ["provision", "request_renewal", "deny"] }
liable = { allow = ["provision"], liable = { allow = ["0x00000000000000000000000000000000000000aa"] } }
remaining = { allow = ["provision"], remaining-seconds = 100000000 }
observed = { allow = ["provision"], observe = true }
elsewhere = { allow = ["provision"], origin = "https://other.example" }
"#;

const ACCEPTING: Address = Address::repeat_byte(0xac);
const REFUSING: Address = Address::repeat_byte(0xfe);

/// Starts a chain with an agent of each kind, such as compliant (`good`), suspended, and with code.
async fn chain() -> Result<Chain> {
    let chain = chain_of_one().await?;
    let coded = wallet("coded").address();
    let wallets = [(2, wallet("suspended").address()), (3, ACCEPTING), (4, REFUSING), (5, coded)];
    for (id, wallet) in wallets {
        chain.send(chain.owner(), registration_call(id, wallet, "guarded", 0)).await?;
    }
    // The liable person registers this agent.
    let own = registration_call(6, wallet("own").address(), "guarded", 0);
    chain.send(chain.owner(), registerAgentCall { haftungsperson: chain.owner(), ..own }).await?;
    let accepted = registration_call(7, wallet("accepted").address(), "guarded", 0);
    let person = wallet("person").address();
    chain.send(chain.owner(), registerAgentCall { haftungsperson: person, ..accepted }).await?;
    chain.send(chain.owner(), suspension(2, "a test")).await?;
    for (account, code) in [(ACCEPTING, ACCEPT), (REFUSING, REVERT), (coded, REVERT)] {
        chain.node.set_code(account, &Bytes::from_static(code)).await?;
    }
    Ok(chain)
}

/// Returns the documented configuration of a daemon beside this proxy, with content, and all policies.
fn configuration(kind: ReverseProxyKind, chain: &Chain) -> Result<String> {
    let text = kind.gate(ORIGIN, CHAIN_ID, chain.node.url(), &chain.contracts.registry.to_string())?;
    // One liable person is only named, one only accepts its agent, and one registered its agent.
    let named = registration_call(1, Address::ZERO, "", 0).haftungsperson;
    let (person, owner) = (wallet("person").address(), chain.owner());
    let acme = format!("allow = [\"provision\"]\nliable.allow = [\"{named}\", \"{person}\", \"{owner}\"]\n");
    let any = "liable.basis = [\"named\", \"unknown\"]\n";
    let liable = format!("\n[policy.acme]\n{acme}\n[policy.acme-named]\n{acme}{any}");
    let text = text.replace("content-header = \"X-Original-Content\"", "content-passed = true");
    Ok(text + POLICIES + &liable)
}

/// Returns the keys of the accounts that sign.
fn keys() -> Value {
    let names = ["good", "suspended", "new", "owner", "coded", "own", "accepted"];
    let keys = names.map(|name| (name.to_owned(), hex::encode_prefixed(wallet(name).to_bytes()).into()));
    Value::Object(keys.into_iter().collect())
}

/// Prepares the machine's own Node, and the project's, which is newer where the machine's is old.
fn nodes() -> [Command; 2] {
    let own = repo::root().join("target/tools/node/bin");
    let path = env::var_os("PATH").unwrap_or_default();
    let others = env::split_paths(&path).filter(|directory| *directory != own);
    let mut machine = Command::new("node");
    machine.env("PATH", env::join_paths(others.collect::<Vec<PathBuf>>()).expect("a path"));
    [machine, repo::command("node").into()]
}

/// Makes acceptances of the agent `accepted` by its liable person, as headers: a valid one, and invalid ones.
async fn acceptances(chain: &Chain) -> Result<Value> {
    let agent = chain.agents().await?.swap_remove(6);
    let now = wall_clock();
    let valid = Acceptance {
        chain_id: CHAIN_ID,
        registry: chain.contracts.registry,
        agent_id: DecimalId(agent.agentId),
        creator: agent.creator,
        agent_wallet: agent.agentWallet,
        haftungsperson: agent.haftungsperson,
        registered_at: agent.registeredAt,
        terms_hash: B256::ZERO,
        not_before: now - 600,
        not_after: now + 3_600,
        signature: Bytes::new(),
    };
    let signed = |acceptance: Acceptance, by: &str| -> Result<String> {
        let signature = wallet(by).sign_hash_sync(&acceptance.digest(&agent.operationalScope))?;
        Ok(Acceptance { signature: signature.as_bytes().into(), ..acceptance }.to_header())
    };
    Ok(json!({
        "valid": signed(valid.clone(), "person")?,
        "over": signed(Acceptance { not_after: now - 300, ..valid.clone() }, "person")?,
        "other": signed(Acceptance { registered_at: 1, ..valid.clone() }, "person")?,
        "forged": signed(valid.clone(), "accepted")?,
        "elsewhere": signed(Acceptance { chain_id: 1, ..valid }, "person")?,
    }))
}

/// Runs a program of `tests/gate` by a Node with this setting, and returns the JSON that it prints.
async fn run(with: &mut Command, program: &str, setting: &Value) -> Result<Value> {
    let program = repo::root().join("tests/gate").join(program);
    printed(with.arg(program).env("SETTING", setting.to_string())).await
}

#[tokio::test]
async fn all_cases_have_one_answer_wherever_the_gate_is() -> Result<()> {
    let chain = chain().await?;
    let text = configuration(ReverseProxyKind::Envoy, &chain)?;
    let daemon = Gate::start(&text).await?;
    let adapter = Gate::start(&configuration(ReverseProxyKind::Nginx, &chain)?).await?;
    let options = WorkerOptions::new(chain.node.url(), chain.contracts.registry).var("CHAIN_ID", CHAIN_ID);
    let api = Worker::start(options).await?;
    let setting = json!({
        "origin": ORIGIN, "chainId": CHAIN_ID, "api": api.url(), "daemon": daemon.url(),
        "adapter": adapter.url(), "settings": embedded(&text)?, "keys": keys(),
        "accounts": { "accepting": ACCEPTING.to_string(), "refusing": REFUSING.to_string() },
        "acceptances": acceptances(&chain).await?,
    });
    let [mut machine, mut own] = nodes();
    for node in [&mut machine, own.env("WORKERD", "1")] {
        let printed = run(node, "cases.mjs", &setting).await?;
        eprintln!("Node {}: {} answers compared", printed["node"], printed["compared"]);
        assert_eq!(printed["differences"], json!([]), "{printed:#}");
    }
    Ok(())
}

#[tokio::test]
async fn of_many_copies_over_two_instances_one_is_admitted() -> Result<()> {
    let (chain, redis) = (chain().await?, Redis::start(&[]).await?);
    let table = format!("\n[redis]\nurl = \"{}\"\n", redis.url());
    // Each instance reads once, before the copies arrive.
    let kept =
        configuration(ReverseProxyKind::Envoy, &chain)?.replace("[kya]", "[kya]\ncache-seconds = 3600");
    let configured = configuration(ReverseProxyKind::Nginx, &chain)? + &table;
    let daemon = start_with_redis(async || Gate::start(&configured).await).await?;
    let setting = json!({
        "origin": ORIGIN, "chainId": CHAIN_ID, "daemon": daemon.url(), "redis": redis.url(), "keys": keys(),
        "settings": embedded(&kept)?,
    });
    let [_, mut own] = nodes();
    let printed = run(own.env("WORKERD", "1"), "nonces.mjs", &setting).await?;
    let one = json!({ "200": 1, "nonce_reused": 199 });
    let forgets = "nonces: Redis forgets keys when it is full: its maxmemory-policy is allkeys-lru, and has to \
                   be noeviction";
    for (name, expected) in [
        ("copies", one.clone()),
        ("atDaemon", json!("nonce_reused")),
        ("ofDaemon", json!(["nonce_reused", "nonce_reused"])),
        ("forgetful", json!(["nonce_store_unavailable", forgets, "200"])),
        ("full", json!(["nonce_store_full", "nonce_store_full"])),
        ("away", json!(["nonce_store_unavailable", "nonce_store_unavailable"])),
        ("never", json!("nonce_store_unavailable")),
        ("before", json!(["signed_before_start", "signed_before_start"])),
        ("copiesInWorkerd", one),
        ("failover", json!(["spent", "unknown"])),
        ("object", json!(["spent", "spent", "reused", true, "reused", true])),
        ("memory", json!(["unknown", "spent", "reused", "spent", "full", "reused", "full"])),
    ] {
        assert_eq!(printed[name], expected, "{name}: {printed:#}");
    }
    Ok(())
}

#[tokio::test]
async fn reads_are_few_and_what_cannot_be_kept_is_refused_at_the_start() -> Result<()> {
    let chain = chain().await?;
    let setting = json!({
        "origin": ORIGIN, "chainId": CHAIN_ID, "registry": chain.contracts.registry.to_string(),
        "settings": embedded(&configuration(ReverseProxyKind::Envoy, &chain)?)?, "keys": keys(),
        "accounts": { "accepting": ACCEPTING.to_string() },
    });
    let [mut machine, _] = nodes();
    let printed = run(&mut machine, "reads.mjs", &setting).await?;
    let unread = "signature_verification_unavailable";
    let withheld = ["content_too_long", "content_incomplete"];
    let answered = withheld.map(|code| json!([code, well_known::PATH, ""]));
    // Under the observing policy, the long request also has headers with the gate's names.
    let passed_on = ["reserved_header", "content_incomplete"].map(|code| json!([code, null, null]));
    for (name, expected) in [
        ("reads", json!([[200, 1], [200, 0], ["bad_signature", 0], [200, 1], [200, 1]])),
        ("unknown", json!([["kya_not_allowed", 1], ["kya_not_allowed", 0]])),
        ("bounded", json!([[200, 1], [unread, 0]])),
        ("reports", json!(["no read is left of chain.reads-per-second"])),
        ("metered", json!(["kya_not_allowed", "kya_not_allowed", unread, unread])),
        ("otherRegistry", json!(["kya_unavailable", "kya_unavailable"])),
        ("coded", json!("bad_signature")),
        ("verdicts", json!(1)),
        ("long", json!([413, 100])),
        ("withheld", Value::from([answered, passed_on].concat())),
        ("observed", json!([])),
        ("late", json!([[false, unread, 5_000], [true, unread, 5_000]])),
        ("unsigned", json!([401, false])),
        ("unread", json!([503, unread])),
        ("used", json!(["TypeError", "TypeError"])),
        ("isKept", json!(false)),
        ("document", json!([format!("eip155:{CHAIN_ID}")])),
        ("told", json!([[], well_known::PATH, ["https://relay.example"], well_known::PATH])),
    ] {
        assert_eq!(printed[name], expected, "{name}: {printed:#}");
    }
    let refused = printed["refused"].as_array().expect("a list");
    let words = [
        "listen: means nothing inside a service",
        "proxy: means nothing inside a service",
        "verdict: signs with keys from a file",
        "records: are written to a file",
        "kya.follow-changes: a gate in process does not follow changes",
        "redis: pass the option nonces",
        "redis: pass the option nonces",
        "chain.reads-in-flight: is the daemon's",
        "liable.domains: only the daemon kya-gate and its layer fetch files of domains",
        "liable: is about files of domains",
        "unknown field `alow`",
        "key with no value",
        "invalid type: string \"…\", expected a sequence",
        "discovery.relayers: must be http or https URLs without a user",
        "policy.other: is not configured",
        "chain.rpc: must be 1 to 8 URLs",
    ];
    assert_eq!(refused.len(), words.len());
    for (error, words) in refused.iter().zip(words) {
        assert!(error.as_str().is_some_and(|error| error.contains(words)), "{words}: {error}");
    }
    Ok(())
}

#[tokio::test]
async fn services_by_each_framework_admit_what_is_signed_and_read_the_gates_headers_alone() -> Result<()> {
    let chain = chain().await?;
    let daemon = Gate::start(&configuration(ReverseProxyKind::Nginx, &chain)?).await?;
    let settings = embedded(&configuration(ReverseProxyKind::Envoy, &chain)?)?;
    let good = wallet("good");
    let (key, address) = (hex::encode_prefixed(good.to_bytes()), json!(good.address().to_string()));
    let mut failures = Vec::new();
    for gate in [daemon.url(), &settings] {
        let arguments = [gate, ORIGIN, &CHAIN_ID.to_string(), &key];
        let printed = node("gate-frameworks.mjs", &arguments).await?;
        for framework in ["hono", "fetch", "express", "express behind express.raw", "fastify"] {
            let is_url = ["hono", "fetch"].contains(&framework);
            for (name, status, words) in [
                ("get", 200, r#""body":"""#),
                ("post", 200, r#""body":"{\"amount\":\"100\"}""#),
                ("large", 200, "xxxx"),
                ("packed", if framework.ends_with("raw") { 415 } else { 200 }, ""),
                ("trailers", 200, r#""body":"{\"amount\":\"100\"}""#),
                ("replayed", 401, "nonce_reused"),
                ("changed", 401, "bad_content_digest"),
                ("unsigned", 401, "signature_missing"),
                ("unsigned GET with content", 401, "signature_missing"),
                // A URL has no dot segments.
                ("traversal", if is_url { 401 } else { 400 }, "reason"),
                // The gate in process knows that no content makes the signature valid.
                ("long", if gate == daemon.url() { 413 } else { 401 }, "reason"),
            ] {
                let outcome = &printed[framework][name];
                let body = outcome["body"].as_str().unwrap_or_default();
                let seen: Value = serde_json::from_str(body).unwrap_or_default();
                let (agent, everywhere) = (&seen["agent"], &seen["everywhere"]);
                let agent = [&agent["wallet"], &agent["decision"], &agent["agentId"], &seen["wallet"]];
                let is_right = match status {
                    200 => {
                        agent == [&address, &json!("provision"), &json!("1"), &address]
                            && (is_url || *everywhere == json!([address]))
                    }
                    401 => outcome["headers"]["www-authenticate"].to_string().contains("ERC8128"),
                    _ => true,
                };
                if outcome["status"] != status || !body.contains(words) || !is_right {
                    failures.push(format!("{framework}, {name}: {outcome:#}"));
                }
            }
        }
        // No daemon answers, or another server at its address does.
        let refused = json!({ "admitted": false, "status": 503 });
        assert_eq!(printed["away"], json!([refused, refused]));
        assert_eq!(printed["parsed"], json!([[500, true], [500, true]]));
        let [kept, changed] = [json!([200, false]), json!([500, true])];
        assert_eq!(printed["kept"], json!([changed, changed, kept, kept, kept, kept]), "{gate}");
        let http2 = json!([[200, "hello"], [401, "bad_content_digest"], [200, ""]]);
        assert_eq!(printed["http2"], http2, "{gate}");
        let whole = json!([200, "3000000 bytes", []]);
        assert_eq!(printed["observed"], json!([[200, "0 bytes", []], whole, whole, whole]), "{gate}");
        assert_eq!((&printed["many"], &printed["logged"]), (&json!(200), &json!("hello")), "{gate}");
        // The daemon's own limit is 8 MiB.
        let is_daemon = gate == daemon.url();
        let own = |refusal| if is_daemon { refusal } else { json!([401, "signature_missing"]) };
        let [content, head] = [json!([413, "content_too_long"]), json!([431, "head_too_long"])];
        assert_eq!(printed["long"], json!([own(content.clone()), content, 200, own(head)]));
        assert_eq!(printed["digested"], json!(["POST", "DELETE"]));
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}
