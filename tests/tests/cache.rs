//! The cache: what is asked twice is read once, for as long as documented.
//!
//! 1. A second call reaches no RPC, and its age grows.
//! 2. Two spellings of one question share an entry; two questions do not.
//! 3. Errors are not stored: an unknown agent is found once it is registered, a dead node's 500 ends with the node's return.
//! 4. Revenue histories and `/health` are never stored.
//! 5. After its TTL an entry is read again.
//! 6. A TTL of 0 stores nothing.
//! 7. A KYA verdict is not given out past the moment at which time alone ends it.

use std::time::{Duration, Instant};

use alloy::primitives::U256;
use e2e::anvil::wall_clock;
use e2e::client::Answer;
use e2e::fault::{Fault, Rule};
use e2e::process::eventually;
use e2e::seed::{self, Showcase};
use e2e::stage::{Stage, run};
use e2e::worker::{Worker, WorkerOptions};
use registry_core::abi::IAgentRegistry;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

type Scene = (Stage, Showcase);

/// One stage with the documented TTLs, for one test at a time: they count.
async fn documented() -> (MutexGuard<'static, ()>, &'static Scene) {
    static SCENE: OnceCell<Scene> = OnceCell::const_new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let scene = SCENE.get_or_init(async || Stage::showcase(|options| options).await.unwrap()).await;
    scene.0.proxy.heal();
    (turn, scene)
}

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

/// Asks `path` until the answer comes from the cache: it is stored behind the first answer's back.
async fn warm(stage: &Stage, path: &str) {
    eventually("cached", Duration::from_secs(5), async || (posts(stage, path).await == 0).then_some(()))
        .await
        .unwrap_or_else(|error| panic!("{path}: {error}"));
}

#[test]
fn a_second_call_reaches_no_rpc() {
    run(async {
        let (_turn, (stage, showcase)) = documented().await;
        for path in [
            "/api/v1/stats".to_owned(),
            "/api/v1/stats/detailed".to_owned(),
            "/api/v1/agent/1".to_owned(),
            "/api/v1/agents".to_owned(),
            "/api/v1/agents?status=Revoked".to_owned(),
            "/api/v1/agents/compliance".to_owned(),
            "/api/v1/revenue/aggregate".to_owned(),
            format!("/api/v1/agent/{}/lineage", showcase.id("atlas")),
            format!("/api/v1/kya/{}", seed::wallet("kyoto").address()),
        ] {
            stage.proxy.reset();
            let first = stage.client.get(&path).await;
            assert!(stage.proxy.posts() > 0, "{path} was cold");
            assert_eq!(first.number("age"), 0, "{path}");
            warm(stage, &path).await;
            let second = stage.client.get(&path).await;
            assert_eq!(second.text, first.text, "{path}");
            assert_eq!(second.header("etag"), first.header("etag"), "{path}");
            assert_eq!((first.header("x-cache"), second.header("x-cache")), ("MISS", "HIT"), "{path}");
            let older = eventually("older", Duration::from_secs(5), async || {
                let answer = stage.client.get(&path).await;
                (answer.number("age") > 0).then_some(answer)
            })
            .await
            .unwrap();
            assert_eq!(
                max_age(&older) + older.number("age"),
                max_age(&first),
                "{path}: what is left of its time"
            );
        }
    });
}

#[test]
fn two_spellings_of_one_question_share_an_entry() {
    run(async {
        let (_turn, (stage, _)) = documented().await;
        let wallet = seed::wallet("zurich").address();
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
            (
                "/api/v1/agents?limit=100&status=Active".to_owned(),
                vec!["/api/v1/agents?page=1&status=Active&limit=5000".to_owned()],
            ),
            (format!("/api/v1/kya/{wallet}"), vec![format!("/api/v1/kya/{lower}")]),
            (
                "/api/v1/agent/4".to_owned(),
                vec!["/api/v1/agent/04".to_owned(), "/api/v1/agent/%34?x".to_owned()],
            ),
        ] {
            warm(stage, &spelling).await;
            for other in others {
                assert_eq!(posts(stage, &other).await, 0, "{other} is {spelling}");
            }
        }
        // And questions that only look alike do not.
        for different in
            ["/api/v1/agents?page=10&limit=2", "/api/v1/agents?page=2&limit=1", "/api/v1/agent/44"]
        {
            assert!(posts(stage, different).await > 0, "{different}");
        }
    });
}

#[test]
fn a_client_asks_head_and_get_of_one_entry() {
    run(async {
        let (_turn, (stage, _)) = documented().await;
        warm(stage, "/api/v1/agent/6").await;
        stage.proxy.reset();
        let head = stage.client.send(reqwest::Method::HEAD, "/api/v1/agent/6").await;
        assert_eq!((head.status, stage.proxy.posts()), (200, 0));
        // Nor does a conditional or partial request make, or get, an entry of its own.
        let tag = head.header("etag").to_owned();
        assert_eq!(stage.client.with("if-none-match", &tag).get("/api/v1/agent/6").await.status, 304);
        assert_eq!(stage.client.with("range", "bytes=0-5").get("/api/v1/agent/6").await.status, 200);
        assert_eq!(stage.client.with("cache-control", "no-cache").get("/api/v1/agent/6").await.status, 200);
        assert_eq!(stage.proxy.posts(), 0);
    });
}

