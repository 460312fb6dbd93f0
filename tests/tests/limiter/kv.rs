//! Two instances that share their counts through one KV store.
//!
//! Locally the store is one place and consistent at once; in production it is late by up to a minute more.

use std::fs;
use std::path::Path;
use std::time::Duration;

use e2e::client::Client;
use e2e::process::{Spawn, eventually, wait_until};
use e2e::repo;
use e2e::worker::Worker;
use serde_json::Value;
use tempfile::TempDir;
use tokio::sync::OnceCell;
use tokio::time::{MissedTickBehavior, interval};

use super::{LIMIT, PATH, at_once, ip, limited, use_up, with_time_left};

/// How many requests the measured client makes in a window, and over how long where it takes its time.
const REQUESTS: usize = 300;
const PACED: Duration = Duration::from_secs(20);

/// How long it may take to list what lies in the store.
const LISTED: Duration = Duration::from_secs(60);

/// Two Workers and where their store lies.
struct Pair {
    workers: [Worker; 2],
    state: TempDir,
}

impl Pair {
    /// The client at that address, to each of the two.
    fn client(&self, address: &str) -> [Client; 2] {
        self.workers.each_ref().map(|worker| worker.client().at(ip(address)))
    }
}

async fn pair() -> &'static Pair {
    static PAIR: OnceCell<Pair> = OnceCell::const_new();
    PAIR.get_or_init(async || {
        let state = TempDir::new().unwrap();
        let mut options = limited("kv").await;
        options.state = Some(state.path().to_owned());
        let (one, two) = tokio::join!(Worker::start(options.clone()), Worker::start(options));
        Pair { workers: [one.unwrap(), two.unwrap()], state }
    })
    .await
}

/// The keys of the store, as wrangler lists them; `None` where it fails.
async fn list(state: &Path) -> Option<Vec<Value>> {
    let mut list = Spawn::new("wrangler kv", repo::node_tool("wrangler").unwrap());
    let logs = list.scratch().join("logs");
    list = list
        .dir(repo::root())
        .args(["kv", "key", "list", "--binding", "RATE_COUNTERS", "--local", "--persist-to"])
        .arg(state)
        .env("CI", "true")
        .env("WRANGLER_SEND_METRICS", "false")
        .env("WRANGLER_LOG_PATH", logs);
    let mut list = list.start().unwrap();
    if !list.exited(LISTED).await.unwrap().success() {
        println!("{}", list.log_tail());
        return None;
    }
    let log = list.log();
    let keys = log.find('[').map_or("[]", |start| &log[start..]);
    Some(serde_json::from_str(keys).unwrap_or_else(|_| panic!("{log}")))
}

/// The counts of one client by any instance, under keys `window:client:instance`; listed again while a Worker
/// has the store's file locked.
async fn counts_of(state: &Path, address: &str) -> Vec<u64> {
    let keys = eventually("listed", LISTED, async || list(state).await).await.unwrap();
    let is_of_client = |key: &&Value| key["name"].as_str().unwrap().split(':').nth(1) == Some(address);
    keys.iter().filter(is_of_client).map(|key| key["metadata"].as_u64().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn of_300_requests_over_two_instances_few_more_than_the_limit_pass() {
    let pair = pair().await;
    with_time_left(30).await;
    let hurried = at_once(REQUESTS, &pair.client("192.0.2.41")).await;
    let hurried = hurried.iter().filter(|answer| answer.status == 200).count();

    with_time_left(30).await;
    let clients = pair.client("192.0.2.42");
    let mut clock = interval(PACED / u32::try_from(REQUESTS).unwrap());
    clock.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut paced = 0;
    for client in clients.iter().cycle().take(REQUESTS) {
        clock.tick().await;
        paced += usize::from(client.get(PATH).await.status == 200);
    }

    let limit = usize::try_from(LIMIT).unwrap();
    println!("of {REQUESTS} requests over two instances, limit {limit}:");
    println!("  {paced} pass when spread over {PACED:?}");
    println!("  {hurried} pass when sent at once");
    assert!((limit..=limit + limit / 2).contains(&paced), "{paced}");
    assert!((limit..=2 * limit).contains(&hurried), "{hurried}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_turned_to_later_refuses_after_a_few_requests() {
    let (pair, address) = (pair().await, "192.0.2.43");
    let [one, two] = pair.client(address);
    with_time_left(40).await;
    for _ in 0..LIMIT {
        one.get(PATH).await.ok();
    }
    wait_until("stored", Duration::from_secs(10), async || {
        counts_of(pair.state.path(), address).await == [LIMIT]
    })
    .await;
    // It reads the store after the fifth request and after the tenth.
    let mut admitted = 0;
    while two.get(PATH).await.status == 200 {
        admitted += 1;
        assert!(admitted < 15, "not refused after {admitted}");
    }
    assert!(admitted >= 5, "refused after {admitted}, before it can have listened");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_fewer_than_15_requests_is_never_written() {
    let pair = pair().await;
    let ([quiet, _], [busy, _]) = (pair.client("192.0.2.44"), pair.client("192.0.2.45"));
    with_time_left(30).await;
    for _ in 0..14 {
        quiet.get(PATH).await.ok();
    }
    for _ in 0..15 {
        busy.get(PATH).await.ok();
    }
    wait_until("the busy one is stored", Duration::from_secs(10), async || {
        counts_of(pair.state.path(), "192.0.2.45").await == [15]
    })
    .await;
    assert_eq!(counts_of(pair.state.path(), "192.0.2.44").await, [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_fails_costs_no_request_its_answer() {
    let state = TempDir::new().unwrap();
    let mut options = limited("kv").await;
    options.state = Some(state.path().to_owned());
    let mut worker = Worker::start(options).await.unwrap();
    // The runtime opens the store when it is first used, and finds no place for it.
    fs::remove_dir_all(state.path().join("v3/kv")).unwrap();

    let client = worker.client().at(ip("192.0.2.46"));
    with_time_left(20).await;
    use_up(&client).await;
    let failed = async |log: &str| log.contains("unable to open database file").then_some(());
    worker.process().until("failed to share", Duration::from_secs(10), failed).await.unwrap();
}
