//! Answers from the index: a Durable Object per chain and registry keeps the whole registry in SQLite ([`registry_core::index`]), where the
//! setting `INDEX` says so.
//!
//! ```text
//!   request --> memory of the instance --> the object --> its SQLite, where that is as of now
//!                                             |  older than an answer may be: a refresh first, 3 round trips
//!                                             |  being filled: a scan, or 503 and how far it is, where a scan would not do
//!                                             |  what happened to an agent: its events are asked for, as of the block of the rows
//!   alarm  --> a refresh before answers become too old, or the next slice of the fill; idle when nobody asks
//!   cron   --> an alarm, where one has stalled
//! ```
//!
//! The objects are another Worker's, of the same crate, with the same settings: `wrangler.index.toml`. What is asked names the chain
//! and registry it is about, and an object whose own settings differ does not answer.
//!
//! D1 would hold the same tables. An object is chosen as it is one writer by nature: a refresh reads the chain at one block and has to be
//! the only one to write, which D1 would need a lock for, kept alive by somebody. Its SQL is in the same process as the
//! core that drives it, so that a refresh of 100 agents is 100 local statements and one commit, and not 100 requests. It has an alarm of
//! its own, where D1 needs a Worker to be woken. What D1 has instead, reads from many places, is done by the caches
//! before it: an answer is read once for each instance and cache time.

#[cfg(feature = "index-object")]
mod answer;
#[cfg(feature = "index-object")]
mod object;
#[cfg(feature = "index-object")]
mod sql;
#[cfg(feature = "index-object")]
mod worker;

use ::worker::{
    Env, ObjectNamespace, Result,
    web_sys::{Headers, Response},
};
use registry_core::{
    api::document::Document,
    api::error::Error,
    api::route::{CHANGES_LIMIT_MAX, Route},
    chain::MAX_AGENTS,
    eth::timestamp::Timestamp,
    index::{Excerpt, Progress},
    registry::changes::Since,
};

use crate::{binding, settings::Settings};

/// The binding of the objects' class.
pub(crate) const BINDING: &str = "REGISTRY_INDEX";
/// What a cron trigger asks an object instead of a question.
#[cfg(feature = "index-object")]
const TICK: &str = "tick";
/// What a stream asks an object: this word, and a question about changes.
const EVENTS: &str = "events";
/// What the whole list of `/agents/compliance` is asked for by, where it is too long for one answer: this word, and where the next
/// piece begins.
const LIST: &str = "list";
/// What `/readyz` asks an object instead of a question.
const PROGRESS: &str = "progress";
/// What a verdict asks an object: this word, and the wallets.
const PAST: &str = "past";
/// The same, where the object may ask the chain first.
const PAST_NOW: &str = "past-now";

/// Headers between an object and who asks it.
mod header {
    pub(super) const READ_AT: &str = "X-Read-At";
    pub(super) const BLOCK: &str = "X-As-Of-Block";
    pub(super) const RPC_CALLS: &str = "X-Rpc-Calls";
}

/// Where the whole registry is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// In a scan, each time.
    Off,
    /// In a Durable Object, once, and then what changes.
    DurableObject,
}

/// An object's answer.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) document: Document,
    /// When the chain was asked for it.
    pub(crate) read_at: Timestamp,
    /// The block it is as of.
    pub(crate) block: u64,
    /// How many RPC requests it took just now.
    pub(crate) rpc_calls: u32,
}

/// The objects, where the settings and the bindings provide them.
pub(crate) fn objects(settings: &Settings, env: &Env) -> Option<ObjectNamespace> {
    if settings.index == Scheme::Off {
        return None;
    }
    env.durable_object(BINDING).ok()
}

/// Whether the index answers a question, as a rule.
pub(crate) fn covers(endpoint: &Route) -> bool {
    endpoint.is_indexed()
}

/// Asks the object of this chain and registry; `None` where only the chain can tell.
///
/// # Errors
///
/// [`Error::Indexing`] where the registry is being read for the first time, and a scan is no way out: the registry is too large for
/// one, or only an index can tell; [`Error::IndexUnavailable`] where only an index can tell and the object fails; [`Error::Relayed`] where the object cannot reach the chain.
pub(crate) async fn ask(
    objects: &ObjectNamespace,
    settings: &Settings,
    endpoint: &Route,
) -> core::result::Result<Option<Told>, Error> {
    let is_only_source = endpoint.needs_index();
    match post(objects, settings, &endpoint.canonical()).await.unwrap_or(Reply::Other) {
        Reply::Found(told) => Ok(Some(told)),
        Reply::Filling { percent, total } if total > MAX_AGENTS || is_only_source => {
            Err(Error::Indexing { percent })
        }
        Reply::Failed(error) => Err(error),
        // Where the object fails, the chain answers, or says why not.
        Reply::Filling { .. } | Reply::Other if !is_only_source => Ok(None),
        Reply::Filling { .. } | Reply::Other => Err(Error::IndexUnavailable),
    }
}

