//! Verification of evidence in web pages and Node, without a network.
//!
//! `agent-registry/evidence` is a wasm module of its own beside the package's others. Most pages never verify
//! a document, and verifying one needs no chain: neither use loads the code of the other.

use alloy_primitives::B256;
use registry_browser_values::{
    error::RegistryError,
    member::{address, chain_id, invalid, member},
    value::{json_text, parse},
};
use registry_core::{
    api::error::Error,
    evidence::{self, Expected, Layout},
};
use wasm_bindgen::prelude::*;

/// The shapes that wasm-bindgen cannot know: documents and options.
#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("types.d.ts");

/// Verifies a document of `/api/v1/kya/:wallet?evidence=1`, as an object or as text, against the hash of its
/// block. Returns the verdict that follows from the proofs. The caller must trust the source of the block
/// hash: everything rests on it.
///
/// @throws RegistryError with the code INVALID_EVIDENCE and the reason; INVALID_PARAMETER for an option that
/// breaks its rule
#[wasm_bindgen(js_name = verifyEvidence, unchecked_return_type = "VerifiedEvidence")]
pub fn verify_evidence(
    #[wasm_bindgen(unchecked_param_type = "Evidence | string")] document: &JsValue,
    #[wasm_bindgen(unchecked_param_type = "EvidenceOptions")] options: &JsValue,
) -> Result<JsValue, RegistryError> {
    let expected = expected(options)?;
    let text = document.as_string().unwrap_or_else(|| json_text(document));
    let verified = evidence::verify(&text, &expected)?;
    let (block, registry) = (verified.block, verified.registry.to_checksum(None));
    let forwarder = verified.forwarder.map(|it| format!(r#","forwarder":"{}""#, it.to_checksum(None)));
    // Texts and numbers: serialization has nothing to fail on.
    let verdict = serde_json::to_string(&verified.verdict).unwrap_or_default();
    parse(&format!(
        r#"{{"verdict":{verdict},"block":{{"number":{},"timestamp":"{}","hash":"{:#x}"}},"registry":"{registry}","chainId":{}{}}}"#,
        block.number,
        verified.verdict.as_of.block_timestamp,
        block.hash,
        verified.chain_id,
        forwarder.unwrap_or_default()
    ))
}

fn expected(options: &JsValue) -> Result<Expected, Error> {
    let hash = member(options, "blockHash").and_then(|hash| hash.as_string());
    let hash = hash.filter(|hash| hash.starts_with("0x"));
    let block_hash = hash.and_then(|hash| hash.parse::<B256>().ok()).ok_or(invalid(
        "blockHash",
        "must be the hash of the document's block, from a source you trust: 0x and 64 hexadecimal digits",
    ))?;
    let layout = member(options, "layout").map(|layout| {
        let text = layout.as_string().unwrap_or_else(|| json_text(&layout));
        Layout::parse(&text).map_err(|rule| invalid("layout", rule))
    });
    Ok(Expected {
        block_hash: Some(block_hash),
        chain_id: chain_id(options)?,
        registry: address(options, "registry")?,
        wallet: address(options, "wallet")?,
        forwarder: address(options, "forwarder")?,
        layout: layout.transpose()?,
    })
}
