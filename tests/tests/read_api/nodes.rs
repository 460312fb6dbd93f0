//! Nodes that fail on real sockets: connections in the runtime. The meaning of each kind of failure is tested
//! in `core/tests/engine`.
//!
//! 1. Of two nodes the second answers and is kept; where both fail, the error comes in time, with its
//!    message.
//! 2. An endless answer is read to a limit, and no further.
//! 3. The other node races one that is late now and then.
//! 4. No secret of a URL, no client and no wallet is in an answer or a line of the log.

use std::time::{Duration, Instant};

use e2e::client::{Client, assert_no_secret};
use e2e::fault::{FaultRule, NodeFault};
use e2e::process::{PATIENCE, wait_until};
use e2e::proxy::Proxy;
use e2e::seed::{self, kya};
use e2e::worker::{Worker, WorkerOptions};
use tokio::sync::OnceCell;

use super::{ReadApiFixture, counted, scene};

/// Deadline of a request, over all attempts.
const DEADLINE: Duration = Duration::from_secs(12);
/// Time that a machine under load may add; the client waits for longer.
const SLACK: Duration = Duration::from_secs(10);

/// User, password, path and query of two endpoints, any of which may be a provider's key.
const SECRETS: [[&str; 4]; 2] = [
    ["us3r-0fAKe", "p4ss%3Aw0rd", "0fAKeKey1234567890", "s3cr3t-token"],
    ["0ther-us3r", "0ther-passw0rd", "0therKey0987654321", "0ther-t0ken"],
];

/// Two endpoints before the same chain, and a Worker with both, short time-outs and no hedging.
struct EndpointPair {
    first: Proxy,
    second: Proxy,
    worker: Worker,
    client: Client,
}

/// Takes the pair, without faults, and with the first endpoint as the one that is kept.
async fn pair(scene: &ReadApiFixture) -> &'static EndpointPair {
    static PAIR: OnceCell<EndpointPair> = OnceCell::const_new();
    let start = async || {
        let node = scene.stage.chain.node.url();
        let (first, second) = (Proxy::start(node).await.unwrap(), Proxy::start(node).await.unwrap());
        let url = |proxy: &Proxy, [user, password, path, query]: [&str; 4]| {
            let at = format!("http://{user}:{password}@");
            format!("{}/v2/{path}?token={query}", proxy.url().replace("http://", &at))
        };
        let urls = format!("{}, {}", url(&first, SECRETS[0]), url(&second, SECRETS[1]));
        let options = counted(WorkerOptions::new(&urls, scene.stage.chain.contracts.registry).ttl(0))
            .var("RPC_HEDGING", "off")
            .var("RPC_TIMEOUT_SECONDS", 4)
            .var("RPC_DEADLINE_SECONDS", DEADLINE.as_secs());
        let worker = Worker::start(options).await.unwrap();
        EndpointPair { client: worker.client(), first, second, worker }
    };
    let pair = PAIR.get_or_init(start).await;
    pair.begin_with_the_first().await;
    pair
}

impl EndpointPair {
    async fn begin_with_the_first(&self) {
        wait_until("first endpoint kept", PATIENCE, async || {
            self.heal();
            self.second.inject(FaultRule::any(NodeFault::Refuse).once());
            // On a busy machine either may be late, and this is repeated.
            let moved = self.client.get("/health").await.status;
            self.heal();
            let kept = self.client.get("/health").await.status;
            let posts = (self.first.reset().len(), self.second.reset().len());
            (moved, kept, posts) == (200, 200, (1, 0))
        })
        .await;
    }

