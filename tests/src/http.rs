//! HTTP clients, and the accept loop of servers.

use std::sync::Once;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A client with a bound on every request, else as [`builder`] has it.
pub fn client(timeout: Duration) -> reqwest::Client {
    builder().timeout(timeout).build().expect("a client with these settings can be built")
}

/// What all clients have in common: no proxy, the daemon's TLS provider, and a new connection for each
/// request, since a server may close an idle one just as it is used again, and the request would be lost.
pub fn builder() -> reqwest::ClientBuilder {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // An error says that another one is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0)
}

/// Serves every connection to `listener` in a task of its own; dropping the result closes the port and all of
/// them.
pub(crate) fn accept<F>(listener: TcpListener, serve: impl Fn(TcpStream) -> F + Send + 'static) -> JoinSet<()>
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(serve(stream));
            while connections.try_join_next().is_some() {}
        }
    });
    server
}
