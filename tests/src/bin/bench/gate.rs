//! The gate: how many requests a second its verifier takes, beside the clients' own library, what asking it
//! adds to a request, and what a request costs in a service's own process.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use alloy::hex;
use anyhow::{Context as _, Result, anyhow, ensure};
use e2e::anvil::CHAIN_ID;
use e2e::gate::{Gate, ORIGIN};
use e2e::repo;
use e2e::reverse_proxies::Kind;
use e2e::seed::{chain_of_one, wallet};
use e2e::signed_requests::Draft;
use e2e::signers::printed;
use erc8128::eoa::EoaSigner;
use erc8128::{Request, SignOptions, sign_request};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::document::{Table, median, millis, percentile};
use crate::step;

const REQUESTS: usize = 200;
const SECONDS: u32 = 3;
/// How often, in turn: the machine may be busy at one time and not at another.
const ROUNDS: usize = 3;
const RATE: usize = 1_000;
const LOAD: Duration = Duration::from_secs(10);
/// Connections of the proxy's part.
const CONNECTIONS: usize = 16;

pub(crate) async fn section() -> Result<Vec<Table>> {
    Ok(vec![
        step("verifiers", verifiers()).await?,
        step("latency", latency()).await?,
        step("in process", in_process()).await?,
    ])
}

/// What `cargo build --profile native -p kya-gate` has made.
fn program(name: &str) -> PathBuf {
    repo::root().join("target/native").join(name)
}

async fn verifiers() -> Result<Table> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("requests.json");
    let script = repo::root().join("tests/peers/verify.mjs");
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        // They are valid for a minute.
        fs::write(&file, serde_json::to_vec(&requests().await?)?)?;
        let mut rust = Command::new(program("examples/verify"));
        let mut node = Command::new("node");
        for (command, rates) in [(&mut rust, &mut ours), (node.arg(&script), &mut theirs)] {
            let answer = printed(command.arg(&file).arg(SECONDS.to_string())).await?;
            rates.push(answer["per_second"].as_f64().context("a rate")?.round() as u64);
        }
    }
    let (ours, theirs) = (median(&ours), median(&theirs));
    let mut table = Table::new(" | verifications/s | relative");
    table.row(["`core/src/gate`", &ours.to_string(), &format!("{:.1}", ours as f64 / theirs as f64)]);
    table.row(["`@slicekit/erc8128` with viem, in Node", &theirs.to_string(), "1"]);
    Ok(table)
}

