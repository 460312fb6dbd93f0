//! Registries of any size on a local chain: agents that a contract computes from their ids (`contracts/test/SyntheticRegistry.sol`).

use alloy::primitives::{Address, U160, U256};
use alloy::sol_types::SolValue as _;
use anyhow::Result;

use crate::chain::Chain;
use crate::deploy::create;

/// What the contract makes wallets of, together with the id: `WALLETS` there.
const WALLETS: u32 = 0x5ca1_ab1e;

/// Deploys a registry of so many agents beside the chain's own.
///
/// # Errors
/// When the contract is not built, or the node refuses it.
pub async fn deploy(chain: &Chain, agents: u64) -> Result<Address> {
    create(&chain.node.provider, "SyntheticRegistry", &U256::from(agents).abi_encode()).await
}

/// The wallet of the agent with this id.
pub fn wallet(id: u64) -> Address {
    Address::from((U160::from(WALLETS) << 128) | U160::from(id))
}
