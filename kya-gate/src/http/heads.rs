//! The heads of requests between a connection and hyper: timed, whole, and never without an answer.
//!
//! ```text
//!   idle --first byte--> head --hyper parsed it--> busy --answered--> idle
//!                        ^  \                       \  \
//!                        |   +--late--> closed       \  +--before its content ended--> closing
//!                        +--with the next head begun--+
//! ```
//!
//! hyper refuses a request line with bytes that no URI has, with an answer of its own that tells neither
//! client nor operator anything. Such bytes of the proxy's request lines are therefore masked on their way to
//! hyper, which gets a target of the same length; requests that hyper still refuses are answered by the gate.

use std::{
    io, mem,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, ready},
};

use bytes::{Buf as _, Bytes};
use host_kit::native::lock;
use hyper::{
    Request, Response,
    body::Body,
    header::{CONNECTION, HeaderValue},
};
use registry_core::gate::{GateAnswer, RequestFault};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

use super::RECEIVE_TIMEOUT;

/// The most bytes of a request line that are kept: hyper accepts no longer URI.
const LINE_BYTES: usize = 1 << 16;
/// The end of a head.
const END: [u8; 4] = *b"\r\n\r\n";

/// The gate's answer to a request line of the proxy that hyper refuses; `None` leaves hyper's answer.
pub(super) type UnparsedHandler = Box<dyn Fn(&[u8], RequestFault) -> Option<GateAnswer> + Send>;

/// The state of a connection's heads, shared by connection and service.
#[derive(Debug, Default)]
pub(super) struct Heads(Mutex<ReceiveState>);

/// The received bytes, and the phase that they belong to.
#[derive(Debug, Default)]
struct ReceiveState {
    phase: Phase,
    /// The request line that is not parsed yet, as received; empty on connections of strangers.
    line: Vec<u8>,
    /// The last four bytes.
    tail: [u8; 4],
}

/// The part of a request that a connection receives.
#[derive(Debug, Default, Clone, Copy)]
enum Phase {
    /// Nothing, until the next head begins.
    #[default]
    Idle,
    /// A head, which has to end by `until`.
    Head { until: Instant, is_in_line: bool },
    /// A request in progress; its content is timed elsewhere.
    Busy { has_content: bool },
    /// The rest of a content after the answer: hyper closes the connection.
    Closing,
}

impl Heads {
    /// Notes that hyper parsed a request. Returns its target as received, where it was masked.
    pub(super) fn parsed<B: Body>(&self, request: &Request<B>) -> Option<String> {
        let mut received = lock(&self.0);
        received.phase = Phase::Busy { has_content: !request.body().is_end_stream() };
        let line = mem::take(&mut received.line);
        let target = target(&line)?;
        let seen = request.uri().path_and_query()?.as_str().bytes();
        let is_masked = target.iter().any(|byte| masked(*byte) != *byte);
        let is_same = is_masked && target.iter().map(|byte| masked(*byte)).eq(seen);
        is_same.then(|| String::from_utf8_lossy(target).into_owned())
    }

    /// Notes that the request was answered. `left` is the rest of its content: while that may still come, it
    /// cannot be told from a next head, and the answer is the connection's last.
    pub(super) fn answered<B>(&self, left: &impl Body, answer: &mut Response<B>) {
        let mut received = lock(&self.0);
        let ReceiveState { phase, tail, .. } = &mut *received;
        *phase = match *phase {
            _ if !left.is_end_stream() => {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                Phase::Closing
            }
            Phase::Busy { has_content: false } if *tail != END => Phase::head(false),
            _ => Phase::Idle,
        };
    }
}

impl ReceiveState {
    /// Takes the next bytes, and masks those of a request line if it `is_masked`.
    fn take(&mut self, bytes: &mut [u8], is_masked: bool) {
        if matches!(self.phase, Phase::Idle) && !bytes.is_empty() {
            self.phase = Phase::head(is_masked);
            self.line.clear();
        }
        if let Phase::Head { is_in_line, .. } = &mut self.phase
            && *is_in_line
        {
            *is_in_line = mask(&mut self.line, bytes);
        }
        for byte in bytes.iter().skip(bytes.len().saturating_sub(self.tail.len())) {
            self.tail.rotate_left(1);
            self.tail[3] = *byte;
        }
    }
}

impl Phase {
    /// Starts a head.
    fn head(is_in_line: bool) -> Self {
        Self::Head { until: Instant::now() + RECEIVE_TIMEOUT, is_in_line }
    }
}

/// Returns the target of a request line.
pub(super) fn target(line: &[u8]) -> Option<&[u8]> {
    line.split(|byte| *byte == b' ').nth(1)
}

/// Masks a byte that hyper refuses in a target, or `#`, as hyper would cut off a fragment.
const fn masked(byte: u8) -> u8 {
    match byte {
        b'"' | b'#' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x80.. => b'_',
        byte => byte,
    }
}

