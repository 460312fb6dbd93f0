//! The rate limit: sixty requests per client in each minute of the clock.
//!
//! 1. The 61st request of a minute is refused, with the documented message; the headers count down to it.
//! 2. The next minute begins with sixty again.
//! 3. Two clients do not share a limit; one IPv6 site does.
//! 4. Of 200 requests at once exactly 60 are admitted.
//! 5. A refused request asks the chain nothing; a bad one is not charged, an unknown agent is.
//! 6. Another instance learns of a busy client through the shared store.
//! 7. A limit of 0 is none.

use std::net::IpAddr;
use std::time::Duration;

use e2e::anvil::wall_clock;
use e2e::client::{Answer, Client};
use e2e::process::eventually;
use e2e::stage::{Stage, run};
use e2e::worker::{Worker, WorkerOptions};
use tempfile::TempDir;
use tokio::sync::OnceCell;

const LIMIT: u64 = 60;
const MINUTE: u64 = 60;

/// One Worker with the documented limit; each test is a client of its own.
async fn stage() -> &'static Stage {
    static STAGE: OnceCell<Stage> = OnceCell::const_new();
    STAGE
        .get_or_init(async || {
            Stage::showcase(|options| options.var("RATE_LIMIT_PER_MINUTE", LIMIT)).await.unwrap().0
        })
        .await
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Waits until at least `seconds` are left of the minute: what a test does then happens within one window.
async fn with_time_left(seconds: u64) {
    eventually("a minute with time left", Duration::from_secs(MINUTE), async || {
        (MINUTE - wall_clock() % MINUTE > seconds).then_some(())
    })
    .await
    .unwrap();
}

async fn remaining(client: &Client, path: &str) -> u64 {
    client.get(path).await.number("x-ratelimit-remaining")
}

/// `asked` is when the request was made, or a little before.
fn assert_refused(answer: &Answer, asked: u64) {
    assert_eq!(answer.error(429), "Rate limit exceeded. Try again in 1 minute.");
    assert_eq!(answer.number("x-ratelimit-limit"), LIMIT);
    assert_eq!(answer.number("x-ratelimit-remaining"), 0);
    let (reset, retry) = (answer.number("x-ratelimit-reset"), answer.number("retry-after"));
    assert_eq!(reset % MINUTE, 0, "windows are minutes of the clock");
    assert!((1..=MINUTE).contains(&retry), "{retry}");
    assert!((asked..=wall_clock()).contains(&(reset - retry)), "asked at {asked}: {reset} in {retry} s");
}

#[test]
fn the_61st_request_of_a_minute_is_refused_and_the_next_minute_is_new() {
    run(async {
        let stage = stage().await;
        let client = stage.client.at(ip("192.0.2.1"));
        with_time_left(20).await;
        let mut reset = 0;
        for request in 1..=LIMIT {
            let answer = client.get("/api/v1/stats").await;
            answer.ok();
            assert_eq!(answer.number("x-ratelimit-limit"), LIMIT);
            assert_eq!(answer.number("x-ratelimit-remaining"), LIMIT - request);
            assert_eq!(answer.header("retry-after"), "", "only a refusal says when to come back");
            reset = answer.number("x-ratelimit-reset");
        }
        let posts = stage.proxy.posts();
        let asked = wall_clock();
        let refused = client.get("/api/v1/agent/1").await;
        assert_refused(&refused, asked);
        assert_eq!(refused.number("x-ratelimit-reset"), reset);
        assert_refused(&client.get("/health").await, asked);
        assert_eq!(client.send(reqwest::Method::HEAD, "/api/v1/stats").await.status, 429);
        assert_eq!(stage.proxy.posts(), posts, "a refusal asks the chain nothing");

        eventually("the window's end", Duration::from_secs(MINUTE + 1), async || {
            (wall_clock() >= reset).then_some(())
        })
        .await
        .unwrap();
        let next = client.get("/api/v1/stats").await;
        next.ok();
        assert_eq!(next.number("x-ratelimit-remaining"), LIMIT - 1);
        assert_eq!(next.number("x-ratelimit-reset"), reset + MINUTE);
    });
}

