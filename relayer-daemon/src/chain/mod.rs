//! The chain: typed reads over [`rpc`], behind the [`ChainNode`] trait for pipeline and sender.

mod block_receipts;
mod broadcast;
pub mod broadcast_verdict;
mod connection_error;
mod endpoint;
mod node;
mod optional_method;
mod receipt;
pub mod rpc;
mod rpc_error;
mod simulate;
mod single_flight;
mod tips;

use std::{
    collections::HashMap,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use alloy::{
    consensus::{Transaction as _, TxEnvelope},
    eips::eip2718::Decodable2718 as _,
    primitives::{Address, B256, Bytes, U64, U256, address},
    rpc::json_rpc::ErrorPayload,
    sol_types::SolCall,
};
use futures_util::StreamExt as _;
use registry_core::eth::{
    abi::IForwarder,
    rpc::read_error::{Action, classify},
};
use serde::Deserialize;
use serde_json::{Value, json};

pub use broadcast_verdict::BroadcastVerdict;
pub use node::{AccountView, ChainNode, ReceiptLookup, SimulationResult};
pub use receipt::Receipt;
use receipt::ReceiptJson;
pub use rpc::Rpc;
use rpc_error::Result;
pub use rpc_error::RpcError;

use self::{
    block_receipts::BlockReceipts, optional_method::OptionalMethod, rpc::block_number,
    single_flight::SingleFlight, tips::TipMarket,
};
use crate::{gas::fees::Market, outcome::BlockHeads};

/// The OP stack's `GasPriceOracle` predeploy: it has code where the chain charges an L1 data fee.
const GAS_PRICE_ORACLE: Address = address!("420000000000000000000000000000000000000F");
/// Number of blocks with tips that count for the market.
const FEE_HISTORY_BLOCKS: u64 = 5;
const RECEIPT: &str = "eth_getTransactionReceipt";

alloy::sol! {
    interface IGasPriceOracle {
        function getL1Fee(bytes memory data) external view returns (uint256);
    }
}

#[derive(Debug, Clone, Deserialize)]
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
pub struct BlockHeader {
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

/// The chain, seen through one forwarder.
#[derive(Debug)]
pub struct Chain {
    /// The endpoints.
    pub rpc: Rpc,
    /// The forwarder.
    pub forwarder: Address,
    /// The registry.
    pub registry: Address,
    simulate_v1: OptionalMethod,
    block_receipts: BlockReceipts,
    head: AtomicU64,
    /// True for each of the tags `safe` and `finalized` that an endpoint has known.
    known_tags: [AtomicBool; 2],
    /// The highest priority fee taken from the market.
    max_tip: u128,
    tips: Mutex<TipMarket>,
    /// Fee histories on their way, shared by the checks of relays.
    fee_histories: SingleFlight<(), Result<FeeHistoryJson>>,
    balances: SingleFlight<Address, Result<u128>>,
}

impl Chain {
    /// Creates the chain of these endpoints and contracts. No priority fee above `max_tip` wei is taken for
    /// the market's.
    pub fn new(rpc: Rpc, forwarder: Address, registry: Address, max_tip: u128) -> Self {
        Self {
            rpc,
            forwarder,
            registry,
            simulate_v1: OptionalMethod::new("eth_simulateV1"),
            block_receipts: BlockReceipts::new(0),
            head: AtomicU64::default(),
            known_tags: Default::default(),
            max_tip,
            tips: Mutex::default(),
            fee_histories: SingleFlight::default(),
            balances: SingleFlight::default(),
        }
    }

    /// Returns the chain with receipts looked for in whole blocks from `waiting` nonces on; 0: never.
    #[must_use]
    pub fn with_block_receipts_from(self, waiting: usize) -> Self {
        Self { block_receipts: BlockReceipts::new(waiting), ..self }
    }

    fn tips(&self) -> MutexGuard<'_, TipMarket> {
        self.tips.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks whether there is code at an address.
    pub async fn has_code(&self, address: Address) -> Result<bool> {
        let code: Bytes = self.rpc.read("eth_getCode", json!([address, "latest"])).await?;
        Ok(!code.is_empty())
    }

    /// Returns the gas that the node estimates for a no-op: a transfer of 0 from the account to itself.
    pub async fn estimated_no_op(&self, account: Address) -> Result<u64> {
        let transfer = json!({ "from": account, "to": account, "value": "0x0" });
        let gas: U64 = self.rpc.read("eth_estimateGas", json!([transfer])).await?;
        Ok(gas.to())
    }

    /// Asks whether this chain charges an L1 data fee.
    pub async fn has_l1_fee(&self) -> Result<bool> {
        self.has_code(GAS_PRICE_ORACLE).await
    }

    /// Reads a block's header; `None` where the node has no such block.
    pub async fn header(&self, block: &'static str) -> Result<Option<BlockHeader>> {
        let header = self.header_of(json!(block)).await?;
        if let (Some(number), "latest") = (header.and_then(|header| header.number), block) {
            self.saw_head(number.to());
        }
        Ok(header)
    }

    async fn header_of(&self, block: Value) -> Result<Option<BlockHeader>> {
        let header: Option<BlockHeader> =
            self.rpc.read("eth_getBlockByNumber", json!([block, false])).await?;
        match header.and_then(|header| header.number) {
            Some(number) if block_number(number).is_none() => {
                Err(RpcError::Malformed("eth_getBlockByNumber"))
            }
            _ => Ok(header),
        }
    }

    /// Returns the number of the newest block as it was last read; 0 before the first read.
    pub fn head(&self) -> u64 {
        self.head.load(Ordering::Relaxed)
    }

    fn saw_head(&self, number: u64) {
        self.head.store(number, Ordering::Relaxed);
    }

    /// Reads the number of the block with this tag; `None` where the chain does not know the tag, 0 where it
    /// has no such block yet. A tag that was known once is never taken for unknown, nor is one with a block
    /// that a node lacks at the moment.
    async fn tagged(&self, tag: &'static str, is_known: &AtomicBool) -> Result<Option<u64>> {
        match self.header(tag).await {
            Ok(header) => {
                is_known.store(true, Ordering::Relaxed);
                Ok(Some(header.and_then(|header| header.number).map_or(0, |number| number.to())))
            }
            Err(RpcError::Node(error))
                if !is_known.load(Ordering::Relaxed)
                    && !matches!(classify(&error), Action::Retry | Action::Repin) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads the hash of block 0; `None` where it is pruned (EIP-4444): `earliest` is a later block then.
    pub async fn genesis(&self) -> Result<Option<B256>> {
        match self.header("0x0").await {
            Ok(header) => Ok(header.and_then(|header| header.hash)),
            Err(RpcError::Node(error)) if is_pruned(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a view call.
    ///
    /// # Errors
    /// [`RpcError`]; a revert is [`RpcError::Node`].
    pub async fn view<C: SolCall + Sync>(&self, to: Address, call: &C) -> Result<C::Return> {
        self.view_at(to, call, json!("latest")).await
    }

    async fn view_at<C: SolCall + Sync>(&self, to: Address, call: &C, block: Value) -> Result<C::Return> {
        let data = Bytes::from(call.abi_encode());
        let answer: Bytes = self.rpc.read("eth_call", json!([{ "to": to, "data": data }, block])).await?;
        C::abi_decode_returns(&answer).map_err(|_| RpcError::Malformed("eth_call"))
    }

    async fn nonce_at(&self, account: Address, block: Value) -> Result<u64> {
        let count: U64 = self.rpc.read("eth_getTransactionCount", json!([account, block])).await?;
        Ok(count.to())
    }

    /// Reads an account's nonce and a signer's forwarder nonce in the state of one block.
    async fn account_at(
        &self,
        account: Address,
        block: Value,
        block_number: u64,
        signer: Option<Address>,
    ) -> Result<AccountView> {
        let forwarder_nonce = match signer {
            Some(from) => {
                Some(self.view_at(self.forwarder, &IForwarder::getNonceCall { from }, block.clone()).await?)
            }
            None => None,
        };
        Ok(AccountView { block_number, mined_nonce: self.nonce_at(account, block).await?, forwarder_nonce })
    }
}

impl ChainNode for Chain {
    async fn mined_nonce(&self, account: Address) -> Result<u64> {
        self.nonce_at(account, json!("latest")).await
    }

    async fn pending_nonce(&self, account: Address) -> Result<u64> {
        self.nonce_at(account, json!("pending")).await
    }

    async fn market(&self) -> Result<Market> {
        let rpc = self.rpc.clone();
        let ask = async move {
            rpc.read("eth_feeHistory", json!([U64::from(FEE_HISTORY_BLOCKS), "latest", [50.0]])).await
        };
        let history = self.fee_histories.get((), ask).await?;
        let blocks = history.base_fee_per_gas.len().saturating_sub(1) as u64;
        let next = history.base_fee_per_gas.last().ok_or(RpcError::Malformed("eth_feeHistory"))?;
        let paid = history.reward.unwrap_or_default().into_iter().flatten().map(wei);
        let tip = self.tips().price(paid).min(self.max_tip);
        let head = history.oldest_block.saturating_add(U64::from(blocks)).saturating_sub(U64::from(1));
        let head = block_number(head).ok_or(RpcError::Malformed("eth_feeHistory"))?;
        self.saw_head(head);
        Ok(Market { head, next_base_fee: wei(*next), tip })
    }

    async fn balance(&self, account: Address) -> Result<u128> {
        let rpc = self.rpc.clone();
        let ask = async move { rpc.read("eth_getBalance", json!([account, "latest"])).await.map(wei) };
        self.balances.get(account, ask).await
    }

    async fn receipt(&self, hash: B256) -> Result<Option<Receipt>> {
        let json: Option<ReceiptJson> = self.rpc.read(RECEIPT, json!([hash])).await?;
        json.map_or(Ok(None), |json| json.of(hash)).map_err(|_| RpcError::Malformed(RECEIPT))
    }

    async fn receipts_by_block(&self, nonces: &[Vec<B256>]) -> HashMap<B256, Receipt> {
        self.block_receipts.find(&self.rpc, self.forwarder, nonces).await
    }

    async fn receipt_everywhere(&self, hash: B256) -> ReceiptLookup {
        let params = json!([hash]);
        let (mut answers, mut all) = self.rpc.read_everywhere::<Option<ReceiptJson>>(RECEIPT, &params);
        while let Some(answer) = answers.next().await {
            match answer.map(|json| json.map_or(Ok(None), |json| json.of(hash))) {
                Ok(Ok(Some(receipt))) => return ReceiptLookup::Found(receipt),
                Ok(Ok(None)) => {}
                Ok(Err(_)) | Err(_) => all = false,
            }
        }
        if all { ReceiptLookup::Absent } else { ReceiptLookup::Unclear }
    }

    async fn block_hash(&self, number: u64) -> Result<Option<B256>> {
        Ok(self.header_of(json!(U64::from(number))).await?.and_then(|header| header.hash))
    }

    async fn heads(&self) -> Result<BlockHeads> {
        const HEAD: RpcError = RpcError::Malformed("eth_getBlockByNumber");
        let [knows_safe, knows_finalized] = &self.known_tags;
        let (latest, safe, finalized) = tokio::try_join!(
            self.header("latest"),
            self.tagged("safe", knows_safe),
            self.tagged("finalized", knows_finalized)
        )?;
        let latest = latest.and_then(|header| header.number).ok_or(HEAD)?;
        Ok(BlockHeads::new(latest.to(), safe, finalized))
    }

    async fn account_view(&self, account: Address, signer: Option<Address>) -> Result<AccountView> {
        const HEAD: RpcError = RpcError::Malformed("eth_getBlockByNumber");
        let header = self.header("latest").await?.ok_or(HEAD)?;
        let (Some(number), Some(hash)) = (header.number, header.hash) else { return Err(HEAD) };
        // Pinned by hash, a machine without this very block answers with an error.
        match self.account_at(account, json!({ "blockHash": hash }), number.to(), signer).await {
            // Nodes that take no hash say so in many words.
            Err(RpcError::Node(error)) if !matches!(classify(&error), Action::Repin | Action::Revert) => {
                let view = self.account_at(account, json!(number), number.to(), signer).await?;
                // By number, a machine of another branch may have answered.
                let stands = self.block_hash(number.to()).await? == Some(hash);
                if stands { Ok(view) } else { Err(HEAD) }
            }
            view => view,
        }
    }

    async fn forwarder_nonce(&self, signer: Address) -> Result<U256> {
        self.view(self.forwarder, &IForwarder::getNonceCall { from: signer }).await
    }

    async fn verify(&self, execute: &IForwarder::executeCall) -> Result<bool> {
        let call = IForwarder::verifyCall { req: execute.req.clone(), signature: execute.signature.clone() };
        self.view(self.forwarder, &call).await
    }

    async fn simulate(&self, account: Address, calldata: &Bytes, gas_limit: u64) -> Result<SimulationResult> {
        self.simulate_execute(account, calldata, gas_limit).await
    }

    async fn l1_fee(&self, raw: Bytes) -> Result<u128> {
        self.view(GAS_PRICE_ORACLE, &IGasPriceOracle::getL1FeeCall { data: raw }).await.map(wei)
    }

    async fn broadcast(&self, raw: &[u8]) -> (BroadcastVerdict, String) {
        if let Ok(envelope) = TxEnvelope::decode_2718_exact(raw)
            && let Some(tip) = envelope.max_priority_fee_per_gas()
        {
            self.tips().offered(tip);
        }
        self.rpc.broadcast(raw).await
    }

    async fn finish_broadcasts(&self, within: Duration) -> usize {
        self.rpc.finish_broadcasts(within).await
    }
}

/// Returns whether a node says that it has pruned the block: by the code of geth, Nethermind and Besu, or in
/// words.
fn is_pruned(error: &ErrorPayload) -> bool {
    const PRUNED: i64 = 4_444;
    let message = error.message.to_lowercase();
    error.code == PRUNED || ["prune", "history", "not available"].iter().any(|word| message.contains(word))
}

/// Returns an amount as `u128`: no account on any chain holds 2^128 wei.
fn wei(amount: U256) -> u128 {
    u128::try_from(amount).unwrap_or(u128::MAX)
}
