//! HTTP: the request's target, and responses with their headers. No header is decided anywhere else.
//!
//! Headers are collected as the text of a JSON object and passed to JavaScript in one piece: setting them one
//! by one took most of a warm answer's time.

use core::fmt::{Display, Write};

use registry_core::{
    api::document::Document, api::error::Error, api::route::Route, eth::timestamp::Timestamp,
    host::rate_limit::RateLimitVerdict, host::shared_reads::due_for_renewal,
    liability::HEADER as ACCEPTANCE_HEADER,
};
use worker::{
    Result,
    js_sys::{JSON, Uint8Array},
    wasm_bindgen::JsCast,
    web_sys::{self, ResponseInit},
};

/// The headers of every answer, as members of a JSON object: any web page may read it and its headers, and no
/// browser takes it for a page.
const COMMON: &str = concat!(
    r#""Access-Control-Allow-Origin":"*","#,
    r#""Access-Control-Expose-Headers":"Age, ETag, KYA-Registry, Link, RateLimit, RateLimit-Policy, Retry-After, X-Cache, "#,
    "X-RateLimit-Limit, X-RateLimit-Remaining, X-RateLimit-Reset, X-As-Of-Block, X-Request-Id, ",
    r#"Server-Timing","#,
    r#""Content-Security-Policy":"default-src 'none'; frame-ancestors 'none'","#,
    r#""Cross-Origin-Resource-Policy":"cross-origin","#,
    r#""Referrer-Policy":"no-referrer","#,
    r#""Strict-Transport-Security":"max-age=31536000","#,
    r#""X-Content-Type-Options":"nosniff""#,
);

/// The media type of every answer of the API.
pub(crate) const JSON_TYPE: &str = "application/json";

/// A request's URL, as text: a URL library would add 160 KB of domain-name tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    url: String,
    path_start: usize,
}

impl Target {
    /// # Errors
    ///
    /// [`Error::NotFound`] where there is no path.
    pub(crate) fn parse(mut url: String) -> core::result::Result<Self, Error> {
        if let Some(fragment) = url.find('#') {
            url.truncate(fragment);
        }
        let host_start = url.find("://").map(|index| index + 3).ok_or(Error::NotFound)?;
        let host = url.get(host_start..).ok_or(Error::NotFound)?;
        let path_start = host.find('/').ok_or(Error::NotFound)? + host_start;
        Ok(Self { url, path_start })
    }

    /// Returns scheme and host.
    pub(crate) fn origin(&self) -> &str {
        self.url.get(..self.path_start).unwrap_or_default()
    }

    /// Returns path and query, without a fragment.
    pub(crate) fn path_and_query(&self) -> &str {
        self.url.get(self.path_start..).unwrap_or_default()
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &str {
        self.path_and_query().split('?').next().unwrap_or_default()
    }
}

/// Time for which a body may be cached, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Cached for this time; 0 is `no-store`.
    Seconds(u32),
    /// Cached for this time without revalidation: the body never changes (RFC 8246).
    Immutable(u32),
}

/// The body of a successful answer, and its caching.
#[derive(Clone, Debug)]
pub(crate) struct Content {
    /// The headers that are the same for every client at any time.
    head: HeaderJson,
    pub(crate) body: Vec<u8>,
    /// The entity tag; empty where there is none.
    pub(crate) etag: String,
    /// The `Link` header, for one page of a list.
    pub(crate) links: Option<String>,
    /// Time at which it was made.
    pub(crate) made_at: Timestamp,
    /// The TTL in seconds from then on; 0 is `no-store`.
    pub(crate) max_age: u32,
    /// Source of a verdict: `snapshot` or `chain`.
    pub(crate) source: &'static str,
    /// True for downloads of clients that hold the registry themselves: compressed where the client accepts
    /// it, and not kept in memory.
    pub(crate) is_download: bool,
}

impl Content {
    /// Creates content and its headers; the parameters are the fields of the same names.
    pub(crate) fn new(
        media_type: &str,
        body: Vec<u8>,
        etag: String,
        links: Option<String>,
        made_at: Timestamp,
        lifetime: Lifetime,
    ) -> Self {
        let mut head = HeaderJson::common();
        head.set("Content-Type", media_type);
        let (max_age, caching) = match lifetime {
            Lifetime::Seconds(0) => (0, "no-store".to_owned()),
            Lifetime::Seconds(seconds) => (seconds, format!("public, max-age={seconds}")),
            Lifetime::Immutable(seconds) => (seconds, format!("public, max-age={seconds}, immutable")),
        };
        head.set("Cache-Control", caching);
        // A tag is of no use for a body that must not be kept.
        if !etag.is_empty() && max_age > 0 {
            head.set("ETag", &etag);
        }
        if let Some(links) = &links {
            head.set("Link", links);
        }
        Self { head, body, etag, links, made_at, max_age, source: "", is_download: false }
    }

