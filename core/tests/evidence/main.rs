//! Evidence made from recorded answers of anvil (`vectors/evidence`), verified without a network.
//!
//! [`headers`]: hashed whole. [`asked`]: from faulty nodes. [`mutations`]: none of 10,000 changed documents
//! verifies.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod asked;
#[path = "../common/mod.rs"]
mod common;
mod headers;
mod mutations;

use alloy_primitives::{Address, B256};
use common::recorded::Recorded;
use registry_core::evidence::{self, EvidenceError, Expected, FORWARDER_PLACES, Layout};
use registry_core::registry::agent::Status;
use serde_json::{Value, json};

/// The names of the vectors: one for each kind of verdict. `revoked` proves absence by a leaf of zero, which
/// anvil keeps for a slot that was cleared, `never_registered` by no leaf, as nodes with a real database do.
const KINDS: [&str; 5] = ["provision", "expired", "suspended", "revoked", "never_registered"];

/// Replaces one member of a document.
fn with(document: &str, pointer: &str, value: Value) -> String {
    let mut document: Value = serde_json::from_str(document).unwrap();
    *document.pointer_mut(pointer).unwrap_or_else(|| panic!("there is no {pointer}")) = value;
    document.to_string()
}

#[test]
fn every_kind_of_verdict_is_proved() {
    for kind in KINDS {
        let recorded = Recorded::load(kind);
        let verified = evidence::verify(&recorded.document(), &recorded.expected()).unwrap();
        let verdict = verified.verdict;
        assert_eq!(verdict.wallet, recorded.wallet, "{kind}");
        let status = verdict.agent.as_ref().map(|agent| agent.status);
        let expected = match kind {
            "provision" => (true, true, Some(Status::Active)),
            "expired" => (true, false, Some(Status::Active)),
            "suspended" => (true, false, Some(Status::Suspended)),
            _ => (false, false, None),
        };
        assert_eq!((verdict.is_registered, verdict.is_compliant, status), expected, "{kind}");
        let seconds = u64::from_str_radix(&recorded.block["timestamp"].as_str().unwrap()[2..], 16).unwrap();
        assert_eq!(verdict.checked_at.seconds(), seconds, "{kind}: judged at the block's time");
        // Neither is part of the proof: not even that an agent is a root.
        let verdict = serde_json::to_value(&verdict).unwrap();
        let ancestors = if verdict["isRegistered"] == true { json!("unknown") } else { json!([]) };
        assert_eq!(verdict["ancestorsNotActive"], ancestors, "{kind}");
        assert_eq!([&verdict["formerAgents"], &verdict["unknownBecause"]], ["unknown", "NOT_PROVED"]);
    }
}

#[test]
fn a_scope_of_several_slots_is_proved_to_its_last_byte() {
    let recorded = Recorded::load("provision");
    let scope = recorded.make().unwrap().1.verdict.agent.unwrap().operational_scope;
    assert!(scope.len() > 64 && scope.ends_with("é🤖."), "{scope}");
    let agent = Some((alloy_primitives::U256::from(2), scope.len()));
    assert_eq!(evidence::slots(&recorded.layout, recorded.wallet, agent), recorded.slots);
}

