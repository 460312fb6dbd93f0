//! Several daemons on one Postgres database.
//!
//! 1. Three daemons with the same six keys, while daemons are killed and started again, one stands still for
//!    longer than its leases, and the database crashes: every request is executed exactly once, none is lost,
//!    and the budget counts what was paid. `FLEET_RELAYS=10000 FLEET_PER_SECOND=60 FLEET_PAUSE=10
//!    FLEET_STANDSTILL=30` makes it a long one; with `--nocapture` it prints its rate.
//! 2. Transactions of a daemon that died are followed by the others, at the latest after 15 seconds.
//! 3. A daemon that is stopped in good order hands over at once.
//! 4. A request sent to two daemons at once is one relay; a signer's requests may arrive at any of them.
//! 5. Limits and the budget are those of the fleet.
//! 6. Without the database nothing is accepted or sent, and with it everything goes on.

use std::env;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use alloy::signers::local::PrivateKeySigner;
use e2e::anvil::{AnvilOptions, dev_key};
use e2e::daemon::{Daemon, DaemonOptions};
use e2e::postgres::Postgres;
use e2e::process::{eventually, wait_until};
use e2e::relay::{RelayClient, Signed};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::interval;

use crate::audit::{PATIENCE, Stage, agent, post};

/// After this time a dead daemon's accounts have others: its leases have ended by then.
const TAKEOVER: Duration = Duration::from_secs(15);
/// How long one request may take through all that goes wrong.
const PATIENCE_UNDER_FAULTS: Duration = Duration::from_secs(150);

fn seconds(count: usize) -> Duration {
    Duration::from_secs(count as u64)
}

fn keys(count: usize) -> Vec<PrivateKeySigner> {
    (1..=count).map(dev_key).collect()
}

/// A chain, a database, and what daemons on both start with: each has a data directory of its own.
struct Fleet {
    stage: Stage,
    postgres: Postgres,
    keys: Vec<PrivateKeySigner>,
    options: Vec<DaemonOptions>,
}

impl Fleet {
    async fn set(daemons: usize, accounts: usize) -> Self {
        let stage = Stage::on(AnvilOptions::default()).await;
        let postgres = Postgres::start(&[]);
        let (url, keys) = (postgres.schema(), keys(accounts));
        let options = |_| {
            DaemonOptions::new(stage.chain.node.url(), stage.chain.contracts, &keys[0])
                .keys(&keys)
                .var("STORE_URL", &url)
                .var("DAILY_GAS_BUDGET", 1_000)
                .var("LOG_LEVEL", "info")
        };
        let options = (0..daemons).map(options).collect();
        Self { stage, postgres, keys, options }
    }

    async fn start(&self) -> Vec<Daemon> {
        let mut daemons = Vec::new();
        for options in &self.options {
            daemons.push(Daemon::start(options).await.unwrap());
        }
        let count = self.keys.len().min(daemons.len());
        // Each has its part of the accounts, as far as they go.
        wait_until("shared out", PATIENCE, async || {
            let mut holders = 0;
            for daemon in &daemons {
                holders += usize::from(!own(&daemon.client()).await.is_empty());
            }
            holders >= count
        })
        .await;
        daemons
    }

    fn registrations(&self, name: &str, count: usize) -> Vec<Signed> {
        let registration = |index| self.stage.desk.registration(&agent(&format!("{name} {index}")), 0);
        (0..count).map(registration).collect()
    }

    /// Once nothing is in flight: exactly these requests were executed, each once; nothing waits; the budget
    /// counts what was paid, and every transaction on the chain is in the journal.
    async fn audit(&self, client: &RelayClient, executed: &[Signed]) {
        wait_until("settled", PATIENCE, async || fleet(client).await["pending"] == 0).await;
        let terms =
            |request: &Signed| (request.signed.request.from, request.signed.request.nonce.to::<u64>(), true);
        let mut expected: Vec<_> = executed.iter().map(terms).collect();
        let mut found = self.stage.chain.executions().await.unwrap();
        expected.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, expected, "executions on chain");
        let (mut sent, mut paid) = (0, 0);
        for key in &self.keys {
            let (mined, pending) = self.stage.chain.nonces_of(key.address()).await.unwrap();
            assert_eq!(mined, pending, "nothing waits");
            let transactions = self.stage.chain.transactions_of(key.address()).await.unwrap();
            paid += transactions.values().map(|transaction| transaction.paid_wei).sum::<u128>();
            sent += mined;
        }
        assert_eq!(client.used_wei().await, paid, "the budget counts what all paid");
        // A lease is checked when a transaction is written down: what is there was signed with one.
        let settled =
            "SELECT count(*) FROM s0.nonces JOIN s0.transactions ON hash = mined_hash WHERE state = 'mined'";
        assert_eq!(self.postgres.sql(settled), sent.to_string(), "transactions that are in the journal");
    }
}

