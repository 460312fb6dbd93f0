//! Cloudflare's own limiter, a `ratelimits` binding.

use e2e::repo;
use e2e::worker::{Worker, WorkerOptions};
use serde_json::json;
use tempfile::TempDir;

use super::{PATH, limited};

/// The binding's limit, far below the Worker's own count: a refusal is the binding's.
const BINDING_LIMIT: usize = 5;

/// Options of a Worker with a binding of that limit; and its directory.
async fn bound() -> (WorkerOptions, TempDir) {
    let directory = TempDir::new().unwrap();
    let config = directory.path().join("wrangler.json");
    let wrangler = json!({
        "name": "own-limit",
        "main": repo::root().join("edge-api/build/worker/shim.mjs"),
        "compatibility_date": "2026-04-01",
        "ratelimits": [
            {"name": "CLIENT_RATE", "namespace_id": "64009", "simple": {"limit": BINDING_LIMIT, "period": 60}}
        ],
    });
    std::fs::write(&config, wrangler.to_string()).unwrap();
    let options = limited("binding").await.unset("RATE_LIMIT_WINDOW_SECONDS");
    (WorkerOptions { config: Some(config), ..options }, directory)
}

/// One client asks for the paths in turn: all are admitted but the last one, which another client may ask for.
async fn last_is_refused(paths: &[&str]) {
    let (options, _directory) = bound().await;
    let worker = Worker::start(options).await.unwrap();
    let (refused_path, admitted_paths) = paths.split_last().unwrap();
    // A client for each attempt: an attempt that the end of a minute interrupts is repeated.
    for host in 1..=254 {
        let client = worker.client().at([198, 51, 100, host]);
        let reset = client.get("/nowhere").await.number("x-ratelimit-reset");
        for path in admitted_paths {
            client.get(path).await.ok();
        }
        let refused = client.get(refused_path).await;
        let another = worker.client().at([203, 0, 113, host]).get(refused_path).await;
        if another.number("x-ratelimit-reset") != reset {
            continue;
        }
        assert_eq!(refused.error(429), "Rate limit exceeded. Try again in 1 minute.");
        assert_eq!(refused.number("x-ratelimit-remaining"), 0);
        assert!((1..=60).contains(&refused.number("retry-after")), "{refused:?}");
        another.ok();
        return;
    }
    panic!("an attempt takes less than a minute");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_binding_refuses_what_the_instance_would_admit_and_counts_each_client_by_itself() {
    last_is_refused(&[PATH; BINDING_LIMIT + 1]).await;
}

/// A lineage counts as five requests.
#[tokio::test(flavor = "multi_thread")]
async fn the_binding_counts_what_a_request_costs() {
    last_is_refused(&["/api/v1/agent/1/lineage", PATH]).await;
}
