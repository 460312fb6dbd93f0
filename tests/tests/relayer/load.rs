//! A stream through an endpoint that takes 50 ms for each call: all executed, by all keys. With `--nocapture`
//! it prints its rates; `LOAD_RELAYS=10000` makes it a long one, `LOAD_LATENCY_MS`, `LOAD_BLOCK_MS` (0: a block
//! for each transaction), `LOAD_PENDING` (in the pool, of each key), `LOAD_KEYS` and `LOAD_CLIENTS` set the rest.

use std::env;

use crate::prelude::*;

pub(crate) fn number(name: &str, default: u64) -> u64 {
    env::var(name).map_or(default, |count| count.parse().unwrap())
}

/// When a request of a stream was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Answered {
    at: Duration,
    took: Duration,
}

/// So many clients post one of these requests after the other, all of which are executed; when each was
/// answered, in this order.
async fn stream(client: &RelayClient, requests: Vec<Signed>, clients: usize) -> Vec<Answered> {
    let requests = Arc::new(requests);
    let (next, started) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let stream = || {
        let (client, requests, next) = (client.clone(), Arc::clone(&requests), Arc::clone(&next));
        tokio::spawn(async move {
            let mut done = Vec::new();
            while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                let posted = Instant::now();
                client.relay(request).await.ok();
                done.push(Answered { at: started.elapsed(), took: posted.elapsed() });
            }
            done
        })
    };
    let streams: Vec<_> = (0..clients).map(|_| stream()).collect();
    let mut done = Vec::new();
    for stream in streams {
        done.extend(stream.await.unwrap());
    }
    done.sort_unstable();
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_through_a_slow_endpoint_is_executed() {
    let (relays, clients) = (number("LOAD_RELAYS", 192), number("LOAD_CLIENTS", 96) as usize);
    let (pace, latency) = (number("LOAD_BLOCK_MS", 0), Duration::from_millis(number("LOAD_LATENCY_MS", 50)));
    let block_time = (pace > 0).then(|| Duration::from_millis(pace));
    let stage = Stage::on(AnvilOptions { block_time, ..AnvilOptions::default() }).await;
    // Room for all that the pools may hold: the node counts gas limits.
    stage.chain.node.command("evm_setBlockGasLimit", json!(["0x20000000"])).await.unwrap();
    let keys = number("LOAD_KEYS", 1) as usize;
    let stage = if keys > 1 { stage.keys(keys) } else { stage };
    let stage = stage.var("MAX_PENDING_PER_KEY", number("LOAD_PENDING", 16)).var("LOG_LEVEL", "info");
    let stage = stage.var("DAILY_GAS_BUDGET", 1_000).var("RELAY_WAIT_SECONDS", 110);
    stage.proxy.inject(Rule::any(Fault::Delay(latency)));
    let (_daemon, client) = stage.daemon().await;
    // Agents attest again and again: with one more agent in each block, the node would set the pace. A signer's
    // next request comes once the last one has ended, most often.
    let signers: Vec<_> =
        (0..(relays / 2).min(2 * clients as u64)).map(|index| agent(&format!("stream {index}"))).collect();
    let started = Instant::now();
    stream(&client, signers.iter().map(|key| stage.desk.registration(key, 0)).collect(), clients).await;
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
    let attestations = (0..relays - agents.len() as u64).map(attestation).collect();
    let done = stream(&client, attestations, clients).await;
    for tenth in done.chunks(done.len().div_ceil(10)) {
        let (from, to) = (tenth[0].at, tenth[tenth.len() - 1].at);
        let mut waits: Vec<Duration> = tenth.iter().map(|answered| answered.took).collect();
        waits.sort_unstable();
        let rate = tenth.len() as f64 / (to - from).as_secs_f64();
        println!("until {to:.1?}: {rate:.0} relays/s, p50 {:.1?}", waits[waits.len() / 2]);
    }
    let attested = done.len() as f64 / done[done.len() - 1].at.as_secs_f64();
    println!("{relays} relays in {:.1?}; of the attestations {attested:.0} a second", started.elapsed());
    assert_eq!(stage.chain.executions().await.unwrap().len() as u64, relays);
    let sent = stage.sent_by_each().await;
    assert!(!sent.contains(&0), "an account was not used: {sent:?}");
}
