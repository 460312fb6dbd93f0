//! `kya attest --watch`: attests for each agent at a random time in the last third of its grace period, and
//! as its liable wallet also in the last third of the time for which its own word ties it to the agent. All
//! state is the chain's, and the journal's: a restart changes nothing.

use std::{collections::BTreeMap, time::Duration};

use alloy::primitives::{Address, U256, keccak256};
use prometheus::{Encoder as _, IntCounterVec, IntGaugeVec, Opts, Registry, TextEncoder};
use registry_core::{
    eth::{abi::AgentRecord, timestamp::Timestamp},
    gate::AttestedQuery,
    liability,
    registry::agent::Status,
};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    signal::unix::{SignalKind, signal},
    time::{Instant, timeout},
};

use crate::{
    attest::{self, Attest},
    place::RegistryAccess,
    report::{CommandFailure, Report, Result, say},
    signer::Signer,
    submit::Caller,
};

/// Seconds ahead of the newest block from which the machine's clock is reported.
const CLOCK_AHEAD: u64 = 3_600;
/// The longest pause between two attempts for one agent.
const LONGEST_PAUSE: Duration = Duration::from_secs(3_600);

/// Metrics of the watched agents.
#[derive(Debug, Clone)]
struct Metrics {
    registry: Registry,
    attested: IntGaugeVec,
    expires: IntGaugeVec,
    due: IntGaugeVec,
    attempts: IntCounterVec,
}

impl Metrics {
    fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let gauge = |name: &str, help: &str| {
            let gauge = IntGaugeVec::new(Opts::new(name, help), &["agent"])?;
            registry.register(Box::new(gauge.clone()))?;
            prometheus::Result::Ok(gauge)
        };
        let attested = gauge("kya_attested_seconds", "Time of the last attestation, unix seconds")?;
        let expires =
            gauge("kya_attestation_expires_seconds", "Last second of the grace period, unix seconds")?;
        let due = gauge("kya_attestation_due_seconds", "When the next attestation is made, unix seconds")?;
        let opts =
            Opts::new("kya_attempts_total", "Attempts to attest; unread: the record could not be read");
        let attempts = IntCounterVec::new(opts, &["agent", "result"])?;
        registry.register(Box::new(attempts.clone()))?;
        Ok(Self { registry, attested, expires, due, attempts })
    }

    /// Starts an agent's counters at 0: otherwise a first failure is no increase.
    fn start_at_zero(&self, agent: &str) {
        for result in ["attested", "failed", "unread", "suspended"] {
            self.attempts.with_label_values(&[agent, result]);
        }
    }

    /// Sets an agent's times. An attestation that never lapses expires at the latest time of a metric.
    fn show(&self, agent: &str, last: u64, grace: u64, due: u64) {
        let expires = last.saturating_add(grace);
        for (gauge, seconds) in [(&self.attested, last), (&self.expires, expires), (&self.due, due)] {
            gauge.with_label_values(&[agent]).set(i64::try_from(seconds).unwrap_or(i64::MAX));
        }
    }

    /// Removes an agent's times, which would keep their last values and the alert with them.
    fn forget(&self, agent: &str) {
        for gauge in [&self.attested, &self.expires, &self.due] {
            // An agent that was not shown has none.
            let _ = gauge.remove_label_values(&[agent]);
        }
    }

    fn text(&self) -> Vec<u8> {
        let mut text = Vec::new();
        // Writing to memory does not fail.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        text
    }
}

/// State of a watched agent.
#[derive(Debug, Default)]
struct WatchedAgent {
    failures: u32,
    not_before: Option<Instant>,
    /// Time of the agent's last event by the signer, unix seconds; read once, where the signer is its liable
    /// wallet.
    by_liable: Option<u64>,
    /// Chain time after the last attestation by this process, unix seconds, and the instant of its reading.
    attested: Option<(u64, Instant)>,
}

impl WatchedAgent {
    /// Returns the time that an agent's due time is compared with: the later of the newest block's and the
    /// machine's, as a stalled chain does not stop time. A machine's clock that is ahead counts once: after
    /// an attestation it goes no faster than a monotonic one.
    fn time(&self, machine: u64, block: u64) -> u64 {
        let elapsed = |(at, since): (u64, Instant)| at.saturating_add(since.elapsed().as_secs());
        self.attested.map_or(machine, |attested| machine.min(elapsed(attested))).max(block)
    }

