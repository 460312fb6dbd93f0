//! HTTP connections: accepting, eviction, and the graceful end.
//!
//! There is always a slot for a new connection. Where all are taken, the connection that has been idle for
//! longest is evicted, strangers before the proxy; while all are busy, the new one waits. A new
//! one of the proxy is idle a second after a read found nothing, as its request may be on its way. Slots
//! leave file descriptors for RPC connections and files.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::future::OptionFuture;
use host_kit::{
    native::lock,
    sockets::{connections_within, descriptors},
};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::TcpListener,
    sync::{Notify, watch},
    time::{Instant, sleep_until},
};

use super::{
    App,
    heads::{Heads, UnparsedHandler, WatchedStream},
};
use crate::gate::DEADLINE;

/// The longest idle time of a connection: proxies keep theirs for a minute.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// The time for answers in progress at the end: a decision, and a second to write it.
const GRACE: Duration = DEADLINE.saturating_add(Duration::from_secs(1));
/// The most connections; fewer where the process may not open as many files.
const CONNECTIONS: usize = 4_096;
/// The time that a new connection of the proxy has for its first request, from the first read that found
/// nothing on.
const FIRST_REQUEST_WITHIN: Duration = Duration::from_secs(1);
/// The longest head of a request: a field of more than 16 KiB meets its own limit, not this one.
const HEAD_BYTES: usize = 128 * 1024;
/// The most header lines of a request: servers behind proxies take as many or fewer.
const HEAD_LINES: usize = 1_000;