    /// Creates the content of a document that was read at `made_at`. Its TTL is `time_to_live` seconds, or
    /// less where something in it expires sooner.
    pub(crate) fn of(document: Document, time_to_live: u32, made_at: Timestamp) -> Self {
        let max_age = document.max_age(time_to_live, made_at);
        Self::new(
            JSON_TYPE,
            document.body.into_bytes(),
            document.etag,
            document.links,
            made_at,
            Lifetime::Seconds(max_age),
        )
    }

    /// Adds the header that names the block.
    pub(crate) fn with_block(mut self, number: u64) -> Self {
        self.head.set("X-As-Of-Block", number);
        self
    }

    /// Adds the source of a verdict, and its header.
    pub(crate) fn with_source(mut self, source: &'static str) -> Self {
        self.head.set("Server-Timing", format_args!("source;desc=\"{source}\""));
        Self { source, ..self }
    }

    /// Marks it as bytes for clients that hold the registry themselves.
    pub(crate) fn into_download(mut self) -> Self {
        self.head.set("Vary", "Accept-Encoding");
        Self { is_download: true, ..self }
    }

    /// Adds the headers of a verdict on a wallet, which has a signed form and depends on an acceptance.
    pub(crate) fn with_forms_of(self, route: &Route) -> Self {
        if matches!(route, Route::Kya { .. }) { self.varying_by_request() } else { self }
    }

    /// Adds the header that the answer depends on `Accept`.
    pub(crate) fn varying_by_accept(mut self) -> Self {
        self.head.set("Vary", "Accept");
        self
    }

    /// Adds the header that the answer depends on `Accept` and on an acceptance.
    pub(crate) fn varying_by_request(mut self) -> Self {
        self.head.set("Vary", format_args!("Accept, {ACCEPTANCE_HEADER}"));
        self
    }

    /// Creates content that must not be kept.
    pub(crate) fn no_store(media_type: &str, body: &str, now: Timestamp) -> Self {
        Self::new(media_type, body.into(), String::new(), None, now, Lifetime::Seconds(0))
    }

    /// Returns the seconds since it was made, rounded up: a cache downstream must not keep it too long.
    fn age(&self, now: Timestamp) -> u64 {
        now.as_millis().saturating_sub(self.made_at.as_millis()).div_ceil(1_000)
    }

    /// Returns the TTL in milliseconds.
    pub(crate) const fn max_age_millis(&self) -> u64 {
        self.max_age as u64 * 1_000
    }

    /// Returns whether it is in the last tenth of its TTL.
    pub(crate) const fn is_due_for_renewal(&self, now: Timestamp) -> bool {
        due_for_renewal(self.made_at.as_millis(), self.max_age_millis()) <= now.as_millis()
    }

    /// Returns its size in memory, in bytes.
    pub(crate) fn size(&self) -> usize {
        let links = self.links.as_ref().map_or(0, String::capacity);
        size_of::<Self>() + self.head.0.capacity() + self.body.capacity() + self.etag.capacity() + links
    }
}

/// The part of a response that depends on the request.
#[derive(Debug)]
pub(crate) struct Delivery<'a> {
    pub(crate) request_id: &'a str,
    /// Registry of verdicts or of changes of them (CAIP-10); `None` for other answers.
    pub(crate) registry: Option<&'a str>,
    pub(crate) verdict: Option<RateLimitVerdict>,
    pub(crate) now: Timestamp,
    /// True if the body is a download, and the client accepts it compressed.
    pub(crate) is_compressed: bool,
}

/// Headers, as the members of a JSON object.
#[derive(Clone, Debug)]
struct HeaderJson(String);

impl HeaderJson {
    fn common() -> Self {
        let mut head = String::with_capacity(1_200);
        head.push_str(COMMON);
        Self(head)
    }

    /// Adds a header. Names and values are visible ASCII, of which JSON escapes quotes and backslashes.
    fn set(&mut self, name: &str, value: impl Display) {
        // Writing to a String cannot fail.
        let _ = write!(self.0, "{}\"{name}\":\"", if self.0.is_empty() { "" } else { "," });
        let _ = write!(JsonEscaper(&mut self.0), "{value}");
        self.0.push('"');
    }

