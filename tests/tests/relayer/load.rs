//! Many at once.
//!
//! 1. A hundred signers with ten requests each, all at once, half of them backwards: all executed, in order
//!    per signer.
//! 2. Twenty copies of one signed request at once: one transaction, and each client hears of it.
//! 3. A stream through an endpoint that takes 50 ms for each call: all executed. `LOAD_RELAYS=10000` makes it
//!    a long one, `LOAD_LATENCY_MS`, `LOAD_BLOCK_MS`, `LOAD_PENDING` and `LOAD_CLIENTS` set the endpoint's
//!    latency, the chain's pace, the key's place in the pool and how many clients wait at a time; with
//!    `--nocapture` it prints its rates. Agents attest again and again: with one more agent in each block, a
//!    local node, which hashes the registry's whole storage for each, would set the pace.
//! 4. Requests n and n+1 of one signer may arrive the wrong way round.

use e2e::anvil::AnvilOptions;
use e2e::chain::Chain;
use e2e::daemon::Daemon;
use e2e::fault::{Fault, Rule};
use e2e::oracle::Oracle;
use e2e::relay::{Desk, Signed, attest, register};
use std::collections::BTreeMap;
use std::env;
use std::time::{Duration, Instant};

use crate::audit::{Stage, agent, audit, post, relayer, stream};

const SIGNERS: usize = 100;
const REQUESTS: u64 = 10;
/// How many of all these may be refused since the request before them was late: those of a tenth of the
/// signers.
const MOST_EARLY: usize = 100;

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_signers_with_ten_requests_each_are_served_in_order() {
    let chain = Chain::start(AnvilOptions::default()).await.unwrap();
    let desk = Desk::of(&chain);
    let options = chain.daemon(&relayer()).var("DAILY_GAS_BUDGET", 100).var("RELAY_WAIT_SECONDS", 110);
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();

    // Every other signer sends its requests the wrong way round.
    let requests: Vec<Signed> = (0..SIGNERS)
        .flat_map(|signer| {
            let key = agent(&format!("crowd {signer}"));
            let mut nonces: Vec<u64> = (0..REQUESTS).collect();
            if signer % 2 == 1 {
                nonces.reverse();
            }
            // Nobody knows the ids beforehand, so each request is a registration of one more wallet.
            let request = |nonce: u64| {
                desk.request(
                    &key,
                    nonce,
                    &register(agent(&format!("crowd {signer} agent {nonce}")).address()),
                )
            };
            nonces.into_iter().map(request).collect::<Vec<_>>()
        })
        .collect();
    let answers: Vec<_> = requests.iter().map(|request| post(&client, request)).collect();
    let mut early = Vec::new();
    for (request, answer) in requests.iter().zip(answers) {
        let answer = answer.await.unwrap().unwrap();
        if answer.status == 401 {
            answer.refused(401, "INVALID_SIGNATURE_OR_NONCE", "Invalid signature or nonce mismatch");
            early.push(request);
        } else {
            answer.ok();
        }
    }
    // A request waits three seconds for the one before it, and with it wait all that follow. Where the
    // machine is so busy that a few arrive later than that, their clients send them once more.
    assert!(early.len() <= MOST_EARLY, "{} of {} were refused", early.len(), requests.len());
    early.sort_by_key(|request| request.signed.request.nonce);
    for request in early {
        client.relay(request).await.ok();
    }

    let mut last: BTreeMap<_, u64> = BTreeMap::new();
    for (signer, nonce, success) in chain.executions().await.unwrap() {
        assert!(success);
        let next = last.entry(signer).or_default();
        assert_eq!(nonce, *next, "in order");
        *next += 1;
    }
    assert_eq!((last.len(), last.values().all(|count| *count == REQUESTS)), (SIGNERS, true));
    audit(&chain, &options, &client, &requests.iter().collect::<Vec<_>>()).await;
}

