//! The program behind `cargo xtask dev` and `cargo xtask deploy-contracts`: a local chain with the whole
//! service on it, and the deployment to any other chain.
//!
//! Every program that it starts is a [`Process`](e2e::process::Process) inside one future. Ctrl-C drops that
//! future, which ends them all.

#[path = "../../../xtask/src/ports.rs"]
mod ports;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use alloy::hex;
use alloy::primitives::{U256, uint};
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, Result, bail};
use e2e::anvil::{AnvilOptions, CHAIN_ID};
use e2e::chain::Chain;
use e2e::daemon::RelayerDaemon;
use e2e::deploy::{Deployment, MULTICALL3, deploy, deploy_multicall3};
use e2e::guarded::GuardedService;
use e2e::process::Process;
use e2e::repo;
use e2e::seed::{self, Showcase};
use e2e::stage::IndexWorker;
use e2e::story::{BUSY, RELAYED};
use e2e::worker::{Worker, WorkerOptions};
use tokio::signal::unix::{SignalKind, signal};

/// Balance of the local relayer: 10 ETH.
const RELAYER_BALANCE: U256 = uint!(10_000_000_000_000_000_000_U256);
/// The relayer's hourly limit per client, above the default: the agents registered here share your address.
const RELAYS_PER_HOUR: u32 = 120;

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["dev", options @ ..] => until_stopped(dev(options)).await,
        ["deploy-contracts", "--rpc-url", url] => until_stopped(deploy_contracts(url)).await,
        ["deploy-contracts", ..] => Err(anyhow::anyhow!("usage: cargo xtask deploy-contracts --rpc-url URL")),
        _ => Err(anyhow::anyhow!(
            "this program is started by `cargo xtask dev` and `cargo xtask deploy-contracts`"
        )),
    };
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    eprintln!("{error:#}");
    ExitCode::FAILURE
}

/// Runs `work` until it is done or a signal arrives; stops all that it has started before it returns.
async fn until_stopped(work: impl Future<Output = Result<()>>) -> Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    tokio::select! {
        outcome = work => outcome,
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
        _ = hangup.recv() => Ok(()),
    }
}

async fn dev(options: &[&str]) -> Result<()> {
    let [chain_port, worker_port, relayer_port, guarded_port] = ports::ports(options)?;
    // On free ports several of these may run at once; they keep no logs.
    let logs = (chain_port != 0).then(|| repo::root().join(format!("target/dev/{chain_port}")));
    if let Some(logs) = &logs {
        std::fs::create_dir_all(logs)?;
    }
    let log = |name: &str| logs.as_ref().map(|logs| logs.join(name));

    let options = AnvilOptions {
        port: chain_port,
        log: log("chain.log"),
        ..AnvilOptions::since(seed::showcase_genesis())
    };
    let mut chain = step("chain and contracts", Chain::start(options)).await?;
    let mut showcase = step("agents", seed::showcase(&chain)).await?;

    let key = seed::wallet("relayer");
    chain.node.set_balance(key.address(), RELAYER_BALANCE).await?;
    let options = chain
        .daemon(&key)
        .log_to(log("relayer.log"))
        .var("RELAYER_PORT", relayer_port)
        .var("LOG_LEVEL", "info")
        .var("RATE_LIMIT_PER_IP", RELAYS_PER_HOUR)
        .without("RATE_LIMIT_PER_SIGNER");
    let mut relayer = step("relayer", RelayerDaemon::start(&options)).await?;
    let relayed = seed::relayed(&chain, &relayer, &mut showcase);
    step("agents without ETH, through the relayer", relayed).await?;

    let Deployment { registry, forwarder } = chain.contracts;
    let options = WorkerOptions::new(chain.node.url(), registry).unset("RATE_LIMIT_PER_MINUTE");
    // The Worker's discovery document names these.
    let options = options.var("CHAIN_ID", CHAIN_ID).var("FORWARDER_ADDRESS", forwarder);
    let options = options.var("RELAYER_URLS", relayer.url());
    let options = WorkerOptions { port: worker_port, log: log("worker.log"), ..options };
    let (mut worker, mut index) = step("Worker", IndexWorker::start_wrangler(options)).await?;

    let guarded = GuardedService::telling(guarded_port, &chain, relayer.url(), worker.url());
    let guarded = step("gate and guarded service", guarded).await?;

    print!("{}", introduction(&chain, &worker, &relayer, &guarded, &showcase, logs.as_deref()));
    let processes = [
        ("the chain", chain.node.process()),
        ("the Worker", worker.process()),
        ("the Worker of the index", index.process()),
        ("the relayer", relayer.process()),
    ];
    watch(processes).await
}

