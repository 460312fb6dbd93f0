//! Gates that share their nonces through a real Redis server.
//!
//! 1. Of two hundred concurrent copies of one request over two gates exactly one is admitted.
//! 2. While Redis is full, stopped or killed the gates answer 503, and never admit a replay. Once Redis is
//!    back they go on, and admit nothing that was signed before.
//! 3. A Redis that has become a replica takes no nonce, and `/readyz` reports it.
//! 4. `check` reports whether Redis can hold nonces, and never shows its password. With one that cannot, a
//!    gate inside a service does not start either.
//! 5. With `rediss://` the server's certificate has to be by an authority that the machine trusts.
//! 6. The harness: a server that was killed goes on with the options of its start.

use e2e::gate::{Gate, embedded, start_example, start_with_redis};
use e2e::process::{eventually, wait_until};
use e2e::redis::Redis;
use e2e::reverse_proxies::ReverseProxyKind;
use e2e::signed_requests::{RawAnswer, SignedHttpRequest};
use e2e::tls::{Authority, TlsFront};
use futures_util::future::join_all;

use crate::{PATIENCE, ask, assert_refused, configuration, plain, signed};

/// Options of a server that evicts keys once it is full.
const FORGETFUL: [&str; 4] = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];

async fn with_redis(url: &str) -> String {
    configuration(ReverseProxyKind::Envoy).await + &format!("\n[redis]\nurl = \"{url}\"\n")
}

/// Waits until a freshly signed request is admitted, and returns it.
async fn admitted(gate: &Gate) -> SignedHttpRequest {
    let mut last = None;
    wait_until("admitted", PATIENCE, async || {
        let request = signed("/items");
        let status = ask(gate, &request).await.status;
        last = Some(request);
        status == 200
    })
    .await;
    last.unwrap()
}

/// Waits for a gate's answer that does not report an unavailable nonce store.
async fn told(gate: &Gate, request: &SignedHttpRequest) -> RawAnswer {
    told_by(async || ask(gate, request).await).await
}

/// Repeats `ask` until the answer does not report an unavailable nonce store.
async fn told_by(ask: impl AsyncFn() -> RawAnswer) -> RawAnswer {
    let told = eventually("told", PATIENCE, async || {
        let answer = ask().await;
        (!answer.body.contains("nonce_store_unavailable")).then_some(answer)
    });
    told.await.unwrap()
}

async fn start(text: &str) -> Gate {
    start_with_redis(async || Gate::start(text).await).await.unwrap()
}

#[tokio::test]
async fn two_gates_admit_one_of_two_hundred_copies_and_no_replay_whatever_happens_to_redis() {
    let mut redis = Redis::start(&[]).await.unwrap();
    let text = with_redis(&redis.url()).await;
    let gates = [start(&text).await, start(&text).await];
    for gate in &gates {
        admitted(gate).await;
    }
    let admitted_once = eventually("admitted", PATIENCE, async || {
        let request = signed("/items");
        let answers = join_all((0..200).map(|copy| ask(&gates[copy % 2], &request))).await;
        // On a busy machine Redis may answer too late, which says nothing about the nonce. Where it does so
        // for the copy that spends the nonce, none is admitted.
        let (late, told): (Vec<_>, Vec<_>) =
            answers.iter().partition(|answer| answer.body.contains("nonce_store_unavailable"));
        let (admissions, others): (Vec<_>, Vec<_>) =
            told.into_iter().partition(|answer| answer.status == 200);
        others.into_iter().for_each(|answer| assert_refused(answer, 401, "nonce_reused"));
        assert!(admissions.len() == 1 || admissions.is_empty() && !late.is_empty(), "{admissions:?}");
        (!admissions.is_empty()).then_some(request)
    });
    let request = admitted_once.await.unwrap();
    for gate in &gates {
        assert_refused(&told(gate, &request).await, 401, "nonce_reused");
    }
    // The path for nginx's refusals says the same.
    let explained = request.clone().asking("GET", "/refusal/api/items");
    let explained = told_by(async || explained.send(gates[0].url()).await.unwrap()).await;
    assert_refused(&explained, 401, "nonce_reused");

    let gate = &gates[0];
    redis.limit_memory("1").await.unwrap();
    assert_refused(&told(gate, &signed("/")).await, 503, "nonce_store_full");
    assert_eq!(ask(gate, &request).await.status, 503);
    redis.limit_memory("0").await.unwrap();
    assert_refused(&told(gate, &request).await, 401, "nonce_reused");

    redis.stand_still(true).unwrap();
    for _ in 0..3 {
        let refused = ask(gate, &signed("/")).await;
        assert_refused(&refused, 503, "nonce_store_unavailable");
        assert_eq!(refused.header("kya-wallet"), [""]);
    }
    redis.stand_still(false).unwrap();
    let before = admitted(gate).await;

    redis.kill();
    assert_refused(&ask(gate, &signed("/")).await, 503, "nonce_store_unavailable");
    wait_until("not ready", PATIENCE, async || {
        let answer = plain(gate.url(), "/readyz").await;
        answer.status == 503 && answer.body.contains("Redis takes no writes")
    })
    .await;
    // Redis has lost every nonce: requests admitted before the kill are not admitted again, nor by a gate
    // that starts now.
    redis.go_on().await.unwrap();
    admitted(gate).await;
    let another = start(&text).await;
    for gate in [gate, &another] {
        assert_refused(&told(gate, &before).await, 401, "signed_before_start");
    }
}

