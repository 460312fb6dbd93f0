//! Endpoints over HTTPS, with a certificate authority that the operator names in `SSL_CERT_FILE`.
//!
//! 1. A relay over HTTPS, from a certificate of that authority.
//! 2. Without that authority, with the wrong name or past its date nothing is sent, and `check` says which it
//!    is.
//! 3. `check` tells a refused connection, an unknown name, a plain server and silence apart.

use e2e::daemon::{Daemon, DaemonOptions, check};
use e2e::fault::{Fault, Rule};
use e2e::process::free_port;
use e2e::tls::{Authority, TlsFront};

use crate::audit::{Stage, agent};

/// What `check` says of its only endpoint.
async fn problem(options: &DaemonOptions) -> String {
    let (good, printed) = check(options).await.unwrap();
    assert!(!good, "{printed}");
    let line = printed.lines().find(|line| line.starts_with("✗ rpc")).unwrap_or_else(|| panic!("{printed}"));
    line.rsplit_once(": ").unwrap().1.to_owned()
}

#[tokio::test]
async fn a_relay_goes_over_https_where_the_operators_authority_is_trusted() {
    let stage = Stage::set().await;
    let authority = Authority::new().unwrap();
    let front = TlsFront::start(&authority, stage.proxy.url()).await.unwrap();
    let options =
        stage.options.clone().var("RPC_URL", front.url()).var("SSL_CERT_FILE", authority.bundle().display());
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let request = stage.desk.registration(&agent("alice"), 0);
    client.relay(&request).await.ok();
    stage.audit(&client, &[&request]).await;
}

#[tokio::test]
async fn a_certificate_that_is_not_right_is_named_and_nothing_is_sent() {
    let stage = Stage::set().await;
    let (authority, other) = (Authority::new().unwrap(), Authority::new().unwrap());
    let options = stage.options.clone().var("SSL_CERT_FILE", authority.bundle().display());
    let upstream = stage.proxy.url();
    for (front, expected) in [
        (TlsFront::start(&other, upstream).await, "certificate not trusted"),
        (
            TlsFront::start_as(&authority, "rpc.example", 4000, upstream).await,
            "certificate is for another host name",
        ),
        (TlsFront::start_as(&authority, "localhost", 2001, upstream).await, "certificate expired"),
    ] {
        let front = front.unwrap();
        assert_eq!(problem(&options.clone().var("RPC_URL", front.url())).await, expected);
    }
    assert_eq!(stage.proxy.posts(), 0, "nothing was sent");
}

#[tokio::test]
async fn what_is_wrong_with_a_connection_is_said() {
    let stage = Stage::set().await;
    let at = |url: String| stage.options.clone().var("RPC_URL", url).var("RPC_TIMEOUT_SECONDS", 1);
    let refused = format!("http://127.0.0.1:{}", free_port().unwrap());
    assert_eq!(problem(&at(refused)).await, "connection refused");
    // Reserved never to exist (RFC 6761).
    let unknown = "http://rpc.invalid:8545".to_owned();
    assert_eq!(problem(&at(unknown).var("RPC_TIMEOUT_SECONDS", 30)).await, "host name not resolved");
    let plain = stage.proxy.url().replace("http://", "https://");
    assert_eq!(problem(&at(plain)).await, "TLS handshake failed");
    stage.proxy.inject(Rule::any(Fault::Refuse));
    assert_eq!(problem(&at(stage.proxy.url().to_owned())).await, "connection closed early");
    stage.proxy.heal();
    stage.proxy.inject(Rule::any(Fault::Hang));
    assert_eq!(problem(&at(stage.proxy.url().to_owned())).await, "RPC timeout");
}