/// A connection that tracks the heads it receives.
pub(super) struct WatchedStream<S, F> {
    stream: S,
    heads: Arc<Heads>,
    /// Called where a read finds nothing, and no request is in progress.
    idle: F,
    late: Pin<Box<Sleep>>,
    /// `None` on connections of strangers: their request lines are not kept.
    unparsed: Option<UnparsedHandler>,
    /// The rest of an answer in place of hyper's own.
    replaced: Option<Bytes>,
}

impl<S, F> WatchedStream<S, F> {
    pub(super) fn new(stream: S, heads: Arc<Heads>, unparsed: Option<UnparsedHandler>, idle: F) -> Self {
        let late = Box::pin(sleep_until(Instant::now()));
        Self { stream, heads, idle, late, unparsed, replaced: None }
    }

    /// Returns the gate's answer in place of one that hyper writes by itself.
    fn in_place_of(&self, written: &[u8]) -> Option<Bytes> {
        let fault = match written.get(..12)? {
            b"HTTP/1.0 400" | b"HTTP/1.1 400" => RequestFault::MalformedRequest,
            b"HTTP/1.0 414" | b"HTTP/1.1 414" | b"HTTP/1.0 431" | b"HTTP/1.1 431" => {
                RequestFault::HeadTooLong
            }
            _ => return None,
        };
        // The gate's own refusals have content.
        if !String::from_utf8_lossy(written).contains("\r\ncontent-length: 0\r\n") {
            return None;
        }
        let line = mem::take(&mut lock(&self.heads.0).line);
        self.unparsed.as_ref()?(&line, fault).map(|answer| Bytes::from(text(&answer)))
    }
}

/// Keeps the received part of a request line, and masks its target. Returns whether the line continues.
fn mask(line: &mut Vec<u8>, bytes: &mut [u8]) -> bool {
    for byte in bytes {
        match *byte {
            // Empty lines before a request line are not part of it.
            b'\r' | b'\n' if line.is_empty() => continue,
            b'\n' => return false,
            _ => {}
        }
        if line.len() < LINE_BYTES {
            line.push(*byte);
        }
        // Methods may contain some of these bytes: only bytes behind a space are masked.
        if masked(*byte) != *byte && line.iter().take(32).any(|byte| *byte == b' ') {
            *byte = masked(*byte);
        }
    }
    true
}

/// Formats an answer after which the connection is closed.
fn text(answer: &GateAnswer) -> String {
    let mut text = format!("HTTP/1.1 {} \r\nconnection: close\r\n", answer.status);
    for (name, value) in &answer.headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("content-length: {}\r\n\r\n{}", answer.body.len(), answer.body));
    text
}

