//! A client of the read API, at an address of its choice.

use std::net::IpAddr;
use std::time::Duration;

use registry_core::registry::error_code::Code;
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use crate::http;

/// Sends requests to one Worker.
///
/// Locally nothing stands before the Worker that would set `CF-Connecting-IP`, so what a client sends there is
/// what the Worker sees. Without it the runtime fills in 127.0.0.1.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
    headers: HeaderMap,
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body as it came.
    pub text: String,
}

impl Client {
    /// A client of the Worker at `base`, for example `http://127.0.0.1:3000`.
    pub fn new(base: &str) -> Self {
        Self { http: http::client(Duration::from_secs(60)), base: base.into(), headers: HeaderMap::new() }
    }

    /// The same client at another address.
    pub fn at(&self, address: impl Into<IpAddr>) -> Self {
        self.with("cf-connecting-ip", &address.into().to_string())
    }

    /// The same client, sending one more header.
    ///
    /// # Panics
    /// When that is no header.
    pub fn with(&self, name: &'static str, value: &str) -> Self {
        let mut changed = self.clone();
        let value = HeaderValue::from_str(value).expect("a header value");
        changed.headers.insert(HeaderName::from_static(name), value);
        changed
    }

    /// `GET path`.
    ///
    /// # Panics
    /// When no answer comes at all, which no test expects of a running Worker.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path).await
    }

    /// `POST path` with a body said to be of that type.
    ///
    /// # Panics
    /// When no answer comes at all.
    pub async fn post(&self, path: &str, content_type: &str, body: impl Into<reqwest::Body>) -> Answer {
        let request = self.http.post(format!("{}{path}", self.base)).headers(self.headers.clone());
        self.exchange(request.header(CONTENT_TYPE, content_type).body(body), path).await
    }

    /// Any method without a body.
    ///
    /// # Panics
    /// When no answer comes at all.
    pub async fn send(&self, method: Method, path: &str) -> Answer {
        let url = format!("{}{path}", self.base);
        let request = self.http.request(method, &url).headers(self.headers.clone());
        self.exchange(request, &url).await
    }

    async fn exchange(&self, request: reqwest::RequestBuilder, url: &str) -> Answer {
        let response = request.send().await.unwrap_or_else(|error| panic!("{url}: {error:?}"));
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = response.text().await.unwrap_or_else(|error| panic!("{url}: {error:?}"));
        Answer { status, headers, text }
    }
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Panics
    /// When it is none.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    /// The body of a 200.
    ///
    /// # Panics
    /// When the status is another.
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.text);
        self.json()
    }

    /// The message of an error with this status; its body has to be the documented one.
    ///
    /// # Panics
    /// When the status is another, or the body has another shape.
    pub fn error(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text);
        let body = self.json();
        let fields = body.as_object().unwrap_or_else(|| panic!("{body}"));
        assert_eq!(fields.len(), 2, "an error body has two fields: {body}");
        let code = Code::all().find(|code| body["code"] == code.name());
        assert_eq!(code.map(Code::status), Some(status), "a documented code of this status: {body}");
        fields["error"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned()
    }

    /// A header, `""` where it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// A header that is a whole number.
    ///
    /// # Panics
    /// When it is missing or none.
    pub fn number(&self, name: &str) -> u64 {
        self.header(name).parse().unwrap_or_else(|_| panic!("{name}: {:?}", self.headers))
    }
}
