//! The clients' requests, as they are signed and posted.

use alloy::primitives::aliases::U48;
use alloy::signers::SignerSync as _;
use registry_core::eth::abi::{ForwardRequest, IAgentRegistry};
use registry_core::forward::{SignedRequest, domain};
use serde_json::json;

use super::*;

fn key(index: u8) -> PrivateKeySigner {
    PrivateKeySigner::from_bytes(&B256::repeat_byte(index + 1)).unwrap()
}

pub fn signer(index: u8) -> Address {
    static SIGNERS_ADDRESSES: LazyLock<Vec<Address>> =
        LazyLock::new(|| (0..=SIGNERS).map(|index| key(index).address()).collect());
    SIGNERS_ADDRESSES[usize::from(index)]
}

/// Returns a signed request as a client posts it; each is signed once, as that is slow without optimisation.
pub fn body(index: u8, nonce: U256, deadline: u64, gas: u64) -> Vec<u8> {
    type Bodies = Mutex<HashMap<(u8, U256, u64, u64), Vec<u8>>>;
    static BODIES: LazyLock<Bodies> = LazyLock::new(Mutex::default);
    let mut bodies = BODIES.lock().unwrap();
    let sign = || {
        let call = IAgentRegistry::attestComplianceCall { agentId: U256::from(1) };
        let request = ForwardRequest {
            from: signer(index),
            to: REGISTRY,
            value: U256::ZERO,
            gas: U256::from(gas),
            nonce,
            deadline: U48::from(deadline),
            data: call.abi_encode().into(),
        };
        let mut signed = SignedRequest { request, signature: Bytes::new() };
        let digest = signed.digest(&domain(CHAIN_ID, FORWARDER));
        signed.signature = key(index).sign_hash_sync(&digest).unwrap().as_bytes().into();
        let ForwardRequest { from, to, value, gas, nonce, deadline, data } = signed.request;
        let body = json!({
            "request": {
                "from": from, "to": to, "value": value.to_string(), "gas": gas.to_string(),
                "nonce": nonce.to_string(), "deadline": deadline.to_string(), "data": data,
            },
            "signature": signed.signature,
        });
        body.to_string().into_bytes()
    };
    bodies.entry((index, nonce, deadline, gas)).or_insert_with(sign).clone()
}

/// Returns the id, signer and nonce of a request as it is posted.
pub fn identify(body: &[u8]) -> (B256, (Address, U256)) {
    let signed = SignedRequest::from_json(body).unwrap();
    let id = signed.digest(&domain(CHAIN_ID, FORWARDER));
    (id, (signed.request.from, signed.request.nonce))
}
