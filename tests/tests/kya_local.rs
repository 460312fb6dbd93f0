//! The registry held by clients themselves: downloads of the snapshot, and the crate that keeps them.
//!
//! 1. Shards never change, come compressed to clients that take that, and several at a time; each request
//!    counts as one.
//! 2. A `LocalKya` has the chain's verdicts without the API, also right after a restart; its next update has
//!    a suspension.
//! 3. With the API away it gives its verdicts for as long as they may be old, and then none.
//! 4. An API that lies about one agent is caught by spot checks, with the evidence.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::time::{Duration, Instant};

use alloy::primitives::{Address, B256};
use e2e::anvil::{AnvilOptions, CHAIN_ID, wall_clock};
use e2e::chain::Chain;
use e2e::http;
use e2e::process::wait_until;
use e2e::seed;
use e2e::stage::Stage;
use kya_local::{Decision, Error, Event, LocalKya, Options, SpotCheck, SpotChecks};
use registry_core::evidence::{self, Expected};
use registry_core::registry::agent::Status;
use registry_core::snapshot::{
    Bundle, Facts, Identity, Manifest, Shard, ShardEntry, bundle_names, parse_bundle_names, read_bundle,
};
use reqwest::Response;
use reqwest::header::ACCEPT_ENCODING;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

const WAIT: Duration = Duration::from_secs(90);
const AGENTS: u64 = 24;

fn wallet(id: u64) -> Address {
    seed::wallet(&format!("agent {id}")).address()
}

/// A chain with agents, one of them suspended, and a stage on it, once it has a snapshot.
async fn stage() -> Stage {
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await.unwrap();
    for id in 1..=AGENTS {
        let call = seed::registration_call(id, wallet(id), &format!("Agent {id}"), 0);
        chain.send(chain.owner(), call).await.unwrap();
    }
    chain.send(chain.owner(), seed::suspension(2, "for a test")).await.unwrap();
    let stage = Stage::indexed(chain, |options| options.var("RATE_LIMIT_PER_MINUTE", 10_000)).await.unwrap();
    wait_until("the snapshot", WAIT, async || {
        let ready = stage.client.get("/readyz").await;
        ready.status == 200 && ready.json()["kyaSource"] == "snapshot"
    })
    .await;
    stage
}

async fn get(stage: &Stage, path: &str, coding: &str) -> Response {
    let request = http::client(WAIT).get(format!("{}{path}", stage.worker.url()));
    request.header(ACCEPT_ENCODING, coding).send().await.unwrap()
}

fn header(response: &Response, name: &str) -> String {
    let value = response.headers().get(name);
    value.map_or(String::new(), |value| value.to_str().unwrap().to_owned())
}

