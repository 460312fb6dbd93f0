//! Several daemons on one Postgres database. Leases, claims and standstills in every order, copies at several
//! daemons, and limits that hold for all are in `relayer-daemon/tests/sender_model.rs` and
//! `tests/store/fleet.rs`. The variables of long runs are in `docs/testing.md`; `FLEET_BLOCK_MS` is for long
//! streams, since the node goes through all its state for a block.

use std::slice::from_ref;

use e2e::postgres::{Postgres, StatementCounts};

use crate::prelude::*;

/// Time that a client waits for one daemon's answer.
const ANSWER: Duration = Duration::from_secs(8);
/// Time limit of one request through all faults.
const PATIENCE_UNDER_FAULTS: Duration = Duration::from_secs(300);

/// A chain, a database, and the options of daemons on both, each with a data directory of its own.
pub(crate) struct Fleet {
    pub(crate) stage: RelayerFixture,
    pub(crate) postgres: Postgres,
    pub(crate) options: Vec<DaemonOptions>,
}

impl Fleet {
    pub(crate) async fn set(daemons: usize, accounts: usize) -> Self {
        Self::on(RelayerFixture::set().await, daemons, accounts, Duration::ZERO).0
    }

    /// Sets up daemons on this chain, this far from the database; also returns counts of their statements.
    pub(crate) fn on(
        stage: RelayerFixture,
        daemons: usize,
        accounts: usize,
        delay: Duration,
    ) -> (Self, Arc<StatementCounts>) {
        let postgres = Postgres::start(&[]);
        let (mut url, mut passed) = (postgres.schema(), Arc::default());
        if !delay.is_zero() {
            (url, passed) = postgres.behind_a_network(&url, delay);
        }
        let mut stage = stage.keys(accounts).var("STORE_URL", url).var("RELAY_WAIT_SECONDS", 110);
        stage.options = stage.options.var("RPC_URL", stage.chain.node.url());
        let stage = stage.var("DAILY_GAS_BUDGET", 1_000).var("LOG_LEVEL", "info");
        let with_port =
            |_| stage.options.clone().with_empty_journal().var("RELAYER_PORT", free_port().unwrap());
        let options = (0..daemons).map(with_port).collect();
        (Self { stage, postgres, options }, passed)
    }

    pub(crate) async fn start(&self) -> (Vec<RelayerDaemon>, Vec<Client>) {
        let mut daemons = Vec::new();
        for options in &self.options {
            daemons.push(RelayerDaemon::start(options).await.unwrap());
        }
        let clients: Vec<Client> = daemons.iter().map(RelayerDaemon::client).collect();
        // Each daemon gets accounts, as far as there are enough.
        let holders = self.stage.accounts.len().min(daemons.len());
        wait_until("shared out", PATIENCE, async || {
            let held = join_all(clients.iter().map(held_by)).await;
            held.into_iter().filter(|held| *held > 0).count() >= holders
        })
        .await;
        (daemons, clients)
    }

    pub(crate) async fn audit(&self, client: &Client) {
        self.stage.audit(client).await;
        let sent: u64 = self.stage.sent_by_each().await.iter().sum();
        // The store checks a lease with each transaction: those in it were signed under one.
        let settled =
            "SELECT count(*) FROM s0.nonces JOIN s0.transactions ON hash = mined_hash WHERE state = 'mined'";
        assert_eq!(self.postgres.sql(settled), sent.to_string(), "transactions that are in the journal");
    }
}

async fn held_by(client: &Client) -> usize {
    let status = client.get("/status").await.ok();
    status["accounts"].as_array().unwrap().iter().filter(|account| account["state"] != "elsewhere").count()
}