    /// Sets the headers of this delivery.
    fn deliver(&mut self, delivery: &Delivery<'_>) {
        self.set("X-Request-Id", delivery.request_id);
        if let Some(registry) = delivery.registry {
            self.set("KYA-Registry", registry);
        }
        let Some(verdict) = delivery.verdict else { return };
        let RateLimitVerdict { limit, window_seconds, remaining, resets_at, retry_after, .. } = verdict;
        self.set("X-RateLimit-Limit", limit);
        self.set("X-RateLimit-Remaining", remaining);
        self.set("X-RateLimit-Reset", resets_at);
        // draft-ietf-httpapi-ratelimit-headers-10: the same, as structured fields.
        self.set("RateLimit-Policy", format_args!("\"default\";q={limit};w={window_seconds}"));
        self.set("RateLimit", format_args!("\"default\";r={remaining};t={retry_after}"));
    }

    fn init(self, status: u16) -> Result<ResponseInit> {
        let init = format!("{{\"status\":{status},\"headers\":{{{}}}}}", self.0);
        Ok(JSON::parse(&init)?.unchecked_into())
    }

    fn response(self, status: u16, body: Option<&[u8]>) -> Result<web_sys::Response> {
        let init = self.init(status)?;
        let body = body.map(Uint8Array::from);
        Ok(web_sys::Response::new_with_opt_buffer_source_and_init(body.as_deref(), &init)?)
    }
}

/// Writer into a JSON string.
struct JsonEscaper<'a>(&'a mut String);

impl Write for JsonEscaper<'_> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        for character in text.chars() {
            match character {
                '"' | '\\' => self.0.extend(['\\', character]),
                // Headers have no control characters, and JSON allows none.
                control if control.is_control() => {}
                plain => self.0.push(plain),
            }
        }
        Ok(())
    }
}

/// The methods of most paths.
const READ_METHODS: &str = "GET, HEAD, OPTIONS";
/// The methods of a path that takes a body.
const POST_METHODS: &str = "POST, OPTIONS";

/// Answers a CORS preflight (Fetch standard).
pub(crate) fn preflight(request_id: &str, takes_post: bool) -> Result<web_sys::Response> {
    let methods = if takes_post { POST_METHODS } else { READ_METHODS };
    let mut head = HeaderJson(String::new());
    head.set("Access-Control-Allow-Origin", "*");
    head.set("Access-Control-Allow-Methods", methods);
    head.set("Access-Control-Allow-Headers", "*");
    head.set("Access-Control-Max-Age", "86400");
    head.set("Allow", methods);
    head.set("X-Request-Id", request_id);
    head.response(204, None)
}

/// Returns the content, or 304 where the client of a GET or HEAD has it already: `known` is its
/// `If-None-Match` (RFC 9110 section 13.1.2). `is_hit` says that it came without an RPC request.
pub(crate) fn success(
    content: &Content,
    is_hit: bool,
    known: Option<&str>,
    delivery: &Delivery<'_>,
) -> Result<(u16, web_sys::Response)> {
    let mut head = content.head.clone();
    head.set("X-Cache", if is_hit { "HIT" } else { "MISS" });
    if content.max_age > 0 {
        head.set("Age", content.age(delivery.now));
    }
    head.deliver(delivery);
    let known = known.filter(|_| content.max_age > 0 && !content.etag.is_empty());
    let is_known = known.is_some_and(|known| matches(known, &content.etag));
    let (status, body) = if is_known { (304, None) } else { (200, Some(content.body.as_slice())) };
    // The runtime compresses bodies with this header. Types of text are compressed without it.
    if delivery.is_compressed && body.is_some() {
        head.set("Content-Encoding", "gzip");
    }
    Ok((status, head.response(status, body)?))
}

/// Returns a stream with the headers of this content; without a stream, the headers alone.
pub(crate) fn stream(
    content: &Content,
    stream: Option<&web_sys::ReadableStream>,
    delivery: &Delivery<'_>,
) -> Result<web_sys::Response> {
    let mut head = content.head.clone();
    head.deliver(delivery);
    Ok(web_sys::Response::new_with_opt_readable_stream_and_init(stream, &head.init(200)?)?)
}

/// Returns the response to a client that has disconnected. Nothing is sent.
pub(crate) fn disconnected() -> Result<web_sys::Response> {
    HeaderJson(String::new()).response(499, None)
}

/// Returns a message with this status, which is kept nowhere; without a body where it is empty.
pub(crate) fn message(status: u16, body: &str, delivery: &Delivery<'_>) -> Result<web_sys::Response> {
    let mut head = HeaderJson::common();
    if !body.is_empty() {
        head.set("Content-Type", JSON_TYPE);
    }
    head.set("Cache-Control", "no-store");
    head.deliver(delivery);
    head.response(status, Some(body.as_bytes()).filter(|body| !body.is_empty()))
}

