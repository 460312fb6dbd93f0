//! The rate limit, sixty requests per client in each window, with Cloudflare's parts. The costs of requests
//! and the windows are tested in `core/src/host/rate_limit`. The window here is an hour, so that counts do
//! not depend on the time at which a test begins.
//!
//! 1. Of 200 requests at once exactly sixty are admitted; a client is known by the headers that Cloudflare
//!    sets, and by no other.
//! 2. All clients of one /48 of IPv6 share a further limit. A request that it refuses is counted nowhere.
//! 3. Two instances and one KV store: of 300 requests few more than sixty pass; the figures are printed. A
//!    store that fails costs no request its answer.
//! 4. Cloudflare's own limiter refuses requests that the instance's own count would admit, counts each client
//!    by itself, and counts a request by its cost.

mod shared;

use std::fs;
use std::net::IpAddr;
use std::time::Duration;

use e2e::anvil::wall_clock;
use e2e::client::{Client, HttpAnswer, concurrently};
use e2e::process::wait_until;
use e2e::repo;
use e2e::stage::WorkerStage;
use e2e::worker::{Worker, WorkerOptions};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::OnceCell;

const LIMIT: u64 = 60;
/// Window of these Workers, in seconds.
const WINDOW: u64 = 3_600;
/// Path that a Worker answers from its cache after the first request.
const PATH: &str = "/api/v1/stats";

/// Configures a Worker with the documented limit and this limiter; all of them share a chain.
async fn limited(limiter: &str) -> WorkerOptions {
    static STAGE: OnceCell<WorkerStage> = OnceCell::const_new();
    let stage = STAGE.get_or_init(async || WorkerStage::showcase(|options| options).await.unwrap().0).await;
    WorkerOptions::new(stage.chain.node.url(), stage.chain.contracts.registry)
        .var("RATE_LIMIT_PER_MINUTE", LIMIT)
        .var("RATE_LIMIT_WINDOW_SECONDS", WINDOW)
        .var("RATE_LIMITER", limiter)
}

