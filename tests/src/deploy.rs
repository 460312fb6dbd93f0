//! Deployment of registry and forwarder to a chain, local or real.
//!
//! The forwarder goes first: it is an argument of the registry's constructor.

use std::time::Duration;

use alloy::network::{EthereumWallet, TransactionBuilder as _};
use alloy::primitives::{Address, Bytes, bytes};
use alloy::providers::{Provider, ProviderBuilder};
use alloy::rpc::types::{TransactionInput, TransactionRequest};
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolCall as _, SolValue as _};
use anyhow::{Context as _, Result, ensure};
use registry_core::eth::abi::IAgentRegistry;
pub use registry_core::eth::multicall::CANONICAL_ADDRESS as MULTICALL3;
use serde_json::Value;

use crate::http;
use crate::process::eventually;
use crate::repo::Artifact;

/// Time that a real chain may take to mine one of the two deployments.
const RECEIPT: Duration = Duration::from_secs(180);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deployment {
    pub registry: Address,
    pub forwarder: Address,
}

/// Deploys both contracts with `key`; returns once they are mined and the registry trusts the forwarder.
pub async fn deploy(rpc_url: &str, key: PrivateKeySigner) -> Result<Deployment> {
    let provider = provider(rpc_url, key)?;
    check_opcodes(&provider).await?;
    let forwarder = create(&provider, "Forwarder", &[]).await?;
    let registry = create(&provider, "AgentRegistry", &forwarder.abi_encode()).await?;

    // A load balancer may ask a node that has not seen the block yet.
    let question = Bytes::from(IAgentRegistry::isTrustedForwarderCall { forwarder }.abi_encode());
    let input = TransactionInput { input: None, data: Some(question) };
    let request = TransactionRequest::default().to(registry).input(input);
    let trusts = async || provider.call(request.clone()).await.ok().filter(|told| told.last() == Some(&1));
    eventually("trusted by the registry", RECEIPT, trusts).await?;
    Ok(Deployment { registry, forwarder })
}

/// Deploys the Multicall3 stand-in with `key`, unless the chain has Multicall3 at its usual address; returns
/// the new address.
pub async fn deploy_multicall3(rpc_url: &str, key: PrivateKeySigner) -> Result<Option<Address>> {
    let provider = provider(rpc_url, key)?;
    if !provider.get_code_at(MULTICALL3).await?.is_empty() {
        return Ok(None);
    }
    create(&provider, "Multicall3", &[]).await.map(Some)
}

/// Returns a provider that signs with `key`.
pub fn provider(rpc_url: &str, key: PrivateKeySigner) -> Result<impl Provider + use<>> {
    let url = rpc_url.parse().context("the RPC URL is not a URL")?;
    let client = http::client(Duration::from_secs(30));
    Ok(ProviderBuilder::new().wallet(EthereumWallet::from(key)).connect_reqwest(client, url))
}

/// Checks that the chain has the contracts' opcodes: without them a deployment could succeed and fail later.
/// A node that takes no creation code in `eth_call` passes unchecked.
async fn check_opcodes(provider: &impl Provider) -> Result<()> {
    /// PUSH0 (EIP-3855), STOP.
    const OF_SHANGHAI: Bytes = bytes!("5f00");
    /// STOP.
    const OF_ANY_TIME: Bytes = bytes!("00");
    let runs = async |code| provider.call(creation(code)).await;
    match runs(OF_SHANGHAI).await {
        Err(error) if runs(OF_ANY_TIME).await.is_ok() => Err(error)
            .context("this chain runs no code of Shanghai (PUSH0), which the contracts are compiled to"),
        _ => Ok(()),
    }
}

/// Builds a creation transaction. Old nodes know `data` alone, and EDR refuses both names at once.
fn creation(code: Bytes) -> TransactionRequest {
    let mut transaction = TransactionRequest::default().into_create();
    transaction.input = TransactionInput { input: None, data: Some(code) };
    transaction
}

/// Returns the gas price where the chain has no base fee (EIP-1559), else `None`: fees are then estimated.
pub async fn gas_price(provider: &impl Provider) -> Result<Option<u128>> {
    let newest: Value = provider.raw_request("eth_getBlockByNumber".into(), ("latest", false)).await?;
    match newest["baseFeePerGas"].is_string() {
        true => Ok(None),
        false => provider.get_gas_price().await.map(Some).context("the node names no gas price"),
    }
}

/// Builds creation code that returns this runtime code: CODECOPY of all after its own twelve bytes, RETURN.
fn creation_of(runtime: &[u8]) -> Result<Bytes> {
    let [high, low] = u16::try_from(runtime.len()).context("longer than any contract")?.to_be_bytes();
    let head = [0x61, high, low, 0x80, 0x60, 12, 0x60, 0, 0x39, 0x60, 0, 0xf3];
    Ok([&head, runtime].concat().into())
}

/// Deploys one contract, paying as `provider` does, and waits for its receipt.
pub(crate) async fn create(provider: &impl Provider, contract: &str, arguments: &[u8]) -> Result<Address> {
    let artifact = Artifact::load(contract)?;
    let code = match artifact.creation_code.is_empty() {
        true => creation_of(&artifact.runtime_code)?,
        false => [&artifact.creation_code[..], arguments].concat().into(),
    };
    create_from(provider, contract, code).await
}

/// Deploys creation code and waits for the receipt; `contract` is the name for messages.
pub async fn create_from(provider: &impl Provider, contract: &str, code: Bytes) -> Result<Address> {
    let mut transaction = creation(code);
    transaction.gas_price = gas_price(provider).await?;
    let pending = provider.send_transaction(transaction).await;
    let pending = pending.with_context(|| format!("the node refused to deploy {contract}"))?;
    let hash = *pending.tx_hash();
    let receipt = pending.with_timeout(Some(RECEIPT)).get_receipt().await;
    let receipt = receipt.with_context(|| format!("no receipt for {contract}, transaction {hash}"))?;
    ensure!(receipt.status(), "deploying {contract} reverted, transaction {hash}");
    receipt.contract_address.with_context(|| format!("{contract}: the receipt names no contract"))
}
