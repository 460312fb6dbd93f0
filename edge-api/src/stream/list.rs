//! The whole list of `/agents/compliance`, where it is too long to be held in memory: from the index's object
//! to the client, piece by piece.
//!
//! ```text
//!   client <-- this Worker: ask, write; ask, write; ... the end
//!                            |
//!                            +--> the index's object, which answers others in between
//! ```
//!
//! Each piece is asked for once the client has taken the one before: a slow client takes no memory, and a
//! disconnected one no more pieces.

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
        write(&writer, piece.body.as_bytes()).await?;
        let (Some(next), Some(index)) = (piece.links, &context.index) else { return Ok(()) };
        let response = index.list_piece(Some(next)).await;
        piece = response.map_err(|error| error.code().name())?.document;
    }
}
