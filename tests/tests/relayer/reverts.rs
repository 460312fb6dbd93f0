//! What the contracts refuse reaches the client in the contract's own words, before anything is paid for.
//!
//! 1. Each registry error that a relayed call can meet, as a 500 with the contract's message.
//! 2. A refused call uses up neither gas nor budget nor the signer's nonce: the same signer goes on.
//! 3. Views, unknown functions and functions that the operator does not list are not even tried.

use alloy::primitives::{Address, U256};
use alloy::signers::local::PrivateKeySigner;
use alloy::sol_types::SolCall;
use e2e::anvil::dev_account;
use e2e::chain::Write;
use e2e::daemon::Daemon;
use e2e::relay::{RelayClient, attest, register};
use registry_core::eth::abi::{IAgentRegistry, IForwarder};
use serde_json::json;

use crate::audit::{Stage, agent};

fn child(wallet: Address, parent: u64) -> IAgentRegistry::registerAgentCall {
    IAgentRegistry::registerAgentCall { parentAgentId: U256::from(parent), ..register(wallet) }
}

fn suspend(agent: u64) -> IAgentRegistry::suspendAgentCall {
    IAgentRegistry::suspendAgentCall { agentId: U256::from(agent), reason: "test".to_owned() }
}

/// What has to be there for every error to be met. Agents 1 to 11 are each other's parents, generations 0 to
/// 10; 12 is suspended, 13 revoked.
async fn furnish(stage: &Stage, alice: &PrivateKeySigner, regulator: &PrivateKeySigner) {
    let owner = stage.chain.owner();
    let mut writes: Vec<Write> = (0..11)
        .map(|generation| {
            let wallet = if generation == 0 {
                alice.address()
            } else {
                agent(&format!("child {generation}")).address()
            };
            Write::new(owner, &child(wallet, generation))
        })
        .collect();
    writes.push(Write::new(owner, &register(agent("suspended").address())));
    writes.push(Write::new(owner, &register(agent("revoked").address())));
    writes.push(Write::new(owner, &suspend(12)));
    let revoke = IAgentRegistry::revokeAgentCall { agentId: U256::from(13), reason: "test".to_owned() };
    writes.push(Write::new(owner, &revoke));
    let regulate = IAgentRegistry::setRegulatorCall { account: regulator.address(), isRegulator: true };
    writes.push(Write::new(owner, &regulate));
    stage.chain.send_all(&writes, None).await.unwrap();
}

fn call(call: &impl SolCall) -> Vec<u8> {
    call.abi_encode()
}

