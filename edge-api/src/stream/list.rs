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
use crate::cache::RequestContext;

/// The stream, which begins with the piece `first`.
pub(crate) fn open(context: RequestContext, first: Document) -> Result<ReadableStream> {
    let (writer, stream) = super::open()?;
    super::spawn(writer.clone(), Box::pin(write_all(writer, context, first)));
    Ok(stream)
}

async fn write_all(
    writer: WritableStreamDefaultWriter,
    context: RequestContext,
    mut piece: Document,
) -> Result<()> {
    loop {
        let written = write(&writer, piece.body.as_bytes()).await;
        let (Some(next), Some(index)) = (piece.links, &context.index) else { return written };
        if written.is_err() {
            // The client has disconnected, and what is not awaited ends with its request.
            let index = Rc::clone(index);
            context.runtime.wait_until(async move { index.close_list(next).await });
            return written;
        }
        let response = index.list_piece(Some(next)).await;
        piece = response.map_err(|error| error.code().name())?.document;
    }
}
