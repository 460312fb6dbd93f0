//! Gasless calls: the calldata, the typed data to sign, and the relayer's own checks before a request is
//! posted.

use alloy_primitives::{Bytes, keccak256};
use alloy_sol_types::SolCall;
use gloo_utils::format::JsValueSerdeExt;
use js_sys::Date;
use registry_core::forward::{
    SignedRequest, TypedData, attestation_from_json, domain_from_json, registration_from_json,
    request_from_json, rules_from_json,
};
use wasm_bindgen::prelude::*;

use registry_browser_values::{error::RegistryError, value::json_text};

/// Returns the typed data that a wallet signs: the second parameter of `eth_signTypedData_v4`, of which
/// `JSON.stringify` loses nothing.
///
/// @throws RegistryError with the relayer's code INVALID_FIELD, naming the field and its rule
#[wasm_bindgen(js_name = forwardRequest, unchecked_return_type = "TypedData")]
pub fn forward_request(
    #[wasm_bindgen(unchecked_param_type = "ForwardRequest")] request: &JsValue,
    #[wasm_bindgen(unchecked_param_type = "ForwarderDomain")] domain: &JsValue,
) -> Result<JsValue, RegistryError> {
    let request = request_from_json(json_text(request).as_bytes())?;
    let typed = TypedData::of(&request, &domain_from_json(json_text(domain).as_bytes())?);
    // Strings, numbers and lists of them: serialization has nothing to fail on.
    Ok(JsValue::from_serde(&typed).unwrap_or(JsValue::UNDEFINED))
}

/// Checks a signed request by all of the relayer's rules that need no network, its signature included.
/// Returns its EIP-712 digest, which is the relayer's id for it: `GET /relay/:id`.
///
/// @throws RegistryError with the status, code and message of the relayer's refusal
#[wasm_bindgen(js_name = checkRequest)]
pub fn check_request(
    #[wasm_bindgen(unchecked_param_type = "SignedRequest")] signed: &JsValue,
    #[wasm_bindgen(unchecked_param_type = "RelayRules")] rules: &JsValue,
) -> Result<String, RegistryError> {
    let rules = json_text(rules);
    let (domain, rules) = (domain_from_json(rules.as_bytes())?, rules_from_json(rules.as_bytes())?);
    let signed = SignedRequest::from_json(json_text(signed).as_bytes())?;
    rules.check(&signed, &domain, (Date::now() / 1000.0) as u64)?;
    Ok(signed.digest(&domain).to_string())
}

/// Returns the calldata of `registerAgent`.
///
/// @throws RegistryError with the code INVALID_FIELD, naming the field and its rule
#[wasm_bindgen(js_name = registerAgent)]
pub fn register_agent(
    #[wasm_bindgen(unchecked_param_type = "Registration")] registration: &JsValue,
) -> Result<String, RegistryError> {
    Ok(calldata(&registration_from_json(json_text(registration).as_bytes())?))
}

/// Returns the calldata of `attestCompliance`.
///
/// @throws RegistryError with the code INVALID_FIELD, naming the field and its rule
#[wasm_bindgen(js_name = attestCompliance)]
pub fn attest_compliance(
    #[wasm_bindgen(js_name = agentId, unchecked_param_type = "Integer | string")] agent_id: &JsValue,
) -> Result<String, RegistryError> {
    Ok(calldata(&attestation_from_json(&json_text(agent_id))?))
}

/// Returns the Keccak-256 hash of a text in UTF-8, as a registration has it for its documents.
#[wasm_bindgen(js_name = keccak256)]
pub fn keccak256_of(text: &str) -> String {
    keccak256(text).to_string()
}

fn calldata(call: &impl SolCall) -> String {
    Bytes::from(call.abi_encode()).to_string()
}
