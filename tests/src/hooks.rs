//! A receiver of webhooks: it remembers what it was sent, and answers as it is told to.
//!
//! Signatures are made and checked here as the relayer's README describes them, not by the relayer's code.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use alloy::hex;
use anyhow::Result;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use ring::hmac;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::guarded::{listen, serve};

/// The header with a webhook's timestamp and signature.
const SIGNATURE: &str = "x-relayer-signature";

/// The signature header of a body.
fn sign(secret: &str, timestamp: &str, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{timestamp}.{body}").as_bytes());
    format!("t={timestamp},v1={}", hex::encode(tag))
}

/// A webhook that came in.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The path that it was posted to.
    pub path: String,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: String,
    /// When it was there.
    pub at: Instant,
}

impl Delivery {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("a webhook's body is JSON")
    }

    /// A header, `""` where it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    fn timestamp(&self) -> &str {
        self.header(SIGNATURE).trim_start_matches("t=").split(',').next().unwrap_or_default()
    }

    /// Whether it is signed with this secret.
    pub fn is_signed_with(&self, secret: &str) -> bool {
        self.header(SIGNATURE) == sign(secret, self.timestamp(), &self.body)
    }
}

/// The answer to a webhook.
#[derive(Debug, Clone)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its body.
    pub body: String,
    /// Its signature's header.
    pub signature: String,
    /// How long it takes.
    pub after: Duration,
}

impl Reply {
    /// An empty answer with this status, at once.
    pub fn status(status: u16) -> Self {
        Self { status, body: String::new(), signature: String::new(), after: Duration::ZERO }
    }

    /// An answer signed with this secret, to this webhook.
    pub fn signed(secret: &str, to: &Delivery, body: &Value) -> Self {
        let body = body.to_string();
        Self { signature: sign(secret, to.timestamp(), &body), body, ..Self::status(200) }
    }
}

type Rule = Box<dyn Fn(&Delivery) -> Reply + Send>;

/// A running receiver; dropping it closes its port.
pub struct Receiver {
    url: String,
    shared: Arc<Mutex<Shared>>,
    _server: JoinSet<()>,
}

struct Shared {
    deliveries: Vec<Delivery>,
    rule: Rule,
}

impl Receiver {
    /// Listens on a free port, and answers 200 to everything.
    pub async fn start() -> Result<Self> {
        let (listener, url) = listen(0).await?;
        let shared = Shared { deliveries: Vec::new(), rule: Box::new(|_| Reply::status(200)) };
        let shared = Arc::new(Mutex::new(shared));
        let app = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        Ok(Self { url, shared, _server: serve(listener, app) })
    }

    /// Its address, without a path.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Answers by this rule from now on.
    pub fn answer_by(&self, rule: impl Fn(&Delivery) -> Reply + Send + 'static) {
        lock(&self.shared).rule = Box::new(rule);
    }

    /// All that came in, in order.
    pub fn deliveries(&self) -> Vec<Delivery> {
        lock(&self.shared).deliveries.clone()
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn answer(shared: State<Arc<Mutex<Shared>>>, uri: Uri, headers: HeaderMap, body: String) -> Response {
    let delivery = Delivery { path: uri.path().to_owned(), headers, body, at: Instant::now() };
    let reply = {
        let mut shared = lock(&shared);
        shared.deliveries.push(delivery);
        shared.deliveries.last().map(&shared.rule).expect("it was pushed")
    };
    tokio::time::sleep(reply.after).await;
    let status = StatusCode::from_u16(reply.status).expect("a status");
    (status, [(SIGNATURE, reply.signature)], reply.body).into_response()
}
