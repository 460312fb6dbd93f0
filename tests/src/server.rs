//! The servers that are measured side by side: the Worker and its two peers of `tests/peers`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};

use crate::client::Client;
use crate::fault::{FaultRule, NodeFault};
use crate::http::request_to_reset;
use crate::load::Load;
use crate::process::{PATIENCE, Process, Spawn, eventually, output};
use crate::proxy::Proxy;
use crate::repo;
use crate::usage::Usage;
use crate::worker::{CONFIG, INDEX_CONFIG, WorkerOptions, build, run_workerd};

/// Path of an answer that costs only the runtime's part.
pub const LIVEZ: &str = "/livez";
const CACHED: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerKind {
    /// The project's Worker.
    Worker,
    /// The project's Worker beside the one that keeps its index.
    Indexed,
    /// A Worker in JavaScript: `tests/peers/hono.mjs`.
    Hono,
    /// A server on Node: `tests/peers/express.mjs`.
    Express,
}

impl ServerKind {
    pub const ALL: [Self; 3] = [Self::Worker, Self::Hono, Self::Express];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Worker => "this Worker",
            Self::Indexed => "this Worker with an index",
            Self::Hono => "Hono Worker",
            Self::Express => "Express",
        }
    }
}

#[derive(Debug)]
pub struct Server {
    pub kind: ServerKind,
    process: Process,
    url: String,
    /// URL that counts the requests to a distant index.
    counts: Option<String>,
    memory: Option<String>,
    /// Processor time and memory of workerd for a Worker, of Node for a Node server.
    pub usage: Usage,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackendCounts {
    /// Manifests of the snapshot requested from the index's object.
    pub manifests: u64,
    /// Shards of the snapshot requested from the index's object.
    pub shards: u64,
    /// Operations on the data centre's cache.
    pub cache_operations: u64,
}

impl Server {
    /// Builds the server where a source changed, starts it on a free port with the settings of a Worker, and
    /// waits until it listens. `workerd` has further options of `tests/workerd/run.mjs`, such as a cache that
    /// does not answer or a distant index. Measured servers are slower.
    pub async fn start(kind: ServerKind, options: &WorkerOptions, mut workerd: Value) -> Result<Self> {
        build().await?;
        let (spawn, settings) = (Spawn::new(kind.name(), "node"), options.settings());
        let api = json!({ "config": CONFIG, "settings": settings });
        workerd["workers"] = match kind {
            ServerKind::Worker => json!([api]),
            ServerKind::Indexed => json!([api, { "config": INDEX_CONFIG, "settings": settings }]),
            ServerKind::Hono => {
                let script = spawn.scratch().join("hono.js");
                let mut esbuild = tokio::process::Command::from(repo::command(repo::node_tool("esbuild")?));
                let arguments = ["--bundle", "--format=esm", "--minify", "--log-level=warning"];
                esbuild.arg("tests/peers/hono.mjs").args(arguments).current_dir(repo::root());
                output(esbuild.arg(format!("--outfile={}", script.display()))).await?;
                json!([{ "script": script, "settings": settings }])
            }
            ServerKind::Express => {
                let script = repo::root().join("tests/peers/express.mjs");
                let spawn =
                    spawn.dir(repo::root()).arg(script).env("PORT", "0").env("NODE_ENV", "production");
                let spawn = options.vars.iter().fold(spawn, |spawn, (name, value)| spawn.env(name, value));
                return Self::listening(kind, spawn.start()?).await;
            }
        };
        Self::listening(kind, run_workerd(spawn, &workerd).await?).await
    }

    async fn listening(kind: ServerKind, mut process: Process) -> Result<Self> {
        let url = process.announced("Ready on ", PATIENCE).await?;
        // The other addresses were announced before this one.
        let log = process.log();
        let announced = |words| log.lines().find_map(|line| line.strip_prefix(words)).map(str::to_owned);
        let (counts, memory) = (announced("Counts on "), announced("Memory on "));
        let usage = Usage::of(&process, if kind == ServerKind::Express { "node" } else { "workerd" })?;
        Ok(Self { kind, process, url, counts, memory, usage })
    }

