//! Several RPC endpoints, some of them bad: where reads go, what is tried again, what is never shown.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, missing_docs)]

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use relayer_daemon::{
    chain::{Rpc, RpcError},
    classify::Verdict,
    metrics::Metrics,
};
use reqwest::Url;
use serde_json::{Value, json};
use warp::{Filter, Reply, http::StatusCode, reply::Response};

/// What an endpoint answers.
#[derive(Debug, Clone)]
enum Answer {
    Result(Value),
    Error(i64, &'static str),
    Http(u16, &'static str),
    Silence,
}

/// An endpoint that answers from a script, its last line for ever.
struct Endpoint {
    url: Url,
    calls: Arc<AtomicUsize>,
}

impl Endpoint {
    async fn start(script: &[Answer]) -> Self {
        let calls = Arc::new(AtomicUsize::new(0));
        let script = Arc::new(Mutex::new(script.to_vec()));
        let count = Arc::clone(&calls);
        let route = warp::body::json().and(warp::path::full()).then(move |request: Value, _| {
            count.fetch_add(1, Ordering::SeqCst);
            let script = Arc::clone(&script);
            async move {
                let answer = {
                    let mut script = script.lock().unwrap();
                    if script.len() > 1 { script.remove(0) } else { script[0].clone() }
                };
                respond(&request["id"], answer).await
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v3/s3cr3t-key", listener.local_addr().unwrap()).parse().unwrap();
        let route = route.recover(|_| async { Ok::<_, Infallible>(StatusCode::BAD_REQUEST) });
        tokio::spawn(warp::serve(route).incoming(listener).run());
        Self { url, calls }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

async fn respond(id: &Value, answer: Answer) -> Response {
    match answer {
        Answer::Result(result) => {
            warp::reply::json(&json!({ "jsonrpc": "2.0", "id": id, "result": result })).into_response()
        }
        Answer::Error(code, message) => {
            let error = json!({ "code": code, "message": message });
            warp::reply::json(&json!({ "jsonrpc": "2.0", "id": id, "error": error })).into_response()
        }
        Answer::Http(status, body) => {
            warp::reply::with_status(body, StatusCode::from_u16(status).unwrap()).into_response()
        }
        Answer::Silence => std::future::pending().await,
    }
}

fn rpc(endpoints: &[&Endpoint]) -> Rpc {
    // A second one is fine: the first stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let urls: Vec<Url> = endpoints.iter().map(|endpoint| endpoint.url.clone()).collect();
    Rpc::new(&urls, Duration::from_millis(400), Metrics::new().unwrap()).unwrap()
}

fn number(text: &str) -> Answer {
    Answer::Result(json!(text))
}

async fn read(rpc: &Rpc) -> Result<String, RpcError> {
    rpc.read("eth_blockNumber", json!([])).await
}

#[tokio::test]
async fn reads_stick_to_one_endpoint() {
    let (first, second) = (Endpoint::start(&[number("0x1")]).await, Endpoint::start(&[number("0x2")]).await);
    let rpc = rpc(&[&first, &second]);
    for _ in 0..5 {
        assert_eq!(read(&rpc).await.unwrap(), "0x1");
    }
    assert_eq!((first.calls(), second.calls()), (5, 0));
}

#[tokio::test]
async fn reads_leave_an_endpoint_that_fails_and_stay_away() {
    for fault in
        [Answer::Http(503, "<html>s3cr3t-key</html>"), Answer::Http(429, "slow down"), Answer::Silence]
    {
        let bad = Endpoint::start(std::slice::from_ref(&fault)).await;
        let good = Endpoint::start(&[number("0x2")]).await;
        let rpc = rpc(&[&bad, &good]);
        for _ in 0..3 {
            assert_eq!(read(&rpc).await.unwrap(), "0x2", "{fault:?}");
        }
        assert_eq!(bad.calls(), 1, "{fault:?}");
        assert!(rpc.label().ends_with(&good.url.port().unwrap().to_string()));
    }
}

#[tokio::test]
async fn a_node_that_answers_with_an_error_is_alive() {
    let first = Endpoint::start(&[Answer::Error(3, "execution reverted: nonce too low")]).await;
    let second = Endpoint::start(&[number("0x2")]).await;
    let rpc = rpc(&[&first, &second]);
    let Err(RpcError::Node(error)) = read(&rpc).await else { panic!("not the node's error") };
    assert_eq!(error.message, "execution reverted: nonce too low");
    assert_eq!((first.calls(), second.calls()), (1, 0));
}

#[tokio::test]
async fn what_may_pass_is_tried_again_on_a_single_endpoint() {
    let script = [Answer::Http(429, ""), Answer::Error(-32005, "limit exceeded"), number("0x3")];
    let endpoint = Endpoint::start(&script).await;
    assert_eq!(read(&rpc(&[&endpoint])).await.unwrap(), "0x3");
    assert_eq!(endpoint.calls(), 3);
}

fn assert_names_nothing(error: &RpcError) {
    for secret in ["s3cr3t", "127.0.0.1"] {
        assert!(!format!("{error} {error:?}").contains(secret), "{error:?}");
    }
}

#[tokio::test]
async fn a_dead_endpoint_is_given_up_in_the_end_and_never_named() {
    let endpoint = Endpoint::start(&[Answer::Http(500, "key s3cr3t-key is over its quota")]).await;
    let error = read(&rpc(&[&endpoint])).await.unwrap_err();
    assert!(error.to_string().contains("HTTP 500"), "{error}");
    assert_names_nothing(&error);
    assert_eq!(endpoint.calls(), 4);

    let quoting = Endpoint::start(&[Answer::Error(-32000, "no such project: s3cr3t-key at 127.0.0.1")]).await;
    let error = read(&rpc(&[&quoting])).await.unwrap_err();
    assert_names_nothing(&error);

    let silent = Endpoint::start(&[Answer::Silence]).await;
    assert_eq!(read(&rpc(&[&silent])).await.unwrap_err().to_string(), "RPC timeout");
}

#[tokio::test]
async fn an_answer_that_is_no_json_rpc_counts_as_a_fault() {
    let bad = Endpoint::start(&[Answer::Http(200, "<html>maintenance</html>")]).await;
    let good = Endpoint::start(&[number("0x2")]).await;
    assert_eq!(read(&rpc(&[&bad, &good])).await.unwrap(), "0x2");
}

#[tokio::test]
async fn transactions_go_to_all_endpoints_and_one_that_takes_it_is_enough() {
    for (answers, expected) in [
        ([Answer::Http(500, ""), number("0x01")], Verdict::Accepted),
        ([Answer::Error(-32000, "nonce too low"), Answer::Error(-32000, "already known")], Verdict::Accepted),
        ([Answer::Error(-32000, "nonce too low"), Answer::Silence], Verdict::Unknown),
        (
            [Answer::Error(-32000, "nonce too low"), Answer::Error(-32000, "oversized data")],
            Verdict::NonceTooLow,
        ),
        (
            [Answer::Error(3, "execution reverted: already known"), Answer::Error(-32000, "invalid sender")],
            Verdict::Rejected,
        ),
    ] {
        let [first, second] = answers;
        let (first, second) = (Endpoint::start(&[first]).await, Endpoint::start(&[second]).await);
        let (verdict, text) = rpc(&[&first, &second]).broadcast(&[2, 3]).await;
        assert_eq!(verdict, expected, "{text}");
        assert_eq!((first.calls(), second.calls()), (1, 1));
    }
}

#[tokio::test]
async fn reads_move_to_an_endpoint_that_is_clearly_ahead() {
    let stale = Endpoint::start(&[number("0x10")]).await;
    let ahead = Endpoint::start(&[number("0x13")]).await;
    let moving = rpc(&[&stale, &ahead]);
    moving.prefer_freshest().await;
    assert_eq!(read(&moving).await.unwrap(), "0x13");

    let level = Endpoint::start(&[number("0x12")]).await;
    let staying = rpc(&[&stale, &level]);
    staying.prefer_freshest().await;
    assert_eq!(read(&staying).await.unwrap(), "0x10");
}

#[tokio::test]
async fn looking_for_a_fresher_endpoint_costs_nothing_where_there_is_one() {
    let only = Endpoint::start(&[number("0x10")]).await;
    rpc(&[&only]).prefer_freshest().await;
    assert_eq!(only.calls(), 0);
}

#[tokio::test]
async fn a_result_of_null_is_an_answer() {
    let endpoint = Endpoint::start(&[Answer::Result(Value::Null)]).await;
    let receipt: Option<Value> =
        rpc(&[&endpoint]).read("eth_getTransactionReceipt", json!(["0x"])).await.unwrap();
    assert_eq!(receipt, None);
    assert_eq!(endpoint.calls(), 1);
}
