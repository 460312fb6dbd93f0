//! The port: the proxy's requests, and monitoring.
//!
//! | path | answer |
//! |---|---|
//! | `/gate/<policy>`, any method, anything behind it | 200 admits; 400, 401, 403 and 503 refuse |
//! | `/refusal/<policy>` | the refusal again, with its body, which nginx does not keep; never admits |
//! | `/.well-known/erc8128` | the routes' rules for signatures |
//! | `/.well-known/agent-registry` | the registry and the way to it |
//! | `/.well-known/jwks.json` | the keys that verdicts are signed with |
//! | `/livez`, `/readyz`, `/metrics` | monitoring |

mod connections;
mod content;
mod heads;
mod original;
mod readiness;

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Request, Response, StatusCode,
    body::Body,
    header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue},
};
use registry_core::{
    gate::{GateAnswer, Links, Outcome, RequestFault, RoutePolicy, Unavailable, is_lookalike},
    registry::well_known,
};

use crate::{
    gate::{Gate, Purpose},
    settings::{ContentSource, ProxySettings, TargetSource},
};
pub use connections::serve;
pub use content::ContentReader;
use content::PassedContent;
pub use host_kit::native::now;
use original::{OriginalRequest, ProxyFault};
pub use readiness::Readiness;

/// The longest time for a head, from its first byte, and for a content.
pub(crate) const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The header of an answer that lists headers for Envoy to remove from a served request.
const ENVOY_REMOVES: &str = "x-envoy-auth-headers-to-remove";

/// The HTTP service.
#[derive(Debug)]
pub struct App {
    /// Decides on requests.
    pub gate: Gate,
    /// The reverse proxy.
    pub proxy: ProxySettings,
    /// The reader of contents.
    pub contents: ContentReader,
    /// The policies by name.
    pub policies: BTreeMap<String, RoutePolicy>,
    /// The document of `/.well-known/erc8128`.
    pub discovery: String,
    /// The document of `/.well-known/agent-registry`.
    pub registry: String,
    /// The cached answer of `/readyz`.
    pub readiness: Readiness,
}

type HttpResponse = Response<Full<Bytes>>;

/// The parts of the target with which a proxy asks for a decision.
struct DecisionPath<'a> {
    purpose: Purpose,
    /// The policy's name.
    policy: &'a str,
    /// The rest of the target behind the policy's name.
    rest: &'a str,
}

impl<'a> DecisionPath<'a> {
    /// Parses a target; `None` where it asks for no decision.
    fn of(target: &'a str) -> Option<Self> {
        let (purpose, asked) = match target.strip_prefix("/gate/") {
            Some(asked) => (Purpose::Admission, asked),
            None => (Purpose::Explanation, target.strip_prefix("/refusal/")?),
        };
        let (policy, rest) = asked.split_at(asked.find(['/', '?']).unwrap_or(asked.len()));
        Some(Self { purpose, policy, rest })
    }
}

impl App {
    /// Answers one request of a peer. `target` replaces the target that hyper parsed.
    pub async fn respond(
        self: Arc<Self>,
        peer: SocketAddr,
        target: Option<String>,
        request: Request<impl Body<Data = Bytes> + Unpin>,
    ) -> HttpResponse {
        let parsed = || request.uri().path_and_query().map_or("/", |target| target.as_str()).to_owned();
        let target = target.unwrap_or_else(parsed);
        if let Some(asked) = DecisionPath::of(&target) {
            return self.decide(peer, asked, request).await;
        }
        match target.as_str() {
            "/.well-known/erc8128" => discovery(&self.discovery),
            well_known::PATH => discovery(&self.registry),
            "/livez" => text(StatusCode::OK, "ok\n"),
            "/readyz" => match self.readiness.or_else(self.gate.probe(now())).await {
                Ok(words) => text(StatusCode::OK, format!("{words}\n")),
                Err(words) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{words}\n")),
            },
            "/metrics" => {
                let metrics = &self.gate.metrics;
                metrics.nonces.set(i64::try_from(self.gate.nonces.count()).unwrap_or(i64::MAX));
                text(StatusCode::OK, metrics.text())
            }
            "/.well-known/jwks.json" => match &self.gate.signer {
                Some(signer) => cached("application/jwk-set+json", "public, max-age=60", signer.published()),
                None => text(StatusCode::NOT_FOUND, "verdicts are not signed\n"),
            },
            _ => text(StatusCode::NOT_FOUND, "not found\n"),
        }
    }