async fn manifest(stage: &Stage) -> Manifest {
    let response = get(stage, "/api/v1/snapshot", "identity").await;
    Manifest::parse(&response.bytes().await.unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn shards_never_change_come_compressed_and_several_at_a_time() {
    let stage = stage().await;
    let manifest = manifest(&stage).await;
    let entry = manifest.shards()[0];
    let name = entry.name();
    let alone = format!("/api/v1/snapshot/{}?v={}", entry.range_text(), entry.version_text());
    let several = format!("/api/v1/snapshot/shards?names={name},{name}");
    for (path, shards) in [(&alone, 1), (&several, 2)] {
        let plain = get(&stage, path, "identity").await;
        assert_eq!((plain.status().as_u16(), header(&plain, "content-encoding")), (200, String::new()));
        let caching = header(&plain, "cache-control");
        assert_eq!(caching, "public, max-age=86400, immutable");
        assert!(header(&plain, "vary").contains("Accept-Encoding"));
        let plain = plain.bytes().await.unwrap();
        let compressed = get(&stage, path, "gzip").await;
        assert_eq!(header(&compressed, "content-encoding"), "gzip", "{path}");
        let compressed = compressed.bytes().await.unwrap();
        assert!(compressed.len() < plain.len() * 9 / 10, "{} of {}", compressed.len(), plain.len());
        let mut inflated = Vec::new();
        flate2::read::GzDecoder::new(&compressed[..]).read_to_end(&mut inflated).unwrap();
        assert_eq!(inflated, plain);
        let given = match shards {
            1 => vec![Some(&plain[..])],
            count => read_bundle(&plain, count).unwrap(),
        };
        assert_eq!(given.len(), shards);
        for shard in given {
            let shard = Shard::parse(shard.unwrap().to_vec(), &manifest.identity, entry).unwrap();
            assert_eq!(shard.len() as u64, AGENTS);
        }
    }
    let compressed = get(&stage, "/api/v1/snapshot", "gzip").await;
    assert_eq!(header(&compressed, "content-encoding"), "gzip");

    // One that the manifest does not name is not given, and then the answer is not for ever.
    let mut old = entry;
    old.version.tag ^= 1;
    let names = bundle_names(&[old, entry]);
    let partial = get(&stage, &format!("/api/v1/snapshot/shards?names={names}"), "identity").await;
    assert_eq!(header(&partial, "cache-control"), "no-store");
    let partial = partial.bytes().await.unwrap();
    let partial = read_bundle(&partial, 2).unwrap();
    assert!(partial[0].is_none() && partial[1].is_some());
    let none = format!("/api/v1/snapshot/shards?names={}", bundle_names(&[old]));
    stage.client.get(&none).await.failed(404, "NOT_FOUND");
    for bad in ["", "?names=", "?names=x", &format!("?names={}", bundle_names(&[entry; 33]))] {
        let refused = stage.client.get(&format!("/api/v1/snapshot/shards{bad}")).await;
        assert!(refused.failed(400, "INVALID_PARAMETER").contains("up to 32 shards"));
    }

    // Each counts as one request, however many shards it has.
    let paths = ["/api/v1/snapshot", &alone, &several];
    wait_until("requests of one window", WAIT, async || {
        let mut seen = Vec::new();
        for path in paths {
            let answer = get(&stage, path, "identity").await;
            seen.push((header(&answer, "x-ratelimit-reset"), header(&answer, "x-ratelimit-remaining")));
        }
        let (windows, left): (Vec<String>, Vec<String>) = seen.into_iter().unzip();
        if windows.iter().any(|window| *window != windows[0]) {
            return false;
        }
        let left: Vec<u64> = left.iter().map(|left| left.parse().unwrap()).collect();
        assert!(left.is_sorted_by(|one, next| *next == one - 1), "{left:?}");
        true
    })
    .await;
}

fn options(stage: &Stage, api: &str, directory: &TempDir) -> Options {
    let registry = stage.chain.contracts.registry;
    Options::new(api, CHAIN_ID, registry, directory.path().join("registry.kya"))
}

/// A verdict without what changes with the clock.
fn timeless(mut verdict: Value) -> Value {
    verdict.as_object_mut().unwrap().remove("checkedAt");
    verdict
}

async fn has_the_apis_verdicts(local: &LocalKya, stage: &Stage) {
    for wallet in (1..=AGENTS).map(wallet).chain((1..9).map(Address::repeat_byte)) {
        let verdict = serde_json::to_value(local.kya(wallet).unwrap()).unwrap();
        let expected = stage.client.get(&format!("/api/v1/kya/{wallet}")).await.ok();
        assert_eq!(timeless(verdict), timeless(expected));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_local_registry_has_the_chains_verdicts_without_the_api_and_none_that_is_too_old() {
    let mut stage = stage().await;
    let directory = TempDir::new().unwrap();
    let url = stage.worker.url().to_owned();
    let local = LocalKya::open(options(&stage, &url, &directory)).unwrap();
    local.update().await.unwrap();
    has_the_apis_verdicts(&local, &stage).await;

    // Its next updates have a suspension, as soon as the API has it.
    stage.chain.send(stage.chain.owner(), seed::suspension(5, "for a test")).await.unwrap();
    let (began, wallet_of_5) = (Instant::now(), wallet(5));
    wait_until("the suspension", WAIT, async || {
        local.update().await.unwrap();
        local.kya(wallet_of_5).unwrap().decision == Decision::RequestRenewal
    })
    .await;
    println!("a suspension is held {:?} after its block", began.elapsed());

    // The API is away: verdicts last for as long as they may.
    drop(local);
    stage.worker.process().kill();
    let mut of_old = options(&stage, &url, &directory);
    let local = LocalKya::open(of_old.clone()).unwrap();
    assert_eq!(local.kya(wallet_of_5).unwrap().decision, Decision::RequestRenewal);
    assert!(matches!(local.update().await, Err(Error::Unreachable(_))));
    let age = local.age().unwrap();
    drop(local);
    of_old.max_age = age + Duration::from_secs(2);
    let local = LocalKya::open(of_old).unwrap();
    wait_until("no verdict", WAIT, async || match local.kya(wallet(1)) {
        Ok(verdict) => {
            assert_eq!(verdict.decision, Decision::Provision);
            assert!(local.age().unwrap() < age + Duration::from_secs(3));
            false
        }
        Err(Error::Stale { age: Some(stale) }) => stale > age + Duration::from_secs(2),
        Err(error) => panic!("{error}"),
    })
    .await;
}

/// Serves what the Worker at `api` does, but for the status of one wallet's agent in shards. It ends with the
/// test.
async fn lying(api: String, identity: Identity, wallet: Address) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(lie(stream, api.clone(), identity, wallet));
        }
    });
    url
}