#[test]
fn clients_are_apart_and_a_site_is_one() {
    run(async {
        let stage = stage().await;
        let path = "/api/v1/stats";
        with_time_left(20).await;
        let first = stage.client.at(ip("192.0.2.10"));
        for _ in 0..LIMIT {
            first.get(path).await.ok();
        }
        let asked = wall_clock();
        assert_refused(&first.get(path).await, asked);
        assert_eq!(remaining(&stage.client.at(ip("192.0.2.11")), path).await, LIMIT - 1);

        // 2001:db8:1:2::/64 is one site, 2001:db8:1:3::/64 another.
        assert_eq!(remaining(&stage.client.at(ip("2001:db8:1:2::1")), path).await, LIMIT - 1);
        assert_eq!(remaining(&stage.client.at(ip("2001:db8:1:2:ffff::9")), path).await, LIMIT - 2);
        assert_eq!(remaining(&stage.client.at(ip("2001:db8:1:3::1")), path).await, LIMIT - 1);
        // An IPv4 address written as IPv6 is the same client.
        assert_eq!(remaining(&stage.client.at(ip("192.0.2.12")), path).await, LIMIT - 1);
        assert_eq!(remaining(&stage.client.at(ip("::ffff:192.0.2.12")), path).await, LIMIT - 2);
        // And no other header makes a client somebody else.
        let forged = stage.client.at(ip("192.0.2.12")).with("x-forwarded-for", "198.51.100.7");
        assert_eq!(remaining(&forged.with("x-real-ip", "198.51.100.7"), path).await, LIMIT - 3);
    });
}

#[test]
fn of_200_requests_at_once_exactly_60_are_admitted() {
    run(async {
        let stage = stage().await;
        let client = stage.client.at(ip("192.0.2.20"));
        with_time_left(30).await;
        let asked = wall_clock();
        let requests: Vec<_> = (0..200)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.get("/api/v1/agents").await })
            })
            .collect();
        let mut remaining = Vec::new();
        let mut refused = 0;
        for request in requests {
            let answer = request.await.unwrap();
            if answer.status == 200 {
                remaining.push(answer.number("x-ratelimit-remaining"));
            } else {
                assert_refused(&answer, asked);
                refused += 1;
            }
        }
        remaining.sort_unstable();
        assert_eq!(remaining, (0..LIMIT).collect::<Vec<_>>(), "each admitted request has a place of its own");
        assert_eq!(refused, 140);
    });
}

#[test]
fn bad_requests_are_free_and_answered_ones_are_not() {
    run(async {
        let stage = stage().await;
        let client = stage.client.at(ip("192.0.2.30"));
        with_time_left(20).await;
        for path in ["/nowhere", "/api/v1/agents?page=0", "/api/v1/kya/0x"] {
            assert_eq!(remaining(&client, path).await, LIMIT, "{path}");
        }
        let post = client.send(reqwest::Method::POST, "/api/v1/stats").await;
        assert_eq!((post.status, post.number("x-ratelimit-remaining")), (405, LIMIT));
        for (place, path) in (1..).zip([
            "/health",
            "/api/v1/agent/4000",
            "/api/v1/agent/1",
            "/api/v1/agent/1",
            "/api/v1/agent/1/revenue",
        ]) {
            assert_eq!(remaining(&client, path).await, LIMIT - place, "{path}");
        }
        assert_eq!(remaining(&client, "/nowhere").await, LIMIT - 5, "and says how many are left");
    });
}

#[test]
fn another_instance_learns_of_a_busy_client() {
    run(async {
        let stage = stage().await;
        let state = TempDir::new().unwrap();
        let mut options = WorkerOptions::new(stage.proxy.url(), stage.chain.contracts.registry)
            .var("RATE_LIMIT_PER_MINUTE", LIMIT);
        options.state = Some(state.path().to_owned());
        let (one, two) = tokio::join!(Worker::start(options.clone()), Worker::start(options));
        let workers = (one.unwrap(), two.unwrap());
        let client = ip("192.0.2.40");
        let (one, two) = (workers.0.client().at(client), workers.1.client().at(client));

        with_time_left(40).await;
        for _ in 0..40 {
            one.get("/api/v1/stats").await.ok();
        }
        // The first instance shares at most once a second, the second one listens once its own count is worth
        // sharing: so the two go on, slowly, until they agree that the sixty are used up.
        let mut asked = 40;
        eventually("refused by the second instance", Duration::from_secs(35), async || {
            if asked % 4 == 0 {
                one.get("/api/v1/stats").await;
            }
            asked += 1;
            (two.get("/api/v1/stats").await.status == 429).then_some(())
        })
        .await
        .unwrap();
        assert!(
            asked < 40 + LIMIT,
            "the second instance alone would have admitted {LIMIT}, and refused after {}",
            asked - 40
        );
    });
}

#[test]
fn a_limit_of_zero_is_none() {
    run(async {
        let stage = stage().await;
        let unlimited = Worker::start(WorkerOptions::new(stage.proxy.url(), stage.chain.contracts.registry))
            .await
            .unwrap();
        let client = unlimited.client();
        for _ in 0..LIMIT + 5 {
            let answer = client.get("/api/v1/stats").await;
            answer.ok();
            assert_eq!(answer.header("x-ratelimit-limit"), "");
        }
    });
}
