//! Verdicts from the registry's snapshot, which the index keeps.
//!
//! 1. A cold wallet, registered or not, takes no RPC call, and its verdict is the chain's; lists, too.
//!    Evidence and verdicts at past blocks, which a snapshot lacks, come from the chain.
//! 2. The documented program reads the served manifest and shards, and the latest changes.
//! 3. A suspension shows at every instance within the TTL of verdicts. Where the index is away, or the chain
//!    does not answer, verdicts come from the chain or are errors, and none is older than the TTL.
//! 4. Rows within that TTL answer all requests, though refreshes fail.

use std::time::{Duration, Instant};

use alloy::primitives::Address;
use e2e::anvil::dev_account;
use e2e::client::{Client, HttpAnswer};
use e2e::fault::{FaultRule, NodeFault};
use e2e::process::{eventually, wait_until};
use e2e::relay::attest;
use e2e::repo;
use e2e::seed;
use e2e::stage::WorkerStage;
use e2e::stored::stored;
use e2e::worker::WorkerOptions;
use futures_util::future::join_all;
use registry_core::eth::abi::IAgentRegistry;
use serde_json::{Value, json};

use crate::{AGENTS, OF_PERSON, PATIENCE, StageGuard, has_snapshot, register, suspend, timeless, wallet};

const TTL: Duration = Duration::from_secs(8);

pub(crate) fn kya(wallet: Address) -> String {
    format!("/api/v1/kya/{wallet}")
}

/// Returns the wallets that are on the chain at the start, and some that are not registered.
fn wallets() -> Vec<Address> {
    (1..=AGENTS + OF_PERSON).map(wallet).chain((1..=8).map(Address::repeat_byte)).collect()
}

/// Waits until verdicts come from a snapshot of the newest block.
async fn is_of_newest_block(stage: &WorkerStage, client: &Client) {
    has_snapshot(client).await;
    let height = stage.chain.node.height().await.unwrap();
    wait_until("of the newest block", PATIENCE, async || {
        let answer = client.get(&kya(wallet(1))).await;
        source(&answer) == "snapshot" && answer.ok()["asOf"]["blockNumber"] == height
    })
    .await;
}

fn source(answer: &HttpAnswer) -> &str {
    answer.header("server-timing").trim_start_matches("source;desc=").trim_matches('"')
}

#[tokio::test(flavor = "multi_thread")]
async fn cold_wallets_take_no_rpc_call_and_have_the_chains_verdicts() {
    let stage = StageGuard::with(|options| options.ttl(8)).await;
    let by_chain = stage.another(|options| options.var("KYA_SOURCE", "chain")).await.unwrap();
    let worker = stage.another(|options| options.var("KYA_TTL_SECONDS", 60)).await.unwrap();
    let (client, by_chain) = (worker.client(), by_chain.client());
    is_of_newest_block(&stage, &client).await;
    let wallets = wallets();
    for wallet in &wallets {
        let answer = client.get(&kya(*wallet)).await;
        assert_eq!((source(&answer), answer.header("x-cache")), ("snapshot", "HIT"), "{}", answer.text);
        // Once the two Workers have found one another, the index knows the past.
        wait_until("the past", PATIENCE, async || {
            let chains = by_chain.get(&format!("{}?history=1", kya(*wallet))).await;
            assert_eq!(source(&chains), "chain");
            timeless(answer.ok()) == timeless(chains.ok())
        })
        .await;
        let age = answer.header("cache-control").trim_start_matches("public, max-age=").parse::<u64>();
        assert!((1..=60).contains(&age.unwrap()));
    }
    // Where there will be no snapshot, requests and probes say why.
    let never = stage.another(|options| options.var("KYA_TTL_SECONDS", 1)).await.unwrap();
    let reason = "KYA_TTL_SECONDS is 1, and must be at least 2";
    let refused = never.client().get("/api/v1/kya/range/0").await.failed(501, "INDEX_REQUIRED");
    assert!(refused.contains(reason), "{refused}");
    never.client().until_ready("the reason", PATIENCE, |ready| ready["noSnapshot"] == reason).await.unwrap();
    let lines = worker.lines_with("\"source\":\"snapshot\"", wallets.len()).await.unwrap();
    assert!(lines.iter().all(|line| line.contains("\"rpcCalls\":0")), "{lines:#?}");

    let body = json!({ "wallets": wallets.iter().map(Address::to_string).collect::<Vec<_>>() });
    let list = client.post("/api/v1/kya", "application/json", body.to_string()).await;
    assert_eq!((source(&list), list.ok()["total"].as_u64()), ("snapshot", Some(wallets.len() as u64)));
    for (item, wallet) in list.json()["data"].as_array().unwrap().iter().zip(&wallets) {
        let alone = client.get(&kya(*wallet)).await.ok();
        assert_eq!(timeless(item.clone()), timeless(alone));
    }
    let (id, person) = (stage.chain.total().await.unwrap() + 1, dev_account(3));
    let call = seed::registration_call(id, seed::wallet("attested").address(), "Attested for", 0);
    let call = IAgentRegistry::registerAgentCall { haftungsperson: person, ..call };
    stage.chain.send(stage.chain.owner(), call).await.unwrap();
    let attested = stage.chain.send(person, attest(id)).await.unwrap();
    let seen = eventually("the liable person's attestation", PATIENCE, async || {
        let evidence = by_chain.get(&(seed::kya("attested") + "?evidence=1")).await.ok();
        (evidence["verdict"]["asOf"]["blockNumber"].as_u64() >= attested.block_number
            && evidence["indexed"].is_object())
        .then_some(evidence)
    });
    let evidence = seen.await.unwrap();
    assert_eq!(evidence["verdict"]["liability"]["basis"], "unknown", "{evidence}");
    assert_eq!(evidence["indexed"]["liability"]["basis"], "attested", "{evidence}");
    for query in ["?block=3", "?evidence=1"] {
        let answer = client.get(&format!("{}{query}", kya(wallets[0]))).await;
        assert_eq!(answer.header("x-cache"), "MISS", "{query}: {}", answer.text);
    }
}

