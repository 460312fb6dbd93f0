//! A local chain with registry, forwarder and Multicall3 on it, and typed calls to them.

use alloy::primitives::{Address, Bytes, U256};
use alloy::providers::Provider as _;
use alloy::rpc::client::BatchRequest;
use alloy::rpc::types::{TransactionReceipt, TransactionRequest};
use alloy::sol_types::SolCall;
use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::anvil::{Anvil, AnvilOptions, dev_account, dev_key};
use crate::deploy::{Deployment, MULTICALL3, deploy};
use crate::repo::Artifact;

/// Gas for one write of a batch: a registration with a kilobyte of scope stays well below.
const WRITE_GAS: u64 = 2_000_000;

/// Writes per JSON-RPC batch and block.
const WRITES_PER_BLOCK: usize = 250;

/// A node with the contracts deployed by its first account, which therefore owns the registry.
#[derive(Debug)]
pub struct Chain {
    /// The node underneath.
    pub node: Anvil,
    /// Where the contracts are.
    pub contracts: Deployment,
}

/// One transaction to the registry, for [`Chain::send_all`].
#[derive(Debug, Clone)]
pub struct Write {
    /// Who sends it: an account the node has unlocked.
    pub from: Address,
    /// The calldata.
    pub data: Bytes,
}

impl Write {
    /// `call`, sent by `from`.
    pub fn new(from: Address, call: &impl SolCall) -> Self {
        Self { from, data: call.abi_encode().into() }
    }
}

impl Chain {
    /// Starts a node, installs the Multicall3 stand-in at the canonical address and deploys both contracts.
    ///
    /// # Errors
    /// When the node does not start or the contracts are not built.
    pub async fn start(options: AnvilOptions) -> Result<Self> {
        let node = Anvil::start(options).await?;
        node.set_code(MULTICALL3, &Artifact::load("Multicall3")?.runtime_code).await?;
        let contracts = deploy(node.url(), dev_key(0)).await?;
        Ok(Self { node, contracts })
    }

    /// The registry's owner, and the account that deployed it.
    pub fn owner(&self) -> Address {
        dev_account(0)
    }

    /// Reads a contract at the latest block.
    ///
    /// # Errors
    /// When the call reverts or the answer is no `C::Return`.
    pub async fn read<C: SolCall>(&self, to: Address, call: C) -> Result<C::Return> {
        let request = TransactionRequest::default().to(to).input(Bytes::from(call.abi_encode()).into());
        // A call that names no block is one of the pending block, whose time goes on with the clock.
        let answer = self.node.provider.call(request).latest().await?;
        Ok(C::abi_decode_returns(&answer)?)
    }

    /// Sends one call to the registry and waits for its block.
    ///
    /// # Errors
    /// When it reverts; the message carries the contract's.
    pub async fn send(&self, from: Address, call: impl SolCall) -> Result<TransactionReceipt> {
        let request = TransactionRequest::default()
            .from(from)
            .to(self.contracts.registry)
            // No estimate: one made in the second of the last write is too low in the next, when a timestamp changes.
            .gas_limit(WRITE_GAS)
            .input(Bytes::from(call.abi_encode()).into());
        // WalletInput first, a call that reverts says why.
        self.node.provider.call(request.clone()).await?;
        let receipt = self.node.provider.send_transaction(request).await?.get_receipt().await?;
        if !receipt.status() {
            bail!("did not succeed: {receipt:?}");
        }
        Ok(receipt)
    }

    /// Sends many calls to the registry in few blocks, in their order, and checks that each succeeded.
    ///
    /// `at` is the first block's time; without it the chain's clock decides.
    ///
    /// # Errors
    /// When one of them reverts or the node refuses one.
    pub async fn send_all(&self, writes: &[Write], at: Option<u64>) -> Result<()> {
        let full: U256 = self.gas_limit().await?;
        let room = U256::from(WRITE_GAS) * U256::from(WRITES_PER_BLOCK);
        let _: Value = self.node.request("evm_setBlockGasLimit", json!([room])).await?;
        self.node.set_automine(false).await?;
        // The new limit holds from the next block on; an empty one carries it.
        self.node.mine(1).await?;
        if let Some(at) = at {
            self.node.set_next_block_time(at).await?;
        }
        let outcome = self.send_blocks(writes).await;
        let _: Value = self.node.request("evm_setBlockGasLimit", json!([full])).await?;
        self.node.set_automine(true).await?;
        outcome
    }

    async fn send_blocks(&self, writes: &[Write]) -> Result<()> {
        for writes in writes.chunks(WRITES_PER_BLOCK) {
            let mut hashes = Vec::with_capacity(writes.len());
            for write in writes {
                // One after the other: a batch's calls run side by side in the node, and order decides who gets which id.
                let params = json!([{
                    "from": write.from, "to": self.contracts.registry, "data": write.data,
                    "gas": format!("{WRITE_GAS:#x}"),
                }]);
                hashes.push(self.node.request::<Value>("eth_sendTransaction", params).await?);
            }
            self.node.mine(1).await?;

            let client = self.node.provider.client();
            let mut batch = BatchRequest::new(client);
            let mut receipts = Vec::with_capacity(hashes.len());
            for hash in hashes {
                receipts.push(batch.add_call::<_, Value>("eth_getTransactionReceipt", &json!([hash]))?);
            }
            batch.send().await?;
            for (write, receipt) in writes.iter().zip(receipts) {
                let receipt = receipt.await?;
                if receipt["status"] != "0x1" {
                    bail!("{write:?} did not succeed: {receipt}");
                }
            }
        }
        Ok(())
    }

    async fn gas_limit(&self) -> Result<U256> {
        let block: Value = self.node.request("eth_getBlockByNumber", json!(["latest", false])).await?;
        serde_json::from_value(block["gasLimit"].clone()).context("a block has a gas limit")
    }
}
