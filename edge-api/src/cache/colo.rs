//! The Cache API: one entry per question and registry, per data centre.
//!
//! The key is a string on the Worker's own host, made from the endpoint's canonical form, so that spellings
//! of one question share an entry and none of the request's headers come along. A broken cache is a slow
//! cache, never an error: what fails here is answered from the chain.

use registry_core::{route::Endpoint, timestamp::Timestamp};
use worker::{Cache, Context, Response, ResponseBody};

use crate::{
    http::{Content, JSON},
    settings::Settings,
};

/// When an entry was made, in unix seconds. Only inside the cache; clients get `Age`.
const MADE_AT: &str = "X-Made-At";
/// For how many seconds from then on it may be given out.
const KEEP_FOR: &str = "X-Keep-For";

/// The key of an endpoint's answer. The chain and registry asked are part of it: answers from before a
/// change of settings are never served after it.
pub(crate) fn key(origin: &str, settings: &Settings, endpoint: &Endpoint) -> String {
    let chain = settings.public_rpc.replace("://", "-");
    format!("{origin}/{chain}/{}{}", settings.registry, endpoint.canonical())
}

/// The entry, where there is one that may still be given out and is younger than `time_to_live`.
pub(crate) async fn find(key: &str, time_to_live: u32, now: Timestamp) -> Option<Content> {
    let response = Cache::default().get(key, false).await.ok()??;
    let number = |name| response.headers().get(name).ok()??.parse::<u64>().ok();
    let age = now.seconds().saturating_sub(number(MADE_AT)?);
    // The setting may be a shorter time than it was when the entry was made.
    let keep_for = number(KEEP_FOR)?.min(time_to_live.into()).checked_sub(age).filter(|left| *left > 0)?;
    let etag = response.headers().get("ETag").ok()??;
    let links = response.headers().get("Link").ok()?;
    let (_, body) = response.into_parts();
    Some(Content { media_type: JSON, body, etag, links, keep_for, age: Some(age) })
}

/// Stores a fresh answer, after the client has it.
pub(crate) fn store(key: String, content: &Content, now: Timestamp, context: &Context) {
    let Ok(response) = entry(content, now) else { return };
    context.wait_until(async move {
        // There is nobody left to tell; the next request asks the chain again.
        let _ = Cache::default().put(key, response).await;
    });
}

fn entry(content: &Content, now: Timestamp) -> worker::Result<Response> {
    let body = match &content.body {
        ResponseBody::Body(bytes) => ResponseBody::Body(bytes.clone()),
        ResponseBody::Empty | ResponseBody::Stream(_) => ResponseBody::Empty,
    };
    let headers = content.headers()?;
    headers.set(MADE_AT, &now.seconds().to_string())?;
    headers.set(KEEP_FOR, &content.keep_for.to_string())?;
    Ok(Response::from_body(body)?.with_headers(headers))
}
