//! The whole stack, as tests written for Node find it: a chain with the showcase on it, the real Worker with the explorer's
//! files, the real relayer; and what goes wrong, another chain and an address where nobody listens.

use alloy::primitives::{U256, uint};
use anyhow::Result;
use serde_json::{Map, Value, json};
use tokio::net::TcpSocket;

use crate::anvil::{Anvil, AnvilOptions};
use crate::chain::Chain;
use crate::daemon::Daemon;
use crate::deploy::MULTICALL3;
use crate::oracle::Oracle;
use crate::repo::Artifact;
use crate::seed::{self, Showcase};
use crate::worker::{Worker, WorkerOptions};

/// What the relayer has to spend: 1 ETH.
const RELAYER_BALANCE: U256 = uint!(1_000_000_000_000_000_000_U256);

/// Everything, running; it ends when this is dropped.
#[derive(Debug)]
pub struct Stack {
    chain: Chain,
    showcase: Showcase,
    other: Anvil,
    relayer: Daemon,
    worker: Worker,
    /// Bound and not listening: connections are refused, and nobody else gets the port meanwhile.
    silent: TcpSocket,
}

impl Stack {
    /// Starts everything, each as operators run it.
    ///
    /// # Errors
    /// When one of them does not start.
    pub async fn start() -> Result<Self> {
        let options =
            AnvilOptions { genesis_time: Some(seed::showcase_genesis()), ..AnvilOptions::default() };
        let chain = Chain::start(options).await?;
        let showcase = seed::showcase(&chain).await?;
        // A chain like any other: without the registry, but with Multicall3.
        let other = Anvil::start(AnvilOptions { chain_id: Some(4242), ..AnvilOptions::default() }).await?;
        other.set_code(MULTICALL3, &Artifact::load("Multicall3")?.runtime_code).await?;

        let key = seed::wallet("relayer");
        chain.node.set_balance(key.address(), RELAYER_BALANCE).await?;
        // The newest block's state root does not tell of it, and nothing could be proved by it.
        chain.node.mine(1).await?;
        let relayer = Daemon::start(&chain.daemon(&key).plain()).await?;
        // Limited as it is by default: the tests' requests come from a client each.
        let options =
            WorkerOptions::new(chain.node.url(), chain.contracts.registry).unset("RATE_LIMIT_PER_MINUTE");
        let worker = Worker::start(options).await?;

        let silent = TcpSocket::new_v4()?;
        silent.bind(([127, 0, 0, 1], 0).into())?;
        Ok(Self { chain, showcase, other, relayer, worker, silent })
    }

    /// Whether the Worker still runs, and what it printed last: often why a test failed.
    pub fn last_words(&mut self) -> String {
        let process = self.worker.process();
        let state = match process.exit_status() {
            Ok(None) => "still runs".to_owned(),
            Ok(Some(status)) => format!("has ended ({status})"),
            Err(error) => error.to_string(),
        };
        format!("---- the Worker {state}; its last lines ----\n{}", process.log_tail())
    }

    /// Where everything is, and who the showcase's agents are: `harness/stack.mjs` says what a test gets.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn describe(&self) -> Result<Value> {
        // Of the chain and not of the story: wallets change hands there.
        let facts = Oracle::new(self.chain.node.url(), self.chain.contracts.registry)?.all().await?;
        let mut agents = Map::new();
        for (name, id) in &self.showcase.ids {
            let record = &facts[usize::try_from(*id)? - 1].record;
            agents.insert(name.clone(), json!({"id": id, "wallet": record.address("agentWallet")}));
        }
        Ok(json!({
            "worker": self.worker.url(),
            "relayer": self.relayer.url(),
            "rpc": self.chain.node.url(),
            "otherRpc": self.other.url(),
            "silentRpc": format!("http://{}", self.silent.local_addr()?),
            "registry": self.chain.contracts.registry.to_checksum(None),
            "agents": agents,
        }))
    }
}
