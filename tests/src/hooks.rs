//! A receiver of webhooks: it remembers what it was sent, and answers as it is told to.
//!
//! Signatures are made and checked here as the relayer's README describes them, not by the relayer's code.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use alloy::hex;
use anyhow::Result;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use ring::hmac;
use serde_json::Value;
use tokio::task::JoinSet;

use crate::http;

/// The header with a webhook's timestamp and signature.
const SIGNATURE: &str = "x-relayer-signature";

/// The signature header of a body.
pub fn sign(secret: &str, timestamp: &str, body: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, format!("{timestamp}.{body}").as_bytes());
    format!("t={timestamp},v1={}", hex::encode(tag))
}

/// A webhook that came in.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// The path that it was posted to.
    pub path: String,
    /// Its headers, by their names in lower case.
    pub headers: HashMap<String, String>,
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

    /// The timestamp in its signature's header.
    pub fn timestamp(&self) -> &str {
        let header = self.headers.get(SIGNATURE).map_or("", String::as_str);
        header.trim_start_matches("t=").split(',').next().unwrap_or_default()
    }

    /// Whether it is signed with this secret.
    pub fn is_signed_with(&self, secret: &str) -> bool {
        self.headers.get(SIGNATURE) == Some(&sign(secret, self.timestamp(), &self.body))
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
    pub signature: Option<String>,
    /// How long it takes.
    pub after: Duration,
}

impl Reply {
    /// An empty answer with this status, at once.
    pub fn status(status: u16) -> Self {
        Self { status, body: String::new(), signature: None, after: Duration::ZERO }
    }

    /// An answer signed with this secret, to this webhook.
    pub fn signed(secret: &str, to: &Delivery, body: &Value) -> Self {
        let body = body.to_string();
        let signature = Some(sign(secret, to.timestamp(), &body));
        Self { status: 200, body, signature, after: Duration::ZERO }
    }

    /// The same after a while.
    pub fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }
}

type Rule = Box<dyn Fn(&Delivery) -> Reply + Send>;

struct Shared {
    deliveries: Mutex<Vec<Delivery>>,
    rule: Mutex<Rule>,
}

/// A running receiver; dropping it closes its port.
pub struct Receiver {
    url: String,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Receiver").field(&self.url).finish()
    }
}

impl Receiver {
    /// Listens on a free port, and answers 200 to everything.
    pub async fn start() -> Result<Self> {
        let rule: Mutex<Rule> = Mutex::new(Box::new(|_| Reply::status(200)));
        let shared = Arc::new(Shared { deliveries: Mutex::default(), rule });
        let serving = Arc::clone(&shared);
        let serve = http::serve(0, move |stream| {
            let shared = Arc::clone(&serving);
            let service = service_fn(move |request| answer(Arc::clone(&shared), request));
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service)
        });
        let (port, server) = serve.await?;
        Ok(Self { url: format!("http://127.0.0.1:{port}/hook"), shared, _server: server })
    }

    /// Where webhooks are posted to.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Answers by this rule from now on.
    pub fn answer_by(&self, rule: impl Fn(&Delivery) -> Reply + Send + 'static) {
        *self.shared.rule.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(rule);
    }

    /// Its address without a path.
    pub fn origin(&self) -> &str {
        self.url.trim_end_matches("/hook")
    }

    /// All that came in, in order.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.shared.deliveries.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn answer(shared: Arc<Shared>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let text = |value: &hyper::header::HeaderValue| value.to_str().unwrap_or_default().to_owned();
    let headers = request.headers().iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    let path = request.uri().path().to_owned();
    let body = String::from_utf8(request.into_body().collect().await?.to_bytes().to_vec())?;
    let delivery = Delivery { path, headers, body, at: Instant::now() };
    let reply = {
        let rule = shared.rule.lock().unwrap_or_else(PoisonError::into_inner);
        shared.deliveries.lock().unwrap_or_else(PoisonError::into_inner).push(delivery.clone());
        rule(&delivery)
    };
    tokio::time::sleep(reply.after).await;
    let mut response = Response::builder().status(reply.status);
    if let Some(signature) = reply.signature {
        response = response.header(SIGNATURE, signature);
    }
    Ok(response.body(Full::new(reply.body.into()))?)
}
