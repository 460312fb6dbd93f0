//! Hedged requests: one of two endpoints is slow now and then.
//!
//! 1. One in twenty answers that is 2 s late makes the p99 without hedging, and not with it; at most one
//!    request in twenty is sent twice, and every answer is right.
//! 2. With a single endpoint, or switched off, nothing is sent twice.

use std::time::{Duration, Instant};

use e2e::anvil::{AnvilOptions, wall_clock};
use e2e::chain::Chain;
use e2e::fault::{Fault, Rule};
use e2e::proxy::Proxy;
use e2e::seed;
use e2e::worker::{Worker, WorkerOptions};

/// Requests before the first late answer: they tell the Worker what is usual, and pay for extra requests.
const USUAL: usize = 60;
const REQUESTS: usize = 240;
const LATE: Duration = Duration::from_secs(2);
const EVERY: usize = 20;

/// Asks a Worker with these settings for verdicts, one after the other, where the first endpoint is late in
/// one answer of twenty: the p99, and the share of extra requests in percent.
async fn ask(chain: &Chain, settings: &[(&'static str, &str)]) -> (Duration, f64) {
    let [first, second] = [Proxy::start(chain.node.url()).await, Proxy::start(chain.node.url()).await];
    let (first, second) = (first.unwrap(), second.unwrap());
    let urls = format!("{} {}", first.url(), second.url());
    let options = WorkerOptions::new(&urls, chain.contracts.registry).ttl(0).var("CHAIN_ID", 31_337);
    let options = settings.iter().fold(options, |options, (name, value)| options.var(name, value));
    let worker = Worker::start(options).await.unwrap();
    let client = worker.client();
    let path = format!("/api/v1/kya/{}", seed::wallet("many 1").address());
    for _ in 0..USUAL {
        client.get(&path).await.ok();
    }
    first.inject(Rule::any(Fault::Delay(LATE)).after(EVERY / 2).every(EVERY));
    first.reset();
    second.reset();
    let mut times = Vec::new();
    for _ in 0..REQUESTS {
        let asked = Instant::now();
        assert_eq!(client.get(&path).await.ok()["agent"]["agentId"], 1);
        times.push(asked.elapsed());
    }
    times.sort();
    let extra = first.posts() + second.posts() - REQUESTS;
    (times[REQUESTS * 99 / 100], extra as f64 * 100.0 / (USUAL + REQUESTS) as f64)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_is_late_now_and_then_makes_no_tail() {
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await.unwrap();
    seed::many(&chain, 3).await.unwrap();
    let (before, none) = ask(&chain, &[("RPC_HEDGING", "off")]).await;
    println!("without hedging: p99 {before:?}, {none:.1} % extra requests");
    assert!(before >= LATE && none == 0.0, "{before:?}, {none}");
    let (after, extra) = ask(&chain, &[]).await;
    println!("with hedging: p99 {after:?}, {extra:.1} % extra requests");
    assert!(after < LATE / 4, "{after:?}");
    assert!(extra <= 5.0, "{extra} % extra requests");
}