#[tokio::test]
async fn each_registry_error_reaches_the_client_in_the_contracts_words() {
    let stage = Stage::set().await;
    let (alice, bob, regulator) = (agent("alice"), agent("bob"), agent("regulator"));
    furnish(&stage, &alice, &regulator).await;
    let (_daemon, client) = stage.daemon().await;
    let (suspended, revoked) = (agent("suspended"), agent("revoked"));
    let fresh = agent("fresh").address();
    let one = U256::ONE;

    let report = |agent: u64| IAgentRegistry::reportRevenueCall {
        agentId: U256::from(agent),
        amount: one,
        currency: "EUR".to_owned(),
        category: "fees".to_owned(),
        periodStart: 1,
        periodEnd: 2,
    };
    let terminate = |agent: u64| IAgentRegistry::terminateSelfCall { agentId: U256::from(agent) };
    let grace = IAgentRegistry::setAttestationGracePeriodCall { gracePeriodSeconds: one };
    let reactivate = |agent: u64| IAgentRegistry::reactivateAgentCall { agentId: U256::from(agent) };
    let nobody = IAgentRegistry::registerAgentCall { haftungsperson: Address::ZERO, ..register(fresh) };
    let cases: Vec<(&PrivateKeySigner, Vec<u8>, &str)> = vec![
        (&alice, call(&grace), "Only owner"),
        (&alice, call(&suspend(1)), "Only regulator"),
        (&alice, call(&reactivate(12)), "Only regulator"),
        (&regulator, call(&grace), "Only owner"),
        (&bob, call(&attest(1)), "Not authorized for this agent"),
        (&bob, call(&report(1)), "Not authorized for this agent"),
        (&bob, call(&terminate(1)), "Not authorized for this agent"),
        (&alice, call(&attest(99)), "Agent not found"),
        (&alice, call(&report(99)), "Agent not found"),
        (&regulator, call(&suspend(99)), "Agent not found"),
        (&suspended, call(&attest(12)), "Agent not active"),
        (&revoked, call(&report(13)), "Agent not active"),
        (&regulator, call(&suspend(12)), "Agent not active"),
        (&alice, call(&child(fresh, 99)), "Parent agent not found"),
        (&alice, call(&child(fresh, 12)), "Parent agent not active"),
        (&alice, call(&child(fresh, 13)), "Parent agent not active"),
        (&alice, call(&child(fresh, 11)), "Max generation depth exceeded"),
        (&bob, call(&register(alice.address())), "Wallet already registered to another agent"),
        (&regulator, call(&reactivate(1)), "Only suspended agents can be reactivated"),
        (&regulator, call(&reactivate(13)), "Only suspended agents can be reactivated"),
        (&alice, call(&register(Address::ZERO)), "Agent wallet is the zero address"),
        (&alice, call(&nobody), "Haftungsperson is the zero address"),
    ];
    for (signer, data, message) in &cases {
        let mut request = stage.desk.draft(signer, 0, &grace);
        request.data = data.clone().into();
        let request = stage.desk.sign(signer, request);
        client.relay(&request).await.refused(500, "CALL_REVERTED", message);
        let state = client.state(&request).await.ok();
        assert_eq!((&state["state"], &state["error"]), (&json!("dropped"), &json!(message)));
    }
    // Too little gas for anything: the registry has no chance to say a word.
    let mut request = stage.desk.draft(&alice, 0, &attest(1));
    request.gas = U256::from(500);
    let message = "Call failed without a reason; request.gas may be too low";
    client.relay(&stage.desk.sign(&alice, request)).await.refused(500, "CALL_REVERTED", message);

    assert_eq!(stage.proxy.calls("eth_sendRawTransaction"), 0, "nothing was paid for");
    assert_eq!(client.used_wei().await, 0);
    let nonce = IForwarder::getNonceCall { from: alice.address() };
    assert_eq!(stage.chain.read(stage.chain.contracts.forwarder, nonce).await.unwrap(), U256::ZERO);
    assert!(stage.chain.nonces_of(dev_account(9)).await.unwrap() == (0, 0));

    let attestation = stage.desk.request(&alice, 0, &attest(1));
    let reactivation = stage.desk.request(&regulator, 0, &reactivate(12));
    client.relay(&attestation).await.ok();
    client.relay(&reactivation).await.ok();
    stage.audit(&client, &[&attestation, &reactivation]).await;
}

#[tokio::test]
async fn views_and_functions_that_the_operator_does_not_list_are_not_relayed() {
    let stage = Stage::set().await;
    let options = stage.options.clone().var("RELAYED_FUNCTIONS", "registerAgent,attestCompliance");
    let (alice, message) = (agent("alice"), "Relayer does not forward this function of the registry");
    let refused = async |client: &RelayClient, data: Vec<u8>| {
        let mut request = stage.desk.draft(&alice, 1, &attest(1));
        request.data = data.into();
        let request = stage.desk.sign(&alice, request);
        client.relay(&request).await.refused(403, "FUNCTION_NOT_ALLOWED", message);
        client.state(&request).await.refused(
            404,
            "RELAY_NOT_FOUND",
            &format!("Relay not found: {}", request.id),
        );
    };
    let lookup = call(&IAgentRegistry::getAgentByWalletCall { wallet: alice.address() });
    let mut daemon = Daemon::start(&options).await.unwrap();
    let client = daemon.client();
    let registration = stage.desk.registration(&alice, 0);
    client.relay(&registration).await.ok();
    let asked = stage.proxy.posts();
    for data in [lookup.clone(), Vec::new(), vec![0xde, 0xad, 0xbe, 0xef], call(&suspend(1))] {
        refused(&client, data).await;
    }
    assert_eq!(stage.proxy.posts(), asked, "refused without asking the chain");
    daemon.terminate().await.unwrap();

    // By default all that change the registry are relayed: whether the caller may is the contract's to say.
    let (_daemon, client) = stage.daemon().await;
    refused(&client, lookup).await;
    let mut request = stage.desk.draft(&alice, 1, &attest(1));
    request.data = call(&suspend(1)).into();
    client.relay(&stage.desk.sign(&alice, request)).await.refused(500, "CALL_REVERTED", "Only regulator");
    let attestation = stage.desk.request(&alice, 1, &attest(1));
    client.relay(&attestation).await.ok();
    stage.audit(&client, &[&registration, &attestation]).await;
}
