//! Requests that an account signs (ERC-8128), sent byte for byte, since HTTP clients rewrite targets.

use std::time::Duration;

use alloy::hex;
use alloy::primitives::{Address, B256};
use alloy::signers::SignerSync as _;
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, Result};
use registry_core::gate::{Account, Content, Origin, Request, SigningTerms, Unsigned};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::anvil::wall_clock;
use crate::signers;
use crate::tls::Authority;

const TIMEOUT: Duration = Duration::from_secs(120);

#[derive(Debug, Clone)]
pub struct Draft {
    pub method: String,
    pub target: String,
    /// Origin of the service as its clients know it, such as `https://api.example`.
    pub origin: String,
    /// Headers beside those of the signature and the content.
    pub headers: Vec<(String, String)>,
    pub body: String,
    /// Chunked transfer of the content, without a length.
    pub chunked: bool,
}

impl Draft {
    pub fn get(origin: &str, target: &str) -> Self {
        let [method, target, origin] = ["GET", target, origin].map(str::to_owned);
        Self { method, target, origin, headers: Vec::new(), body: String::new(), chunked: false }
    }

    pub fn post(origin: &str, target: &str, body: &str) -> Self {
        let mut draft =
            Self { method: "POST".to_owned(), body: body.to_owned(), ..Self::get(origin, target) };
        draft.headers.push(("content-type".to_owned(), "application/json".to_owned()));
        draft
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Signs as an account of this chain, with a new nonce, for a minute from now on.
    pub fn sign(self, key: &PrivateKeySigner, chain: u64) -> SignedHttpRequest {
        self.sign_for(key, key.address(), chain)
    }

    /// Signs with a key for an account that may be another one, such as one with code.
    pub fn sign_for(mut self, key: &PrivateKeySigner, address: Address, chain: u64) -> SignedHttpRequest {
        let (origin, nonce) = (Origin::parse(&self.origin).expect("an origin"), hex::encode(B256::random()));
        let fields: Vec<(&str, &[u8])> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        // Like other clients, send no digest of empty content.
        let content = match self.body.as_str() {
            "" => Content::Withheld { is_empty: true },
            body => Content::Whole(body.as_bytes()),
        };
        let request =
            Request { method: &self.method, origin: &origin, target: &self.target, fields: &fields, content };
        let account = Account { chain, address };
        let terms = SigningTerms { account, created: wall_clock(), valid_seconds: 60, nonce: &nonce };
        let unsigned = Unsigned::new(&request, &terms).expect("a request that can be signed");
        let signature = key.sign_message_sync(unsigned.message()).expect("a key in memory signs");
        let headers = unsigned.headers(&signature.as_bytes());
        self.headers.extend(headers.into_iter().map(|(name, value)| (name.to_owned(), value)));
        SignedHttpRequest { draft: self }
    }

    pub fn unsigned(self) -> SignedHttpRequest {
        SignedHttpRequest { draft: self }
    }
}

#[derive(Debug, Clone)]
pub struct SignedHttpRequest {
    pub draft: Draft,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct RawAnswer {
    pub status: u16,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl SignedHttpRequest {
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.draft.headers.retain(|(header, _)| header != name);
        self.draft.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Turns this into Envoy's request to a gate about it: the target follows the policy `api`.
    pub fn asked_by_envoy(&self) -> Self {
        self.clone().asking(&self.draft.method, &format!("/gate/api{}", self.draft.target))
    }

    pub fn asking(mut self, method: &str, target: &str) -> Self {
        (self.draft.method, self.draft.target) = (method.to_owned(), target.to_owned());
        self
    }

    pub fn at(mut self, origin: &str) -> Self {
        origin.clone_into(&mut self.draft.origin);
        self
    }

    pub fn carrying(mut self, body: &str, chunked: bool) -> Self {
        (self.draft.body, self.draft.chunked) = (body.to_owned(), chunked);
        self
    }

    /// Sends the request to the server at `url`, on a connection of its own.
    pub async fn send(&self, url: &str) -> Result<RawAnswer> {
        tokio::time::timeout(TIMEOUT, self.exchange(url)).await.context("no answer in time")?
    }

    /// Returns the text that is sent. nginx goes by the last `connection`.
    fn text(&self) -> String {
        let Draft { method, target, origin, headers, body, chunked } = &self.draft;
        let (_, authority) = origin.split_once("://").expect("an origin has a scheme");
        let mut text = format!("{method} {target} HTTP/1.1\r\nhost: {authority}\r\n");
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += "connection: close\r\n";
        text += &match (body.as_str(), chunked) {
            ("", _) => "\r\n".to_owned(),
            (body, true) => {
                format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
            }
            (body, false) => format!("content-length: {}\r\n\r\n{body}", body.len()),
        };
        text
    }

    /// Sends the request over HTTP/2: with TLS to a local server with a certificate by this authority, or
    /// without TLS by prior knowledge. A `chunked` content is sent without a length.
    pub async fn send_over_http_2(&self, url: &str, authority: &Authority) -> Result<RawAnswer> {
        let Draft { method, target, origin, headers, body, chunked } = &self.draft;
        let (_, host) = origin.split_once("://").context("an origin has a scheme")?;
        let request = json!({
            "method": method, "target": target, "host": host, "headers": headers, "body": body,
            "announced": !chunked,
        });
        let authorities = authority.bundle().to_str().context("a path that is text")?;
        let printed = signers::node("http2-client.mjs", &[url, authorities, &request.to_string()]).await?;
        Ok(serde_json::from_value(printed)?)
    }

    async fn exchange(&self, url: &str) -> Result<RawAnswer> {
        let address = url.strip_prefix("http://").context("a plain address")?;
        let text = self.text();
        let stream = TcpStream::connect(address).await?;
        let (mut reading, mut writing) = stream.into_split();
        let mut answer = Vec::new();
        // A server may answer and close before it has read all of a long content.
        let (_, read) = tokio::join!(writing.write_all(text.as_bytes()), reading.read_to_end(&mut answer));
        if answer.is_empty() {
            read?;
        }
        RawAnswer::parse(&answer)
    }
}

impl RawAnswer {
    fn parse(answer: &[u8]) -> Result<Self> {
        let answer = String::from_utf8_lossy(answer);
        let (head, body) = answer.split_once("\r\n\r\n").with_context(|| format!("no answer: {answer:?}"))?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("no status")?;
        let lines = head.lines().filter_map(|line| line.split_once(':'));
        let headers =
            lines.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
        let mut parsed = Self { status, headers, body: body.to_owned() };
        if parsed.header("transfer-encoding") == ["chunked"]
            && let Some(body) = unchunked(body)
        {
            parsed.body = body;
        }
        Ok(parsed)
    }

    pub fn header(&self, name: &str) -> Vec<&str> {
        self.headers.iter().filter(|(header, _)| header == name).map(|(_, value)| value.as_str()).collect()
    }
}

/// Joins the content of chunks; `None` where the last chunk is missing.
fn unchunked(mut chunks: &str) -> Option<String> {
    let mut content = String::new();
    loop {
        let (size, rest) = chunks.split_once("\r\n")?;
        let size = usize::from_str_radix(size, 16).ok()?;
        if size == 0 {
            return Some(content);
        }
        content += rest.get(..size)?;
        chunks = rest.get(size + 2..)?;
    }
}
