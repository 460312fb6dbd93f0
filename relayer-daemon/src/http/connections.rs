//! HTTP connections: their number, their timeouts, and their end.
//!
//! warp's own accept loop has neither a header timeout nor a bound on connections, so the loop is here. Three
//! bounds protect the process:
//!
//! - All connections together stay below the process's limit of file descriptors, so that the store and the
//!   RPC endpoints always get theirs ([`ConnectionLimits::within`]). Beyond it new clients wait in the
//!   kernel's queue.
//! - Each client address has a share of them, and its network four times as much. A connection beyond that is
//!   closed at once. Trusted proxies have no share: all clients come through them.
//! - A client that sends nothing, or does not read its answer, is closed after [`HEADER_TIMEOUT`] or
//!   [`WRITE_TIMEOUT`].

use std::{
    convert::Infallible,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use host_kit::sockets::connections_within;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulConnection, GracefulShutdown},
};
use registry_core::host::rate_limit::network;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_io_timeout::TimeoutWriter;
use warp::{Filter, reply::Response};

use super::{client_address::TrustedProxies, client_shares::ClientShares, middleware};
use crate::{
    metrics::Metrics,
    process::shutdown::{ShutdownSignal, unless_stopped},
};

/// Time in which a client must send its headers; an idle connection is closed after the same time.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a client may leave an answer unread once the socket's buffers are full.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time that answers in progress have to end at shutdown.
const GRACE: Duration = Duration::from_secs(3);
/// The least time between two log lines about refused connections.
const REFUSALS_LOGGED_EVERY: Duration = Duration::from_secs(60);

/// Limits on the number of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// The limit of all connections.
    pub total: usize,
    /// The limit of one client address: an IPv4 address or an IPv6 /64. Its network, an IPv4 /24 or an IPv6
    /// /48, has four times as many.
    pub per_client: usize,
}

impl ConnectionLimits {
    /// Returns these limits, lowered to the file descriptors less 256, or to half of them below 512.
    pub fn within(self, descriptors: u64) -> Self {
        let total = connections_within(self.total, descriptors);
        Self { total, per_client: self.per_client.min(total) }
    }
}

/// Serves until shutdown, then lets answers in progress finish.
pub async fn serve<F>(
    listener: TcpListener,
    filter: F,
    metrics: Metrics,
    limits: ConnectionLimits,
    proxies: TrustedProxies,
    mut stop: ShutdownSignal,
) where
    F: Filter<Extract = (Response,), Error = Infallible> + Clone + Send + Sync + 'static,
    F::Future: Send,
{
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(limits.total));
    let shares = Arc::new(ClientShares::new(limits.per_client));
    let metrics = Arc::new(metrics);
    let mut refusals = RefusalLog::default();
    loop {
        // Waiting for room must not delay the shutdown.
        let place = unless_stopped(&mut stop, Arc::clone(&room).acquire_owned()).await;
        let Some(Ok(place)) = place else { break };
        let Some(accepted) = unless_stopped(&mut stop, listener.accept()).await else { break };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // The client hung up before it was accepted, or the machine is out of descriptors or memory.
                tracing::warn!(error = %error.kind(), "connection not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let share = if proxies.trusts(peer.ip()) { None } else { Some(network(peer.ip())) };
        let share = match share.map(|client| shares.take(client)) {
            None => None,
            Some(Some(share)) => Some(share),
            Some(None) => {
                metrics.http_refused.inc();
                refusals.log();
                continue;
            }
        };
        let connection = graceful.watch(connection(stream, peer, filter.clone(), Arc::clone(&metrics)));
        let open = metrics.http_connections.clone();
        open.inc();
        tokio::spawn(async move {
            // A client that went away, or was too slow, is not our failure.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
            open.dec();
            drop((place, share));
        });
    }
    drop(listener);
    if tokio::time::timeout(GRACE, graceful.shutdown()).await.is_err() {
        tracing::info!("some clients were still waiting; their relays stay in the journal");
    }
}

fn connection<F>(
    stream: TcpStream,
    peer: SocketAddr,
    filter: F,
    metrics: Arc<Metrics>,
) -> impl GracefulConnection<Error = hyper::Error> + Send
where
    F: Filter<Extract = (Response,), Error = Infallible> + Clone + Send + Sync + 'static,
    F::Future: Send,
{
    let mut stream = TimeoutWriter::new(stream);
    stream.set_timeout(Some(WRITE_TIMEOUT));
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(32 * 1024)
        .serve_connection(TokioIo::new(Box::pin(stream)), middleware::service(peer, filter, metrics))
}

/// Logs refused connections at a bounded rate: a flood must not fill the log.
#[derive(Debug, Default)]
struct RefusalLog {
    logged: Option<Instant>,
    since: u64,
}

impl RefusalLog {
    fn log(&mut self) {
        self.since = self.since.saturating_add(1);
        if self.logged.is_none_or(|logged| logged.elapsed() >= REFUSALS_LOGGED_EVERY) {
            // Addresses of clients are not logged.
            tracing::warn!(count = self.since, "connections refused: their client's share is used up");
            *self = Self { logged: Some(Instant::now()), since: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ConnectionLimits = ConnectionLimits { total: 1_024, per_client: 64 };

    #[test]
    fn connections_stay_below_the_descriptors() {
        assert_eq!(LIMITS.within(1_024), ConnectionLimits { total: 768, per_client: 64 });
        assert_eq!(LIMITS.within(64), ConnectionLimits { total: 32, per_client: 32 });
        let unit = include_str!("../../systemd/relayer-daemon.service");
        let limit = unit.lines().find_map(|line| line.strip_prefix("LimitNOFILE=")).unwrap();
        let within = LIMITS.within(limit.parse().unwrap());
        assert_eq!(within, LIMITS, "the unit has too few for the default limit");
    }
}