/// Requests as the older dialect's crate signs them, which both verifiers take.
async fn requests() -> Result<Vec<Value>> {
    let signer = EoaSigner::from_slice(wallet("good").to_bytes().as_slice(), CHAIN_ID)?;
    let mut requests = Vec::new();
    for number in 0..REQUESTS {
        let body = if number % 2 == 0 { String::new() } else { format!(r#"{{"amount":"{number}"}}"#) };
        let method = if body.is_empty() { "GET" } else { "POST" };
        let url = format!("{ORIGIN}/orders/{number}?view=full");
        let content = (!body.is_empty()).then_some(body.as_bytes());
        let request = Request { method, url: &url, headers: &[], body: content };
        let signed = sign_request(&request, &signer, &SignOptions::default()).await?;
        let mut headers = json!({ "signature-input": signed.signature_input, "signature": signed.signature });
        if let Some(digest) = signed.content_digest {
            headers["content-digest"] = digest.into();
        }
        requests.push(json!({ "method": method, "url": url, "headers": headers, "body": body }));
    }
    Ok(requests)
}

async fn latency() -> Result<Table> {
    let (chain, agent) = (chain_of_one().await?, wallet("good"));
    let registry = chain.contracts.registry.to_string();
    let configuration = Kind::Envoy.gate(ORIGIN, CHAIN_ID, chain.node.url(), &registry)?;
    let gate = Gate::start_program(program("kya-gate"), &configuration).await?;
    // What Envoy asks about each request.
    let ask = |number: usize| {
        let request = Draft::get(ORIGIN, &format!("/items/{number}")).sign(&agent, CHAIN_ID);
        request.asked_by_envoy().text(true)
    };
    // From here on the verdict is warm.
    send(&gate, &[ask(0)])?;
    let total = RATE * LOAD.as_secs() as usize;
    let livez = "GET /livez HTTP/1.1\r\nhost: gate\r\n\r\n".to_owned();
    let mut table = Table::new(" | p50 ms | p99 ms");
    for (name, texts) in [
        ("`/livez`, which decides nothing", vec![livez; total]),
        ("`/gate/<policy>`, admitted", (1..=total).map(ask).collect()),
    ] {
        let times = send(&gate, &texts)?;
        table.row([name, &millis(percentile(&times, 50)), &millis(percentile(&times, 99))]);
    }
    Ok(table)
}

/// The package's gate in process.
async fn in_process() -> Result<Table> {
    let chain = chain_of_one().await?;
    let registry = chain.contracts.registry;
    let settings = format!(
        r#"
        origin = "{ORIGIN}"
        chain = {{ id = {CHAIN_ID}, rpc = ["{}"], max-head-age-seconds = 0 }}
        kya = {{ registry = "{registry}", cache-seconds = 3600 }}
        policy.api = {{ allow = ["provision"] }}
        "#,
        chain.node.url(),
    );
    let keys = json!({ "good": hex::encode_prefixed(wallet("good").to_bytes()) });
    let setting = json!({ "origin": ORIGIN, "chainId": CHAIN_ID, "settings": settings, "keys": keys });
    let mut node = Command::from(repo::command("node"));
    node.arg(repo::root().join("tests/gate/bench.mjs")).env("SETTING", setting.to_string());
    let micros = printed(&mut node).await?;
    let mut table = Table::new(" | CPU µs a request");
    for (name, value) in [
        ("`LocalGate.ask`, admitted", &micros["asked"]),
        ("`LocalGate.admit`, admitted, from a `Request`", &micros["fromRequest"]),
        ("viem's `recoverMessageAddress` alone", &micros["signature"]),
    ] {
        table.row([name, &value.to_string()]);
    }
    Ok(table)
}

/// Sends requests on [`CONNECTIONS`] connections, together [`RATE`] a second, and returns how long each answer
/// took. One that is sent late because the answer before was late counts from when it was due.
fn send(gate: &Gate, texts: &[String]) -> Result<Vec<Duration>> {
    let address = gate.url().trim_start_matches("http://");
    let (began, between) = (Instant::now() + Duration::from_millis(50), Duration::from_secs(1) / RATE as u32);
    let lane = |first: usize| -> Result<Vec<Duration>> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let mut answers = BufReader::new(stream.try_clone()?);
        let mut times = Vec::new();
        for (number, text) in texts.iter().enumerate().skip(first).step_by(CONNECTIONS) {
            let mut since = began + between * number as u32;
            if let Some(early) = since.checked_duration_since(Instant::now()) {
                thread::sleep(early);
                since = Instant::now();
            }
            stream.write_all(text.as_bytes())?;
            answered(&mut answers)?;
            times.push(since.elapsed());
        }
        Ok(times)
    };
    thread::scope(|scope| {
        let lanes = (0..CONNECTIONS).map(|first| scope.spawn(move || lane(first)));
        let lanes: Vec<_> = lanes.collect();
        let mut times = Vec::new();
        for lane in lanes {
            times.extend(lane.join().map_err(|_| anyhow!("a sender panicked"))??);
        }
        Ok(times)
    })
}

fn answered(stream: &mut BufReader<TcpStream>) -> Result<()> {
    let (mut head, mut length) = (String::new(), 0);
    while !head.ends_with("\r\n\r\n") {
        let start = head.len();
        ensure!(stream.read_line(&mut head)? > 0, "the gate hung up: {head}");
        if let Some(text) = head[start..].to_ascii_lowercase().strip_prefix("content-length: ") {
            length = text.trim().parse()?;
        }
    }
    ensure!(head.starts_with("HTTP/1.1 200"), "{head}");
    Ok(stream.read_exact(&mut vec![0; length])?)
}