    fn note_attestation(&mut self, block: u64) {
        self.attested = Some((block, Instant::now()));
        let ahead = crate::now().seconds().saturating_sub(block);
        if ahead > CLOCK_AHEAD {
            say(format_args!("the machine's clock is {ahead} s ahead of the chain's\n"));
        }
    }

    /// Schedules another attempt: after `first`, and twice as long after each further failure.
    fn failed(&mut self, first: Duration) {
        let pause = first.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE.max(first));
        self.failures += 1;
        self.not_before = Some(Instant::now() + pause);
    }

    fn is_paused(&self) -> bool {
        self.not_before.is_some_and(|at| Instant::now() < at)
    }

    fn succeeded(&mut self) {
        (self.failures, self.not_before) = (0, None);
    }
}

/// Returns the time of the next attestation, in the last third of the grace period. It is drawn from the
/// agent, its last attestation and the signer alone, so that a restart does not draw again. The third's last
/// quarter is left for failures.
pub fn due(last_attestation: u64, grace: u64, id: U256, signer: Address) -> u64 {
    let third = grace / 3;
    let drawn =
        keccak256([&id.to_be_bytes::<32>()[..], &last_attestation.to_be_bytes(), signer.as_slice()].concat());
    let drawn = U256::from_be_bytes(drawn.0) % U256::from((third * 3 / 4).max(1));
    last_attestation.saturating_add(grace - third).saturating_add(drawn.saturating_to())
}

/// Returns the time at which an agent is due. Any party's attestation renews the agent's. A liable wallet's
/// tie to an agent that others have registered rests on its own events, the last of which is `by_liable`: if
/// none is known, it attests at once, and once a day at most, as a node may list no events.
fn due_by(signer: Address, record: &AgentRecord, grace: u64, by_liable: Option<u64>) -> u64 {
    let at = due(record.lastAttestation, grace, record.agentId, signer);
    let own = |last| due(last, liability::ATTESTED_SECONDS, record.agentId, signer);
    let has_attested = record.lastAttestation > record.registeredAt;
    let unknown = if has_attested { record.lastAttestation.saturating_add(crate::DAY) } else { 0 };
    if is_only_named(signer, record) { at.min(by_liable.map_or(unknown, own)) } else { at }
}

/// Returns whether the signer is the liable wallet of an agent that it has not registered itself.
fn is_only_named(signer: Address, record: &AgentRecord) -> bool {
    signer == record.haftungsperson && signer != record.creator
}

/// Watches until a signal ends it, or no agent is left. Errors: the metrics or signals cannot be set up.
pub async fn run(
    options: &Attest,
    place: &RegistryAccess,
    signer: &Signer,
    records: Vec<AgentRecord>,
) -> Result<Report> {
    let metrics = Metrics::new().map_err(|error| CommandFailure::refused(error.to_string()))?;
    for record in &records {
        metrics.start_at_zero(&record.agentId.to_string());
    }
    if let Some(address) = options.metrics {
        let listener = TcpListener::bind(address).await;
        let listener =
            listener.map_err(|error| CommandFailure::refused(format!("--metrics {address}: {error}")))?;
        let address = listener.local_addr().unwrap_or(address);
        say(format_args!("metrics on http://{address}/metrics\n"));
        tokio::spawn(serve(listener, metrics.clone()));
    }
    let ended = |kind| signal(kind).map_err(|error| CommandFailure::refused(error.to_string()));
    let (mut interrupt, mut terminate) = (ended(SignalKind::interrupt())?, ended(SignalKind::terminate())?);
    let mut agents: BTreeMap<U256, WatchedAgent> =
        records.iter().map(|record| (record.agentId, WatchedAgent::default())).collect();
    say(format_args!("watching {} agents\n", agents.len()));
    loop {
        let round = async {
            let mut over = Vec::new();
            for (id, watched) in &mut agents {
                if watched.is_paused() {
                    continue;
                }
                match looked_after(options, place, signer, (*id, watched), &metrics).await {
                    Ok(true) => watched.succeeded(),
                    Ok(false) => over.push(*id),
                    Err(failure) => {
                        watched.failed(Duration::from_secs(options.every));
                        say(format_args!("agent {id}: {failure}\n"));
                    }
                }
            }
            for id in over {
                say(format_args!("agent {id} has ended: it is not watched any longer\n"));
                metrics.forget(&id.to_string());
                agents.remove(&id);
            }
            tokio::time::sleep(Duration::from_secs(options.every)).await;
        };
        tokio::select! {
            () = round => {}
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
        }
        if agents.is_empty() {
            // Not a failure: a service manager would restart it again and again.
            say("no agent is left to attest for\n");
            break;
        }
    }
    Ok(Report::done("Ended.", json!({ "ended": true })))
}

