//! Gates that share their nonces through a real Redis server.
//!
//! 1. Of two hundred concurrent copies of one request over two gates exactly one is admitted.
//! 2. Redis killed or standing still: 503, and never a replay. Redis back: the gates go on, and admit nothing
//!    that was signed before.
//! 3. A full Redis refuses, and forgets no nonce.
//! 4. `check` says whether Redis can hold nonces, and never its password.
//! 5. With `rediss://` the server's certificate has to be by an authority that the machine trusts.

use std::time::{Duration, Instant};

use alloy::signers::local::PrivateKeySigner;
use e2e::anvil::CHAIN_ID;
use e2e::chain::Chain;
use e2e::gate::{Gate, ORIGIN};
use e2e::http;
use e2e::process::wait_until;
use e2e::redis::Redis;
use e2e::reverse_proxies::Kind;
use e2e::seed::{chain_of_one, wallet};
use e2e::signed_requests::{Draft, RawAnswer, Signed};
use e2e::tls::{Authority, TlsFront};
use futures_util::future::join_all;

const PATIENCE: Duration = Duration::from_secs(30);

/// What Envoy asks about a request: the target is behind the policy.
async fn ask(gate: &Gate, request: &Signed) -> RawAnswer {
    request.asked_by_envoy().send(gate.url()).await.unwrap()
}

fn signed() -> Signed {
    Draft::get(ORIGIN, "/items").sign(&agent(), CHAIN_ID)
}

fn agent() -> PrivateKeySigner {
    wallet("good")
}

fn configuration(chain: &Chain, redis: &str) -> String {
    let registry = chain.contracts.registry.to_string();
    let text = Kind::Envoy.gate(ORIGIN, CHAIN_ID, chain.node.url(), &registry).unwrap();
    text + &format!("\n[redis]\nurl = \"{redis}\"\n")
}

/// Waits until a request is admitted that was signed just before, and returns it.
async fn admitted(gate: &Gate) -> Signed {
    let mut last = None;
    wait_until("admitted", PATIENCE, async || {
        let request = signed();
        let status = ask(gate, &request).await.status;
        last = Some(request);
        status == 200
    })
    .await;
    last.unwrap()
}

