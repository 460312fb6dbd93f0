//! Evidence made of what anvil answered (`vectors/evidence`), verified without a network.
//!
//! 1. Every kind of verdict is proved: compliant, expired, suspended, revoked, never registered.
//! 2. A document about another block, chain, registry or wallet is refused with the reason.
//! 3. A layout without a voucher, or of other code, is refused.
//! 4. What is spelled in another way than documents are is refused by member and rule.
//! 5. Headers are hashed whole, whatever fields a chain adds.
//! 6. What a node gets wrong is asked again, or an error; other code needs its operator's layout (`asked`).
//! 7. Ten thousand documents, each changed in one byte or one element, are all refused (`mutations`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod asked;
#[path = "../common/mod.rs"]
mod common;
mod headers;
mod mutations;

use alloy_primitives::{Address, B256};
use registry_core::{
    evidence::{self, Evidence, EvidenceError, Expected, FORWARDER_PLACES, Layout, Material, Verified},
    registry::agent::Status,
};
use serde_json::{Value, json};

/// The names of the vectors: one for each kind of verdict.
const KINDS: [&str; 5] = ["provision", "expired", "suspended", "revoked", "never_registered"];

/// What anvil answered about a wallet.
struct Recorded {
    wallet: Address,
    registry: Address,
    layout: Layout,
    code: String,
    chain_id: u64,
    slots: Vec<B256>,
    block: Value,
    proof: Value,
}