#[test]
fn a_document_about_something_else_is_refused_with_the_reason() {
    let recorded = Recorded::load("provision");
    let document = recorded.document();
    let (other, hash, expected) = (Address::repeat_byte(0x11), B256::repeat_byte(0x22), recorded.expected());
    let (wallet, registry, trusted) = (recorded.wallet, recorded.registry, expected.block_hash.unwrap());
    let other_block = EvidenceError::OtherBlock { document: trusted, trusted: hash };
    let other_chain = EvidenceError::OtherChain { document: 31_337, expected: 1 };
    let other_registry = EvidenceError::OtherRegistry { document: registry, expected: other };
    let other_wallet = EvidenceError::OtherWallet { document: wallet, expected: other };
    for (expected, error) in [
        (Expected { block_hash: Some(hash), ..expected }, other_block),
        (Expected { chain_id: Some(1), ..expected }, other_chain),
        (Expected { registry: Some(other), ..expected }, other_registry),
        (Expected { wallet: Some(other), ..expected }, other_wallet),
    ] {
        assert_eq!(evidence::verify(&document, &expected).unwrap_err(), error);
    }
    let trusted = Expected { block_hash: recorded.expected().block_hash, ..Expected::default() };
    let refused = |pointer: &str, value: Value| {
        evidence::verify(&with(&document, pointer, value), &trusted).unwrap_err()
    };
    let other = Recorded::load("expired");
    let error = refused("/wallet", json!(other.wallet.to_string()));
    assert_eq!(error, EvidenceError::OtherSlot { place: 0, expected: other.slots[0] });
    for registry in [other.wallet, recorded.wallet, Address::ZERO] {
        let error = refused("/registry", json!(registry.to_string()));
        assert!(matches!(error, EvidenceError::AccountProof(_) | EvidenceError::NoAccount), "{error}");
    }
    let zero = json!(format!("{:#x}", B256::ZERO));
    assert!(matches!(refused("/blockHash", zero.clone()), EvidenceError::OtherBlock { .. }));
    let forwarder = recorded.make().unwrap().1.forwarder;
    let verdict = |field: &str| EvidenceError::Verdict { field: field.to_owned() };
    for (pointer, value, error) in [
        ("/version", json!(3), EvidenceError::Version(3)),
        ("/version", json!(0), EvidenceError::Version(0)),
        ("/version", json!(1), EvidenceError::Forwarder { code: None }),
        ("/forwarder", json!(Address::ZERO.to_string()), EvidenceError::Forwarder { code: forwarder }),
        ("/codeHash", zero, EvidenceError::Account { field: "codeHash" }),
        ("/balance", json!("0x1"), EvidenceError::Account { field: "balance" }),
        ("/verdict/isCompliant", json!(false), verdict("isCompliant")),
        ("/verdict/agent/status", json!("Suspended"), verdict("agent.status")),
    ] {
        assert_eq!(refused(pointer, value), error);
    }
}

#[test]
fn the_registry_is_known_by_its_code_whichever_forwarder_it_trusts() {
    let recorded = Recorded::load("provision");
    let (document, code_hash) = (recorded.document(), recorded.code_hash());
    let code = recorded.code.trim_matches('"');
    // The recorded code trusts a forwarder; the known hash is that of code without one.
    assert_eq!(alloy_primitives::keccak256(alloy_primitives::hex::decode(code).unwrap()), code_hash);
    for place in [2 + FORWARDER_PLACES[0] * 2 + 24, 2, code.len() - 1] {
        let digit = if code.as_bytes()[place] == b'0' { "1" } else { "0" };
        let mut changed = code.to_owned();
        changed.replace_range(place..=place, digit);
        let changed = with(&document, "/code", json!(changed));
        let refused = evidence::verify(&changed, &recorded.expected()).unwrap_err();
        assert_eq!(refused, EvidenceError::Code { code_hash }, "digit {place}");
    }
    // Another contract's code needs no voucher for its hash, but its layout is unknown.
    let other = Recorded { code: json!(format!("{code}00")).to_string(), ..recorded };
    assert!(matches!(other.make(), Err(EvidenceError::OtherCode { .. })));
    // Nor is code recognised with two different forwarders, or one of more than 20 bytes.
    let recorded = Recorded::load("provision");
    for place in [2 + FORWARDER_PLACES[1] * 2 + 63, 2 + FORWARDER_PLACES[2] * 2] {
        let mut changed = code.to_owned();
        changed.replace_range(place..=place, if code.as_bytes()[place] == b'7' { "8" } else { "7" });
        let other = Recorded { code: json!(changed).to_string(), ..Recorded::load("provision") };
        assert!(matches!(other.make(), Err(EvidenceError::OtherCode { .. })), "digit {place}");
    }

    // The forwarder is the code's, and so the document's; a verifier may ask for one.
    let verified = recorded.make().unwrap().1;
    let forwarder = &code[2 + FORWARDER_PLACES[0] * 2 + 24..][..40];
    assert_eq!(verified.forwarder, Some(forwarder.parse().unwrap()));
    let asking = |forwarder| Expected { forwarder: Some(forwarder), ..recorded.expected() };
    assert!(evidence::verify(&document, &asking(verified.forwarder.unwrap())).is_ok());
    let (expected, code) = (Address::repeat_byte(1), verified.forwarder);
    let refused = EvidenceError::OtherForwarder { code, expected };
    assert_eq!(evidence::verify(&document, &asking(expected)), Err(refused));
    // An index's data is not part of the proof, whatever it says.
    let more = document.replacen('{', "{\"indexed\":{\"liability\":{\"basis\":\"accepted\"}},", 1);
    assert_eq!(evidence::verify(&more, &recorded.expected()), Ok(verified));
}

