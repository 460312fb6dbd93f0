//! The real Worker in the real runtime: workerd, started by `tests/workerd/run.mjs` with the bindings of the
//! repository's own `wrangler.toml`; for `cargo xtask dev` by `wrangler dev`.
//!
//! Between client and Worker there is nothing but a socket: under load the proxy of `wrangler dev` loses
//! requests (cloudflare/workers-sdk#14641, #15252).

use std::path::{Path, PathBuf};
use std::time::Duration;

use alloy::primitives::Address;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::client::Client;
use crate::process::{Process, Spawn, eventually, output};
use crate::repo;

/// Time that a Worker may take until it serves; for `wrangler dev`, with a build.
const START: Duration = Duration::from_secs(300);
/// Time after which workerd is started again if Miniflare has not reported that it listens. That was seen
/// once, with unknown cause.
const HANG: Duration = Duration::from_secs(100);
const LOGGED: Duration = Duration::from_secs(120);
/// Configuration of the read API's Worker.
pub(crate) const CONFIG: &str = "wrangler.toml";
pub(crate) const INDEX_CONFIG: &str = "wrangler.index.toml";

#[derive(Debug, Clone, Default)]
pub struct WorkerOptions {
    /// The port; 0 is any free one.
    pub port: u16,
    /// Settings of the Worker, by the names of `wrangler.toml` and the README.
    pub vars: Vec<(&'static str, String)>,
    /// Settings of other types than text.
    pub typed: Vec<(&'static str, Value)>,
    /// Directory that keeps cache and KV store for a later Worker; without it they end with the Worker.
    pub state: Option<PathBuf>,
    /// A configuration of wrangler in place of the repository's.
    pub config: Option<PathBuf>,
    /// Directory by which Workers find others with objects that they bind to; without it the Worker is alone.
    pub registry: Option<PathBuf>,
    pub log: Option<PathBuf>,
}

impl WorkerOptions {
    /// Configures a Worker for this chain and registry, without a rate limit and without a maximum age of the
    /// chain's head: a local chain makes a block only for a transaction.
    pub fn new(rpc_url: &str, registry: Address) -> Self {
        Self::default()
            .var("RPC_URL", rpc_url)
            .var("REGISTRY_ADDRESS", registry)
            .var("RATE_LIMIT_PER_MINUTE", 0)
            .var("MAX_HEAD_AGE_SECONDS", 0)
    }

    pub fn var(mut self, name: &'static str, value: impl std::fmt::Display) -> Self {
        self = self.unset(name);
        self.vars.push((name, value.to_string()));
        self
    }

    pub fn typed(mut self, name: &'static str, value: Value) -> Self {
        self.typed.push((name, value));
        self
    }

    /// Sets all three TTLs of answers, in seconds; with 0 each answer is of the newest block and not stored.
    pub fn ttl(self, seconds: u64) -> Self {
        let names = ["AGENT_TTL_SECONDS", "LINEAGE_TTL_SECONDS", "KYA_TTL_SECONDS"];
        names.into_iter().fold(self, |options, name| options.var(name, seconds))
    }

    pub fn unset(mut self, name: &str) -> Self {
        self.vars.retain(|(known, _)| *known != name);
        self
    }

    pub(crate) fn settings(&self) -> Value {
        let texts = self.vars.iter().map(|(name, value)| (*name, json!(value)));
        texts.chain(self.typed.iter().map(|(name, value)| (*name, value.clone()))).collect()
    }
}

/// A running Worker; without `state` in its options its cache and KV store start empty.
#[derive(Debug)]
pub struct Worker {
    process: Process,
    url: String,
    handlers: String,
}

impl Worker {
    pub async fn start(options: WorkerOptions) -> Result<Self> {
        build().await?;
        let config = options.config.clone().unwrap_or_else(|| repo::root().join(CONFIG));
        let workerd = json!({
            "workers": [{ "config": config, "settings": options.settings() }],
            "port": options.port, "state": options.state, "registry": options.registry,
            "assets": true, "logs": true,
        });
        let spawn = Spawn::new("workerd", "node").log(options.log.as_deref());
        let mut process = run_workerd(spawn, &workerd).await.context("the Worker does not start")?;
        let handlers = process.announced("Handlers on ", START).await?;
        let url = process.announced("Ready on ", START).await?;
        Ok(Self { process, url, handlers })
    }

    /// Starts `wrangler dev` as a developer does, and waits until the Worker answers. `wrangler` builds the
    /// Worker, and builds it again when a source changes.
    pub async fn start_wrangler(options: WorkerOptions) -> Result<Self> {
        let mut spawn = Spawn::new("wrangler", repo::node_tool("wrangler")?);
        let scratch = spawn.scratch().to_owned();
        let state = options.state.clone().unwrap_or_else(|| scratch.join("state"));
        let registry = options.registry.clone().unwrap_or_else(|| scratch.join("registry"));
        let port = options.port.to_string();
        spawn = spawn.dir(repo::root()).args(["dev", "--ip", "127.0.0.1", "--inspector-port", "0"]);
        spawn = spawn.args(["--port", &port]).args(["--persist-to".as_ref(), state.as_os_str()]);
        spawn = spawn.env("CI", "true").env("WRANGLER_SEND_METRICS", "false");
        spawn = spawn.env("WRANGLER_LOG_PATH", scratch.join("logs"));
        spawn = spawn.env("CLOUDFLARE_DEV_REGISTRY_PATH", registry);
        if let Some(config) = &options.config {
            spawn = spawn.arg("--config").arg(config);
        }
        for (name, value) in &options.vars {
            spawn = spawn.args(["--var", &format!("{name}:{value}")]);
        }
        let mut process = spawn.log(options.log.as_deref()).start()?;
        let url = process.announced("Ready on ", START).await.context("the Worker does not start")?;
        Ok(Self { process, url, handlers: String::new() })
    }

    /// Starts the edge of `deploy/edge/edge.capnp` on a free port: both Workers in one process of plain
    /// workerd, which keeps everything in `state`.
    pub async fn start_self_hosted(options: &WorkerOptions) -> Result<Self> {
        build().await?;
        let state = options.state.as_ref().context("the edge needs a directory")?;
        let mut spawn = Spawn::new("workerd", repo::node_tool("workerd")?)
            .dir(repo::root())
            // `--control-fd` announces the port on standard output.
            .args(["serve", "--experimental", "--control-fd", "1", "--socket-addr", "http=127.0.0.1:0"])
            .args(["--directory-path", &format!("data={}", state.display()), "deploy/edge/edge.capnp"])
            .log(options.log.as_deref());
        for (name, value) in &options.vars {
            spawn = spawn.env(name, value);
        }
        let mut process = spawn.start()?;
        let port = process.announced(r#""socket":"http","port":"#, START).await?;
        let url = format!("http://127.0.0.1:{}", port.trim_end_matches('}'));
        Ok(Self { process, url, handlers: String::new() })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns a client of the Worker; its errors say whether the Worker has logged the request.
    pub fn client(&self) -> Client {
        Client { log: self.process.log_path().map(Path::to_owned), ..Client::new(&self.url) }
    }

    pub async fn fire_cron(&self) -> Result<()> {
        let answer = Client::new(&self.handlers).get("/cdn-cgi/local/scheduled").await;
        anyhow::ensure!(answer.status == 200, "{}", answer.text);
        Ok(())
    }

    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Waits until at least `count` lines of the log have these words, and returns them: the log is written
    /// after the answers.
    pub async fn lines_with(&self, words: &str, count: usize) -> Result<Vec<String>> {
        eventually("in the log", LOGGED, async || {
            let log = self.log();
            let lines = log.lines().filter(|line| line.contains(words)).map(str::to_owned);
            Some(lines.collect::<Vec<_>>()).filter(|lines| lines.len() >= count)
        })
        .await
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

/// Starts Workers with these options of `tests/workerd/run.mjs`, and waits until they listen.
pub(crate) async fn run_workerd(spawn: Spawn, options: &Value) -> Result<Process> {
    let spawn = spawn.dir(repo::root()).arg(repo::root().join("tests/workerd/run.mjs"));
    let mut process = spawn.env("CI", "true").env("WORKERD", options.to_string()).start()?;
    if process.announced("Ready on ", HANG).await.is_err() && process.exit_status()?.is_none() {
        eprintln!("workerd hangs at its start, and is started again; it said {:?}", process.log());
        process.restart()?;
    }
    process.announced("Ready on ", START).await?;
    Ok(process)
}

/// Builds the Workers where a source changed, once a process; not at all where `E2E_BUILT` is set.
pub(crate) async fn build() -> Result<()> {
    static BUILT: OnceCell<()> = OnceCell::const_new();
    let build = async || {
        if std::env::var_os("E2E_BUILT").is_some() {
            return Ok(());
        }
        let mut cargo = tokio::process::Command::from(repo::cargo());
        output(cargo.args(["xtask", "build"])).await.map(drop)
    };
    BUILT.get_or_try_init(build).await.map(drop)
}
