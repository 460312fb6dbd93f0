//! Verdicts from the registry's snapshot, which the index keeps.
//!
//! 1. A cold wallet, registered or not, takes no RPC call, and its verdict is the chain's; lists, too.
//! 2. A suspension shows at every instance within the TTL of verdicts.
//! 3. Where the index is away, or the chain does not answer, verdicts come from the chain or are errors, and
//!    none is older than the TTL.
//! 4. A range holds the verdicts on all its wallets, and is the same for each that asks.
//! 5. Manifest and shards are served as documented.
//! 6. What a snapshot cannot tell is the chain's: evidence, past blocks.
//! 7. What an instance holds in memory grows with the shards that are asked for, and not with the wallets.

use std::time::{Duration, Instant};

use alloy::primitives::{Address, keccak256};
use e2e::anvil::{AnvilOptions, wall_clock};
use e2e::chain::Chain;
use e2e::client::{Answer, Client};
use e2e::fault::{Fault, Rule};
use e2e::load::CONNECTIONS;
use e2e::process::wait_until;
use e2e::repo;
use e2e::seed;
use e2e::server::{Bundles, Distance, Kind, Server};
use e2e::stage::Stage;
use e2e::worker::{Worker, WorkerOptions};
use futures_util::stream::{self, StreamExt as _};
use registry_core::eth::abi::IAgentRegistry::reactivateAgentCall;
use serde_json::{Value, json};

const WAIT: Duration = Duration::from_secs(90);
const AGENTS: u64 = 24;

fn wallet(id: u64) -> Address {
    seed::wallet(&format!("agent {id}")).address()
}

fn kya(wallet: Address) -> String {
    format!("/api/v1/kya/{wallet}")
}

/// A chain with agents, every third a child of the one before, one of them suspended.
async fn chain() -> Chain {
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await.unwrap();
    for id in 1..=AGENTS {
        let parent = if id % 3 == 0 { id - 1 } else { 0 };
        let call = seed::registration_call(id, wallet(id), &format!("Agent {id}"), parent);
        chain.send(chain.owner(), call).await.unwrap();
    }
    chain.send(chain.owner(), seed::suspension(2, "for a test")).await.unwrap();
    chain
}

/// A stage with an index, once verdicts come from its snapshot.
async fn stage(kya_ttl: u64) -> Stage {
    let stage =
        Stage::indexed(chain().await, |options| options.var("KYA_TTL_SECONDS", kya_ttl)).await.unwrap();
    usable(&stage.client).await;
    stage
}

async fn usable(client: &Client) {
    wait_until("the snapshot", WAIT, async || {
        let ready = client.get("/readyz").await;
        ready.status == 200 && ready.json()["kyaSource"] == "snapshot"
    })
    .await;
}

fn source(answer: &Answer) -> &str {
    answer.header("server-timing").trim_start_matches("source;desc=").trim_matches('"')
}

/// A verdict without what changes with the clock.
fn timeless(mut verdict: Value) -> Value {
    match verdict.get_mut("data") {
        Some(items) => {
            items.as_array_mut().unwrap().iter_mut().for_each(|item| *item = timeless(item.take()))
        }
        None => {
            verdict.as_object_mut().unwrap().remove("checkedAt");
        }
    }
    verdict
}

