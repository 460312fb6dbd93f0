//! Two instances that count a client's requests together, through one KV store.
//!
//! Locally the store is consistent at once; in production it lags by up to a minute more.

use std::fs;
use std::time::Duration;

use e2e::client::Client;
use e2e::worker::Worker;
use tempfile::TempDir;
use tokio::time::{MissedTickBehavior, interval};

use super::{LIMIT, PATH, assert_all_places_taken, at_once, ip, limited, with_time_left};

/// Number of requests of the measured client in a window, and the time that paced ones are spread over.
const REQUESTS: usize = 300;
const PACED: Duration = Duration::from_secs(20);

/// Returns a client at that address for each of two Workers.
fn client(workers: [&Worker; 2], address: &str) -> [Client; 2] {
    workers.map(|worker| worker.client().at(ip(address)))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_300_requests_over_two_instances_with_a_store_few_more_than_the_limit_pass() {
    let (state, mut options) = (TempDir::new().unwrap(), limited("kv").await);
    options.state = Some(state.path().to_owned());
    // The Workers start in turn: workerd does not start while another one creates the store's file.
    let one = Worker::start(options.clone()).await.unwrap();
    let two = Worker::start(options).await.unwrap();
    let workers = [&one, &two];
    with_time_left().await;
    let hurried = at_once(REQUESTS, &client(workers, "192.0.2.41")).await;
    let hurried = hurried.iter().filter(|answer| answer.status == 200).count();

    with_time_left().await;
    let clients = client(workers, "192.0.2.42");
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
async fn a_store_that_fails_costs_no_request_its_answer() {
    let (state, mut options) = (TempDir::new().unwrap(), limited("kv").await);
    options.state = Some(state.path().to_owned());
    let mut worker = Worker::start(options).await.unwrap();
    // The runtime opens the store on first use, and finds no directory for it.
    fs::remove_dir_all(state.path().join("kv")).unwrap();
    with_time_left().await;
    assert_all_places_taken(&at_once(70, &[worker.client().at(ip("192.0.2.46"))]).await);
    let failed = async |log: &str| log.contains("unable to open database file").then_some(());
    worker.process().until("failed to share", Duration::from_secs(60), failed).await.unwrap();
}
