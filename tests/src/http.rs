//! HTTP clients, and the accept loop of servers.

use std::net::Ipv4Addr;
use std::sync::{LazyLock, Once};
use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Builds a client with this time-out for every request and the settings of [`builder`].
pub fn client(timeout: Duration) -> reqwest::Client {
    builder().timeout(timeout).build().expect("a client with these settings can be built")
}

/// Returns the settings of all clients: no proxy, the daemon's TLS provider, and a new connection for each
/// request. A server may close an idle connection just as it is used again, and the request would be lost.
pub fn builder() -> reqwest::ClientBuilder {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // An error means that another provider is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0)
}

/// Sends `GET path` with a header to the server at `base`, and returns the connection. Dropping it resets it:
/// workerd takes a connection that is only closed for one that still listens.
pub async fn request_to_reset(base: &str, path: &str, header: &str) -> Result<TcpStream> {
    let address = base.strip_prefix("http://").context("a plain address")?;
    let mut connection = TcpStream::connect(address).await?;
    connection.set_zero_linger()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n{header}\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    Ok(connection)
}

/// Serves every connection to a free local port; returns the port and the tasks. Dropping the tasks closes
/// the port and all connections. They run on a runtime of their own: tests share servers, and each test has
/// its own.
pub(crate) async fn serve<F>(
    connection: impl Fn(TcpStream) -> F + Send + 'static,
) -> Result<(u16, JoinSet<()>)>
where
    F: Future<Output: Send> + Send + 'static,
{
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
    let listener = RUNTIME.spawn(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).await??;
    let port = listener.local_addr()?.port();
    let mut server = JoinSet::new();
    let accept = async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            connections.spawn(connection(stream));
            while connections.try_join_next().is_some() {}
        }
    };
    server.spawn_on(accept, RUNTIME.handle());
    Ok((port, server))
}
