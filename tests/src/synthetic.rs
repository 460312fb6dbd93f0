//! Registries of any size: `contracts/test/SyntheticRegistry.sol` computes agents from their ids.

use alloy::network::TransactionBuilder as _;
use alloy::primitives::{Address, U160, U256};
use alloy::rpc::types::TransactionRequest;
use alloy::sol;
use alloy::sol_types::SolValue as _;
use anyhow::{Result, ensure};

use crate::chain::Chain;
use crate::deploy::create;

sol! {
    function toggle(uint256 first, uint256 count) external;
}

/// The contract's address groups: wallets by id, creators and persons by one of `PEOPLE` numbers.
const WALLETS: u32 = 0x5ca1_ab1e;
const CREATORS: u32 = 0x0c4e_a704;
const PERSONS: u32 = 0x009e_450a;
const PEOPLE: u64 = 673;

#[derive(Debug, Clone, Copy)]
pub struct Synthetic {
    pub address: Address,
}

impl Synthetic {
    pub async fn deploy(chain: &Chain, agents: u64) -> Result<Self> {
        let agents = U256::from(agents).abi_encode();
        Ok(Self { address: create(&chain.node.provider, "SyntheticRegistry", &agents).await? })
    }

    /// Suspends this many agents from `first` on, in one block; suspended ones become active.
    pub async fn toggle(&self, chain: &Chain, first: u64, count: u64) -> Result<()> {
        let call = toggleCall { first: U256::from(first), count: U256::from(count) };
        let request = TransactionRequest::default().from(chain.owner()).to(self.address).with_call(&call);
        let receipt = chain.node.execute(request).await?;
        ensure!(receipt.status(), "{receipt:?}");
        Ok(())
    }
}

pub fn wallet(id: u64) -> Address {
    address(WALLETS, id)
}

/// Returns the account that registered the agent with this id.
pub fn creator(id: u64) -> Address {
    address(CREATORS, id % PEOPLE)
}

/// Returns the person liable for the agent with this id.
pub fn person(id: u64) -> Address {
    address(PERSONS, id / 7 % PEOPLE)
}

fn address(group: u32, number: u64) -> Address {
    Address::from((U160::from(group) << 128) | U160::from(number))
}