async fn readiness(gate: &Gate) -> (u16, String) {
    let answer = http::client(PATIENCE).get(format!("{}/readyz", gate.url())).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

#[tokio::test]
async fn of_two_hundred_copies_of_a_request_over_two_gates_one_is_admitted() {
    let (chain, redis) = (chain_of_one().await.unwrap(), Redis::start(&[]).await.unwrap());
    let configuration = configuration(&chain, &redis.url());
    let gates = [Gate::start(&configuration).await.unwrap(), Gate::start(&configuration).await.unwrap()];
    for gate in &gates {
        admitted(gate).await;
    }
    let request = signed();
    let answers = join_all((0..200).map(|copy| ask(&gates[copy % 2], &request))).await;
    let count = |status: u16| answers.iter().filter(|answer| answer.status == status).count();
    assert_eq!((count(200), count(401)), (1, 199));
    assert!(answers.iter().all(|answer| answer.status == 200 || answer.body.contains("nonce_reused")));
    // Nor does the gate for nginx's refusals say otherwise.
    let mut explained = request.clone();
    explained.draft.target = format!("/refusal/api{}", request.draft.target);
    let explained = explained.send(gates[0].url()).await.unwrap();
    assert!(explained.status == 401 && explained.body.contains("nonce_reused"), "{explained:?}");
}

#[tokio::test]
async fn a_redis_that_is_away_or_stands_still_refuses_and_after_it_gates_go_on_without_a_replay() {
    let (chain, mut redis) = (chain_of_one().await.unwrap(), Redis::start(&[]).await.unwrap());
    let gate = Gate::start(&configuration(&chain, &redis.url())).await.unwrap();
    admitted(&gate).await;

    redis.stand_still(true).unwrap();
    for _ in 0..3 {
        let asked = Instant::now();
        let refused = ask(&gate, &signed()).await;
        assert!(refused.status == 503 && refused.body.contains("nonce_store_unavailable"), "{refused:?}");
        assert_eq!(refused.header("kya-wallet"), [""]);
        // 250 ms, and what a loaded machine adds.
        assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    }
    redis.stand_still(false).unwrap();
    let before = admitted(&gate).await;

    redis.kill();
    let refused = ask(&gate, &signed()).await;
    assert!(refused.status == 503 && refused.body.contains("nonce_store_unavailable"), "{refused:?}");
    wait_until("not ready", PATIENCE, async || readiness(&gate).await.0 == 503).await;
    let (_, words) = readiness(&gate).await;
    assert!(words.contains("Redis does not answer"), "{words}");

    // It has lost every nonce: what was admitted before it was killed is not admitted again.
    redis.go_on().await.unwrap();
    admitted(&gate).await;
    let replayed = ask(&gate, &before).await;
    assert!(replayed.status == 401 && replayed.body.contains("nonce_reused"), "{replayed:?}");
    // A gate that starts now knows nothing of it either.
    let another = Gate::start(&configuration(&chain, &redis.url())).await.unwrap();
    let replayed = ask(&another, &before).await;
    assert!(replayed.status == 401 && replayed.body.contains("nonce_reused"), "{replayed:?}");
}

#[tokio::test]
async fn check_says_whether_redis_can_hold_nonces() {
    let chain = chain_of_one().await.unwrap();
    let good = Redis::start(&["--requirepass", "k3y"]).await.unwrap();
    let with = |password: &str| good.url().replace("//", &format!("//:{password}@"));
    let forgetful = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let forgetful = Redis::start(&forgetful).await.unwrap();
    for (redis, is_good, words) in [
        (with("k3y"), true, "in Redis at 127.0.0.1"),
        (with("wr0ng"), false, "nonces"),
        (forgetful.url(), false, "allkeys-lru, and has to be noeviction"),
        ("redis://127.0.0.1:1".to_owned(), false, "Redis at 127.0.0.1:1"),
    ] {
        let (passed, printed) = Gate::check(&configuration(&chain, &redis)).await.unwrap();
        let line = printed.lines().find(|line| line.contains("nonces")).unwrap_or(&printed);
        assert!(passed == is_good && line.contains(words), "{redis}: {printed}");
        assert!(line.starts_with(if is_good { '✓' } else { '✗' }), "{printed}");
        assert!(!printed.contains("k3y") && !printed.contains("wr0ng"), "{printed}");
    }
}

#[tokio::test]
async fn a_full_redis_refuses_and_forgets_no_nonce() {
    let chain = chain_of_one().await.unwrap();
    let redis = Redis::start(&[]).await.unwrap();
    let gate = Gate::start(&configuration(&chain, &redis.url())).await.unwrap();
    let before = admitted(&gate).await;
    redis.limit_memory("1").await.unwrap();
    let refused = ask(&gate, &signed()).await;
    assert!(refused.status == 503 && refused.body.contains("nonce_store_full"), "{refused:?}");
    assert_eq!(ask(&gate, &before).await.status, 503);
    redis.limit_memory("0").await.unwrap();
    assert_eq!(ask(&gate, &before).await.status, 401);
    assert_eq!(ask(&gate, &signed()).await.status, 200);
}

#[tokio::test]
async fn over_tls_the_certificate_of_redis_has_to_be_by_a_trusted_authority() {
    let (chain, redis) = (chain_of_one().await.unwrap(), Redis::start(&[]).await.unwrap());
    let authority = Authority::new().unwrap();
    let front = TlsFront::start(&authority, &redis.url()).await.unwrap();
    let configuration = configuration(&chain, &front.url().replace("https://", "rediss://"));

    let gate = Gate::start_trusting(authority.bundle(), &configuration).await.unwrap();
    let request = admitted(&gate).await;
    let replayed = ask(&gate, &request).await;
    assert!(replayed.status == 401 && replayed.body.contains("nonce_reused"), "{replayed:?}");

    let (passed, printed) = Gate::check(&configuration).await.unwrap();
    let line = printed.lines().find(|line| line.contains("nonces")).unwrap_or(&printed);
    assert!(!passed && line.starts_with('✗') && line.to_lowercase().contains("certificate"), "{printed}");
    let other = Authority::new().unwrap();
    assert!(Gate::start_trusting(other.bundle(), &configuration).await.is_err());
}
