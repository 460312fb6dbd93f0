//! The servers that are measured side by side: the Worker and its two peers of `tests/peers`.
//!
//! Workers run in workerd, started by miniflare: the proxy of `wrangler dev` costs more than they do.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::client::Client;
use crate::process::{Process, Spawn, eventually, output};
use crate::repo;
use crate::usage::Usage;
use crate::worker::WorkerOptions;

/// How long a server may take to listen.
const START: Duration = Duration::from_secs(60);

/// How long an answer may take to be cached.
const CACHED: Duration = Duration::from_secs(20);

/// The configurations of the Worker, and of the one that keeps its index.
const CONFIG: &str = "wrangler.toml";
const INDEX_CONFIG: &str = "wrangler.index.toml";

/// The servers that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The project's Worker, as `wrangler deploy` would upload it.
    Worker,
    /// The same beside the one that keeps its index.
    Indexed,
    /// A Worker in JavaScript: `tests/peers/hono.mjs`.
    Hono,
    /// A server on Node: `tests/peers/express.mjs`.
    Express,
}

impl Kind {
    /// Those that are compared.
    pub const ALL: [Self; 3] = [Self::Worker, Self::Hono, Self::Express];

    /// What reports call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Worker => "this Worker",
            Self::Indexed => "this Worker with an index",
            Self::Hono => "Hono Worker",
            Self::Express => "Express",
        }
    }
}

/// The Workers, bundled as they would be uploaded; deleted when dropped.
#[derive(Debug)]
pub struct Bundles {
    directory: TempDir,
    /// Where this project's Worker is, if not in `directory`.
    worker: Option<PathBuf>,
}

impl Bundles {
    /// Builds what changed, and bundles these; `worker` is where another build of this project's Worker is.
    pub async fn make(kinds: &[Kind], worker: Option<&Path>) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("e2e-bundles-").tempdir()?;
        let bundles = Self { directory, worker: worker.map(Path::to_owned) };
        for kind in kinds {
            match kind {
                Kind::Worker if bundles.worker.is_none() => bundles.deploy_dry(*kind, CONFIG).await?,
                Kind::Indexed => bundles.deploy_dry(*kind, INDEX_CONFIG).await?,
                Kind::Hono => bundles.bundle_hono().await?,
                Kind::Worker | Kind::Express => {}
            }
        }
        Ok(bundles)
    }

    async fn deploy_dry(&self, kind: Kind, config: &str) -> Result<()> {
        let mut wrangler = Command::new(repo::node_tool("wrangler")?);
        wrangler
            .args(["deploy", "--dry-run", "--config", config, "--env", "", "--outdir"])
            .arg(self.directory_of(kind))
            .current_dir(repo::root())
            .env("CI", "true")
            .env("WRANGLER_SEND_METRICS", "false")
            .env("WRANGLER_LOG_PATH", self.directory.path().join("logs"));
        output(&mut wrangler).await.map(drop)
    }

    async fn bundle_hono(&self) -> Result<()> {
        let mut hono = Command::new(repo::node_tool("esbuild")?);
        hono.args(["tests/peers/hono.mjs", "--bundle", "--format=esm", "--minify", "--log-level=warning"])
            .arg(format!("--outfile={}", self.directory_of(Kind::Hono).join("hono.js").display()))
            .current_dir(repo::root());
        output(&mut hono).await.map(drop)
    }

    /// The uploaded files of a Worker; of [`Kind::Indexed`] those of the one that keeps the index.
    pub fn files(&self, kind: Kind) -> Result<Vec<PathBuf>> {
        let entries = std::fs::read_dir(self.directory_of(kind))?;
        let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        files.retain(|path| path.extension().is_some_and(|end| end == "js" || end == "wasm"));
        Ok(files)
    }

    fn directory_of(&self, kind: Kind) -> PathBuf {
        match (kind, &self.worker) {
            (Kind::Worker, Some(directory)) => directory.clone(),
            (Kind::Worker, None) => self.directory.path().join("worker"),
            (Kind::Indexed, _) => self.directory.path().join("index"),
            _ => self.directory.path().join("hono"),
        }
    }

    fn script(&self, kind: Kind) -> Result<PathBuf> {
        let mut scripts = self.files(kind)?;
        scripts.retain(|path| path.extension().is_some_and(|extension| extension == "js"));
        ensure!(scripts.len() == 1, "one script is the Worker: {scripts:?}");
        Ok(scripts.remove(0))
    }
}

/// A running server; it ends when this is dropped.
#[derive(Debug)]
pub struct Server {
    /// Which one.
    pub kind: Kind,
    process: Process,
    url: String,
    /// Where the questions to a distant index are counted.
    counts: Option<String>,
    /// Where the memory of its instance is told.
    memory: Option<String>,
    /// What it uses of the machine: workerd's part of a Worker, Node's of a Node server.
    pub usage: Usage,
}

/// Where the Worker with the index is, as seen from the one that asks it.
#[derive(Debug)]
pub struct Distance<'a> {
    /// Milliseconds that each question to the object takes more.
    pub millis: u64,
    /// The RPC endpoint of that Worker.
    pub rpc_url: &'a str,
}

/// How a server is set up.
enum Setup<'a> {
    Plain,
    /// The data centre's cache does not answer.
    SilentCache,
    /// What its instance holds and what it asks the cache for is told.
    Measured,
    /// Measured, and far from its index.
    Apart(Distance<'a>),
}

/// What a Worker asked for and got.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Asked {
    /// Manifests of the snapshot, of the index's object.
    pub manifests: u64,
    /// Shards of the snapshot, of the index's object.
    pub shards: u64,
    /// Operations on the data centre's cache.
    pub cache_operations: u64,
}

