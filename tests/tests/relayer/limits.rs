//! The published limits at the daemon's port: 20 requests an hour of one address, 10 of one signer, with any
//! headers. The README's proxy is in `tests/deployment.rs`.

use crate::prelude::*;

#[tokio::test]
async fn each_limit_is_kept_and_says_how_long_to_wait() {
    let mut stage = RelayerFixture::set().await.var("TRUSTED_PROXIES", "127.0.0.2");
    stage.options = stage.options.without("RATE_LIMIT_PER_IP").without("RATE_LIMIT_PER_SIGNER");
    stage.options = stage.options.var("RATE_LIMIT_READS", 5);
    let (_daemon, client) = stage.daemon().await;
    let limits = client.get("/status").await.ok()["limits"].clone();
    assert_eq!((&limits["perIpPerHour"], &limits["perSignerPerHour"]), (&20.into(), &10.into()));
    let [neighbour, other, proxy] = [3, 4, 2].map(|last| client.from_address(Ipv4Addr::new(127, 0, 0, last)));

    // The request is refused for its target, without a call to the chain.
    let request = stage.registration("cheap").with("to", agent("cheap").address().to_string()).to_string();
    for index in 0..20 {
        let forged = client.forwarded_for(&format!("203.0.113.{index}"));
        assert_eq!(forged.post_relay(request.clone()).await.status, 403);
    }
    let answer = client.with("x-real-ip", "203.0.113.9").post_relay(request.clone()).await;
    answer.refused(429, "IP_RATE_LIMITED", "IP rate limit exceeded (20/hour)");
    assert!((1..=181).contains(&answer.number("retry-after")), "{:?}", answer.headers);
    assert_eq!(neighbour.post_relay(request).await.status, 403, "another address has a limit of its own");

    // Behind a trusted proxy each address is a client of its own.
    let from = |index: u64| proxy.forwarded_for(&format!("198.51.100.{index}"));
    let alice = agent("alice");
    let forged = stage.desk.sign(&agent("mallory"), stage.registration("alice").signed.request);
    for index in 0..12 {
        from(index).relay(&forged).await.refused(401, "INVALID_SIGNATURE", MISMATCH);
    }
    stage.relay(&from(20), &stage.registration("alice")).await;
    for nonce in 1..10 {
        stage.relay(&from(20 + nonce), &stage.desk.request(&alice, nonce, &attest(1))).await;
    }
    let answer = from(40).relay(&stage.desk.request(&alice, 10, &attest(1))).await;
    answer.refused(429, "SIGNER_RATE_LIMITED", "Signer rate limit exceeded (10/hour)");
    assert!((1..=361).contains(&answer.number("retry-after")), "{:?}", answer.headers);
    stage.register(&from(41), "bob").await;

    // The limit refills over time, so the number until a refusal varies.
    let read = async || Some(neighbour.get("/status").await).filter(|answer| answer.status != 200);
    let refusal = eventually("limited", PATIENCE, read).await.unwrap();
    refusal.refused(429, "IP_RATE_LIMITED", "IP rate limit exceeded (5/minute)");
    other.get("/status").await.ok();
    for path in ["/domain", "/livez", "/metrics", "/openapi.json"] {
        assert_eq!(neighbour.get(path).await.status, 200, "{path} costs nothing");
    }
}