/// Serves until `stop` turns true, then lets answers in progress finish.
pub async fn serve(listener: TcpListener, app: Arc<App>, mut stop: watch::Receiver<bool>) {
    let most = connections_within(CONNECTIONS, descriptors());
    let (graceful, places) = (GracefulShutdown::new(), Arc::new(ConnectionSlots::new(most)));
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, peer)) = accepted else {
            // The peer hung up before it was accepted, or the machine is out of descriptors.
            let _ = lock(&places.taken).evict();
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        // Answers are small: Nagle's algorithm would only delay them.
        let _ = stream.set_nodelay(true);
        let (app, is_proxy) = (Arc::clone(&app), app.is_proxy(peer.ip()));
        let Some(place) = places.enter(is_proxy, &mut stop).await.map(Arc::new) else { break };
        let (heads, evicted) = (Arc::<Heads>::default(), Arc::clone(&place.evicted));
        let unparsed = Arc::clone(&app);
        let unparsed = is_proxy.then(|| {
            Box::new(move |line: &[u8], fault| unparsed.answer_unparsed(line, fault)) as UnparsedHandler
        });
        let idle = Arc::clone(&place);
        let idle = move || idle.waits();
        let stream = TokioIo::new(WatchedStream::new(stream, Arc::clone(&heads), unparsed, idle));
        let service = service_fn(move |request: Request<Incoming>| {
            let (app, place, heads) = (Arc::clone(&app), Arc::clone(&place), Arc::clone(&heads));
            async move {
                let target = heads.parsed(&request);
                place.is_busy();
                let (parts, mut content) = request.into_parts();
                let request = Request::from_parts(parts, &mut content);
                let mut answer = app.respond(peer, target, request).await;
                heads.answered(&content, &mut answer);
                place.waits();
                Ok::<_, Infallible>(answer)
            }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE_TIMEOUT)
            .max_buf_size(HEAD_BYTES)
            .max_headers(HEAD_LINES)
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

/// The slots for connections.
#[derive(Debug)]
struct ConnectionSlots {
    most: usize,
    taken: Mutex<TakenSlots>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct TakenSlots {
    count: usize,
    /// Number of the next connection that waits.
    next: u64,
    /// The connections without a request, in the order of eviction: strangers' before the proxy's, those that
    /// have waited longest first.
    waiting: BTreeMap<(bool, u64), WaitingConnection>,
}

#[derive(Debug)]
struct WaitingConnection {
    evicted: Arc<Notify>,
    /// The time from which on it is idle.
    idle_from: Instant,
}

impl TakenSlots {
    /// Evicts the first idle connection. If there is none, returns the time of the next one.
    fn evict(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let idle = self.waiting.iter().find(|(_, connection)| connection.idle_from <= now);
        let Some(evicted) = idle.map(|(number, _)| *number).and_then(|number| self.waiting.remove(&number))
        else {
            return self.waiting.values().map(|connection| connection.idle_from).min();
        };
        evicted.evicted.notify_one();
        self.count -= 1;
        None
    }
}

/// The slot of a connection, which is free again once it is dropped.
#[derive(Debug)]
struct ConnectionSlot {
    places: Arc<ConnectionSlots>,
    is_proxy: bool,
    evicted: Arc<Notify>,
    state: Mutex<SlotState>,
}

#[derive(Debug, Clone, Copy)]
enum SlotState {
    /// Not read yet.
    New,
    /// Without a request, under this number among the waiting connections.
    Waiting(u64),
    /// Busy with a request.
    Busy,
    /// Evicted: the slot is another connection's.
    Evicted,
}

impl ConnectionSlots {
    fn new(most: usize) -> Self {
        Self { most, taken: Mutex::default(), freed: Notify::new() }
    }

    /// Takes a slot; where none is free and no connection is idle, waits for either. `None` if `stop` turns
    /// true meanwhile.
    async fn enter(
        self: &Arc<Self>,
        is_proxy: bool,
        stop: &mut watch::Receiver<bool>,
    ) -> Option<ConnectionSlot> {
        loop {
            let idle_from = {
                let mut taken = lock(&self.taken);
                let idle_from = if taken.count >= self.most { taken.evict() } else { None };
                if taken.count < self.most {
                    taken.count += 1;
                    break;
                }
                idle_from
            };
            let idle = OptionFuture::from(idle_from.map(sleep_until));
            tokio::select! {
                () = self.freed.notified() => {}
                Some(()) = idle => {}
                _ = stop.wait_for(|stop| *stop) => return None,
            }
        }
        let (places, evicted) = (Arc::clone(self), Arc::default());
        Some(ConnectionSlot { places, is_proxy, evicted, state: Mutex::new(SlotState::New) })
    }
}

impl ConnectionSlot {
    /// Marks the connection as waiting for a request: once it is idle it may be evicted.
    fn waits(&self) {
        let (mut state, mut taken) = (lock(&self.state), lock(&self.places.taken));
        let grace = match *state {
            SlotState::New if self.is_proxy => FIRST_REQUEST_WITHIN,
            SlotState::New | SlotState::Busy => Duration::ZERO,
            SlotState::Waiting(_) | SlotState::Evicted => return,
        };
        let (number, idle_from) = (taken.next, Instant::now() + grace);
        taken.next += 1;
        let waiting = WaitingConnection { evicted: Arc::clone(&self.evicted), idle_from };
        taken.waiting.insert((self.is_proxy, number), waiting);
        *state = SlotState::Waiting(number);
        self.places.freed.notify_one();
    }

    /// Marks the connection as busy with a request, unless it was evicted.
    fn is_busy(&self) {
        let (mut state, mut taken) = (lock(&self.state), lock(&self.places.taken));
        *state = match *state {
            SlotState::Waiting(number) if taken.waiting.remove(&(self.is_proxy, number)).is_none() => {
                SlotState::Evicted
            }
            SlotState::New | SlotState::Waiting(_) | SlotState::Busy => SlotState::Busy,
            SlotState::Evicted => SlotState::Evicted,
        };
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.is_busy();
        if matches!(*lock(&self.state), SlotState::Busy) {
            lock(&self.places.taken).count -= 1;
            self.places.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_has_a_place_and_those_with_a_request_or_new_keep_theirs() {
        let places = Arc::new(ConnectionSlots::new(3));
        let is_evicted = |place: &ConnectionSlot| {
            futures_util::FutureExt::now_or_never(place.evicted.notified()).is_some()
        };
        let (running, stopping) = watch::channel(false);
        let enter = async |is_proxy| {
            let place = places.enter(is_proxy, &mut stopping.clone()).await;
            place.inspect(ConnectionSlot::waits)
        };
        let (proxy, first, second) =
            (enter(true).await.unwrap(), enter(false).await.unwrap(), enter(false).await.unwrap());
        first.is_busy();
        let third = enter(false).await.unwrap();
        assert!(is_evicted(&second) && !is_evicted(&proxy), "strangers before the proxy");
        drop(second);
        third.is_busy();
        // The proxy's request may be on its way.
        let mut fourth = Box::pin(enter(false));
        assert!(futures_util::poll!(&mut fourth).is_pending());
        let fourth = fourth.await.unwrap();
        assert!(is_evicted(&proxy) && !is_evicted(&first) && !is_evicted(&third));
        drop(proxy);
        fourth.is_busy();
        // All are busy: the next connection waits until one ends.
        let mut stopped = stopping.clone();
        let mut fifth = Box::pin(places.enter(false, &mut stopped));
        let hour = Duration::from_secs(3_600);
        assert!(tokio::time::timeout(hour, &mut fifth).await.is_err());
        first.waits();
        let fifth = fifth.await.unwrap();
        assert!(is_evicted(&first));
        // The fifth is not read: its request may have come. A server that stops waits for no slot.
        let mut sixth = Box::pin(enter(false));
        assert!(tokio::time::timeout(hour, &mut sixth).await.is_err());
        running.send_replace(true);
        assert!(matches!(futures_util::FutureExt::now_or_never(sixth), Some(None)));
        drop((first, third, fourth, fifth));
        let taken = lock(&places.taken);
        assert_eq!((taken.count, taken.waiting.len()), (0, 0));
    }
}
