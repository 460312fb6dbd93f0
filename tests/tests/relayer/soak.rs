//! A soak: many signers, a steady stream, and endpoints that are not at their best.
//!
//! Of two endpoints one is two blocks behind and loses every twentieth answer after the node has done what it
//! was asked. Every relay has to end executed, once; the budget has to count what the receipts say.
//! `SOAK_RELAYS=10000 cargo all-test --test relayer soak:: -- --nocapture` is the long one, and prints what
//! it measured.
//!
//! Memory follows the clients that wait at once, which the connection limit bounds, and not the relays of the
//! past. So the stream comes in two halves, each of which ends with nothing in flight: after the second the
//! daemon has no more memory than after the first, but for what more clients at once have needed.

use tokio::sync::Semaphore;

use crate::prelude::*;

const PER_SECOND: u64 = 50;
/// Clients that wait at the same time at most.
const CLIENTS: usize = 500;
const NONCES: u64 = 10;
/// How long the last relays may take once all are posted.
const SETTLE: Duration = Duration::from_secs(180);

/// What a client that waits costs the daemon at most, KiB: its connection's buffers and its relay's task, in
/// a build without optimisation.
const CLIENT_KIB: u64 = 100;
/// What else may come to memory in the second half, KiB: threads, caches of SQLite that fill up, the
/// allocator's fragments. In the long soak, relays that are kept whole (2.5 KB each) would exceed it.
const MARGIN_KIB: u64 = 8_000;

/// Waits for a relay as a client does: posts, and where the answer is 202 asks until it is executed.
async fn executed(client: &RelayClient, request: &Signed) {
    let answer = client.relay(request).await;
    let (mut is_pending, deadline) = (answer.status == 202, Instant::now() + SETTLE);
    assert!(is_pending || answer.status == 200, "{}", answer.text);
    while is_pending {
        let state = client.get(&format!("/relay/{}?wait=latest", request.id)).await.ok()["state"].clone();
        is_pending = state == "pending";
        assert!(state == "executed" || Instant::now() < deadline, "{}: {state}", request.id);
    }
}

/// Memory that the daemon itself has resident, without its program text and mapped files, KiB.
fn resident(daemon: &mut Daemon) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.process().id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_relays_through_endpoints_that_lag_and_lose_answers_is_executed_in_steady_memory() {
    let relays = number("SOAK_RELAYS", 200);
    let block_time = Some(Duration::from_secs(1));
    let stage = Stage::on(AnvilOptions { block_time, ..AnvilOptions::default() }).await;
    let urls = format!("{},{}", stage.proxy.url(), stage.chain.node.url());
    let stage = stage.var("RPC_URL", urls).var("RPC_TIMEOUT_SECONDS", 5).var("DAILY_GAS_BUDGET", 1_000);
    // The stream is faster than 16 in each block of a second.
    let stage = stage.var("MAX_PENDING_PER_KEY", 256).var("LOG_LEVEL", "info");
    let (mut daemon, client) = stage.daemon().await;
    stage.proxy.inject(Rule::any(Fault::LoseAnswer).every(20));
    stage.proxy.inject(Rule::any(Fault::Lagging(2)));

    // Each of a signer's requests registers one more wallet; its next comes once all others had their turn.
    let signers = relays.div_ceil(NONCES);
    let request = |index: u64| {
        let (signer, nonce) = (index % signers, index / signers);
        let wallet = agent(&format!("soak {signer} agent {nonce}")).address();
        stage.desk.request(&agent(&format!("soak {signer}")), nonce, &register(wallet))
    };
    let requests: Vec<Signed> = (0..relays).map(request).collect();
    stage.expect(&requests);

    let started = Instant::now();
    let mut clock = interval(Duration::from_millis(1_000 / PER_SECOND));
    let room = Arc::new(Semaphore::new(CLIENTS));
    let (mut memory, mut every_second) = (Vec::new(), Vec::new());
    for half in requests.chunks(requests.len().div_ceil(2)) {
        let (mut clients, mut most_clients) = (Vec::new(), 0);
        for (index, request) in half.iter().enumerate() {
            clock.tick().await;
            if (index as u64).is_multiple_of(PER_SECOND) {
                every_second.push(resident(&mut daemon));
            }
            let (client, request) = (client.clone(), request.clone());
            let place = Arc::clone(&room).acquire_owned().await.unwrap();
            most_clients = most_clients.max(CLIENTS - room.available_permits());
            clients.push(tokio::spawn(async move {
                executed(&client, &request).await;
                drop(place);
            }));
        }
        for client in clients {
            client.await.unwrap();
        }
        wait_until("settled", SETTLE, async || client.metric("relayer_queue_depth").await == 0.0).await;
        memory.push((resident(&mut daemon), most_clients as u64));
    }
    println!("{relays} relays in {:.1?}", started.elapsed());
    println!("resident, KiB, once a second: {every_second:?}");
    println!("resident, KiB, and the clients that waited at once, of each half: {memory:?}");
    stage.proxy.heal();
    stage.audit(&client).await;

    let [(first, some), (second, more)] = memory[..] else { panic!("two halves") };
    let allowed = first + more.saturating_sub(some) * CLIENT_KIB + MARGIN_KIB;
    assert!(second <= allowed, "memory grows with the relays: {memory:?}");
}
