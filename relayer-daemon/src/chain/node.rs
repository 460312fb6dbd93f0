//! What the relay pipeline and the sender ask of the chain, as a trait, so that a test can put a model in its place.

use std::{future::Future, time::Duration};

use alloy::primitives::{Address, B256, Bytes, U256};
use registry_core::abi::IForwarder;

use super::{Receipt, RpcError};
use crate::{chain::BroadcastVerdict, gas::fees::Market};

/// The chain behind one or several endpoints, each of which may be many machines of different ages.
///
/// Every answer may be old, and an error says nothing about what happened. Two answers may come from two machines:
/// only what one answer says, or an [`AccountView`], belongs together.
pub trait ChainNode: Send + Sync + 'static {
    /// How many transactions of the relayer's account are mined.
    fn mined_nonce(&self) -> impl Future<Output = Result<u64, RpcError>> + Send;
    /// The same with those in the mempool, as far as the node has them.
    fn pending_nonce(&self) -> impl Future<Output = Result<u64, RpcError>> + Send;
    /// Head and fees.
    fn market(&self) -> impl Future<Output = Result<Market, RpcError>> + Send;
    /// The relayer's balance, wei.
    fn balance(&self) -> impl Future<Output = Result<u128, RpcError>> + Send;
    /// The receipt of a mined transaction.
    fn receipt(&self, hash: B256) -> impl Future<Output = Result<Option<Receipt>, RpcError>> + Send;
    /// The receipt of a mined transaction, looked up at every endpoint.
    fn receipt_everywhere(&self, hash: B256) -> impl Future<Output = ReceiptLookup> + Send;
    /// The relayer's account and a signer's forwarder nonce, as of one and the same block.
    fn account_view(
        &self,
        signer: Option<Address>,
    ) -> impl Future<Output = Result<AccountView, RpcError>> + Send;
    /// The forwarder's next nonce for a signer.
    fn forwarder_nonce(&self, signer: Address) -> impl Future<Output = Result<U256, RpcError>> + Send;
    /// `forwarder.verify` for the request inside an `execute` call.
    fn verify(
        &self,
        execute: &IForwarder::executeCall,
    ) -> impl Future<Output = Result<bool, RpcError>> + Send;
    /// Simulates `execute` as the relayer would send it. A revert of the forwarder itself is [`RpcError::Node`].
    fn simulate(
        &self,
        calldata: &Bytes,
        gas_limit: u64,
    ) -> impl Future<Output = Result<Simulation, RpcError>> + Send;
    /// The L1 data fee of a transaction with these bytes, wei. Only on chains that have one.
    fn l1_fee(&self, raw: Bytes) -> impl Future<Output = Result<u128, RpcError>> + Send;
    /// Sends a signed transaction; the text is the node's, for the log.
    fn broadcast(&self, raw: &[u8]) -> impl Future<Output = (BroadcastVerdict, String)> + Send;
    /// Waits at most `within` for sends that go on in the background. Returns how many are cut off.
    fn finish_broadcasts(&self, within: Duration) -> impl Future<Output = usize> + Send;
}

/// What all endpoints together know of a transaction's receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiptLookup {
    /// One of them has it.
    Found(Receipt),
    /// Every one of them answered, and none has it.
    Absent,
    /// None that answered has it, but not all of them answered.
    Unclear,
}

/// The state of one block. Unlike two answers, its parts cannot contradict each other: if the account's nonce is
/// used up there and the signer's is not, no transaction with that account nonce has executed the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccountView {
    /// The block.
    pub block_number: u64,
    /// How many transactions of the relayer's account are mined up to there.
    pub mined_nonce: u64,
    /// The forwarder's next nonce for the signer that was asked about.
    pub forwarder_nonce: Option<U256>,
}

/// How a simulated `execute` ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Simulation {
    /// The inner call would succeed.
    Success {
        /// The gas that the whole transaction would use, where the node says so.
        gas_used: Option<u64>,
    },
    /// The inner call would fail, with this return data.
    InnerRevert(Bytes),
}
