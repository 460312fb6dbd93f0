//! The API as HTTP: methods, headers, browsers, and the pages about the API.
//!
//! 1. Every answer, errors included, is readable by any web page, and has an id and the headers that protect
//!    browsers. A refused request reads nothing from the chain, and counts against no limit.
//! 2. `HEAD` is `GET` without the body; `OPTIONS` answers a browser's preflight.
//! 3. The pages about the API exist with any settings, are cacheable, and count against no limit.

use std::collections::BTreeSet;

use e2e::client::Client;
use e2e::seed;
use e2e::worker::{Worker, WorkerOptions};
use reqwest::Method;
use serde_json::json;

use super::{JSON, ReadApiFixture, cost, scene};

/// Headers that a web page may read.
const EXPOSED: &str = "age etag link retry-after x-cache x-ratelimit-limit x-ratelimit-remaining \
    x-ratelimit-reset x-request-id";

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_its_headers_and_what_is_refused_costs_nothing() {
    let (_turn, ReadApiFixture { stage, .. }) = scene().await;
    // This client sets no request id.
    let client = Client::new(stage.worker.url()).with("origin", "https://example.org");
    let mut ids = BTreeSet::new();
    for (method, path, status, charged) in [
        (Method::GET, "/health", 200, 1),
        (Method::GET, "/api/v1/agent/1/lineage", 200, 5),
        (Method::GET, "/api/v1/agent/4000", 404, 1),
        (Method::GET, "/api/v1/agents?page=0", 400, 0),
        (Method::GET, "/api/v1/kya/0x12", 400, 0),
        (Method::GET, "/nowhere", 404, 0),
        (Method::GET, "/api/v1/stats/", 404, 0),
        // The explorer's files and views hide no route, and are no routes.
        (Method::GET, "/assets/main.js", 404, 0),
        (Method::GET, "/_headers", 404, 0),
        (Method::GET, "/agents", 404, 0),
        (Method::POST, "/api/v1/stats", 405, 0),
        (Method::POST, "/openapi.json", 405, 0),
        (Method::PUT, "/api/v1/agent/1", 405, 0),
        (Method::DELETE, "/nowhere", 405, 0),
    ] {
        stage.proxy.reset();
        let mut answered = None;
        let charges = cost(&client, async |client| {
            let answer = client.send(method.clone(), path).await;
            answered = Some(answer.clone());
            answer
        });
        assert_eq!(charges.await, charged, "{method} {path}");
        let answer = answered.unwrap();
        assert_eq!(answer.status, status, "{method} {path}: {}", answer.text);
        assert_eq!(stage.proxy.posts() > 0, charged > 0, "{method} {path}");
        assert!(answer.json().is_object());
        for (name, value) in [
            ("content-type", JSON),
            ("access-control-allow-origin", "*"),
            ("cache-control", "no-store"),
            ("x-content-type-options", "nosniff"),
            ("content-security-policy", "default-src 'none'; frame-ancestors 'none'"),
            ("referrer-policy", "no-referrer"),
            ("allow", if status == 405 { "GET, HEAD, OPTIONS" } else { "" }),
        ] {
            assert_eq!(answer.header(name), value, "{method} {path}: {name}");
        }
        let exposed = answer.header("access-control-expose-headers").to_lowercase();
        let is_exposed = |name: &&str| exposed.split(", ").any(|exposed| exposed == *name);
        assert!(EXPOSED.split_whitespace().all(|name| is_exposed(&name)), "{method} {path}: {exposed}");
        assert!(ids.insert(answer.header("x-request-id").to_owned()), "{path}: each has an id of its own");
    }
    assert_eq!(stage.client.get("/api/v1/agent/4000").await.error(404), "Agent not found: 4000");
    let named = stage.client.with("x-request-id", "trace-17.a_b:c").get("/health").await;
    assert_eq!(named.header("x-request-id"), "trace-17.a_b:c");
}

#[tokio::test(flavor = "multi_thread")]
async fn head_is_get_without_the_body_and_a_preflight_is_answered() {
    let (_turn, ReadApiFixture { stage, .. }) = scene().await;
    for path in ["/health", "/api/v1/agent/1", "/api/v1/agent/4000", "/api/v1/agents?limit=x"] {
        let get = stage.client.get(path).await;
        let head = stage.client.send(Method::HEAD, path).await;
        assert_eq!((head.status, head.text.as_str()), (get.status, ""), "{path}");
        for header in ["content-type", "cache-control", "etag", "access-control-allow-origin"] {
            assert_eq!(head.header(header), get.header(header), "{path}: {header}");
        }
    }
    // A condition applies to GET and HEAD alone.
    let body = json!({ "wallets": [seed::wallet("zurich").address()] }).to_string();
    let posted = stage.client.with("if-none-match", "*").post("/api/v1/kya", JSON, body).await;
    assert_eq!((posted.ok()["data"].as_array().map(Vec::len), posted.header("etag")), (Some(1), ""));
    stage.proxy.reset();
    for (path, methods) in [("/api/v1/agents", "GET, HEAD, OPTIONS"), ("/api/v1/kya", "POST, OPTIONS")] {
        let asking = stage.client.with("access-control-request-headers", "if-none-match");
        let answer = asking.send(Method::OPTIONS, path).await;
        assert_eq!((answer.status, answer.text.as_str()), (204, ""));
        for (name, value) in [
            ("access-control-allow-origin", "*"),
            ("access-control-allow-headers", "*"),
            ("access-control-allow-methods", methods),
            ("allow", methods),
        ] {
            assert_eq!(answer.header(name), value, "{path}: {name}");
        }
    }
    assert_eq!(stage.proxy.posts(), 0);
}

const PAGES: [(&str, &str); 5] = [
    ("/openapi.json", "application/json"),
    (
        "/.well-known/api-catalog",
        "application/linkset+json; profile=\"https://www.rfc-editor.org/info/rfc9727\"",
    ),
    ("/.well-known/ai-catalog.json", "application/ai-catalog+json"),
    ("/mcp/server-card", "application/mcp-server-card+json"),
    ("/llms.txt", "text/plain; charset=utf-8"),
];

#[tokio::test(flavor = "multi_thread")]
async fn pages_about_the_api_are_there_whatever_the_settings() {
    let wrong = WorkerOptions::default().var("RPC_URL", "nonsense").var("RATE_LIMIT_PER_MINUTE", 1);
    let worker = Worker::start(wrong).await.unwrap();
    let client = worker.client();
    for (path, media_type) in PAGES {
        let page = client.get(path).await;
        let tag = page.header("etag");
        for (name, value) in [
            ("content-type", media_type),
            ("access-control-allow-origin", "*"),
            ("cache-control", "public, max-age=3600"),
            ("x-ratelimit-remaining", ""),
            // `HIT`, since the page needs nothing from the chain.
            ("x-cache", "HIT"),
        ] {
            assert_eq!((page.status, page.header(name)), (200, value), "{path}: {name}");
        }
        let again = client.with("if-none-match", tag).get(path).await;
        assert_eq!((again.status, again.text.as_str()), (304, ""), "{path} {tag}");
    }
}
