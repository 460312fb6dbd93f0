//! The real Worker in the real runtime: `wrangler dev`, from the repository's own `wrangler.toml`.

use std::path::PathBuf;
use std::time::Duration;

use alloy::primitives::Address;
use anyhow::{Context as _, Result};

use crate::client::Client;
use crate::process::{Process, Spawn, eventually};
use crate::repo;

/// How long wrangler may take to serve, a build of the Worker included.
const START: Duration = Duration::from_secs(300);

/// How long a line may take to appear in the log.
const LOGGED: Duration = Duration::from_secs(10);

/// What keeps wrangler from ending where one request fails.
const GOES_ON: &str = "tests/wrangler-goes-on.cjs";

/// What to start.
#[derive(Debug, Clone, Default)]
pub struct WorkerOptions {
    /// The port; 0 is any free one.
    pub port: u16,
    /// Settings of the Worker, as `wrangler.toml` and the README name them.
    pub vars: Vec<(&'static str, String)>,
    /// Where cache and KV store are kept, for a later Worker to find; without this they end with the Worker.
    pub state: Option<PathBuf>,
    /// wrangler's configuration, in place of the repository's.
    pub config: Option<PathBuf>,
    /// Where Workers register for others that bind to their objects; without this the Worker is alone.
    pub registry: Option<PathBuf>,
    /// Where wrangler's output is kept.
    pub log: Option<PathBuf>,
}

impl WorkerOptions {
    /// A Worker for this chain and registry, without a rate limit and without a maximum age of the chain's
    /// head: a local chain makes a block only for a transaction.
    pub fn new(rpc_url: &str, registry: Address) -> Self {
        Self::default()
            .var("RPC_URL", rpc_url)
            .var("REGISTRY_ADDRESS", registry)
            .var("RATE_LIMIT_PER_MINUTE", 0)
            .var("MAX_HEAD_AGE_SECONDS", 0)
    }

    /// Sets one setting, in place of an earlier value.
    pub fn var(mut self, name: &'static str, value: impl std::fmt::Display) -> Self {
        self = self.unset(name);
        self.vars.push((name, value.to_string()));
        self
    }

    /// Sets all three TTLs of answers, in seconds; at 0 no answer is stored, and each is of the newest block.
    pub fn ttl(self, seconds: u64) -> Self {
        let names = ["AGENT_TTL_SECONDS", "LINEAGE_TTL_SECONDS", "KYA_TTL_SECONDS"];
        names.into_iter().fold(self, |options, name| options.var(name, seconds))
    }

    /// Leaves one setting to its default.
    pub fn unset(mut self, name: &str) -> Self {
        self.vars.retain(|(known, _)| *known != name);
        self
    }

    /// The value of a setting, `""` where it is left to its default.
    pub fn get(&self, name: &str) -> &str {
        self.vars.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value)
    }
}

/// A running Worker; without `state` in its options its cache and KV store start empty.
#[derive(Debug)]
pub struct Worker {
    process: Process,
    url: String,
}

impl Worker {
    /// Starts wrangler and waits until the Worker answers.
    pub async fn start(options: WorkerOptions) -> Result<Self> {
        let mut spawn = Spawn::new("wrangler", repo::node_tool("wrangler")?);
        let scratch = spawn.scratch().to_owned();
        let state = options.state.clone().unwrap_or_else(|| scratch.join("state"));
        let registry = options.registry.clone().unwrap_or_else(|| scratch.join("registry"));
        let own = std::env::var("NODE_OPTIONS").unwrap_or_default();
        let goes_on = format!("--require \"{}\"", repo::root().join(GOES_ON).display());
        spawn = spawn
            .dir(repo::root())
            .args(["dev", "--ip", "127.0.0.1", "--inspector-port", "0"])
            .args(["--port", &options.port.to_string()])
            .args(["--persist-to".as_ref(), state.as_os_str()])
            .env("CI", "true")
            .env("NODE_OPTIONS", [own.as_str(), &goes_on].join(" ").trim())
            .env("WRANGLER_SEND_METRICS", "false")
            .env("WRANGLER_LOG_PATH", scratch.join("logs"))
            .env("WRANGLER_REGISTRY_PATH", registry);
        if let Some(config) = &options.config {
            spawn = spawn.arg("--config").arg(config);
        }
        for (name, value) in &options.vars {
            spawn = spawn.args(["--var", &format!("{name}:{value}")]);
        }
        let mut process = spawn.log(options.log.as_deref()).start()?;
        let url = process.announced("Ready on ", START).await.context("the Worker does not start")?;
        Ok(Self { process, url })
    }

    /// The Worker's address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A client of the Worker.
    pub fn client(&self) -> Client {
        Client::new(&self.url)
    }

    /// What wrangler and the Worker have printed so far.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// The lines of the log with these words, once there are at least `count`: the log is written after the
    /// answers.
    pub async fn lines_with(&self, words: &str, count: usize) -> Result<Vec<String>> {
        eventually("in the log", LOGGED, async || {
            let log = self.log();
            let lines = log.lines().filter(|line| line.contains(words)).map(str::to_owned);
            Some(lines.collect::<Vec<_>>()).filter(|lines| lines.len() >= count)
        })
        .await
    }

    /// The process behind the Worker, to watch over.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}