/// Reads an agent's record and attests where that is due. Returns false where the agent has ended.
async fn looked_after(
    options: &Attest,
    place: &RegistryAccess,
    signer: &Signer,
    (id, watched): (U256, &mut WatchedAgent),
    metrics: &Metrics,
) -> Result<bool> {
    let node = place.node().ok_or_else(|| CommandFailure::refused("--watch needs --rpc"))?;
    let name = id.to_string();
    let count = |result: &str| metrics.attempts.with_label_values(&[name.as_str(), result]).inc();
    let call = attest::call(id);
    let read = async {
        let caller = Caller::new(place, signer, &options.send).await?;
        let is_resumed = caller.resume(&call).await?.is_some();
        if is_resumed {
            caller.told(std::slice::from_ref(&call))?;
            // The resumed attestation is later than the known event.
            watched.by_liable = None;
        }
        let grace = node.grace_period(place.registry).await?;
        let record = place.record(id).await?;
        let record = record.ok_or_else(|| CommandFailure::try_again("the registry does not know it"))?;
        let block = node.block("latest").await?;
        if is_resumed {
            watched.note_attestation(block.timestamp.to());
        }
        let time = watched.time(crate::now().seconds(), block.timestamp.to());
        let (registry, liable) = (place.registry, signer.address());
        if watched.by_liable.is_none() && is_only_named(liable, &record) {
            let (block, since) = (block.number.to(), Timestamp::default());
            let query = AttestedQuery { registry, agent: id, liable, block, since };
            // A node that fails to list the events leaves that unknown, as one that lists none does.
            let unread = |failure: &CommandFailure| say(format_args!("agent {id}: its events: {failure}\n"));
            let last = node.ask(query).await.inspect_err(unread).unwrap_or_default();
            watched.by_liable = last.map(Timestamp::seconds);
        }
        Ok((caller, grace, record, block, time))
    };
    let (caller, grace, record, block, time) =
        read.await.inspect_err(|_: &CommandFailure| count("unread"))?;
    let (last, at) = (record.lastAttestation, due_by(signer.address(), &record, grace, watched.by_liable));
    metrics.show(&name, last, grace, at);
    match Status::from_number(record.status) {
        Some(Status::Active) => {}
        Some(Status::Suspended) => {
            count("suspended");
            return Err(CommandFailure::try_again("is Suspended: nothing can be attested"));
        }
        _ => return Ok(false),
    }
    if time < at {
        return Ok(true);
    }
    let executed = caller.execute(&call, attest::GAS).await.inspect_err(|_| count("failed"))?;
    count("attested");
    // The machine's clock may be ahead: without a newer block, the time of the one before counts.
    let attested = node.block("latest").await.unwrap_or(block).timestamp.to::<u64>();
    watched.note_attestation(attested);
    watched.by_liable = Some(attested);
    let (done, before) = (executed.text(), Timestamp::from_seconds(last));
    say(format_args!("agent {id}: attested, {done}; before that at {before}\n"));
    caller.told(&[call])?;
    Ok(true)
}

async fn serve(listener: TcpListener, metrics: Metrics) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let metrics = metrics.clone();
            // A silent client is dropped.
            tokio::spawn(async move {
                let _ = timeout(Duration::from_secs(10), answer(stream, &metrics)).await;
            });
        }
    }
}

