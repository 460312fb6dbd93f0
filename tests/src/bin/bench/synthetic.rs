//! What the benchmarks of the index and of the snapshot share: synthetic registries of several sizes, and the
//! rows that the index's object reads and writes.

use std::array;
use std::time::Duration;

use alloy::primitives::{B256, Bytes, keccak256};
use anyhow::{Context as _, Result};
use e2e::anvil::{AnvilOptions, CHAIN_ID, wall_clock};
use e2e::chain::Chain;
use e2e::client::Client;
use e2e::server::{Bundles, Kind};
use e2e::synthetic::Synthetic;
use e2e::worker::WorkerOptions;
use serde_json::json;

use crate::document::Table;
use crate::step;

/// Agents of the registries that the document has.
const SIZES: [u64; 3] = [10_000, 100_000, 1_000_000];
/// How long an index may take to be filled, and a change to be seen.
pub(crate) const FILL: Duration = Duration::from_secs(1_800);
/// How often everything is measured that a median is shown of.
pub(crate) const SAMPLES: u64 = 9;
pub(crate) const CHANGES_A_DAY: u64 = 1_000;

/// These numbers of agents, or those of the document.
pub(crate) fn sizes(agents: &[&str]) -> Result<Vec<u64>> {
    let given = agents.iter().map(|size| size.parse()).collect::<Result<Vec<_>, _>>()?;
    Ok(if given.is_empty() { SIZES.to_vec() } else { given })
}

/// A registry on a chain, and the Workers that may index it.
pub(crate) struct Registry<'a> {
    pub(crate) chain: &'a Chain,
    pub(crate) bundles: &'a Bundles,
    pub(crate) contract: Synthetic,
    pub(crate) code_hash: B256,
    pub(crate) agents: u64,
}

impl Registry<'_> {
    /// Settings of Workers that read it at `rpc`.
    pub(crate) fn options(&self, rpc: &str) -> WorkerOptions {
        WorkerOptions::new(rpc, self.contract.address)
            .var("CHAIN_ID", CHAIN_ID)
            // A node carries out hundreds of calls for a slice one by one.
            .var("RPC_DEADLINE_SECONDS", 60)
            .var("RPC_TIMEOUT_SECONDS", 30)
    }

    /// Changes so many agents from that sample's part of the registry on: changes are spread over all of it.
    pub(crate) async fn change(&self, sample: u64, changes: u64) -> Result<()> {
        let first = 1 + sample * (self.agents / SAMPLES);
        if changes > 0 { self.contract.toggle(self.chain, first, changes).await } else { Ok(()) }
    }
}

/// Tables with a row for each size: the number of agents, and what `measure` gives for each table.
pub(crate) async fn tables<const N: usize>(
    sizes: &[u64],
    columns: [&str; N],
    measure: impl AsyncFn(&Registry<'_>) -> Result<[Vec<String>; N]>,
) -> Result<Vec<Table>> {
    let bundles = step("bundles of the Workers", Bundles::make(&[Kind::Worker, Kind::Indexed])).await?;
    let chain = Chain::start(AnvilOptions::since(wall_clock() - 3_600)).await?;
    let mut tables = columns.map(|columns| Table::new(&format!("agents | {columns}")));
    for agents in sizes.iter().copied() {
        let contract = Synthetic::deploy(&chain, agents).await?;
        let code: Bytes = chain.node.request("eth_getCode", json!([contract.address, "latest"])).await?;
        let code_hash = keccak256(&code);
        let registry = Registry { chain: &chain, bundles: &bundles, contract, code_hash, agents };
        let costs = step(&format!("{agents} agents"), measure(&registry)).await?;
        for (table, cells) in tables.iter_mut().zip(costs) {
            table.row([agents.to_string()].into_iter().chain(cells));
        }
    }
    Ok(tables.into())
}

/// Rows that the object has read and written since a time, unix seconds.
pub(crate) struct Rows {
    since: u64,
    pub(crate) counts: [u64; 2],
}

impl Rows {
    pub(crate) async fn of(client: &Client) -> Result<Self> {
        let status = client.get("/readyz").await.ok();
        let row = |name: &str| status["index"]["rows"][name].as_u64().context("the object counts its rows");
        Ok(Self { since: row("since")?, counts: [row("read")?, row("written")?] })
    }

    /// Those after an earlier count. An object that was idle may have been started anew, and counts from 0.
    pub(crate) fn after(&self, before: &Self) -> [u64; 2] {
        let same = self.since == before.since;
        array::from_fn(|place| self.counts[place] - if same { before.counts[place] } else { 0 })
    }
}
