//! The key, and the path and query of an RPC URL, appear nowhere: not in a log line, an error, a metric or an
//! answer.
//!
//! 1. While everything works and while everything breaks, at the most talkative log level, in both formats;
//!    and no answer names the endpoint's host.
//! 2. When the daemon refuses to start, and in `check`.

use alloy::hex;
use e2e::daemon::{Daemon, DaemonOptions, check};
use e2e::fault::{Fault, Rule};
use e2e::relay::attest;

use crate::audit::{Stage, agent, relayer};

const PATH: &str = "s3cr3tpathkey0123456789";
const QUERY: &str = "t0psecretquerykey9876";
const USER: &str = "pr0videruser";
const PASSWORD: &str = "pr0viderpassw0rd";

fn secret_url(url: &str) -> String {
    let host = url.trim_start_matches("http://");
    format!("http://{USER}:{PASSWORD}@{host}/v2/{PATH}?apikey={QUERY}")
}

fn assert_clean(what: &str, text: &str) {
    let key = hex::encode(relayer().to_bytes());
    let lower = text.to_lowercase();
    // Half of a key is too much already.
    for secret in [&key[16..48], PATH, QUERY, USER, PASSWORD, "/v2/"] {
        if let Some(at) = lower.find(secret) {
            let line = text[..at].lines().count();
            panic!(
                "{what} shows a secret in line {line}: {}",
                text.lines().nth(line.saturating_sub(1)).unwrap()
            );
        }
    }
}

#[tokio::test]
async fn no_log_line_error_metric_or_answer_shows_the_key_or_an_rpc_path() {
    goes_wrong_without_a_word_of_them("text").await;
}

#[tokio::test]
async fn no_log_line_in_json_shows_the_key_or_an_rpc_path() {
    goes_wrong_without_a_word_of_them("json").await;
}

/// Everything works, then everything breaks, and all that can be seen of it is searched.
async fn goes_wrong_without_a_word_of_them(format: &str) {
    let stage = Stage::set().await;
    let options = stage
        .options
        .clone()
        .var("RPC_URL", secret_url(stage.proxy.url()))
        .var("RPC_TIMEOUT_SECONDS", 1)
        .var("RELAY_RETRY_SECONDS", 1)
        .var("LOG_LEVEL", "trace")
        .var("LOG_FORMAT", format);
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let mut shown = Vec::new();
    let alice = agent("alice");
    shown.push(client.relay(&stage.desk.registration(&alice, 0)).await);
    shown.push(client.relay(&stage.desk.request(&alice, 1, &attest(9))).await);

    // Providers quote URLs and keys in their errors, and so do HTTP libraries.
    let quoting = format!("invalid key {PATH} for {} ({QUERY})", secret_url(stage.proxy.url()));
    let request = stage.desk.request(&alice, 1, &attest(1));
    for fault in [
        Fault::error(-32000, &quoting),
        Fault::Status { status: 401, body: quoting.clone(), retry_after: None },
        Fault::Status { status: 429, body: quoting.clone(), retry_after: None },
        Fault::Garbage(quoting.clone()),
        Fault::Refuse,
        Fault::Hang,
    ] {
        stage.proxy.inject(Rule::any(fault));
        let answer = client.relay(&request).await;
        assert_eq!(answer.status, 500, "{}", answer.text);
        shown.push(answer);
        shown.push(client.get("/status").await);
        shown.push(client.get(&format!("/nonce/{}", alice.address())).await);
        stage.proxy.heal();
    }
    stage.proxy.inject(Rule::on("eth_sendRawTransaction", Fault::error(-32000, &quoting)).once());
    shown.push(client.relay(&request).await);
    assert_eq!(shown.last().unwrap().status, 200);
    for path in ["/status", "/domain", "/metrics", "/readyz", "/livez", "/nonce/x", "/relay/x", "/x"] {
        shown.push(client.get(path).await);
    }
    shown.push(client.state(&request).await);

    let host = stage.proxy.url().trim_start_matches("http://").split(':').next().unwrap();
    for answer in &shown {
        let text = format!("{:?}\n{}", answer.headers, answer.text);
        assert_clean("an answer", &text);
        assert!(!text.contains(host), "an answer names the endpoint: {text}");
    }
    let log = daemon.kill();
    assert!(log.lines().count() > 40, "there is a log to look at");
    assert_clean(&format!("the {format} log"), &log);
}

#[tokio::test]
async fn refusing_to_start_shows_no_secret_either() {
    let stage = Stage::set().await;
    let good = stage.options.clone().var("RPC_URL", secret_url(stage.proxy.url())).var("LOG_LEVEL", "trace");
    let key = hex::encode(relayer().to_bytes());
    let dead = format!("http://127.0.0.1:{}", e2e::process::free_port().unwrap());
    let wrong: Vec<(&str, DaemonOptions)> = vec![
        ("a dead endpoint", good.clone().var("RPC_URL", secret_url(&dead))),
        ("no URL", good.clone().var("RPC_URL", format!("/v2/{PATH}?apikey={QUERY}"))),
        ("a URL of another kind", good.clone().var("RPC_URL", format!("ftp://host/v2/{PATH}"))),
        ("a key too long", good.clone().var("RELAYER_KEY", format!("0x{key}00"))),
        ("a key that is no hex", good.clone().var("RELAYER_KEY", format!("0x{key}").replace("0x2", "0xg"))),
        ("two keys", good.clone().var("RELAYER_KEY_FILE", "/dev/null")),
        ("a wrong chain", good.clone().var("CHAIN_ID", 1)),
        ("no registry", good.clone().var("REGISTRY_ADDRESS", agent("nobody").address())),
    ];
    for (what, options) in &wrong {
        assert_clean(what, &Daemon::refuse(options).await.unwrap());
        let (good, printed) = check(options).await.unwrap();
        assert!(!good, "{what}");
        assert_clean(what, &printed);
    }
    let (fine, printed) = check(&good).await.unwrap();
    assert!(fine, "{printed}");
    assert_clean("a good check", &printed);
}