async fn answer(mut stream: TcpStream, metrics: &Metrics) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > 8_192 || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let (status, body) = match head.starts_with(b"GET /metrics ") {
        true => ("200 OK", metrics.text()),
        false => ("404 Not Found", b"not found\n".to_vec()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), &body].concat()).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attestation_is_due_in_the_last_third_and_leaves_time_for_failures() {
        let (grace, mut seen) = (604_800, BTreeMap::new());
        for id in 0..1_000_u64 {
            let at = due(1_000_000, grace, U256::from(id), Address::repeat_byte(7));
            assert_eq!(at, due(1_000_000, grace, U256::from(id), Address::repeat_byte(7)), "not drawn again");
            let within = at - 1_000_000 - (grace - grace / 3);
            assert!(within < grace / 4, "{within}");
            *seen.entry(within / 10_000).or_insert(0_u32) += 1;
        }
        assert!(seen.len() >= 15 && seen.values().all(|count| *count < 120), "spread: {seen:?}");
        assert_eq!(due(10, 0, U256::ZERO, Address::ZERO), 10, "no grace period: at once");
    }

    #[test]
    fn an_attestation_that_never_lapses_expires_at_the_latest_time_of_a_metric() {
        let at = due(1_000_000, u64::MAX, U256::ONE, Address::ZERO);
        assert!(at > u64::MAX / 2 && due(u64::MAX, u64::MAX, U256::ONE, Address::ZERO) == u64::MAX, "{at}");
        let metrics = Metrics::new().unwrap();
        metrics.show("1", 1_000_000, u64::MAX, at);
        let text = String::from_utf8(metrics.text()).unwrap();
        // Metrics are floating-point numbers: the last digits are not the number's.
        let latest = &i64::MAX.to_string()[..15];
        for name in ["kya_attestation_expires_seconds", "kya_attestation_due_seconds"] {
            assert!(text.contains(&format!("\n{name}{{agent=\"1\"}} {latest}")), "{text}");
        }
    }

    #[test]
    fn an_agents_attempts_are_there_before_the_first_one() {
        let metrics = Metrics::new().unwrap();
        metrics.start_at_zero("1");
        let text = String::from_utf8(metrics.text()).unwrap();
        for result in ["attested", "failed", "unread", "suspended"] {
            let line = format!("\nkya_attempts_total{{agent=\"1\",result=\"{result}\"}} 0\n");
            assert!(text.contains(&line), "{text}");
        }
    }

    #[test]
    fn an_agent_that_has_ended_has_no_metrics_of_its_times() {
        let metrics = Metrics::new().unwrap();
        for agent in ["1", "2"] {
            metrics.show(agent, 1_000_000, 604_800, 1_400_000);
        }
        metrics.forget("1");
        metrics.forget("3");
        let text = String::from_utf8(metrics.text()).unwrap();
        assert_eq!(text.matches("{agent=\"2\"}").count(), 3, "{text}");
        assert!(!text.contains("{agent=\"1\"}"), "{text}");
    }

    #[test]
    fn a_liable_wallet_that_others_named_is_due_by_its_own_last_event_too() {
        let (liable, other, grace) = (Address::repeat_byte(1), Address::repeat_byte(2), 604_800);
        let record = AgentRecord { lastAttestation: 100 * 86_400, ..crate::register::tests::record() };
        assert_eq!(record.haftungsperson, liable);
        let by_all = due(record.lastAttestation, grace, record.agentId, liable);
        assert_eq!(due_by(liable, &record, grace, None), 101 * 86_400, "a node that lists no events");
        let new = AgentRecord { lastAttestation: record.registeredAt, ..record.clone() };
        assert_eq!(due_by(liable, &new, grace, None), 0, "it has not acted yet");
        assert_eq!(
            due_by(liable, &record, grace, Some(99 * 86_400)),
            by_all,
            "others' attestations lapse first"
        );
        let own = due_by(liable, &record, grace, Some(20 * 86_400));
        assert!((80 * 86_400..103 * 86_400).contains(&own), "{own}");
        for record in [AgentRecord { creator: liable, ..record.clone() }, record] {
            let signer = if record.creator == liable { liable } else { other };
            let expected = due(record.lastAttestation, grace, record.agentId, signer);
            assert_eq!(due_by(signer, &record, grace, None), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_retried_later_and_later_up_to_an_hour() {
        let mut watched = WatchedAgent::default();
        for seconds in [300, 600, 1_200, 2_400, 3_600, 3_600] {
            watched.failed(Duration::from_secs(300));
            tokio::time::advance(Duration::from_secs(seconds - 1)).await;
            assert!(watched.is_paused(), "{seconds}");
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(!watched.is_paused(), "{seconds}");
        }
    }
}
