//! How long a suspended agent is still provisioned, at several instances, by verdicts from the snapshot.
//!
//! Agents are suspended at random times. While the first third is, all goes well; in the second third the
//! node lists logs late; in the last one it answers every other request only. An error is no verdict.

use std::collections::BTreeMap;
use std::sync::Mutex;
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

use super::JSON;

const AGENTS: u64 = 12;
/// The TTL of verdicts.
const TTL: Duration = Duration::from_secs(8);
/// How late logs are in the second third.
const LATE: Duration = Duration::from_secs(3);
/// Beyond the TTL: blocks' times are whole seconds.
const MARGIN: Duration = Duration::from_secs(2);
const WAIT: Duration = Duration::from_secs(120);

fn wallet(id: u64) -> Address {
    seed::wallet(&format!("agent {id}")).address()
}

/// Asks an instance for all agents until it provisions none; the longest time after an agent's suspension at
/// which it was asked, and still did.
async fn watch(client: &Client, suspended: &Mutex<BTreeMap<u64, Instant>>) -> Duration {
    let wallets: Vec<String> = (1..=AGENTS).map(|id| wallet(id).to_string()).collect();
    let body = json!({ "wallets": wallets }).to_string();
    let mut longest = Duration::ZERO;
    wait_until("no agent is provisioned", WAIT, async || {
        let (suspended, asked) = (suspended.lock().unwrap().clone(), Instant::now());
        let answer = client.post("/api/v1/kya", JSON, body.clone()).await;
        if answer.status != 200 {
            return false;
        }
        let list = answer.json();
        let decisions =
            || (1..=AGENTS).zip(list["data"].as_array().unwrap()).map(|(id, item)| (id, &item["decision"]));
        for (id, _) in decisions().filter(|(_, decision)| *decision == "provision") {
            let since = suspended.get(&id).map(|at| asked.saturating_duration_since(*at));
            longest = longest.max(since.unwrap_or_default());
        }
        decisions().all(|(_, decision)| decision == "request_renewal")
    })
    .await;
    longest
}

#[tokio::test(flavor = "multi_thread")]
async fn no_instance_provisions_a_suspended_agent_for_longer_than_the_ttl() {
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await.unwrap();
    let registration =
        |id| Write::new(chain.owner(), &seed::registration_call(id, wallet(id), &format!("Agent {id}"), 0));
    chain.send_all(&(1..=AGENTS).map(registration).collect::<Vec<_>>(), None).await.unwrap();
    let stage = Stage::indexed(chain, |options| options.var("KYA_TTL_SECONDS", TTL.as_secs())).await.unwrap();
    let another = async || stage.another(|options| options).await.unwrap().unwrap();
    let others = [another().await, another().await];
    let clients = [stage.client.clone(), others[0].client(), others[1].client()];
    for client in &clients {
        wait_until("verdicts of the snapshot", WAIT, async || {
            let answer = client.get(&format!("/api/v1/kya/{}", wallet(AGENTS))).await;
            answer.status == 200
                && answer.json()["decision"] == "provision"
                && answer.header("server-timing").contains("snapshot")
        })
        .await;
    }
    let suspended = Mutex::new(BTreeMap::new());
    let suspend = async {
        let mut chance = 1_u64;
        for id in 1..=AGENTS {
            if id == AGENTS / 3 + 1 {
                stage.proxy.inject(Rule::on("eth_getLogs", Fault::LateLogs(LATE)));
            }
            if id == AGENTS * 2 / 3 + 1 {
                stage.proxy.heal();
                stage.proxy.inject(Rule::any(Fault::Refuse).every(2));
            }
            chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            tokio::time::sleep(Duration::from_millis((chance >> 33) % 1_200)).await;
            let at = Instant::now();
            stage.chain.send(stage.chain.owner(), seed::suspension(id, "for a test")).await.unwrap();
            suspended.lock().unwrap().insert(id, at);
        }
        stage.proxy.heal();
    };
    let [one, two, three] = clients.each_ref().map(|client| watch(client, &suspended));
    let (one, two, three, ()) = tokio::join!(one, two, three, suspend);
    let longest = one.max(two).max(three);
    println!("3 instances, TTL {TTL:?}: the last provision {longest:?} after its block");
    assert!(longest < TTL + MARGIN, "{longest:?}");
}
