//! A JSON-RPC proxy in front of a node that counts and records requests, and misbehaves on demand.
//!
//! Every HTTP post and every JSON-RPC call inside it is recorded before it is forwarded, so that unanswered
//! round trips count as well. [`Proxy::inject`] adds a rule; the first rule that matches a call and has uses
//! left decides about it. The effects of the faults are in [`crate::fault`].

use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Error, Result, anyhow};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Body as _, Bytes, Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::fault::{FaultRule, NodeFault};
use crate::http;

#[derive(Debug, Clone)]
pub struct Post {
    /// The JSON body; `Null` where the body is not JSON.
    pub body: Value,
    /// The method of each call in it, in order.
    pub methods: Vec<String>,
    /// The `Authorization` header; empty without one.
    pub authorization: String,
    pub at: Instant,
    /// The node's answer, once there is one.
    pub answer: Arc<OnceLock<UpstreamAnswer>>,
}

/// The node's answer to a post: its time, a fault's delay included, and its size before a fault changed it.
#[derive(Debug, Clone, Copy)]
pub struct UpstreamAnswer {
    pub at: Instant,
    pub bytes: u64,
}

/// Counts sequential round trips: the most posts that do not overlap, unanswered ones taking no time.
pub fn sequential(posts: &[Post]) -> usize {
    let mut spans: Vec<(Instant, Instant)> =
        posts.iter().map(|post| (post.answer.get().map_or(post.at, |answer| answer.at), post.at)).collect();
    spans.sort();
    let (mut count, mut last_end) = (0, None);
    for (end, start) in spans {
        if last_end.is_none_or(|last_end| start >= last_end) {
            (count, last_end) = (count + 1, Some(end));
        }
    }
    count
}

#[derive(Debug)]
pub struct Proxy {
    url: String,
    shared: Arc<ProxyState>,
    _server: JoinSet<()>,
}

#[derive(Debug)]
struct ProxyState {
    upstream: String,
    client: reqwest::Client,
    posts: Mutex<Vec<Post>>,
    /// Bytes sent of endless answers.
    streamed: Arc<AtomicUsize>,
    rules: Mutex<Vec<FaultRule>>,
}

impl Proxy {
    /// Listens on a free port and forwards to `upstream`.
    pub async fn start(upstream: &str) -> Result<Self> {
        let shared = Arc::new(ProxyState {
            upstream: upstream.to_owned(),
            client: http::client(Duration::from_secs(60)),
            posts: Mutex::default(),
            streamed: Arc::default(),
            rules: Mutex::default(),
        });
        let serving = shared.clone();
        let serve = http::serve(move |stream| {
            let shared = serving.clone();
            let service = service_fn(move |request| answer(shared.clone(), request));
            // A fault that closes a connection ends it with an error.
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service)
        });
        let (port, server) = serve.await?;
        Ok(Self { url: format!("http://127.0.0.1:{port}"), shared, _server: server })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn inject(&self, rule: FaultRule) {
        lock(&self.shared.rules).push(rule);
    }

    /// Removes all rules. Posts that hang go on hanging.
    pub fn heal(&self) {
        lock(&self.shared.rules).clear();
    }

    /// Returns the number of HTTP posts, a client's round trips, since the last [`reset`](Self::reset).
    pub fn posts(&self) -> usize {
        lock(&self.shared.posts).len()
    }

    /// Returns the number of JSON-RPC calls of `method`, those inside batches included.
    pub fn calls(&self, method: &str) -> usize {
        lock(&self.shared.posts).iter().flat_map(|post| &post.methods).filter(|name| *name == method).count()
    }

    /// Returns the bytes of endless answers sent since the proxy started; clients may have read fewer.
    pub fn streamed(&self) -> usize {
        self.shared.streamed.load(Ordering::SeqCst)
    }

    pub fn log(&self) -> Vec<Post> {
        lock(&self.shared.posts).clone()
    }

    /// Clears the recorded posts, and returns them.
    pub fn reset(&self) -> Vec<Post> {
        std::mem::take(&mut *lock(&self.shared.posts))
    }
}

/// The node behind the proxy.
pub(crate) struct UpstreamNode {
    client: reqwest::Client,
    url: String,
}

impl UpstreamNode {
    async fn post(&self, body: &Value) -> Result<(u16, Bytes)> {
        let response = self.client.post(&self.url).json(body).send().await?;
        Ok((response.status().as_u16(), response.bytes().await?))
    }

    pub(crate) async fn ask(&self, call: &Value) -> Result<Value> {
        Ok(serde_json::from_slice(&self.post(call).await?.1)?)
    }
}

/// A response to a client; its body may break off.
type ProxyResponse = Response<BoxBody<Bytes, Error>>;

