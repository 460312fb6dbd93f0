//! Parts that the benchmarks share: a chain with a registry, servers that read it through a counting proxy,
//! timed requests, and the cost of work.

pub(crate) use std::time::{Duration, Instant};

use alloy::primitives::{B256, Bytes, keccak256};
pub(crate) use anyhow::{Context as _, Result, anyhow, ensure};
use e2e::anvil::{AnvilOptions, CHAIN_ID, wall_clock};
use e2e::chain::Chain;
use e2e::client::Client;
pub(crate) use e2e::load::CONNECTIONS;
use e2e::proxy::{Post, Proxy};
pub(crate) use e2e::server::{Server, ServerKind};
use e2e::synthetic::Synthetic;
use e2e::worker::WorkerOptions;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use registry_core::{evidence::Layout, snapshot::Manifest};
use serde_json::Value;
pub(crate) use serde_json::json;

pub(crate) use crate::report::{head, medians, mib, millis, percentile, row, seconds};

const SIZES: [u64; 3] = [10_000, 100_000, 1_000_000]; // agents of the registries in `BENCHMARKS.md`
pub(crate) const FILL: Duration = Duration::from_secs(1_800); // until an index is filled, or a change seen
pub(crate) const SAMPLES: u64 = 9; // of each median
pub(crate) const CHANGES_A_DAY: u64 = 1_000;

/// A registry on a chain, and the proxy through which servers read it.
pub(crate) struct Lab {
    pub(crate) chain: Chain,
    pub(crate) proxy: Proxy,
    pub(crate) registry: Synthetic,
    pub(crate) agents: u64,
}

impl Lab {
    /// Starts a chain with an empty registry, and the proxy.
    pub(crate) async fn start() -> Result<Self> {
        // Blocks of one second get times a second apart: an hour is room for all of them.
        let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await?;
        let proxy = Proxy::start(chain.node.url()).await?;
        Ok(Self { registry: Synthetic { address: chain.contracts.registry }, chain, proxy, agents: 0 })
    }

    /// Replaces the registry by a synthetic one with this many agents.
    pub(crate) async fn resize(&mut self, agents: u64) -> Result<()> {
        (self.registry, self.agents) = (Synthetic::deploy(&self.chain, agents).await?, agents);
        Ok(())
    }

    pub(crate) fn options(&self) -> WorkerOptions {
        WorkerOptions::new(self.proxy.url(), self.registry.address)
            .var("CHAIN_ID", CHAIN_ID)
            // A node carries out hundreds of calls for a slice one by one.
            .var("RPC_DEADLINE_SECONDS", 60)
            .var("RPC_TIMEOUT_SECONDS", 30)
    }

    /// Returns options with an index that makes a snapshot.
    pub(crate) async fn with_snapshot(&self) -> Result<WorkerOptions> {
        // Computed agents have no storage slots to prove.
        let layout = Layout { code_hash: Some(self.code_hash().await?), ..Layout::AGENT_REGISTRY };
        let options = self.options().var("EVIDENCE_LAYOUT", serde_json::to_string(&layout)?);
        Ok(options.var("INDEX_SPOT_CHECKS", 0).var("INDEX", "durable-object"))
    }

    pub(crate) async fn serve(
        &self,
        kind: ServerKind,
        options: &WorkerOptions,
        workerd: Value,
    ) -> Result<Target<'_>> {
        self.chain.node.freshen().await?;
        let server = Server::start(kind, options, workerd).await?;
        Ok(Target { lab: self, client: server.client(), server })
    }

    pub(crate) async fn code_hash(&self) -> Result<B256> {
        let address = json!([self.registry.address, "latest"]);
        Ok(keccak256(self.chain.node.request::<Bytes>("eth_getCode", address).await?))
    }

    /// Changes this many agents at the start of the sample's part: samples spread over the registry.
    pub(crate) async fn change(&self, sample: u64, changes: u64) -> Result<()> {
        let first = 1 + sample * (self.agents / SAMPLES);
        if changes > 0 { self.registry.toggle(&self.chain, first, changes).await } else { Ok(()) }
    }
}

