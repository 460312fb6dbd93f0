//! Several RPC endpoints: a failure of one of them costs a client nothing but time.
//!
//! 1. However the first endpoint fails, the second answers within one attempt's time; failover is sticky.
//! 2. An endpoint that fails midway is left as well, and the answer is still of one block.
//! 3. A stale head is a fault, unless MAX_HEAD_AGE_SECONDS takes any.
//! 4. An endpoint that changes its chain, or is on another from the start, is refused.
//! 5. All of them down: a 500 that helps, within the deadline, with Retry-After; nothing is stored.
//! 6. A URL's user part becomes a header; no secret of any URL is in an answer or a line of the log.
//! 7. An answer without an end is read to a limit, and no further.

use std::time::{Duration, Instant};

use e2e::anvil::AnvilOptions;
use e2e::chain::Chain;
use e2e::client::{Answer, Client, assert_no_secret};
use e2e::fault::{Fault, Rule};
use e2e::process::{free_port, wait_until};
use e2e::proxy::Proxy;
use e2e::seed::{self, Showcase};
use e2e::stage::Exclusive;
use e2e::worker::{Worker, WorkerOptions};
use tokio::sync::MutexGuard;

/// An attempt's time: an answer that takes less has not waited for an endpoint.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A request's time, over all attempts.
const DEADLINE: Duration = Duration::from_secs(5);

/// What a machine under load may add to it.
const SLACK: Duration = Duration::from_secs(2);

/// The other chain.
const OTHER_CHAIN: u64 = 5;

/// What the two URLs hold besides scheme and host.
const SECRETS: [&str; 6] = [
    "0fAKeKey1234567890",
    "s3cr3t-token",
    "rpc-us3r",
    "p4ss:w0rd",
    "cnBjLXVzM3I6cDRzczp3MHJk",
    "an0ther-k3y",
];

/// A chain behind two endpoints, and a Worker without a cache that has both.
struct Scene {
    chain: Chain,
    showcase: Showcase,
    other: Chain,
    first: Proxy,
    second: Proxy,
    worker: Worker,
    client: Client,
}

/// The scene, for one test at a time: a fault holds for all of them.
async fn scene() -> (MutexGuard<'static, ()>, &'static Scene) {
    static SCENE: Exclusive<Scene> = Exclusive::empty();
    let (turn, scene) = SCENE.take(Scene::start).await;
    scene.begin_with_the_first().await;
    (turn, scene)
}

impl Scene {
    async fn start() -> Self {
        let (chain, showcase) = seed::showcase_chain().await.unwrap();
        let other = AnvilOptions { chain_id: Some(OTHER_CHAIN), ..AnvilOptions::default() };
        let other = Chain::start(other).await.unwrap();
        assert_eq!(chain.contracts, other.contracts, "the same addresses on both chains");
        let first = Proxy::start(chain.node.url()).await.unwrap();
        let second = Proxy::start(chain.node.url()).await.unwrap();
        let worker = Worker::start(options_for(&chain, [&first, &second])).await.unwrap();
        let client = worker.client();
        Self { chain, showcase, other, first, second, worker, client }
    }

    /// All well, and the first endpoint the one that is kept.
    async fn begin_with_the_first(&self) {
        self.heal();
        for proxy in self.proxies() {
            proxy.set_upstream(self.chain.node.url());
        }
        wait_until("first endpoint kept", Duration::from_secs(10), async || {
            self.second.inject(Rule::any(Fault::Refuse).once());
            self.client.get("/health").await.ok();
            self.second.heal();
            self.reset();
            self.client.get("/health").await.ok();
            self.first.posts() == 1 && self.second.posts() == 0
        })
        .await;
        self.reset();
    }

    fn proxies(&self) -> [&Proxy; 2] {
        [&self.first, &self.second]
    }

    fn reset(&self) {
        self.first.reset();
        self.second.reset();
    }

    fn heal(&self) {
        self.first.heal();
        self.second.heal();
    }

    fn fail(&self, fault: &Fault) {
        self.first.inject(Rule::any(fault.clone()));
        self.second.inject(Rule::any(fault.clone()));
    }

