//! An endpoint that answers from a script, and the chain seen through some of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use alloy::primitives::Address;
use relayer_daemon::chain::{Chain, Rpc};
use relayer_daemon::metrics::Metrics;
use reqwest::Url;
use serde_json::{Value, json};
use warp::{Filter as _, Reply as _, http::StatusCode, reply::Response};

/// Time that an endpoint may take to answer where all endpoints answer.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Time that an endpoint may take to answer where one endpoint is silent.
const SHORT_TIMEOUT: Duration = Duration::from_secs(2);
pub(crate) const MAX_TIP: u128 = 5_000_000_000;

/// Scripted answer of an endpoint.
#[derive(Debug, Clone)]
pub(crate) enum ScriptedReply {
    Answer(Value),
    /// Answers of a node with this head: number and time.
    Head(u64, u64),
    Error(i64, &'static str),
    /// A head with this number, and what the node answers for the tags `safe` and `finalized`.
    Tags(u64, Result<u64, (i64, &'static str)>),
    Http(u16, &'static str),
    Silence,
}

pub(crate) struct ScriptedEndpoint {
    pub(crate) url: Url,
    is_silent: bool,
    calls: Arc<AtomicUsize>,
}

impl ScriptedEndpoint {
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// Starts an endpoint that answers from a script, its last line for ever.
pub(crate) async fn scripted(script: &[ScriptedReply]) -> ScriptedEndpoint {
    let calls = Arc::<AtomicUsize>::default();
    let is_silent = script.iter().any(|reply| matches!(reply, ScriptedReply::Silence));
    let (script, count) = (Arc::new(Mutex::new(script.to_vec())), Arc::clone(&calls));
    let route = warp::body::json().and(warp::path::full()).then(move |request: Value, _| {
        count.fetch_add(1, Ordering::SeqCst);
        let mut script = script.lock().unwrap();
        let answer = if script.len() > 1 { script.remove(0) } else { script[0].clone() };
        async move { respond(&request, answer).await }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v3/s3cr3t-key", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(warp::serve(route).incoming(listener).run());
    ScriptedEndpoint { url, is_silent, calls }
}

async fn respond(request: &Value, answer: ScriptedReply) -> Response {
    let reply = |name: &str, value| {
        warp::reply::json(&json!({ "jsonrpc": "2.0", "id": request["id"], name: value })).into_response()
    };
    let error = |code, message| reply("error", json!({ "code": code, "message": message }));
    let header = |number: u64, time: u64| {
        let [number, time] = [number, time].map(|value| format!("{value:#x}"));
        let is_number = request["method"] == "eth_blockNumber";
        let header = json!({ "number": number, "hash": null, "timestamp": time });
        reply("result", if is_number { json!(number) } else { header })
    };
    match answer {
        ScriptedReply::Head(number, timestamp) => header(number, timestamp),
        ScriptedReply::Tags(head, _) if request["params"][0] == "latest" => header(head, 1),
        ScriptedReply::Tags(_, Ok(number)) => header(number, 1),
        ScriptedReply::Tags(_, Err((code, message))) | ScriptedReply::Error(code, message) => {
            error(code, message)
        }
        ScriptedReply::Answer(result) => reply("result", result),
        ScriptedReply::Http(status, body) => {
            warp::reply::with_status(body, StatusCode::from_u16(status).unwrap()).into_response()
        }
        ScriptedReply::Silence => std::future::pending().await,
    }
}

pub(crate) fn rpc(endpoints: &[&ScriptedEndpoint]) -> Rpc {
    let is_silent = endpoints.iter().any(|endpoint| endpoint.is_silent);
    rpc_within(if is_silent { SHORT_TIMEOUT } else { TIMEOUT }, endpoints)
}

/// Installs the provider that HTTP clients need.
pub(crate) fn install_crypto() {
    // A second one is fine: the first stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

pub(crate) fn rpc_within(timeout: Duration, endpoints: &[&ScriptedEndpoint]) -> Rpc {
    install_crypto();
    let urls: Vec<Url> = endpoints.iter().map(|endpoint| endpoint.url.clone()).collect();
    Rpc::new(&urls, timeout, Metrics::new().unwrap()).unwrap()
}

pub(crate) fn chain(endpoints: &[&ScriptedEndpoint]) -> Chain {
    Chain::new(rpc(endpoints), Address::ZERO, Address::ZERO, MAX_TIP)
}

/// Starts an endpoint, and the chain as it shows it; receipts of three nonces or more come by the block.
pub(crate) async fn alone(script: &[ScriptedReply]) -> (ScriptedEndpoint, Chain) {
    let endpoint = scripted(script).await;
    let chain = chain(&[&endpoint]).with_block_receipts_from(3);
    (endpoint, chain)
}

pub(crate) async fn pair(first: ScriptedReply, second: ScriptedReply) -> [ScriptedEndpoint; 2] {
    [scripted(&[first]).await, scripted(&[second]).await]
}
