//! Answers that are written while they are read: changes as they come ([`events`]), and a list that is too long to be held ([`list`]).

pub(crate) mod events;
pub(crate) mod list;

use futures_util::future::LocalBoxFuture;
use worker::{
    Result,
    js_sys::Uint8Array,
    wasm_bindgen_futures::{JsFuture, spawn_local},
    web_sys::{ReadableStream, TransformStream, WritableStreamDefaultWriter},
};

/// The two ends of a stream.
fn open() -> Result<(WritableStreamDefaultWriter, ReadableStream)> {
    let stream = TransformStream::new()?;
    Ok((stream.writable().get_writer()?, stream.readable()))
}

/// Lets `writing` go on until it is done; where it fails, the stream is aborted. What is written has to show its end by itself: workerd
/// ends the response as if it were whole (<https://github.com/cloudflare/workerd/issues/6818>).
fn spawn(writer: WritableStreamDefaultWriter, writing: LocalBoxFuture<'static, Result<()>>) {
    // The open response keeps the request alive. `waitUntil` must not: on the platform, unlike locally, it ends the request with what
    // it waits for after 30 seconds.
    spawn_local(async move {
        let ended = match writing.await {
            Ok(()) => writer.close(),
            Err(_) => writer.abort(),
        };
        // A client that has gone is no failure.
        let _ = JsFuture::from(ended).await;
    });
}

/// Waits until the client can take more.
async fn write(writer: &WritableStreamDefaultWriter, bytes: &[u8]) -> Result<()> {
    JsFuture::from(writer.write_with_chunk(&Uint8Array::from(bytes))).await?;
    Ok(())
}