    /// Another Worker with the same endpoints.
    fn options(&self) -> WorkerOptions {
        options_for(&self.chain, self.proxies())
    }

    /// One path for each way the core asks, without clocks in the answers: one round, two, level by level.
    fn paths(&self) -> [String; 3] {
        [
            "/api/v1/agents?limit=50".to_owned(),
            "/api/v1/agents?status=Active&limit=100".to_owned(),
            self.showcase.lineage("atlas"),
        ]
    }
}

/// A Worker with these endpoints, impatient, without a cache and without hedging: the tests count requests.
fn options_for(chain: &Chain, [first, second]: [&Proxy; 2]) -> WorkerOptions {
    let with_user = first.url().replace("http://", "http://rpc-us3r:p4ss%3Aw0rd@");
    let urls = format!("{with_user}/v2/{}?token={}, {}/{}", SECRETS[0], SECRETS[1], second.url(), SECRETS[5]);
    WorkerOptions::new(&urls, chain.contracts.registry)
        .ttl(0)
        .var("CHAIN_ID", 31_337)
        .var("RPC_HEDGING", "off")
        .var("RPC_TIMEOUT_SECONDS", TIMEOUT.as_secs())
        .var("RPC_DEADLINE_SECONDS", DEADLINE.as_secs())
}

/// An answer that has not waited for an endpoint.
async fn quick(client: &Client, path: &str) -> Answer {
    let (answer, took) = timed(client, path).await;
    assert!(took < TIMEOUT, "{path}: {took:?}");
    answer
}

/// Asks, and takes the time.
async fn timed(client: &Client, path: &str) -> (Answer, Duration) {
    let asked = Instant::now();
    let answer = client.get(path).await;
    (answer, asked.elapsed())
}