/// Answers one post; an error closes the connection.
async fn answer(shared: Arc<ProxyState>, request: Request<Incoming>) -> Result<ProxyResponse> {
    let authorization = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let authorization = authorization.unwrap_or_default().to_owned();
    let bytes = request.into_body().collect().await?.to_bytes();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    let calls = calls_of(&body);
    let methods = calls.iter().map(|call| call["method"].as_str().unwrap_or_default().to_owned()).collect();
    let at = Instant::now();
    let answer = Arc::new(OnceLock::new());
    lock(&shared.posts).push(Post { body: body.clone(), methods, authorization, at, answer: answer.clone() });

    let faults: Vec<Option<NodeFault>> = {
        let mut rules = lock(&shared.rules);
        calls.iter().map(|call| FaultRule::decide(&mut rules, call)).collect()
    };
    // A fault of the whole post goes before those of single calls.
    let whole = faults.iter().flatten().find(|fault| !fault.is_of_call()).cloned();
    match whole {
        Some(NodeFault::Status { status, body, retry_after }) => {
            let mut response = respond(status, body.into());
            if let Some(seconds) = retry_after {
                response.headers_mut().insert("retry-after", seconds.into());
            }
            return Ok(response);
        }
        Some(NodeFault::Garbage(body)) => return Ok(respond(200, body.into())),
        Some(NodeFault::Refuse) => return Err(closed()),
        Some(NodeFault::Endless) => return Ok(endless(shared.streamed.clone())),
        Some(NodeFault::Hang) => return pending().await,
        _ => {}
    }

    let node = UpstreamNode { client: shared.client.clone(), url: shared.upstream.clone() };
    let answered = forward(&node, &body, &calls, &faults).await;
    if let Some(NodeFault::Delay(time)) = whole {
        tokio::time::sleep(time).await;
    }
    if let Some(bytes) = answered.as_ref().ok().and_then(|answered| answered.body().size_hint().exact()) {
        // A post is answered only once, so the cell is empty.
        let _ = answer.set(UpstreamAnswer { at: Instant::now(), bytes });
    }
    match whole {
        Some(NodeFault::LoseAnswer) => Err(closed()),
        Some(NodeFault::HalfAnAnswer) => break_off(answered?).await,
        Some(NodeFault::HangAfterwards) => pending().await,
        _ => answered,
    }
}

/// Forwards the calls to the node, except those that a fault answers; keeps the calls' order.
async fn forward(
    node: &UpstreamNode,
    body: &Value,
    calls: &[Value],
    faults: &[Option<NodeFault>],
) -> Result<ProxyResponse> {
    if !faults.iter().flatten().any(NodeFault::is_of_call) {
        let (status, bytes) = node.post(body).await?;
        return Ok(respond(status, bytes));
    }
    let mut answers = Vec::with_capacity(calls.len());
    for (call, fault) in calls.iter().zip(faults) {
        answers.push(match fault {
            Some(fault) => fault.answer(call, node).await?,
            None => node.ask(call).await?,
        });
    }
    let answer = if body.is_array() { Value::Array(answers) } else { answers.swap_remove(0) };
    Ok(respond(200, answer.to_string().into()))
}

/// Turns an answer into its full `Content-Length` and half of its body.
async fn break_off(answer: ProxyResponse) -> Result<ProxyResponse> {
    let (mut parts, body) = answer.into_parts();
    let body = body.collect().await?.to_bytes();
    let half = body.slice(..body.len() / 2);
    parts.headers.insert(CONTENT_LENGTH, body.len().into());
    let frames = futures_util::stream::iter([Ok(Frame::data(half)), Err(closed())]);
    Ok(Response::from_parts(parts, StreamBody::new(frames).boxed()))
}

/// Builds a batch's answer with an endless first result.
fn endless(streamed: Arc<AtomicUsize>) -> ProxyResponse {
    const PIECE: usize = 64 * 1024;
    let head = Bytes::from_static(br#"[{"jsonrpc":"2.0","id":0,"result":"0x"#);
    let digits = Bytes::from_static(&[b'0'; PIECE]);
    let pieces = std::iter::once(head).chain(std::iter::repeat(digits)).map(move |piece| {
        streamed.fetch_add(piece.len(), Ordering::SeqCst);
        Ok(Frame::data(piece))
    });
    let mut response = respond(200, Bytes::new());
    *response.body_mut() = StreamBody::new(futures_util::stream::iter(pieces)).boxed();
    response
}

fn respond(status: u16, body: Bytes) -> ProxyResponse {
    let mut response = Response::new(Full::new(body).map_err(|never| match never {}).boxed());
    *response.status_mut() = StatusCode::from_u16(status).expect("a fault names a real status");
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn closed() -> Error {
    anyhow!("closed by a fault")
}

fn calls_of(body: &Value) -> Vec<Value> {
    match body {
        Value::Array(calls) => calls.clone(),
        Value::Object(_) => vec![body.clone()],
        _ => Vec::new(),
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds posts that were under way from one second to another.
    fn posts(spans: &[(u64, u64)]) -> Vec<Post> {
        let began = Instant::now();
        let at = |second| began + Duration::from_secs(second);
        let post = |&(start, end): &(u64, u64)| Post {
            body: Value::Null,
            methods: Vec::new(),
            authorization: String::new(),
            at: at(start),
            answer: Arc::new(OnceLock::from(UpstreamAnswer { at: at(end), bytes: 0 })),
        };
        spans.iter().map(post).collect()
    }

    #[test]
    fn posts_side_by_side_are_one_round_trip() {
        for (spans, expected) in [
            (&[][..], 0),
            (&[(0, 1)], 1),
            (&[(0, 1), (1, 2), (2, 5)], 3),
            // One, and then four of which some wait longer.
            (&[(0, 1), (2, 9), (2, 4), (2, 5), (3, 8)], 2),
            // A long one beside two short ones.
            (&[(0, 9), (1, 2), (3, 4)], 2),
        ] {
            assert_eq!(sequential(&posts(spans)), expected, "{spans:?}");
        }
    }
}
