//! The one way HTTP clients are made here.

use std::sync::Once;
use std::time::Duration;

/// A client with a bound on every request. TLS uses the same provider as the daemon's.
pub fn client(timeout: Duration) -> reqwest::Client {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // Somebody else in this process may have installed it already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    reqwest::Client::builder()
        .timeout(timeout)
        .no_proxy()
        .build()
        .expect("a client with these settings can be built")
}