#[test]
fn an_unknown_agent_is_found_once_it_is_registered() {
    run(async {
        let (_turn, (stage, _)) = documented().await;
        let id = stage.oracle().unwrap().total().await.unwrap() + 1;
        let path = format!("/api/v1/agent/{id}");
        for _ in 0..2 {
            stage.proxy.reset();
            assert_eq!(stage.client.get(&path).await.error(404), format!("Agent not found: {id}"));
            assert!(stage.proxy.posts() > 0, "a 404 is asked anew each time");
        }
        let call = IAgentRegistry::registerAgentCall {
            haftungsperson: stage.chain.owner(),
            agentWallet: seed::wallet("latecomer").address(),
            constitutionHash: Default::default(),
            capabilityHash: Default::default(),
            operationalScope: "late".into(),
            parentAgentId: U256::ZERO,
            selfModifying: false,
        };
        stage.chain.send(stage.chain.owner(), call).await.unwrap();
        assert_eq!(stage.client.get(&path).await.ok()["agent"]["operationalScope"], "late");
    });
}

#[test]
fn a_failure_ends_when_the_node_is_back() {
    run(async {
        let (_turn, (stage, _)) = documented().await;
        let path = "/api/v1/agent/8/lineage";
        stage.proxy.inject(Rule::any(Fault::error(-32601, "the method is not available")));
        let failed = stage.client.get(path).await;
        assert!(failed.error(500).contains("the method is not available"), "{}", failed.text);
        assert_eq!(failed.header("cache-control"), "no-store");
        stage.proxy.heal();
        assert_eq!(stage.client.get(path).await.ok()["agentId"], 8);
    });
}

#[test]
fn revenue_histories_and_health_are_never_stored() {
    run(async {
        let (_turn, (stage, _)) = documented().await;
        for path in ["/health", "/api/v1/agent/1/revenue", "/api/v1/agent/1/revenue?limit=2"] {
            for _ in 0..4 {
                assert_eq!(posts(stage, path).await, 1, "{path}");
            }
        }
    });
}

#[test]
fn after_its_time_to_live_an_entry_is_read_again() {
    run(async {
        const SECONDS: u64 = 3;
        let (stage, showcase) = Stage::showcase(|options| {
            let options = options.var("AGENT_TTL_SECONDS", SECONDS);
            options.var("LINEAGE_TTL_SECONDS", SECONDS).var("KYA_TTL_SECONDS", 0)
        })
        .await
        .unwrap();

        let lineage = format!("/api/v1/agent/{}/lineage", showcase.id("atlas"));
        for path in ["/api/v1/agent/1", &lineage] {
            let made = Instant::now();
            warm(&stage, path).await;
            eventually("read again", Duration::from_secs(30), async || {
                (posts(&stage, path).await > 0).then_some(())
            })
            .await
            .unwrap();
            // A second of slack: the entry's age is counted in whole seconds.
            assert!(made.elapsed() >= Duration::from_secs(SECONDS - 1), "{path}: after {:?}", made.elapsed());
        }

        // The TTL of 0 beside them: every check reads the chain.
        let kya = format!("/api/v1/kya/{}", seed::wallet("kyoto").address());
        for _ in 0..4 {
            assert_eq!(posts(&stage, &kya).await, 1);
        }
        assert_eq!(stage.client.get(&kya).await.header("cache-control"), "no-store");
    });
}

#[test]
fn a_verdict_that_time_ends_is_not_given_out_past_its_end() {
    run(async {
        // On a chain of its own: the grace period is everybody's.
        let (stage, _) = Stage::showcase(|options| options).await.unwrap();
        let kya = format!("/api/v1/kya/{}", seed::wallet("kyoto").address());
        let agent: U256 = U256::from(stage.client.get(&kya).await.ok()["agent"]["agentId"].as_u64().unwrap());
        let registry = stage.chain.contracts.registry;
        let record =
            stage.chain.read(registry, IAgentRegistry::getAgentCall { agentId: agent }).await.unwrap();
        let lapse = wall_clock() + 15;
        let grace = U256::from(lapse - 1 - record.lastAttestation);
        let call = IAgentRegistry::setAttestationGracePeriodCall { gracePeriodSeconds: grace };
        stage.chain.send(stage.chain.owner(), call).await.unwrap();

        // Another Worker: its cache is empty.
        let worker =
            Worker::start(WorkerOptions::new(stage.proxy.url(), registry).var("KYA_TTL_SECONDS", 60))
                .await
                .unwrap();
        let client = worker.client();
        let first = client.get(&kya).await;
        assert_eq!(first.ok()["isCompliant"], true);
        assert!(max_age(&first) <= lapse - wall_clock() + 1, "{}", max_age(&first));
        let mut tags = vec![first.header("etag").to_owned()];
        let lapsed = eventually("lapsed", Duration::from_secs(30), async || {
            let asked = wall_clock();
            let answer = client.get(&kya).await;
            let compliant = answer.ok()["isCompliant"] == true;
            assert!(
                !compliant || asked < lapse,
                "compliant at {asked}, and the grace period ended at {lapse}"
            );
            tags.push(answer.header("etag").to_owned());
            (!compliant).then_some(answer)
        })
        .await
        .unwrap();
        assert_eq!(max_age(&lapsed), 60, "from then on the verdict stays");
        tags.dedup();
        assert_eq!(tags.len(), 2, "one tag for each verdict: {tags:?}");
    });
}
