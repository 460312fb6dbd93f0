//! The chain as the daemon needs it: typed reads over [`rpc`], and the [`Node`] trait that the sender drives,
//! so that a test can put a model of a node in its place.

mod connection_error;
pub mod rpc;

use std::future::Future;

use alloy::{
    primitives::{Address, B256, Bytes, U64, U256, address},
    rpc::types::Log,
    sol_types::SolCall,
};
use registry_core::{
    abi::{IAgentRegistry, IForwarder},
    rpc::ErrorObject,
};
use serde::Deserialize;
use serde_json::json;

pub use rpc::{Rpc, RpcError};

use crate::{classify::Verdict, fees::Market};

/// The OP stack's `GasPriceOracle` predeploy: it has code where the chain charges an L1 data fee.
const GAS_PRICE_ORACLE: Address = address!("420000000000000000000000000000000000000F");
/// How many blocks' tips are looked at.
const FEE_HISTORY_BLOCKS: u64 = 5;

alloy::sol! {
    interface IGasPriceOracle {
        function getL1Fee(bytes memory data) external view returns (uint256);
    }
}

/// What the sender asks of a node. Every answer may be old, and an error says nothing about what happened.
pub trait Node: Send + Sync {
    /// How many transactions of the relayer's account are mined.
    fn mined_nonce(&self) -> impl Future<Output = Result<u64, RpcError>> + Send;
    /// The same with those in the mempool, as far as the node has them.
    fn pending_nonce(&self) -> impl Future<Output = Result<u64, RpcError>> + Send;
    /// Head and fees.
    fn market(&self) -> impl Future<Output = Result<Market, RpcError>> + Send;
    /// The receipt of a mined transaction.
    fn receipt(&self, hash: B256) -> impl Future<Output = Result<Option<Receipt>, RpcError>> + Send;
    /// The forwarder's next nonce for a signer.
    fn forwarder_nonce(&self, signer: Address) -> impl Future<Output = Result<U256, RpcError>> + Send;
    /// Sends a signed transaction; the text is the node's, for the log.
    fn broadcast(&self, raw: &[u8]) -> impl Future<Output = (Verdict, String)> + Send;
}

/// A receipt, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The transaction.
    pub hash: B256,
    /// Its block.
    pub block_number: u64,
    /// Whether the outer transaction succeeded. Says nothing about the inner call.
    pub status: bool,
    /// Gas used.
    pub gas_used: u64,
    /// Everything that was paid for it, the L1 fee included, wei.
    pub paid_wei: u128,
    /// Its logs.
    pub logs: Vec<Log>,
}

/// Nodes that charge an L1 fee put it into the receipt; a standard receipt type would lose it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ReceiptJson {
    transaction_hash: B256,
    block_number: U64,
    status: U64,
    gas_used: U64,
    effective_gas_price: U256,
    #[serde(default)]
    l1_fee: Option<U256>,
    logs: Vec<Log>,
}

impl From<ReceiptJson> for Receipt {
    fn from(json: ReceiptJson) -> Self {
        let paid = U256::from(json.gas_used).saturating_mul(json.effective_gas_price);
        let paid = paid.saturating_add(json.l1_fee.unwrap_or_default());
        Self {
            hash: json.transaction_hash,
            block_number: json.block_number.to(),
            status: json.status == U64::from(1),
            gas_used: json.gas_used.to(),
            paid_wei: wei(paid),
            logs: json.logs,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct FeeHistoryJson {
    oldest_block: U64,
    base_fee_per_gas: Vec<U256>,
    #[serde(default)]
    reward: Option<Vec<Vec<U256>>>,
}

/// Number, hash, time and base fee of a block.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// Its number; a pending block may have none.
    #[serde(default)]
    pub number: Option<U64>,
    /// Its hash; a pending block may have none.
    #[serde(default)]
    pub hash: Option<B256>,
    /// Unix seconds.
    pub timestamp: U64,
    /// Base fee, wei; a chain from before EIP-1559 has none.
    #[serde(default)]
    pub base_fee_per_gas: Option<U256>,
}

/// How a simulated `execute` ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Simulation {
    /// The inner call would succeed.
    Success,
    /// The inner call would fail, with this return data.
    InnerRevert(Bytes),
}

/// The chain, seen by one relayer account through one forwarder.
#[derive(Debug)]
pub struct Chain {
    /// The endpoints.
    pub rpc: Rpc,
    /// The account that pays.
    pub relayer: Address,
    /// The forwarder.
    pub forwarder: Address,
    /// The registry.
    pub registry: Address,
}

impl Chain {
    /// The relayer's balance, wei.
    ///
    /// # Errors
    /// [`RpcError`], as for every method here.
    pub async fn balance(&self) -> Result<u128, RpcError> {
        self.rpc.read("eth_getBalance", json!([self.relayer, "latest"])).await.map(wei)
    }

    /// Whether there is code at an address.
    ///
    /// # Errors
    /// [`RpcError`].
    pub async fn has_code(&self, address: Address) -> Result<bool, RpcError> {
        let code: Bytes = self.rpc.read("eth_getCode", json!([address, "latest"])).await?;
        Ok(!code.is_empty())
    }

    /// Whether this chain charges an L1 data fee.
    ///
    /// # Errors
    /// [`RpcError`].
    pub async fn has_l1_fee(&self) -> Result<bool, RpcError> {
        self.has_code(GAS_PRICE_ORACLE).await
    }

