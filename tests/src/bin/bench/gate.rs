//! The gate: the latency that its decision adds to a request, and its cost in a service's own process.

use std::env;

use alloy::hex;
use e2e::anvil::CHAIN_ID;
use e2e::gate::{Gate, ORIGIN};
use e2e::repo;
use e2e::reverse_proxies;
use e2e::seed::{chain_of_one, wallet};
use e2e::signed_requests::Draft;
use e2e::signers::printed;
use tokio::process::Command;
use tokio::task::JoinSet;

use crate::lab::*;

const EVERY: Duration = Duration::from_millis(1); // from request to request
const ASKED: usize = 10_000;

pub(crate) async fn tables() -> Result<Vec<String>> {
    Ok(vec![latency().await?, in_process().await?])
}

async fn latency() -> Result<String> {
    let (chain, agent) = (chain_of_one().await?, wallet("good"));
    let (rpc, registry) = (chain.node.url(), chain.contracts.registry.to_string());
    let configuration = reverse_proxies::ReverseProxyKind::Envoy.gate(ORIGIN, CHAIN_ID, rpc, &registry)?;
    // Built by `cargo build --profile native -p kya-gate`.
    let here = env::current_exe()?;
    let program = here.ancestors().nth(2).context("a directory of cargo's")?.join("native/kya-gate");
    let gate = Gate::start_program(program, &configuration).await?;
    let client = kept_alive()?;
    // Envoy's request to the gate about each request.
    let ask = |number: usize| {
        let signed = Draft::get(ORIGIN, &format!("/items/{number}")).sign(&agent, CHAIN_ID).asked_by_envoy();
        let request =
            client.get(format!("{}{}", gate.url(), signed.draft.target)).header("host", "api.example");
        signed.draft.headers.iter().fold(request, |request, (name, value)| request.header(name, value))
    };
    // From here on the verdict is warm.
    fetch(ask(0)).await?;
    let livez = |_| client.get(format!("{}/livez", gate.url()));
    let requests: [(_, Vec<_>); 2] = [
        ("`/livez`, which decides nothing", (0..ASKED).map(livez).collect()),
        ("`/gate/<policy>`, admitted", (1..=ASKED).map(ask).collect()),
    ];
    let mut table = head(" | p50 ms | p99 ms");
    for (name, requests) in requests {
        let (mut due, mut sent) = (tokio::time::interval(EVERY), JoinSet::new());
        for request in requests {
            due.tick().await;
            let began = Instant::now();
            sent.spawn(async move { fetch(request).await.map(|_| began.elapsed()) });
        }
        let times = sent.join_all().await.into_iter().collect::<Result<Vec<_>>>()?;
        let [p50, p99] = [50, 99].map(|percent| millis(percentile(percent, times.iter().copied())));
        table += &row(&[&name, &p50, &p99]);
    }
    Ok(table)
}

/// Measures the package's gate in process.
async fn in_process() -> Result<String> {
    let chain = chain_of_one().await?;
    let settings = format!(
        r#"
        origin = "{ORIGIN}"
        chain = {{ id = {CHAIN_ID}, rpc = ["{}"], max-head-age-seconds = 0 }}
        kya = {{ registry = "{}", cache-seconds = 3600 }}
        policy.api = {{ allow = ["provision"] }}
        "#,
        chain.node.url(),
        chain.contracts.registry,
    );
    let keys = json!({ "good": hex::encode_prefixed(wallet("good").to_bytes()) });
    let setting = json!({ "origin": ORIGIN, "chainId": CHAIN_ID, "settings": settings, "keys": keys });
    let mut node = Command::from(repo::command("node"));
    node.arg(repo::root().join("tests/gate/bench.mjs")).env("SETTING", setting.to_string());
    let micros = printed(&mut node).await?;
    let mut table = head(" | CPU µs a request");
    for (name, value) in [
        ("`LocalGate.ask`, admitted", &micros["asked"]),
        ("`LocalGate.admit`, admitted, from a `Request`", &micros["fromRequest"]),
        ("viem's `recoverMessageAddress` alone", &micros["signature"]),
    ] {
        table += &row(&[&name, value]);
    }
    Ok(table)
}