async fn lie(mut stream: TcpStream, api: String, identity: Identity, wallet: Address) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let path = head.split(' ').nth(1).unwrap();
    let truth = http::client(WAIT).get(format!("{api}{path}")).header(ACCEPT_ENCODING, "identity").send();
    let mut body = truth.await.unwrap().bytes().await.unwrap().to_vec();
    if let Some((_, names)) = path.split_once("?names=") {
        let entries = parse_bundle_names(names).unwrap();
        let mut bundle = Bundle::default();
        for (entry, bytes) in entries.iter().zip(read_bundle(&body, entries.len()).unwrap()) {
            let changed = bytes.map(|bytes| suspended(bytes, &identity, *entry, wallet));
            bundle.push(changed.as_deref());
        }
        body = bundle.into_bytes();
    }
    let head = format!("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
    stream.shutdown().await.unwrap();
}

/// A shard with another status of one wallet's agent, and a right seal.
fn suspended(bytes: &[u8], identity: &Identity, entry: ShardEntry, wallet: Address) -> Vec<u8> {
    let shard = Shard::parse(bytes.to_vec(), identity, entry).unwrap();
    let mut wallets: BTreeMap<_, _> = shard.wallets_of(entry.range).unwrap().into_iter().collect();
    if let Some(Facts::Known { agent: Some(agent), .. }) = wallets.get_mut(&wallet) {
        agent.status = Status::Suspended;
    }
    Shard::encode(identity, entry, &wallets).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_that_lies_about_one_agent_is_caught_by_spot_checks_with_the_evidence() {
    let stage = stage().await;
    let directories = [TempDir::new().unwrap(), TempDir::new().unwrap()];
    let spot_checks = Some(SpotChecks {
        rpc: stage.chain.node.url().to_owned(),
        every: Duration::from_millis(10),
        layout: None,
    });
    let honest =
        Options { spot_checks: spot_checks.clone(), ..options(&stage, stage.worker.url(), &directories[0]) };
    let local = LocalKya::open(honest).unwrap();
    local.update().await.unwrap();
    for wallet in (1..=AGENTS).map(wallet).chain((1..5).map(Address::repeat_byte)) {
        let check = local.spot_check(wallet).await.unwrap();
        assert!(matches!(check, SpotCheck::Agrees(checked) if checked == wallet), "{check:?}");
    }

    let registry = stage.chain.contracts.registry;
    let identity = Identity { chain_id: CHAIN_ID, registry };
    let liar = lying(stage.worker.url().to_owned(), identity, wallet(7)).await;
    let local = LocalKya::open(Options { spot_checks, ..options(&stage, &liar, &directories[1]) }).unwrap();
    local.update().await.unwrap();
    assert_eq!(
        local.kya(wallet(7)).unwrap().decision,
        Decision::RequestRenewal,
        "a lie is believed at first"
    );
    let (mut checks, mut found) = (0, None);
    let asking = async {
        // As a provider asks: all wallets, again and again.
        for id in (1..=AGENTS).cycle() {
            local.kya(wallet(id)).unwrap();
            tokio::task::yield_now().await;
        }
    };
    let watching = async {
        let (sender, mut events) = tokio::sync::mpsc::unbounded_channel();
        let running = local.run(|event| sender.send(event).unwrap());
        let looking = async {
            while let Some(event) = events.recv().await {
                match event {
                    Event::Checked(SpotCheck::Contradicts(contradiction)) => {
                        found = Some(contradiction);
                        return;
                    }
                    Event::Checked(SpotCheck::Agrees(_)) => checks += 1,
                    Event::Updated(_) => {}
                    Event::UpdateFailed(error) | Event::CheckFailed(error) => panic!("{error}"),
                }
            }
        };
        tokio::select! { _ = running => {}, () = looking => {} }
    };
    tokio::time::timeout(WAIT, async {
        tokio::select! { () = asking => {}, () = watching => {} }
    })
    .await
    .unwrap();
    let found = found.unwrap();
    println!("caught by spot check {} of {AGENTS} wallets that are asked for in turn", checks + 1);
    assert_eq!(found.wallet, wallet(7));
    assert_eq!((found.held.decision, found.proved.decision), (Decision::RequestRenewal, Decision::Provision));
    // The document proves the chain's word, by the block's hash.
    let number = format!("{:#x}", found.held.as_of.block_number);
    let block: Value =
        stage.chain.node.request("eth_getBlockByNumber", json!([number, false])).await.unwrap();
    let block_hash: B256 = block["hash"].as_str().unwrap().parse().unwrap();
    let expected = Expected {
        block_hash: Some(block_hash),
        chain_id: Some(CHAIN_ID),
        registry: Some(registry),
        wallet: Some(wallet(7)),
        layout: None,
    };
    let proved = evidence::verify(&found.evidence, &expected).unwrap();
    assert_eq!(proved.verdict, found.proved);
}
