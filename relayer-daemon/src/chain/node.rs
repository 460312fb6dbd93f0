//! The questions of pipeline and sender to the chain, as a trait that a test's model implements too.

use std::{collections::HashMap, future::Future, time::Duration};

use alloy::primitives::{Address, B256, Bytes, U256};
use registry_core::eth::abi::IForwarder;

use super::{Receipt, Result};
use crate::{chain::BroadcastVerdict, gas::fees::Market, outcome::BlockHeads};

/// The chain behind one or several endpoints, each of which may be many machines at different blocks.
///
/// Every answer may be stale, and after an error the result of the call is unknown. Two answers may come from
/// two machines: only the parts of one answer, or of an [`AccountView`], are consistent.
pub trait ChainNode: Send + Sync + 'static {
    /// Reads the number of a paying account's mined transactions.
    fn mined_nonce(&self, account: Address) -> impl Future<Output = Result<u64>> + Send;
    /// Reads the same count with the transactions in the node's mempool.
    fn pending_nonce(&self, account: Address) -> impl Future<Output = Result<u64>> + Send;
    /// Reads the head and the fees.
    fn market(&self) -> impl Future<Output = Result<Market>> + Send;
    /// Reads a paying account's balance, wei.
    fn balance(&self, account: Address) -> impl Future<Output = Result<u128>> + Send;
    /// Reads the receipt of a mined transaction.
    fn receipt(&self, hash: B256) -> impl Future<Output = Result<Option<Receipt>>> + Send;
    /// Finds receipts of mined transactions in whole blocks, where that takes fewer calls than asking for
    /// each. `nonces` has the transactions that were tried for each nonce. A nonce without a receipt may be
    /// mined all the same.
    fn receipts_by_block(&self, nonces: &[Vec<B256>]) -> impl Future<Output = HashMap<B256, Receipt>> + Send;
    /// Looks up the receipt of a mined transaction at every endpoint.
    fn receipt_everywhere(&self, hash: B256) -> impl Future<Output = ReceiptLookup> + Send;
    /// Reads the hash of the block with this number; `None` where the node has no such block.
    fn block_hash(&self, number: u64) -> impl Future<Output = Result<Option<B256>>> + Send;
    /// Reads the safe and the final block.
    fn heads(&self) -> impl Future<Output = Result<BlockHeads>> + Send;
    /// Reads a paying account's nonce and a signer's forwarder nonce in one block's state.
    fn account_view(
        &self,
        account: Address,
        signer: Option<Address>,
    ) -> impl Future<Output = Result<AccountView>> + Send;
    /// Reads the forwarder's next nonce for a signer.
    fn forwarder_nonce(&self, signer: Address) -> impl Future<Output = Result<U256>> + Send;
    /// Calls `forwarder.verify` for the request inside an `execute` call.
    fn verify(&self, execute: &IForwarder::executeCall) -> impl Future<Output = Result<bool>> + Send;
    /// Simulates `execute` by a paying account. The forwarder's own revert is [`super::RpcError::Node`].
    fn simulate(
        &self,
        account: Address,
        calldata: &Bytes,
        gas_limit: u64,
    ) -> impl Future<Output = Result<SimulationResult>> + Send;
    /// Reads the L1 data fee of a transaction with these bytes, wei. Only on chains that have one.
    fn l1_fee(&self, raw: Bytes) -> impl Future<Output = Result<u128>> + Send;
    /// Sends a signed transaction. The text is a node's message, for the log.
    fn broadcast(&self, raw: &[u8]) -> impl Future<Output = (BroadcastVerdict, String)> + Send;
    /// Waits at most `within` for sends in the background. Returns how many are cut off.
    fn finish_broadcasts(&self, within: Duration) -> impl Future<Output = usize> + Send;
}

/// A receipt lookup over all endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiptLookup {
    /// One of them has it.
    Found(Receipt),
    /// All of them answered, and none has it.
    Absent,
    /// Not all of them answered, and none of those that did has it.
    Unclear,
}

/// The state of one block, consistent in itself: if the account's nonce is used in it and the signer's is
/// not, no transaction with that account nonce has executed the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountView {
    /// The block.
    pub block_number: u64,
    /// The number of the paying account's transactions that are mined up to it.
    pub mined_nonce: u64,
    /// The forwarder's next nonce for the given signer.
    pub forwarder_nonce: Option<U256>,
}

impl AccountView {
    /// Returns whether the signer's request with this forwarder nonce is used.
    pub fn has_used(&self, forward_nonce: U256) -> bool {
        self.forwarder_nonce.is_some_and(|next| next > forward_nonce)
    }
}

/// The result of a simulated `execute`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SimulationResult {
    /// The inner call would succeed.
    Success {
        /// The gas of the whole transaction, where the node reports it.
        gas_used: Option<u64>,
    },
    /// The inner call would revert with this return data.
    InnerRevert(Bytes),
}
