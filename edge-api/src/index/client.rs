//! The Worker's side: questions to the object of this chain and registry.

use registry_core::{
    api::document::Document,
    api::error::Error,
    api::index_documents::is_only_source,
    api::route::{CHANGES_LIMIT_MAX, Route},
    chain::MAX_AGENTS,
    eth::timestamp::Timestamp,
    index::{Excerpt, Progress},
    registry::changes::Since,
};
use worker::{Env, ObjectNamespace, Result, Stub};

use super::protocol::{DOCUMENT_HEAD, DocumentHead, IndexAnswer, IndexQuestion, IndexRequest, name};
use crate::{
    binding,
    settings::{INDEX_BINDING, IndexMode, Settings},
};

/// A document from an object.
#[derive(Debug)]
pub(crate) struct IndexResponse {
    pub(crate) document: Document,
    /// When the chain was asked for it.
    pub(crate) read_at: Timestamp,
    /// The number of the block that it is as of.
    pub(crate) block: u64,
    /// RPC requests that it took just now.
    pub(crate) rpc_calls: u32,
}

/// The objects, where the settings and the bindings provide them.
pub(crate) fn objects(settings: &Settings, env: &Env) -> Option<ObjectNamespace> {
    if settings.index_mode == IndexMode::Off {
        return None;
    }
    env.durable_object(INDEX_BINDING).ok()
}

/// The document of a route.
///
/// # Errors
///
/// [`Error::IndexUnavailable`] where the object fails, or only the chain can tell. [`Error::Indexing`] where
/// the registry is being read for the first time, and a scan is no way out: the registry is too large for
/// one, or the index is the only source. [`Error::Relayed`] for the object's own error.
pub(crate) async fn document(
    objects: &ObjectNamespace,
    settings: &Settings,
    route: &Route,
) -> core::result::Result<IndexResponse, Error> {
    let scan_would_do = |total| total <= MAX_AGENTS && !is_only_source(route);
    let question = IndexQuestion::Document { route: route.canonical() };
    read(objects, settings, question, scan_would_do).await
}

/// Changes from there on, as server-sent events.
///
/// # Errors
///
/// Those of [`document`]; the index is the only source.
pub(crate) async fn events(
    objects: &ObjectNamespace,
    settings: &Settings,
    since: Since,
) -> core::result::Result<IndexResponse, Error> {
    let route = Route::Changes { since, limit: CHANGES_LIMIT_MAX }.canonical();
    read(objects, settings, IndexQuestion::Events { route }, |_| false).await
}

/// A piece of the whole list of `/agents/compliance`: the first, or the one at a cursor, which is the `links`
/// of the piece before.
///
/// # Errors
///
/// Those of [`document`]; the index is the only source.
pub(crate) async fn list_piece(
    objects: &ObjectNamespace,
    settings: &Settings,
    cursor: Option<String>,
) -> core::result::Result<IndexResponse, Error> {
    read(objects, settings, IndexQuestion::ListPiece { cursor }, |_| false).await
}

/// The progress of the index; `None` where the object does not answer.
pub(crate) async fn progress(objects: &ObjectNamespace, settings: &Settings) -> Option<Progress> {
    match ask(objects, settings, IndexQuestion::Progress).await {
        Ok(IndexAnswer::Progress(progress)) => Some(progress),
        _ => None,
    }
}

/// What the index knows of the wallets of a route; `None` where it knows nothing, or nothing recent.
pub(crate) async fn excerpt(
    objects: &ObjectNamespace,
    settings: &Settings,
    route: &Route,
) -> Option<Excerpt> {
    let refresh = matches!(route, Route::Kya { history: true, .. });
    let wallets: Vec<String> = route.wallets().iter().map(|wallet| format!("{wallet:#x}")).collect();
    if wallets.is_empty() || route.block().is_some() {
        return None;
    }
    match ask(objects, settings, IndexQuestion::Excerpt { wallets, refresh }).await {
        Ok(IndexAnswer::Excerpt(digits)) => Excerpt::decode(&digits),
        _ => None,
    }
}

/// Asks a question that is not answered by a document.
pub(super) async fn ask(
    objects: &ObjectNamespace,
    settings: &Settings,
    question: IndexQuestion,
) -> Result<IndexAnswer> {
    let (object, request) = request(objects, settings, question)?;
    binding::ask(object, &request).await
}

fn request(
    objects: &ObjectNamespace,
    settings: &Settings,
    question: IndexQuestion,
) -> Result<(Stub, IndexRequest)> {
    let object = name(settings);
    Ok((objects.get_by_name(&object)?, IndexRequest { object, question }))
}

/// Asks for a document. `scan_would_do` says of the number of agents whether a scan could answer instead.
async fn read(
    objects: &ObjectNamespace,
    settings: &Settings,
    question: IndexQuestion,
    scan_would_do: impl Fn(u64) -> bool,
) -> core::result::Result<IndexResponse, Error> {
    match receive(objects, settings, question).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(IndexAnswer::Progress(Progress { percent, total, .. }))) if !scan_would_do(total) => {
            Err(Error::Indexing { percent })
        }
        Ok(Err(IndexAnswer::Failure(body))) => Err(Error::relayed(&body).unwrap_or(Error::IndexUnavailable)),
        _ => Err(Error::IndexUnavailable),
    }
}

async fn receive(
    objects: &ObjectNamespace,
    settings: &Settings,
    question: IndexQuestion,
) -> Result<core::result::Result<IndexResponse, IndexAnswer>> {
    let (object, request) = request(objects, settings, question)?;
    let response = binding::post(object, &request).await?;
    let body = binding::text(&response).await?;
    let Some(head) = response.headers().get(DOCUMENT_HEAD)? else {
        return Ok(Err(serde_json::from_str(&body)?));
    };
    let DocumentHead { etag, links, read_at, block, rpc_calls } = serde_json::from_str(&head)?;
    let document = Document { body, etag, links, ..Document::default() };
    Ok(Ok(IndexResponse { document, read_at: Timestamp::from_millis(read_at), block, rpc_calls }))
}