    /// The L1 data fee of a transaction with these bytes, wei. Only on chains that have one.
    ///
    /// # Errors
    /// [`RpcError`].
    pub async fn l1_fee(&self, raw: Bytes) -> Result<u128, RpcError> {
        self.view(GAS_PRICE_ORACLE, &IGasPriceOracle::getL1FeeCall { data: raw }).await.map(wei)
    }

    /// A block's header; `None` where the node has no such block.
    ///
    /// # Errors
    /// [`RpcError`].
    pub async fn header(&self, block: &'static str) -> Result<Option<Header>, RpcError> {
        self.rpc.read("eth_getBlockByNumber", json!([block, false])).await
    }

    /// The hash of block 0. `None` where the node does not have it any more: nodes may prune their history
    /// (EIP-4444), and then `earliest` is another block on another day.
    ///
    /// # Errors
    /// [`RpcError`].
    pub async fn genesis(&self) -> Result<Option<B256>, RpcError> {
        match self.header("0x0").await {
            Ok(header) => Ok(header.and_then(|header| header.hash)),
            Err(RpcError::Node(error)) if is_pruned(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A view call.
    ///
    /// # Errors
    /// [`RpcError`]; a revert is [`RpcError::Node`].
    pub async fn view<C: SolCall + Sync>(&self, to: Address, call: &C) -> Result<C::Return, RpcError> {
        let data = Bytes::from(call.abi_encode());
        let answer: Bytes = self.rpc.read("eth_call", json!([{ "to": to, "data": data }, "latest"])).await?;
        C::abi_decode_returns(&answer).map_err(|_| RpcError::Malformed("eth_call"))
    }

    /// `forwarder.verify` for the request inside an `execute` call.
    ///
    /// # Errors
    /// [`RpcError`].
    pub async fn verify(&self, execute: &IForwarder::executeCall) -> Result<bool, RpcError> {
        let call = IForwarder::verifyCall { req: execute.req.clone(), signature: execute.signature.clone() };
        self.view(self.forwarder, &call).await
    }

    /// Simulates `execute` as the relayer would send it.
    ///
    /// # Errors
    /// [`RpcError`]; a revert of the forwarder itself is [`RpcError::Node`].
    pub async fn simulate(&self, calldata: &Bytes, gas_limit: u64) -> Result<Simulation, RpcError> {
        let transaction = json!({
            "from": self.relayer, "to": self.forwarder, "data": calldata, "gas": U64::from(gas_limit),
        });
        let answer: Bytes = self.rpc.read("eth_call", json!([transaction, "latest"])).await?;
        let result = IForwarder::executeCall::abi_decode_returns(&answer)
            .map_err(|_| RpcError::Malformed("eth_call"))?;
        Ok(if result.success { Simulation::Success } else { Simulation::InnerRevert(result.returnData) })
    }

    /// Whether the registry trusts the forwarder.
    ///
    /// # Errors
    /// [`RpcError`].
    pub async fn is_trusted(&self) -> Result<bool, RpcError> {
        let call = IAgentRegistry::isTrustedForwarderCall { forwarder: self.forwarder };
        self.view(self.registry, &call).await
    }

    async fn nonce_at(&self, block: &'static str) -> Result<u64, RpcError> {
        let count: U64 = self.rpc.read("eth_getTransactionCount", json!([self.relayer, block])).await?;
        Ok(count.to())
    }
}

impl Node for Chain {
    async fn mined_nonce(&self) -> Result<u64, RpcError> {
        self.nonce_at("latest").await
    }

    async fn pending_nonce(&self) -> Result<u64, RpcError> {
        self.nonce_at("pending").await
    }

    async fn market(&self) -> Result<Market, RpcError> {
        let history: FeeHistoryJson =
            self.rpc.read("eth_feeHistory", json!([U64::from(FEE_HISTORY_BLOCKS), "latest", [50.0]])).await?;
        let blocks = history.base_fee_per_gas.len().saturating_sub(1) as u64;
        let next = history.base_fee_per_gas.last().ok_or(RpcError::Malformed("eth_feeHistory"))?;
        let mut tips: Vec<_> = history.reward.unwrap_or_default().into_iter().flatten().collect();
        tips.sort_unstable();
        Ok(Market {
            head: history.oldest_block.to::<u64>().saturating_add(blocks).saturating_sub(1),
            next_base_fee: wei(*next),
            tip: tips.get(tips.len() / 2).copied().map(wei).unwrap_or_default(),
        })
    }

    async fn receipt(&self, hash: B256) -> Result<Option<Receipt>, RpcError> {
        let receipt: Option<ReceiptJson> = self.rpc.read("eth_getTransactionReceipt", json!([hash])).await?;
        Ok(receipt.map(Receipt::from))
    }

    async fn forwarder_nonce(&self, signer: Address) -> Result<U256, RpcError> {
        self.view(self.forwarder, &IForwarder::getNonceCall { from: signer }).await
    }

    async fn broadcast(&self, raw: &[u8]) -> (Verdict, String) {
        self.rpc.broadcast(raw).await
    }
}

/// Whether a node says that it has pruned what it was asked for: with the code that geth, Nethermind and Besu have
/// for it, or in words.
fn is_pruned(error: &ErrorObject) -> bool {
    const PRUNED: i64 = 4_444;
    let message = error.message.to_lowercase();
    error.code == PRUNED || ["prune", "history", "not available"].iter().any(|word| message.contains(word))
}

/// No account on any chain holds 2^128 wei.
fn wei(amount: U256) -> u128 {
    u128::try_from(amount).unwrap_or(u128::MAX)
}