/// Makes tables with a row for each of these numbers of agents, by default [`SIZES`]; `measure` returns a
/// row's other cells for each table.
pub(crate) async fn by_size<const N: usize>(
    sizes: &[u64],
    columns: [&str; N],
    measure: impl AsyncFn(&Lab) -> Result<[String; N]>,
) -> Result<Vec<String>> {
    let mut lab = Lab::start().await?;
    let mut tables = columns.map(|columns| head(&format!("agents | {columns}")));
    for agents in if sizes.is_empty() { &SIZES } else { sizes } {
        lab.resize(*agents).await?;
        eprintln!("{agents} agents");
        let rows = measure(&lab).await?;
        tables.iter_mut().zip(rows).for_each(|(table, cells)| *table += &format!("| {agents} {cells}"));
    }
    Ok(tables.into())
}

/// A measured server of the lab.
pub(crate) struct Target<'a> {
    pub(crate) lab: &'a Lab,
    pub(crate) server: Server,
    pub(crate) client: Client,
}

/// Cost of some work: time, the server's CPU, and posts to the node.
pub(crate) struct Cost {
    pub(crate) time: Duration,
    pub(crate) cpu: Duration,
    pub(crate) posts: Vec<Post>,
}

impl Target<'_> {
    pub(crate) async fn cost<T>(&self, work: impl Future<Output = Result<T>>) -> Result<(T, Cost)> {
        self.lab.proxy.reset();
        let (cpu, began) = (self.server.usage.cpu()?, Instant::now());
        let done = work.await?;
        let (time, cpu) = (began.elapsed(), self.server.usage.cpu()? - cpu);
        Ok((done, Cost { time, cpu, posts: self.lab.proxy.reset() }))
    }

    pub(crate) async fn manifest(&self) -> Result<Manifest> {
        let url = format!("{}/api/v1/snapshot", self.server.url());
        let bytes = fetch(e2e::http::client(FILL).get(url)).await?;
        Manifest::parse(&bytes).map_err(|error| anyhow!("{error:?}"))
    }

    /// Returns the rows that the index's object has read and written, and the time when its count began.
    pub(crate) async fn rows(&self) -> Result<[u64; 3]> {
        let rows = &self.client.get("/readyz").await.ok()["index"]["rows"];
        let [read, written, since] = ["read", "written", "since"].map(|name| rows[name].as_u64());
        read.zip(written).zip(since).map(|((read, written), since)| [read, written, since]).context("no rows")
    }

    /// Returns the rows read and written since an earlier count. An idle object may have been started anew,
    /// and counts from 0.
    pub(crate) async fn rows_after(&self, before: [u64; 3]) -> Result<[u64; 2]> {
        let now = self.rows().await?;
        Ok(std::array::from_fn(|place| now[place] - if now[2] == before[2] { before[place] } else { 0 }))
    }
}

impl Cost {
    pub(crate) fn bytes(&self) -> u64 {
        self.posts.iter().filter_map(|post| post.answer.get()).map(|answer| answer.bytes).sum()
    }
}

/// Makes requests on this many connections, and returns each result with its time.
pub(crate) async fn timed<R, T>(
    connections: usize,
    requests: impl IntoIterator<Item = R>,
    ask: impl AsyncFn(R) -> Result<T>,
) -> Result<Vec<(T, Duration)>> {
    let ask = &ask;
    let timed = |request| async move {
        let began = Instant::now();
        Ok((ask(request).await?, began.elapsed()))
    };
    stream::iter(requests.into_iter().map(timed)).buffered(connections).try_collect().await
}

/// Builds a client that keeps its connections open; others open one for each request.
pub(crate) fn kept_alive() -> Result<reqwest::Client> {
    Ok(e2e::http::builder().pool_max_idle_per_host(CONNECTIONS).timeout(Duration::from_secs(30)).build()?)
}

/// Sends a request, and returns the content of a successful answer.
pub(crate) async fn fetch(request: reqwest::RequestBuilder) -> Result<Vec<u8>> {
    Ok(request.send().await?.error_for_status()?.bytes().await?.into())
}
