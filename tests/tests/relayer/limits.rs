//! Rate limits: who counts for what, and what does not help against them.
//!
//! 1. The 21st request from one IP is refused, whatever the first 20 were; another IP is served.
//! 2. The 11th request of one signer is refused, wherever it comes from; another signer is served.
//! 3. A forged `X-Forwarded-For` changes nothing; behind a trusted proxy its last entry counts, and only
//!    that; a peer that is no trusted proxy is not believed, and a number of hops alone is refused.
//! 4. IPv6 clients count by /64.
//! 5. Forged signatures do not charge the signer they name.
//! 6. `GET /nonce` and `GET /status` are limited per client, and what they ask of the chain is shared for a
//!    second.
//! 7. The messages carry the configured numbers, and `/status` shows them.

use std::net::Ipv4Addr;
use std::time::Instant;

use e2e::daemon::{Daemon, DaemonOptions};
use e2e::relay::{RelayClient, Signed, attest, register};
use futures_util::future::join_all;

use crate::audit::{Stage, agent};

/// The published limits: 20 per hour and IP, 10 per hour and signer.
fn limited(stage: &Stage) -> DaemonOptions {
    stage.options.clone().without("RATE_LIMIT_PER_IP").without("RATE_LIMIT_PER_SIGNER")
}

/// A request that costs the daemon little, and the chain nothing.
fn cheap(stage: &Stage) -> Signed {
    let signer = agent("cheap");
    let mut request = stage.desk.draft(&signer, 0, &attest(1));
    request.to = signer.address();
    stage.desk.sign(&signer, request)
}

async fn served(client: &RelayClient, request: &Signed) {
    let answer = client.relay(request).await;
    assert_eq!(answer.status, 403, "{}", answer.text);
}

async fn limited_by_ip(client: &RelayClient, request: &Signed) {
    let answer = client.relay(request).await;
    answer.refused(429, "IP_RATE_LIMITED", "IP rate limit exceeded (20/hour)");
    // A leaky bucket of 20 an hour lets one more through every 3 minutes.
    assert!((1..=181).contains(&answer.number("retry-after")), "{:?}", answer.headers);
}

#[tokio::test]
async fn the_21st_request_from_one_ip_is_refused_and_a_forged_header_does_not_help() {
    let stage = Stage::set().await;
    let daemon = Daemon::start(&limited(&stage)).await.unwrap();
    let client = daemon.client();
    let request = cheap(&stage);
    for _ in 0..20 {
        served(&client, &request).await;
    }
    limited_by_ip(&client, &request).await;
    for forged in ["203.0.113.9", "203.0.113.9, 198.51.100.7", "::1", "nonsense"] {
        limited_by_ip(&client.forwarded_for(forged), &request).await;
    }
    limited_by_ip(&client.with("x-real-ip", "203.0.113.9"), &request).await;
    limited_by_ip(&client.with("forwarded", "for=203.0.113.9"), &request).await;
    limited_by_ip(&client.with("cf-connecting-ip", "203.0.113.9"), &request).await;
    // Asking is free.
    for _ in 0..30 {
        client.get("/domain").await.ok();
    }
    served(&client.from_address(Ipv4Addr::new(127, 0, 0, 2)), &request).await;
}

#[tokio::test]
async fn behind_one_trusted_proxy_the_last_entry_counts_and_ipv6_by_its_64() {
    let stage = Stage::set().await;
    let daemon = Daemon::start(&limited(&stage).var("TRUSTED_PROXIES", "127.0.0.1")).await.unwrap();
    let client = daemon.client();
    let request = cheap(&stage);
    for index in 0..20 {
        // Whatever the client wrote itself stands to the left, and counts for nothing.
        served(&client.forwarded_for(&format!("10.0.0.{index}, 203.0.113.9")), &request).await;
    }
    limited_by_ip(&client.forwarded_for("203.0.113.9"), &request).await;
    limited_by_ip(&client.forwarded_for("198.51.100.7, 203.0.113.9"), &request).await;
    served(&client.forwarded_for("203.0.113.9, 198.51.100.7"), &request).await;

    for index in 0..20 {
        served(&client.forwarded_for(&format!("2001:db8:1:2:{index:x}::{index:x}")), &request).await;
    }
    limited_by_ip(&client.forwarded_for("2001:db8:1:2:ffff::1"), &request).await;
    served(&client.forwarded_for("2001:db8:1:3::1"), &request).await;
}

#[tokio::test]
async fn a_peer_outside_the_trusted_networks_is_not_believed() {
    let stage = Stage::set().await;
    let options =
        limited(&stage).var("TRUSTED_PROXIES", "127.0.0.2, 10.0.0.0/8").var("TRUSTED_PROXY_HOPS", 1);
    let daemon = Daemon::start(&options).await.unwrap();
    let stranger = daemon.client();
    let request = cheap(&stage);
    for index in 0..20 {
        served(&stranger.forwarded_for(&format!("203.0.113.{index}")), &request).await;
    }
    limited_by_ip(&stranger.forwarded_for("203.0.113.99"), &request).await;
    let proxy = stranger.from_address(Ipv4Addr::new(127, 0, 0, 2));
    for index in 0..25 {
        served(&proxy.forwarded_for(&format!("203.0.113.{index}")), &request).await;
    }
}

#[tokio::test]
async fn hops_without_trusted_networks_are_refused_at_the_start() {
    let stage = Stage::set().await;
    let refusal = Daemon::refuse(&stage.options.clone().var("TRUSTED_PROXY_HOPS", 1)).await.unwrap();
    assert!(refusal.contains("✗ proxies") && refusal.contains("needs TRUSTED_PROXIES"), "{refusal}");
}