impl Recorded {
    fn load(kind: &str) -> Self {
        let read = |name: &str| {
            let path = format!("{}/tests/vectors/evidence/{name}", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(path).unwrap()
        };
        let recorded: Value = serde_json::from_str(&read(&format!("{kind}.json"))).unwrap();
        let address = |name: &str| recorded[name].as_str().unwrap().parse::<Address>().unwrap();
        let slots = recorded["proof"]["storageProof"].as_array().unwrap();
        Self {
            wallet: address("wallet"),
            registry: address("registry"),
            layout: Layout::AGENT_REGISTRY,
            code: json!(read("registry_code.hex")).to_string(),
            chain_id: recorded["chainId"].as_u64().unwrap(),
            slots: slots.iter().map(|slot| slot["key"].as_str().unwrap().parse().unwrap()).collect(),
            block: recorded["block"].clone(),
            proof: recorded["proof"].clone(),
        }
    }

    fn make(&self) -> Result<(Evidence, Verified), EvidenceError> {
        evidence::make(&Material {
            wallet: self.wallet,
            registry: self.registry,
            chain_id: self.chain_id,
            layout: self.layout,
            slots: &self.slots,
            block: &self.block.to_string(),
            proof: &self.proof.to_string(),
            code: &self.code,
        })
    }

    /// The hash of the registry's code.
    fn code_hash(&self) -> B256 {
        self.proof["codeHash"].as_str().unwrap().parse().unwrap()
    }

    /// The same, of a registry that is known by its code's hash alone.
    fn foreign(self, code_hash: B256) -> Self {
        Self { layout: Layout { code_hash: Some(code_hash), ..self.layout }, ..self }
    }

    fn document(&self) -> String {
        serde_json::to_string(&self.make().unwrap().0).unwrap()
    }

    /// Everything that a careful verifier knows from elsewhere.
    fn expected(&self) -> Expected {
        Expected {
            block_hash: Some(self.block["hash"].as_str().unwrap().parse().unwrap()),
            chain_id: Some(self.chain_id),
            registry: Some(self.registry),
            wallet: Some(self.wallet),
            layout: None,
        }
    }
}

/// A document with one member replaced.
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
        assert_eq!(
            (&verdict["formerAgents"], &verdict["unknownBecause"]),
            (&json!("unknown"), &json!("NOT_PROVED"))
        );
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
fn a_slot_that_was_cleared_and_one_that_never_was_set_both_prove_no_agent() {
    // anvil keeps a leaf of zero for the one, and proves the other by absence, as nodes with a real database
    // do for both.
    let last = |kind: &str| {
        let proof = &Recorded::load(kind).proof["storageProof"][0]["proof"];
        proof.as_array().unwrap().last().unwrap().as_str().unwrap().to_owned()
    };
    assert!(last("revoked").ends_with("8180") && last("revoked").len() < 80, "a leaf of zero");
    assert!(last("never_registered").len() > 80, "a branch, or another slot's leaf");
    for kind in ["revoked", "never_registered"] {
        assert!(!Recorded::load(kind).make().unwrap().1.verdict.is_registered);
    }
}

#[test]
fn a_document_about_something_else_is_refused_with_the_reason() {
    let recorded = Recorded::load("provision");
    let document = recorded.document();
    let refused = |expected: Expected| evidence::verify(&document, &expected).unwrap_err();
    let other = Address::repeat_byte(0x11);
    let hash = B256::repeat_byte(0x22);
    let expected = recorded.expected();
    let Some(block_hash) = expected.block_hash else { unreachable!() };
    let error = refused(Expected { block_hash: Some(hash), ..expected });
    assert_eq!(error, EvidenceError::OtherBlock { document: block_hash, trusted: hash });
    let error = refused(Expected { chain_id: Some(1), ..expected });
    assert_eq!(error, EvidenceError::OtherChain { document: 31_337, expected: 1 });
    let error = refused(Expected { registry: Some(other), ..expected });
    assert_eq!(error, EvidenceError::OtherRegistry { document: recorded.registry, expected: other });
    let error = refused(Expected { wallet: Some(other), ..expected });
    assert_eq!(error, EvidenceError::OtherWallet { document: recorded.wallet, expected: other });
}

#[test]
fn a_document_whose_subject_was_changed_is_refused_with_the_reason() {
    let recorded = Recorded::load("provision");
    let document = recorded.document();
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
    let verdict = |field: &str| EvidenceError::Verdict { field: field.to_owned() };
    for (pointer, value, error) in [
        ("/version", json!(2), EvidenceError::Version(2)),
        ("/codeHash", zero, EvidenceError::Account { field: "codeHash" }),
        ("/balance", json!("0x1"), EvidenceError::Account { field: "balance" }),
        ("/verdict/isCompliant", json!(false), verdict("isCompliant")),
        ("/verdict/agent/status", json!("Suspended"), verdict("agent.status")),
    ] {
        assert_eq!(refused(pointer, value), error);
    }
}

#[test]
fn an_older_layout_is_refused() {
    let recorded = Recorded::load("provision");
    let (document, expected, code_hash) = (recorded.document(), recorded.expected(), recorded.code_hash());
    // As if a variable had been added since.
    let older = with(&document, "/layout/walletToAgent", json!("0x4"));
    assert_eq!(evidence::verify(&older, &expected).unwrap_err(), EvidenceError::UnknownLayout { code_hash });
    // The verifier itself still has the older one for this code.
    let recorded = recorded.foreign(code_hash);
    let older = with(&recorded.document(), "/layout/walletToAgent", json!("0x4"));
    let wallet_to_agent = alloy_primitives::U256::from(4);
    let expected = Expected { layout: Some(Layout { wallet_to_agent, ..recorded.layout }), ..expected };
    assert!(matches!(evidence::verify(&older, &expected), Err(EvidenceError::OtherSlot { place: 0, .. })));
}

#[test]
fn the_registry_is_known_by_its_code_whichever_forwarder_it_trusts() {
    let recorded = Recorded::load("provision");
    let (document, code_hash) = (recorded.document(), recorded.code_hash());
    let code = recorded.code.trim_matches('"');
    // The recorded code trusts a forwarder; the hash that is known is that of code with none.
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

    // Never a wrong proof: it is not even made.
    let made = recorded.foreign(B256::repeat_byte(1)).make();
    assert_eq!(made.unwrap_err(), EvidenceError::OtherCode { code_hash });
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
        ("\"version\":1,", "\"version\":1,\"version\":1,", "it must be a JSON object"),
        ("\"version\":1,", "\"version\":1,\"more\":1,", "more does not belong here"),
        ("\"version\":1,", "\"version\":01,", "it must be a JSON object"),
        ("\"version\":1,", "", "version is missing"),
        ("\"balance\":\"0x0\"", "\"balance\":\"\\u0030x0\"", "balance must be 0x and a number"),
        ("\"status\":{", "\"status\":{\"bytes\":1,", "layout.record.status must be an object"),
    ] {
        assert!(document.contains(from), "{from}");
        let error = evidence::verify(&document.replace(from, to), &Expected::default()).unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn evidence_is_not_made_of_another_blocks_proof() {
    let mut recorded = Recorded::load("provision");
    recorded.block["stateRoot"] = json!(format!("{:#x}", B256::repeat_byte(1)));
    // The hash is no longer the header's.
    assert!(matches!(recorded.make(), Err(EvidenceError::HeaderHash { .. })));
    let mut recorded = Recorded::load("provision");
    recorded.proof["accountProof"][0] = json!("0xc0");
    assert!(matches!(recorded.make(), Err(EvidenceError::AccountProof(_))));
}
