//! Streamed answers: changes as they come ([`events`]), and a list that is too long for memory ([`list`]).
//! Streams of changes are limited in number ([`slot`]).

pub(crate) mod events;
pub(crate) mod list;
pub(crate) mod slot;

use futures_util::future::LocalBoxFuture;
use worker::{
    Result,
    js_sys::Uint8Array,
    wasm_bindgen_futures::{JsFuture, spawn_local},
    web_sys::{ReadableStream, TransformStream, WritableStreamDefaultWriter},
};

/// Returns the two ends of a new stream.
fn open() -> Result<(WritableStreamDefaultWriter, ReadableStream)> {
    let stream = TransformStream::new()?;
    Ok((stream.writable().get_writer()?, stream.readable()))
}

/// Runs `writing` in the background; if it fails, the stream is aborted. The text itself has to show where it
/// ends: workerd ends an aborted response as if it were whole
/// (<https://github.com/cloudflare/workerd/issues/6818>).
///
/// `writing` returns `None` when its client's [`Connection`](crate::connection::Connection) ends: then there
/// is no stream any more.
fn spawn(writer: WritableStreamDefaultWriter, writing: LocalBoxFuture<'static, Option<Result<()>>>) {
    // The open response keeps the request alive. Not `waitUntil`: on the platform, unlike locally, it ends
    // the request after 30 seconds, and the futures that it waits for.
    spawn_local(async move {
        let ended = match writing.await {
            Some(Ok(())) => writer.close(),
            Some(Err(_)) => writer.abort(),
            None => return,
        };
        // A client that disconnected is no failure.
        let _ = JsFuture::from(ended).await;
    });
}

/// Writes, and waits until the client can take more (backpressure).
async fn write(writer: &WritableStreamDefaultWriter, bytes: &[u8]) -> Result<()> {
    JsFuture::from(writer.write_with_chunk(&Uint8Array::from(bytes))).await?;
    Ok(())
}