    /// Decides on the request that the proxy asks about.
    async fn decide(
        &self,
        peer: SocketAddr,
        asked: DecisionPath<'_>,
        request: Request<impl Body<Data = Bytes> + Unpin>,
    ) -> HttpResponse {
        let DecisionPath { purpose, policy, rest } = asked;
        let policy = self.policies.get(policy);
        // Before anything of the request is read.
        if !self.is_proxy(peer.ip()) {
            return self.misconfigured(policy, ProxyFault::Stranger, peer);
        }
        let Some(policy) = policy else {
            return self.misconfigured(None, ProxyFault::Policy, peer);
        };
        let (parts, body) = request.into_parts();
        let content = match self.proxy.content {
            ContentSource::Passed => self.contents.read(body).await.map(Some),
            ContentSource::Withheld(_) => Ok(None),
        };
        let (content, unread) = match content {
            Ok(content) => (content, None),
            Err(unread) => (None, Some(unread)),
        };
        let bytes = content.as_ref().map(|PassedContent { bytes, .. }| &**bytes);
        let original =
            match OriginalRequest::read(&self.proxy, (parts.method.as_str(), rest), &parts.headers, bytes) {
                Ok(original) => original,
                Err(error) => return self.misconfigured(Some(policy), error, peer),
            };
        let request = original.as_request(&policy.origin);
        let mut response = to_http(match unread.map(Outcome::from) {
            // A signature says nothing about content that was not compared with its digest.
            Some(outcome) if purpose == Purpose::Explanation => outcome.answer_unread(&policy.links),
            Some(outcome) => self.gate.concluded(policy, Some(&request), &outcome),
            None => self.gate.decided(policy, &request, purpose, now()).await.1,
        });
        if self.passes_lookalikes(policy) {
            let names = parts.headers.keys().map(HeaderName::as_str).filter(|name| is_lookalike(name));
            let names: Vec<&str> = names.collect();
            if let (Ok(names), false) = (HeaderValue::from_str(&names.join(",")), names.is_empty()) {
                response.headers_mut().insert(ENVOY_REMOVES, names);
            }
        }
        response
    }

    /// Answers a request of the proxy that hyper cannot parse, by its request line; `None` where that names
    /// no policy.
    fn answer_unparsed(&self, line: &[u8], fault: RequestFault) -> Option<GateAnswer> {
        let target = String::from_utf8_lossy(heads::target(line)?);
        let DecisionPath { purpose, policy, .. } = DecisionPath::of(&target)?;
        let policy = self.policies.get(policy)?;
        let outcome = Outcome::Faulty(fault);
        if purpose == Purpose::Explanation {
            return Some(outcome.answer_unread(&policy.links));
        }
        let answer = self.gate.concluded(policy, None, &outcome);
        // The headers that Envoy would have to remove are not known.
        Some(if self.passes_lookalikes(policy) { outcome.answer_unread(&policy.links) } else { answer })
    }

    /// Returns whether headers that a service may read as the gate's are passed on: a policy that decides
    /// refuses them, and only Envoy passes them on beside the gate's own.
    fn passes_lookalikes(&self, policy: &RoutePolicy) -> bool {
        policy.observe && self.proxy.target == TargetSource::Path
    }

    /// Returns whether an address is the reverse proxy's.
    pub fn is_proxy(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        self.proxy.networks.iter().any(|network| network.contains(&peer))
    }

    /// Answers a proxy that does not describe a request: the request is refused, as it cannot be decided.
    fn misconfigured(
        &self,
        policy: Option<&RoutePolicy>,
        error: ProxyFault,
        peer: SocketAddr,
    ) -> HttpResponse {
        // A warning for each request: the configuration is wrong, or the port is open to others.
        let peer = (error == ProxyFault::Stranger).then(|| peer.to_string());
        let name = policy.map(|policy| policy.name.as_str());
        tracing::warn!(policy = name, peer, %error, "not decided");
        let outcome = Outcome::Unavailable(Unavailable::GateMisconfigured);
        to_http(match policy {
            Some(policy) => self.gate.concluded(policy, None, &outcome),
            None => outcome.answer_unread(&Links::default()),
        })
    }
}

/// Turns the gate's answer into an HTTP response.
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

fn cached(media_type: &'static str, caching: &'static str, body: String) -> HttpResponse {
    let mut response = Response::new(Full::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    response
}

fn discovery(document: &str) -> HttpResponse {
    cached("application/json", "public, max-age=300", document.to_owned())
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