#[tokio::test]
async fn a_redis_that_has_become_a_replica_is_not_ready_until_it_takes_writes_again() {
    let redis = Redis::start(&[]).await.unwrap();
    let primary = Redis::start(&[]).await.unwrap();
    let gate = start(&with_redis(&redis.url()).await).await;
    let before = admitted(&gate).await;
    redis.follow(Some(&primary)).await.unwrap();
    let ready = async || plain(gate.url(), "/readyz").await.status == 200;
    wait_until("not ready", PATIENCE, async || !ready().await).await;
    assert_refused(&ask(&gate, &signed("/")).await, 503, "nonce_store_unavailable");
    redis.follow(None).await.unwrap();
    wait_until("ready again", PATIENCE, ready).await;
    // The other server's content has replaced its own, nonces included.
    assert_refused(&told(&gate, &before).await, 401, "signed_before_start");
    admitted(&gate).await;
}

#[tokio::test]
async fn check_says_whether_redis_can_hold_nonces() {
    let good = Redis::start(&["--requirepass", "k3y"]).await.unwrap();
    let with = |password: &str| good.url().replace("//", &format!("//:{password}@"));
    let forgetful = Redis::start(&FORGETFUL).await.unwrap();
    let authority = Authority::new().unwrap();
    let front = TlsFront::start(&authority, &forgetful.url()).await.unwrap();
    for (redis, is_good, words) in [
        (with("k3y"), true, "in redis at 127.0.0.1"),
        (with("wr0ng"), false, "nonces"),
        (forgetful.url(), false, "allkeys-lru, and has to be noeviction"),
        ("redis://127.0.0.1:1".to_owned(), false, "redis at 127.0.0.1:1"),
        (front.url().replace("https://", "rediss://"), false, "certificate"),
    ] {
        let (passed, printed) = Gate::check(&with_redis(&redis).await).await.unwrap();
        let line = printed.lines().find(|line| line.contains("nonces")).unwrap_or(&printed);
        assert!(passed == is_good && line.to_lowercase().contains(words), "{redis}: {printed}");
        assert!(line.starts_with(if is_good { '✓' } else { '✗' }), "{printed}");
        assert!(!printed.contains("k3y") && !printed.contains("wr0ng"), "{printed}");
    }
}

#[tokio::test]
async fn a_gate_inside_a_service_does_not_start_with_a_redis_that_forgets_nonces() {
    let forgetful = Redis::start(&FORGETFUL).await.unwrap();
    let text = embedded(&with_redis(&forgetful.url()).await).unwrap();
    let error = start_example(&text).await.unwrap_err().to_string();
    assert!(error.contains("allkeys-lru, and has to be noeviction"), "{error}");
}

#[tokio::test]
async fn over_tls_the_certificate_of_redis_has_to_be_by_a_trusted_authority() {
    let redis = Redis::start(&[]).await.unwrap();
    let authority = Authority::new().unwrap();
    let front = TlsFront::start(&authority, &redis.url()).await.unwrap();
    let text = with_redis(&front.url().replace("https://", "rediss://")).await;
    let gate = start_with_redis(async || Gate::start_trusting(authority.bundle(), &text).await);
    let gate = gate.await.unwrap();
    let request = admitted(&gate).await;
    assert_refused(&told(&gate, &request).await, 401, "nonce_reused");
    let other = Authority::new().unwrap();
    assert!(Gate::start_trusting(other.bundle(), &text).await.is_err());
}

#[tokio::test]
async fn a_redis_server_goes_on_with_the_options_of_its_start() {
    let mut redis = Redis::start(&["--requirepass", "k3y"]).await.unwrap();
    for _ in 0..2 {
        let refused = redis.limit_memory("0").await.unwrap_err().to_string();
        assert!(refused.contains("NOAUTH"), "{refused}");
        redis.kill();
        redis.go_on().await.unwrap();
    }
}
