//! HTTP connections: accepted, timed out, and let finish at the end.
//!
//! ```text
//!   accepted --> idle --first byte--> head --its end--> busy --answered--> idle
//!                  \                   /|
//!                   +-- evicted ------+ +--late--> closed
//! ```
//!
//! There is a place for each new connection, whatever those are doing that are there: where all places are
//! taken, the one that has waited longest without asking anything is evicted, strangers before the proxy.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::{Notify, watch},
    time::{Instant, Sleep, sleep_until},
};

use super::{App, RECEIVE_TIMEOUT};

/// How long a connection may be idle: proxies keep theirs for a minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// How long answers in progress may take at the end.
const GRACE: Duration = Duration::from_secs(3);
/// The most connections.
const CONNECTIONS: usize = 4_096;
/// The longest head of a request: a field of 16 KiB is refused by its limit, and not by this one.
const HEAD_BYTES: usize = 128 * 1024;

/// Serves until `stop` turns true, then lets answers in progress finish.
pub async fn serve(listener: TcpListener, app: Arc<App>, mut stop: watch::Receiver<bool>) {
    let (graceful, places) = (GracefulShutdown::new(), Arc::new(Places::new(CONNECTIONS)));
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, peer)) = accepted else {
            // The proxy hung up before it was accepted, or the machine is out of descriptors.
            places.lock().evict();
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        // Answers are small: waiting for more of them would only delay them.
        let _ = stream.set_nodelay(true);
        let (app, place) = (Arc::clone(&app), Arc::new(places.enter(app.is_proxy(peer.ip())).await));
        let (phase, evicted) = (Arc::default(), Arc::clone(&place.evicted));
        let stream = TokioIo::new(HeadTimed::new(stream, Arc::clone(&phase)));
        let service = service_fn(move |request| {
            let (app, place, phase) = (Arc::clone(&app), Arc::clone(&place), Arc::clone(&phase));
            async move {
                phase.store(BUSY, Ordering::Relaxed);
                place.is_busy();
                let answer = app.respond(peer, request).await;
                phase.store(IDLE, Ordering::Relaxed);
                place.waits();
                Ok::<_, Infallible>(answer)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_TIMEOUT)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(stream, service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => if let Err(error) = ended {
                    tracing::debug!(%error, "connection ended");
                },
                () = evicted.notified() => tracing::debug!("connection evicted"),
            }
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
}

/// The places of connections.
#[derive(Debug)]
struct Places {
    most: usize,
    taken: Mutex<Taken>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct Taken {
    count: usize,
    /// Counts what begins to wait.
    next: u64,
    /// The connections without a request, in the order in which they are evicted: strangers' before the
    /// proxy's, those that have waited longest first.
    waiting: BTreeMap<(bool, u64), Arc<Notify>>,
}

impl Taken {
    /// Makes room for another connection, if one waits.
    fn evict(&mut self) {
        if let Some((_, evicted)) = self.waiting.pop_first() {
            evicted.notify_one();
            self.count -= 1;
        }
    }
}

/// The place of a connection, which is free again once it is dropped.
#[derive(Debug)]
struct Place {
    places: Arc<Places>,
    is_proxy: bool,
    evicted: Arc<Notify>,
    state: Mutex<PlaceState>,
}

#[derive(Debug, Clone, Copy)]
enum PlaceState {
    /// Without a request, under this number among those that wait.
    Waiting(u64),
    /// With a request.
    Busy,
    /// Given to another connection.
    Evicted,
}

impl Places {
    fn new(most: usize) -> Self {
        Self { most, taken: Mutex::default(), freed: Notify::new() }
    }

    /// Takes a place; where all others have a request, once one is free.
    async fn enter(self: &Arc<Self>, is_proxy: bool) -> Place {
        loop {
            {
                let mut taken = self.lock();
                if taken.count >= self.most {
                    taken.evict();
                }
                if taken.count < self.most {
                    taken.count += 1;
                    break;
                }
            }
            self.freed.notified().await;
        }
        let (places, evicted) = (Arc::clone(self), Arc::default());
        let place = Place { places, is_proxy, evicted, state: Mutex::new(PlaceState::Busy) };
        place.waits();
        place
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// It waits for a request, and may be evicted.
    fn waits(&self) {
        let (mut state, mut taken) = (self.state(), self.places.lock());
        if matches!(*state, PlaceState::Busy) {
            let number = taken.next;
            taken.next += 1;
            taken.waiting.insert((self.is_proxy, number), Arc::clone(&self.evicted));
            *state = PlaceState::Waiting(number);
            self.places.freed.notify_one();
        }
    }

    /// It has a request, unless it was evicted.
    fn is_busy(&self) {
        let (mut state, mut taken) = (self.state(), self.places.lock());
        if let PlaceState::Waiting(number) = *state {
            let is_here = taken.waiting.remove(&(self.is_proxy, number)).is_some();
            *state = if is_here { PlaceState::Busy } else { PlaceState::Evicted };
        }
    }

    fn state(&self) -> MutexGuard<'_, PlaceState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.is_busy();
        if matches!(*self.state(), PlaceState::Busy) {
            self.places.lock().count -= 1;
            self.places.freed.notify_one();
        }
    }
}

/// Nothing is received.
const IDLE: u8 = 0;
/// A head is received.
const HEAD: u8 = 1;
/// A request is answered; its content is timed elsewhere.
const BUSY: u8 = 2;

/// A connection that fails once a head takes too long.
#[derive(Debug)]
struct HeadTimed<S> {
    stream: S,
    phase: Arc<AtomicU8>,
    late: Pin<Box<Sleep>>,
}

impl<S> HeadTimed<S> {
    fn new(stream: S, phase: Arc<AtomicU8>) -> Self {
        Self { stream, phase, late: Box::pin(sleep_until(Instant::now())) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for HeadTimed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() && buffer.filled().len() > before {
            let begun = self.phase.compare_exchange(IDLE, HEAD, Ordering::Relaxed, Ordering::Relaxed);
            if begun.is_ok() {
                self.late.as_mut().reset(Instant::now() + RECEIVE_TIMEOUT);
            }
        }
        if self.phase.load(Ordering::Relaxed) == HEAD && self.late.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "a head that did not end in time",
            )));
        }
        read
    }
}