/// Node runs the program of `docs/snapshot.md` on the API's answers.
#[tokio::test(flavor = "multi_thread")]
async fn the_documented_reader_reads_what_is_served() {
    let stage = StageGuard::with(|options| options.ttl(8)).await;
    has_snapshot(&stage.client).await;
    // The manifest holds an agent that is registered after the first fill.
    let changed = "read by the documented program";
    register(&stage.chain, changed, "Changed last", 0).await;
    is_of_newest_block(&stage, &stage.client).await;
    let guide = std::fs::read_to_string(repo::root().join("docs/snapshot.md")).unwrap();
    let reader = guide.split("```js\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(reader.lines().count() <= 65, "{} lines", reader.lines().count());
    let own = r#"
        import { keccak256, getBytes } from "ethers";
        const keccak = (bytes) => getBytes(keccak256(bytes));
        const read = async (path) => {
          const response = await fetch(API + path);
          if (response.status !== 200) throw new Error(`${path}: ${response.status}`);
          return new Uint8Array(await response.arrayBuffer());
        };
        const manifest = readManifest(await read("/api/v1/snapshot"));
        for (const wallet of WALLETS) {
          const hex = (number, digits) => number.toString(16).padStart(digits, "0");
          let files = 0;
          const facts = await find(manifest, getBytes(wallet), ({ start, bits, block, tag }) => {
            files++;
            return read(`/api/v1/snapshot/${hex(start, 12)}${hex(bits, 2)}?v=${hex(block, 16)}${hex(tag, 8)}`);
          });
          const plain = (_, value) => (typeof value === "bigint" ? Number(value) : value);
          console.log(JSON.stringify({ ...facts, files }, plain));
        }"#;
    let changed = seed::wallet(changed).address();
    let wallets: Vec<String> = wallets().iter().chain([&changed]).map(Address::to_string).collect();
    let head = format!("const API = {:?}, WALLETS = {wallets:?};", stage.client.base());
    let script = repo::root().join("target/snapshot-reader.mjs");
    std::fs::write(&script, [&head, reader, own].join("\n")).unwrap();
    let node = tokio::process::Command::new("node").arg(&script).output().await.unwrap();
    assert!(node.status.success(), "{}", String::from_utf8_lossy(&node.stderr));
    let read = String::from_utf8(node.stdout).unwrap();
    let read: Vec<Value> = read.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(read.len(), wallets.len());
    for (facts, wallet) in read.iter().zip(&wallets) {
        let verdict = stage.client.get(&format!("/api/v1/kya/{wallet}")).await.ok();
        assert_eq!(facts["registered"], verdict["isRegistered"], "{facts}");
        // The others are found in their shards alone, unless they have changed, too.
        assert!(facts["files"] == 0 || *wallet != changed.to_string(), "{facts}");
        assert!(facts["files"] == 1 || facts["registered"] == true, "{facts}");
        if facts["registered"] == true {
            let status = ["Active", "Suspended"][usize::try_from(facts["status"].as_u64().unwrap()).unwrap()];
            let agent = &verdict["agent"];
            assert_eq!((&facts["agent"], &facts["scope"]), (&agent["agentId"], &agent["operationalScope"]));
            assert_eq!(agent["status"], status);
        }
    }
}

/// Requests a verdict until it is no longer `provision`; returns the time of the last request that got one.
async fn last_provision(client: &Client, path: &str) -> Instant {
    let (mut last, mut said) = (Instant::now(), String::new());
    let changed = eventually("another verdict", PATIENCE, async || {
        let asked = Instant::now();
        let answer = client.get(path).await;
        let provisions = answer.status == 200 && answer.json()["decision"] == "provision";
        if provisions {
            last = asked;
        }
        let is_other = answer.status == 200 && !provisions;
        said = format!("{} {}", answer.status, answer.text);
        is_other.then_some(())
    })
    .await;
    changed.unwrap_or_else(|error| panic!("{error}: {said}"));
    last
}

/// Waits until an instance has a verdict of the snapshot with this decision.
async fn decides(client: &Client, path: &str, decision: &str) {
    wait_until("a verdict of the snapshot", PATIENCE, async || {
        let answer = client.get(path).await;
        answer.status == 200 && source(&answer) == "snapshot" && answer.json()["decision"] == decision
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_shows_at_every_instance_within_the_ttl_with_an_index_and_without() {
    let mut stage = StageGuard::with(|options| options.ttl(8)).await;
    let other = async || stage.another(|options| options).await.unwrap();
    let others = [other().await, other().await];
    let clients = [stage.client.clone(), others[0].client(), others[1].client()];
    let late = FaultRule::on("eth_getLogs", NodeFault::LateLogs(Duration::from_secs(3)));
    for (name, fault) in [
        ("suspended early", None),
        ("suspended while logs are late", Some(late)),
        // A batch of two calls is refused as a whole.
        ("suspended while one in three calls fails", Some(FaultRule::any(NodeFault::Refuse).every(3))),
        ("suspended without an index", None),
    ] {
        let id = register(&stage.chain, name, "suspended", 0).await;
        let path = e2e::seed::kya(name);
        for client in &clients {
            decides(client, &path, "provision").await;
        }
        if name.ends_with("index") {
            stage.kill_index();
        }
        fault.into_iter().for_each(|rule| stage.proxy.inject(rule));
        suspend(&stage.chain, id).await;
        let suspended = Instant::now();
        let asking = clients.iter().map(|client| last_provision(client, &path));
        for last in join_all(asking).await {
            let late = last.saturating_duration_since(suspended);
            assert!(late < TTL + Duration::from_secs(2), "{name}: {late:?}");
        }
        stage.proxy.heal();
    }
    let (client, path) = (&stage.client, kya(wallet(2)));
    wait_until("a verdict of the chain", PATIENCE, async || {
        let answer = client.get(&path).await;
        assert_eq!(answer.ok()["decision"], "provision");
        source(&answer) == "chain"
    })
    .await;

    // The chain does not answer either: once its TTL is over, no verdict is given.
    stage.proxy.inject(FaultRule::any(NodeFault::Refuse));
    let cut = Instant::now();
    let mut last = cut;
    wait_until("an error", PATIENCE, async || {
        let asked = Instant::now();
        let status = client.get(&path).await.status;
        if status == 200 {
            last = asked;
        }
        status == 500
    })
    .await;
    assert!(last - cut < TTL + Duration::from_secs(1), "{:?}", last - cut);
    assert_eq!(client.get(&kya(wallet(3))).await.status, 500);
    stage.proxy.heal();
    stage.restart_index().await.unwrap();
    has_snapshot(&stage.client).await;
    decides(&stage.client, &e2e::seed::kya("suspended without an index"), "request_renewal").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_within_their_ttl_answer_however_many_refreshes_fail() {
    // The alarm refreshes every second and a half, and refused work fails within a second.
    let settings =
        |options: WorkerOptions| options.ttl(60).var("AGENT_TTL_SECONDS", 2).var("RPC_DEADLINE_SECONDS", 1);
    let stage = StageGuard::with(settings).await;
    let other = async || stage.another(|options| options).await.unwrap();
    let others = [other().await, other().await];
    is_of_newest_block(&stage, &stage.client).await;
    // Imitates an hour without changes: refreshes that find nothing are not stored.
    let hour_ago = "json_extract(value, '$.readAt') - 3600000";
    let read = format!("UPDATE meta SET value = json_set(value, '$.readAt', {hour_ago}) WHERE key = 'state'");
    assert_eq!(stored(&stage, "meta").execute(&read, []).unwrap(), 1);
    stage.proxy.reset();
    let answered = || stage.proxy.log().iter().filter(|post| post.answer.get().is_some()).count();
    wait_until("refreshed", PATIENCE, async || answered() > 1).await;
    let failures = || stage.index_log().matches("index not kept up").count();
    let mut failed = failures();
    stage.proxy.inject(FaultRule::any(NodeFault::Refuse));
    for (number, other) in (1..).zip(&others) {
        wait_until("a refresh that fails", PATIENCE, async || failures() > failed).await;
        failed = failures();
        // Retries where a busy machine's object was late: the chain, which is asked then, refuses. The limit
        // is shorter than the TTL.
        wait_until("a verdict of the snapshot", Duration::from_secs(20), async || {
            let answer = other.client().get(&kya(wallet(number))).await;
            (answer.status, source(&answer)) == (200, "snapshot")
        })
        .await;
    }
}
