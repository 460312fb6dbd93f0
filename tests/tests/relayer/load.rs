//! A stream through an endpoint that takes 50 ms for each call and loses every twentieth answer after the
//! node has carried out the call: all requests are executed once, by all keys, and paid for as the budget
//! says. With `--nocapture` it prints its rates; `LOAD_RELAYS=10000` makes it a long one, `LOAD_LATENCY_MS`,
//! `LOAD_BLOCK_MS` (0: a block for each transaction), `LOAD_PENDING` (in the pool, of each key), `LOAD_KEYS`,
//! `LOAD_CLIENTS` and `LOAD_FAULTS` (0: no answer is lost) set the rest.
//!
//! Memory depends on the clients that wait at once, and not on past relays: with nothing in flight, the
//! daemon has no more after the second half, with as many waiting clients, than after the first.

use std::env;

use crate::prelude::*;

/// Allowed growth of memory in the second half, KiB: threads, caches of SQLite that fill up, the allocator's
/// fragments. In a long stream, relays that are kept whole (2.5 KB each) would exceed it.
const MARGIN_KIB: u64 = 8_000;

pub(crate) fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |count| count.parse().unwrap())
}

/// Time of an answer since the stream's start, and the request's duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RelayTiming {
    at: Duration,
    took: Duration,
}

/// Has this many clients post these requests in turn, all of which are executed; returns the times of the
/// answers, in their order.
async fn stream(client: &Client, requests: &[RelayRequest], clients: usize) -> Vec<RelayTiming> {
    let (next, started) = (AtomicUsize::new(0), Instant::now());
    let streams = join_all((0..clients).map(async |_| {
        let mut done = Vec::new();
        while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
            let posted = Instant::now();
            client.relay(request).await.ok();
            done.push(RelayTiming { at: started.elapsed(), took: posted.elapsed() });
        }
        done
    }));
    let mut done = streams.await.concat();
    done.sort_unstable();
    done
}

/// Waits until nothing is in flight; returns the daemon's resident memory without program text and mapped
/// files, KiB.
async fn resident(daemon: &mut RelayerDaemon, client: &Client) -> u64 {
    wait_until("settled", PATIENCE, async || client.metric("relayer_queue_depth").await == 0.0).await;
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.process().id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_through_a_slow_endpoint_is_executed_in_steady_memory() {
    let (relays, clients) = (number("LOAD_RELAYS", 192), number("LOAD_CLIENTS", 96) as usize);
    let (pace, latency) = (number("LOAD_BLOCK_MS", 0), Duration::from_millis(number("LOAD_LATENCY_MS", 50)));
    let block_time = (pace > 0).then(|| Duration::from_millis(pace));
    let stage = RelayerFixture::on(AnvilOptions { block_time, ..AnvilOptions::default() }).await;
    // Room for a full pool: the node counts gas limits.
    stage.chain.node.command("evm_setBlockGasLimit", json!(["0x20000000"])).await.unwrap();
    let keys = number("LOAD_KEYS", 1) as usize;
    let stage = if keys > 1 { stage.keys(keys) } else { stage };
    let stage = stage.var("MAX_PENDING_PER_KEY", number("LOAD_PENDING", 16)).var("LOG_LEVEL", "info");
    let stage = stage.var("DAILY_GAS_BUDGET", 1_000).var("RELAY_WAIT_SECONDS", 110);
    let urls = format!("{},{}", stage.proxy.url(), stage.chain.node.url());
    let stage = if number("LOAD_FAULTS", 1) > 0 {
        stage.proxy.inject(FaultRule::any(NodeFault::LoseAnswer).every(20));
        stage.var("RPC_URL", urls)
    } else {
        stage
    };
    stage.proxy.inject(FaultRule::any(NodeFault::Delay(latency)));
    let (mut daemon, client) = stage.daemon().await;
    // Few agents attest again and again: with one more agent in each block, the node would set the pace.
    // Mostly, a signer's next request comes after the end of its last one.
    let signers: Vec<_> =
        (0..(relays / 2).min(2 * clients as u64)).map(|index| agent(&format!("stream {index}"))).collect();
    let started = Instant::now();
    let registrations: Vec<RelayRequest> =
        signers.iter().map(|key| stage.desk.registration(key, 0)).collect();
    stage.expect(&registrations);
    stream(&client, &registrations, clients).await;
    let first = resident(&mut daemon, &client).await;
    let registered = stage.chain.agents().await.unwrap();
    let id_of = |key: &PrivateKeySigner| {
        let agent = registered.iter().find(|agent| agent.agentWallet == key.address());
        agent.expect("each signer has registered").agentId.to::<u64>()
    };
    let agents: Vec<_> = signers.into_iter().map(|key| (id_of(&key), key)).collect();
    let attestation = |index: u64| {
        let (round, agent) = (index / agents.len() as u64, &agents[index as usize % agents.len()]);
        stage.desk.request(&agent.1, 1 + round, &attest(agent.0))
    };
    let attestations: Vec<RelayRequest> = (0..relays - agents.len() as u64).map(attestation).collect();
    stage.expect(&attestations);
    let done = stream(&client, &attestations, clients).await;
    for tenth in done.chunks(done.len().div_ceil(10)) {
        let (from, to) = (tenth[0].at, tenth[tenth.len() - 1].at);
        let mut waits: Vec<Duration> = tenth.iter().map(|answered| answered.took).collect();
        waits.sort_unstable();
        let rate = tenth.len() as f64 / (to - from).as_secs_f64();
        println!("until {to:.1?}: {rate:.0} relays/s, p50 {:.1?}", waits[waits.len() / 2]);
    }
    let attested = done.len() as f64 / done[done.len() - 1].at.as_secs_f64();
    println!("{relays} relays in {:.1?}; of the attestations {attested:.0} a second", started.elapsed());
    let second = resident(&mut daemon, &client).await;
    println!("resident, KiB, after each half: {first}, {second}");
    assert!(second <= first + MARGIN_KIB, "memory grows with the relays: {first} to {second} KiB");
    stage.audit(&client).await;
    let sent = stage.sent_by_each().await;
    assert!(!sent.contains(&0), "an account was not used: {sent:?}");
}
