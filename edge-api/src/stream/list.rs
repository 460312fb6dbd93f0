//! The whole list of `/agents/compliance`, where it is too long to be held in memory: from the index's object
//! to the client, piece by piece.
//!
//! ```text
//!   client <-- this Worker: ask, write; ask, write; ... the end
//!                            |
//!                            +--> the index's object, which answers others in between
//! ```
//!
//! Each piece is asked for once the client has taken the one before: a slow client takes no memory, and for a
//! disconnected one the list is closed.

use std::rc::Rc;

use registry_core::api::document::Document;
use worker::{
    Result,
    web_sys::{ReadableStream, WritableStreamDefaultWriter},
};

use super::write;
use crate::{cache::RequestContext, connection::Connection};

/// Opens the stream, which begins with the piece `first`.
pub(crate) fn open(
    context: RequestContext,
    connection: Connection,
    first: Document,
) -> Result<ReadableStream> {
    let (writer, stream) = super::open()?;
    super::spawn(writer.clone(), Box::pin(write_all(writer, context, connection, first)));
    Ok(stream)
}

/// Writes all pieces; `None` where the client disconnected.
async fn write_all(
    writer: WritableStreamDefaultWriter,
    context: RequestContext,
    connection: Connection,
    mut piece: Document,
) -> Option<Result<()>> {
    loop {
        let written = connection.unless_closed(write(&writer, piece.body.as_bytes())).await;
        let (Some(next), Some(index)) = (piece.links, &context.index) else { return written };
        let close = || {
            // A future that is not awaited ends with the request.
            let (index, next) = (Rc::clone(index), next.clone());
            context.runtime.wait_until(async move { index.close_list(next).await });
        };
        if !matches!(written, Some(Ok(()))) {
            close();
            return written;
        }
        match connection.unless_closed(index.list_piece(Some(next.clone()))).await {
            Some(Ok(response)) => piece = response.document,
            Some(Err(error)) => return Some(Err(error.code().name().into())),
            None => {
                close();
                return None;
            }
        }
    }
}
