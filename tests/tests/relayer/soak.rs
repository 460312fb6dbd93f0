//! A soak: many signers, a steady stream, and endpoints that are not at their best.
//!
//! Of two endpoints one knows only blocks of two seconds ago and loses every twentieth answer after the node
//! has done what it was asked. Every relay has to end in a documented way and to be executed at most once;
//! the budget has to count what the receipts say. `SOAK_RELAYS=10000 cargo test --test relayer soak:: --
//! --nocapture` is the long one, and prints what it measured.
//!
//! Memory follows the clients that wait at once, which the connection limit bounds, and not the relays of the
//! past. So the stream comes in two halves, each of which ends with nothing in flight: after the second the
//! daemon has no more memory than after the first, but for what more clients at once have needed.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use alloy::providers::Provider as _;
use e2e::anvil::AnvilOptions;
use e2e::chain::Chain;
use e2e::daemon::Daemon;
use e2e::fault::{Fault, Rule};
use e2e::process::eventually;
use e2e::proxy::Proxy;
use e2e::relay::{Desk, RelayClient, Signed, register};
use tokio::sync::Semaphore;
use tokio::time::{MissedTickBehavior, interval};

use crate::audit::{agent, relayer};

const PER_SECOND: u64 = 50;
/// Clients that wait at the same time at most. On a machine that is too busy for the stream it is slower
/// then, rather than to find out how many connections the kernel queues.
const CLIENTS: usize = 500;
const NONCES: u64 = 10;
/// How long the last relays may take once all are posted.
const SETTLE: Duration = Duration::from_secs(180);

/// What a client that waits costs the daemon at most, KiB: its connection's buffers and its relay's task, in
/// a build without optimisation.
const CLIENT_KIB: u64 = 100;
/// What else may come to memory in the second half, KiB: threads, caches of SQLite that fill up, the
/// allocator's fragments. In the long soak, relays that are kept whole (2.5 KB each) would exceed it.
const MARGIN_KIB: u64 = 8_000;

/// How a relay ended for its client.
type Ended = Mutex<BTreeMap<String, usize>>;

/// Waits for a relay as a client does: posts, and where the answer is 202 asks until there is an outcome.
async fn outcome(client: &RelayClient, request: &Signed) -> String {
    let answer = client.relay(request).await;
    match answer.status {
        200 => "executed".to_owned(),
        202 => {
            let deadline = Instant::now() + SETTLE;
            let mut pause = Duration::from_millis(500);
            loop {
                let state = client.state(request).await.ok()["state"].as_str().unwrap().to_owned();
                if state != "pending" {
                    return state;
                }
                assert!(Instant::now() < deadline, "{} does not end", request.id);
                // As a client should: thousands that ask twice a second would be the load that is measured.
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(8));
            }
        }
        _ => answer.json()["code"].as_str().unwrap_or_else(|| panic!("{}", answer.text)).to_owned(),
    }
}

/// The 50th and 99th percentile.
fn percentiles(mut times: Vec<Duration>) -> (Duration, Duration) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    (at(50), at(99))
}