/// Returns an error with this status and body.
pub(crate) fn failure(
    error: &Error,
    status: u16,
    body: &str,
    delivery: &Delivery<'_>,
) -> Result<web_sys::Response> {
    let mut head = HeaderJson::common();
    head.set("Content-Type", JSON_TYPE);
    head.set("Cache-Control", "no-store");
    match (error, delivery.verdict) {
        (Error::MethodNotAllowed, _) => head.set("Allow", READ_METHODS),
        (Error::PostOnly(_), _) => head.set("Allow", POST_METHODS),
        (Error::RateLimited, Some(verdict)) => head.set("Retry-After", verdict.retry_after),
        _ => {
            if let Some(seconds) = error.retry_after() {
                head.set("Retry-After", seconds);
            }
        }
    }
    head.deliver(delivery);
    head.response(status, Some(body.as_bytes()))
}

/// Returns whether `If-None-Match`, a list or `*`, weakly matches the entity tag (RFC 9110 section 13.1.2).
fn matches(known: &str, etag: &str) -> bool {
    let opaque = |tag| str::strip_prefix(tag, "W/").unwrap_or(tag);
    known.split(',').map(str::trim).any(|tag| tag == "*" || opaque(tag) == opaque(etag))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(max_age: u32) -> Content {
        let links = Some("</api/v1/agents?page=2>; rel=\"next\"".to_owned());
        Content::new(
            JSON_TYPE,
            b"{}".to_vec(),
            "W/\"1\"".to_owned(),
            links,
            Timestamp::from_millis(10_000),
            Lifetime::Seconds(max_age),
        )
    }

    fn parsed(head: &HeaderJson) -> serde_json::Value {
        serde_json::from_str(&format!("{{{}}}", head.0)).unwrap()
    }

    #[test]
    fn a_target_is_cut_into_origin_path_and_query() {
        let target = Target::parse("https://api.example:8443/api/v1/agents?page=2#top".to_owned()).unwrap();
        assert_eq!(target.origin(), "https://api.example:8443");
        assert_eq!((target.path(), target.path_and_query()), ("/api/v1/agents", "/api/v1/agents?page=2"));
        for bad in ["", "/path", "https://host", "#"] {
            assert_eq!(Target::parse(bad.to_owned()), Err(Error::NotFound), "{bad}");
        }
    }

    #[test]
    fn an_answer_takes_at_least_the_memory_of_all_its_parts() {
        let content = content(60);
        let links = content.links.as_ref().unwrap().len();
        let parts = [content.head.0.len(), content.body.len(), content.etag.len(), links];
        assert!(content.size() >= size_of::<Content>() + parts.iter().sum::<usize>(), "{}", content.size());
    }

    #[test]
    fn headers_are_valid_json_whatever_their_values() {
        let content = content(60);
        let head = parsed(&content.head);
        assert_eq!(head["Link"], "</api/v1/agents?page=2>; rel=\"next\"");
        assert_eq!(
            (&head["ETag"], &head["Cache-Control"]),
            (&"W/\"1\"".into(), &"public, max-age=60".into())
        );
        let mut odd = HeaderJson(String::new());
        odd.set("Odd", "a\"b\\c\r\nd\0");
        assert_eq!(parsed(&odd)["Odd"], "a\"b\\cd");
    }

    #[test]
    fn max_age_counts_from_the_making_and_age_never_says_too_little() {
        let content = content(60);
        for (now, age) in [(10_000, 0), (10_001, 1), (11_000, 1), (11_001, 2), (69_999, 60), (5, 0)] {
            assert_eq!(content.age(Timestamp::from_millis(now)), age, "{now}");
        }
    }

    #[test]
    fn what_never_changes_says_so_and_what_is_not_kept_has_no_tag() {
        let content = |lifetime| {
            Content::new("a/b", Vec::new(), "W/\"1\"".into(), None, Timestamp::default(), lifetime)
        };
        for (lifetime, expected, max_age) in [
            (Lifetime::Seconds(0), "no-store", 0),
            (Lifetime::Seconds(20), "public, max-age=20", 20),
            (Lifetime::Immutable(86_400), "public, max-age=86400, immutable", 86_400),
        ] {
            let content = content(lifetime);
            assert_eq!(
                (parsed(&content.head)["Cache-Control"].as_str(), content.max_age),
                (Some(expected), max_age)
            );
            assert_eq!(parsed(&content.head).get("ETag").is_some(), max_age > 0);
        }
    }

    #[test]
    fn tags_are_compared_weakly() {
        for known in ["W/\"1\"", "\"1\"", "\"0\", W/\"1\"", " \"1\" ", "*"] {
            assert!(matches(known, "W/\"1\""), "{known}");
        }
        for other in ["", "\"2\"", "1", "W/\"2\", \"11\""] {
            assert!(!matches(other, "W/\"1\""), "{other}");
        }
    }
}
