//! The gate: how many requests a second its verifier takes, beside the clients' own library, and what
//! asking it adds to a request.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::anvil::CHAIN_ID;
use e2e::gate::{Gate, ORIGIN};
use e2e::repo;
use e2e::reverse_proxies::Kind;
use e2e::seed::{chain_of_one, wallet};
use e2e::signed_requests::Draft;
use e2e::signers::printed;
use erc8128::eoa::EoaSigner;
use erc8128::{Request, SignOptions, sign_request};
use serde_json::json;
use tokio::process::Command;

use crate::step;
use crate::table::{Table, median, millis, p99};

/// Different requests that are verified over and over.
const REQUESTS: usize = 200;
/// How long each verifier is measured at a time.
const SECONDS: u32 = 3;
/// How often, in turn: the machine may be busy at one time and not at another.
const ROUNDS: usize = 3;
/// Requests a second at the gate.
const RATE: usize = 1_000;
/// How long they are sent.
const LOAD: Duration = Duration::from_secs(10);
/// Connections of the proxy's part.
const CONNECTIONS: usize = 16;

pub(crate) async fn section() -> Result<String> {
    let load = fs::read_to_string("/proc/loadavg")?;
    let load = load.split_whitespace().next().context("a load average")?.to_owned();
    let verifiers = step("verifiers", verifiers()).await?;
    let latency = step("latency", latency()).await?;
    Ok(format!(
        "## Gate\n\nLoad average of the machine before: {load}. Above 1 the rates are lower, and the longest times are \
         those of other programs: `/livez` shows how long.\n\n{verifiers}\n{latency}"
    ))
}

/// What `cargo build --profile native -p kya-gate` has made.
fn program(name: &str) -> PathBuf {
    repo::root().join("target/native").join(name)
}

async fn verifiers() -> Result<String> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("requests.json");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        // They are valid for a minute.
        fs::write(&file, serde_json::to_vec(&requests().await?)?)?;
        let seconds = SECONDS.to_string();
        let mut rust = Command::new(program("examples/verify"));
        ours.push(per_second(rust.arg(&file).arg(&seconds)).await?);
        let mut node = Command::new("node");
        let script = repo::root().join("tests/peers/verify.mjs");
        theirs.push(per_second(node.arg(script).arg(&file).arg(&seconds)).await?);
    }
    let [ours, theirs] = [&ours, &theirs].map(|samples| median(samples).unwrap_or_default());
    let mut table = Table::new(&["", "verifications/s", "relative"]);
    table.row(&[
        "`core/src/gate`".to_owned(),
        ours.to_string(),
        format!("{:.1}", ours as f64 / theirs as f64),
    ]);
    table.row(&["`@slicekit/erc8128` with viem, in Node".to_owned(), theirs.to_string(), "1".to_owned()]);
    let table = table.finish();
    Ok(format!(
        "### Verifications\n\nSignatures of accounts without code on requests with and without content, on one \
         thread, nonces not kept: medians of {ROUNDS} times {SECONDS} seconds in turn, both with the same requests. \
         Goal: 20 times the peer's.\n\n{table}"
    ))
}

async fn per_second(command: &mut Command) -> Result<u64> {
    let answer = printed(command).await?;
    Ok(answer["per_second"].as_f64().context("a rate")?.round() as u64)
}