impl<S: AsyncRead + Unpin, F: Fn() + Unpin> AsyncRead for WatchedStream<S, F> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (this, before) = (self.get_mut(), buffer.filled().len());
        let read = Pin::new(&mut this.stream).poll_read(context, buffer);
        let mut received = lock(&this.heads.0);
        received.take(buffer.filled_mut().get_mut(before..).unwrap_or_default(), this.unparsed.is_some());
        if let Phase::Head { until, .. } = received.phase {
            if this.late.deadline() != until {
                this.late.as_mut().reset(until);
            }
            if this.late.as_mut().poll(context).is_ready() {
                let words = "a head that did not end in time";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, words)));
            }
        }
        let is_busy = matches!(received.phase, Phase::Busy { .. });
        drop(received);
        if read.is_pending() && !is_busy {
            (this.idle)();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin, F: Unpin> AsyncWrite for WatchedStream<S, F> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.replaced.is_none() && this.unparsed.is_some() {
            this.replaced = this.in_place_of(bytes);
        }
        let Some(rest) = &mut this.replaced else {
            return Pin::new(&mut this.stream).poll_write(context, bytes);
        };
        while !rest.is_empty() {
            let written = ready!(Pin::new(&mut this.stream).poll_write(context, rest))?;
            rest.advance(written);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Full;
    use hyper::{body::Incoming, server::conn::http1, service::service_fn};
    use hyper_util::rt::TokioIo;
    use registry_core::gate::{Links, Outcome};
    use std::{convert::Infallible, time::Duration};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    #[tokio::test(start_paused = true)]
    async fn a_head_has_a_time_from_its_first_byte_on() {
        let (mut client, server) = duplex(64);
        let mut byte = [0; 1];
        let mut stream = WatchedStream::new(server, Arc::default(), None, || {});
        let idle = tokio::time::timeout(RECEIVE_TIMEOUT * 2, stream.read_exact(&mut byte)).await;
        assert!(idle.is_err(), "an idle connection is not late");
        client.write_all(b"GE").await.unwrap();
        stream.read_exact(&mut byte).await.unwrap();
        stream.read_exact(&mut byte).await.unwrap();
        let begun = Instant::now();
        // A byte now and then does not extend the time.
        let trickle = async {
            loop {
                tokio::time::sleep(RECEIVE_TIMEOUT / 4).await;
                client.write_all(b"T").await.unwrap();
            }
        };
        let reading = async { while stream.read_exact(&mut byte).await.is_ok() {} };
        tokio::select! { () = trickle => {}, () = reading => {} }
        assert_eq!(begun.elapsed(), RECEIVE_TIMEOUT);
    }

    /// Returns the client's end of a connection to the proxy's port, with a service that echoes the target.
    fn connection() -> DuplexStream {
        let (client, server) = duplex(1 << 20);
        let heads = Arc::<Heads>::default();
        let unparsed = |line: &[u8], fault| {
            let answer = Outcome::Faulty(fault).answer_unread(&Links::default());
            line.starts_with(b"GET /gate/api").then_some(answer)
        };
        let stream = WatchedStream::new(server, Arc::clone(&heads), Some(Box::new(unparsed)), || {});
        let service = service_fn(move |request: Request<Incoming>| {
            let heads = Arc::clone(&heads);
            async move {
                let target = heads.parsed(&request).unwrap_or_else(|| request.uri().to_string());
                if !request.body().is_end_stream() {
                    // Long enough for the unread content to arrive.
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                let mut answer = Response::new(Full::new(Bytes::from(target)));
                heads.answered(request.body(), &mut answer);
                Ok::<_, Infallible>(answer)
            }
        });
        let connection = http1::Builder::new()
            .keep_alive(true)
            .max_headers(1_000)
            .max_buf_size(128 * 1024)
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
        client
    }

    async fn answers(requests: &[u8]) -> (String, Duration) {
        let (mut client, begun) = (connection(), Instant::now());
        client.write_all(requests).await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        (String::from_utf8(answer).unwrap(), begun.elapsed())
    }

    #[tokio::test]
    async fn what_hyper_refuses_is_answered_in_words_and_a_clients_target_is_read_as_it_is() {
        let request = |target: &[u8], lines: &str| {
            let end = format!(" HTTP/1.1\r\nhost: a\r\n{lines}connection: close\r\n\r\n");
            [b"GET ", target, end.as_bytes()].concat()
        };
        for target in
            ["/gate/api/items?q=\"x\"<>", "/gate/api/<a>^`{|}\\#b", "/gate/api/m\u{fc}nchen?caf\u{e9}"]
        {
            let (answer, _) = answers(&request(target.as_bytes(), "")).await;
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with(target), "{target}: {answer}");
        }
        let (answer, _) = answers(&request(b"/gate/api?q=\xff", "")).await;
        assert!(answer.ends_with("/gate/api?q=\u{fffd}"), "{answer}");
        let lines = "a: b\r\n";
        let (answer, _) = answers(&request(b"/gate/api", &lines.repeat(900))).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let (long, control) = (format!("a: {}\r\n", "b".repeat(300_000)), "a: b\x01c\r\n");
        for (target, lines, status, words) in [
            ("/gate/api", &*lines.repeat(1_000), "431", "head_too_long"),
            ("/gate/api", &*long, "431", "head_too_long"),
            ("/gate/api", control, "400", "malformed_request"),
            ("/gate/api\x01", "", "400", "malformed_request"),
            ("/elsewhere", control, "400", "content-length: 0"),
        ] {
            let (answer, _) = answers(&request(target.as_bytes(), lines)).await;
            let is_so = answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(words);
            assert!(is_so, "{target}: {answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_of_a_content_behind_its_answer_is_no_head() {
        for content in ["GET /\"b\" HTTP/1.1\r\nhost: a\r\n\r\n", "GET /b HTTP"] {
            let mut client = connection();
            let head = format!("POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: {}\r\n\r\n", content.len());
            client.write_all(head.as_bytes()).await.unwrap();
            tokio::task::yield_now().await;
            client.write_all(content.as_bytes()).await.unwrap();
            let (begun, mut answer) = (Instant::now(), String::new());
            client.read_to_string(&mut answer).await.unwrap();
            let is_last = answer.contains("connection: close\r\n") && answer.ends_with("/a");
            assert!(is_last && begun.elapsed() < RECEIVE_TIMEOUT, "{:?}: {answer}", begun.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_begins_with_the_one_before_has_no_more_time() {
        let (answer, took) = answers(b"GET /a HTTP/1.1\r\nhost: a\r\n\r\nGET /b HTTP/1.1\r\nhos").await;
        assert!(answer.ends_with("/a") && took == RECEIVE_TIMEOUT, "{took:?}: {answer}");
        let whole = b"GET /a HTTP/1.1\r\nhost: a\r\n\r\n";
        let mut idle = connection();
        idle.write_all(whole).await.unwrap();
        tokio::time::sleep(RECEIVE_TIMEOUT * 2).await;
        idle.write_all(whole).await.unwrap();
        let mut answers = vec![0; 64];
        let (mut seen, mut text) = (0, String::new());
        while seen < 2 {
            let read = idle.read(&mut answers).await.unwrap();
            text.push_str(std::str::from_utf8(&answers[..read]).unwrap());
            assert!(read > 0, "{text}");
            seen = text.matches("\r\n\r\n/a").count();
        }
    }
}