impl Server {
    /// Starts it on a free port with the settings of a Worker, and waits until it listens.
    pub async fn start(kind: Kind, bundles: &Bundles, options: &WorkerOptions) -> Result<Self> {
        Self::spawn(kind, bundles, options, Setup::Plain).await
    }

    /// The Worker without an index, and with a cache of the data centre that does not answer.
    pub async fn start_with_silent_cache(bundles: &Bundles, options: &WorkerOptions) -> Result<Self> {
        Self::spawn(Kind::Worker, bundles, options, Setup::SilentCache).await
    }

    /// The Worker without an index, measured as one [apart](Self::start_apart) from it is: that costs time.
    pub async fn start_measured(bundles: &Bundles, options: &WorkerOptions) -> Result<Self> {
        Self::spawn(Kind::Worker, bundles, options, Setup::Measured).await
    }

    /// The Worker with an index, far from it, and measured: see [`Server::asked`] and [`Server::memory`].
    pub async fn start_apart(
        bundles: &Bundles,
        options: &WorkerOptions,
        distance: Distance<'_>,
    ) -> Result<Self> {
        Self::spawn(Kind::Indexed, bundles, options, Setup::Apart(distance)).await
    }

    async fn spawn(kind: Kind, bundles: &Bundles, options: &WorkerOptions, setup: Setup<'_>) -> Result<Self> {
        let peers = repo::root().join("tests/peers");
        let mut spawn = Spawn::new(kind.name(), "node").dir(repo::root());
        spawn = match kind {
            Kind::Express => {
                let spawn =
                    spawn.arg(peers.join("express.mjs")).env("PORT", "0").env("NODE_ENV", "production");
                options.vars.iter().fold(spawn, |spawn, (name, value)| spawn.env(name, value))
            }
            Kind::Worker | Kind::Indexed | Kind::Hono => {
                let settings = options.vars.iter().map(|(name, value)| (*name, value.as_str()));
                let spawn = spawn
                    .arg(peers.join("workerd.mjs"))
                    .env("CI", "true")
                    .env("WORKER_SETTINGS", Value::from_iter(settings).to_string());
                match kind {
                    Kind::Indexed => spawn
                        .arg(bundles.script(Kind::Worker)?)
                        .arg(Path::new(CONFIG))
                        .arg(bundles.script(Kind::Indexed)?)
                        .arg(Path::new(INDEX_CONFIG)),
                    Kind::Worker => spawn.arg(bundles.script(kind)?).arg(Path::new(CONFIG)),
                    _ => spawn.arg(bundles.script(kind)?),
                }
            }
        };
        let is_measured = matches!(setup, Setup::Measured | Setup::Apart(_));
        if is_measured {
            spawn = spawn.env("MEASURED", "1");
        }
        if matches!(setup, Setup::SilentCache) {
            spawn = spawn.env("SILENT_CACHE", "1");
        }
        if let Setup::Apart(Distance { millis, rpc_url }) = &setup {
            let distant = json!({ "millis": millis, "settings": { "RPC_URL": rpc_url } });
            spawn = spawn.env("DISTANT_INDEX", distant.to_string());
        }
        let mut process = spawn.start()?;
        let (mut counts, mut memory) = (None, None);
        if is_measured {
            memory = Some(process.announced("Memory on ", START).await?);
        }
        if matches!(setup, Setup::Apart(_)) {
            counts = Some(process.announced("Counts on ", START).await?);
        }
        let url = process.announced("Ready on ", START).await?;
        let program = if kind == Kind::Express { "node" } else { "workerd" };
        let usage = Usage::of(&process, program)?;
        Ok(Self { kind, process, url, counts, memory, usage })
    }

    /// What a Worker [apart](Self::start_apart) from its index has got so far.
    pub async fn asked(&self) -> Result<Asked> {
        let counts = self.counts.as_ref().context("only a distant index is counted")?;
        let questions = Client::new(counts).get("/").await.ok();
        let operations = self.client().get("/counts").await.ok();
        let count = |counts: &Value, name: &str| counts[name].as_u64().unwrap_or(0);
        Ok(Asked {
            manifests: count(&questions, "Manifest"),
            shards: count(&questions, "Shard"),
            cache_operations: count(&operations, "match") + count(&operations, "put"),
        })
    }

    /// What the instance of a measured Worker holds, in bytes: its wasm memory, its heap and its buffers. First
    /// without garbage, which is collected for it, then as it was before.
    pub async fn memory(&self) -> Result<[u64; 2]> {
        let memory = Client::new(self.memory.as_ref().context("only a measured Worker tells its memory")?);
        let wasm = self.client().get("/counts").await.ok()["memory"].as_u64().context("a wasm memory")?;
        let before = memory.get("/").await.ok();
        let collected = memory.get("/?collected").await.ok();
        let bytes = |used: &Value| used["bytes"].as_u64().with_context(|| used.to_string());
        Ok([wasm + bytes(&collected)?, wasm + bytes(&before)?])
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A client of it.
    pub fn client(&self) -> Client {
        Client::new(&self.url)
    }

    /// Requests `path` until the answer is from the cache: some caches store after they have answered.
    pub async fn until_cached(&self, path: &str) -> Result<()> {
        let (client, name) = (self.client(), self.kind.name());
        let hit = async || match client.get(path).await {
            answer if answer.status != 200 => Some(Err(anyhow!("{name}: {path}: {}", answer.text))),
            answer => (answer.header("x-cache") == "HIT").then_some(Ok(())),
        };
        eventually("cached", CACHED, hit).await.with_context(|| format!("{name}: {path}"))?
    }

    /// What it has printed so far.
    pub fn log(&self) -> String {
        self.process.log()
    }
}