/// Requests as the older dialect's crate signs them, which both verifiers take.
async fn requests() -> Result<Vec<serde_json::Value>> {
    let signer = EoaSigner::from_slice(wallet("good").to_bytes().as_slice(), CHAIN_ID)?;
    let mut requests = Vec::new();
    for number in 0..REQUESTS {
        let body = if number % 2 == 0 { String::new() } else { format!(r#"{{"amount":"{number}"}}"#) };
        let method = if body.is_empty() { "GET" } else { "POST" };
        let url = format!("{ORIGIN}/orders/{number}?view=full");
        let content = (!body.is_empty()).then_some(body.as_bytes());
        let request = Request { method, url: &url, headers: &[], body: content };
        let signed = sign_request(&request, &signer, &SignOptions::default()).await?;
        let mut headers =
            BTreeMap::from([("signature-input", signed.signature_input), ("signature", signed.signature)]);
        headers.extend(signed.content_digest.map(|digest| ("content-digest", digest)));
        requests.push(json!({ "method": method, "url": url, "headers": headers, "body": body }));
    }
    Ok(requests)
}

async fn latency() -> Result<String> {
    let (chain, agent) = (chain_of_one().await?, wallet("good"));
    let registry = chain.contracts.registry.to_string();
    let configuration = Kind::Envoy.gate(ORIGIN, CHAIN_ID, chain.node.url(), &registry)?;
    let gate = Gate::start_program(program("kya-gate"), &configuration).await?;
    // What Envoy asks about each request.
    let ask = |number: usize| {
        let request = Draft::get(ORIGIN, &format!("/items/{number}")).sign(&agent, CHAIN_ID);
        request.asked_by_envoy().text(true)
    };
    let warm = send(&gate, &[vec![ask(0)]])?;
    ensure!(warm.len() == 1, "the verdict is warm");
    let total = RATE * LOAD.as_secs() as usize;
    let livez = "GET /livez HTTP/1.1\r\nhost: gate\r\n\r\n".to_owned();
    let mut table = Table::new(&["", "p50 ms", "p99 ms"]);
    for (name, texts) in [
        ("`/livez`, which decides nothing", vec![livez; total]),
        ("`/gate/<policy>`, admitted", (1..=total).map(ask).collect()),
    ] {
        let mut lanes = vec![Vec::new(); CONNECTIONS];
        for (number, text) in texts.into_iter().enumerate() {
            lanes[number % CONNECTIONS].push(text);
        }
        let times = send(&gate, &lanes)?;
        let shown = |time: Option<Duration>| time.map(millis).context("a time");
        table.row(&[name.to_owned(), shown(median(&times))?, shown(p99(&times))?]);
    }
    let table = table.finish();
    Ok(format!(
        "### Latency\n\nWhat asking the gate adds to a request: from the question to the answer, {RATE} a second for \
         {} seconds on {CONNECTIONS} connections of the same machine, with a warm verdict and a nonce each. Goal: \
         below 1 ms.\n\n{table}",
        LOAD.as_secs()
    ))
}

/// Sends each lane's requests on a connection of its own, together [`RATE`] a second, and returns how long
/// each answer took. One that is sent late because the answer before was late counts from when it was due.
fn send(gate: &Gate, lanes: &[Vec<String>]) -> Result<Vec<Duration>> {
    let address = gate.url().trim_start_matches("http://").to_owned();
    let (began, between) = (Instant::now() + Duration::from_millis(50), Duration::from_secs(1) / RATE as u32);
    thread::scope(|scope| {
        let senders: Vec<_> = lanes
            .iter()
            .enumerate()
            .map(|(lane, texts)| {
                let address = &address;
                scope.spawn(move || -> Result<Vec<Duration>> {
                    let mut stream = TcpStream::connect(address)?;
                    stream.set_nodelay(true)?;
                    let mut times = Vec::with_capacity(texts.len());
                    for (number, text) in texts.iter().enumerate() {
                        let due = began + between * (lane + number * lanes.len()) as u32;
                        let early = due.checked_duration_since(Instant::now());
                        let since = match early {
                            Some(early) => {
                                thread::sleep(early);
                                Instant::now()
                            }
                            None => due,
                        };
                        stream.write_all(text.as_bytes())?;
                        answered(&mut stream)?;
                        times.push(since.elapsed());
                    }
                    Ok(times)
                })
            })
            .collect();
        let mut times = Vec::new();
        for sender in senders {
            times.extend(sender.join().map_err(|_| anyhow::anyhow!("a sender panicked"))??);
        }
        Ok(times)
    })
}

/// Reads an answer with status 200 to its end.
fn answered(stream: &mut TcpStream) -> Result<()> {
    let (mut answer, mut piece) = (Vec::new(), [0; 4_096]);
    loop {
        let read = stream.read(&mut piece)?;
        answer.extend_from_slice(&piece[..read]);
        let text = String::from_utf8_lossy(&answer);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            ensure!(head.starts_with("HTTP/1.1 200"), "{text}");
            let length = head
                .lines()
                .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            if body.len() >= length.unwrap_or(0) {
                return Ok(());
            }
        }
        if read == 0 {
            bail!("the gate hung up: {text}");
        }
    }
}
