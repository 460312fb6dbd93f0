//! The caches, in an instance's memory and in the data centre, in the real runtime. What a cache keeps, and
//! for how long, is tested in `core/src/host/shared_reads`.
//!
//! 1. A second call reaches no RPC, in whatever spelling, and has its age; a client that has the answer gets
//!    304. Answers that are never stored are read each time.
//! 2. Temporary errors are not stored.
//! 3. The data centre's entries serve other instances, but none that reads another chain or other endpoints.
//!    A cache of the data centre that does not answer holds up no request for long.
//! 4. Concurrent requests share one read, also where nothing is stored, and where the first client leaves. A
//!    lost reader or a silent index object costs seconds. Clients that leave take up no memory. Blocks that
//!    the chain lacks are asked for once in five seconds.
//! 5. Answers about the whole registry are made from one scan, and agree with one another.
//! 6. An entry that is requested all the time is renewed before it expires, and no request waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use e2e::anvil::CHAIN_ID;
use e2e::chain::STATUSES;
use e2e::client::{Client, HttpAnswer, concurrently};
use e2e::fault::{FaultRule, NodeFault};
use e2e::http::request_to_reset;
use e2e::process::{PATIENCE, eventually, free_port, wait_until};
use e2e::proxy::Proxy;
use e2e::seed::{Showcase, kya};
use e2e::server::{Server, ServerKind};
use e2e::stage::{Exclusive, WorkerStage};
use e2e::stored::cached_keys;
use e2e::worker::{Worker, WorkerOptions};
use registry_core::api::document::FORMAT;
use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::MutexGuard;

const CROWD: usize = 100;

/// A stage with the documented TTLs.
struct CacheFixture {
    stage: WorkerStage,
    showcase: Showcase,
    /// Highest agent id that `cold_agent` has given out.
    asked: AtomicU64,
}

impl CacheFixture {
    /// Returns the path of an agent that no test has requested yet: every answer about it is cold.
    fn cold_agent(&self) -> String {
        let id = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(id <= self.showcase.total, "the showcase has too few agents");
        format!("/api/v1/agent/{id}")
    }

    /// Starts another proxy and Worker on the same chain.
    async fn another(&self, settings: impl FnOnce(WorkerOptions) -> WorkerOptions) -> (Proxy, Worker) {
        let proxy = Proxy::start(self.stage.chain.node.url()).await.unwrap();
        let options = WorkerOptions::new(proxy.url(), self.stage.chain.contracts.registry);
        let worker = Worker::start(settings(options)).await.unwrap();
        (proxy, worker)
    }
}

/// Takes the fixture for one test at a time, since the tests count requests.
async fn documented() -> (MutexGuard<'static, ()>, &'static CacheFixture) {
    static SCENE: Exclusive<CacheFixture> = Exclusive::empty();
    let start = async || {
        let (stage, showcase) = WorkerStage::showcase(|options| options).await.unwrap();
        CacheFixture { stage, showcase, asked: AtomicU64::new(0) }
    };
    let (turn, scene) = SCENE.take(start).await;
    scene.stage.proxy.heal();
    (turn, scene)
}

async fn posts(stage: &WorkerStage, path: &str) -> (usize, HttpAnswer) {
    stage.proxy.reset();
    let answer = stage.client.get(path).await;
    (stage.proxy.posts(), answer)
}

