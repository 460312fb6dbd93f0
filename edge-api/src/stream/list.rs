//! The whole list of `/agents/compliance`, where it is too long to be held: from the index's object to the client, piece by piece.
//!
//! ```text
//!   client <-- this Worker: ask, write; ask, write; ... the end
//!                            |
//!                            +--> the index's object, which answers others in between
//! ```
//!
//! Each piece is asked for when the one before it has been taken: a slow client takes no memory, and one that has gone no more pieces.

use registry_core::api::document::Document;
use worker::{
    Result,
    web_sys::{ReadableStream, WritableStreamDefaultWriter},
};

use super::write;
use crate::{cache::Asker, index};

/// The stream, which begins with that piece.
pub(crate) fn open(asker: Asker, first: Document) -> Result<ReadableStream> {
    let (writer, stream) = super::open()?;
    super::spawn(writer.clone(), Box::pin(write_all(writer, asker, first)));
    Ok(stream)
}

async fn write_all(writer: WritableStreamDefaultWriter, asker: Asker, mut piece: Document) -> Result<()> {
    loop {
        write(&writer, piece.body.as_bytes()).await?;
        let (Some(next), Some(objects)) = (piece.links, &asker.objects) else { return Ok(()) };
        let told = index::tell(objects, &asker.settings, &index::list(&next)).await;
        piece = told.map_err(|error| error.code().name())?.document;
    }
}
