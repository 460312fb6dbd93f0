//! The one way HTTP clients are made here.

use std::sync::Once;
use std::time::Duration;

/// A client with a bound on every request, else as [`builder`] has it.
pub fn client(timeout: Duration) -> reqwest::Client {
    builder().timeout(timeout).build().expect("a client with these settings can be built")
}

/// What every client here has in common: no proxy, the daemon's provider for TLS, and a connection of its own for each
/// request. A server may close one that is idle just as it is used again, and the request is lost.
pub fn builder() -> reqwest::ClientBuilder {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // Somebody else in this process may have installed it already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0)
}
