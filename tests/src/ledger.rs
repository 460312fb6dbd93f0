//! Facts on the chain itself: the requests that were executed, and the transactions of an account.

use std::collections::BTreeMap;

use alloy::consensus::Transaction as _;
use alloy::network::TransactionResponse as _;
use alloy::primitives::{Address, B256};
use alloy::providers::Provider as _;
use alloy::rpc::types::Filter;
use alloy::sol_types::SolEvent as _;
use anyhow::{Context as _, Result};
use registry_core::eth::abi::IForwarder::RequestExecuted;

use crate::chain::Chain;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PaidTransaction {
    pub hash: B256,
    pub block: u64,
    /// Gas used times the effective gas price.
    pub paid_wei: u128,
}

impl Chain {
    /// Returns the forwarder's executions in their order: signer, nonce, and whether the call succeeded.
    pub async fn executions(&self) -> Result<Vec<(Address, u64, bool)>> {
        let filter = Filter::new().address(self.contracts.forwarder).from_block(0);
        let logs =
            self.node.provider.get_logs(&filter.event_signature(RequestExecuted::SIGNATURE_HASH)).await?;
        let events = logs.iter().map(|log| Ok(RequestExecuted::decode_log(&log.inner)?));
        events
            .map(|event: Result<_>| event.map(|event| (event.from, event.nonce.to(), event.success)))
            .collect()
    }

    /// Returns all mined transactions of an account, by nonce.
    pub async fn transactions_of(&self, account: Address) -> Result<BTreeMap<u64, PaidTransaction>> {
        let provider = &self.node.provider;
        let mut found = BTreeMap::new();
        for number in 0..=self.node.height().await? {
            let block = provider.get_block_by_number(number.into()).full().await?.context("a mined block")?;
            for transaction in block.transactions.into_transactions().filter(|sent| sent.from() == account) {
                let hash = transaction.tx_hash();
                let receipt = provider.get_transaction_receipt(hash).await?.context("a receipt")?;
                let paid_wei = u128::from(receipt.gas_used) * receipt.effective_gas_price;
                found.insert(transaction.nonce(), PaidTransaction { hash, block: number, paid_wei });
            }
        }
        Ok(found)
    }

    /// Returns an account's number of mined transactions, and that number with those in the mempool.
    pub async fn nonces_of(&self, account: Address) -> Result<(u64, u64)> {
        let provider = &self.node.provider;
        let mined = provider.get_transaction_count(account).await?;
        Ok((mined, provider.get_transaction_count(account).pending().await?))
    }
}
