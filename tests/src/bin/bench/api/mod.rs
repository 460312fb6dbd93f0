//! The read API beside its peers and the bare RPC call: warm and cold answers, whole registries, size, start.
//!
//! One chain has two registries: a real one of few agents for warm answers, and a large one for cold answers.

mod cold;
mod scan;
mod start;
mod warm;

use std::fmt::Write as _;
use std::path::Path;

use alloy::primitives::Address;
use anyhow::Result;
use e2e::anvil::{AnvilOptions, wall_clock};
use e2e::chain::Chain;
use e2e::proxy::Proxy;
use e2e::seed;
use e2e::server::{Bundles, Kind, Server};
use e2e::synthetic::Synthetic;
use e2e::worker::WorkerOptions;

use crate::step;

/// Agents while warm answers are measured.
const FEW: u64 = 100;

/// Agents while cold answers are measured.
const MANY: u64 = 10_000;

/// A limit that counts every request and refuses none.
const RATE_LIMIT: u32 = 1_000_000_000;

/// What all servers read: a registry on a chain, and the proxy before it that counts.
struct Setup {
    chain: Chain,
    registry: Address,
    proxy: Proxy,
    bundles: Bundles,
}

impl Setup {
    fn options(&self, registry: Address) -> WorkerOptions {
        WorkerOptions::new(self.proxy.url(), registry)
            .var("CHAIN_ID", 31_337)
            .var("RATE_LIMIT_PER_MINUTE", RATE_LIMIT)
    }

    async fn start(&self, kind: Kind) -> Result<Server> {
        Server::start(kind, &self.bundles, &self.options(self.registry)).await
    }
}

/// The section of `BENCHMARKS.md`: of the Worker as it is, or of another build of it, bundled in `worker`.
pub(crate) async fn section(worker: Option<&Path>) -> Result<String> {
    let bundles = step("bundles of the Workers", Bundles::make(&Kind::ALL, worker)).await?;
    // Blocks of one second get times a second apart: an hour is room for all of them.
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await?;
    let proxy = Proxy::start(chain.node.url()).await?;
    let mut setup = Setup { registry: chain.contracts.registry, chain, proxy, bundles };

    step("a small registry", seed::many(&setup.chain, FEW)).await?;
    let warm = step("warm answers", warm::measure(&setup)).await?;
    setup.registry = Synthetic::deploy(&setup.chain, MANY).await?.address;
    let cold = step("cold answers about one agent", cold::measure(&setup)).await?;
    let scan = step("cold answers about the whole registry", scan::measure(&setup)).await?;
    let start = step("size and start", start::measure(&setup)).await?;

    let mut section = "## Read API\n".to_owned();
    for part in [warm, cold, scan, start] {
        write!(section, "\n{part}")?;
    }
    Ok(section)
}