/// Fails when one of the processes ends, which none of them should.
async fn watch<const N: usize>(mut processes: [(&str, &mut Process); N]) -> Result<()> {
    loop {
        for (name, process) in &mut processes {
            if let Some(status) = process.exit_status()? {
                bail!("{name} ended by itself ({status}); its last lines:\n{}", process.log_tail());
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

fn introduction(
    chain: &Chain,
    worker: &Worker,
    relayer: &RelayerDaemon,
    guarded: &GuardedService,
    showcase: &Showcase,
    logs: Option<&Path>,
) -> String {
    let api = format!("{}/api/v1", worker.url());
    format!(
        "
chain      {chain_url} (id 31337, anvil's well-known keys)
registry   {registry}
forwarder  {forwarder}
read API   {worker_url}
explorer   {worker_url}/#/
relayer    {relayer_url}
guarded    {guarded_url} (for signed requests of compliant agents only)
logs       {logs}

{total} agents are registered, {relayed} of them through the relayer. Try:

  curl {api}/stats/detailed
  curl {api}/agent/{suspended}
  curl '{api}/agents?status=Revoked&limit=5'
  curl {api}/agent/{busy}/lineage
  curl {api}/kya/{wallet}

look around in a browser, with this chain and relayer in its settings once you save them:

  {worker_url}/#/settings?rpc={chain_url}&relayer={relayer_url}

or be an agent without ETH that registers and attests (docs/kya.md):

  cargo run -p kya -- key agent.key
  cargo run -p kya -- register --key agent.key --at {guarded_url} --rpc {chain_url} --liable {liable} \
    --scope Invoices --constitution docs/agent/constitution.json --capabilities docs/agent/capabilities.json

or be an agent that the guarded service admits, by the field's own libraries (a bot's signature alone is refused):

  node tests/signers/signed-requests.mjs {guarded_url} 31337 {agent_key}

Ctrl-C stops everything.
",
        chain_url = chain.node.url(),
        registry = chain.contracts.registry,
        forwarder = chain.contracts.forwarder,
        worker_url = worker.url(),
        relayer_url = relayer.url(),
        guarded_url = guarded.url(),
        liable = seed::wallet("person").address(),
        agent_key = hex::encode_prefixed(seed::wallet("kyoto").to_bytes()),
        relayed = RELAYED.len(),
        logs = logs.map_or_else(|| "not kept on a free port".to_owned(), |logs| logs.display().to_string()),
        total = showcase.total,
        suspended = showcase.id("paused"),
        busy = showcase.id(BUSY),
        wallet = seed::wallet("kyoto").address(),
    )
}

async fn deploy_contracts(rpc_url: &str) -> Result<()> {
    let key = std::env::var("DEPLOYER_KEY").context("DEPLOYER_KEY is not set: the private key that pays")?;
    // The parser's own message could quote the key.
    let key: PrivateKeySigner = key.trim().parse().map_err(|_| {
        anyhow::anyhow!("DEPLOYER_KEY is no private key: 32 bytes of hexadecimal digits are expected")
    })?;
    eprintln!("deploying from {}", key.address());
    let contracts = deploy(rpc_url, key.clone()).await?;
    println!("REGISTRY_ADDRESS={}", contracts.registry);
    println!("FORWARDER_ADDRESS={}", contracts.forwarder);
    if let Some(multicall3) = deploy_multicall3(rpc_url, key).await? {
        eprintln!("This chain has no Multicall3 at {MULTICALL3}: one that does as much was deployed.");
        println!("MULTICALL3_ADDRESS={multicall3}");
    }
    Ok(())
}

/// Does one step; prints its name at the start and its time at the end.
async fn step<T>(name: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let began = Instant::now();
    eprint!("{name} ... ");
    let done = work.await?;
    eprintln!("{:.1} s", began.elapsed().as_secs_f64());
    Ok(done)
}
