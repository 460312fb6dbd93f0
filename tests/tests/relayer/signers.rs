//! Foreign signers: what other people's libraries sign with their own typed-data functions goes through.
//!
//! 1. ethers, numbers as decimal strings.
//! 2. eth-account, numbers as JSON numbers.
//! 3. What such a client did wrong, it is told in words.

use alloy::primitives::U256;
use alloy::sol_types::SolCall as _;
use e2e::relay::{REQUEST_GAS, attest, register};
use e2e::signers::ForeignClient;
use registry_core::eth::abi::IAgentRegistry;
use serde_json::json;

use crate::audit::{Stage, agent};

/// Registers, attests, and asks for what is not allowed.
async fn goes_through(name: &str, foreign: ForeignClient) {
    let stage = Stage::set().await;
    let (daemon, _client) = stage.daemon().await;
    let key = agent(name);
    let relay = async |call: Vec<u8>| {
        foreign.relay(daemon.url(), &key, stage.desk.registry, &call, REQUEST_GAS).await.unwrap()
    };
    let registered = relay(register(key.address()).abi_encode()).await;
    assert_eq!((&registered["success"], &registered["agentId"]), (&json!(true), &json!(1)), "{registered}");
    let attested = relay(attest(1).abi_encode()).await;
    assert_eq!(attested["success"], true, "{attested}");
    let refused = relay(attest(2).abi_encode()).await;
    assert_eq!(refused, json!({ "error": "Agent not found", "code": "CALL_REVERTED" }));

    let read = IAgentRegistry::getAgentByWalletCall { wallet: key.address() };
    let record = stage.chain.read(stage.chain.contracts.registry, read).await.unwrap();
    assert_eq!((record.agentId, record.creator), (U256::ONE, key.address()), "the signer is the creator");
    let executions = stage.chain.executions().await.unwrap();
    assert_eq!(executions, [(key.address(), 0, true), (key.address(), 1, true)]);
}

#[tokio::test]
async fn a_request_signed_by_ethers_goes_through() {
    goes_through("ethers", ForeignClient::ethers().unwrap()).await;
}

#[tokio::test]
async fn a_request_signed_by_eth_account_goes_through() {
    goes_through("eth-account", ForeignClient::eth_account().await.unwrap()).await;
}
