//! The key, and the path and query of an RPC URL, appear in no log line, error, metric or answer, at the most
//! verbose log level in both formats, whatever works or fails.

use e2e::client::HttpAnswer;

use crate::prelude::*;

const PATH: &str = "s3cr3tpathkey0123456789";
const QUERY: &str = "t0psecretquerykey9876";
const USER: &str = "pr0videruser";
const PASSWORD: &str = "pr0viderpassw0rd";

fn assert_clean(what: &str, text: &str) {
    let key = hex::encode(relayer().to_bytes());
    // Even half of the key is too much.
    for secret in [&key[16..48], PATH, QUERY, USER, PASSWORD, "/v2/"] {
        let line = text.lines().find(|line| line.to_lowercase().contains(secret));
        assert_eq!(line, None, "{what} shows a secret");
    }
}

/// Has a request executed, with retries where a busy machine's node was too late; returns all answers.
async fn executed(client: &Client, request: &RelayRequest) -> Vec<HttpAnswer> {
    let mut answers = Vec::new();
    wait_until("executed", PATIENCE, async || {
        let answer = client.relay(request).await;
        let status = answer.status;
        // A transaction that the node refuses once is not reported to the client.
        assert!(!answer.text.contains("TRANSACTION_REJECTED"), "{}", answer.text);
        answers.push(answer);
        status == 200
    })
    .await;
    answers
}

#[tokio::test]
async fn no_log_line_error_metric_or_answer_shows_the_key_or_an_rpc_path() {
    tokio::join!(goes_wrong_without_a_word_of_them("text"), goes_wrong_without_a_word_of_them("json"));
}

/// Searches all visible output for secrets, first while everything works, and then while everything fails.
async fn goes_wrong_without_a_word_of_them(format: &str) {
    let stage = RelayerFixture::set().await.var("LOG_FORMAT", format).var("LOG_LEVEL", "trace");
    let host = stage.proxy.url().trim_start_matches("http://");
    let url = format!("http://{USER}:{PASSWORD}@{host}/v2/{PATH}?apikey={QUERY}");
    // Providers quote URLs and keys in their errors, and so do HTTP libraries.
    let quoting = format!("invalid key {PATH} for {url} ({QUERY})");
    let stage = stage.var("RPC_URL", url).var("RPC_TIMEOUT_SECONDS", 4).var("RELAY_RETRY_SECONDS", 1);
    let (daemon, client) = stage.daemon().await;
    let alice = agent(format);
    let request = |nonce, id| stage.desk.request(&alice, nonce, &attest(id));
    let mut shown = executed(&client, &stage.registration(format)).await;
    let id = shown.last().unwrap().ok()["agentId"].as_u64().unwrap();
    shown.push(client.relay(&request(1, 99)).await);
    for fault in [
        NodeFault::error(-32000, &quoting),
        NodeFault::page(401, &quoting),
        NodeFault::page(429, &quoting),
        NodeFault::Garbage(quoting.clone()),
        NodeFault::Refuse,
        NodeFault::Hang,
    ] {
        stage.proxy.inject(FaultRule::any(fault));
        let answer = client.relay(&request(1, id)).await;
        assert_eq!(answer.status, 500, "{}", answer.text);
        shown.push(answer);
        for path in ["/status", &format!("/nonce/{}", alice.address())] {
            shown.push(client.get(path).await);
        }
        stage.proxy.heal();
    }
    stage.proxy.inject(FaultRule::on("eth_sendRawTransaction", NodeFault::error(-32000, &quoting)).once());
    shown.extend(executed(&client, &request(1, id)).await);
    for path in ["/status", "/domain", "/metrics", "/readyz", "/livez", "/nonce/x", "/relay/x", "/x"] {
        shown.push(client.get(path).await);
    }
    shown.push(client.state(&request(1, id)).await);
    for answer in &shown {
        let text = format!("{:?}\n{}", answer.headers, answer.text);
        assert_clean("an answer", &text);
        assert!(!text.contains("127.0.0.1"), "an answer names the endpoint: {text}");
    }
    let log = daemon.kill();
    assert!(log.lines().count() > 40, "there is a log to look at");
    assert_clean(&format!("the {format} log"), &log);
}
