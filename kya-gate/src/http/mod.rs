//! The port: what a proxy asks, and monitoring.
//!
//! | path | answer |
//! |---|---|
//! | `/gate/<policy>`, any method, anything behind it | 200 admits; 400, 401, 403 and 503 refuse |
//! | `/refusal/<policy>` | the refusal again, with its body: for nginx, which keeps none. It never admits |
//! | `/.well-known/erc8128` | what routes ask of signatures |
//! | `/.well-known/jwks.json` | the keys that verdicts are signed with |
//! | `/livez`, `/readyz`, `/metrics` | monitoring |

mod connections;
mod original;

use std::{collections::BTreeMap, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{
    Request, Response, StatusCode,
    body::Incoming,
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};
use registry_core::{
    eth::timestamp::Timestamp,
    gate::{GateAnswer, OUTPUT_HEADERS},
};
use tokio::sync::Mutex;

use crate::{
    gate::{Gate, Purpose},
    settings::{ProxySettings, RoutePolicy},
};
pub use connections::serve;
use original::{Misconfigured, Original};

/// The longest content that is read, where the proxy passes it on.
const LONGEST_CONTENT: usize = 8 << 20;
/// How long an answer of `/readyz` is given again.
const READINESS_HOLDS: std::time::Duration = std::time::Duration::from_secs(5);

/// What answers requests.
#[derive(Debug)]
pub struct App {
    /// Decides.
    pub gate: Gate,
    /// The reverse proxy.
    pub proxy: ProxySettings,
    /// The policies by name.
    pub policies: BTreeMap<String, RoutePolicy>,
    /// The document of `/.well-known/erc8128`.
    pub discovery: String,
    /// The last probe of chain, API and the store of nonces.
    pub readiness: Mutex<Option<(tokio::time::Instant, Result<String, String>)>>,
}

type HttpResponse = Response<Full<Bytes>>;

impl App {
    /// The answer to one request of this peer.
    pub async fn respond(self: Arc<Self>, peer: SocketAddr, request: Request<Incoming>) -> HttpResponse {
        let target = request.uri().path_and_query().map_or("/", |target| target.as_str()).to_owned();
        if let Some(asked) = target.strip_prefix("/gate/") {
            return self.decide(peer, asked, request, Purpose::Admission).await;
        }
        if let Some(asked) = target.strip_prefix("/refusal/") {
            return self.decide(peer, asked, request, Purpose::Explanation).await;
        }
        match target.as_str() {
            "/.well-known/erc8128" => discovery(self.discovery.clone()),
            "/livez" => text(StatusCode::OK, "ok\n".to_owned()),
            "/readyz" => match self.ready().await {
                Ok(words) => text(StatusCode::OK, format!("{words}\n")),
                Err(words) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{words}\n")),
            },
            "/metrics" => {
                let metrics = &self.gate.metrics;
                metrics.nonces.set(i64::try_from(self.gate.nonces.len()).unwrap_or(i64::MAX));
                text(StatusCode::OK, metrics.text())
            }
            "/.well-known/jwks.json" => match &self.gate.signer {
                Some(signer) => keys(signer.published()),
                None => text(StatusCode::NOT_FOUND, "verdicts are not signed\n".to_owned()),
            },
            _ => text(StatusCode::NOT_FOUND, "not found\n".to_owned()),
        }
    }

    /// Decides about the request that `asked`, a policy with anything behind it, is about.
    async fn decide(
        &self,
        peer: SocketAddr,
        asked: &str,
        request: Request<Incoming>,
        purpose: Purpose,
    ) -> HttpResponse {
        let end = asked.find(['/', '?']).unwrap_or(asked.len());
        let (name, rest) = asked.split_at(end);
        let Some(policy) = self.policies.get(name) else {
            tracing::error!(policy = name, "the proxy asks for a policy that there is not");
            return misconfigured();
        };
        let (parts, body) = request.into_parts();
        let Ok(body) = Limited::new(body, LONGEST_CONTENT).collect().await else {
            tracing::warn!(policy = name, "the proxy passed on a content that is too long, or broke off");
            return misconfigured();
        };
        let body = body.to_bytes();
        let asked = (parts.method.as_str(), rest);
        let original = match Original::read(&self.proxy, peer.ip(), asked, &parts.headers, &body) {
            Ok(original) => original,
            Err(error) => {
                // At this level once a request: the configuration is wrong, or the port is open to others.
                tracing::warn!(policy = name, peer = (error == Misconfigured::Stranger).then(|| peer.to_string()), %error, "not decided");
                return misconfigured();
            }
        };
        let now = now();
        to_http(self.gate.answer((name, policy), &original.as_request(&policy.origin), purpose, now).await)
    }

    /// Whether chain, API and the store of nonces answer.
    async fn ready(&self) -> Result<String, String> {
        // Probes wait for one another: many cause one round trip.
        let mut last = self.readiness.lock().await;
        if let Some((_, words)) = last.as_ref().filter(|(at, _)| at.elapsed() < READINESS_HOLDS) {
            return words.clone();
        }
        let words = self.gate.probe(now()).await;
        *last = Some((tokio::time::Instant::now(), words.clone()));
        words
    }
}

/// The machine's time. Signatures are judged with 30 seconds of tolerance.
pub fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// The gate's answer as an HTTP response.
pub(crate) fn to_http<B: From<Bytes>>(answer: GateAnswer) -> Response<B> {
    let mut response = Response::new(B::from(Bytes::from(answer.body)));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
    for (name, value) in answer.headers {
        // Values are of visible ASCII: codes, addresses, numbers, names of components.
        if let Ok(value) = HeaderValue::from_str(&value) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// The proxy asks in a way that says nothing about a request: it is refused, as one that cannot be decided.
fn misconfigured() -> HttpResponse {
    to_http(problem(StatusCode::SERVICE_UNAVAILABLE, "Temporarily unavailable", "gate_misconfigured"))
}

/// A refusal that is not the core's: about the way that a request came, and not about its signature.
pub(crate) fn problem(status: StatusCode, title: &str, reason: &str) -> GateAnswer {
    let status = status.as_u16();
    let mut headers: Vec<_> = OUTPUT_HEADERS.into_iter().map(|name| (name, String::new())).collect();
    headers.push(("content-type", "application/problem+json".to_owned()));
    headers.push(("cache-control", "no-store".to_owned()));
    let body = format!(r#"{{"title":"{title}","status":{status},"reason":"{reason}"}}"#);
    GateAnswer { status, headers, body }
}

fn discovery(document: String) -> HttpResponse {
    let mut response = Response::new(Full::from(document));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    response
}

fn keys(body: String) -> HttpResponse {
    let mut response = Response::new(Full::from(body));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/jwk-set+json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    response
}

fn text(status: StatusCode, body: String) -> HttpResponse {
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
