//! The read API of the real Worker on a real chain: the parts together. Single answers are tested in `core`
//! and `edge-api`.
//!
//! - [`answers`]: every endpoint against the contract, in the documented round trips.
//! - [`http`]: methods, headers, links, and the pages about the API.
//! - [`nodes`]: nodes that fail on real sockets, alone and where there is another.
//! - [`operations`]: probes, settings and the log.
//! - [`descriptions`]: generated requests against both services' descriptions; an MCP client.
//! - [`self_hosted`]: both Workers in plain workerd.

mod answers;
mod descriptions;
mod http;
mod nodes;
mod operations;
mod self_hosted;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};

use e2e::anvil::CHAIN_ID;
use e2e::client::{Client, HttpAnswer};
use e2e::seed::Showcase;
use e2e::stage::{Exclusive, WorkerStage};
use e2e::worker::WorkerOptions;
use tokio::sync::MutexGuard;

const JSON: &str = "application/json";
/// Rate limit that counts requests and is too high to refuse any.
const LIMIT: u64 = 1_000_000;

struct ReadApiFixture {
    stage: WorkerStage,
    showcase: Showcase,
}

/// Takes the showcase and a Worker that stores nothing, for one test at a time: tests count and break posts.
async fn scene() -> (MutexGuard<'static, ()>, &'static ReadApiFixture) {
    static SCENE: Exclusive<ReadApiFixture> = Exclusive::empty();
    let start = async || {
        let (stage, showcase) = WorkerStage::showcase(|options| counted(options.ttl(0))).await.unwrap();
        ReadApiFixture { stage, showcase }
    };
    let (turn, scene) = SCENE.take(start).await;
    scene.stage.proxy.heal();
    scene.stage.proxy.reset();
    (turn, scene)
}

fn counted(options: WorkerOptions) -> WorkerOptions {
    options.var("CHAIN_ID", CHAIN_ID).var("RATE_LIMIT_PER_MINUTE", LIMIT)
}

/// Returns a request's cost in requests. Each is of another client, so that no window matters.
async fn cost(client: &Client, request: impl AsyncFnOnce(Client) -> HttpAnswer) -> u64 {
    static CLIENTS: AtomicU32 = AtomicU32::new(0);
    let address = Ipv4Addr::from_bits(0x0a00_0000 + CLIENTS.fetch_add(1, Ordering::Relaxed));
    LIMIT - request(client.at(address)).await.number("x-ratelimit-remaining")
}