#[tokio::test]
async fn twenty_copies_of_one_request_are_one_transaction() {
    let stage = Stage::set().await;
    let (_daemon, client) = stage.daemon().await;
    stage.chain.node.set_automine(false).await.unwrap();
    let request = stage.desk.registration(&agent("alice"), 0);
    let mut answers = vec![stage.post_and_see_sent(&client, &request).await];
    answers.extend((0..19).map(|_| post(&client, &request)));
    let mut joined = Vec::new();
    stage.chain.node.set_automine(true).await.unwrap();
    stage.chain.node.mine(1).await.unwrap();
    for answer in answers {
        let answer = answer.await.unwrap().unwrap();
        // Whoever comes once it is over has come too late, and is told so.
        if answer.status != 401 {
            joined.push(answer.ok());
        }
    }
    assert!(joined.windows(2).all(|pair| pair[0] == pair[1]), "one outcome for all: {joined:?}");
    assert_eq!(stage.chain.nonces_of(relayer().address()).await.unwrap(), (1, 1));
    stage.audit(&client, &[&request]).await;

    // Together from the first moment on.
    let request = stage.desk.request(&agent("alice"), 1, &attest(1));
    let answers: Vec<_> = (0..20).map(|_| post(&client, &request)).collect();
    let mut served = 0;
    for answer in answers {
        served += usize::from(answer.await.unwrap().unwrap().status == 200);
    }
    assert!(served > 0);
    assert_eq!(stage.chain.nonces_of(relayer().address()).await.unwrap(), (2, 2));
}

#[tokio::test]
async fn the_second_request_may_arrive_before_the_first() {
    let stage = Stage::set().await;
    let (mut daemon, client) = stage.daemon().await;
    let alice = agent("alice");
    let (first, second) = (stage.desk.registration(&alice, 0), stage.desk.request(&alice, 1, &attest(1)));
    let early = post(&client, &second);
    daemon.logged(&["accepted", &second.id.to_string()], crate::audit::PATIENCE).await.unwrap();
    // Alone it cannot be simulated; it waits a moment for the one before it.
    client.relay(&first).await.ok();
    early.await.unwrap().unwrap().ok();
    stage.audit(&client, &[&first, &second]).await;
}

/// Clients that wait at the same time, unless `LOAD_CLIENTS` says otherwise.
const CLIENTS: u64 = 96;

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_through_a_slow_endpoint_is_executed() {
    let number = |name: &str, default: u64| env::var(name).map_or(default, |count| count.parse().unwrap());
    let relays = number("LOAD_RELAYS", 192);
    let clients = number("LOAD_CLIENTS", CLIENTS) as usize;
    let pace = number("LOAD_BLOCK_MS", 0);
    let latency = Duration::from_millis(number("LOAD_LATENCY_MS", 50));
    let block_time = (pace > 0).then(|| Duration::from_millis(pace));
    let stage = Stage::on(AnvilOptions { block_time, ..AnvilOptions::default() }).await;
    stage.proxy.inject(Rule::any(Fault::Delay(latency)));
    let options = stage
        .options
        .clone()
        .var("DAILY_GAS_BUDGET", 1_000)
        .var("RELAY_WAIT_SECONDS", 110)
        .var("MAX_PENDING_PER_KEY", number("LOAD_PENDING", 16))
        .var("LOG_LEVEL", "info");
    let daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    // A signer's next request comes once the last one has ended, most often.
    let signers: Vec<_> =
        (0..(relays / 2).min(2 * clients as u64)).map(|index| agent(&format!("stream {index}"))).collect();
    let started = Instant::now();
    stream(&client, signers.iter().map(|key| stage.desk.registration(key, 0)).collect(), clients).await;
    let oracle = Oracle::new(stage.chain.node.url(), stage.chain.contracts.registry).unwrap();
    let mut agents = Vec::new();
    for key in signers {
        agents.push((oracle.agent_of(key.address()).await.unwrap().unwrap(), key));
    }
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
}
