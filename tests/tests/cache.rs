//! The caches, in an instance's memory and in the data centre: what is asked twice is read once, for as long as documented.
//!
//! 1. A second call reaches no RPC, and its age grows.
//! 2. Two spellings of one question share an entry; two questions do not.
//! 3. Errors that may pass are not stored: an unknown agent is found once it is registered, a dead node's 500 ends with the
//!    node's return. Those certain to repeat are, for seconds.
//! 4. Revenue histories and `/health` are never stored.
//! 5. After its TTL an entry is read again; one asked for all the time is renewed before, and nobody waits.
//! 6. A TTL of 0 stores nothing.
//! 7. A KYA verdict is not given out past the moment at which time alone ends it.
//! 8. A crowd that asks at once is one question to the chain, also where nothing is stored, and where its first asker leaves.
//! 9. Answers about the whole registry are made from one scan, however many pages there are, and agree with one another.
//! 10. The data centre's entries serve other instances, but none that reads another chain or other endpoints.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use alloy::primitives::{Address, U256};
use e2e::anvil::wall_clock;
use e2e::client::{Answer, Client};
use e2e::fault::{Fault, Rule};
use e2e::process::{eventually, free_port};
use e2e::proxy::Proxy;
use e2e::seed::{self, Showcase};
use e2e::stage::{Stage, run};
use e2e::worker::{Worker, WorkerOptions};
use registry_core::abi::IAgentRegistry;
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// How many ask at once.
const CROWD: usize = 100;

/// The stage with the documented TTLs.
struct Scene {
    stage: Stage,
    showcase: Showcase,
    /// Agents nobody has asked about yet begin after this one. The first is asked about by spellings of its id.
    asked: AtomicU64,
}

impl Scene {
    /// An agent that no test has asked about: whatever is asked about it is cold.
    fn cold_agent(&self) -> u64 {
        let id = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(id <= self.showcase.total, "the showcase has too few agents");
        id
    }
}