async fn at_once(client: &Client, path: &str) -> Vec<HttpAnswer> {
    concurrently((0..CROWD).map(|_| (client, path))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_call_reaches_no_rpc_in_whatever_spelling() {
    let (_turn, CacheFixture { stage, showcase, .. }) = documented().await;
    let lineage = showcase.lineage("newcomer");
    for (path, other_spelling, seconds) in [
        ("/api/v1/stats", "/api/v1/stats?utm=x", 300),
        ("/api/v1/stats/detailed", "/api/v1/stats/detailed?", 300),
        ("/api/v1/agents?page=2&limit=10", "/api/v1/agents?limit=%310&p%61ge=02&utm=x", 300),
        (&lineage, &format!("{lineage}?x"), 600),
        (&kya("kyoto"), &kya("kyoto").to_lowercase(), 60),
    ] {
        let asked = Instant::now();
        let (cold, first) = posts(stage, path).await;
        assert!(cold > 0 && first.number("age") <= asked.elapsed().as_secs() + 1, "{path}: {first:?}");
        stage.proxy.reset();
        let second = stage.client.get(other_spelling).await;
        assert_eq!((&second.text, second.header("etag")), (&first.text, first.header("etag")));
        assert_eq!((first.header("x-cache"), second.header("x-cache")), ("MISS", "HIT"), "{path}");
        assert_eq!(second.header("link"), first.header("link"), "{path}");
        let older = eventually("older", PATIENCE, async || {
            let answer = stage.client.get(path).await;
            (answer.number("age") > first.number("age")).then_some(answer)
        });
        // `max-age` counts from the time when the answer was made (RFC 9111), which `Age` gives.
        let control = format!("public, max-age={seconds}");
        let older = older.await.unwrap();
        assert_eq!([&first, &older].map(|answer| answer.header("cache-control")), [&control; 2]);
        // A conditional or partial request, and one for the headers alone, has no entry of its own.
        let tag = first.header("etag");
        assert!(tag.starts_with("W/\"") && tag.len() > 4, "{tag} is weak: compression changes the bytes");
        let known = stage.client.with("if-none-match", tag).get(path).await;
        assert_eq!((known.status, known.text.as_str(), known.header("etag")), (304, "", tag), "{path}");
        for (name, value) in
            [("if-none-match", "\"other\""), ("range", "bytes=0-5"), ("cache-control", "no-cache")]
        {
            assert_eq!(stage.client.with(name, value).get(path).await.text, first.text, "{path}: {name}");
        }
        assert_eq!(stage.client.send(Method::HEAD, path).await.header("x-cache"), "HIT", "{path}");
        assert_eq!(stage.proxy.posts(), 0, "{path}");
    }
    for path in
        ["/health", "/api/v1/agent/1/revenue", "/api/v1/agent/1/revenue?limit=2", "/api/v1/agent/4000"]
    {
        for _ in 0..2 {
            let (asked, answer) = posts(stage, path).await;
            assert_eq!((asked, answer.header("cache-control")), (1, "no-store"), "{path}");
        }
    }
    // A temporary error ends with its cause.
    let path = "/api/v1/agents?limit=9";
    stage.proxy.inject(FaultRule::any(NodeFault::error(-32601, "the method is not available")));
    let failed = stage.client.get(path).await;
    assert!(failed.error(500).contains("the method is not available"), "{}", failed.text);
    assert_eq!(failed.header("cache-control"), "no-store");
    stage.proxy.heal();
    assert_eq!(stage.client.get(path).await.header("x-cache"), "MISS");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_centres_entries_are_for_the_same_chain_and_endpoints_alone() {
    let (_turn, scene) = documented().await;
    let (chain, state) = (&scene.stage.chain, TempDir::new().unwrap());
    let proxy = Proxy::start(chain.node.url()).await.unwrap();
    let (path, port) = ("/api/v1/agents?limit=7", free_port().unwrap());
    // The answer's `X-Cache` and number of posts, from a new instance with this URL.
    let ask = async |key: &str| {
        let url = format!("{}/{key}", proxy.url());
        let options = WorkerOptions::new(&url, chain.contracts.registry);
        let worker = Worker::start(WorkerOptions { state: Some(state.path().to_owned()), port, ..options });
        let worker = worker.await.unwrap();
        proxy.reset();
        let answer = worker.client().get(path).await;
        answer.ok();
        // Entries carry the documents' format: a Worker with another format has entries of its own.
        let of_format = format!("/{FORMAT}/");
        let is_entry = |key: &String| key.ends_with(path) && key.contains(&of_format);
        let stored = async || cached_keys(state.path()).iter().any(is_entry);
        wait_until("stored", PATIENCE, stored).await;
        (answer.header("x-cache").to_owned(), proxy.posts())
    };
    assert_eq!(ask("one").await, ("MISS".to_owned(), 1));
    assert_eq!(ask("one").await, ("HIT".to_owned(), 0), "another instance's entry");
    assert_eq!(ask("two").await, ("MISS".to_owned(), 1), "the same host may serve another chain elsewhere");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_does_not_answer_is_left_and_the_chain_is_asked() {
    let (_turn, scene) = documented().await;
    let (proxy, registry) = (&scene.stage.proxy, scene.stage.chain.contracts.registry);
    let options = WorkerOptions::new(proxy.url(), registry);
    let silent = json!({ "silentCache": true });
    let server = Server::start(ServerKind::Worker, &options, silent).await.unwrap();
    for path in ["/api/v1/stats", "/api/v1/agents?limit=7", &kya("kyoto")] {
        for expected in ["MISS", "HIT"] {
            let answer = server.client().get(path).await;
            answer.ok();
            assert_eq!(answer.header("x-cache"), expected, "{path}: this instance's memory has it then");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_asks_at_once_is_one_question_to_the_chain() {
    let (_turn, scene) = documented().await;
    let (stage, agent) = (&scene.stage, scene.cold_agent());
    for (path, is_stored) in [(&*agent, true), (&format!("{agent}/revenue"), false), ("/readyz", false)] {
        // Long enough for all requests to arrive.
        stage.proxy.inject(FaultRule::any(NodeFault::Delay(Duration::from_secs(1))));
        stage.proxy.reset();
        let began = Instant::now();
        let answers = at_once(&stage.client, path).await;
        let (posts, seconds) = (stage.proxy.posts(), began.elapsed().as_secs());
        println!("{CROWD} cold requests at once for {path}: {posts} RPC posts in {seconds} s");
        // An answer that is not stored is read once more, for the requests that arrived during the first
        // read. Each read takes a second; on a busy machine the requests do not all arrive within the first.
        assert!(posts == 1 || !is_stored && posts as u64 <= seconds, "{path}: {posts} posts in {seconds} s");
        for answer in &answers {
            answer.ok();
            // Only the head's age in `/readyz` moves with the clock.
            assert!(answer.text == answers[0].text || path == "/readyz", "{path}: {}", answer.text);
        }
        stage.proxy.heal();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_takes_nothing_from_the_others() {
    let (_turn, scene) = documented().await;
    let (stage, path) = (&scene.stage, scene.cold_agent());
    stage.proxy.inject(FaultRule::any(NodeFault::Delay(Duration::from_secs(3))));
    stage.proxy.reset();
    let leaving =
        async |id| request_to_reset(stage.worker.url(), &path, &format!("X-Request-Id: {id}")).await.unwrap();
    let reader = leaving("the-reader-leaves").await;
    wait_until("asked", PATIENCE, async || stage.proxy.posts() > 0).await;
    let waiter = leaving("a-waiter-leaves").await;
    let mut half_closed = leaving("says-no-more-and-listens").await;
    half_closed.shutdown().await.unwrap();
    // The waiter's request arrived before this one.
    stage.client.get("/livez").await.ok();
    drop((reader, waiter));
    stage.client.get(&path).await.ok();
    assert_eq!(stage.proxy.posts(), 1, "the reading that one began is the others' as well");
    let mut answer = vec![0; 15];
    half_closed.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 200 OK");
    stage.client.with("x-request-id", "the-last-one").get("/livez").await.ok();
    stage.worker.lines_with("the-last-one", 1).await.unwrap();
    assert!(!stage.worker.log().contains("a-waiter-leaves"), "its request was cancelled");
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_readers_and_a_silent_index_object_cost_every_route_seconds_and_not_the_answer() {
    /// Shorter than the client's time-out, with time for a busy machine. Without leases on these lost
    /// readers, the other requests would fail.
    const MOST: Duration = Duration::from_secs(50);
    /// A silent object costs a third of this, which is more than [`KNOWN_SILENT`].
    const DEADLINE_SECONDS: u64 = 45;
    /// Limit of a request's time while the object is known to be silent, which is for ten seconds.
    const KNOWN_SILENT: Duration = Duration::from_secs(12);
    let (_turn, scene) = documented().await;
    let (stage, verdict, agent) = (&scene.stage, kya("kyoto"), scene.cold_agent());
    let proxy = Proxy::start(stage.chain.node.url()).await.unwrap();
    let options = WorkerOptions::new(proxy.url(), stage.chain.contracts.registry).var("CHAIN_ID", CHAIN_ID);
    let routes = [
        "/readyz".to_owned(),
        "/api/v1/stats".to_owned(),
        "/api/v1/agents?limit=9".to_owned(),
        format!("{agent}/revenue"),
        format!("{agent}?block={}", stage.chain.node.height().await.unwrap()),
        agent.clone(),
        verdict.clone(),
        // These take more than one round trip.
        "/api/v1/stats/detailed".to_owned(),
        scene.showcase.lineage("newcomer"),
        scene.showcase.path("dune") + "/ancestors",
        format!("{verdict}?history=1"),
        format!("{verdict}?evidence=1"),
    ];
    let of_index = ["/api/v1/changes", "/api/v1/agents?q=tokyo", "/api/v1/kya/range/0", "/api/v1/snapshot"];
    let of_index = of_index.map(str::to_owned).into_iter().chain([format!("{agent}/history")]);
    let (lost, of_index) = (json!({ "losesReaders": true }), of_index.collect::<Vec<_>>());
    let distant =
        |millis: u64| json!({ "losesReaders": true, "distant": { "millis": millis, "settings": {} } });
    let later_rounds = FaultRule::any(NodeFault::Hang).containing("blockhash");
    // Where readers are lost, of which routes, and in how many posts; 0 means while the object is asked.
    for (place, kind, workerd, rule, lost, posts) in [
        (
            "first round",
            ServerKind::Worker,
            lost.clone(),
            Some(FaultRule::any(NodeFault::Hang)),
            &routes[..],
            10,
        ),
        ("later round", ServerKind::Worker, lost, Some(later_rounds), &routes[7..], 4),
        ("object", ServerKind::Indexed, distant(600), None, &routes[..], 0),
        ("silent object", ServerKind::Indexed, distant(3_600_000), None, &[], 0),
    ] {
        let is_silent = place == "silent object";
        let mut options = options.clone();
        if kind == ServerKind::Indexed {
            options = options.var("INDEX", "durable-object");
        }
        if is_silent {
            options = options.var("RPC_DEADLINE_SECONDS", DEADLINE_SECONDS);
        }
        let server = Server::start(kind, &options, workerd).await.unwrap();
        let client = server.client();
        if place == "object" {
            client.until_snapshot(PATIENCE).await.unwrap();
        }
        rule.into_iter().for_each(|rule| proxy.inject(rule));
        proxy.reset();
        let mut readers = Vec::new();
        for path in lost {
            readers.push(request_to_reset(server.url(), path, "X-Request-Id: lost").await.unwrap());
        }
        // They came before this request did.
        client.get("/livez").await.ok();
        let hanging = || proxy.log().iter().filter(|post| post.answer.get().is_none()).count();
        wait_until(place, PATIENCE, async || hanging() >= posts).await;
        proxy.heal();
        drop(readers);
        for most in if is_silent { vec![MOST, KNOWN_SILENT] } else { vec![MOST] } {
            let paths = routes.iter().chain(if kind == ServerKind::Indexed { &of_index[..] } else { &[] });
            let began = Instant::now();
            for (at, answer) in concurrently(paths.map(|path| (&client, path))).await.iter().enumerate() {
                let expected = if at >= routes.len() && is_silent { 503 } else { 200 };
                assert_eq!(answer.status, expected, "{place}, {at}: {answer:?}");
            }
            assert!(began.elapsed() < most, "{place}: {:?}", began.elapsed());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_that_reset_their_connections_leave_nothing_in_memory() {
    let (_turn, scene) = documented().await;
    let proxy = Proxy::start(scene.stage.chain.node.url()).await.unwrap();
    let options = WorkerOptions::new(proxy.url(), scene.stage.chain.contracts.registry);
    let server = Server::start(ServerKind::Worker, &options, json!({ "measured": true })).await.unwrap();
    let mut taken = Vec::new();
    for _ in 0..4 {
        server.reset_by(200, &scene.cold_agent(), &proxy, Duration::from_secs(2)).await.unwrap();
        taken.push(server.wasm_memory().await.unwrap());
    }
    // The first rounds fill the instance's caches. A leak of each of these requests would take 2.2 KiB.
    assert!(taken[3] <= taken[1] + 128 * 1024, "{taken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pages_of_an_agents_revenue_are_cut_from_one_read() {
    let (_turn, scene) = documented().await;
    let (stage, agent) = (&scene.stage, scene.cold_agent());
    stage.proxy.inject(FaultRule::any(NodeFault::Delay(Duration::from_secs(1))));
    stage.proxy.reset();
    let began = Instant::now();
    let pages = (0..20).map(|offset| (&stage.client, format!("{agent}/revenue?offset={offset}")));
    for (offset, answer) in concurrently(pages).await.iter().enumerate() {
        assert_eq!(answer.ok()["offset"], offset);
    }
    let (posts, seconds) = (stage.proxy.posts(), began.elapsed().as_secs());
    assert!(posts as u64 <= seconds, "{posts} posts in {seconds} s");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_is_asked_for_once_in_five_seconds() {
    let (_turn, scene) = documented().await;
    let (stage, agent) = (&scene.stage, scene.cold_agent());
    // A verdict tells the instance the newest block.
    stage.client.get(&kya("kyoto")).await.ok();
    let near = format!("{agent}?block=9000");
    let (asked, answer) = posts(stage, &near).await;
    answer.failed(404, "BLOCK_NOT_AVAILABLE");
    assert!(asked > 0);
    for path in [near, format!("{agent}?block=99999999999"), format!("{agent}?block=99999999998")] {
        let (asked, answer) = posts(stage, &path).await;
        answer.failed(404, "BLOCK_NOT_AVAILABLE");
        assert_eq!(asked, 0, "{path}");
    }
    // The same holds for a scan that fails, and requests that wait for it are no hits.
    let (proxy, worker) = scene.another(|options| options).await;
    proxy.inject(FaultRule::any(NodeFault::error(-32601, "the method is not available")));
    let client = worker.client();
    let failed = concurrently((0..9).map(|_| (&client, "/api/v1/stats/detailed"))).await;
    assert!(failed.iter().all(|answer| answer.status == 500), "{failed:?}");
    proxy.reset();
    client.get("/api/v1/revenue/aggregate").await.error(500);
    assert_eq!(proxy.posts(), 0, "a failed scan is kept");
    for line in worker.lines_with("\"status\":500", 10).await.unwrap() {
        assert!(line.contains("\"cache\":\"\""), "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pages_of_the_registry_are_made_from_one_scan_and_agree_with_it() {
    let (_turn, scene) = documented().await;
    let (proxy, worker) = scene.another(|options| options).await;
    let client = worker.client();
    let pages = STATUSES.iter().flat_map(|status| {
        (1..=15).map(move |limit| format!("/api/v1/agents?status={status}&limit={limit}"))
    });
    let answers = concurrently(pages.map(|page| (&client, page))).await;
    assert_eq!(proxy.posts(), 2, "a scan of so small a registry");
    let stats = client.get("/api/v1/stats/detailed").await.ok();
    for (answer, status) in answers.iter().step_by(15).zip(STATUSES) {
        assert_eq!(answer.ok()["total"], stats["statusDistribution"][status], "{status}");
    }
    let compliance = client.get("/api/v1/agents/compliance").await.ok();
    assert_eq!(compliance["total"], stats["totalAgents"]);
    let revenue = client.get("/api/v1/revenue/aggregate").await.ok();
    assert_eq!(revenue["byCurrency"], stats["totalRevenue"]);
    assert_eq!(proxy.posts(), 2, "the scan is there");
    // A wallet's past comes from the scan as well, with one round trip for the verdict.
    assert_eq!(client.get(&kya("smuggler")).await.ok()["registration"], "former");
    assert_eq!(proxy.posts(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_asked_for_all_the_time_is_renewed_before_its_end_and_no_request_waits() {
    const TTL: Duration = Duration::from_secs(20);
    let (_turn, scene) = documented().await;
    let (proxy, worker) = scene.another(|options| options.var("KYA_TTL_SECONDS", TTL.as_secs())).await;
    let (client, path) = (worker.client(), kya("kyoto"));
    let checked = |answer: &HttpAnswer| answer.ok()["checkedAt"].as_str().unwrap().to_owned();
    let (mut read, mut asked) = (vec![checked(&client.get(&path).await)], Instant::now());
    wait_until("renewed", 4 * TTL, async || {
        let paused = std::mem::replace(&mut asked, Instant::now()).elapsed();
        let answer = client.get(&path).await;
        let is_hit = answer.header("x-cache") == "HIT";
        // A machine that stands still for the last tenth of the TTL lets the entry expire.
        assert!(is_hit || paused > TTL / 10, "age {}, {paused:?}", answer.header("age"));
        assert!(answer.number("age") <= TTL.as_secs(), "never beyond its time");
        read.push(checked(&answer));
        read.dedup();
        is_hit && read.len() > 1
    })
    .await;
    assert_eq!(proxy.posts(), read.len(), "one request renews");
    worker.lines_with("\"cache\":\"RENEWAL\"", 1).await.unwrap();
}