/// The ways an endpoint fails, and whether its Worker notices only when the attempt's time is up.
fn ailments() -> [(Fault, bool); 15] {
    let html = "<html>sorry</html>";
    [
        (Fault::Hang, true),
        (Fault::HangAfterwards, true),
        (Fault::Refuse, false),
        (Fault::LoseAnswer, false),
        (Fault::HalfAnAnswer, false),
        (Fault::Garbage("<html>welcome</html>".into()), false),
        (Fault::Garbage(String::new()), false),
        (Fault::page(403, html), false),
        (Fault::page(429, html), false),
        (Fault::Status { status: 429, body: String::new(), retry_after: Some(60) }, false),
        (Fault::page(503, html), false),
        (Fault::WrongId, false),
        (Fault::error(-32005, "daily request count exceeded, request rate limited"), false),
        (Fault::error(-32603, "Internal error"), false),
        (Fault::error(-32601, "the method eth_call does not exist/is not available"), false),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_ails_the_first_endpoint_the_second_answers_in_time_and_is_kept() {
    let (_turn, scene) = scene().await;
    for path in scene.paths() {
        let expected = scene.client.get(&path).await.ok();
        for (fault, hangs) in ailments() {
            scene.begin_with_the_first().await;
            scene.first.inject(Rule::any(fault.clone()));
            let (answer, took) = timed(&scene.client, &path).await;
            assert_eq!(answer.ok(), expected, "{path}, {fault:?}");
            let allowed = if hangs { DEADLINE } else { TIMEOUT };
            assert!(took < allowed, "{path}, {fault:?}: {took:?}");
            assert!(scene.first.posts() > 0, "{path}, {fault:?}: was asked first");
            scene.reset();
            assert_eq!(scene.client.get(&path).await.ok(), expected, "{path}, {fault:?}");
            assert_eq!(scene.first.posts(), 0, "{path}, {fault:?}: not asked again");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_fails_midway_is_left_and_the_answer_is_of_one_block() {
    let (_turn, scene) = scene().await;
    for path in &scene.paths()[1..] {
        let expected = scene.client.get(path).await.ok();
        for (fault, _) in ailments() {
            scene.begin_with_the_first().await;
            // The first round trip is header and root, or header, count and first agents.
            let calls = if path.ends_with("/lineage") { 2 } else { 3 };
            scene.first.inject(Rule::any(fault.clone()).after(calls));
            assert_eq!(scene.client.get(path).await.ok(), expected, "{path}, {fault:?}");
            let pinned =
                scene.second.log().into_iter().all(|post| post.body.to_string().contains("blockHash"));
            assert!(pinned && scene.second.posts() > 0, "{path}, {fault:?}: at the first one's block");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_answered_by_one_object_is_asked_for_the_rest() {
    let (_turn, scene) = scene().await;
    for path in scene.paths() {
        let expected = scene.client.get(&path).await.ok();
        scene.first.inject(Rule::any(Fault::OneObject));
        assert_eq!(scene.client.get(&path).await.ok(), expected, "{path}");
        scene.begin_with_the_first().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stale_head_is_a_fault_unless_the_settings_take_any() {
    let (_turn, scene) = scene().await;
    let path = "/api/v1/stats";
    let now = scene.client.get(path).await.ok();
    // The chain's first agents are weeks old.
    scene.first.inject(Rule::any(Fault::Stale { head: 6 }));
    let then = scene.client.get(path).await.ok();
    assert_ne!(then, now, "of any age: the block of then is served");

    let options = scene.options().unset("MAX_HEAD_AGE_SECONDS");
    let worker = Worker::start(options).await.unwrap();
    // A block of now, as a chain has that goes on.
    scene.chain.node.mine(1).await.unwrap();
    let answer = quick(&worker.client(), path).await;
    assert_eq!(answer.ok(), now);
    scene.reset();
    assert_eq!(worker.client().get(path).await.ok(), now);
    assert_eq!(scene.first.posts(), 0, "the fresh one is kept");
    scene.second.inject(Rule::any(Fault::Stale { head: 6 }));
    let answer = quick(&worker.client(), path).await;
    let error = answer.error(500);
    let age = error
        .strip_prefix("No RPC endpoint answered (2 of 2 tried). Number ")
        .and_then(|rest| rest.split_once(": RPC endpoint's newest block is "))
        .and_then(|(_, rest)| rest.strip_suffix(" s old")?.parse::<u64>().ok());
    assert!(age.is_some_and(|seconds| seconds > 300), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_of_another_chain_is_refused() {
    let (_turn, scene) = scene().await;
    for path in scene.paths() {
        let expected = scene.client.get(&path).await.ok();
        // The first endpoint is on another chain now, and so is the second, later.
        scene.first.set_upstream(scene.other.node.url());
        let answer = quick(&scene.client, &path).await;
        assert_eq!(answer.ok(), expected, "{path}");
        scene.second.set_upstream(scene.other.node.url());
        let answer = quick(&scene.client, &path).await;
        let error = answer.error(500);
        assert!(error.contains("RPC endpoint is on chain 5, not 31337"), "{path}: {error}");
        scene.begin_with_the_first().await;
    }

    let options = scene.options();
    scene.first.set_upstream(scene.other.node.url());
    let worker = Worker::start(options.clone()).await.unwrap();
    let answer = worker.client().get("/readyz").await.ok();
    assert_eq!(answer["chainId"], 31_337, "the first endpoint was never on the settings' chain");
    let worker = Worker::start(options.unset("CHAIN_ID")).await.unwrap();
    let error = worker.client().get("/api/v1/stats").await.error(500);
    assert!(error.starts_with("Misconfigured: CHAIN_ID is not set"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_endpoint_that_refuses_connections_is_left_for_the_next() {
    let (_turn, scene) = scene().await;
    let dead = format!("http://127.0.0.1:{}", free_port().unwrap());
    let options = scene.options();
    let urls = format!("{dead} {}", scene.second.url());
    let worker = Worker::start(options.clone().var("RPC_URL", urls)).await.unwrap();
    for path in scene.paths() {
        let answer = quick(&worker.client(), &path).await;
        assert_eq!(answer.ok(), scene.client.get(&path).await.ok(), "{path}");
    }
    assert_eq!(worker.client().get("/health").await.ok()["rpc"], dead, "the first, whichever answers");

    let worker = Worker::start(options.var("RPC_URL", &dead)).await.unwrap();
    let answer = quick(&worker.client(), "/api/v1/stats").await;
    assert_eq!(answer.error(500), "RPC endpoint unreachable");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_them_down_is_an_error_that_helps_in_time_and_nothing_is_stored() {
    let (_turn, scene) = scene().await;
    let options = scene.options();
    let cached = options.unset("AGENT_TTL_SECONDS").unset("LINEAGE_TTL_SECONDS");
    let worker = Worker::start(cached).await.unwrap();
    for (index, (fault, hangs)) in ailments().into_iter().enumerate() {
        // Not in the cache yet.
        let path = format!("/api/v1/agents?limit={}", index + 1);
        scene.fail(&fault);
        let (answer, took) = timed(&worker.client(), &path).await;
        let error = answer.error(500);
        assert!(error.starts_with("No RPC endpoint answered (2 of 2 tried). Number "), "{fault:?}: {error}");
        assert!(answer.number("retry-after") > 0, "{fault:?}: {:?}", answer.headers);
        assert_eq!(answer.header("cache-control"), "no-store", "{fault:?}");
        let allowed = if hangs { DEADLINE + SLACK } else { TIMEOUT };
        assert!(took < allowed, "{fault:?}: {took:?}");
        scene.heal();
        let answer = worker.client().get(&path).await;
        assert_eq!(answer.header("x-cache"), "MISS", "{fault:?}");
        answer.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_of_any_url_is_in_an_answer_or_a_line_of_the_log() {
    let (_turn, scene) = scene().await;
    let mut answers = Vec::new();
    for path in scene.paths().into_iter().chain(["/health", "/readyz", "/api/v1/stats"].map(str::to_owned)) {
        answers.push(scene.client.get(&path).await);
    }
    let authorization = format!("Basic {}", SECRETS[4]);
    assert_eq!(scene.first.log()[0].authorization, authorization, "the user part, percent-decoded");
    assert_eq!(scene.second.log().len(), 0);
    let all = SECRETS.join(" and ");
    for fault in [
        Fault::Refuse,
        Fault::Hang,
        Fault::Garbage(all.clone()),
        Fault::error(-32000, &format!("no access to {}: {all}", scene.first.url())),
        Fault::error(-32005, &format!("rate limit of {all}")),
        Fault::Status { status: 401, body: all.clone(), retry_after: None },
    ] {
        scene.fail(&fault);
        for path in scene.paths().into_iter().chain(["/readyz".to_owned()]) {
            let answer = scene.client.get(&path).await;
            assert!(answer.status >= 500, "{fault:?}: {}", answer.text);
            answers.push(answer);
        }
        scene.heal();
    }
    assert_eq!(answers[3].ok()["rpc"], scene.first.url(), "scheme and host alone");
    // The Worker logs one line for each request, among wrangler's.
    let lines = scene.worker.lines_with("requestId", answers.len()).await.unwrap();
    assert_no_secret(&answers, &lines, &SECRETS);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_an_end_is_read_to_a_limit() {
    /// What an instance reads of one answer, and as much again and more that is under way in sockets.
    const MOST_PER_POST: usize = 16 << 20;
    let (_turn, scene) = scene().await;
    let kya = seed::kya("kyoto");
    for path in [kya.as_str(), "/api/v1/stats", "/api/v1/agents?status=Active"] {
        scene.begin_with_the_first().await;
        let before = scene.first.streamed();
        scene.first.inject(Rule::any(Fault::Endless));
        let (answer, took) = timed(&scene.client, path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        let (posts, streamed) = (scene.first.posts(), scene.first.streamed() - before);
        println!("{path}: {posts} posts, {} KiB sent, {took:?}", streamed / 1024);
        assert_eq!(posts, 1, "{path}: the second endpoint is asked next");
        assert!(streamed <= posts * MOST_PER_POST, "{path}: {streamed} bytes in {posts} posts");
    }
}
