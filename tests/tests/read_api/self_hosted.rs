//! The edge of `docs/self-hosting.md`, without Cloudflare: both Workers in one process of plain workerd.
//!
//! 1. It behaves as the API's description says.
//! 2. Its pages and their headers are those of the Worker by `wrangler.toml`; behind the page's nginx each
//!    client has a limit of its own, and behind TLS links are `https`.
//! 3. `kill -9` loses nothing of the index: the next process answers from the disk, without a node. SIGTERM
//!    ends it with success.
//! 4. The health check succeeds while the edge runs, and fails otherwise.

use std::net::Ipv4Addr;
use std::process::Command;

use e2e::client::Client;
use e2e::fault::{FaultRule, NodeFault};
use e2e::process::PATIENCE;
use e2e::proxy::Proxy;
use e2e::repo;
use e2e::seed::showcase_chain;
use e2e::servers::documented_nginx;
use e2e::worker::{Worker, WorkerOptions};
use reqwest::Method;
use rustix::process::Signal;
use tempfile::TempDir;

use super::descriptions::{described, try_out_read_api};
use super::{LIMIT, counted, scene};

/// Path that only the index answers.
const NEWEST: &str = "/api/v1/agents?sort=-id&limit=5";

/// Returns whether the image's health check succeeds at this address.
fn is_healthy(edge: &str) -> bool {
    let mut check = Command::new(repo::node_tool("workerd").unwrap());
    let address = format!("edge={}", edge.trim_start_matches("http://"));
    check.args(["test", "--external-addr", &address, "deploy/edge/health.capnp"]);
    check.current_dir(repo::root()).output().unwrap().status.success()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_self_hosted_edge_does_the_same_and_keeps_its_index_through_a_kill() {
    let (chain, _) = showcase_chain().await.unwrap();
    let proxy = Proxy::start(chain.node.url()).await.unwrap();
    let directory = TempDir::new().unwrap();
    let options = described(WorkerOptions::new(proxy.url(), chain.contracts.registry)).await;
    let options = options.var("INDEX", "durable-object");
    let options = WorkerOptions { state: Some(directory.path().to_owned()), ..options };
    let mut edge = Worker::start_self_hosted(&options).await.unwrap();
    let client = edge.client();
    try_out_read_api(edge.url(), &client).await;
    assert_eq!(client.get("/readyz").await.ok().get("warnings"), None);
    assert!(is_healthy(edge.url()));

    let before = client.get(NEWEST).await.ok();
    assert_eq!(before["data"].as_array().unwrap().len(), 5, "{before}");
    edge.process().kill();
    assert!(!is_healthy(edge.url()));
    proxy.inject(FaultRule::any(NodeFault::Refuse));
    let mut edge = Worker::start_self_hosted(&options).await.unwrap();
    assert_eq!(edge.client().get(NEWEST).await.ok(), before);
    edge.process().signal(Signal::TERM).unwrap();
    let status = edge.process().exited(PATIENCE).await.unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn its_pages_are_those_of_the_worker_and_clients_are_those_that_a_proxy_names() {
    let (_turn, scene) = scene().await;
    let directory = TempDir::new().unwrap();
    let stage = &scene.stage;
    let options = counted(WorkerOptions::new(stage.proxy.url(), stage.chain.contracts.registry));
    let options = WorkerOptions { state: Some(directory.path().to_owned()), ..options };
    let edge = Worker::start_self_hosted(&options).await.unwrap();
    let page = stage.client.get("/").await.text;
    let (_, script) = page.split_once("src=\"/assets/main").unwrap();
    let script = format!("/assets/main{}", script.split('"').next().unwrap());
    for (method, path) in [
        (Method::GET, "/"),
        (Method::HEAD, "/"),
        (Method::GET, "/index.html"),
        (Method::GET, script.as_str()),
        (Method::GET, "/favicon.svg"),
        (Method::GET, "/_headers"),
        (Method::GET, "/assets/main.js"),
        (Method::POST, "/favicon.svg"),
        (Method::GET, "/openapi.json"),
        (Method::GET, "/llms.txt"),
        (Method::GET, "/agents"),
        (Method::PUT, "/api/v1/agent/1"),
    ] {
        let [own, other] = [edge.url(), stage.worker.url()].map(Client::new);
        let [own, other] = [own.send(method.clone(), path).await, other.send(method.clone(), path).await];
        assert_eq!(own.status, other.status, "{method} {path}");
        let mut headers = [own, other].map(|answer| {
            let mut headers = answer.headers.clone();
            // These differ by time, by connection, and by the way in which files are served.
            let others = "date x-request-id connection content-length transfer-encoding etag \
                cf-cache-status age ratelimit x-ratelimit-remaining x-ratelimit-reset";
            others.split_whitespace().for_each(|name| drop(headers.remove(name)));
            headers
        });
        let [own, other] = &mut headers;
        assert_eq!(own, other, "{method} {path}");
    }
    let https = edge.client().with("x-forwarded-proto", "https").with("host", "kya.example");
    let introduction = https.get("/llms.txt").await.text;
    assert!(introduction.contains("https://kya.example/openapi.json"), "{introduction}");

    let nginx = documented_nginx("docs/self-hosting.md", "http://127.0.0.1:3000", edge.url()).await;
    let (_nginx, proxied) = nginx.unwrap();
    for client in [2, 3].map(|last| proxied.from_address(Ipv4Addr::new(127, 0, 0, last))) {
        for used in 1..=2_u8 {
            let forged = client.with("cf-connecting-ip", &format!("203.0.113.{used}"));
            let remaining = forged.get("/health").await.number("x-ratelimit-remaining");
            assert_eq!(remaining, LIMIT - u64::from(used));
        }
    }
}
