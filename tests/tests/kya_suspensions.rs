//! How long a suspended agent is still provisioned, at several instances, by verdicts from the snapshot.
//!
//! Agents are suspended at random times. While the first third is, all goes well; in the second third the
//! node lists logs late; in the last one it answers every other request only. An error is no verdict.
//!
//! `KYA_SUSPENSIONS=1000 KYA_SUSPENSIONS_TTL=60 cargo all-test --test kya_suspensions -- --nocapture`
//! measures a thousand suspensions with the default TTL.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use alloy::primitives::Address;
use e2e::anvil::{AnvilOptions, wall_clock};
use e2e::chain::{Chain, Write};
use e2e::client::Client;
use e2e::fault::{Fault, Rule};
use e2e::process::wait_until;
use e2e::seed;
use e2e::stage::Stage;
use serde_json::json;

const WAIT: Duration = Duration::from_secs(120);
/// How late logs are in the second third.
const LATE: Duration = Duration::from_secs(3);
/// The most wallets of a request.
const LIST: usize = 100;
/// Beyond the TTL: an answer that is on its way, on a busy machine.
const MARGIN: Duration = Duration::from_secs(2);

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().unwrap())
}

fn wallet(id: u64) -> Address {
    seed::wallet(&format!("agent {id}")).address()
}

/// When agents were suspended, by their ids.
#[derive(Debug, Default)]
struct Suspended {
    at: BTreeMap<u64, Instant>,
    /// No more will be.
    is_over: bool,
}

/// Asks an instance for all suspended agents until it provisions none; the longest time after a suspension at
/// which it still did, and how many of its answers were errors.
async fn watch(client: Client, suspended: Arc<Mutex<Suspended>>) -> (Duration, u64) {
    let (mut seen, mut longest, mut errors) = (BTreeMap::new(), Duration::ZERO, 0);
    loop {
        let (open, is_over): (Vec<(u64, Instant)>, bool) = {
            let suspended = suspended.lock().unwrap();
            let open = suspended.at.iter().filter(|(id, _)| !seen.contains_key(*id));
            (open.map(|(id, at)| (*id, *at)).collect(), suspended.is_over)
        };
        if open.is_empty() && is_over {
            return (longest, errors);
        }
        for part in open.chunks(LIST) {
            let wallets: Vec<String> = part.iter().map(|(id, _)| wallet(*id).to_string()).collect();
            let answer = client
                .post("/api/v1/kya", "application/json", json!({ "wallets": wallets }).to_string())
                .await;
            let received = Instant::now();
            if answer.status != 200 {
                errors += 1;
                continue;
            }
            for ((id, at), item) in part.iter().zip(answer.json()["data"].as_array().unwrap()) {
                match item["decision"].as_str() {
                    Some("provision") => longest = longest.max(received.saturating_duration_since(*at)),
                    Some(_) => drop(seen.insert(*id, ())),
                    None => errors += 1,
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_instance_provisions_a_suspended_agent_for_longer_than_the_ttl() {
    let (count, ttl) = (setting("KYA_SUSPENSIONS", 12), setting("KYA_SUSPENSIONS_TTL", 8));
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await.unwrap();
    let registration =
        |id| Write::new(chain.owner(), &seed::registration_call(id, wallet(id), &format!("Agent {id}"), 0));
    chain.send_all(&(1..=count).map(registration).collect::<Vec<_>>(), None).await.unwrap();
    let stage = Stage::indexed(chain, |options| options.var("KYA_TTL_SECONDS", ttl)).await.unwrap();
    let others = [
        stage.another(|options| options).await.unwrap().unwrap(),
        stage.another(|options| options).await.unwrap().unwrap(),
    ];
    let clients = [stage.client.clone(), others[0].client(), others[1].client()];
    for client in &clients {
        wait_until("verdicts of the snapshot", WAIT, async || {
            let answer = client.get(&format!("/api/v1/kya/{}", wallet(count))).await;
            answer.status == 200
                && answer.json()["decision"] == "provision"
                && answer.header("server-timing").contains("snapshot")
        })
        .await;
    }
    let suspended = Arc::new(Mutex::new(Suspended::default()));
    let watching = clients.map(|client| tokio::spawn(watch(client, Arc::clone(&suspended))));
    let mut chance = 1_u64;
    for id in 1..=count {
        if id == count / 3 + 1 {
            stage.proxy.inject(Rule::on("eth_getLogs", Fault::LateLogs(LATE)));
        }
        if id == count * 2 / 3 + 1 {
            stage.proxy.heal();
            stage.proxy.inject(Rule::any(Fault::Refuse).every(2));
        }
        chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        tokio::time::sleep(Duration::from_millis((chance >> 33) % 1_200)).await;
        let at = Instant::now();
        stage.chain.send(stage.chain.owner(), seed::suspension(id, "for a test")).await.unwrap();
        suspended.lock().unwrap().at.insert(id, at);
    }
    stage.proxy.heal();
    suspended.lock().unwrap().is_over = true;
    let (mut longest, mut errors) = (Duration::ZERO, 0);
    for watching in watching {
        let (of_instance, errors_of_instance) = tokio::time::timeout(WAIT, watching).await.unwrap().unwrap();
        longest = longest.max(of_instance);
        errors += errors_of_instance;
    }
    println!(
        "{count} suspensions, 3 instances, TTL {ttl} s: the last provision {longest:?} after its block, {errors} errors"
    );
    assert!(longest < Duration::from_secs(ttl) + MARGIN, "{longest:?}");
}
