//! What the object answers with: a document, events, or a piece of a list, and what goes with it to the Worker that asked.

use registry_core::{
    api::document::Document,
    api::error::Error,
    api::route::Route,
    chain::MAX_AGENTS,
    eth::timestamp::Timestamp,
    index::{Index, IndexError, ListCursor, Piece, Progress, State},
    registry::error_code::Code,
};
use worker::{Headers, Response, Result, console_warn};

use super::{header, sql::Sql};
use crate::{log::unix_millis, settings::Settings};

/// Agents of a piece of a list: what is made at once, and with it what others wait for.
const PIECE: u64 = 2_500;

/// In which form an answer is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Document,
    /// Changes, as a stream tells them.
    Events,
    /// A piece of the whole list of `/agents/compliance`: the first, or the one that begins there.
    Piece(Option<ListCursor>),
}

/// The list that is told in pieces.
pub(super) const WHOLE_LIST: &str = "/api/v1/agents/compliance";

/// The answer from an index whose rows are of one block, or of a list that was opened when they were of another.
pub(super) fn answer(
    sql: &Sql,
    settings: &Settings,
    state: &State,
    (endpoint, form): (&Route, Form),
    rpc_calls: u32,
) -> Result<Response> {
    let index = Index::new(sql, state, settings.registry, &settings.public_rpc);
    // As of when the chain was asked, as the answers from a scan are.
    let now = Timestamp::from_millis(state.read_at);
    let made = match (form, endpoint) {
        (Form::Events, Route::Changes { since, limit }) => {
            let events = index.changes(*since, *limit).map(|list| list.events());
            events.map(|body| Document { body, ..Document::default() })
        }
        (Form::Piece(cursor), _) => {
            let piece = match cursor {
                None => index.open_list(now, unix_millis(), PIECE),
                Some(cursor) => index.next_piece(cursor, unix_millis(), PIECE),
            };
            piece.map(|Piece { text, next }| {
                let links = next.map(|next| next.to_string());
                Document { body: text, links, ..Document::default() }
            })
        }
        _ => index.document(endpoint, now),
    };
    let document = match made {
        Ok(document) => document,
        Err(IndexError::Incomplete { .. }) => return progress(state, 503),
        // Nobody else could say more; what is too large here is asked for in pieces.
        Err(error) => match Error::try_from(error) {
            Ok(error)
                if form != Form::Document || endpoint.needs_index() || error.code() == Code::TooLarge =>
            {
                return failure(error, settings);
            }
            _ => return Response::error("not covered", 404),
        },
    };
    found(state, document, rpc_calls)
}

/// An answer, and what the Worker that asked has to know of it.
pub(super) fn found(state: &State, document: Document, rpc_calls: u32) -> Result<Response> {
    let headers = Headers::new();
    headers.set("Content-Type", "application/json")?;
    if !document.etag.is_empty() {
        headers.set("ETag", &document.etag)?;
    }
    if let Some(links) = &document.links {
        headers.set("Link", links)?;
    }
    headers.set(header::READ_AT, &state.read_at.to_string())?;
    let block = state.as_of().map_or(0, |block| block.number);
    headers.set(header::BLOCK, &block.to_string())?;
    headers.set(header::RPC_CALLS, &rpc_calls.to_string())?;
    Ok(Response::from_bytes(document.body.into_bytes())?.with_headers(headers))
}

/// What the index says of itself.
pub(super) fn progress(state: &State, status: u16) -> Result<Response> {
    Ok(Response::from_json(&Progress::from(state))?.with_status(status))
}

/// Why there is no answer. That the chain cannot be reached is an answer; of anything else a scan may know more, if the registry is
/// not too large for one.
pub(super) fn refusal(
    error: IndexError,
    endpoint: &Route,
    state: &State,
    settings: &Settings,
) -> Result<Response> {
    warn(&error, settings);
    let Ok(error) = Error::try_from(error) else { return Response::error("not kept up", 502) };
    let a_scan_may = state.total <= MAX_AGENTS && !endpoint.needs_index();
    if error.code() != Code::RpcUnavailable && a_scan_may {
        return Response::error("not kept up", 502);
    }
    failure(error, settings)
}

/// An error as it is told to clients.
pub(super) fn failure(error: Error, settings: &Settings) -> Result<Response> {
    let (status, body) = (error.status(), error.redacted(&settings.redactor).body());
    Ok(Response::from_bytes(body.into_bytes())?.with_status(status))
}

/// Leaves in the log why the index is not kept up.
pub(super) fn warn(error: &IndexError, settings: &Settings) {
    match Error::try_from(error.clone()) {
        Ok(error) => console_warn!("index not kept up: {}", error.redacted(&settings.redactor)),
        Err(other) => console_warn!("index not kept up: {other}"),
    }
}