#[tokio::test(flavor = "multi_thread")]
async fn cold_wallets_take_no_rpc_call_and_have_the_chains_verdicts() {
    let stage = stage(60).await;
    let by_chain = stage.another(|options| options.var("KYA_SOURCE", "chain")).await.unwrap().unwrap();
    let by_chain = by_chain_found(&by_chain).await;
    let unknown = (1..=8_u8).map(Address::repeat_byte);
    let wallets: Vec<Address> = (1..=AGENTS).map(wallet).chain(unknown).collect();
    for wallet in &wallets {
        let answer = stage.client.get(&kya(*wallet)).await;
        assert_eq!((source(&answer), answer.header("x-cache")), ("snapshot", "HIT"), "{}", answer.text);
        let chains = by_chain.get(&format!("{}?history=1", kya(*wallet))).await;
        assert_eq!(source(&chains), "chain");
        assert_eq!(timeless(answer.ok()), timeless(chains.ok()), "{wallet}");
        let age =
            answer.header("cache-control").trim_start_matches("public, max-age=").parse::<u64>().unwrap();
        assert!((1..=60).contains(&age), "{age}");
    }
    let lines = stage.worker.lines_with("\"source\":\"snapshot\"", wallets.len()).await.unwrap();
    assert!(lines.iter().all(|line| line.contains("\"rpcCalls\":0")), "{lines:#?}");

    let body =
        json!({ "wallets": wallets.iter().map(Address::to_string).chain(["me".into()]).collect::<Vec<_>>() });
    let answer = stage.client.post("/api/v1/kya", "application/json", body.to_string()).await;
    assert_eq!(
        (source(&answer), answer.ok()["total"].as_u64()),
        ("snapshot", Some(wallets.len() as u64 + 1))
    );
    for (item, wallet) in answer.json()["data"].as_array().unwrap().iter().zip(&wallets) {
        let alone = stage.client.get(&kya(*wallet)).await.ok();
        assert_eq!(timeless(item.clone()), timeless(alone));
    }
    assert_eq!(answer.json()["data"][wallets.len()]["code"], "INVALID_PARAMETER");

    // What a snapshot cannot tell.
    for query in ["?block=3", "?evidence=1"] {
        let answer = stage.client.get(&format!("{}{query}", kya(wallet(1)))).await;
        assert_eq!(answer.header("x-cache"), "MISS", "{query}: {}", answer.text);
    }
}

