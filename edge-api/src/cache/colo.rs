//! The Cache API: one entry per question, registry and upstream, for all instances of a data centre.
//!
//! The key is a URL on the Worker's own host, made of the route's canonical form, so that all spellings of a
//! question share an entry, and the request's headers are no part of it. A failure of the cache is never an
//! error, nor is one that does not answer in time: the answer comes from the chain.

use edge_shared::{binding, settings::WorkerSettings, time::within};
use registry_core::{api::document::FORMAT, api::route::Route, eth::timestamp::Timestamp};
use worker::{Cache, Headers, Response, ResponseBody, Result, web_sys};

use super::context::RequestContext;
use crate::http::{Content, JSON_TYPE, Lifetime};

/// Timeout of a lookup in milliseconds. The cache is in the same data centre, the chain is not.
const LOOKUP_MILLIS: u64 = 500;
/// Header with an entry's time, in unix milliseconds. Only inside the cache; clients get `Age`.
const MADE_AT: &str = "X-Made-At";
/// Header with an entry's TTL in seconds.
const MAX_AGE: &str = "X-Max-Age";

/// Returns the key of a route's answer. The documents' format, chain, endpoints and registry are part of it:
/// no answer is served after a change of the code or of these settings.
pub(super) fn key(context: &RequestContext, route: &Route) -> String {
    let RequestContext { origin, settings, .. } = context;
    let (upstream, WorkerSettings { multicall3, registry, .. }) = (&settings.upstream, &*settings.shared);
    format!("{origin}/{FORMAT}/{upstream}/{multicall3}/{registry}{}", route.canonical())
}

/// Returns an entry, and its body.
async fn lookup(key: &str) -> Option<(Response, Vec<u8>)> {
    let reading = async {
        let entry = Cache::default().get(key, false).await.ok()??;
        let body = body(&entry).await?;
        Some((entry, body))
    };
    within(LOOKUP_MILLIS, reading).await?
}

/// Returns the entry, where its TTL is not over and it is younger than `time_to_live` seconds.
pub(super) async fn find(key: &str, time_to_live: u32, now: Timestamp) -> Option<Content> {
    let (entry, body) = lookup(key).await?;
    let header = |name| entry.headers().get(name).ok()?;
    let made_at = Timestamp::from_millis(header(MADE_AT)?.parse().ok()?);
    // The setting may have been longer when the entry was made.
    let max_age = header(MAX_AGE)?.parse::<u32>().ok()?.min(time_to_live);
    let end = made_at.as_millis().saturating_add(u64::from(max_age) * 1_000);
    if end <= now.as_millis() {
        return None;
    }
    let (etag, links) = (header("ETag")?, header("Link"));
    Some(Content::new(JSON_TYPE, body, etag, links, made_at, Lifetime::Seconds(max_age)))
}

/// Stores an answer.
pub(super) async fn store(key: String, content: &Content) {
    if let Ok(entry) = entry(content) {
        // If it fails, the next instance asks the chain.
        let _ = Cache::default().put(key, entry).await;
    }
}

/// Returns the key of a part of the registry's snapshot.
pub(super) fn snapshot_key(context: &RequestContext, name: &str) -> String {
    let RequestContext { origin, settings, .. } = context;
    format!("{origin}/{FORMAT}/{}/{}/snapshot/{name}", settings.upstream, settings.shared.registry)
}

/// Returns the bytes under a key, and their time in unix milliseconds.
pub(super) async fn find_bytes(key: &str) -> Option<(Vec<u8>, u64)> {
    let (entry, body) = lookup(key).await?;
    let made_at = entry.headers().get(MADE_AT).ok()??.parse().ok()?;
    Some((body, made_at))
}

/// Reads the body of an entry. The library's own way takes a step of JavaScript for every 4 KiB.
async fn body(entry: &Response) -> Option<Vec<u8>> {
    let ResponseBody::Stream(stream) = entry.body() else { return None };
    let response = web_sys::Response::new_with_opt_readable_stream(Some(stream)).ok()?;
    binding::bytes(&response).await.ok()
}

/// Stores bytes for so many seconds.
pub(super) async fn store_bytes(key: String, bytes: Vec<u8>, made_at: u64, seconds: u32) {
    let entry = || -> Result<Response> {
        let headers = Headers::new();
        headers.set("Cache-Control", &format!("public, max-age={seconds}"))?;
        headers.set(MADE_AT, &made_at.to_string())?;
        Ok(Response::from_bytes(bytes)?.with_headers(headers))
    };
    if let Ok(entry) = entry() {
        // If it fails, the next instance asks the object.
        let _ = Cache::default().put(key, entry).await;
    }
}

fn entry(content: &Content) -> Result<Response> {
    let headers = Headers::new();
    headers.set("Cache-Control", &format!("public, max-age={}", content.max_age))?;
    headers.set("ETag", &content.etag)?;
    if let Some(links) = &content.links {
        headers.set("Link", links)?;
    }
    headers.set(MADE_AT, &content.made_at.as_millis().to_string())?;
    headers.set(MAX_AGE, &content.max_age.to_string())?;
    Ok(Response::from_bytes(content.body.clone())?.with_headers(headers))
}