/// Memory that the daemon itself has resident, without its program text and mapped files, KiB.
fn resident(daemon: &mut Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.process().id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// What the daemon needed for a part of the stream, once nothing of it was in flight any more.
#[derive(Debug)]
struct Memory {
    /// Resident afterwards, KiB.
    resident: u64,
    /// Clients that waited at the same time.
    most_clients: usize,
}

/// An endpoint that stands two seconds behind the node, for as long as the task runs.
fn lag(proxy: Arc<Proxy>, node: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let node = e2e::anvil::connect(&node).unwrap();
        let mut heads = Vec::new();
        let mut clock = interval(Duration::from_millis(200));
        loop {
            clock.tick().await;
            let head: alloy::primitives::U64 = node.raw_request("eth_blockNumber".into(), ()).await.unwrap();
            heads.push(head.to::<u64>());
            let behind = heads[heads.len().saturating_sub(11)];
            proxy.heal();
            proxy.inject(Rule::any(Fault::Stale { head: behind }));
        }
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_relays_through_endpoints_that_lag_and_lose_answers_ends_as_documented() {
    let relays: u64 = env::var("SOAK_RELAYS").map_or(200, |count| count.parse().unwrap());
    let chain =
        Chain::start(AnvilOptions { block_time: Some(Duration::from_secs(1)), ..AnvilOptions::default() })
            .await
            .unwrap();
    let desk = Desk::of(&chain);
    let lagging = Arc::new(Proxy::start(chain.node.url()).await.unwrap());
    let lossy = Proxy::start(lagging.url()).await.unwrap();
    let options = chain
        .daemon(&relayer())
        .var("RPC_URL", format!("{},{}", lossy.url(), chain.node.url()))
        .var("DAILY_GAS_BUDGET", 1_000)
        .var("RPC_TIMEOUT_SECONDS", 5)
        // The stream is faster than 16 in each block of a second.
        .var("MAX_PENDING_PER_KEY", 256)
        .var("LOG_LEVEL", "info");
    let mut daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let lag = lag(Arc::clone(&lagging), chain.node.url().to_owned());
    lossy.inject(Rule::any(Fault::LoseAnswer).every(20));

    // Each of a signer's requests registers one more wallet; its next comes once all others had their turn.
    let signers = relays.div_ceil(NONCES);
    let request = |index: u64| {
        let (signer, nonce) = (index % signers, index / signers);
        let wallet = agent(&format!("soak {signer} agent {nonce}")).address();
        desk.request(&agent(&format!("soak {signer}")), nonce, &register(wallet))
    };
    let requests: Arc<Vec<Signed>> = Arc::new((0..relays).map(request).collect());
    let ended: Arc<Ended> = Arc::default();

    let is_over = Arc::new(AtomicBool::new(false));
    let watcher = tokio::spawn({
        let (client, requests, is_over) = (client.clone(), Arc::clone(&requests), Arc::clone(&is_over));
        async move {
            let mut times: [Vec<Duration>; 3] = Default::default();
            let mut clock = interval(Duration::from_millis(100));
            clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for round in 0_usize.. {
                clock.tick().await;
                let request = &requests[round % requests.len()];
                let nonce = format!("/nonce/{}", request.signed.request.from);
                for (times, path) in
                    times.iter_mut().zip([format!("/relay/{}", request.id), nonce, "/status".to_owned()])
                {
                    let started = Instant::now();
                    let answer = client.get(&path).await;
                    assert!(
                        answer.status < 500 || answer.json()["code"] == "RPC_TIMEOUT",
                        "{path}: {}",
                        answer.text
                    );
                    times.push(started.elapsed());
                }
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
            times
        }
    });

    let started = Instant::now();
    let mut clock = interval(Duration::from_millis(1_000 / PER_SECOND));
    let room = Arc::new(Semaphore::new(CLIENTS));
    let (mut executed, mut memory, mut every_second) = (Vec::new(), Vec::new(), Vec::new());
    for half in requests.chunks(requests.len().div_ceil(2)) {
        let (mut clients, mut most_clients) = (Vec::new(), 0);
        for (index, request) in half.iter().enumerate() {
            clock.tick().await;
            if (index as u64).is_multiple_of(PER_SECOND) {
                every_second.push(resident(&mut daemon));
            }
            let (client, request, ended) = (client.clone(), request.clone(), Arc::clone(&ended));
            let place = Arc::clone(&room).acquire_owned().await.unwrap();
            most_clients = most_clients.max(CLIENTS - room.available_permits());
            clients.push(tokio::spawn(async move {
                let outcome = outcome(&client, &request).await;
                drop(place);
                *ended.lock().unwrap().entry(outcome.clone()).or_default() += 1;
                (request, outcome)
            }));
        }
        for client in clients {
            let (request, outcome) = client.await.unwrap();
            if outcome == "executed" {
                executed.push((request.signed.request.from, request.signed.request.nonce.to::<u64>(), true));
            }
        }
        eventually("settled", SETTLE, async || (client.depth().await == 0).then_some(())).await.unwrap();
        memory.push(Memory { resident: resident(&mut daemon), most_clients });
    }
    is_over.store(true, Ordering::Relaxed);
    let times = watcher.await.unwrap();
    lag.abort();
    println!("{relays} relays in {:.1} s: {:?}", started.elapsed().as_secs_f64(), ended.lock().unwrap());
    println!("resident, KiB, once a second: {every_second:?}");
    println!("resident, KiB, after each half: {memory:?}");
    for (path, times) in ["/relay/:id", "/nonce/:address", "/status"].iter().zip(times) {
        let (count, (p50, p99)) = (times.len(), percentiles(times));
        println!("{path}: p50 {p50:.1?}, p99 {p99:.1?} of {count}");
    }

    // Whatever a client was told, the chain has each request at most once, and all that were said to be
    // executed.
    let mut found = chain.executions().await.unwrap();
    found.sort_unstable();
    executed.sort_unstable();
    assert!(found.windows(2).all(|pair| pair[0] != pair[1]), "executed twice");
    assert_eq!(found, executed);
    assert_eq!(executed.len() as u64, relays, "{:?}", ended.lock().unwrap());
    let transactions = chain.transactions_of(options.relayer()).await.unwrap();
    let paid: u128 = transactions.values().map(|transaction| transaction.paid_wei).sum();
    assert_eq!(client.used_wei().await, paid, "the budget counts what was paid");

    let [first, second] = <[Memory; 2]>::try_from(memory).unwrap();
    let more_clients = second.most_clients.saturating_sub(first.most_clients);
    let allowed = first.resident + more_clients as u64 * CLIENT_KIB + MARGIN_KIB;
    assert!(second.resident <= allowed, "memory grows with the relays: {first:?}, then {second:?}");
}
