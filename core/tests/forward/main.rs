//! Forward requests, their domain and their rules: golden vectors of another implementation, and variants
//! that a strict verifier refuses. [`bodies`], [`fields`]: errors name the malformed field.
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
fn only_65_bytes_with_v_27_or_28_and_the_lower_s_are_a_signature() {
    for vector in vectors() {
        let bytes = vector.signed.signature.to_vec();
        let refused = |signature: Vec<u8>| {
            with_signature(&vector.signed, signature).authenticate(&vector.domain).unwrap_err()
        };
        for length in [0, 1, 64, 66, 130] {
            let mut wrong = bytes.clone();
            wrong.resize(length, 27);
            assert_eq!(refused(wrong), SignatureError::Length(length));
        }
        let with_v = |v| [&bytes[..64], &[v]].concat();
        for v in (0..=255_u8).filter(|v| !matches!(v, 27 | 28)) {
            assert_eq!(refused(with_v(v)), SignatureError::RecoveryId(v));
        }
        let other = 27 + 28 - bytes[64];
        refused(with_v(other));
        let s = GROUP_ORDER - U256::from_be_slice(&bytes[32..64]);
        let twin = [&bytes[..32], &s.to_be_bytes::<32>(), &[other]].concat();
        assert_eq!(refused(twin), SignatureError::Malleable);
        let zero_r = [&[0; 32], &bytes[32..]].concat();
        let zero_s = [&bytes[..32], &[0; 32], &bytes[64..]].concat();
        for zero in [zero_r, zero_s] {
            assert_eq!(refused(zero), SignatureError::Unrecoverable);
        }
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
        let (chain, forwarder) = (vector.chain_id, vector.forwarder);
        for other in [domain(chain + 1, forwarder), domain(chain, Address::repeat_byte(9))] {
            assert!(vector.signed.authenticate(&other).is_err());
        }
    }
}

#[test]
fn the_rules_refuse_in_the_documented_order() {
    for vector in vectors() {
        let (right, request) = (&vector.domain, &vector.signed.request);
        let rules = Rules { registry: request.to, max_gas: request.gas.to() };
        let deadline = request.deadline.to::<u64>();

        if !request.value.is_zero() {
            assert_eq!(rules.check(&vector.signed, right, deadline), Err(Refusal::Value));
            continue;
        }
        assert_eq!(rules.check(&vector.signed, right, deadline), Ok(()));
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
    }
}
