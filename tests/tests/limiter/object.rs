//! Two instances that ask one Durable Object per client.
//!
//! The second instance is a Worker that binds to the first one's objects by `script_name`, as in production.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use e2e::client::Client;
use e2e::process::wait_until;
use e2e::repo;
use e2e::worker::{Worker, WorkerOptions};
use serde_json::json;
use tempfile::TempDir;

use super::{LIMIT, PATH, at_once, ip, limited, remaining, use_up, with_time_left};

/// The Worker's name in `wrangler.toml`.
const NAME: &str = "agent-registry-edge";

/// Options of a Worker with the same code and the objects of the Worker `script`; and its directory.
async fn bound_to(script: &str) -> (WorkerOptions, TempDir) {
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("wrangler.json");
    let main: PathBuf = repo::root().join("edge-api/build/worker/shim.mjs");
    let wrangler = json!({
        "name": "second-instance",
        "main": main,
        "compatibility_date": "2026-04-01",
        "durable_objects": {"bindings": [
            {"name": "CLIENT_LIMITS", "class_name": "ClientLimit", "script_name": script}
        ]},
    });
    fs::write(&config, wrangler.to_string()).unwrap();
    let mut options = limited("durable-object").await;
    options.config = Some(config);
    (options, directory)
}

/// Two Workers and one count.
struct Pair {
    owner: Worker,
    other: Worker,
    /// What the owner was started with, to start it again.
    owner_options: WorkerOptions,
    _directories: [TempDir; 2],
}

impl Pair {
    async fn start() -> Self {
        let registry = TempDir::new().unwrap();
        let mut owner_options = limited("durable-object").await;
        owner_options.registry = Some(registry.path().to_owned());
        let owner = Worker::start(owner_options.clone()).await.unwrap();
        let (mut options, directory) = bound_to(NAME).await;
        options.registry = Some(registry.path().to_owned());
        let other = Worker::start(options).await.unwrap();
        let pair = Self { owner, other, owner_options, _directories: [registry, directory] };
        pair.find_one_another().await;
        pair
    }

    /// The client at that address, to each of the two.
    fn client(&self, address: &str) -> [Client; 2] {
        [&self.owner, &self.other].map(|worker| worker.client().at(ip(address)))
    }

    /// Waits until the two share one count. Every attempt is a client of its own.
    async fn find_one_another(&self) {
        let mut attempt = 0;
        wait_until("one count", Duration::from_secs(30), async || {
            attempt += 1;
            let [owner, other] = self.client(&format!("2001:db8:51:{attempt:x}::1"));
            remaining(&other, PATH).await == LIMIT - 1 && remaining(&owner, PATH).await == LIMIT - 2
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_300_requests_over_two_instances_exactly_60_pass() {
    let pair = Pair::start().await;
    let clients = pair.client("192.0.2.51");
    with_time_left(30).await;
    // Forty by turns, so that both have a part in the count; the rest at once.
    let mut answers = Vec::new();
    for client in clients.iter().cycle().take(40) {
        answers.push(client.get(PATH).await);
    }
    answers.extend(at_once(260, &clients).await);
    let mut left: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 200)
        .map(|answer| answer.number("x-ratelimit-remaining"))
        .collect();
    println!("of 300 requests over two instances, limit {LIMIT}: {} pass", left.len());
    left.sort_unstable();
    assert_eq!(left, (0..LIMIT).collect::<Vec<_>>(), "each admitted request has a place of its own");
    assert_eq!(answers.iter().filter(|answer| answer.status == 429).count(), 240);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_lost_its_count_takes_it_up_from_the_instance_that_asks() {
    let mut pair = Pair::start().await;
    let address = "192.0.2.52";
    with_time_left(45).await;
    let [_, other] = pair.client(address);
    for left in (LIMIT - 30..LIMIT).rev() {
        assert_eq!(remaining(&other, PATH).await, left);
    }
    let options = pair.owner_options.clone();
    pair.owner.process().kill();
    pair.owner = Worker::start(options).await.unwrap();
    pair.find_one_another().await;
    let [owner, other] = pair.client(address);
    assert_eq!(remaining(&other, PATH).await, LIMIT - 31);
    assert_eq!(remaining(&owner, PATH).await, LIMIT - 32, "and the owner has it from the object");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_object_cannot_be_reached_an_instance_counts_by_itself() {
    let (options, _directory) = bound_to("missing").await;
    let mut worker = Worker::start(options).await.unwrap();
    let client = worker.client().at(ip("192.0.2.53"));
    with_time_left(30).await;
    use_up(&client).await;
    let failed = async |log: &str| log.contains("rate limit object failed").then_some(());
    worker.process().until("failed to ask", Duration::from_secs(10), failed).await.unwrap();
}
