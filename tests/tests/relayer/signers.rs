//! Requests signed by the typed-data functions of other libraries are executed: ethers, with numbers as
//! decimal strings, and eth-account, with JSON numbers. Such a client gets a readable message for its
//! mistakes.

use alloy::sol_types::SolCall as _;
use e2e::relay::REQUEST_GAS;
use e2e::signers::ForeignClient;

use crate::prelude::*;

#[tokio::test]
async fn a_request_signed_by_ethers_or_eth_account_goes_through() {
    let stage = RelayerFixture::set().await;
    let (daemon, _client) = stage.daemon().await;
    let clients = [ForeignClient::ethers().unwrap(), ForeignClient::eth_account().await.unwrap()];
    for (id, foreign) in (1..).zip(clients) {
        let key = agent(&format!("foreign {id}"));
        let relay = async |call: Vec<u8>| {
            foreign.relay(daemon.url(), &key, stage.desk.registry, &call, REQUEST_GAS).await.unwrap()
        };
        let registered = relay(register(key.address()).abi_encode()).await;
        assert_eq!((&registered["success"], &registered["agentId"]), (&json!(true), &json!(id)));
        let attested = relay(attest(id).abi_encode()).await;
        assert_eq!(attested["success"], true, "{attested}");
        let refused = relay(attest(9).abi_encode()).await;
        assert_eq!(refused, json!({ "error": "Agent not found", "code": "CALL_REVERTED" }));
    }
}