impl AsyncWrite for HeadTimed<TcpStream> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    #[tokio::test(start_paused = true)]
    async fn a_head_has_a_time_from_its_first_byte_on() {
        let (mut client, server) = duplex(64);
        let (phase, mut byte) = (Arc::default(), [0; 1]);
        let mut stream = HeadTimed::new(server, Arc::clone(&phase));
        let idle = tokio::time::timeout(RECEIVE_TIMEOUT * 2, stream.read_exact(&mut byte)).await;
        assert!(idle.is_err(), "an idle connection is not late");
        client.write_all(b"GE").await.unwrap();
        stream.read_exact(&mut byte).await.unwrap();
        stream.read_exact(&mut byte).await.unwrap();
        let begun = Instant::now();
        // A byte now and then does not help.
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

    #[tokio::test]
    async fn a_new_connection_has_a_place_and_those_with_a_request_keep_theirs() {
        let places = Arc::new(Places::new(3));
        let is_evicted =
            |place: &Place| futures_util::FutureExt::now_or_never(place.evicted.notified()).is_some();
        let (proxy, first, second) =
            (places.enter(true).await, places.enter(false).await, places.enter(false).await);
        first.is_busy();
        let third = places.enter(false).await;
        assert!(is_evicted(&second) && !is_evicted(&proxy), "strangers before the proxy");
        drop(second);
        third.is_busy();
        let fourth = places.enter(false).await;
        assert!(is_evicted(&proxy) && !is_evicted(&first) && !is_evicted(&third));
        drop(proxy);
        fourth.is_busy();
        // All are busy: the next one waits for the end of one.
        let mut fifth = Box::pin(places.enter(false));
        assert!(futures_util::poll!(&mut fifth).is_pending());
        first.waits();
        let fifth = fifth.await;
        assert!(is_evicted(&first));
        first.is_busy();
        first.waits();
        drop((first, third, fourth, fifth));
        let taken = places.lock();
        assert_eq!((taken.count, taken.waiting.len()), (0, 0));
    }
}