/// A client of a Worker that takes verdicts from the chain, once it finds the index.
async fn by_chain_found(worker: &Worker) -> Client {
    let client = worker.client();
    wait_until("the index", WAIT, async || client.get("/readyz").await.json()["index"].is_object()).await;
    assert_eq!(client.get("/readyz").await.json()["kyaSource"], "chain");
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn a_range_tells_all_its_wallets_and_is_the_same_for_each_of_them() {
    let stage = stage(60).await;
    let mut total = 0;
    for digit in 0..16 {
        let range = stage.client.get(&format!("/api/v1/kya/range/{digit:x}")).await;
        assert_eq!(source(&range), "snapshot");
        total += range.ok()["total"].as_u64().unwrap();
        assert_eq!(range.ok()["prefixDigitsMax"], 1);
        assert!(range.header("etag").starts_with("W/"));
    }
    assert_eq!(total, AGENTS);
    for id in 1..=AGENTS {
        let digit = &keccak256(wallet(id)).to_string()[2..3];
        let range = stage.client.get(&format!("/api/v1/kya/range/{digit}")).await.ok();
        let expected = stage.client.get(&kya(wallet(id))).await.ok();
        let found = range["data"].as_array().unwrap().iter().find(|kya| kya["wallet"] == expected["wallet"]);
        assert_eq!(timeless(found.unwrap().clone()), timeless(expected));
    }
    let upper = stage.client.get("/api/v1/kya/range/A").await;
    assert_eq!(upper.text, stage.client.get("/api/v1/kya/range/a").await.text);
    let longer = stage.client.get("/api/v1/kya/range/abc").await.failed(400, "INVALID_PARAMETER");
    assert!(longer.contains("must have 1 hex digit now"), "{longer}");
    let odd = stage.client.get("/api/v1/kya/range/xyz").await.failed(400, "INVALID_PARAMETER");
    assert!(odd.contains("1 to 6 hex digits"), "{odd}");
}

/// The program of `docs/snapshot.md`, run by Node on what the API serves.
#[tokio::test(flavor = "multi_thread")]
async fn the_documented_reader_reads_what_is_served() {
    let stage = stage(60).await;
    let guide = std::fs::read_to_string(repo::root().join("docs/snapshot.md")).unwrap();
    let reader = guide.split("```js\n").nth(1).unwrap().split("```").next().unwrap();
    assert!(reader.lines().count() <= 60, "{} lines", reader.lines().count());
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
          const bytes = getBytes(wallet), shard = shardOf(manifest, bytes);
          const hex = (number, digits) => number.toString(16).padStart(digits, "0");
          const path = `/api/v1/snapshot/${hex(shard.start, 12)}${hex(shard.bits, 2)}?v=${hex(shard.block, 16)}${hex(shard.tag, 8)}`;
          const facts = find(manifest, shard, await read(path), bytes);
          console.log(JSON.stringify(facts, (_, value) => (typeof value === "bigint" ? Number(value) : value)));
        }"#;
    let wallets: Vec<String> =
        (1..=AGENTS).map(wallet).chain([Address::repeat_byte(9)]).map(|it| it.to_string()).collect();
    let head = format!("const API = {:?}, WALLETS = {wallets:?};", stage.client.base());
    let script = repo::root().join("target/snapshot-reader.mjs");
    std::fs::write(&script, [&head, reader, own].join("\n")).unwrap();
    let node = tokio::process::Command::new("node").arg(&script).output().await.unwrap();
    assert!(node.status.success(), "{}", String::from_utf8_lossy(&node.stderr));
    let read: Vec<Value> = String::from_utf8(node.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(read.len(), wallets.len());
    for (facts, wallet) in read.iter().zip(&wallets) {
        let verdict = stage.client.get(&format!("/api/v1/kya/{wallet}")).await.ok();
        assert_eq!(facts["registered"], verdict["isRegistered"], "{facts}");
        if facts["registered"] == true {
            let status = ["Active", "Suspended"][facts["status"].as_u64().unwrap() as usize];
            let agent = &verdict["agent"];
            assert_eq!((&facts["agent"], &facts["scope"]), (&agent["agentId"], &agent["operationalScope"]));
            assert_eq!(agent["status"], status);
        }
    }
    let old = stage.client.get("/api/v1/snapshot/00000000000000?v=000000000000000100000000").await;
    old.failed(404, "NOT_FOUND");
    stage.client.get("/api/v1/snapshot/00000000000000").await.failed(400, "INVALID_PARAMETER");
}

/// Asks until the verdict is no `provision` any more, and gives when the last one came.
async fn last_provision(client: Client, path: String) -> Instant {
    let mut last = Instant::now();
    let patience = Instant::now() + WAIT;
    while Instant::now() < patience {
        let answer = client.get(&path).await;
        if answer.status == 200 && answer.json()["decision"] == "provision" {
            last = Instant::now();
        } else if answer.status == 200 {
            return last;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{path} is still served");
}

const SHORT_TTL: u64 = 8;

#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_shows_at_every_instance_within_the_ttl() {
    let stage = stage(SHORT_TTL).await;
    let others = [
        stage.another(|options| options).await.unwrap().unwrap(),
        stage.another(|options| options).await.unwrap().unwrap(),
    ];
    let clients = [stage.client.clone(), others[0].client(), others[1].client()];
    for client in &clients {
        usable(client).await;
    }
    let mut longest = Duration::ZERO;
    for (round, id) in [1, 4, 5, 7].into_iter().enumerate() {
        for client in &clients {
            wait_until("a verdict of the snapshot", WAIT, async || {
                let answer = client.get(&kya(wallet(id))).await;
                answer.ok()["decision"] == "provision" && source(&answer) == "snapshot"
            })
            .await;
        }
        // At another time of the manifest's life each round.
        tokio::time::sleep(Duration::from_millis(round as u64 * 700)).await;
        let suspended = Instant::now();
        stage.chain.send(stage.chain.owner(), seed::suspension(id, "for a test")).await.unwrap();
        let asking = clients.clone().map(|client| tokio::spawn(last_provision(client, kya(wallet(id)))));
        for asking in asking {
            longest = longest.max(asking.await.unwrap().saturating_duration_since(suspended));
        }
        stage.chain.send(stage.chain.owner(), reactivation(id)).await.unwrap();
    }
    println!("the last provision {longest:?} after its suspension, TTL {SHORT_TTL} s");
    assert!(longest < Duration::from_secs(SHORT_TTL + 1), "{longest:?}");
}

fn reactivation(id: u64) -> reactivateAgentCall {
    reactivateAgentCall { agentId: alloy::primitives::U256::from(id) }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_index_or_the_chain_there_is_no_old_verdict() {
    let mut stage = stage(SHORT_TTL).await;
    let path = kya(wallet(1));
    assert_eq!(source(&stage.client.get(&path).await), "snapshot");
    stage.kill_index();
    let suspended = Instant::now();
    stage.chain.send(stage.chain.owner(), seed::suspension(1, "for a test")).await.unwrap();
    let last = last_provision(stage.client.clone(), path.clone()).await;
    assert!(last.saturating_duration_since(suspended) < Duration::from_secs(SHORT_TTL + 1));
    let answer = stage.client.get(&path).await;
    assert_eq!((source(&answer), answer.ok()["decision"].as_str()), ("chain", Some("request_renewal")));
    assert_eq!(stage.client.get(&kya(wallet(4))).await.ok()["decision"], "provision");

    // The chain does not answer, either: once its TTL is over, no verdict is given.
    stage.proxy.inject(Rule::any(Fault::Refuse));
    let cut = Instant::now();
    wait_until("an error", WAIT, async || stage.client.get(&path).await.status == 500).await;
    assert!(cut.elapsed() < Duration::from_secs(SHORT_TTL + 20), "{:?}", cut.elapsed());
    assert_eq!(stage.client.get(&kya(wallet(7))).await.status, 500);
    stage.proxy.heal();
    stage.restart_index().await.unwrap();
    usable(&stage.client).await;
    wait_until("the snapshot's verdict", WAIT, async || {
        let answer = stage.client.get(&path).await;
        answer.status == 200
            && source(&answer) == "snapshot"
            && answer.json()["decision"] == "request_renewal"
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_memory_of_an_instance_does_not_grow_with_the_wallets_that_are_asked_for() {
    const WALLETS: u64 = 9_000;
    /// Twice what answers may take that are kept to be given again.
    const MOST: u64 = 8 * 1024 * 1024;

    let chain = chain().await;
    let bundles = Bundles::make(&[Kind::Worker, Kind::Indexed], None).await.unwrap();
    let options = WorkerOptions::new(chain.node.url(), chain.contracts.registry)
        .var("CHAIN_ID", 31_337)
        .var("INDEX", "durable-object");
    let distance = Distance { millis: 1, rpc_url: chain.node.url() };
    let server = Server::start_apart(&bundles, &options, distance).await.unwrap();
    let client = server.client();
    usable(&client).await;
    let answered = async |numbers: std::ops::Range<u64>| {
        let verdict = |number: u64| {
            let client = &client;
            async move {
                let wallet = Address::from_word(keccak256(number.to_be_bytes()));
                let answer = client.get(&kya(wallet)).await;
                assert_eq!((answer.ok()["decision"].as_str(), source(&answer)), (Some("deny"), "snapshot"));
            }
        };
        stream::iter(numbers.map(verdict)).buffer_unordered(CONNECTIONS).collect::<Vec<()>>().await;
    };
    answered(0..100).await;
    let [before, _] = server.memory().await.unwrap();
    answered(100..WALLETS).await;
    let [after, _] = server.memory().await.unwrap();
    assert!(after < before + MOST, "{before} bytes, and {after} after {WALLETS} wallets");
}