#[tokio::test]
async fn the_11th_request_of_one_signer_is_refused_and_forgeries_do_not_charge_it() {
    let stage = Stage::set().await;
    let daemon = Daemon::start(&limited(&stage).var("TRUSTED_PROXIES", "127.0.0.1")).await.unwrap();
    let client = daemon.client();
    let (alice, mallory) = (agent("alice"), agent("mallory"));
    let from = |index: u64| client.forwarded_for(&format!("203.0.113.{index}"));

    let victims = stage.desk.draft(&alice, 0, &attest(1));
    for index in 0..15 {
        let forged = stage.desk.sign(&mallory, victims.clone());
        let message = "Invalid signature or nonce mismatch";
        from(index).relay(&forged).await.refused(401, "INVALID_SIGNATURE", message);
    }
    let mut executed = vec![stage.desk.registration(&alice, 0)];
    executed.extend((1..10).map(|nonce| stage.desk.request(&alice, nonce, &attest(1))));
    for (index, request) in (100..).zip(&executed) {
        from(index).relay(request).await.ok();
    }
    let eleventh = stage.desk.request(&alice, 10, &attest(1));
    let answer = from(200).relay(&eleventh).await;
    answer.refused(429, "SIGNER_RATE_LIMITED", "Signer rate limit exceeded (10/hour)");
    assert!((1..=361).contains(&answer.number("retry-after")), "{:?}", answer.headers);

    let bobs = stage.desk.registration(&agent("bob"), 0);
    from(200).relay(&bobs).await.ok();
    executed.push(bobs);
    stage.audit(&client, &executed.iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn reads_are_limited_per_client() {
    let stage = Stage::set().await;
    let daemon = Daemon::start(&stage.options.clone().var("RATE_LIMIT_READS", 5)).await.unwrap();
    let client = daemon.client();
    let nonce = format!("/nonce/{}", agent("alice").address());
    for path in ["/status", &nonce, "/status", &nonce, &nonce] {
        client.get(path).await.ok();
    }
    for path in ["/status", &nonce] {
        let answer = client.get(path).await;
        answer.refused(429, "IP_RATE_LIMITED", "IP rate limit exceeded (5/minute)");
        assert!((1..=13).contains(&answer.number("retry-after")), "{:?}", answer.headers);
    }
    for path in ["/domain", "/livez", "/metrics", "/openapi.json"] {
        assert_eq!(client.get(path).await.status, 200, "{path} costs nothing");
    }
    client.from_address(Ipv4Addr::new(127, 0, 0, 2)).get("/status").await.ok();
}

#[tokio::test]
async fn questions_for_a_relays_state_are_limited_per_client() {
    let stage = Stage::set().await;
    let daemon = Daemon::start(&stage.options.clone().var("RATE_LIMIT_POLLS", 3)).await.unwrap();
    let client = daemon.client();
    let request = stage.desk.registration(&agent("alice"), 0);
    client.relay(&request).await.ok();
    for _ in 0..3 {
        client.state(&request).await.ok();
    }
    client.state(&request).await.refused(429, "IP_RATE_LIMITED", "IP rate limit exceeded (3/minute)");
    client.from_address(Ipv4Addr::new(127, 0, 0, 2)).state(&request).await.ok();
}

#[tokio::test]
async fn a_crowd_that_reads_costs_the_provider_two_calls_a_second() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    let alice = agent("alice");
    let nonce = format!("/nonce/{}", alice.address());
    stage.proxy.reset();
    let started = Instant::now();
    for _ in 0..10 {
        let status = (0..10).map(|_| client.get("/status"));
        let nonces = (0..10).map(|_| client.get(&nonce));
        let (status, nonces) = tokio::join!(join_all(status), join_all(nonces));
        for answer in status.into_iter().chain(nonces) {
            answer.ok();
        }
    }
    let seconds = usize::try_from(started.elapsed().as_secs()).unwrap() + 1;
    let calls = stage.proxy.calls("eth_call");
    assert!((1..=seconds).contains(&calls), "{calls} calls in {seconds} s for 100 nonces");
    // The monitor asks for the balance every 15 seconds besides.
    let calls = stage.proxy.calls("eth_getBalance");
    assert!(
        (1..=seconds + seconds / 15 + 1).contains(&calls),
        "{calls} calls in {seconds} s for 100 statuses"
    );

    // Whoever has just been told the outcome is not told the old nonce.
    for expected in 1..=3 {
        client.get(&nonce).await.ok();
        let request =
            stage.desk.request(&alice, expected - 1, &register(agent(&format!("{expected}")).address()));
        client.relay(&request).await.ok();
        assert_eq!(client.get(&nonce).await.ok()["nonce"], expected);
    }
}

#[tokio::test]
async fn the_messages_carry_the_configured_numbers() {
    let stage = Stage::set().await;
    let options = stage.options.clone().var("RATE_LIMIT_PER_IP", 3).var("RATE_LIMIT_PER_SIGNER", 1);
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let limits = client.get("/status").await.ok()["limits"].clone();
    assert_eq!((&limits["perIpPerHour"], &limits["perSignerPerHour"]), (&3.into(), &1.into()));
    let alice = agent("alice");
    client.relay(&stage.desk.registration(&alice, 0)).await.ok();
    let second = stage.desk.request(&alice, 1, &attest(1));
    client.relay(&second).await.refused(429, "SIGNER_RATE_LIMITED", "Signer rate limit exceeded (1/hour)");
    served(&client, &cheap(&stage)).await;
    let third = client.relay(&cheap(&stage)).await;
    third.refused(429, "IP_RATE_LIMITED", "IP rate limit exceeded (3/hour)");
}