#[test]
fn other_code_needs_a_layout_that_the_verifier_vouches_for() {
    let recorded = Recorded::load("suspended");
    let code_hash = recorded.code_hash();
    let recorded = recorded.foreign(code_hash);
    let (document, expected) = (recorded.document(), recorded.expected());
    assert!(!document.contains("\"code\""), "its hash is all that counts");
    let refused = |document: &str, expected: &Expected| evidence::verify(document, expected).unwrap_err();
    assert_eq!(refused(&document, &expected), EvidenceError::UnknownLayout { code_hash });
    let vouched = Expected { layout: Some(recorded.layout), ..expected };
    assert!(evidence::verify(&document, &vouched).unwrap().verdict.is_registered);
    // Vouched for, but of other code.
    let layout = Layout { code_hash: Some(B256::repeat_byte(1)), ..recorded.layout };
    let wrong = with(&document, "/layout", serde_json::to_value(layout).unwrap());
    let vouched = Expected { layout: Some(layout), ..expected };
    assert_eq!(refused(&wrong, &vouched), EvidenceError::OtherCode { code_hash });

    // The verifier itself has another layout for this code: as if a variable had been added since.
    let older = with(&document, "/layout/walletToAgent", json!("0x4"));
    let wallet_to_agent = alloy_primitives::U256::from(4);
    let vouched = Expected { layout: Some(Layout { wallet_to_agent, ..recorded.layout }), ..expected };
    assert!(matches!(refused(&older, &vouched), EvidenceError::OtherSlot { place: 0, .. }));
    // A wrong proof is not even made.
    let made = recorded.foreign(B256::repeat_byte(1)).make();
    assert_eq!(made.unwrap_err(), EvidenceError::OtherCode { code_hash });
    let mut recorded = Recorded::load("provision");
    let older = with(&recorded.document(), "/layout/walletToAgent", json!("0x4"));
    assert_eq!(refused(&older, &recorded.expected()), EvidenceError::UnknownLayout { code_hash });
    recorded.proof["accountProof"][0] = json!("0xc0");
    assert!(matches!(recorded.make(), Err(EvidenceError::AccountProof(_))));
    // The hash is no longer the header's.
    recorded.block["stateRoot"] = json!(B256::repeat_byte(1));
    assert!(matches!(recorded.make(), Err(EvidenceError::HeaderHash { .. })));
}

#[test]
fn what_is_spelled_in_another_way_is_refused_by_name_and_rule() {
    let document = Recorded::load("provision").document();
    for (pointer, value, message) in [
        ("/wallet", json!("0x12"), "wallet must be an address with its EIP-55 checksum"),
        ("/chainId", json!("0x7a69"), "chainId must be a whole number in decimal digits"),
        ("/chainId", json!(31_337.0), "chainId must be a whole number in decimal digits"),
        ("/storageProof", json!({}), "storageProof must be a list of at most 256 elements"),
        ("/storageProof/3/value", json!("0x01"), "storageProof[3].value must be 0x and a number"),
        ("/storageProof/3/proof/0", json!("0xABCD"), "storageProof[3].proof[0] must be 0x and pairs"),
        ("/layout/record/status", json!(9), "layout.record.status must be an object"),
        ("/layout/record/status/bytes", json!(256), "layout.record.status.bytes must be a whole number"),
        ("/layout/attestationGracePeriod", json!({}), "layout.attestationGracePeriod.seconds is missing"),
    ] {
        let error = evidence::verify(&with(&document, pointer, value), &Expected::default()).unwrap_err();
        assert!(matches!(error, EvidenceError::Malformed(_)), "{error}");
        assert!(error.to_string().contains(message), "{error}");
    }
    for (from, to, message) in [
        ("\"version\":2,", "\"version\":2,\"version\":2,", "it must be a JSON object"),
        ("\"version\":2,", "\"version\":2,\"more\":1,", "more does not belong here"),
        ("\"version\":2,", "\"version\":02,", "it must be a JSON object"),
        ("\"version\":2,", "", "version is missing"),
        ("\"balance\":\"0x0\"", "\"balance\":\"\\u0030x0\"", "balance must be 0x and a number"),
        ("\"status\":{", "\"status\":{\"bytes\":1,", "layout.record.status must be an object"),
    ] {
        assert!(document.contains(from), "{from}");
        let error = evidence::verify(&document.replace(from, to), &Expected::default()).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}
