//! A relay over an HTTPS endpoint, with a certificate authority that the operator names in `SSL_CERT_FILE`.
//! With another authority, a wrong name or an expired certificate nothing is sent, and `check` names the
//! fault; it also distinguishes a refused connection, an unknown name, a plain server and silence.

use e2e::tls::{Authority, TlsFront};

use crate::prelude::*;

#[tokio::test]
async fn a_relay_goes_over_https_and_what_is_wrong_with_a_connection_is_said() {
    let mut stage = RelayerFixture::set().await;
    let (authority, other) = (Authority::new().unwrap(), Authority::new().unwrap());
    stage.options = stage.options.var("SSL_CERT_FILE", authority.bundle().display());
    let upstream = stage.proxy.url();
    let front = TlsFront::start(&authority, upstream).await.unwrap();
    let (daemon, client) = start(&stage.options.clone().var("RPC_URL", front.url())).await;
    stage.register(&client, "alice").await;
    stage.audit(&client).await;
    daemon.kill();

    let asked = stage.asked();
    let untrusted = TlsFront::start(&other, upstream).await.unwrap();
    let misnamed = TlsFront::start_as(&authority, "rpc.example", 4000, upstream).await.unwrap();
    let expired = TlsFront::start_as(&authority, "localhost", 2001, upstream).await.unwrap();
    // The name is longer than DNS allows (RFC 1035), so it is refused without the machine's resolver, which
    // may be slow or silent.
    let unknown = format!("http://{}.invalid:8545", "a".repeat(64));
    for (url, fault, expected) in [
        (untrusted.url(), None, "certificate not trusted"),
        (misnamed.url(), None, "certificate is for another host name"),
        (expired.url(), None, "certificate expired"),
        (format!("http://127.0.0.1:{}", free_port().unwrap()), None, "connection refused"),
        (unknown, None, "host name not resolved"),
        (upstream.replace("http://", "https://"), None, "TLS handshake failed"),
        (upstream.to_owned(), Some(NodeFault::Refuse), "connection closed early"),
        (upstream.to_owned(), Some(NodeFault::Hang), "RPC timeout"),
    ] {
        let timeout = if matches!(fault, Some(NodeFault::Hang)) { 1 } else { 30 };
        if let Some(fault) = fault {
            stage.proxy.inject(FaultRule::any(fault));
        } else {
            assert_eq!(stage.asked(), asked, "something was sent before {expected}");
        }
        let options = stage.options.clone().var("RPC_URL", url).var("RPC_TIMEOUT_SECONDS", timeout);
        let (is_good, printed) = options.check().await.unwrap();
        let line = printed.lines().find(|line| line.starts_with("✗ rpc"));
        let line = line.unwrap_or_else(|| panic!("{printed}"));
        assert!(!is_good && line.ends_with(&format!(": {expected}")), "{expected}: {printed}");
        stage.proxy.heal();
    }
}
