//! A local chain with registry, forwarder and Multicall3 on it, and typed calls to them.

use alloy::primitives::{Address, Bytes, U256};
use alloy::providers::Provider as _;
use alloy::rpc::types::{BlockNumberOrTag, TransactionReceipt, TransactionRequest};
use alloy::sol_types::SolCall;
use anyhow::{Result, ensure};
use registry_core::eth::abi::{AgentRecord, IAgentRegistry};
use registry_core::eth::timestamp::Timestamp;
use serde_json::{Value, json};

use crate::anvil::{Anvil, AnvilOptions, dev_account, dev_key};
use crate::deploy::{Deployment, MULTICALL3, deploy};
use crate::repo::Artifact;

/// Gas for one write of a batch: a registration with a kilobyte of scope stays well below.
const WRITE_GAS: u64 = 2_000_000;
const WRITES_PER_BLOCK: usize = 250;
/// Statuses of agents, in the contract's order.
pub const STATUSES: [&str; 4] = ["Active", "Suspended", "Revoked", "Terminated"];

/// Formats unix seconds as the API's documents do.
pub fn time(unix_seconds: u64) -> String {
    Timestamp::from_seconds(unix_seconds).to_string()
}

/// A node with the contracts deployed by its first account, which therefore owns the registry.
#[derive(Debug)]
pub struct Chain {
    pub node: Anvil,
    pub contracts: Deployment,
}

/// One transaction to the registry, for [`Chain::send_all`].
#[derive(Debug, Clone)]
pub struct Write {
    pub from: Address,
    pub data: Bytes,
}

impl Write {
    pub fn new(from: Address, call: &impl SolCall) -> Self {
        Self { from, data: call.abi_encode().into() }
    }
}

impl Chain {
    /// Starts a node, installs the Multicall3 stand-in at its canonical address, and deploys both contracts.
    pub async fn start(options: AnvilOptions) -> Result<Self> {
        let node = Anvil::start(options).await?;
        node.set_code(MULTICALL3, &Artifact::load("Multicall3")?.runtime_code).await?;
        let contracts = deploy(node.url(), dev_key(0)).await?;
        Ok(Self { node, contracts })
    }

    pub fn owner(&self) -> Address {
        dev_account(0)
    }

    pub async fn read<C: SolCall>(&self, to: Address, call: C) -> Result<C::Return> {
        let request = TransactionRequest::default().to(to).input(Bytes::from(call.abi_encode()).into());
        // Without a block the call would run on the pending block, which has the clock's time.
        let answer = self.node.provider.call(request).latest().await?;
        Ok(C::abi_decode_returns(&answer)?)
    }

    pub async fn total(&self) -> Result<u64> {
        Ok(self.read(self.contracts.registry, IAgentRegistry::nextAgentIdCall {}).await?.to::<u64>() - 1)
    }

    /// Reads all agents, one by one, with the contract's own function; `id` is at `id - 1`.
    pub async fn agents(&self) -> Result<Vec<AgentRecord>> {
        let mut agents = Vec::new();
        for id in 1..=self.total().await? {
            let call = IAgentRegistry::getAgentCall { agentId: U256::from(id) };
            agents.push(self.read(self.contracts.registry, call).await?);
        }
        Ok(agents)
    }

    pub async fn send(&self, from: Address, call: impl SolCall) -> Result<TransactionReceipt> {
        let request = TransactionRequest::default()
            .from(from)
            .to(self.contracts.registry)
            // No estimate: one made in the second of the last write is too low for the next timestamp.
            .gas_limit(WRITE_GAS)
            .input(Bytes::from(call.abi_encode()).into());
        // A call that reverts gives its reason in `eth_call`, and none in a receipt.
        self.node.provider.call(request.clone()).await?;
        let receipt = self.node.execute(request).await?;
        ensure!(receipt.status(), "did not succeed: {receipt:?}");
        Ok(receipt)
    }

    /// Sends many calls to the registry in few blocks, in their order, and checks that each succeeded.
    ///
    /// `at` is the first block's time; without it the chain's clock decides.
    pub async fn send_all(&self, writes: &[Write], at: Option<u64>) -> Result<()> {
        let usual = self.node.block(BlockNumberOrTag::Latest).await?["gasLimit"].clone();
        let room = U256::from(WRITE_GAS) * U256::from(WRITES_PER_BLOCK);
        self.node.command("evm_setBlockGasLimit", json!([room])).await?;
        self.node.set_automine(false).await?;
        // The new limit holds from the block after this empty one.
        self.node.mine(1).await?;
        if let Some(at) = at {
            self.node.set_next_block_time(at).await?;
        }
        let outcome = self.send_blocks(writes).await;
        self.node.command("evm_setBlockGasLimit", json!([usual])).await?;
        self.node.set_automine(true).await?;
        outcome
    }

    async fn send_blocks(&self, writes: &[Write]) -> Result<()> {
        for writes in writes.chunks(WRITES_PER_BLOCK) {
            let mut hashes = Vec::with_capacity(writes.len());
            for write in writes {
                // One after the other: a batch's calls run concurrently, and the order decides the ids.
                let params = json!([{
                    "from": write.from, "to": self.contracts.registry, "data": write.data,
                    "gas": format!("{WRITE_GAS:#x}"),
                }]);
                hashes.push(self.node.request::<Value>("eth_sendTransaction", params).await?);
            }
            self.node.mine(1).await?;

            for (write, hash) in writes.iter().zip(hashes) {
                let receipt: Value = self.node.request("eth_getTransactionReceipt", json!([hash])).await?;
                ensure!(receipt["status"] == "0x1", "{write:?} did not succeed: {receipt}");
            }
        }
        Ok(())
    }
}
