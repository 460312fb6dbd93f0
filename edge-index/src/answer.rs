//! Answers of the object: documents, events and pieces of a list from the rows, and the responses that carry
//! them.

use edge_shared::{settings::WorkerSettings, unix_millis};
use registry_core::{
    api::{document::Document, error::Error, route::Route},
    chain::MAX_AGENTS,
    eth::timestamp::Timestamp,
    index::{
        Index, IndexError, ListChunk, ListCursor, Progress, RowsBilled, State, StoreFault,
        protocol::{DOCUMENT_HEADER, DocumentHead, IndexAnswer},
    },
    registry::error_code::Code,
};
use worker::{Headers, Response, console_warn};

use crate::sql::Sql;

/// A response, or an exception of the platform.
pub(crate) type HttpResult = worker::Result<Response>;

/// Agents in a piece of a list, which is made at once while other requests wait.
const PIECE: u64 = 2_500;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Document,
    /// Changes, as server-sent events.
    Events,
    /// A piece of the whole list of `/agents/compliance`: the first, or the one at a cursor.
    Piece(Option<ListCursor>),
}

/// Makes the document from rows of one block, or from a list that was opened at an earlier block.
pub(crate) fn document(
    sql: &Sql,
    settings: &WorkerSettings,
    state: &State,
    (route, form): (&Route, Form),
) -> Result<Document, IndexError> {
    let index = Index::new(sql, state, settings.registry, &settings.public_rpc);
    // As of the time at which the chain was read, like the answers from a scan.
    let now = Timestamp::from_millis(state.read_at);
    match (form, route) {
        (Form::Events, Route::Changes { since, limit, liable: None }) => {
            let events = index.changes(*since, *limit).map(|list| list.events());
            events.map(|body| Document { body, ..Document::default() })
        }
        (Form::Piece(cursor), _) => {
            let piece = match cursor {
                None => index.open_list(now, unix_millis(), PIECE),
                Some(cursor) => index.next_chunk(cursor, unix_millis(), PIECE),
            };
            piece.map(|ListChunk { text, next }| {
                let links = next.map(|next| next.to_string());
                Document { body: text, links, ..Document::default() }
            })
        }
        _ => index.document(route, now),
    }
}

/// Makes the response if rows of one block have no answer. Another source answers if it may know; a list that
/// is too large is requested in pieces.
pub(crate) fn unanswered(
    error: IndexError,
    (route, form): (&Route, Form),
    settings: &WorkerSettings,
) -> HttpResult {
    match Error::try_from(error) {
        Ok(error) if form != Form::Document || route.needs_index() || error.code() == Code::TooLarge => {
            failure(error, settings)
        }
        _ => not_covered(),
    }
}

/// Makes the response for a document, with its head.
pub(crate) fn respond(state: &State, document: Document, rpc_calls: u32) -> HttpResult {
    let Document { body, etag, links, .. } = document;
    let block = state.as_of().map_or(0, |block| block.number);
    let head = DocumentHead { etag, links, read_at: state.read_at, block, rpc_calls };
    let headers = Headers::new();
    headers.set(DOCUMENT_HEADER, &serde_json::to_string(&head)?)?;
    Ok(Response::from_bytes(body.into_bytes())?.with_headers(headers))
}

/// Makes the response with the progress of the index, the fault of its store, and the rows billed.
pub(crate) fn progress(state: &State, store_fault: Option<StoreFault>, rows: RowsBilled) -> HttpResult {
    Response::from_json(&IndexAnswer::Progress(Progress::from(state), store_fault, rows))
}

/// Makes the response that leaves the answer to another source, which may know it.
pub(crate) fn not_covered() -> HttpResult {
    Response::from_json(&IndexAnswer::NotCovered)
}

/// Makes the response if the index could not be refreshed. An unreachable chain is an error for the client.
/// After any other error a scan may answer, if the registry is not too large for one.
pub(crate) fn refusal(
    error: IndexError,
    route: &Route,
    state: &State,
    settings: &WorkerSettings,
) -> HttpResult {
    warn(&error, settings);
    let Ok(error) = Error::try_from(error) else { return not_covered() };
    let scan_would_do = state.total <= MAX_AGENTS && !route.needs_index();
    if error.code() != Code::RpcUnavailable && scan_would_do {
        return not_covered();
    }
    failure(error, settings)
}

/// Makes the response with an error for the client.
pub(crate) fn failure(error: Error, settings: &WorkerSettings) -> HttpResult {
    Response::from_json(&IndexAnswer::Failure(error.redacted(&settings.redactor).body()))
}

/// Logs the error that keeps the index from being refreshed.
pub(crate) fn warn(error: &IndexError, settings: &WorkerSettings) {
    match Error::try_from(error.clone()) {
        Ok(error) => console_warn!("index not kept up: {}", error.redacted(&settings.redactor)),
        Err(other) => console_warn!("index not kept up: {other}"),
    }
}
