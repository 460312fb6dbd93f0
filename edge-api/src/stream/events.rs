//! `/changes` as server-sent events (HTML, section 9.2), for a client that asks for `text/event-stream`.
//!
//! ```text
//!   client <-- this Worker: poll, write, pause; poll, write, pause; ... the end
//!                            |
//!                            +--> the instance's memory, which all its streams share --> the index's object
//! ```
//!
//! The Worker holds the streams, not the object. An object is billed for the time that a connection to it is
//! open, so that one that held streams would be awake as long as any client listens, whether anything changes
//! or not. The object is polled instead; it answers from its rows or after a refresh, and may sleep until the
//! next poll. All streams of an instance at one cursor share one poll. WebSockets would let an object sleep
//! as well, but neither `EventSource` nor curl speaks them.
//!
//! A stream ends with its client's connection, and by itself after `CHANGES_STREAM_SECONDS`. So a client that
//! vanished is not written to for ever, and a request stays within the subrequests that a plan allows. No
//! change is lost: each piece ends with an `id`, and a client that reconnects with it as `Last-Event-ID`, as
//! `EventSource` does, continues there.
//!
//! Where the chain or the index does not answer, a `failure` event says so, each time: silence would read as
//! "nothing has changed".

use std::rc::Rc;

use edge_shared::{time::pause, unix_millis};
use registry_core::{
    api::error::Error,
    registry::changes::{EventsEnd, Since},
};
use worker::{
    Result,
    web_sys::{ReadableStream, WritableStreamDefaultWriter},
};

use super::{slot::StreamSlot, write};
use crate::{
    cache::{self, ApiRequest, RequestContext},
    connection::Connection,
    http::Content,
    log::Record,
};

/// The delay before a client reconnects: the clients of a Worker that was stopped should not all reconnect at
/// once.
const BEGIN: &[u8] = b"retry: 2000\n\n";

/// Returns the start of a stream: after the last event that the client has received, or else where it asks
/// for. Errors: [`Error::InvalidParameter`] for an id that no event had.
pub(crate) fn begin(last_event_id: Option<&str>, since: Since) -> core::result::Result<Since, Error> {
    match last_event_id {
        None => Ok(since),
        Some(id) => {
            let rule = "must be the id of an event of this stream";
            Since::parse(id).ok_or(Error::InvalidParameter { field: "Last-Event-ID", rule })
        }
    }
}

/// Opens the stream, which begins with the piece `first`.
pub(crate) fn open(events: EventsSource, connection: Connection, record: Record) -> Result<ReadableStream> {
    let (writer, stream) = super::open()?;
    let writing = write_all(writer.clone(), events, record);
    super::spawn(writer, Box::pin(async move { connection.unless_closed(writing).await }));
    Ok(stream)
}

/// Source of a stream: its request's context, its slot, and its first piece.
pub(crate) struct EventsSource {
    pub(crate) context: RequestContext,
    pub(crate) slot: StreamSlot,
    pub(crate) first: Rc<Content>,
}

async fn write_all(
    writer: WritableStreamDefaultWriter,
    EventsSource { context, slot, first }: EventsSource,
    mut record: Record,
) -> Result<()> {
    let until = unix_millis() + u64::from(context.settings.stream_seconds) * 1_000;
    let interval = u64::from(context.settings.shared.follow_seconds()) * 1_000;
    write(&writer, BEGIN).await?;
    let (mut piece, mut next) = (Ok(first), None);
    loop {
        slot.extend();
        let mut is_newest = true;
        match &piece {
            Ok(content) => {
                write(&writer, &content.body).await?;
                if let Some(end) = core::str::from_utf8(&content.body).ok().and_then(EventsEnd::of) {
                    (next, is_newest) = (Some(end.next), end.is_newest);
                }
            }
            Err(error) => {
                write(&writer, failure(error).as_bytes()).await?;
                // A retry will not help: the client has to begin anew.
                if error.status() < 500 {
                    return Ok(());
                }
            }
        }
        if is_newest {
            pause(interval).await;
        }
        let Some(next) = next.filter(|_| unix_millis() < until) else { return Ok(()) };
        piece = cache::answer(&context, ApiRequest::Events(Since::Cursor(next)), &mut record).await;
    }
}

fn failure(error: &Error) -> String {
    format!("event: failure\ndata: {}\n\n", error.body())
}

#[cfg(test)]
mod tests {
    use registry_core::registry::changes::Cursor;

    use super::*;

    #[test]
    fn the_last_event_received_goes_before_the_start_asked_for() {
        let cursor = Since::Cursor(Cursor { began: 7, number: 4 });
        assert_eq!(begin(None, Since::Now), Ok(Since::Now));
        assert_eq!(begin(Some("7-4"), Since::Now), Ok(cursor));
        let refused = begin(Some("seven"), Since::Now).map_err(|error| error.to_string());
        assert_eq!(
            refused,
            Err("Invalid Last-Event-ID: must be the id of an event of this stream".to_owned())
        );
    }
}
