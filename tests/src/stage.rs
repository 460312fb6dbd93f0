//! A whole stage: a chain, a counting proxy before it, and the Worker that reads through the proxy.

use std::future::Future;
use std::sync::LazyLock;

use anyhow::Result;
use tokio::runtime::Runtime;

use crate::anvil::AnvilOptions;
use crate::chain::Chain;
use crate::client::Client;
use crate::documents::Documents;
use crate::oracle::Oracle;
use crate::proxy::Proxy;
use crate::seed::{self, Showcase};
use crate::worker::{Worker, WorkerOptions};

/// Runs a test on the runtime all tests of a program share: what one test starts, such as a proxy, can serve others.
pub fn run<F: Future>(test: F) -> F::Output {
    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));
    RUNTIME.block_on(test)
}

/// Everything a test of the read API needs.
#[derive(Debug)]
pub struct Stage {
    /// The chain.
    pub chain: Chain,
    /// What the Worker takes for its RPC endpoint.
    pub proxy: Proxy,
    /// The Worker.
    pub worker: Worker,
    /// A client of the Worker.
    pub client: Client,
}

impl Stage {
    /// Starts a proxy and a Worker over `chain`; `settings` may change the Worker's.
    ///
    /// # Errors
    /// When one of them does not start.
    pub async fn over(chain: Chain, settings: impl FnOnce(WorkerOptions) -> WorkerOptions) -> Result<Self> {
        let proxy = Proxy::start(chain.node.url()).await?;
        let options = WorkerOptions::new(proxy.url(), chain.contracts.registry);
        let worker = Worker::start(settings(options)).await?;
        let client = worker.client();
        Ok(Self { chain, proxy, worker, client })
    }

    /// A stage with the showcase registry on it.
    ///
    /// # Errors
    /// When something does not start.
    pub async fn showcase(settings: impl FnOnce(WorkerOptions) -> WorkerOptions) -> Result<(Self, Showcase)> {
        let options =
            AnvilOptions { genesis_time: Some(seed::showcase_genesis()), ..AnvilOptions::default() };
        let chain = Chain::start(options).await?;
        let showcase = seed::showcase(&chain).await?;
        Ok((Self::over(chain, settings).await?, showcase))
    }

    /// An independent reader of the same registry, past the proxy.
    ///
    /// # Errors
    /// When the contracts are not built.
    pub fn oracle(&self) -> Result<Oracle> {
        Oracle::new(self.chain.node.url(), self.chain.contracts.registry)
    }

    /// The documents this registry's answers have to be, as of now.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn documents(&self) -> Result<Documents> {
        let oracle = self.oracle()?;
        Ok(Documents {
            agents: oracle.all().await?,
            registry: self.chain.contracts.registry.to_checksum(None),
            rpc: self.proxy.url().to_owned(),
            grace_seconds: oracle.grace_seconds().await?,
        })
    }
}
