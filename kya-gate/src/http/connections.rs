//! HTTP connections: accepted, timed out, and let finish at the end.

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::GracefulShutdown,
};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, watch},
};

use super::App;

/// How long a proxy may take to send its headers, and keep an idle connection.
const HEADER_TIMEOUT: Duration = Duration::from_secs(75);
/// How long answers in progress may take at the end.
const GRACE: Duration = Duration::from_secs(3);
/// The most connections. Beyond it new ones wait in the kernel's queue.
const CONNECTIONS: usize = 4_096;
/// The longest head of a request: a field of 16 KiB is refused by its limit, and not by this one.
const HEAD_BYTES: usize = 128 * 1024;

/// Serves until `stop` turns true, then lets answers in progress finish.
pub async fn serve(listener: TcpListener, app: Arc<App>, mut stop: watch::Receiver<bool>) {
    let (graceful, room) = (GracefulShutdown::new(), Arc::new(Semaphore::new(CONNECTIONS)));
    loop {
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = accept(&listener, &room) => accepted,
        };
        let Some((place, stream, peer)) = accepted else {
            // The proxy hung up before it was accepted, or the machine is out of descriptors.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        // Answers are small: waiting for more of them would only delay them.
        let _ = stream.set_nodelay(true);
        let app = Arc::clone(&app);
        let service = service_fn(move |request| {
            let app = Arc::clone(&app);
            async move { Ok::<_, Infallible>(app.respond(peer, request).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "connection ended");
            }
            drop(place);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(GRACE, graceful.shutdown()).await;
}

/// The next connection, once there is room for it.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(tokio::sync::OwnedSemaphorePermit, tokio::net::TcpStream, SocketAddr)> {
    let place = Arc::clone(room).acquire_owned().await.ok()?;
    let (stream, peer) = listener.accept().await.ok()?;
    Some((place, stream, peer))
}
