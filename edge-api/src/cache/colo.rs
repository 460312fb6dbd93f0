//! The Cache API: one entry per question, registry and upstream, for all instances of a data centre.
//!
//! The key is a string on the Worker's own host, made from the endpoint's canonical form, so that spellings
//! of one question share an entry and none of the request's headers come along. A broken cache is a slow
//! cache, never an error: what fails here is answered from the chain.

use registry_core::{api::route::Route, eth::timestamp::Timestamp};
use worker::{Cache, Headers, Response, Result};

use crate::{
    http::{Content, JSON_TYPE},
    settings::Settings,
};

/// When an entry was made, in unix milliseconds. Only inside the cache; clients get `Age`.
const MADE_AT: &str = "X-Made-At";
/// For how many seconds from then on it may be given out.
const KEEP_FOR: &str = "X-Keep-For";

/// The key of an endpoint's answer. Chain, endpoints and registry are part of it: answers from before a change of settings
/// are never served after it.
pub(super) fn key(origin: &str, settings: &Settings, endpoint: &Route) -> String {
    format!("{origin}/{}/{}{}", settings.upstream, settings.registry, endpoint.canonical())
}

/// The entry, where there is one that may still be given out and is younger than `time_to_live` seconds.
pub(super) async fn find(key: &str, time_to_live: u32, now: Timestamp) -> Option<Content> {
    let mut response = Cache::default().get(key, false).await.ok()??;
    let header = |name| response.headers().get(name).ok()?;
    let made_at = Timestamp::from_millis(header(MADE_AT)?.parse().ok()?);
    // The setting may be a shorter time than it was when the entry was made.
    let keep_for = header(KEEP_FOR)?.parse::<u32>().ok()?.min(time_to_live);
    let end = made_at.as_millis().saturating_add(u64::from(keep_for) * 1_000);
    if end <= now.as_millis() {
        return None;
    }
    let (etag, links) = (header("ETag")?, header("Link"));
    let body = response.bytes().await.ok()?;
    Some(Content::new(JSON_TYPE, body, etag, links, made_at, keep_for))
}

/// Stores an answer.
pub(super) async fn store(key: String, content: &Content) {
    if let Ok(entry) = entry(content) {
        // There is nobody to tell; the next instance asks the chain.
        let _ = Cache::default().put(key, entry).await;
    }
}

fn entry(content: &Content) -> Result<Response> {
    let headers = Headers::new();
    headers.set("Cache-Control", &format!("public, max-age={}", content.keep_for))?;
    headers.set("ETag", &content.etag)?;
    if let Some(links) = &content.links {
        headers.set("Link", links)?;
    }
    headers.set(MADE_AT, &content.made_at.as_millis().to_string())?;
    headers.set(KEEP_FOR, &content.keep_for.to_string())?;
    Ok(Response::from_bytes(content.body.clone())?.with_headers(headers))
}
