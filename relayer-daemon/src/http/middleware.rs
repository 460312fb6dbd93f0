//! Middleware for every answer: a request id, CORS headers, a log line, a metric.

use std::{
    convert::Infallible,
    future::Future,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use alloy::primitives::{FixedBytes, hex};
use hyper::{
    Request,
    body::Incoming,
    service::{Service, service_fn},
};
use hyper_util::service::TowerToHyperService;
use tracing::{Instrument as _, Span, field};
use warp::{
    Filter, Reply,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    reply::Response,
};

use super::routes::{FailureCode, Peer, RouteName, allowed};
use crate::{metrics::Metrics, process::logging::SPANS};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Returns the routes as one connection's service.
pub(super) fn service<F>(
    peer: SocketAddr,
    filter: F,
    metrics: Arc<Metrics>,
) -> impl Service<
    Request<Incoming>,
    Response = Response,
    Error = Infallible,
    Future = impl Future<Output = Result<Response, Infallible>> + Send,
> + Send
where
    F: Filter<Extract = (Response,), Error = Infallible> + Clone + Send + Sync + 'static,
    F::Future: Send,
{
    let routes = TowerToHyperService::new(warp::service(filter));
    service_fn(move |mut request: Request<Incoming>| {
        let routes = routes.clone();
        let metrics = Arc::clone(&metrics);
        async move {
            let started = Instant::now();
            let id = request_id(request.headers());
            let method = request.method().clone();
            let allowed = allowed(request.uri().path());
            request.extensions_mut().insert(Peer(peer));
            let mut response = if method == Method::OPTIONS {
                warp::reply::with_status(warp::reply(), StatusCode::NO_CONTENT).into_response()
            } else {
                let span = span(&method, request.headers());
                match routes.call(request).instrument(span.clone()).await {
                    Ok(response) => {
                        span.record("status", response.status().as_u16());
                        span.record("route", route(&response));
                        response
                    }
                    Err(never) => match never {},
                }
            };
            if method == Method::OPTIONS || response.status() == StatusCode::METHOD_NOT_ALLOWED {
                response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
            }
            observe(&metrics, &response, started.elapsed());
            let (route, status) = (route(&response), response.status().as_u16());
            let took_ms = started.elapsed().as_millis();
            tracing::debug!(request = ?id, %method, route, status, took_ms, "answered");
            stamp(response.headers_mut(), id);
            Ok(response)
        }
    })
}

/// Creates a request's span, in the trace of its client if that names one.
fn span(method: &Method, headers: &HeaderMap) -> Span {
    let traceparent = headers.get("traceparent").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (route, status) = (field::Empty, field::Empty);
    tracing::info_span!(target: SPANS, "http", "otel.kind" = "server", traceparent, %method, route, status)
}

fn route(response: &Response) -> &'static str {
    response.extensions().get::<RouteName>().map_or("none", |route| route.0)
}

fn observe(metrics: &Metrics, response: &Response, took: Duration) {
    let route = route(response);
    metrics.http_requests.with_label_values(&[route, response.status().as_str()]).inc();
    metrics.http_seconds.with_label_values(&[route]).observe(took.as_secs_f64());
    if let Some(FailureCode(code)) = response.extensions().get() {
        metrics.failures.with_label_values(&[code.name()]).inc();
    }
}

/// Returns the client's request id if it is a plain one, else a random one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    const LONGEST: usize = 64;
    let plain = |value: &&HeaderValue| {
        let bytes = value.as_bytes();
        (1..=LONGEST).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
    };
    headers.get(REQUEST_ID).filter(plain).cloned().unwrap_or_else(|| {
        let made = hex::encode(FixedBytes::<16>::random());
        HeaderValue::from_str(&made).unwrap_or_else(|_| HeaderValue::from_static("none"))
    })
}

/// Sets the headers of every answer. Any page may use the relayer: it is public, and needs no cookies.
fn stamp(headers: &mut HeaderMap, id: HeaderValue) {
    headers.insert(REQUEST_ID, id);
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, OPTIONS"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "Authorization, Content-Type, X-Request-Id"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "X-Request-Id, X-Relay-Id, Retry-After"),
        (header::ACCESS_CONTROL_MAX_AGE, "86400"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
