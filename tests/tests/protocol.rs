//! The API as HTTP: methods, headers, conditional requests, and browsers.
//!
//! 1. Every answer is JSON, says so, and may be read by any web page, errors included.
//! 2. `HEAD` is `GET` without the body; every other method but `OPTIONS` is refused with 405.
//! 3. `OPTIONS` answers a browser's preflight.
//! 4. Answers carry their TTL; a client that has the current one gets 304.
//! 5. Unknown routes are 404, each with the documented body.
//! 6. Pages of a list link to the others, and the links lead through the whole list.
//! 7. Every answer has an id, the client's own where it sent one, and the headers that protect browsers.
//! 8. The explorer's page is at `/`, under a strict policy; its files are immutable, and hide no route.

use e2e::client::Answer;
use e2e::seed::{self, Showcase};
use e2e::stage::Stage;
use reqwest::Method;
use tokio::sync::OnceCell;

async fn scene() -> &'static (Stage, Showcase) {
    static SCENE: OnceCell<(Stage, Showcase)> = OnceCell::const_new();
    SCENE.get_or_init(async || Stage::showcase(|options| options).await.unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_json_that_any_web_page_may_read() {
    let (stage, _) = scene().await;
    for (path, status) in [
        ("/health", 200),
        ("/api/v1/stats", 200),
        ("/api/v1/agents?page=0", 400),
        ("/api/v1/agent/4000", 404),
        ("/nowhere", 404),
    ] {
        let answer = stage.client.with("origin", "https://example.org").get(path).await;
        assert_eq!(answer.status, status, "{path}");
        assert_eq!(answer.header("content-type"), "application/json", "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), "*", "{path}");
        let exposed = answer.header("access-control-expose-headers").to_lowercase();
        for header in [
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
            "retry-after",
            "x-request-id",
            "x-cache",
            "link",
            "age",
            "etag",
        ] {
            assert!(exposed.contains(header), "{path} does not expose {header}: {exposed}");
        }
        answer.json();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn head_is_get_without_the_body() {
    let (stage, _) = scene().await;
    for path in ["/health", "/api/v1/agent/1", "/api/v1/agent/4000", "/api/v1/agents?limit=x"] {
        let get = stage.client.get(path).await;
        let head = stage.client.send(Method::HEAD, path).await;
        assert_eq!(head.status, get.status, "{path}");
        assert_eq!(head.text, "", "{path}");
        for header in ["content-type", "cache-control", "etag", "access-control-allow-origin"] {
            assert_eq!(head.header(header), get.header(header), "{path}: {header}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn methods_that_would_write_are_refused() {
    let (stage, _) = scene().await;
    for method in [Method::POST, Method::PUT, Method::DELETE, Method::PATCH] {
        for path in ["/health", "/api/v1/agent/1", "/nowhere"] {
            let answer = stage.client.send(method.clone(), path).await;
            assert!(answer.error(405).starts_with("Method not allowed"), "{}", answer.text);
            let allowed = answer.header("allow");
            assert!(allowed.contains("GET") && allowed.contains("HEAD"), "{allowed}");
        }
    }
    let answer = stage.client.send(Method::HEAD, "/api/v1/agent/1").await;
    assert_eq!(answer.status, 200, "the API still stands");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preflight_is_answered_without_a_question_to_the_chain() {
    let (stage, _) = scene().await;
    let answer = stage
        .client
        .with("origin", "https://example.org")
        .with("access-control-request-method", "GET")
        .with("access-control-request-headers", "if-none-match")
        .send(Method::OPTIONS, "/api/v1/agents")
        .await;
    assert_eq!((answer.status, answer.text.as_str()), (204, ""));
    assert_eq!(answer.header("access-control-allow-origin"), "*");
    assert!(answer.header("access-control-allow-methods").contains("GET"));
    let headers = answer.header("access-control-allow-headers").to_lowercase();
    assert!(headers == "*" || headers.contains("if-none-match"), "{headers}");
    for (path, methods) in [("/api/v1/agents", "GET, HEAD, OPTIONS"), ("/api/v1/kya", "POST, OPTIONS")] {
        let answer = stage.client.send(Method::OPTIONS, path).await;
        assert_eq!(answer.header("allow"), methods, "{path}");
        assert_eq!(answer.header("access-control-allow-methods"), methods, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_carry_their_time_to_live() {
    let (stage, showcase) = scene().await;
    let (kya, lineage) = (seed::kya("kyoto"), showcase.lineage("atlas"));
    for (path, seconds) in [
        ("/api/v1/stats", 300),
        ("/api/v1/stats/detailed", 300),
        ("/api/v1/agent/1", 300),
        ("/api/v1/agents", 300),
        ("/api/v1/agents/compliance", 300),
        ("/api/v1/revenue/aggregate", 300),
        (&lineage, 600),
        (&kya, 60),
    ] {
        let answer = stage.client.get(path).await;
        assert_eq!(answer.header("cache-control"), format!("public, max-age={seconds}"), "{path}");
        assert!(answer.number("age") <= seconds, "{path}");
    }
    for path in ["/health", "/api/v1/agent/1/revenue", "/nowhere", "/api/v1/agent/4000"] {
        assert_eq!(stage.client.get(path).await.header("cache-control"), "no-store", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_the_answer_gets_304() {
    let (stage, _) = scene().await;
    let path = "/api/v1/agent/2";
    let first = stage.client.get(path).await;
    let tag = first.header("etag").to_owned();
    // Weak: compression on the way changes the bytes and not the content.
    let opaque = tag.strip_prefix("W/").unwrap_or_else(|| panic!("{tag} is strong"));
    assert!(opaque.starts_with('"') && opaque.ends_with('"') && opaque.len() > 2, "{tag}");
    for known in [tag.clone(), opaque.to_owned(), format!("\"other\", {tag}"), "*".to_owned()] {
        let answer = stage.client.with("if-none-match", &known).get(path).await;
        assert_eq!((answer.status, answer.text.as_str()), (304, ""), "{known}");
        assert_eq!(answer.header("etag"), tag);
        assert_eq!(answer.header("access-control-allow-origin"), "*");
    }
    let other = stage.client.with("if-none-match", "\"other\"").get(path).await;
    assert_eq!((other.status, other.text), (200, first.text));
    assert_ne!(stage.client.get("/api/v1/agent/3").await.header("etag"), tag);
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_routes_are_not_found() {
    let (stage, _) = scene().await;
    for path in [
        "/api",
        "/api/v1",
        "/api/v1/",
        "/api/v2/stats",
        "/api/v1/stats/",
        "/api/v1/stats/detailed/",
        "/api/v1/stats/simple",
        "/api/v1/agent",
        "/api/v1/agent/1/",
        "/api/v1/agent/1/children",
        "/api/v1/agent/1/lineage/2",
        "/api/v1/agents/1",
        "/api/v1/revenue",
        "/API/v1/stats",
        "/health/",
        "//health",
        "/favicon.ico",
    ] {
        assert_eq!(stage.client.get(path).await.error(404), "Not found", "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_agents_are_not_found_by_their_id() {
    let (stage, showcase) = scene().await;
    let huge = "115792089237316195423570985008687907853269984665640564039457584007913129639935";
    for id in ["0", &(showcase.total + 1).to_string(), "18446744073709551616", huge] {
        for path in [
            format!("/api/v1/agent/{id}"),
            format!("/api/v1/agent/{id}/lineage"),
            format!("/api/v1/agent/{id}/revenue"),
        ] {
            assert_eq!(stage.client.get(&path).await.error(404), format!("Agent not found: {id}"), "{path}");
        }
    }
}

/// The target of a `Link` header's relation.
fn link(answer: &Answer, relation: &str) -> Option<String> {
    let rel = format!("; rel=\"{relation}\"");
    let found = answer.header("link").split(", ").find_map(|link| link.strip_suffix(&rel).map(str::to_owned));
    found.map(|target| target.trim_matches(['<', '>']).to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_links_lead_through_a_list_and_the_prev_links_back() {
    let (stage, showcase) = scene().await;
    let revenue = format!("/api/v1/agent/{}/revenue?limit=2", showcase.id("atlas"));
    for (first, count) in [("/api/v1/agents?limit=25", showcase.total), (&revenue, 4)] {
        let (mut target, mut items, mut pages) = (first.to_owned(), Vec::new(), Vec::new());
        loop {
            let answer = stage.client.get(&target).await;
            items.extend(answer.ok()["data"].as_array().unwrap().clone());
            assert_eq!(link(&answer, "first").as_deref(), Some(first));
            assert_eq!(link(&answer, "prev").as_ref(), pages.last(), "{target}");
            pages.push(target);
            match link(&answer, "next") {
                Some(next) => target = next,
                None => {
                    assert_eq!(link(&answer, "last").as_ref(), pages.last());
                    break;
                }
            }
        }
        assert_eq!(items.len() as u64, count, "{first}");
    }
    // From the cache too.
    let again = stage.client.get("/api/v1/agents?limit=25").await;
    assert_eq!(link(&again, "next").as_deref(), Some("/api/v1/agents?page=2&limit=25"));
    assert_eq!(stage.client.get("/api/v1/stats").await.header("link"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_an_id_and_the_headers_that_protect_browsers() {
    let (stage, _) = scene().await;
    for (method, path) in [
        (Method::GET, "/health"),
        (Method::HEAD, "/api/v1/stats"),
        (Method::GET, "/api/v1/agent/x"),
        (Method::GET, "/nowhere"),
        (Method::POST, "/api/v1/stats"),
        (Method::GET, "/livez"),
    ] {
        let answer = stage.client.send(method, path).await;
        let id = answer.header("x-request-id").to_owned();
        assert!(!id.is_empty(), "{path}");
        assert_ne!(stage.client.get(path).await.header("x-request-id"), id, "{path}");
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert!(answer.header("content-security-policy").contains("default-src 'none'"), "{path}");
        assert_eq!(answer.header("referrer-policy"), "no-referrer", "{path}");
    }
    let named = |id: &str| stage.client.with("x-request-id", id);
    assert_eq!(named("trace-17.a_b:c").get("/health").await.header("x-request-id"), "trace-17.a_b:c");
    for odd in ["a b", "\"quoted\"", "<script>", &"x".repeat(65)] {
        assert_ne!(named(odd).get("/health").await.header("x-request-id"), odd);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_is_at_the_root_under_a_strict_policy() {
    let (stage, _) = scene().await;
    let page = stage.client.get("/").await;
    assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert!(page.header("cache-control").contains("must-revalidate"), "{}", page.header("cache-control"));
    let policy = page.header("content-security-policy");
    for rule in [
        "default-src 'none'",
        "script-src 'self' 'wasm-unsafe-eval'",
        "style-src 'self'",
        "frame-ancestors 'none'",
    ] {
        assert!(policy.split("; ").any(|part| part == rule), "{rule}: {policy}");
    }
    assert!(!policy.contains("unsafe-inline") && !policy.contains("'unsafe-eval'"), "{policy}");
    assert_eq!(page.header("x-content-type-options"), "nosniff");
    assert_eq!(page.header("referrer-policy"), "no-referrer");
    assert_ne!(page.header("permissions-policy"), "");
    assert_ne!(page.header("cross-origin-opener-policy"), "");
    assert!(!page.text.contains("<style") && !page.text.contains(" style="), "{}", page.text);

    let assets: Vec<&str> = page.text.split('"').filter(|text| text.starts_with("/assets/")).collect();
    assert_eq!(assets.len(), 3, "{assets:?}");
    for asset in assets {
        let file = stage.client.get(asset).await;
        assert_eq!(file.status, 200, "{asset}");
        assert_eq!(file.header("cache-control"), "public, max-age=31536000, immutable", "{asset}");
        assert_eq!(file.header("x-content-type-options"), "nosniff", "{asset}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_hides_nothing_of_the_api() {
    let (stage, _) = scene().await;
    for path in
        ["/assets", "/assets/", "/assets/main.js", "/_headers", "/api-catalog.json", "/settings", "/agents"]
    {
        assert_eq!(stage.client.get(path).await.error(404), "Not found", "{path}");
    }
    for path in ["/health", "/livez", "/openapi.json", "/api/v1/stats"] {
        let answer = stage.client.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.header("content-type").starts_with("application/"), "{path}");
    }
    for script in stage.client.get("/").await.text.split("<script").skip(1) {
        let is_external = script.contains(" src=") && script.contains("></script>");
        assert!(is_external, "no script in the page itself: {script}");
    }
}
