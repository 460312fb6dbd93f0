//! One instance: sixty requests per client in each minute of the clock, with each limiter.

use std::time::Duration;

use e2e::anvil::wall_clock;
use e2e::client::Client;
use e2e::process::wait_until;
use e2e::proxy::Proxy;
use e2e::stage::IndexWorker;
use e2e::worker::Worker;
use tokio::sync::OnceCell;

use super::{
    LIMIT, PATH, assert_refused, assert_refused_until, at_once, ip, limited, remaining, stage, with_time_left,
};

/// Runs a test with both limiters, one Worker each; each test is a client of its own.
async fn with_both(test: impl AsyncFn(Client)) {
    static WORKERS: OnceCell<[Worker; 2]> = OnceCell::const_new();
    let [kv, object] = WORKERS
        .get_or_init(async || {
            let (kv, object) = (limited("kv").await, limited("durable-object").await);
            let (kv, object) = tokio::join!(Worker::start(kv), Worker::start(object));
            [kv.unwrap(), object.unwrap()]
        })
        .await;
    tokio::join!(test(kv.client()), test(object.client()));
}

/// With the documented window, and a Worker of its own, so that all RPC posts are this test's.
async fn the_61st_request(limiter: &str) {
    const MINUTE: u64 = 60;
    let proxy = Proxy::start(stage().await.chain.node.url()).await.unwrap();
    let options = limited(limiter).await.unset("RATE_LIMIT_WINDOW_SECONDS");
    let worker = Worker::start(options.var("RPC_URL", proxy.url())).await.unwrap();
    // A client for each attempt: an attempt that the end of a minute interrupts is repeated.
    let mut clients = (1..=254).map(|host| worker.client().at([192, 0, 2, host]));
    let (client, reset) = 'attempt: loop {
        let client = clients.next().expect("an attempt takes less than a minute");
        let reset = client.get("/nowhere").await.number("x-ratelimit-reset");
        for request in 1..=LIMIT {
            let answer = client.get(PATH).await;
            answer.ok();
            if answer.number("x-ratelimit-reset") != reset {
                continue 'attempt;
            }
            let left = LIMIT - request;
            assert_eq!(answer.number("x-ratelimit-limit"), LIMIT);
            assert_eq!(answer.number("x-ratelimit-remaining"), left);
            assert_eq!(answer.header("ratelimit-policy"), "\"default\";q=60;w=60");
            let count = format!("\"default\";r={left};t=");
            assert!(answer.header("ratelimit").starts_with(&count), "{answer:?}");
            assert_eq!(answer.header("retry-after"), "", "only a refusal says when to come back");
        }
        let (posts, asked) = (proxy.posts(), wall_clock());
        let refusals = [
            client.get("/api/v1/agent/1").await,
            client.get("/health").await,
            client.send(reqwest::Method::HEAD, PATH).await,
        ];
        if refusals.iter().any(|answer| answer.number("x-ratelimit-reset") != reset) {
            continue;
        }
        assert_refused_until(&refusals[0], asked, MINUTE);
        assert_refused_until(&refusals[1], asked, MINUTE);
        assert_eq!(refusals[2].status, 429);
        assert_eq!(proxy.posts(), posts, "a refusal asks the chain nothing");
        break (client, reset);
    };

    wait_until("the window's end", Duration::from_secs(MINUTE + 1), async || wall_clock() >= reset).await;
    let next = client.get(PATH).await;
    next.ok();
    assert_eq!(next.number("x-ratelimit-remaining"), LIMIT - 1);
    assert_eq!(next.number("x-ratelimit-reset"), reset + MINUTE);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_61st_request_of_a_minute_is_refused_and_the_next_minute_is_new() {
    tokio::join!(the_61st_request("kv"), the_61st_request("durable-object"), the_61st_request("binding"));
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_are_apart_and_a_site_is_one() {
    with_both(async |worker| {
        with_time_left(20).await;
        let first = worker.at(ip("192.0.2.10"));
        for _ in 0..LIMIT {
            first.get(PATH).await.ok();
        }
        let asked = wall_clock();
        assert_refused(&first.get(PATH).await, asked);
        assert_eq!(remaining(&worker.at(ip("192.0.2.11")), PATH).await, LIMIT - 1);

        // 2001:db8:1:2::/64 is one site, 2001:db8:1:3::/64 another.
        assert_eq!(remaining(&worker.at(ip("2001:db8:1:2::1")), PATH).await, LIMIT - 1);
        assert_eq!(remaining(&worker.at(ip("2001:db8:1:2:ffff::9")), PATH).await, LIMIT - 2);
        assert_eq!(remaining(&worker.at(ip("2001:db8:1:3::1")), PATH).await, LIMIT - 1);
        // An IPv4 address written as IPv6 is the same client.
        assert_eq!(remaining(&worker.at(ip("192.0.2.12")), PATH).await, LIMIT - 1);
        assert_eq!(remaining(&worker.at(ip("::ffff:192.0.2.12")), PATH).await, LIMIT - 2);
        // No other header changes the client.
        let forged = worker.at(ip("192.0.2.12")).with("x-forwarded-for", "198.51.100.7");
        assert_eq!(remaining(&forged.with("x-real-ip", "198.51.100.7"), PATH).await, LIMIT - 3);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_200_requests_at_once_exactly_60_are_admitted() {
    with_both(async |worker| {
        let client = worker.at(ip("192.0.2.20"));
        with_time_left(30).await;
        let asked = wall_clock();
        let mut remaining = Vec::new();
        let mut refused = 0;
        for answer in at_once(200, &[client]).await {
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
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_requests_are_free_and_answered_ones_are_not() {
    with_both(async |worker| {
        let client = worker.at(ip("192.0.2.30"));
        with_time_left(20).await;
        for path in ["/nowhere", "/api/v1/agents?page=0", "/api/v1/kya/0x"] {
            assert_eq!(remaining(&client, path).await, LIMIT, "{path}");
        }
        let post = client.send(reqwest::Method::POST, PATH).await;
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
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_zero_is_none() {
    let unlimited = limited("durable-object").await.var("RATE_LIMIT_PER_MINUTE", 0);
    let unlimited = Worker::start(unlimited).await.unwrap();
    let client = unlimited.client();
    for _ in 0..LIMIT + 5 {
        let answer = client.get(PATH).await;
        answer.ok();
        assert_eq!(answer.header("x-ratelimit-limit"), "");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_other_peoples_workers_count_by_their_zone() {
    with_both(async |worker| {
        let all_workers = worker.at(ip("2a06:98c0:3600::103"));
        with_time_left(20).await;
        for _ in 0..LIMIT {
            all_workers.with("cf-worker", "one.example").get(PATH).await.ok();
        }
        let asked = wall_clock();
        assert_refused(&all_workers.with("cf-worker", "One.example").get(PATH).await, asked);
        assert_eq!(remaining(&all_workers.with("cf-worker", "two.example"), PATH).await, LIMIT - 1);
        // No other client can pass for a Worker.
        let forged = worker.at(ip("192.0.2.60")).with("cf-worker", "one.example");
        assert_eq!(remaining(&forged, PATH).await, LIMIT - 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_clients_of_a_48_have_a_limit_together() {
    async fn with(limiter: &str) {
        let options = limited(limiter).await.var("RATE_LIMIT_PER_MINUTE_IPV6_48", LIMIT + 10);
        let worker = Worker::start(options).await.unwrap();
        let network = |number: u64| worker.client().at(ip(&format!("2001:db8:7:{number:x}::1")));
        with_time_left(20).await;
        for left in (0..LIMIT).rev() {
            assert_eq!(remaining(&network(1), PATH).await, left);
        }
        let asked = wall_clock();
        assert_refused(&network(1).get(PATH).await, asked);
        // Ten are left to all the others together, and sixty to each of them.
        for left in (0..10).rev() {
            assert_eq!(remaining(&network(20 + left), PATH).await, left);
        }
        let refused = network(2).get(PATH).await;
        assert_eq!((refused.status, refused.number("x-ratelimit-limit")), (429, LIMIT + 10));
        assert_eq!(refused.header("ratelimit-policy"), "\"default\";q=70;w=3600");
        assert_eq!(remaining(&network(2), "/nowhere").await, 0);
        let other = worker.client().at(ip("2001:db8:8::1"));
        assert_eq!(remaining(&other, PATH).await, LIMIT - 1);
    }
    tokio::join!(with("kv"), with("durable-object"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_changes_counts_once_however_long_it_is() {
    let options = limited("kv").await.var("KYA_TTL_SECONDS", 1).var("CHANGES_STREAM_SECONDS", 5);
    let (worker, _index) = IndexWorker::start(options).await.unwrap();
    // A client for each attempt, since each has a limit.
    let mut hosts = 0..=u8::MAX;
    let path = "/api/v1/changes?since=now";
    wait_until("an index", Duration::from_secs(60), async || {
        let client = worker.client().at([198, 51, 100, hosts.next().unwrap()]);
        client.get(path).await.status == 200
    })
    .await;
    let follower = worker.client().at(ip("192.0.2.70"));
    with_time_left(20).await;
    let stream = follower.with("accept", "text/event-stream").get(path).await;
    assert_eq!((stream.status, stream.number("x-ratelimit-remaining")), (200, LIMIT - 1));
    assert!(stream.text.matches(": block ").count() > 1, "one look at the chain: {}", stream.text);
    assert_eq!(remaining(&follower, path).await, LIMIT - 2);
}
