//! What is stored, for how long, and for which requests.

use std::time::{Duration, Instant};

use alloy::primitives::U256;
use e2e::anvil::wall_clock;
use e2e::client::Answer;
use e2e::fault::{Fault, Rule};
use e2e::process::{eventually, free_port, wait_until};
use e2e::proxy::Proxy;
use e2e::seed::{self, kya};
use e2e::server::{Bundles, Kind, Server};
use e2e::stage::Stage;
use e2e::stored::cached_keys;
use e2e::worker::{Worker, WorkerOptions};
use registry_core::eth::abi::IAgentRegistry;
use tempfile::TempDir;

use crate::documented;

/// How many posts one call to `path` costs.
async fn posts(stage: &Stage, path: &str) -> usize {
    stage.proxy.reset();
    stage.client.get(path).await.ok();
    stage.proxy.posts()
}

/// The seconds in `Cache-Control`.
fn max_age(answer: &Answer) -> u64 {
    let control = answer.header("cache-control");
    let seconds = control.strip_prefix("public, max-age=").and_then(|seconds| seconds.parse().ok());
    seconds.unwrap_or_else(|| panic!("{control}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_call_reaches_no_rpc() {
    let (_turn, scene) = documented().await;
    let stage = &scene.stage;
    for path in [
        "/api/v1/stats".to_owned(),
        "/api/v1/stats/detailed".to_owned(),
        format!("/api/v1/agent/{}", scene.cold_agent()),
        "/api/v1/agents".to_owned(),
        format!("/api/v1/agent/{}/lineage", scene.cold_agent()),
        kya("kyoto"),
    ] {
        stage.proxy.reset();
        let asked = Instant::now();
        let first = stage.client.get(&path).await;
        assert!(stage.proxy.posts() > 0, "{path} was cold");
        assert!(first.number("age") <= asked.elapsed().as_secs() + 1, "{path}: made when it was asked for");
        let second = stage.client.get(&path).await;
        assert_eq!(second.text, first.text, "{path}");
        assert_eq!(second.header("etag"), first.header("etag"), "{path}");
        assert_eq!((first.header("x-cache"), second.header("x-cache")), ("MISS", "HIT"), "{path}");
        let older = eventually("older", Duration::from_secs(5), async || {
            let answer = stage.client.get(&path).await;
            (answer.number("age") > 1).then_some(answer)
        })
        .await
        .unwrap();
        // It counts from when the answer was made (RFC 9111).
        assert_eq!(max_age(&older), max_age(&first), "{path}");
        assert!(older.number("age") > first.number("age"), "{path}: and Age says when that was");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_spellings_of_one_question_share_an_entry() {
    let (_turn, scene) = documented().await;
    let stage = &scene.stage;
    let (agent, wallet) = (scene.cold_agent(), seed::wallet("zurich").address());
    let lower = wallet.to_string().to_lowercase();
    for (spelling, others) in [
        (
            "/api/v1/agents?page=2&limit=10".to_owned(),
            vec![
                "/api/v1/agents?limit=10&page=2".to_owned(),
                "/api/v1/agents?limit=010&page=2&utm=x".to_owned(),
                "/api/v1/agents?p%61ge=2&limit=%310".to_owned(),
            ],
        ),
        ("/api/v1/agents?limit=100".to_owned(), vec!["/api/v1/agents?page=1&limit=5000".to_owned()]),
        (format!("/api/v1/kya/{wallet}"), vec![format!("/api/v1/kya/{lower}")]),
        (
            format!("/api/v1/agent/{agent}"),
            vec![format!("/api/v1/agent/0{agent}"), format!("/api/v1/agent/%30{agent}?x")],
        ),
    ] {
        assert!(posts(stage, &spelling).await > 0, "{spelling} was cold");
        for other in others {
            assert_eq!(posts(stage, &other).await, 0, "{other} is {spelling}");
        }
    }
    // And questions that only look alike do not.
    let other_agent = format!("/api/v1/agent/{}", scene.cold_agent());
    for different in ["/api/v1/agents?page=10&limit=2", "/api/v1/agents?page=2&limit=1", &other_agent] {
        assert!(posts(stage, different).await > 0, "{different}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_asks_head_and_get_of_one_entry() {
    let (_turn, scene) = documented().await;
    let stage = &scene.stage;
    let path = format!("/api/v1/agent/{}", scene.cold_agent());
    assert!(posts(stage, &path).await > 0);
    stage.proxy.reset();
    let head = stage.client.send(reqwest::Method::HEAD, &path).await;
    assert_eq!((head.status, stage.proxy.posts()), (200, 0));
    // Nor does a conditional or partial request make, or get, an entry of its own.
    let tag = head.header("etag").to_owned();
    assert_eq!(stage.client.with("if-none-match", &tag).get(&path).await.status, 304);
    assert_eq!(stage.client.with("range", "bytes=0-5").get(&path).await.status, 200);
    assert_eq!(stage.client.with("cache-control", "no-cache").get(&path).await.status, 200);
    assert_eq!(stage.proxy.posts(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_agent_is_found_once_it_is_registered() {
    let (_turn, scene) = documented().await;
    let stage = &scene.stage;
    let id = stage.oracle().unwrap().total().await.unwrap() + 1;
    let path = format!("/api/v1/agent/{id}");
    for _ in 0..2 {
        stage.proxy.reset();
        assert_eq!(stage.client.get(&path).await.error(404), format!("Agent not found: {id}"));
        assert!(stage.proxy.posts() > 0, "a 404 is asked anew each time");
    }
    let call = seed::registration_call(id, seed::wallet("latecomer").address(), "late", 0);
    stage.chain.send(stage.chain.owner(), call).await.unwrap();
    assert_eq!(stage.client.get(&path).await.ok()["agent"]["operationalScope"], "late");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_ends_when_the_node_is_back() {
    let (_turn, scene) = documented().await;
    let stage = &scene.stage;
    let agent = scene.cold_agent();
    let path = &format!("/api/v1/agent/{agent}/lineage");
    stage.proxy.inject(Rule::any(Fault::error(-32601, "the method is not available")));
    let failed = stage.client.get(path).await;
    assert!(failed.error(500).contains("the method is not available"), "{}", failed.text);
    assert_eq!(failed.header("cache-control"), "no-store");
    stage.proxy.heal();
    assert_eq!(stage.client.get(path).await.ok()["agentId"], agent);
}

#[tokio::test(flavor = "multi_thread")]
async fn revenue_histories_and_health_are_never_stored() {
    let (_turn, scene) = documented().await;
    let stage = &scene.stage;
    for path in ["/health", "/api/v1/agent/1/revenue", "/api/v1/agent/1/revenue?limit=2"] {
        for _ in 0..4 {
            assert_eq!(posts(stage, path).await, 1, "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_its_time_to_live_an_entry_is_read_again() {
    const SECONDS: u64 = 3;
    let settings = |options: WorkerOptions| options.ttl(SECONDS).var("KYA_TTL_SECONDS", 0);
    let (stage, showcase) = Stage::showcase(settings).await.unwrap();
    let lineage = showcase.lineage("atlas");
    for path in ["/api/v1/agent/1", &lineage] {
        let made = Instant::now();
        assert!(posts(&stage, path).await > 0);
        let mut age = 0;
        wait_until("read again", Duration::from_secs(30), async || {
            let before = std::mem::replace(&mut age, stage.client.get(path).await.number("age"));
            age < before
        })
        .await;
        // An entry that is requested all the time is renewed in the last tenth of its TTL.
        let least = Duration::from_secs(SECONDS) * 9 / 10;
        assert!(made.elapsed() >= least, "{path}: after {:?}", made.elapsed());
    }

    // The TTL of 0 beside them: every check reads the chain.
    let kya = kya("kyoto");
    for _ in 0..4 {
        assert_eq!(posts(&stage, &kya).await, 1);
    }
    assert_eq!(stage.client.get(&kya).await.header("cache-control"), "no-store");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_verdict_that_time_ends_is_not_given_out_past_its_end() {
    // On a chain of its own: the grace period holds for all tests.
    let (stage, _) = Stage::showcase(|options| options).await.unwrap();
    let (kya, registry) = (kya("kyoto"), stage.chain.contracts.registry);
    let call = IAgentRegistry::getAgentByWalletCall { wallet: seed::wallet("kyoto").address() };
    let record = stage.chain.read(registry, call).await.unwrap();
    let lapse = wall_clock() + 15;
    let grace = U256::from(lapse - 1 - record.lastAttestation);
    let call = IAgentRegistry::setAttestationGracePeriodCall { gracePeriodSeconds: grace };
    stage.chain.send(stage.chain.owner(), call).await.unwrap();

    let client = &stage.client;
    let first = client.get(&kya).await;
    assert_eq!(first.ok()["isCompliant"], true);
    assert!(max_age(&first) <= lapse - wall_clock() + 1, "{}", max_age(&first));
    let mut tags = vec![first.header("etag").to_owned()];
    let lapsed = eventually("lapsed", Duration::from_secs(30), async || {
        let asked = wall_clock();
        let answer = client.get(&kya).await;
        let compliant = answer.ok()["isCompliant"] == true;
        assert!(!compliant || asked < lapse, "compliant at {asked}, and the grace period ended at {lapse}");
        tags.push(answer.header("etag").to_owned());
        (!compliant).then_some(answer)
    })
    .await
    .unwrap();
    assert_eq!(max_age(&lapsed), 60, "from then on the verdict stays");
    tags.dedup();
    assert_eq!(tags.len(), 2, "one tag for each verdict: {tags:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_data_centres_entries_are_for_the_same_chain_and_endpoints_alone() {
    let (_turn, scene) = documented().await;
    let (chain, state) = (&scene.stage.chain, TempDir::new().unwrap());
    let proxy = Proxy::start(chain.node.url()).await.unwrap();
    let path = "/api/v1/agents?limit=7";
    let port = free_port().unwrap();
    let start = async |key: &str| {
        let url = format!("{}/{key}", proxy.url());
        let mut options = WorkerOptions::new(&url, chain.contracts.registry);
        options.state = Some(state.path().to_owned());
        options.port = port;
        Worker::start(options).await.unwrap()
    };
    let worker = start("one").await;
    worker.client().get(path).await.ok();
    wait_until("stored", Duration::from_secs(10), async || {
        cached_keys(state.path()).iter().any(|key| key.ends_with(path))
    })
    .await;
    drop(worker);
    proxy.reset();
    let worker = start("one").await;
    let answer = worker.client().get(path).await;
    assert_eq!((answer.header("x-cache"), proxy.posts()), ("HIT", 0), "another instance's entry");
    drop(worker);
    // The same host may serve another chain at another path.
    let worker = start("two").await;
    let answer = worker.client().get(path).await;
    assert_eq!((answer.header("x-cache"), proxy.posts()), ("MISS", 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cache_that_does_not_answer_is_left_and_the_chain_is_asked() {
    let (_turn, scene) = documented().await;
    let (proxy, registry) = (&scene.stage.proxy, scene.stage.chain.contracts.registry);
    let bundles = Bundles::make(&[Kind::Worker], None).await.unwrap();
    let options = WorkerOptions::new(proxy.url(), registry);
    let server = Server::start_with_silent_cache(&bundles, &options).await.unwrap();
    let client = server.client();
    for path in ["/api/v1/stats".to_owned(), "/api/v1/agents?limit=7".to_owned(), kya("kyoto")] {
        let asked = Instant::now();
        let first = client.get(&path).await;
        first.ok();
        assert_eq!(first.header("x-cache"), "MISS", "{path}");
        assert!(asked.elapsed() < Duration::from_secs(10), "{path}: {:?}", asked.elapsed());
        assert_eq!(client.get(&path).await.header("x-cache"), "HIT", "{path}: this instance's memory has it");
    }
}
