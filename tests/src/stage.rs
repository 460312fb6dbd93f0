//! A chain, a counting proxy before it, and the Worker that reads through the proxy.

use std::path::Path;

use anyhow::Result;
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

use crate::anvil::CHAIN_ID;
use crate::chain::Chain;
use crate::client::Client;
use crate::process::{PATIENCE, Process};
use crate::proxy::Proxy;
use crate::repo;
use crate::seed::{self, Showcase};
use crate::worker::{Worker, WorkerOptions};

/// A fixture that the tests of a program use one at a time, since they count requests or inject faults.
#[derive(Debug)]
pub struct Exclusive<T> {
    turn: Mutex<()>,
    fixture: OnceCell<T>,
}

impl<T> Exclusive<T> {
    pub const fn empty() -> Self {
        Self { turn: Mutex::const_new(()), fixture: OnceCell::const_new() }
    }

    /// Waits for the other tests, and starts the fixture where no test has done so yet.
    pub async fn take(&'static self, make: impl AsyncFnOnce() -> T) -> (MutexGuard<'static, ()>, &'static T) {
        (self.turn.lock().await, self.fixture.get_or_init(|| make()).await)
    }
}

#[derive(Debug)]
pub struct WorkerStage {
    pub chain: Chain,
    /// The Worker's RPC endpoint.
    pub proxy: Proxy,
    pub worker: Worker,
    pub client: Client,
    pub index: Option<IndexWorker>,
}

#[derive(Debug)]
pub struct IndexWorker {
    worker: Worker,
    options: WorkerOptions,
    /// Directories of the Workers' registry and of the index's state.
    _directories: [TempDir; 2],
}

impl WorkerStage {
    /// Starts a chain with the showcase, a proxy and a Worker; `set` may change the Worker's options.
    pub async fn showcase(set: impl FnOnce(WorkerOptions) -> WorkerOptions) -> Result<(Self, Showcase)> {
        let (chain, showcase) = seed::showcase_chain().await?;
        let proxy = Proxy::start(chain.node.url()).await?;
        let options = WorkerOptions::new(proxy.url(), chain.contracts.registry);
        let worker = Worker::start(set(options)).await?;
        let client = worker.client();
        Ok((Self { chain, proxy, worker, client, index: None }, showcase))
    }

    /// Starts a proxy, a Worker over `chain`, and the Worker that keeps its index, with the same settings.
    pub async fn indexed(chain: Chain, set: impl FnOnce(WorkerOptions) -> WorkerOptions) -> Result<Self> {
        let proxy = Proxy::start(chain.node.url()).await?;
        let options = set(WorkerOptions::new(proxy.url(), chain.contracts.registry));
        let (worker, index) = IndexWorker::start(options).await?;
        let client = worker.client();
        let stage = Self { chain, proxy, worker, client, index: Some(index) };
        stage.index_found().await?;
        Ok(stage)
    }

    fn index(&self) -> &IndexWorker {
        self.index.as_ref().expect("a stage with an index")
    }

    fn index_mut(&mut self) -> &mut IndexWorker {
        self.index.as_mut().expect("a stage with an index")
    }

    pub async fn fire_index_cron(&self) -> Result<()> {
        self.index().worker.fire_cron().await
    }

    /// Returns the directory of the index Worker's state.
    pub fn index_state(&self) -> &Path {
        self.index().options.state.as_deref().expect("an index keeps its state")
    }

    pub fn kill_index(&mut self) {
        self.index_mut().worker.process().kill();
    }

    pub async fn restart_index(&mut self) -> Result<()> {
        let index = self.index_mut();
        index.worker = Worker::start(index.options.clone()).await?;
        Ok(())
    }

    /// Starts another Worker with the same index and settings of its own, like an instance in another data
    /// centre.
    pub async fn another(&self, set: impl FnOnce(WorkerOptions) -> WorkerOptions) -> Result<Worker> {
        Worker::start(set(self.index().another())).await
    }

    /// Restarts both Workers with other settings; the index keeps its stored state.
    pub async fn restart_with(&mut self, set: impl FnOnce(WorkerOptions) -> WorkerOptions) -> Result<()> {
        self.worker.process().kill();
        let index = self.index_mut();
        index.worker.process().kill();
        index.options = set(index.options.clone());
        let options = index.another().var("INDEX", "durable-object");
        let (index, worker) = tokio::try_join!(Worker::start(index.options.clone()), Worker::start(options))?;
        (self.index_mut().worker, self.worker) = (index, worker);
        self.client = self.worker.client();
        self.index_found().await
    }

    pub fn index_log(&self) -> String {
        self.index().worker.log()
    }

    pub async fn index_found(&self) -> Result<()> {
        self.client.until_ready("the index", PATIENCE, |ready| ready["index"].is_object()).await
    }
}

impl IndexWorker {
    /// Starts the Worker with these options and an index, and the Worker that keeps the index.
    pub async fn start(options: WorkerOptions) -> Result<(Worker, Self)> {
        Self::start_with(options, Worker::start).await
    }

    /// Starts both Workers by `wrangler dev`, as a developer does.
    pub async fn start_wrangler(options: WorkerOptions) -> Result<(Worker, Self)> {
        Self::start_with(options, Worker::start_wrangler).await
    }

    async fn start_with(
        options: WorkerOptions,
        start: impl AsyncFn(WorkerOptions) -> Result<Worker>,
    ) -> Result<(Worker, Self)> {
        let is_set = options.vars.iter().any(|(name, _)| *name == "CHAIN_ID");
        let options = if is_set { options } else { options.var("CHAIN_ID", CHAIN_ID) };
        let directories = [TempDir::new()?, TempDir::new()?];
        let [registry, state] = directories.each_ref().map(|directory| Some(directory.path().to_owned()));
        // Both Workers have the same settings.
        let options = options.var("INDEX", "durable-object");
        let own = WorkerOptions {
            port: 0,
            config: Some(repo::root().join("wrangler.index.toml")),
            registry: registry.clone(),
            state,
            log: None,
            ..options.clone()
        };
        let options = WorkerOptions { registry, ..options };
        let (index, worker) = tokio::try_join!(start(own.clone()), start(options))?;
        Ok((worker, Self { worker: index, options: own, _directories: directories }))
    }

    pub fn another(&self) -> WorkerOptions {
        WorkerOptions { state: None, config: None, ..self.options.clone() }
    }

    pub fn process(&mut self) -> &mut Process {
        self.worker.process()
    }
}
