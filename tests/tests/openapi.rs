//! The services and their descriptions: what `/openapi.json` says is what they do.
//!
//! 1. The read API, tested with requests generated from its description: every check, every phase, no
//!    finding.
//! 2. The relayer likewise, requests that it carries out among them.
//! 3. The pages about the API are public, cacheable, and independent of the settings.
//! 4. What the catalog and the introduction link to is there, and they can only be read.
//! 5. The description served is the one in the repository.

use std::time::Duration;

use e2e::anvil::{AnvilOptions, dev_key};
use e2e::chain::Chain;
use e2e::client::Client;
use e2e::conformance::{Known, try_out};
use e2e::daemon::Daemon;
use e2e::process::eventually;
use e2e::relay::Desk;
use e2e::repo;
use e2e::seed::{Showcase, wallet};
use e2e::stage::Stage;
use e2e::verdict_tokens::{key_set, new_key};
use e2e::worker::{Worker, WorkerOptions};
use registry_core::snapshot::Manifest;
use reqwest::Method;
use tokio::sync::OnceCell;

async fn scene() -> &'static (Stage, Showcase) {
    static SCENE: OnceCell<(Stage, Showcase)> = OnceCell::const_new();
    SCENE
        .get_or_init(async || {
            let keys = key_set(&[&new_key().await.unwrap()]);
            let issuer = "https://kya.example";
            let signing =
                |options: WorkerOptions| options.var("VERDICT_KEYS", keys).var("VERDICT_ISSUER", issuer);
            Stage::indexed_showcase(signing).await.unwrap()
        })
        .await
}

/// Prints how many cases there were, and fails where there were none.
fn count(service: &str, said: &str) {
    let cases = said.lines().find(|line| line.contains(" generated, ")).expect("a number of cases");
    let number: u32 = cases.trim().split(' ').next().unwrap().parse().unwrap();
    println!("{service}: {}", cases.trim());
    assert!(number > 400, "{said}");
    for phase in ["Examples", "Coverage", "Fuzzing", "Stateful"] {
        assert!(said.contains(&format!("✅ {phase}")), "{phase} was left out: {said}");
    }
}

/// The first shard of the snapshot and its version, once there is one.
async fn shard(client: &Client) -> [String; 2] {
    let http = e2e::http::client(Duration::from_secs(10));
    let url = format!("{}/api/v1/snapshot", client.base());
    let manifest = eventually("the snapshot", Duration::from_secs(60), async || {
        let answer = http.get(&url).send().await.ok()?;
        Manifest::parse(&answer.bytes().await.ok()?).ok()
    });
    let entry = manifest.await.unwrap().shards()[0];
    [entry.range_text(), entry.version_text()]
}

#[tokio::test(flavor = "multi_thread")]
async fn the_read_api_does_what_its_description_says() {
    let (stage, _) = scene().await;
    let addresses = ["kyoto", "gone", "forgetful"].map(|agent| wallet(agent).address()).to_vec();
    let changes = stage.client.get("/api/v1/changes?since=now").await.ok();
    let cursors = vec![changes["next"].as_str().unwrap().to_owned()];
    let shard = Some(shard(&stage.client).await);
    let known = Known { addresses, cursors, shard, ..Known::default() };
    count("read API", &try_out(stage.worker.url(), &known).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_relayer_does_what_its_description_says() {
    let chain = Chain::start(AnvilOptions::default()).await.unwrap();
    let daemon = Daemon::start(&chain.daemon(&dev_key(9))).await.unwrap();
    let desk = Desk::of(&chain);
    let first = desk.registration(&wallet("first"), 0);
    let answer = daemon.client().relay(&first).await;
    let signed = (1..=5).map(|number| desk.registration(&wallet(&format!("agent {number}")), 0).body());
    let known = Known {
        addresses: vec![wallet("first").address()],
        cursors: Vec::new(),
        shard: None,
        relays: vec![answer.ok()["id"].as_str().unwrap().to_owned()],
        signed: signed.collect(),
    };
    count("relayer", &try_out(daemon.url(), &known).await.unwrap());
    assert_eq!(chain.executions().await.unwrap().len(), 6, "every signed request was carried out");
}

const PAGES: [(&str, &str); 3] = [
    ("/openapi.json", "application/json"),
    (
        "/.well-known/api-catalog",
        "application/linkset+json; profile=\"https://www.rfc-editor.org/info/rfc9727\"",
    ),
    ("/llms.txt", "text/plain; charset=utf-8"),
];

#[tokio::test(flavor = "multi_thread")]
async fn pages_about_the_api_are_there_for_everybody_whatever_the_settings() {
    let wrong = WorkerOptions::default().var("RPC_URL", "nonsense").var("RATE_LIMIT_PER_MINUTE", 1);
    let worker = Worker::start(wrong).await.unwrap();
    let client = worker.client();
    client.get("/api/v1/stats").await.error(500);
    for (path, media_type) in PAGES {
        let page = client.with("origin", "https://example.org").get(path).await;
        assert_eq!(page.status, 200, "{path}");
        assert_eq!(page.header("content-type"), media_type);
        assert_eq!(page.header("access-control-allow-origin"), "*");
        assert_eq!(page.header("cache-control"), "public, max-age=3600");
        assert_eq!(page.header("x-ratelimit-remaining"), "", "{path} is charged to no client");

        let tag = page.header("etag");
        let again = client.with("if-none-match", tag).get(path).await;
        assert_eq!((again.status, again.text.as_str()), (304, ""), "{path} {tag}");
        let head = client.send(Method::HEAD, path).await;
        assert_eq!((head.status, head.text.as_str(), head.header("etag")), (200, "", tag), "{path}");
        assert_eq!(client.send(Method::OPTIONS, path).await.status, 204);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_catalog_and_the_introduction_link_to_is_there_to_be_read() {
    let (stage, _) = scene().await;
    let (origin, client) = (stage.worker.url(), &stage.client);
    let get = async |url: &str| {
        let path = url.strip_prefix(origin).unwrap_or_else(|| panic!("{url} is not at {origin}"));
        client.get(path).await
    };

    let catalog = client.get("/.well-known/api-catalog").await;
    assert!(catalog.header("link").contains("rel=\"api-catalog\""), "{}", catalog.header("link"));
    let context = &catalog.ok()["linkset"][0];
    for relation in ["service-desc", "service-doc", "status"] {
        let link = &context[relation][0];
        let target = get(link["href"].as_str().unwrap()).await;
        assert_eq!(target.status, 200, "{link}");
        assert!(target.header("content-type").starts_with(link["type"].as_str().unwrap()), "{link}");
    }

    for (path, _) in PAGES {
        let refused = client.send(Method::POST, path).await;
        refused.error(405);
        assert_eq!(refused.header("allow"), "GET, HEAD, OPTIONS", "{path}");
    }

    let introduction = client.get("/llms.txt").await.text;
    let urls: Vec<&str> = introduction.split_whitespace().filter(|word| word.starts_with("http")).collect();
    assert!(urls.len() > 10, "{introduction}");
    for url in urls {
        assert_eq!(get(url).await.status, 200, "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_description_is_the_one_in_the_repository() {
    let (stage, _) = scene().await;
    let file = std::fs::read_to_string(repo::root().join("edge-api/src/pages/openapi.json")).unwrap();
    let file: serde_json::Value = serde_json::from_str(&file).unwrap();
    assert_eq!(stage.client.get("/openapi.json").await.ok(), file);
}