/// The scene, for one test at a time: they count.
async fn documented() -> (MutexGuard<'static, ()>, &'static Scene) {
    static SCENE: OnceCell<Scene> = OnceCell::const_new();
    static TURN: Mutex<()> = Mutex::const_new(());
    let turn = TURN.lock().await;
    let scene = SCENE
        .get_or_init(async || {
            let (stage, showcase) = Stage::showcase(|options| options).await.unwrap();
            Scene { stage, showcase, asked: AtomicU64::new(0) }
        })
        .await;
    scene.stage.proxy.heal();
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

/// Asks `path` from all of a crowd at once.
async fn at_once(client: &Client, path: &str) -> Vec<Answer> {
    let ask = |client: Client, path: String| tokio::spawn(async move { client.get(&path).await });
    let tasks: Vec<_> = (0..CROWD).map(|_| ask(client.clone(), path.to_owned())).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

/// Whether there is anything in that directory, which may not be there yet.
fn has_file(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_some())
}

/// The path of a check of this agent's wallet.
fn kya(agent: &str) -> String {
    format!("/api/v1/kya/{}", seed::wallet(agent).address())
}

#[test]
fn a_second_call_reaches_no_rpc() {
    run(async {
        let (_turn, scene) = documented().await;
        let (stage, showcase) = (&scene.stage, &scene.showcase);
        for path in [
            "/api/v1/stats".to_owned(),
            "/api/v1/stats/detailed".to_owned(),
            format!("/api/v1/agent/{}", scene.cold_agent()),
            "/api/v1/agents".to_owned(),
            format!("/api/v1/agent/{}/lineage", showcase.id("atlas")),
            kya("kyoto"),
        ] {
            stage.proxy.reset();
            let first = stage.client.get(&path).await;
            assert!(stage.proxy.posts() > 0, "{path} was cold");
            assert!(first.number("age") <= 1, "{path}");
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
            assert_eq!(
                max_age(&older),
                max_age(&first),
                "{path}: counts from when the answer was made (RFC 9111)"
            );
            assert!(older.number("age") > first.number("age"), "{path}: and Age says when that was");
        }
    });
}

#[test]
fn two_spellings_of_one_question_share_an_entry() {
    run(async {
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
    });
}

#[test]
fn a_client_asks_head_and_get_of_one_entry() {
    run(async {
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
    });
}

#[test]
fn an_unknown_agent_is_found_once_it_is_registered() {
    run(async {
        let (_turn, scene) = documented().await;
        let stage = &scene.stage;
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
    });
}

#[test]
fn revenue_histories_and_health_are_never_stored() {
    run(async {
        let (_turn, scene) = documented().await;
        let stage = &scene.stage;
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
            assert!(posts(&stage, path).await > 0);
            let mut age = 0;
            eventually("read again", Duration::from_secs(30), async || {
                let before = std::mem::replace(&mut age, stage.client.get(path).await.number("age"));
                (age < before).then_some(())
            })
            .await
            .unwrap();
            // Whoever asks all the time sees it renewed in the last tenth of its time.
            let least = Duration::from_secs(SECONDS) * 9 / 10;
            assert!(made.elapsed() >= least, "{path}: after {:?}", made.elapsed());
        }

        // The TTL of 0 beside them: every check reads the chain.
        let kya = kya("kyoto");
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

#[test]
fn a_crowd_that_asks_at_once_is_one_question_to_the_chain() {
    run(async {
        let (_turn, scene) = documented().await;
        let stage = &scene.stage;
        let agent = scene.cold_agent();
        for (path, most) in [
            (format!("/api/v1/kya/{}", seed::wallet("nobody").address()), 1),
            (format!("/api/v1/agent/{agent}"), 1),
            // What is not stored is asked once more, for all who came while it was being answered.
            (format!("/api/v1/agent/{agent}/revenue"), 2),
            ("/health".to_owned(), 2),
            ("/readyz".to_owned(), 2),
        ] {
            // Long enough for all of them to come.
            stage.proxy.inject(Rule::any(Fault::Delay(Duration::from_secs(1))));
            stage.proxy.reset();
            let began = Instant::now();
            let answers = at_once(&stage.client, &path).await;
            let (posts, seconds) = (stage.proxy.posts(), began.elapsed().as_secs());
            println!("{CROWD} cold requests at once for {path}: {posts} RPC posts in {seconds} s");
            // One after the other, each of them a second long: a machine so busy that the crowd comes in drops has more.
            assert!(
                posts == 1 || (most > 1 && posts as u64 <= seconds),
                "{path}: {posts} posts in {seconds} s"
            );
            for answer in &answers {
                answer.ok();
                // Of them all, the head's age alone moves with the clock.
                assert!(answer.text == answers[0].text || path == "/readyz", "{path}: {}", answer.text);
            }
            stage.proxy.heal();
        }
    });
}

#[test]
fn all_pages_of_the_registry_are_made_from_one_scan_and_agree_with_it() {
    run(async {
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
        let tasks: Vec<_> = pages
            .map(|page| (other.client(), page))
            .map(|(client, page)| tokio::spawn(async move { client.get(&page).await }))
            .collect();
        let asked = tasks.len();
        for task in tasks {
            task.await.unwrap().ok();
        }
        println!(
            "{asked} cold pages of `status=` at once: {} RPC posts, one scan is {a_scan}",
            proxy.posts()
        );
        assert_eq!(proxy.posts(), a_scan);
    });
}

#[test]
fn what_is_not_stored_is_never_older_than_its_question() {
    run(async {
        let (_turn, scene) = documented().await;
        let stage = &scene.stage;
        let agent = scene.showcase.id("atlas");
        let path = format!("/api/v1/agent/{agent}/revenue");
        let total = async || stage.client.get(&path).await.ok()["total"].as_u64().unwrap();
        let before = total().await;
        // One asker's answer is held back after the node has given it; meanwhile there is one report more.
        let served = stage.proxy.served();
        stage.proxy.inject(Rule::any(Fault::Delay(Duration::from_secs(2))).once());
        let (early, late) = tokio::join!(total(), async {
            eventually("read", Duration::from_secs(10), async || {
                (stage.proxy.served() > served).then_some(())
            })
            .await
            .unwrap();
            let report = IAgentRegistry::reportRevenueCall {
                agentId: U256::from(agent),
                amount: U256::from(1),
                currency: "EUR".to_owned(),
                category: "fees".to_owned(),
                periodStart: 1,
                periodEnd: 2,
            };
            let owner = stage.chain.read(
                stage.chain.contracts.registry,
                IAgentRegistry::getAgentCall { agentId: U256::from(agent) },
            );
            stage.chain.send(owner.await.unwrap().creator, report).await.unwrap();
            total().await
        });
        assert_eq!((early, late), (before, before + 1), "who asks after a report sees it");
    });
}

#[test]
fn a_client_that_goes_away_takes_nothing_from_the_others() {
    run(async {
        let (_turn, scene) = documented().await;
        let stage = &scene.stage;
        let path = format!("/api/v1/agent/{}", scene.cold_agent());
        stage.proxy.inject(Rule::any(Fault::Delay(Duration::from_secs(1))));
        stage.proxy.reset();
        let first = tokio::spawn({
            let (client, path) = (stage.client.clone(), path.clone());
            async move { client.get(&path).await }
        });
        eventually("asked", Duration::from_secs(10), async || (stage.proxy.posts() > 0).then_some(()))
            .await
            .unwrap();
        first.abort();
        let asked = Instant::now();
        stage.client.get(&path).await.ok();
        assert_eq!(stage.proxy.posts(), 1, "the reading it began is the others' as well");
        assert!(asked.elapsed() < Duration::from_secs(4), "after {:?}", asked.elapsed());
    });
}

#[test]
fn a_failure_goes_to_all_who_waited_for_it() {
    run(async {
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
    });
}

#[test]
fn an_error_certain_to_repeat_itself_is_kept_for_seconds() {
    run(async {
        let (_turn, scene) = documented().await;
        let proxy = &scene.stage.proxy;
        let nowhere = WorkerOptions::new(proxy.url(), Address::repeat_byte(0x77));
        let worker = Worker::start(nowhere).await.unwrap();
        let client = worker.client();
        let posts = async || {
            proxy.reset();
            let answer = client.get("/api/v1/stats/detailed").await;
            answer.error(500);
            assert_eq!(answer.json()["code"], "REGISTRY_ERROR");
            assert_eq!(answer.header("cache-control"), "no-store");
            proxy.posts()
        };
        assert!(posts().await > 0);
        // All of them within the five seconds, or else one of them more.
        let (began, mut again) = (Instant::now(), 0);
        for _ in 0..20 {
            again += posts().await;
        }
        assert!(
            again == 0 || began.elapsed() > Duration::from_secs(4),
            "{again} posts in {:?}",
            began.elapsed()
        );
        eventually("asked anew", Duration::from_secs(20), async || (posts().await > 0).then_some(()))
            .await
            .unwrap();
    });
}

#[test]
fn an_answer_asked_for_all_the_time_is_renewed_before_its_end_and_nobody_waits() {
    run(async {
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
        eventually("renewed twice", Duration::from_secs(4 * SECONDS), async || {
            let answer = client.get(&path).await;
            assert_eq!(answer.header("x-cache"), "HIT", "age {}", answer.header("age"));
            assert!(answer.number("age") <= SECONDS, "never beyond its time");
            answers.push(checked(&answer));
            answers.dedup();
            (answers.len() == 3).then_some(())
        })
        .await
        .unwrap();
        assert_eq!(proxy.posts(), answers.len(), "one request renews");
        let renewals = worker.log().lines().filter(|line| line.contains("\"cache\":\"RENEWAL\"")).count();
        assert_eq!(renewals, 2, "each has a line in the log");
    });
}

#[test]
fn the_data_centres_entries_are_for_the_same_chain_and_endpoints_alone() {
    run(async {
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
        eventually("stored", Duration::from_secs(10), async || {
            has_file(&state.path().join("v3/cache/default/blobs")).then_some(())
        })
        .await
        .unwrap();
        drop(worker);
        proxy.reset();
        let worker = start("one").await;
        let answer = worker.client().get(path).await;
        assert_eq!((answer.header("x-cache"), proxy.posts()), ("HIT", 0), "another instance's entry");
        drop(worker);
        // The same host, and for all anybody knows another chain.
        let worker = start("two").await;
        let answer = worker.client().get(path).await;
        assert_eq!((answer.header("x-cache"), proxy.posts()), ("MISS", 1));
    });
}
