//! The whole stack for tests written for Node: a chain with the showcase on it, the real Worker with the
//! explorer's files and with its index, the real relayer, a service behind the gate; and for failures another
//! chain and an address where nothing listens.

use alloy::primitives::{U256, uint};
use anyhow::Result;
use serde_json::{Map, Value, json};
use tokio::net::TcpSocket;

use crate::anvil::{Anvil, AnvilOptions, CHAIN_ID};
use crate::chain::Chain;
use crate::daemon::RelayerDaemon;
use crate::deploy::MULTICALL3;
use crate::guarded::GuardedService;
use crate::process::PATIENCE;
use crate::repo::Artifact;
use crate::seed::{self, Showcase};
use crate::stage::IndexWorker;
use crate::worker::{Worker, WorkerOptions};

const RELAYER_BALANCE: U256 = uint!(1_000_000_000_000_000_000_U256);

#[derive(Debug)]
pub struct Stack {
    chain: Chain,
    showcase: Showcase,
    other: Anvil,
    relayer: RelayerDaemon,
    guarded: GuardedService,
    worker: Worker,
    index: IndexWorker,
    /// Another Worker on the same index, with verdicts from the registry's snapshot.
    snapshots: Worker,
    /// Bound and not listening: it refuses connections, and no other process gets the port.
    silent: TcpSocket,
}

impl Stack {
    pub async fn start() -> Result<Self> {
        let (chain, showcase) = seed::showcase_chain().await?;
        // A chain without the registry, but with Multicall3.
        let other = Anvil::start(AnvilOptions { chain_id: Some(4242), ..AnvilOptions::default() }).await?;
        other.set_code(MULTICALL3, &Artifact::load("Multicall3")?.runtime_code).await?;

        let key = seed::wallet("relayer");
        chain.node.set_balance(key.address(), RELAYER_BALANCE).await?;
        // The balance changed without a block, so no proof would match the newest block's state root.
        chain.node.mine(1).await?;
        let relayer = RelayerDaemon::start(&chain.daemon(&key)).await?;
        let guarded = GuardedService::start(0, &chain).await?;
        // The default limit holds, since each test is a client of its own. Changes appear after seconds.
        let options = WorkerOptions::new(chain.node.url(), chain.contracts.registry)
            .unset("RATE_LIMIT_PER_MINUTE")
            .var("KYA_TTL_SECONDS", 5)
            // Answers name their chain, by which a domain's file is judged.
            .var("CHAIN_ID", CHAIN_ID)
            // Tests look wallets up right after their registration, before a snapshot has it.
            .var("KYA_SOURCE", "chain");
        let (worker, index) = IndexWorker::start(options).await?;
        // Private lookups need a snapshot. Their wallets were registered long ago.
        let options = index.another().var("KYA_SOURCE", "snapshot").unset("KYA_TTL_SECONDS");
        let snapshots = Worker::start(options).await?;
        // The index that makes the snapshot also answers the other Worker, once that one has found it.
        snapshots.client().with("cf-connecting-ip", "2001:db8:ffff::1").until_snapshot(PATIENCE).await?;
        worker.client().until_ready("the index", PATIENCE, |ready| ready["index"].is_object()).await?;

        let silent = TcpSocket::new_v4()?;
        silent.bind(([127, 0, 0, 1], 0).into())?;
        Ok(Self { chain, showcase, other, relayer, guarded, worker, index, snapshots, silent })
    }

    /// Reports whether the Workers still run, with the end of their logs: often the reason of a failed test.
    pub fn last_words(&mut self) -> String {
        let workers = [
            ("the Worker", self.worker.process()),
            ("the Worker of the index", self.index.process()),
            ("the Worker with snapshots", self.snapshots.process()),
        ];
        workers
            .map(|(name, process)| {
                let state = match process.exit_status() {
                    Ok(None) => "still runs".to_owned(),
                    Ok(Some(status)) => format!("has ended ({status})"),
                    Err(error) => error.to_string(),
                };
                format!("---- {name} {state}; its last lines ----\n{}", process.log_tail())
            })
            .join("\n")
    }

    /// Returns all addresses and the showcase's agents: `harness/stack.mjs` documents what a test gets.
    pub async fn describe(&self) -> Result<Value> {
        // The wallets come from the chain, since they change hands in the story.
        let records = self.chain.agents().await?;
        let mut agents = Map::new();
        for (name, id) in &self.showcase.ids {
            let record = &records[usize::try_from(*id)? - 1];
            let [wallet, person] =
                [record.agentWallet, record.haftungsperson].map(|address| address.to_checksum(None));
            agents.insert(name.clone(), json!({ "id": id, "wallet": wallet, "person": person }));
        }
        Ok(json!({
            "worker": self.worker.url(), "snapshots": self.snapshots.url(), "relayer": self.relayer.url(),
            "guarded": self.guarded.url(), "rpc": self.chain.node.url(), "otherRpc": self.other.url(),
            "silentRpc": format!("http://{}", self.silent.local_addr()?),
            "registry": self.chain.contracts.registry.to_checksum(None), "agents": agents,
        }))
    }
}
