//! Verifying evidence in web pages and Node, without a network.
//!
//! A wasm module of its own beside the package's other one, `agent-registry/evidence`: most pages never verify a document, and who verifies documents asks no
//! chain. Neither should wait for the code of the other.

use alloy_primitives::{Address, B256};
use js_sys::Reflect;
use registry_browser_values::{
    error::RegistryError,
    value::{json_text, parse, text_of},
};
use registry_core::{
    api::error::Error,
    eth::address,
    evidence::{self, Expected, Layout},
};
use wasm_bindgen::prelude::*;

/// The shapes that wasm-bindgen cannot know: documents and options.
#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = include_str!("types.d.ts");

/// Verifies a document of `/api/v1/kya/:wallet?evidence=1`, as an object or as text, against the hash of its block. Gives the verdict as it was found
/// from the proofs. It is proved as far as that hash is: whoever quotes it vouches for the chain.
///
/// @throws RegistryError with the code INVALID_EVIDENCE and the reason; INVALID_PARAMETER for an option that breaks its rule
#[wasm_bindgen(js_name = verifyEvidence, unchecked_return_type = "VerifiedEvidence")]
pub fn verify_evidence(
    #[wasm_bindgen(unchecked_param_type = "Evidence | string")] document: &JsValue,
    #[wasm_bindgen(unchecked_param_type = "EvidenceOptions")] options: &JsValue,
) -> Result<JsValue, RegistryError> {
    let expected = expected(options)?;
    let text = document.as_string().unwrap_or_else(|| json_text(document));
    let verified = evidence::verify(&text, &expected)?;
    let (block, registry) = (verified.block, verified.registry.to_checksum(None));
    // Texts and numbers: serialization has nothing to fail on.
    let verdict = serde_json::to_string(&verified.verdict).unwrap_or_default();
    parse(&format!(
        r#"{{"verdict":{verdict},"block":{{"number":{},"timestamp":"{}","hash":"{:#x}"}},"registry":"{registry}","chainId":{}}}"#,
        block.number, verified.verdict.as_of.block_timestamp, block.hash, verified.chain_id
    ))
}

fn expected(options: &JsValue) -> Result<Expected, Error> {
    let get = |name: &str| Reflect::get(options, &name.into()).ok().filter(|value| !value.is_undefined());
    let hash = get("blockHash").and_then(|hash| hash.as_string()).and_then(|hash| hash.parse::<B256>().ok());
    let block_hash = hash.ok_or(Error::InvalidParameter {
        field: "blockHash",
        rule: "must be the hash of the document's block, from somebody you trust: 0x and 64 hexadecimal digits",
    })?;
    let address = |field: &'static str| -> Result<Option<Address>, Error> {
        let Some(value) = get(field) else { return Ok(None) };
        let read = address::parse(&value.as_string().unwrap_or_default());
        read.map(Some).map_err(|error| Error::InvalidParameter { field, rule: error.rule() })
    };
    let chain_id = match get("chainId") {
        None => None,
        Some(id) => Some(
            text_of(&id)
                .parse()
                .map_err(|_| Error::InvalidParameter { field: "chainId", rule: "must be a whole number" })?,
        ),
    };
    let layout = match get("layout") {
        None => None,
        Some(layout) => {
            let text = layout.as_string().unwrap_or_else(|| json_text(&layout));
            let invalid = |rule| Error::InvalidParameter { field: "layout", rule };
            Some(Layout::parse(&text).map_err(invalid)?)
        }
    };
    Ok(Expected {
        block_hash: Some(block_hash),
        chain_id,
        registry: address("registry")?,
        wallet: address("wallet")?,
        layout,
    })
}