/// Configures a Worker with the same code and these bindings in place of the repository's; returns its
/// options and the directory of its configuration.
async fn bound(limiter: &str, bindings: Value) -> (WorkerOptions, TempDir) {
    let (directory, mut config) = (TempDir::new().unwrap(), bindings);
    let usual = fs::read_to_string(repo::root().join("wrangler.toml")).unwrap();
    let date = usual.split_once("compatibility_date = \"").and_then(|(_, rest)| rest.split('"').next());
    config["name"] = "bound-otherwise".into();
    config["main"] = json!(repo::root().join("edge-api/build/worker/shim.mjs"));
    config["compatibility_date"] = date.unwrap().into();
    let path = directory.path().join("wrangler.json");
    fs::write(&path, config.to_string()).unwrap();
    (WorkerOptions { config: Some(path), ..limited(limiter).await }, directory)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Waits until at least two minutes are left of the hour, so that a test stays within one window.
async fn with_time_left() {
    let left = async || WINDOW - wall_clock() % WINDOW > 120;
    wait_until("an hour with time left", Duration::from_secs(180), left).await;
}

async fn at_once(requests: usize, clients: &[Client]) -> Vec<HttpAnswer> {
    concurrently(clients.iter().cycle().take(requests).map(|client| (client, PATH))).await
}

async fn remaining(client: &Client) -> u64 {
    client.get(PATH).await.number("x-ratelimit-remaining")
}

/// Checks that each admitted request has another remaining count, and that together they use up the limit.
fn assert_all_places_taken(answers: &[HttpAnswer]) {
    let admitted = answers.iter().filter(|answer| answer.status == 200);
    let mut left: Vec<u64> = admitted.map(|answer| answer.number("x-ratelimit-remaining")).collect();
    left.sort_unstable();
    assert_eq!(left, (0..LIMIT).collect::<Vec<_>>());
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(answer.error(429), "Rate limit exceeded. Try again in 1 minute.");
        let (reset, retry) = (answer.number("x-ratelimit-reset"), answer.number("retry-after"));
        assert!(reset % WINDOW == 0 && (1..=WINDOW).contains(&retry), "{answer:?}");
        assert!((reset - retry).abs_diff(wall_clock()) < 60, "{answer:?}");
        for (name, value) in [
            ("x-ratelimit-limit", "60"),
            ("x-ratelimit-remaining", "0"),
            ("ratelimit", &format!("\"default\";r=0;t={retry}")),
            ("ratelimit-policy", "\"default\";q=60;w=3600"),
        ] {
            assert_eq!(answer.header(name), value, "{answer:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_200_requests_at_once_exactly_60_are_admitted() {
    let worker = Worker::start(limited("kv").await).await.unwrap();
    let (worker, all_workers) = (worker.client(), worker.client().at(ip("2a06:98c0:3600::103")));
    with_time_left().await;
    assert_all_places_taken(&at_once(200, &[worker.at(ip("2001:db8:1:2::1"))]).await);
    for (client, left) in [
        (worker.at(ip("2001:db8:1:2:ffff::9")), 0),
        (worker.at(ip("2001:db8:1:3::1")), LIMIT - 1),
        (worker.at(ip("192.0.2.12")), LIMIT - 1),
        (worker.at(ip("192.0.2.12")).with("x-forwarded-for", "198.51.100.7"), LIMIT - 2),
        // Requests from foreign Workers count by the zone that they come from.
        (all_workers.with("cf-worker", "one.example"), LIMIT - 1),
        (all_workers.with("cf-worker", "One.example"), LIMIT - 2),
        (all_workers.with("cf-worker", "two.example"), LIMIT - 1),
        (worker.at(ip("192.0.2.60")).with("cf-worker", "one.example"), LIMIT - 1),
    ] {
        assert_eq!(remaining(&client).await, left, "{client:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clients_of_a_48_have_a_limit_together_and_what_it_refuses_is_counted_nowhere() {
    let options = limited("kv").await.var("RATE_LIMIT_PER_MINUTE_IPV6_48", LIMIT + 7);
    let worker = Worker::start(options).await.unwrap();
    let network = |number: u64| worker.client().at(ip(&format!("2001:db8:7:{number:x}::1")));
    with_time_left().await;
    assert_all_places_taken(&at_once(usize::try_from(LIMIT).unwrap(), &[network(1)]).await);
    // The other networks share the remaining seven, of which each lineage takes five.
    let lineage = "/api/v1/agent/1/lineage";
    network(2).get(lineage).await.ok();
    let refused = network(3).get(lineage).await;
    assert_eq!((refused.status, refused.number("x-ratelimit-remaining")), (429, 2), "{refused:?}");
    assert_eq!([remaining(&network(3)).await, remaining(&network(4)).await], [1, 0]);
    let refused = network(5).get(PATH).await;
    assert_eq!((refused.status, refused.number("x-ratelimit-limit")), (429, LIMIT + 7));
    assert_eq!(remaining(&worker.client().at(ip("2001:db8:8::1"))).await, LIMIT - 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_binding_refuses_what_the_instance_would_admit_and_counts_what_a_request_costs() {
    // The limit is far below the instance's own, so that a refusal is the binding's.
    let limiter =
        json!({"name": "CLIENT_RATE", "namespace_id": "64009", "simple": {"limit": 5, "period": 60}});
    let (options, _directory) = bound("binding", json!({ "ratelimits": [limiter] })).await;
    let worker = Worker::start(options.unset("RATE_LIMIT_WINDOW_SECONDS")).await.unwrap();
    let mut hosts = 1..=254;
    for paths in [&[PATH; 6][..], &["/api/v1/agent/1/lineage", PATH]] {
        let (refused_path, admitted_paths) = paths.split_last().unwrap();
        // Each attempt has a client of its own: one that the end of a minute interrupts is repeated.
        wait_until("counted within a minute", Duration::from_secs(180), async || {
            let host = hosts.next().unwrap();
            let client = worker.client().at([198, 51, 100, host]);
            let reset = client.get("/nowhere").await.number("x-ratelimit-reset");
            for path in admitted_paths {
                client.get(path).await.ok();
            }
            let refused = client.get(refused_path).await;
            let another = worker.client().at([203, 0, 113, host]).get(refused_path).await;
            another.ok();
            let is_of_a_minute = another.number("x-ratelimit-reset") == reset;
            assert!(!is_of_a_minute || refused.status == 429, "{refused:?}");
            assert!(refused.status == 200 || refused.number("x-ratelimit-remaining") == 0, "{refused:?}");
            is_of_a_minute
        })
        .await;
    }
}
