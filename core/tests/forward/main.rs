//! Forward requests, their domain and their rules.
//!
//! 1. Golden vectors: domain separator, digest, signature and signer, made by another implementation; and
//!    what a strict verifier must refuse about each.
//! 2. Every malformed body is blamed on the right field ([`bodies`]).
//! 3. Of domain, rules and calls each wrong field is named with its rule ([`fields`]).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)] // tests may fail

mod bodies;
mod fields;

use alloy_primitives::{Address, B256, Bytes, U256, hex, uint};
use alloy_sol_types::Eip712Domain;
use registry_core::forward::{
    ForwardRequest, Refusal, Rules, SignatureError, SignedRequest, domain, recover,
};
use serde_json::{Value, json};

const GROUP_ORDER: U256 = uint!(0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141_U256);

struct Vector {
    chain_id: u64,
    forwarder: Address,
    domain: Eip712Domain,
    separator: B256,
    digest: B256,
    json: Value,
    signed: SignedRequest,
}

fn vectors() -> Vec<Vector> {
    let all: Vec<Value> = serde_json::from_str(include_str!("../vectors/forward_requests.json")).unwrap();
    assert!(!all.is_empty());
    all.into_iter()
        .map(|vector| {
            let body = json!({ "request": vector["request"], "signature": vector["signature"] });
            let chain_id = vector["domain"]["chainId"].as_u64().unwrap();
            let forwarder = vector["domain"]["verifyingContract"].as_str().unwrap().parse().unwrap();
            Vector {
                chain_id,
                forwarder,
                domain: domain(chain_id, forwarder),
                separator: vector["domainSeparator"].as_str().unwrap().parse().unwrap(),
                digest: vector["digest"].as_str().unwrap().parse().unwrap(),
                signed: SignedRequest::from_json(body.to_string().as_bytes()).unwrap(),
                json: body,
            }
        })
        .collect()
}

fn with_signature(signed: &SignedRequest, signature: impl Into<Bytes>) -> SignedRequest {
    SignedRequest { request: signed.request.clone(), signature: signature.into() }
}

#[test]
fn separator_digest_and_signer_match_the_vectors() {
    for vector in vectors() {
        assert_eq!(vector.domain.separator(), vector.separator);
        assert_eq!(vector.signed.digest(&vector.domain), vector.digest);
        assert_eq!(vector.signed.authenticate(&vector.domain), Ok(vector.digest));
        assert_eq!(recover(vector.digest, &vector.signed.signature), Ok(vector.signed.request.from));
    }
}

#[test]
fn the_malleable_twin_is_refused() {
    for vector in vectors() {
        let mut twin = vector.signed.signature.to_vec();
        let s = GROUP_ORDER - U256::from_be_slice(&twin[32..64]);
        twin[32..64].copy_from_slice(&s.to_be_bytes::<32>());
        twin[64] = 27 + 28 - twin[64];
        let twin = with_signature(&vector.signed, twin);
        assert_eq!(twin.authenticate(&vector.domain), Err(SignatureError::Malleable));
    }
}

#[test]
fn only_65_bytes_with_v_27_or_28_are_a_signature() {
    for vector in vectors() {
        let bytes = vector.signed.signature.to_vec();
        for length in [0, 1, 64, 66, 130] {
            let mut wrong = bytes.clone();
            wrong.resize(length, 27);
            let wrong = with_signature(&vector.signed, wrong);
            assert_eq!(wrong.authenticate(&vector.domain), Err(SignatureError::Length(length)));
        }
        for v in (0..=255_u8).filter(|v| !matches!(v, 27 | 28)) {
            let mut wrong = bytes.clone();
            wrong[64] = v;
            let wrong = with_signature(&vector.signed, wrong);
            assert_eq!(wrong.authenticate(&vector.domain), Err(SignatureError::RecoveryId(v)));
        }
        let mut other = bytes.clone();
        other[64] = 27 + 28 - other[64];
        assert!(with_signature(&vector.signed, other).authenticate(&vector.domain).is_err());
        let zero_r = [vec![0; 32], bytes[32..].to_vec()].concat();
        let zero_r = with_signature(&vector.signed, zero_r);
        assert_eq!(zero_r.authenticate(&vector.domain), Err(SignatureError::Unrecoverable));
    }
}

#[test]
fn a_changed_field_or_domain_is_another_signer() {
    for vector in vectors() {
        let changes: [fn(&mut ForwardRequest); 6] = [
            |r| r.to = Address::repeat_byte(1),
            |r| r.value += U256::from(1),
            |r| r.gas += U256::from(1),
            |r| r.nonce += U256::from(1),
            |r| r.deadline = alloy_primitives::aliases::U48::from(1),
            |r| r.data = hex!("deadbeef").into(),
        ];
        for change in changes {
            let mut signed = vector.signed.clone();
            change(&mut signed.request);
            assert!(matches!(signed.authenticate(&vector.domain), Err(SignatureError::OtherSigner(_))));
        }
        let other_chain = domain(vector.chain_id + 1, vector.forwarder);
        assert!(vector.signed.authenticate(&other_chain).is_err());
        let other_forwarder = domain(vector.chain_id, Address::repeat_byte(9));
        assert!(vector.signed.authenticate(&other_forwarder).is_err());
    }
}

#[test]
fn the_rules_refuse_in_the_documented_order() {
    for vector in vectors() {
        let (right, request) = (&vector.domain, &vector.signed.request);
        let rules = Rules { registry: request.to, max_gas: request.gas.to() };
        let deadline = request.deadline.to::<u64>();

        if request.value.is_zero() {
            assert_eq!(rules.check(&vector.signed, right, deadline), Ok(()));
        } else {
            assert_eq!(rules.check(&vector.signed, right, deadline), Err(Refusal::Value));
            continue;
        }
        let elsewhere = Rules { registry: vector.forwarder, ..rules.clone() };
        assert_eq!(elsewhere.check(&vector.signed, right, deadline), Err(Refusal::Target));

        let tight = Rules { max_gas: rules.max_gas - 1, ..rules.clone() };
        let refusal = tight.check(&vector.signed, right, deadline).unwrap_err();
        assert_eq!((refusal.status(), refusal.code()), (400, "GAS_ABOVE_MAXIMUM"));

        if deadline != 0 {
            let late = rules.check(&vector.signed, right, deadline + 1);
            assert_eq!(late, Err(Refusal::Expired { deadline }));
        }
        let forged = with_signature(&vector.signed, vec![1; 65]);
        let refusal = rules.check(&forged, right, deadline).unwrap_err();
        assert_eq!(refusal.status(), 401);
        assert_eq!(refusal.to_string(), "Invalid signature or nonce mismatch");
        assert_eq!(vector.json["request"]["value"], "0");
    }
}
