//! Connections: accepted, bounded in number and in patience, and closed in good order; and what every answer
//! carries: a request id, CORS headers, a log line, a metric.
//!
//! warp's own accept loop has no header timeout, so the loop is here; the routes are still warp's.

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use alloy::primitives::{FixedBytes, hex};
use hyper::{Request, body::Incoming, server::conn::http1, service::Service as _, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use warp::{
    Filter, Reply,
    http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header},
    reply::Response,
};

use crate::{
    metrics::Metrics,
    routes::{FailureCode, Peer, Route, allowed},
    stop::{Stop, stopped},
};

/// How long a client may take to send its headers; an idle connection is closed after the same time.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections at once.
const MAX_CONNECTIONS: usize = 4_096;
/// How long answers under way may take once the daemon stops.
const GRACE: Duration = Duration::from_secs(3);

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Serves until `stop` is set, then lets answers under way finish.
pub async fn serve<F>(listener: TcpListener, filter: F, metrics: Metrics, mut stop: Stop)
where
    F: Filter<Extract = (Response,), Error = Infallible> + Clone + Send + Sync + 'static,
    F::Future: Send,
{
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let metrics = Arc::new(metrics);
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { break };
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stopped(&mut stop) => break,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: they come back.
                tracing::warn!(error = %error.kind(), "connection not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let connection = connection(stream, peer, filter.clone(), Arc::clone(&metrics));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // A client that went away, or was too slow, is not our trouble.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
        tracing::info!("some clients were still waiting; their relays stay in the journal");
    }
}

fn connection<F>(
    stream: TcpStream,
    peer: SocketAddr,
    filter: F,
    metrics: Arc<Metrics>,
) -> impl hyper_util::server::graceful::GracefulConnection<Error = hyper::Error> + Send
where
    F: Filter<Extract = (Response,), Error = Infallible> + Clone + Send + Sync + 'static,
    F::Future: Send,
{
    let routes = TowerToHyperService::new(warp::service(filter));
    let service = service_fn(move |mut request: Request<Incoming>| {
        let routes = routes.clone();
        let metrics = Arc::clone(&metrics);
        async move {
            let started = Instant::now();
            let id = request_id(request.headers());
            let method = request.method().clone();
            let allowed = allowed(request.uri().path());
            request.extensions_mut().insert(Peer(peer));
            let mut response = if method == Method::OPTIONS {
                preflight()
            } else {
                match routes.call(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            };
            if method == Method::OPTIONS || response.status() == StatusCode::METHOD_NOT_ALLOWED {
                response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
            }
            observe(&metrics, &response, started.elapsed());
            let status = response.status().as_u16();
            let took_ms = started.elapsed().as_millis();
            let route = response.extensions().get::<Route>().map_or("none", |route| route.0);
            tracing::debug!(request = ?id, %method, route, status, took_ms, "answered");
            stamp(response.headers_mut(), id);
            Ok::<_, Infallible>(response)
        }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(32 * 1024)
        .serve_connection(TokioIo::new(stream), service)
}

fn observe(metrics: &Metrics, response: &Response, took: Duration) {
    let route = response.extensions().get::<Route>().map_or("none", |route| route.0);
    metrics.http_requests.with_label_values(&[route, response.status().as_str()]).inc();
    metrics.http_seconds.with_label_values(&[route]).observe(took.as_secs_f64());
    if let Some(FailureCode(code)) = response.extensions().get() {
        metrics.failures.with_label_values(&[code.name()]).inc();
    }
}

/// The client's id for its request if it is a plain one, else one of our own.
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

fn preflight() -> Response {
    warp::reply::with_status(warp::reply(), StatusCode::NO_CONTENT).into_response()
}

/// Headers of every answer. Any page may use the relayer: it is public, and cookies play no part.
fn stamp(headers: &mut HeaderMap, id: HeaderValue) {
    headers.insert(REQUEST_ID, id);
    for (name, value) in [
        (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, OPTIONS"),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, "Content-Type, X-Request-Id"),
        (header::ACCESS_CONTROL_EXPOSE_HEADERS, "X-Request-Id, X-Relay-Id, Retry-After"),
        (header::ACCESS_CONTROL_MAX_AGE, "86400"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}