    fn heal(&self) {
        for proxy in [&self.first, &self.second] {
            proxy.heal();
            proxy.reset();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_nodes_the_other_answers_and_where_both_fail_the_error_comes_in_time() {
    let (_turn, scene) = scene().await;
    let path = "/api/v1/agents?limit=50";
    let expected = pair(scene).await.client.get(path).await.ok();
    let unreachable = "RPC endpoint unreachable";
    for (fault, message) in [
        (NodeFault::Hang, "RPC endpoint did not answer within"),
        (NodeFault::HangAfterwards, "RPC endpoint did not answer within"),
        (NodeFault::Refuse, unreachable),
        (NodeFault::LoseAnswer, unreachable),
        (NodeFault::HalfAnAnswer, unreachable),
        (NodeFault::Garbage(String::new()), "RPC endpoint gave a malformed answer"),
        (NodeFault::page(403, "<html>sorry</html>"), "RPC endpoint answered HTTP 403"),
        (NodeFault::Status { status: 429, body: String::new(), retry_after: Some(60) }, "HTTP 429"),
    ] {
        let pair = pair(scene).await;
        pair.first.inject(FaultRule::any(fault.clone()));
        assert_eq!(pair.client.get(path).await.ok(), expected, "{fault:?}");
        assert!(pair.first.posts() > 0, "{fault:?}: was asked first");
        pair.first.reset();
        assert_eq!(pair.client.get(path).await.ok(), expected, "{fault:?}");
        assert_eq!(pair.first.posts(), 0, "{fault:?}: not asked again");

        pair.second.inject(FaultRule::any(fault.clone()));
        let asked = Instant::now();
        let answer = pair.client.get(path).await;
        let error = answer.error(500);
        assert!(error.starts_with("No RPC endpoint answered (2 of 2 tried). Number "), "{fault:?}: {error}");
        assert!(asked.elapsed() < DEADLINE + SLACK, "{fault:?}: {answer:?}");
        assert!(error.contains(message) && answer.number("retry-after") > 0, "{fault:?}: {answer:?}");
        assert_eq!(answer.header("cache-control"), "no-store", "{fault:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_an_end_is_read_to_a_limit() {
    /// Limit of what an instance reads of one answer, 8 MiB, with the buffers at both ends of its connections
    /// on a busy machine.
    const MOST: usize = 32 << 20;
    let (_turn, scene) = scene().await;
    let pair = pair(scene).await;
    pair.first.inject(FaultRule::any(NodeFault::Endless));
    pair.client.get("/api/v1/agents?status=Active").await.ok();
    let (posts, streamed) = (pair.first.posts(), pair.first.streamed());
    assert!(posts == 1 && streamed <= MOST, "{posts} posts, {streamed} bytes sent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_late_now_and_then_is_raced_by_the_other() {
    /// Requests that show the Worker the usual time, and allow for an extra request.
    const USUAL: usize = 40;
    const LATE: Duration = Duration::from_secs(5);
    let (_turn, ReadApiFixture { stage, .. }) = scene().await;
    let node = stage.chain.node.url();
    let (first, second) = (Proxy::start(node).await.unwrap(), Proxy::start(node).await.unwrap());
    let urls = format!("{} {}", first.url(), second.url());
    // A late answer must not be a time-out.
    let options = counted(WorkerOptions::new(&urls, stage.chain.contracts.registry).ttl(0))
        .var("RPC_TIMEOUT_SECONDS", 60)
        .var("RPC_DEADLINE_SECONDS", 60);
    let worker = Worker::start(options).await.unwrap();
    let ask = async || worker.client().get(&kya("kyoto")).await.ok();
    // Repeated where, on a busy machine, the one extra request was spent on an answer that was not late.
    wait_until("raced", Duration::from_secs(180), async || {
        first.heal();
        second.heal();
        for _ in 0..USUAL {
            ask().await;
        }
        first.reset();
        second.reset();
        ask().await;
        let [asked, other] = if second.posts() == 0 { [&first, &second] } else { [&second, &first] };
        asked.inject(FaultRule::any(NodeFault::Delay(LATE)));
        first.reset();
        second.reset();
        let began = Instant::now();
        ask().await;
        began.elapsed() < LATE && (asked.posts(), other.posts()) == (1, 1)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_secret_and_no_client_is_in_any_answer_or_line_of_the_log() {
    let (_turn, scene) = scene().await;
    let pair = pair(scene).await;
    let wallet = seed::wallet("zurich").address().to_string();
    let paths = ["/health", "/readyz", "/api/v1/agents/compliance", &format!("/api/v1/kya/{wallet}")];
    let client = pair.client.at([203, 0, 113, 77]).with("x-request-id", "secrets-17");
    let health = client.get("/health").await;
    assert_eq!(health.ok()["rpc"], pair.first.url(), "scheme and host alone");
    let basic = "Basic dXMzci0wZkFLZTpwNHNzOncwcmQ=";
    assert_eq!(pair.first.log()[0].authorization, basic, "the user part, percent-decoded");
    let mut answers = vec![health];
    let all = SECRETS.as_flattened().join(" and ");
    for fault in [
        NodeFault::Refuse,
        NodeFault::Garbage(all.clone()),
        NodeFault::error(-32000, &format!("no access to {}/v2/{all}", pair.first.url())),
        NodeFault::error(-32005, &format!("rate limit of {all}")),
        NodeFault::Status { status: 401, body: all.clone(), retry_after: None },
    ] {
        pair.heal();
        pair.first.inject(FaultRule::any(fault.clone()));
        pair.second.inject(FaultRule::any(fault));
        for path in paths {
            answers.push(client.get(path).await);
        }
    }
    let lines = pair.worker.lines_with("secrets-17", answers.len()).await.unwrap();
    let decoded = ["203.0.113.77", "p4ss:w0rd", &basic["Basic ".len()..]];
    assert_no_secret(&answers, &lines, &[SECRETS.as_flattened(), &decoded].concat());
    assert!(!lines.concat().to_lowercase().contains(&wallet.to_lowercase()), "a wallet is in the log");
}
