//! A receiver of webhooks and of requests that a gate admits. It records each request, and answers by a rule
//! that the test sets.
//!
//! Signatures are made and checked here as the relayer's README describes them, not by the relayer's code.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use alloy::hex;
use anyhow::Result;
use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use ring::hmac;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::guarded::{listen, serve};
use crate::proxy::lock;

const SIGNATURE: &str = "x-relayer-signature";

fn sign(secret: &str, timestamp: &str, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{timestamp}.{body}").as_bytes());
    format!("t={timestamp},v1={}", hex::encode(tag))
}

#[derive(Debug, Clone)]
pub struct Delivery {
    pub method: String,
    /// The path, and the query where there is one.
    pub path: String,
    pub headers: HeaderMap,
    pub body: String,
    pub at: Instant,
}

impl Delivery {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a webhook's body is JSON")
    }

    /// Returns a header, `""` where it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub fn values(&self, name: &str) -> Vec<&str> {
        self.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect()
    }

    fn timestamp(&self) -> &str {
        self.header(SIGNATURE).trim_start_matches("t=").split(',').next().unwrap_or_default()
    }

    pub fn is_signed_with(&self, secret: &str) -> bool {
        self.header(SIGNATURE) == sign(secret, self.timestamp(), &self.body)
    }
}

#[derive(Debug, Clone)]
pub struct HookReply {
    pub status: u16,
    pub body: String,
    pub header: Option<(&'static str, String)>,
    pub after: Duration,
}

impl HookReply {
    pub fn status(status: u16) -> Self {
        Self { status, body: String::new(), header: None, after: Duration::ZERO }
    }

    pub fn json(body: &Value) -> Self {
        Self { body: body.to_string(), ..Self::status(200) }
    }

    pub fn signed(secret: &str, to: &Delivery, body: &Value) -> Self {
        let body = body.to_string();
        let header = Some((SIGNATURE, sign(secret, to.timestamp(), &body)));
        Self { header, body, ..Self::status(200) }
    }
}

type ReplyRule = Box<dyn Fn(&Delivery) -> HookReply + Send>;

pub struct Receiver {
    url: String,
    shared: Arc<Mutex<ReceiverState>>,
    _server: JoinSet<()>,
}

struct ReceiverState {
    deliveries: Vec<Delivery>,
    rule: ReplyRule,
}

impl Receiver {
    /// Listens on a free port, and answers 200 to everything.
    pub async fn start() -> Result<Self> {
        let (listener, url) = listen(0).await?;
        let shared = ReceiverState { deliveries: Vec::new(), rule: Box::new(|_| HookReply::status(200)) };
        let shared = Arc::new(Mutex::new(shared));
        let app =
            Router::new().fallback(answer).layer(DefaultBodyLimit::disable()).with_state(Arc::clone(&shared));
        Ok(Self { url, shared, _server: serve(listener, app) })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn answer_by(&self, rule: impl Fn(&Delivery) -> HookReply + Send + 'static) {
        lock(&self.shared).rule = Box::new(rule);
    }

    /// Returns all requests so far, in order.
    pub fn deliveries(&self) -> Vec<Delivery> {
        lock(&self.shared).deliveries.clone()
    }

    /// Returns the requests since the last call.
    pub fn take(&self) -> Vec<Delivery> {
        std::mem::take(&mut lock(&self.shared).deliveries)
    }
}

async fn answer(shared: State<Arc<Mutex<ReceiverState>>>, request: Parts, body: String) -> Response {
    let Parts { method, uri, headers, .. } = request;
    let (method, path) = (method.to_string(), uri.to_string());
    let delivery = Delivery { method, path, headers, body, at: Instant::now() };
    let reply = {
        let mut shared = lock(&shared);
        shared.deliveries.push(delivery);
        shared.deliveries.last().map(&shared.rule).expect("it was pushed")
    };
    tokio::time::sleep(reply.after).await;
    let status = StatusCode::from_u16(reply.status).expect("a status");
    (status, reply.header.map(|header| [header]), reply.body).into_response()
}
