//! The rate limit: sixty requests per client in each minute of the clock. Except for the test of the next
//! minute, the window is an hour: what tests count should not depend on when they begin.
//!
//! One instance, with each limiter (`alone`):
//!
//! 1. The 61st request of a minute is refused, with the documented message; the headers count down to it.
//! 2. The next minute begins with sixty again.
//! 3. Two clients do not share a limit; one IPv6 site does.
//! 4. Of 200 requests at once exactly 60 are admitted.
//! 5. A refused request asks the chain nothing; a bad one is not charged, an unknown agent is.
//! 6. A limit of 0 is none.
//! 7. Requests that other people's Workers send count by the zone they come from.
//! 8. The clients of one /48 of IPv6 have a limit together as well.
//! 9. A stream of changes counts once, however long it is.
//!
//! Two instances and one KV store (`kv`):
//!
//! 10. Of 300 requests over both, few more than sixty pass; the figures are printed.
//! 11. An instance a client turns to after using up its minute at another refuses it after a few requests.
//! 12. A client of fewer than 15 requests is never written.
//! 13. A store that fails costs no request its answer.
//!
//! Two instances and one Durable Object per client (`object`):
//!
//! 14. Of 300 requests over both exactly sixty pass.
//! 15. An object that lost its count takes it up from the instance that asks.
//! 16. Where the object can't be reached, each instance counts by itself.
//!
//! Cloudflare's own limiter (`binding`):
//!
//! 17. It refuses what the instance's own count would admit, and counts each client by itself.
//! 18. A request counts as many times as it costs.

mod alone;
mod binding;
mod kv;
mod object;

use std::net::IpAddr;
use std::time::Duration;

use e2e::anvil::wall_clock;
use e2e::client::{Answer, Client, concurrently};
use e2e::process::wait_until;
use e2e::stage::Stage;
use e2e::worker::WorkerOptions;
use tokio::sync::OnceCell;

const LIMIT: u64 = 60;
/// The window of the Workers here, in seconds.
const WINDOW: u64 = 3_600;

/// A path any Worker answers without the chain once it has been asked.
const PATH: &str = "/api/v1/stats";

/// The chain behind all Workers here.
async fn stage() -> &'static Stage {
    static STAGE: OnceCell<Stage> = OnceCell::const_new();
    STAGE.get_or_init(async || Stage::showcase(|options| options).await.unwrap().0).await
}

/// A Worker with the documented limit, counted by this limiter.
async fn limited(limiter: &str) -> WorkerOptions {
    let stage = stage().await;
    WorkerOptions::new(stage.proxy.url(), stage.chain.contracts.registry)
        .var("RATE_LIMIT_PER_MINUTE", LIMIT)
        .var("RATE_LIMIT_WINDOW_SECONDS", WINDOW)
        .var("RATE_LIMITER", limiter)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Waits until at least `seconds` are left of the hour: what a test does then happens within one window.
async fn with_time_left(seconds: u64) {
    wait_until("an hour with time left", Duration::from_secs(2 * seconds), async || {
        WINDOW - wall_clock() % WINDOW > seconds
    })
    .await;
}

/// Sends concurrent requests, to the clients in turn.
async fn at_once(requests: usize, clients: &[Client]) -> Vec<Answer> {
    concurrently(clients.iter().cycle().take(requests).map(|client| (client, PATH))).await
}

async fn remaining(client: &Client, path: &str) -> u64 {
    client.get(path).await.number("x-ratelimit-remaining")
}

/// Uses up a client's limit, and sees it count down.
async fn use_up(client: &Client) {
    for left in (0..LIMIT).rev() {
        let answer = client.get(PATH).await;
        answer.ok();
        assert_eq!(answer.number("x-ratelimit-remaining"), left);
    }
    assert_eq!(client.get(PATH).await.status, 429);
}

/// `asked` is when the request was made, or a little before.
fn assert_refused(answer: &Answer, asked: u64) {
    assert_refused_until(answer, asked, WINDOW);
}

/// The same where the window is another.
fn assert_refused_until(answer: &Answer, asked: u64, window: u64) {
    assert_eq!(answer.error(429), "Rate limit exceeded. Try again in 1 minute.");
    assert_eq!(answer.number("x-ratelimit-limit"), LIMIT);
    assert_eq!(answer.number("x-ratelimit-remaining"), 0);
    let (reset, retry) = (answer.number("x-ratelimit-reset"), answer.number("retry-after"));
    assert_eq!(reset % window, 0, "windows are aligned to the clock");
    assert!((1..=window).contains(&retry), "{retry}");
    assert!((asked..=wall_clock()).contains(&(reset - retry)), "asked at {asked}: {reset} in {retry} s");
    assert_eq!(answer.header("ratelimit"), format!("\"default\";r=0;t={retry}"));
}