/// Asks it what nobody else could answer: [`events`], [`list`].
///
/// # Errors
///
/// Those of [`ask`].
pub(crate) async fn tell(
    objects: &ObjectNamespace,
    settings: &Settings,
    question: &str,
) -> core::result::Result<Told, Error> {
    match post(objects, settings, question).await.unwrap_or(Reply::Other) {
        Reply::Found(told) => Ok(told),
        Reply::Filling { percent, .. } => Err(Error::Indexing { percent }),
        Reply::Failed(error) => Err(error),
        Reply::Other => Err(Error::IndexUnavailable),
    }
}

/// The question for changes from there on, as a stream tells them.
pub(crate) fn events(since: Since) -> String {
    format!("{EVENTS} {}", Route::Changes { since, limit: CHANGES_LIMIT_MAX }.canonical())
}

/// The question for a piece of the whole list of `/agents/compliance`; its first where `begin` is empty. Where the next one begins is in
/// the answer's links.
pub(crate) fn list(begin: &str) -> String {
    format!("{LIST} {begin}")
}

/// What the object of this chain and registry says of itself, `None` where it does not answer.
pub(crate) async fn progress(objects: &ObjectNamespace, settings: &Settings) -> Option<Progress> {
    let response = send(objects, settings, PROGRESS).await.ok()?;
    serde_json::from_str(&binding::text(&response).await.ok()?).ok()
}

/// What the object of this chain and registry knows of the wallets that an endpoint asks about; `None` where that is nothing that it
/// would vouch for.
pub(crate) async fn excerpt(
    objects: &ObjectNamespace,
    settings: &Settings,
    endpoint: &Route,
) -> Option<Excerpt> {
    let word = if matches!(endpoint, Route::Kya { history: true, .. }) { PAST_NOW } else { PAST };
    let wallets = endpoint.wallets();
    if wallets.is_empty() || endpoint.block().is_some() {
        return None;
    }
    let body = wallets.iter().fold(word.to_owned(), |body, wallet| format!("{body} {wallet:#x}"));
    let response = send(objects, settings, &body).await.ok()?;
    if response.status() != 200 {
        return None;
    }
    Excerpt::decode(&binding::text(&response).await.ok()?)
}

enum Reply {
    Found(Told),
    Filling { percent: u8, total: u64 },
    Failed(Error),
    Other,
}

/// An object's name: another chain, registry or endpoint is another object.
fn name(settings: &Settings) -> String {
    format!("{}/{}", settings.upstream, settings.registry)
}

async fn send(objects: &ObjectNamespace, settings: &Settings, question: &str) -> Result<Response> {
    let name = name(settings);
    binding::ask(objects.get_by_name(&name)?, &format!("{name}\n{question}")).await
}

async fn post(objects: &ObjectNamespace, settings: &Settings, target: &str) -> Result<Reply> {
    let response = send(objects, settings, target).await?;
    let body = binding::text(&response).await?;
    let reply = match response.status() {
        200 => found(&response.headers(), body).map(Reply::Found),
        503 => serde_json::from_str(&body)
            .ok()
            .map(|Progress { percent, total, .. }| Reply::Filling { percent, total }),
        _ => Error::relayed(&body).map(Reply::Failed),
    };
    Ok(reply.unwrap_or(Reply::Other))
}

fn found(headers: &Headers, body: String) -> Option<Told> {
    let header = |name| headers.get(name).ok().flatten();
    let read_at = Timestamp::from_millis(header(header::READ_AT)?.parse().ok()?);
    let block = header(header::BLOCK)?.parse().ok()?;
    let rpc_calls = header(header::RPC_CALLS)?.parse().ok()?;
    // Events have no entity tag.
    let etag = header("ETag").unwrap_or_default();
    let document = Document { body, etag, valid_until: None, links: header("Link"), is_final: false };
    Some(Told { document, read_at, block, rpc_calls })
}
