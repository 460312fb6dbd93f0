//! An endpoint that answers from a script, and the chain seen through some of them.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use alloy::primitives::Address;
use relayer_daemon::{
    chain::{Chain, Rpc},
    metrics::Metrics,
};
use reqwest::Url;
use serde_json::{Value, json};
use warp::{Filter, Reply as _, http::StatusCode, reply::Response};

/// How long an endpoint may take to answer.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(400);

/// What an endpoint answers.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    Answer(Value),
    /// Answers of a node with this head: number and time.
    Head(u64, u64),
    Error(i64, &'static str),
    Http(u16, &'static str),
    Silence,
}

/// An endpoint that answers from a script, its last line for ever.
pub(crate) struct ScriptedEndpoint {
    pub(crate) url: Url,
    calls: Arc<AtomicUsize>,
    hung_up: Arc<AtomicUsize>,
}

/// Counts when it is dropped, also if the caller went away.
struct Count(Arc<AtomicUsize>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

impl ScriptedEndpoint {
    pub(crate) async fn start(script: &[Reply]) -> Self {
        let [calls, hung_up] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let script = Arc::new(Mutex::new(script.to_vec()));
        let (count, given_up) = (Arc::clone(&calls), Arc::clone(&hung_up));
        let route = warp::body::json().and(warp::path::full()).then(move |request: Value, _| {
            count.fetch_add(1, Ordering::SeqCst);
            let given_up = Count(Arc::clone(&given_up));
            let mut script = script.lock().unwrap();
            let answer = if script.len() > 1 { script.remove(0) } else { script[0].clone() };
            async move {
                let _given_up = given_up;
                respond(&request, answer).await
            }
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v3/s3cr3t-key", listener.local_addr().unwrap()).parse().unwrap();
        let route = route.recover(|_| async { Ok::<_, Infallible>(StatusCode::BAD_REQUEST) });
        tokio::spawn(warp::serve(route).incoming(listener).run());
        Self { url, calls, hung_up }
    }

    /// How many calls have ended, by an answer or because the caller went away.
    pub(crate) fn hung_up(&self) -> usize {
        self.hung_up.load(Ordering::SeqCst)
    }

    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

async fn respond(request: &Value, answer: Reply) -> Response {
    let reply = |name: &str, value| {
        warp::reply::json(&json!({ "jsonrpc": "2.0", "id": request["id"], name: value })).into_response()
    };
    match answer {
        Reply::Head(number, timestamp) => {
            let [number, timestamp] = [number, timestamp].map(|value| format!("{value:#x}"));
            let head = json!({ "number": number, "hash": null, "timestamp": timestamp });
            reply("result", if request["method"] == "eth_blockNumber" { json!(number) } else { head })
        }
        Reply::Answer(result) => reply("result", result),
        Reply::Error(code, message) => reply("error", json!({ "code": code, "message": message })),
        Reply::Http(status, body) => {
            warp::reply::with_status(body, StatusCode::from_u16(status).unwrap()).into_response()
        }
        Reply::Silence => std::future::pending().await,
    }
}

pub(crate) fn rpc(endpoints: &[&ScriptedEndpoint]) -> Rpc {
    // A second one is fine: the first stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let urls: Vec<Url> = endpoints.iter().map(|endpoint| endpoint.url.clone()).collect();
    Rpc::new(&urls, TIMEOUT, Metrics::new().unwrap()).unwrap()
}

pub(crate) const MAX_TIP: u128 = 5_000_000_000;

pub(crate) fn chain(rpc: Rpc) -> Chain {
    Chain::new(rpc, Address::ZERO, Address::ZERO, MAX_TIP)
}

pub(crate) async fn scripted(script: &[Reply]) -> ScriptedEndpoint {
    ScriptedEndpoint::start(script).await
}

pub(crate) async fn pair(first: Reply, second: Reply) -> [ScriptedEndpoint; 2] {
    [scripted(&[first]).await, scripted(&[second]).await]
}
