//! A client of the read API, at an address of its choice.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use futures_util::future::join_all;
use registry_core::registry::error_code::Code;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Body, Method};
use serde_json::Value;

use crate::http;
use crate::process::eventually;

/// Sends requests to one server.
///
/// No proxy sets `CF-Connecting-IP` locally: the Worker sees the client's own header, or 127.0.0.1.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) base: String,
    pub(crate) headers: HeaderMap,
    /// The server's log. Where it is known, each request gets an id of its own, and the message of a failed
    /// one says whether the server has logged it.
    pub(crate) log: Option<PathBuf>,
}

#[derive(Debug, Clone)]
pub struct HttpAnswer {
    pub status: u16,
    pub headers: HeaderMap,
    pub text: String,
}

impl Client {
    pub fn new(base: &str) -> Self {
        let (http, base) = (http::client(Duration::from_secs(60)), base.into());
        Self { http, base, headers: HeaderMap::new(), log: None }
    }

    pub fn base(&self) -> &str {
        &self.base
    }

    pub fn at(&self, address: impl Into<IpAddr>) -> Self {
        self.with("cf-connecting-ip", &address.into().to_string())
    }

    pub fn with(&self, name: &'static str, value: &str) -> Self {
        let mut changed = self.clone();
        let value = HeaderValue::from_str(value).expect("a header value");
        changed.headers.insert(HeaderName::from_static(name), value);
        changed
    }

    pub async fn get(&self, path: &str) -> HttpAnswer {
        self.send(Method::GET, path).await
    }

    pub async fn post(&self, path: &str, content_type: &str, body: impl Into<Body>) -> HttpAnswer {
        self.send_with_id(Method::POST, path, Some((content_type, body.into()))).await
    }

    pub async fn send(&self, method: Method, path: &str) -> HttpAnswer {
        self.send_with_id(method, path, None).await
    }

    /// Waits until `/readyz` answers 200 with a document that `is_like` accepts.
    pub async fn until_ready(
        &self,
        what: &str,
        within: Duration,
        is_like: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        eventually(what, within, async || {
            let ready = self.get("/readyz").await;
            (ready.status == 200 && is_like(&ready.json())).then_some(())
        })
        .await
    }

    /// Waits until verdicts come from the snapshot.
    pub async fn until_snapshot(&self, within: Duration) -> Result<()> {
        self.until_ready("the snapshot", within, |ready| ready["kyaSource"] == "snapshot").await
    }

    async fn send_with_id(&self, method: Method, path: &str, body: Option<(&str, Body)>) -> HttpAnswer {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let mut client = self.clone();
        if self.log.is_some() && !self.headers.contains_key("x-request-id") {
            let id = format!("e2e-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
            client = client.with("x-request-id", &id);
        }
        client.try_send(method, path, body).await.unwrap_or_else(|error| {
            let log = self.log.as_ref().and_then(|log| std::fs::read_to_string(log).ok());
            let id = client.headers.get("x-request-id").and_then(|id| id.to_str().ok()).unwrap_or_default();
            // The log's lines are JSON: one id may begin another.
            let known = match log.map(|log| log.contains(&format!("\"{id}\""))) {
                Some(true) => "; the Worker has logged the request",
                Some(false) => "; the Worker has not logged the request",
                None => "",
            };
            panic!("{path}: {error:?}{known}")
        })
    }

    /// Sends a request to a server that may fail meanwhile; a body comes with its media type.
    pub(crate) async fn try_send(
        &self,
        method: Method,
        path: &str,
        body: Option<(&str, Body)>,
    ) -> reqwest::Result<HttpAnswer> {
        let url = format!("{}{path}", self.base);
        let mut request = self.http.request(method, url).headers(self.headers.clone());
        if let Some((content_type, body)) = body {
            request = request.header(CONTENT_TYPE, content_type).body(body);
        }
        let response = request.send().await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        Ok(HttpAnswer { status, headers, text: response.text().await? })
    }
}

/// Sends all requests concurrently, and returns the answers in the requests' order.
pub async fn concurrently<P: Into<String>>(requests: impl Iterator<Item = (&Client, P)>) -> Vec<HttpAnswer> {
    join_all(requests.map(async |(client, path)| client.get(&path.into()).await)).await
}

impl HttpAnswer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()
    }

    /// Returns the message of an error; checks its status and that its body has the documented shape.
    pub fn error(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text);
        let body = self.json();
        let fields = body.as_object().unwrap_or_else(|| panic!("{body}"));
        assert_eq!(fields.len(), 2, "an error body has two fields: {body}");
        let code = Code::all().find(|code| body["code"] == code.name());
        assert_eq!(code.map(Code::status), Some(status), "a documented code of this status: {body}");
        fields["error"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned()
    }

    /// Checks that this is an error with this status and code, and returns its message.
    pub fn failed(&self, status: u16, code: &str) -> String {
        let message = self.error(status);
        assert_eq!(self.json()["code"], code, "{}", self.text);
        message
    }

    /// Returns a header, `""` where it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    pub fn number(&self, name: &str) -> u64 {
        self.header(name).parse().unwrap_or_else(|_| panic!("{name}: {:?}", self.headers))
    }
}

/// Checks that a document has these fields; it may have others.
pub fn assert_has(document: &Value, fields: Value, context: &str) {
    for (name, expected) in fields.as_object().expect("an object of fields") {
        assert_eq!(&document[name], expected, "{context}: {name} of {document}");
    }
}

/// Removes these fields from a document at any depth, for comparisons that the clock must not change.
pub fn without(mut document: Value, fields: &[&str]) -> Value {
    match &mut document {
        Value::Object(all) => {
            all.retain(|name, _| !fields.contains(&name.as_str()));
            all.values_mut().for_each(|value| *value = without(value.take(), fields));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| *item = without(item.take(), fields)),
        _ => {}
    }
    document
}

/// Checks that no answer, with its headers, and no line of a log contains one of the secrets.
pub fn assert_no_secret(answers: &[HttpAnswer], lines: &[String], secrets: &[&str]) {
    let answers = answers.iter().map(|answer| format!("{:?}\n{}", answer.headers, answer.text));
    for text in answers.chain(lines.iter().cloned()) {
        assert!(!secrets.iter().any(|secret| text.contains(secret)), "{text}");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_failed_request_is_looked_up_in_the_log_by_the_id_that_it_was_sent_with() {
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        fs::write(&log, r#"{"requestId":"logged"}"#).unwrap();
        // Nothing listens there.
        let silent = Client { log: Some(log), ..Client::new("http://127.0.0.1:1") };
        for (client, words) in [
            (silent.with("x-request-id", "logged"), "; the Worker has logged the request"),
            (silent.with("x-request-id", "log"), "; the Worker has not logged the request"),
            (silent, "; the Worker has not logged the request"),
        ] {
            let failed = tokio::spawn(async move { client.get("/livez").await }).await.unwrap_err();
            let message = failed.into_panic().downcast::<String>().unwrap();
            assert!(message.ends_with(words), "{message}");
        }
    }
}
