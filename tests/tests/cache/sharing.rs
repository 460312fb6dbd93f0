//! Requests for the same answer: concurrent ones, and repeated ones.

use std::time::{Duration, Instant};

use alloy::primitives::{Address, U256};
use e2e::anvil::wall_clock;
use e2e::client::{Answer, Client, concurrently};
use e2e::fault::{Fault, Rule};
use e2e::process::wait_until;
use e2e::proxy::Proxy;
use e2e::seed::{self, kya};
use e2e::worker::{Worker, WorkerOptions};
use registry_core::eth::abi::IAgentRegistry;

use crate::documented;

/// Concurrent requests.
const CROWD: usize = 100;

/// Sends concurrent requests for `path`.
async fn at_once(client: &Client, path: &str) -> Vec<Answer> {
    concurrently((0..CROWD).map(|_| (client, path))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_that_asks_at_once_is_one_question_to_the_chain() {
    let (_turn, scene) = documented().await;
    let stage = &scene.stage;
    let agent = scene.cold_agent();
    for (path, most) in [
        (kya("nobody"), 1),
        (format!("/api/v1/agent/{agent}"), 1),
        // What is not stored is read once more, for the requests that came during the first read.
        (format!("/api/v1/agent/{agent}/revenue"), 2),
        ("/health".to_owned(), 2),
        ("/readyz".to_owned(), 2),
    ] {
        // Long enough for all requests to arrive.
        stage.proxy.inject(Rule::any(Fault::Delay(Duration::from_secs(1))));
        stage.proxy.reset();
        let began = Instant::now();
        let answers = at_once(&stage.client, &path).await;
        let (posts, seconds) = (stage.proxy.posts(), began.elapsed().as_secs());
        println!("{CROWD} cold requests at once for {path}: {posts} RPC posts in {seconds} s");
        // Each read takes a second; on a busy machine the requests do not all arrive within the first.
        assert!(posts == 1 || (most > 1 && posts as u64 <= seconds), "{path}: {posts} posts in {seconds} s");
        for answer in &answers {
            answer.ok();
            // Of them all, the head's age alone moves with the clock.
            assert!(answer.text == answers[0].text || path == "/readyz", "{path}: {}", answer.text);
        }
        stage.proxy.heal();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_pages_of_the_registry_are_made_from_one_scan_and_agree_with_it() {
    let (_turn, scene) = documented().await;
    let proxy = Proxy::start(scene.stage.chain.node.url()).await.unwrap();
    let options = WorkerOptions::new(proxy.url(), scene.stage.chain.contracts.registry);
    let (one, other) = tokio::join!(Worker::start(options.clone()), Worker::start(options));
    let (one, other) = (one.unwrap(), other.unwrap());
    let client = one.client();

    let stats = client.get("/api/v1/stats/detailed").await;
    assert_eq!(stats.header("x-cache"), "MISS");
    let a_scan = proxy.posts();
    proxy.reset();
    for (status, agents) in stats.ok()["statusDistribution"].as_object().unwrap() {
        let page = client.get(&format!("/api/v1/agents?status={status}&limit=7")).await;
        assert_eq!((page.header("x-cache"), &page.ok()["total"]), ("HIT", agents), "{status}");
    }
    let compliance = client.get("/api/v1/agents/compliance").await.ok();
    assert_eq!(compliance["total"], stats.ok()["totalAgents"]);
    let compliant = compliance["data"].as_array().unwrap().iter().map(|item| &item["compliance"]);
    let compliant =
        compliant.filter(|state| state["isActive"] == true && state["attestationCurrent"] == true);
    assert_eq!(stats.ok()["compliantCount"], compliant.count());
    let revenue = client.get("/api/v1/revenue/aggregate").await.ok();
    assert_eq!(revenue["byCurrency"], stats.ok()["totalRevenue"]);
    assert_eq!(proxy.posts(), 0, "the scan is there");

    // And where it is not, a crowd of pages is one scan as well.
    let pages = ["Active", "Suspended", "Revoked", "Terminated"].into_iter().flat_map(|status| {
        (1..=15).map(move |limit| format!("/api/v1/agents?status={status}&limit={limit}"))
    });
    let client = other.client();
    let answers = concurrently(pages.map(|page| (&client, page))).await;
    let (asked, posts) = (answers.len(), proxy.posts());
    println!("{asked} cold pages of `status=` at once: {posts} RPC posts, one scan is {a_scan}");
    answers.iter().for_each(|answer| drop(answer.ok()));
    assert_eq!(posts, a_scan);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_stored_is_never_older_than_its_question() {
    let (_turn, scene) = documented().await;
    let stage = &scene.stage;
    let agent = scene.showcase.id("atlas");
    let path = format!("/api/v1/agent/{agent}/revenue");
    let total = async || stage.client.get(&path).await.ok()["total"].as_u64().unwrap();
    let before = total().await;
    // One answer is held back after the node has given it; meanwhile there is one report more.
    let served = stage.proxy.served();
    stage.proxy.inject(Rule::any(Fault::Delay(Duration::from_secs(2))).once());
    let (early, late) = tokio::join!(total(), async {
        wait_until("read", Duration::from_secs(10), async || stage.proxy.served() > served).await;
        let report = seed::report(agent, U256::ONE, "EUR", "fees", wall_clock());
        let owner = stage.chain.read(
            stage.chain.contracts.registry,
            IAgentRegistry::getAgentCall { agentId: U256::from(agent) },
        );
        stage.chain.send(owner.await.unwrap().creator, report).await.unwrap();
        total().await
    });
    assert_eq!((early, late), (before, before + 1), "a request after a report sees it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_takes_nothing_from_the_others() {
    let (_turn, scene) = documented().await;
    let stage = &scene.stage;
    let path = format!("/api/v1/agent/{}", scene.cold_agent());
    stage.proxy.inject(Rule::any(Fault::Delay(Duration::from_secs(1))));
    stage.proxy.reset();
    let first = tokio::spawn({
        let (client, path) = (stage.client.clone(), path.clone());
        async move { client.get(&path).await }
    });
    wait_until("asked", Duration::from_secs(10), async || stage.proxy.posts() > 0).await;
    first.abort();
    let asked = Instant::now();
    stage.client.get(&path).await.ok();
    assert_eq!(stage.proxy.posts(), 1, "the reading it began is the others' as well");
    assert!(asked.elapsed() < Duration::from_secs(4), "after {:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_goes_to_all_who_waited_for_it() {
    let (_turn, scene) = documented().await;
    let stage = &scene.stage;
    let path = format!("/api/v1/agent/{}", scene.cold_agent());
    stage.proxy.inject(Rule::any(Fault::Hang));
    stage.proxy.reset();
    let asked = Instant::now();
    for answer in at_once(&stage.client, &path).await {
        answer.error(500);
    }
    // Three attempts of four seconds, for all of them together.
    assert!(stage.proxy.posts() <= 6, "{} posts", stage.proxy.posts());
    assert!(asked.elapsed() < Duration::from_secs(25), "after {:?}", asked.elapsed());
    stage.proxy.heal();
    stage.client.get(&path).await.ok();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_certain_to_repeat_itself_is_kept_for_seconds() {
    let (_turn, scene) = documented().await;
    let proxy = &scene.stage.proxy;
    let nowhere = WorkerOptions::new(proxy.url(), Address::repeat_byte(0x77));
    let worker = Worker::start(nowhere).await.unwrap();
    let client = worker.client();
    let posts = async || {
        proxy.reset();
        let answer = client.get("/api/v1/stats/detailed").await;
        answer.failed(500, "REGISTRY_ERROR");
        assert_eq!(answer.header("cache-control"), "no-store");
        proxy.posts()
    };
    assert!(posts().await > 0);
    // All of them within the five seconds, or else one of them more.
    let (began, mut again) = (Instant::now(), 0);
    for _ in 0..20 {
        again += posts().await;
    }
    assert!(again == 0 || began.elapsed() > Duration::from_secs(4), "{again} posts in {:?}", began.elapsed());
    wait_until("asked anew", Duration::from_secs(20), async || posts().await > 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_asked_for_all_the_time_is_renewed_before_its_end_and_nobody_waits() {
    const SECONDS: u64 = 10;
    let (_turn, scene) = documented().await;
    let proxy = Proxy::start(scene.stage.chain.node.url()).await.unwrap();
    let options = WorkerOptions::new(proxy.url(), scene.stage.chain.contracts.registry);
    let worker = Worker::start(options.var("KYA_TTL_SECONDS", SECONDS)).await.unwrap();
    let (client, path) = (worker.client(), kya("kyoto"));
    let first = client.get(&path).await;
    assert_eq!(first.header("x-cache"), "MISS");
    let checked = |answer: &Answer| answer.ok()["checkedAt"].as_str().unwrap().to_owned();
    let mut answers = vec![checked(&first)];
    // Three lives of an entry.
    wait_until("renewed twice", Duration::from_secs(4 * SECONDS), async || {
        let answer = client.get(&path).await;
        assert_eq!(answer.header("x-cache"), "HIT", "age {}", answer.header("age"));
        assert!(answer.number("age") <= SECONDS, "never beyond its time");
        answers.push(checked(&answer));
        answers.dedup();
        answers.len() == 3
    })
    .await;
    assert_eq!(proxy.posts(), answers.len(), "one request renews");
    let renewals = worker.lines_with("\"cache\":\"RENEWAL\"", 2).await.unwrap();
    assert_eq!(renewals.len(), 2, "each has a line in the log");
}