/// Retries a request, at one daemon after the other, of which some may be gone, until one reports that it was
/// executed.
async fn insist(clients: &[Client], request: &RelayRequest) {
    let deadline = Instant::now() + PATIENCE_UNDER_FAULTS;
    let mut last = String::new();
    for client in clients.iter().cycle() {
        assert!(Instant::now() < deadline, "{} was not executed: {last}", request.id);
        match timeout(ANSWER, client.try_relay(request)).await {
            Ok(Ok(answer)) if answer.status == 200 || answer.text.contains("ALREADY_RELAYED") => return,
            // 202: it is pending. 401: the node was asked too early. Other errors may be temporary.
            Ok(Ok(answer)) => last = answer.text,
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => last = "no answer".to_owned(),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Posts this many requests a second, to the daemons in turns, until all are executed; returns the median and
/// the 95th percentile of their times.
pub(crate) async fn paced(clients: &[Client], requests: &[RelayRequest], per_second: u64) -> [Duration; 2] {
    let began = Instant::now();
    let mut took = join_all(requests.iter().enumerate().map(async |(turn, request)| {
        let due = began + Duration::from_secs(1) * turn as u32 / per_second as u32;
        tokio::time::sleep(due.saturating_duration_since(Instant::now())).await;
        let posted = Instant::now();
        insist(from_ref(&clients[turn % clients.len()]), request).await;
        posted.elapsed()
    }))
    .await;
    took.sort_unstable();
    [50, 95].map(|percent| took[(took.len() - 1) * percent / 100])
}

pub(crate) async fn leases_lost(clients: &[Client]) -> f64 {
    let mut lost = 0.0;
    for client in clients {
        lost += client.metric("relayer_leases_lost_total").await;
    }
    lost
}

#[tokio::test(flavor = "multi_thread")]
async fn three_daemons_execute_each_request_once_whatever_dies() {
    const CLIENTS: usize = 32;
    const FAULTS: [&str; 5] = ["kill 0", "database", "stop 1", "kill 2", "database"];
    let relays = number("FLEET_RELAYS", 200) as usize;
    let [pause, standstill] = [("FLEET_PAUSE", 2), ("FLEET_STANDSTILL", 13)]
        .map(|(name, default)| Duration::from_secs(number(name, default)));
    // Slow enough that the stream lasts through all faults.
    let pace = Duration::from_secs(1) / number("FLEET_PER_SECOND", 6) as u32;
    let fleet = Fleet::set(3, 6).await;
    let (daemons, clients) = fleet.start().await;
    let mut daemons: Vec<Option<RelayerDaemon>> = daemons.into_iter().map(Some).collect();
    let requests = Arc::new(fleet.stage.registrations("fleet", relays));
    fleet.stage.expect(requests.iter());
    let [next, went_wrong] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let ticks = Arc::new(tokio::sync::Mutex::new(interval(pace)));
    let began = Instant::now();
    let stream = |turn| {
        // As behind a load balancer, each client begins with another daemon.
        let clients: Vec<_> = clients.iter().cycle().skip(turn).take(clients.len()).cloned().collect();
        let requests = Arc::clone(&requests);
        let (next, ticks, went_wrong) = (Arc::clone(&next), Arc::clone(&ticks), Arc::clone(&went_wrong));
        tokio::spawn(async move {
            while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                ticks.lock().await.tick().await;
                // The stream does not end before all faults have occurred.
                while next.load(Ordering::Relaxed) > relays - CLIENTS
                    && went_wrong.load(Ordering::Relaxed) < FAULTS.len()
                {
                    tokio::time::sleep(pause).await;
                }
                insist(&clients, request).await;
            }
        })
    };
    let streams: Vec<_> = (0..CLIENTS).map(stream).collect();
    for fault in FAULTS.iter().cycle() {
        tokio::time::sleep(pause).await;
        let begun = next.load(Ordering::Relaxed);
        if begun >= relays && went_wrong.load(Ordering::Relaxed) >= FAULTS.len() {
            break;
        }
        println!("{:.0?}: {begun} relays begun; {fault}", began.elapsed());
        went_wrong.fetch_add(1, Ordering::Relaxed);
        let Some((what, index)) = fault.split_once(' ') else {
            fleet.postgres.crash();
            fleet.postgres.go_on();
            continue;
        };
        let index: usize = index.parse().unwrap();
        if what == "kill" {
            daemons[index].take().unwrap().kill();
            // Others go on meanwhile.
            tokio::time::sleep(Duration::from_secs(1)).await;
            daemons[index] = Some(RelayerDaemon::start(&fleet.options[index]).await.unwrap());
        } else {
            let process = daemons[index].as_mut().unwrap().process();
            process.signal(Signal::STOP).unwrap();
            tokio::time::sleep(standstill).await;
            process.signal(Signal::CONT).unwrap();
        }
    }
    for stream in streams {
        stream.await.unwrap();
    }
    let took = began.elapsed();
    let rate = relays as f64 / took.as_secs_f64();
    println!("{relays} relays in {took:.1?} through {went_wrong:?} faults, {rate:.0} a second");
    for client in &clients {
        // Each daemon knows all requests.
        fleet.audit(client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_a_fleet_that_is_far_from_its_database_is_executed_and_no_lease_is_lost() {
    let (relays, per_second) = (number("FLEET_STREAM", 60) as usize, number("FLEET_STREAM_PER_SECOND", 20));
    let pace = number("FLEET_BLOCK_MS", 0);
    let delays = std::env::var("FLEET_DELAYS_US").unwrap_or("1000".to_owned());
    for delay in delays.split(',').map(|us| Duration::from_micros(us.parse().unwrap())) {
        let block_time = (pace > 0).then(|| Duration::from_millis(pace));
        let stage = RelayerFixture::on(AnvilOptions { block_time, ..AnvilOptions::default() }).await;
        let (fleet, passed) = Fleet::on(stage, 3, 6, delay);
        let (_daemons, clients) = fleet.start().await;
        let requests = fleet.stage.registrations("far", relays + clients.len());
        fleet.stage.expect(requests.iter());
        // Each connection prepares its statements once.
        let (first, stream) = requests.split_at(clients.len());
        join_all(clients.iter().zip(first).map(|(client, request)| insist(from_ref(client), request))).await;
        let (before, began) = (passed.counts(), Instant::now());
        let [p50, p95] = paced(&clients, stream, per_second).await;
        let (all, after, lost) = (began.elapsed(), passed.counts(), leases_lost(&clients).await);
        let [messages, waits] = [0, 1].map(|index| (after[index] - before[index]) as f64 / relays as f64);
        println!(
            "{delay:?} each way: {:.1} relays a second of {per_second}, executed within {p50:.0?} (p50), {p95:.0?} (p95), \
             {messages:.1} messages a relay, {waits:.1} of them waited for, {lost} leases lost",
            relays as f64 / all.as_secs_f64()
        );
        assert_eq!(lost, 0.0, "leases lost");
        fleet.audit(&clients[0]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_of_a_daemon_that_is_stopped_go_to_another_at_once_and_nothing_is_sent_without_the_database()
{
    let fleet = Fleet::set(2, 2).await;
    let (mut daemons, mut clients) = fleet.start().await;
    let (mut successor, client, other) = (daemons.remove(0), clients.remove(0), clients.remove(0));
    let requests = fleet.stage.registrations("upgrade", 4);
    fleet.stage.leave_all_pending(&client, &requests).await;
    let (status, _) = successor.terminate().await.unwrap();
    assert!(status.success(), "{status}");
    // The leases of a daemon that died would last for some seconds more.
    let holders = "SELECT count(DISTINCT holder) FROM s0.account_leases WHERE holder IS NOT NULL";
    assert_eq!(fleet.postgres.sql(holders), "1", "handed over at once");
    wait_until("handed over", PATIENCE, async || held_by(&other).await == 2).await;
    fleet.postgres.crash();
    let during = fleet.stage.registration("without a database");
    let message = "Relayer's database does not answer. Nothing was sent.";
    other.relay(&during).await.refused(503, "STORE_UNAVAILABLE", message);
    assert_eq!(until_ready_is(&other, 503).await.json()["code"], "STORE_UNAVAILABLE");
    assert_eq!(fleet.stage.waiting().await, 4, "sent without a journal");
    fleet.stage.mine().await;
    fleet.postgres.go_on();
    until_executed(&other, &requests).await;
    wait_until("accepted again", PATIENCE, async || other.relay(&during).await.status == 200).await;
    fleet.stage.expect([&during]);
    fleet.audit(&other).await;
}