async fn fleet(client: &RelayClient) -> Value {
    client.get("/status").await.ok()["fleet"].clone()
}

/// The accounts that a daemon holds and sends from.
async fn own(client: &RelayClient) -> Vec<Value> {
    let status = client.get("/status").await.ok();
    let accounts = status["accounts"].as_array().unwrap().iter();
    accounts.filter(|account| account["state"] != "elsewhere").cloned().collect()
}

/// The daemons as a load balancer sees them: some may be gone.
type Balanced = Arc<Mutex<Vec<RelayClient>>>;

fn nth(clients: &Balanced, turn: usize) -> RelayClient {
    let clients = clients.lock().unwrap();
    clients[turn % clients.len()].clone()
}

/// A client that does not give up: posts to one daemon after the other until one of them says that the
/// request was executed.
async fn insist(clients: &Balanced, request: &Signed, turn: usize) {
    const ANSWER: Duration = Duration::from_secs(8);
    let deadline = Instant::now() + PATIENCE_UNDER_FAULTS;
    let mut last = String::new();
    for attempt in 0.. {
        assert!(Instant::now() < deadline, "{} was not executed: {last}", request.id);
        let client = nth(clients, turn + attempt);
        let answer = tokio::time::timeout(ANSWER, client.try_relay(request)).await;
        match answer {
            Ok(Ok(answer)) if answer.status == 200 => return,
            // 202: it goes on. 401: it was executed, or the node was asked too early. Others may pass.
            Ok(Ok(answer)) => last = answer.text,
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => last = "no answer".to_owned(),
        }
        let path = format!("/relay/{}", request.id);
        let asked = nth(clients, turn + attempt + 1);
        let state = tokio::time::timeout(ANSWER, asked.send(reqwest::Method::GET, &path, None)).await;
        if let Ok(Ok(answer)) = state
            && answer.status == 200
            && answer.json()["state"] == "executed"
        {
            return;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn three_daemons_execute_each_request_once_whatever_dies() {
    const CLIENTS: usize = 32;
    let number = |name: &str, default: usize| env::var(name).map_or(default, |count| count.parse().unwrap());
    let relays = number("FLEET_RELAYS", 300);
    let [pause, standstill] =
        [("FLEET_PAUSE", 2), ("FLEET_STANDSTILL", 13)].map(|(name, default)| seconds(number(name, default)));
    // Slow enough that the stream flows while everything goes wrong.
    let pace = Duration::from_secs(1) / number("FLEET_PER_SECOND", 6) as u32;
    let fleet = Fleet::set(3, 6).await;
    let mut daemons: Vec<Option<Daemon>> = fleet.start().await.into_iter().map(Some).collect();
    let clients: Vec<RelayClient> = daemons.iter().flatten().map(Daemon::client).collect();
    let clients: Balanced = Arc::new(Mutex::new(clients));
    let requests = Arc::new(fleet.registrations("fleet", relays));
    let next = Arc::new(AtomicUsize::new(0));
    let ticks = Arc::new(tokio::sync::Mutex::new(interval(pace)));
    let began = Instant::now();
    let streams: Vec<_> = (0..CLIENTS)
        .map(|turn| {
            let (clients, requests) = (Arc::clone(&clients), Arc::clone(&requests));
            let (next, ticks) = (Arc::clone(&next), Arc::clone(&ticks));
            tokio::spawn(async move {
                while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    ticks.lock().await.tick().await;
                    insist(&clients, request, turn).await;
                }
            })
        })
        .collect();

    let faults = ["kill 0", "database", "stop 1", "kill 2", "database", "kill 0"];
    let mut went_wrong = 0;
    loop {
        tokio::time::sleep(pause).await;
        let begun = next.load(Ordering::Relaxed);
        if begun >= relays {
            break;
        }
        let fault = faults[went_wrong % faults.len()];
        println!("{:.0?}: {begun} relays begun; {fault}", began.elapsed());
        went_wrong += 1;
        match fault.split_once(' ') {
            Some(("kill", index)) => {
                let index: usize = index.parse().unwrap();
                daemons[index].take().unwrap().kill();
                // Others go on meanwhile.
                tokio::time::sleep(Duration::from_secs(1)).await;
                let again = Daemon::start(&fleet.options[index]).await.unwrap();
                clients.lock().unwrap()[index] = again.client();
                daemons[index] = Some(again);
            }
            Some((_, index)) => {
                let index: usize = index.parse().unwrap();
                let process = daemons[index].as_mut().unwrap().process();
                process.signal(Signal::STOP).unwrap();
                tokio::time::sleep(standstill).await;
                daemons[index].as_mut().unwrap().process().signal(Signal::CONT).unwrap();
            }
            None => {
                fleet.postgres.crash();
                fleet.postgres.go_on();
            }
        }
    }
    for stream in streams {
        stream.await.unwrap();
    }
    let took = began.elapsed();
    println!(
        "{relays} relays in {took:.1?} through {went_wrong} faults, {:.0} a second",
        relays as f64 / took.as_secs_f64()
    );
    assert!(went_wrong >= 4, "the stream was over before all of it went wrong");
    fleet.audit(&nth(&clients, 0), &requests).await;
    for daemon in daemons.iter().flatten() {
        for request in requests.iter().take(20) {
            assert_eq!(daemon.client().state(request).await.ok()["state"], "executed", "any daemon knows");
        }
    }
}

/// Posts these requests to a daemon while the chain makes no block, until their transactions are in the pool.
async fn leave_pending(fleet: &Fleet, client: &RelayClient, requests: &[Signed]) {
    fleet.stage.chain.node.set_automine(false).await.unwrap();
    for request in requests {
        drop(post(client, request));
    }
    wait_until("pending", PATIENCE, async || {
        let mut waiting = 0;
        for key in &fleet.keys {
            let (mined, pending) = fleet.stage.chain.nonces_of(key.address()).await.unwrap();
            waiting += pending - mined;
        }
        waiting == requests.len() as u64
    })
    .await;
}

async fn mine(fleet: &Fleet) {
    fleet.stage.chain.node.set_automine(true).await.unwrap();
    fleet.stage.chain.node.mine(1).await.unwrap();
}

/// Waits until a daemon says that all of these are executed; returns how long that took.
async fn executed(client: &RelayClient, requests: &[Signed]) -> Duration {
    let began = Instant::now();
    wait_until("executed", PATIENCE, async || {
        for request in requests {
            if client.state(request).await.ok()["state"] != "executed" {
                return false;
            }
        }
        true
    })
    .await;
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_of_a_daemon_that_died_are_followed_by_another() {
    let fleet = Fleet::set(2, 2).await;
    let mut daemons = fleet.start().await;
    let requests = fleet.registrations("orphan", 4);
    leave_pending(&fleet, &daemons[0].client(), &requests).await;
    let died = Instant::now();
    daemons.remove(0).kill();
    mine(&fleet).await;
    let other = daemons[0].client();
    executed(&other, &requests).await;
    let took = died.elapsed();
    // The rest is this machine's, which is busy with other tests.
    assert!(took < TAKEOVER + Duration::from_secs(10), "{took:?}");
    assert_eq!(own(&other).await.len(), 2);
    let metrics = other.get("/metrics").await.text;
    assert!(metrics.contains("\nrelayer_fleet_daemons 1\n"), "{metrics}");
    fleet.audit(&other, &requests).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_is_stopped_in_good_order_hands_over_at_once_and_one_that_starts_gets_its_share() {
    let fleet = Fleet::set(2, 2).await;
    let mut daemons = fleet.start().await;
    let requests = fleet.registrations("upgrade", 4);
    leave_pending(&fleet, &daemons[0].client(), &requests).await;
    daemons[0].process().signal(Signal::TERM).unwrap();
    let status = daemons[0].process().exited(PATIENCE).await.unwrap();
    assert!(status.success(), "{status}");
    let ended = Instant::now();
    daemons.remove(0);
    let other = daemons[0].client();
    wait_until("handed over", PATIENCE, async || own(&other).await.len() == 2).await;
    assert!(ended.elapsed() < Duration::from_secs(8), "as long as after a crash: {:?}", ended.elapsed());
    mine(&fleet).await;
    executed(&other, &requests).await;

    let successor = Daemon::start(&fleet.options[0]).await.unwrap();
    wait_until("a share", PATIENCE, async || own(&successor.client()).await.len() == 1).await;
    let more = fleet.registrations("after the upgrade", 2);
    for request in &more {
        successor.client().relay(request).await.ok();
    }
    fleet.audit(&successor.client(), &[requests, more].concat()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_sent_to_all_daemons_is_one_relay_and_a_signers_requests_may_arrive_anywhere() {
    let fleet = Fleet::set(3, 2).await;
    let daemons = fleet.start().await;
    let clients: Vec<RelayClient> = daemons.iter().map(Daemon::client).collect();
    let copied = fleet.registrations("copied", 6);
    for request in &copied {
        let answers: Vec<_> = clients.iter().map(|client| post(client, request)).collect();
        let mut hashes = Vec::new();
        for answer in answers {
            let answer = answer.await.unwrap().unwrap();
            // A copy that comes after the end is a replay.
            if answer.status == 200 {
                hashes.push(answer.json()["txHash"].clone());
            } else {
                answer.refused(401, "ALREADY_RELAYED", "Invalid signature or nonce mismatch");
            }
        }
        hashes.dedup();
        assert_eq!(hashes.len(), 1, "{hashes:?}");
    }

    // One signer's requests, the last one first, each to another daemon.
    let signer = agent("wanderer");
    let registration = |nonce: u64| {
        let wallet = agent(&format!("wanderer's {nonce}")).address();
        fleet.stage.desk.request(&signer, nonce, &e2e::relay::register(wallet))
    };
    let requests: Vec<Signed> = (0..6).map(registration).collect();
    let turns = requests.iter().rev().zip(clients.iter().cycle());
    let answers: Vec<_> = turns.map(|(request, client)| post(client, request)).collect();
    for answer in answers {
        answer.await.unwrap().unwrap().ok();
    }
    let next = clients[0].get(&format!("/nonce/{}", signer.address())).await.ok();
    assert_eq!((&next["nonce"], &next["next"]), (&json!(6), &json!(6)));
    fleet.audit(&clients[2], &[copied, requests].concat()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_and_the_budget_are_the_fleets() {
    let mut fleet = Fleet::set(2, 2).await;
    let limited = |options: &DaemonOptions| options.clone().var("RATE_LIMIT_PER_IP", 4);
    fleet.options = fleet.options.iter().map(limited).collect();
    let daemons = fleet.start().await;
    let clients: Vec<RelayClient> = daemons.iter().map(Daemon::client).collect();
    let requests = fleet.registrations("limited", 5);
    for (request, client) in requests.iter().zip(clients.iter().cycle()).take(4) {
        client.relay(request).await.ok();
    }
    let refused = clients[0].relay(&requests[4]).await;
    refused.refused(429, "IP_RATE_LIMITED", "IP rate limit exceeded (4/hour)");
    for client in &clients {
        let status = client.get("/status").await.ok();
        assert_eq!(status["fleet"]["daemons"], 2);
        assert_eq!(status["fleet"]["leases"], 2);
    }
    assert_eq!(clients[0].used_wei().await, clients[1].used_wei().await);
    fleet.audit(&clients[1], &requests[..4]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_database_nothing_is_accepted_or_sent_and_with_it_everything_goes_on() {
    let fleet = Fleet::set(2, 2).await;
    let daemons = fleet.start().await;
    let client = daemons[0].client();
    let before = fleet.registrations("before", 4);
    leave_pending(&fleet, &client, &before).await;
    fleet.postgres.crash();

    let during = fleet.registrations("during", 3);
    for request in &during {
        let message = "Relayer's database does not answer. Nothing was sent.";
        client.relay(request).await.refused(503, "STORE_UNAVAILABLE", message);
    }
    wait_until("not ready", PATIENCE, async || {
        let ready = client.get("/readyz").await;
        ready.status == 503 && ready.json()["code"] == "STORE_UNAVAILABLE"
    })
    .await;
    for key in &fleet.keys {
        let (mined, pending) = fleet.stage.chain.nonces_of(key.address()).await.unwrap();
        assert!(pending - mined <= 4, "sent without a journal");
    }
    mine(&fleet).await;
    fleet.postgres.go_on();
    executed(&client, &before).await;
    for request in &during {
        eventually("accepted again", PATIENCE, async || {
            let answer = client.relay(request).await;
            (answer.status == 200).then_some(())
        })
        .await
        .unwrap();
    }
    fleet.audit(&client, &[before, during].concat()).await;
}