    /// Returns the counts of a Worker with a distant index so far.
    pub async fn asked(&self) -> Result<BackendCounts> {
        let counts = self.counts.as_ref().context("only a distant index is counted")?;
        let questions = Client::new(counts).get("/").await.ok();
        let operations = self.client().get("/counts").await.ok();
        let count = |counts: &Value, name: &str| counts[name].as_u64().unwrap_or(0);
        Ok(BackendCounts {
            manifests: count(&questions, "Manifest"),
            shards: count(&questions, "Shard"),
            cache_operations: count(&operations, "match") + count(&operations, "put"),
        })
    }

    /// Returns the bytes of a measured Worker's wasm memory.
    pub async fn wasm_memory(&self) -> Result<u64> {
        self.client().get("/counts").await.ok()["memory"]
            .as_u64()
            .context("only a measured Worker tells its memory")
    }

    /// Returns the bytes that a measured Worker's instance holds in wasm memory, heap and buffers: after a
    /// garbage collection, and before it.
    pub async fn memory(&self) -> Result<[u64; 2]> {
        let memory = Client::new(self.memory.as_ref().context("only a measured Worker tells its memory")?);
        let wasm = self.wasm_memory().await?;
        let before = memory.get("/").await.ok();
        let collected = memory.get("/?collected").await.ok();
        let bytes = |used: &Value| used["bytes"].as_u64().with_context(|| used.to_string());
        Ok([wasm + bytes(&collected)?, wasm + bytes(&before)?])
    }

    /// Has this many clients request `path` while answers of the node behind `rpc` are delayed, and reset their
    /// connections; then requests it once more.
    pub async fn reset_by(&self, clients: u64, path: &str, rpc: &Proxy, delay: Duration) -> Result<()> {
        rpc.inject(FaultRule::any(NodeFault::Delay(delay)));
        let mut waiting = Vec::new();
        for _ in 0..clients {
            waiting.push(request_to_reset(&self.url, path, "X-Request-Id: leaves").await?);
        }
        // The clients' requests arrived before this one.
        self.client().get(LIVEZ).await.ok();
        drop(waiting);
        rpc.heal();
        self.client().get(path).await.ok();
        Ok(())
    }

    /// Lists the scripts and modules that a deployment of the Worker uploads.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        let directory = match self.kind {
            ServerKind::Hono => self.process.scratch().to_owned(),
            _ => repo::root().join("edge-api/build"),
        };
        let entries = std::fs::read_dir(directory)?;
        let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        files.retain(|path| path.extension().is_some_and(|end| end == "js" || end == "wasm"));
        Ok(files)
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    pub fn client(&self) -> Client {
        Client::new(&self.url)
    }

    /// Requests `path` until the answer comes from the cache: some caches store after they have answered.
    pub async fn until_cached(&self, path: &str) -> Result<()> {
        let (client, name) = (self.client(), self.kind.name());
        let hit = async || match client.get(path).await {
            answer if answer.status != 200 => Some(Err(anyhow!("{name}: {path}: {}", answer.text))),
            answer => (answer.header("x-cache") == "HIT").then_some(Ok(())),
        };
        eventually("cached", CACHED, hit).await.with_context(|| format!("{name}: {path}"))?
    }

    /// Puts load on a cached answer or on [`LIVEZ`]; `each` is that of [`Load::on`].
    pub async fn load(&self, path: &str, seconds: u32, each: Option<u32>) -> Result<Load> {
        if path != LIVEZ {
            self.until_cached(path).await?;
        }
        Load::on(&format!("{}{path}", self.url), &self.usage, seconds, each).await
    }

    pub fn log(&self) -> String {
        self.process.log()
    }
}
