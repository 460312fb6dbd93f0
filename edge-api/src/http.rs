//! HTTP: the request's target, and responses with their headers. No header is decided anywhere else.

use registry_core::{document::Document, error::Error, timestamp::Timestamp, window::Verdict};
use worker::{Headers, Request, Response, ResponseBody, Result};

/// The headers of ours that a web page of another origin may read.
const EXPOSED: &str = "Age, ETag, Link, RateLimit, RateLimit-Policy, Retry-After, X-Cache, X-RateLimit-Limit, \
    X-RateLimit-Remaining, X-RateLimit-Reset, X-Request-Id";

/// The media type of every answer of the API.
pub(crate) const JSON: &str = "application/json";

/// Where a request goes, as text: a URL library would bring 160 KB of domain-name tables.
pub(crate) struct Target {
    /// Scheme and host.
    pub(crate) origin: String,
    /// What follows, without a fragment.
    pub(crate) path_and_query: String,
}

impl Target {
    pub(crate) fn of(request: &Request) -> core::result::Result<Self, Error> {
        let url = request.inner().url();
        let url = url.split('#').next().unwrap_or_default();
        let host_start = url.find("://").map(|index| index + 3).ok_or(Error::NotFound)?;
        let path_start =
            url.get(host_start..).and_then(|rest| rest.find('/')).ok_or(Error::NotFound)? + host_start;
        let (origin, path_and_query) = url.split_at_checked(path_start).ok_or(Error::NotFound)?;
        Ok(Self { origin: origin.to_owned(), path_and_query: path_and_query.to_owned() })
    }
}

/// A good answer's body and what clients may do with it.
pub(crate) struct Content {
    pub(crate) media_type: &'static str,
    pub(crate) body: ResponseBody,
    /// The entity tag; empty where there is nothing to compare.
    pub(crate) etag: String,
    /// The `Link` header, for one page of a list.
    pub(crate) links: Option<String>,
    /// Seconds it may be kept from now on; 0 is not at all.
    pub(crate) keep_for: u64,
    /// Seconds since it was made; `None` where it was made for this request.
    pub(crate) age: Option<u64>,
}

impl Content {
    /// An answer just read from the chain, which may be kept for `time_to_live` seconds if nothing in it ends sooner.
    pub(crate) fn fresh(document: Document, time_to_live: u32, now: Timestamp) -> Self {
        Self {
            media_type: JSON,
            keep_for: document.keep_for(time_to_live, now).into(),
            body: ResponseBody::Body(document.body.into_bytes()),
            etag: document.etag,
            links: document.links,
            age: None,
        }
    }

    /// A body that is true now and says nothing about later.
    pub(crate) fn unkept(body: &str) -> Self {
        Self {
            media_type: JSON,
            body: ResponseBody::Body(body.into()),
            etag: String::new(),
            links: None,
            keep_for: 0,
            age: None,
        }
    }

    /// `X-Cache`: whether it comes from the cache.
    pub(crate) const fn cache(&self) -> &'static str {
        if self.age.is_some() { "HIT" } else { "MISS" }
    }

    /// The headers that describe the content, whoever gets it.
    pub(crate) fn headers(&self) -> Result<Headers> {
        let headers = Headers::new();
        headers.set("Content-Type", self.media_type)?;
        let control = match self.keep_for {
            0 => "no-store".to_owned(),
            seconds => format!("public, max-age={seconds}"),
        };
        headers.set("Cache-Control", &control)?;
        if !self.etag.is_empty() {
            headers.set("ETag", &self.etag)?;
        }
        if let Some(links) = &self.links {
            headers.set("Link", links)?;
        }
        Ok(headers)
    }
}

/// The answer to a browser's question whether it may ask (Fetch standard, CORS preflight).
pub(crate) fn preflight() -> Result<Response> {
    let headers = Headers::new();
    headers.set("Access-Control-Allow-Origin", "*")?;
    headers.set("Access-Control-Allow-Methods", "GET, HEAD, OPTIONS")?;
    headers.set("Access-Control-Allow-Headers", "*")?;
    headers.set("Access-Control-Max-Age", "86400")?;
    headers.set("Allow", "GET, HEAD, OPTIONS")?;
    Ok(Response::empty()?.with_status(204).with_headers(headers))
}

/// 200 with the content, or 304 where the client has it already.
pub(crate) fn success(request: &Request, content: Content, verdict: Option<Verdict>) -> Result<Response> {
    let headers = content.headers()?;
    headers.set("X-Cache", content.cache())?;
    if content.keep_for > 0 {
        headers.set("Age", &content.age.unwrap_or_default().to_string())?;
    }
    let known = request.headers().get("If-None-Match")?.unwrap_or_default();
    if !content.etag.is_empty() && matches(&known, &content.etag) {
        return finish(Response::empty()?.with_status(304), headers, verdict);
    }
    finish(Response::from_body(content.body)?, headers, verdict)
}

/// An error's body with this status.
pub(crate) fn failure(error: &Error, status: u16, verdict: Option<Verdict>) -> Result<Response> {
    let headers = Headers::new();
    headers.set("Content-Type", JSON)?;
    headers.set("Cache-Control", "no-store")?;
    if let Some(seconds) = error.retry_after() {
        headers.set("Retry-After", &seconds.to_string())?;
    }
    match (error, verdict) {
        (Error::MethodNotAllowed, _) => headers.set("Allow", "GET, HEAD, OPTIONS")?,
        (Error::RateLimited, Some(verdict)) => {
            headers.set("Retry-After", &verdict.retry_after.to_string())?
        }
        _ => {}
    }
    let body = ResponseBody::Body(error.body().into_bytes());
    finish(Response::from_body(body)?.with_status(status), headers, verdict)
}

/// Adds what every answer carries: leave for any web page to read it, no leave to be taken for a page itself, and the
/// client's standing.
fn finish(response: Response, headers: Headers, verdict: Option<Verdict>) -> Result<Response> {
    headers.set("Access-Control-Allow-Origin", "*")?;
    headers.set("Access-Control-Expose-Headers", EXPOSED)?;
    headers.set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")?;
    headers.set("Cross-Origin-Resource-Policy", "cross-origin")?;
    headers.set("Referrer-Policy", "no-referrer")?;
    headers.set("Strict-Transport-Security", "max-age=31536000")?;
    headers.set("X-Content-Type-Options", "nosniff")?;
    if let Some(verdict) = verdict {
        headers.set("X-RateLimit-Limit", &verdict.limit.to_string())?;
        headers.set("X-RateLimit-Remaining", &verdict.remaining.to_string())?;
        headers.set("X-RateLimit-Reset", &verdict.resets_at.to_string())?;
        // draft-ietf-httpapi-ratelimit-headers-10: the same, as structured fields.
        let Verdict { limit, window_seconds, remaining, retry_after, .. } = verdict;
        headers.set("RateLimit-Policy", &format!("\"default\";q={limit};w={window_seconds}"))?;
        headers.set("RateLimit", &format!("\"default\";r={remaining};t={retry_after}"))?;
    }
    Ok(response.with_headers(headers))
}

/// Whether `If-None-Match` names the entity tag (RFC 9110 section 13.1.2: weak comparison, a list, or `*`).
fn matches(known: &str, etag: &str) -> bool {
    known.split(',').map(str::trim).any(|tag| tag == "*" || tag.strip_prefix("W/").unwrap_or(tag) == etag)
}
