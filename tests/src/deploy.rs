//! Putting registry and forwarder on a chain, local or real.
//!
//! The forwarder goes first: it is an argument of the registry's constructor.

use std::time::Duration;

use alloy::network::{EthereumWallet, TransactionBuilder as _};
use alloy::primitives::{Address, Bytes};
use alloy::providers::{Provider, ProviderBuilder};
use alloy::rpc::types::TransactionRequest;
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::{SolCall as _, SolValue as _};
use anyhow::{Context as _, Result, ensure};
use registry_core::eth::abi::IAgentRegistry;
pub use registry_core::eth::multicall::CANONICAL_ADDRESS as MULTICALL3;

use crate::http;
use crate::process::eventually;
use crate::repo::Artifact;

/// How long a real chain may take to mine one of the two deployments.
const RECEIPT: Duration = Duration::from_secs(180);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deployment {
    pub registry: Address,
    pub forwarder: Address,
}

/// Deploys both contracts with `key`; returns once they are mined and the registry trusts the forwarder.
pub async fn deploy(rpc_url: &str, key: PrivateKeySigner) -> Result<Deployment> {
    let url = rpc_url.parse().context("the RPC URL is not a URL")?;
    let provider = ProviderBuilder::new()
        .wallet(EthereumWallet::from(key))
        .connect_reqwest(http::client(Duration::from_secs(30)), url);

    let forwarder = create(&provider, "Forwarder", &[]).await?;
    let registry = create(&provider, "AgentRegistry", &forwarder.abi_encode()).await?;

    // A load balancer may ask a node that has not seen the block yet.
    let question = Bytes::from(IAgentRegistry::isTrustedForwarderCall { forwarder }.abi_encode());
    let request = TransactionRequest::default().to(registry).input(question.into());
    eventually("trusted by the registry", RECEIPT, async || {
        provider.call(request.clone()).await.ok().filter(|answer| answer.last() == Some(&1))
    })
    .await?;
    Ok(Deployment { registry, forwarder })
}

/// Deploys one contract, paying as `provider` does, and waits for its receipt.
pub(crate) async fn create(provider: &impl Provider, contract: &str, arguments: &[u8]) -> Result<Address> {
    let artifact = Artifact::load(contract)?;
    let code: Bytes = [&artifact.creation_code[..], arguments].concat().into();
    let pending = provider
        .send_transaction(TransactionRequest::default().with_deploy_code(code))
        .await
        .with_context(|| format!("the node refused to deploy {contract}"))?;
    let hash = *pending.tx_hash();
    let receipt = pending
        .with_timeout(Some(RECEIPT))
        .get_receipt()
        .await
        .with_context(|| format!("no receipt for {contract}, transaction {hash}"))?;
    ensure!(receipt.status(), "deploying {contract} reverted, transaction {hash}");
    receipt.contract_address.with_context(|| format!("{contract}: the receipt names no contract"))
}
