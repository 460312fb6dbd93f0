//! What really happened on a chain: who executed which request how often, and what an account paid in all.

use std::collections::BTreeMap;

use alloy::primitives::{Address, B256, U256};
use alloy::rpc::types::Log;
use alloy::sol_types::SolEvent as _;
use anyhow::{Context as _, Result};
use registry_core::eth::abi::IForwarder::RequestExecuted;
use serde_json::{Value, json};

use crate::chain::Chain;

/// One mined transaction of an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mined {
    /// Its hash.
    pub hash: B256,
    /// Its block.
    pub block: u64,
    /// What was paid for it, wei.
    pub paid_wei: u128,
}

impl Chain {
    /// The forwarder's executions in their order: signer, nonce, and whether the call succeeded.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn executions(&self) -> Result<Vec<(Address, u64, bool)>> {
        let filter = json!([{
            "fromBlock": "earliest", "toBlock": "latest",
            "address": self.contracts.forwarder, "topics": [RequestExecuted::SIGNATURE_HASH],
        }]);
        let logs: Vec<Log> = self.node.request("eth_getLogs", filter).await?;
        logs.iter()
            .map(|log| {
                let event = RequestExecuted::decode_log(&log.inner)?;
                Ok((event.from, event.nonce.to(), event.success))
            })
            .collect()
    }

    /// All mined transactions of an account, by nonce.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn transactions_of(&self, account: Address) -> Result<BTreeMap<u64, Mined>> {
        let head: U256 = self.node.request("eth_blockNumber", json!([])).await?;
        let mut found = BTreeMap::new();
        for block in 0..=head.to::<u64>() {
            let block: Value =
                self.node.request("eth_getBlockByNumber", json!([format!("{block:#x}"), true])).await?;
            for transaction in block["transactions"].as_array().context("a block has transactions")? {
                let from: Address = serde_json::from_value(transaction["from"].clone())?;
                if from == account {
                    let (nonce, mined) = self.mined(transaction).await?;
                    found.insert(nonce, mined);
                }
            }
        }
        Ok(found)
    }

    async fn mined(&self, transaction: &Value) -> Result<(u64, Mined)> {
        let hash: B256 = serde_json::from_value(transaction["hash"].clone())?;
        let receipt: Value = self.node.request("eth_getTransactionReceipt", json!([hash])).await?;
        let number = |value: &Value| -> Result<u128> {
            Ok(serde_json::from_value::<U256>(value.clone()).with_context(|| format!("{receipt}"))?.to())
        };
        let paid_wei = number(&receipt["gasUsed"])? * number(&receipt["effectiveGasPrice"])?;
        let block = u64::try_from(number(&receipt["blockNumber"])?)?;
        Ok((u64::try_from(number(&transaction["nonce"])?)?, Mined { hash, block, paid_wei }))
    }

    /// How many transactions of an account are mined, and how many with those that wait.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn nonces_of(&self, account: Address) -> Result<(u64, u64)> {
        let mut counts = [0; 2];
        for (count, block) in counts.iter_mut().zip(["latest", "pending"]) {
            let answer: U256 = self.node.request("eth_getTransactionCount", json!([account, block])).await?;
            *count = answer.to();
        }
        Ok((counts[0], counts[1]))
    }
}
