//! An agent's key, for the package's command line: signs forward requests (EIP-712) and messages (EIP-191).
//!
//! A wasm module of its own beside the package's others, which need no keys and have none.

use alloy_primitives::{Address, B256, eip191_hash_message, hex};
use alloy_sol_types::SolStruct as _;
use k256::ecdsa::SigningKey;
use registry_browser_values::{error::RegistryError, value::json_text};
use registry_core::{
    api::error::Error,
    forward::{domain_from_json, request_from_json},
};
use wasm_bindgen::prelude::*;

/// A secp256k1 key.
#[wasm_bindgen]
pub struct Key(SigningKey);

#[wasm_bindgen]
impl Key {
    /// Parses a key: 64 hexadecimal digits, with or without `0x` in front and white space around.
    ///
    /// @throws RegistryError with the code INVALID_PARAMETER, without the key
    #[wasm_bindgen(constructor)]
    pub fn new(text: &str) -> Result<Self, RegistryError> {
        let read = || {
            let bytes: [u8; 32] = hex::decode_to_array(text.trim()).ok()?;
            SigningKey::from_slice(&bytes).ok()
        };
        let invalid = Error::InvalidParameter {
            field: "key",
            rule: "must be a secp256k1 key of 64 hexadecimal digits",
        };
        read().map(Self).ok_or_else(|| invalid.into())
    }

    /// The account, with its checksum.
    #[wasm_bindgen(getter)]
    pub fn address(&self) -> String {
        // SEC1: the byte 4 of an uncompressed point, then its two coordinates.
        let point = self.0.verifying_key().to_encoded_point(false);
        let coordinates = point.as_bytes().get(1..).unwrap_or_default();
        Address::from_raw_public_key(coordinates).to_checksum(None)
    }

    /// Signs a forward request for the forwarder's domain. Returns the `signature` of the relayer's request.
    ///
    /// @throws RegistryError with the relayer's code INVALID_FIELD, naming the field and its rule
    #[wasm_bindgen(js_name = signRequest)]
    pub fn sign_request(
        &self,
        #[wasm_bindgen(unchecked_param_type = "ForwardRequest")] request: &JsValue,
        #[wasm_bindgen(unchecked_param_type = "ForwarderDomain")] domain: &JsValue,
    ) -> Result<String, RegistryError> {
        let request = request_from_json(json_text(request).as_bytes())?;
        let domain = domain_from_json(json_text(domain).as_bytes())?;
        self.sign(request.eip712_signing_hash(&domain))
    }

    /// Signs a message as wallets do (EIP-191).
    ///
    /// @throws RegistryError
    #[wasm_bindgen(js_name = signMessage)]
    pub fn sign_message(&self, message: &[u8]) -> Result<String, RegistryError> {
        self.sign(eip191_hash_message(message))
    }

    /// Signs a hash. Returns 65 bytes in hexadecimal digits, with a `v` of 27 or 28.
    fn sign(&self, digest: B256) -> Result<String, RegistryError> {
        let failed = Error::InvalidParameter { field: "key", rule: "must be able to sign" };
        let (signature, recovery) = self.0.sign_prehash_recoverable(digest.as_slice()).map_err(|_| failed)?;
        let v = 27 + u8::from(recovery.is_y_odd());
        Ok(hex::encode_prefixed([&signature.to_bytes()[..], &[v]].concat()))
    }
}

/// The shapes of the package's other modules.
#[wasm_bindgen(typescript_custom_section)]
const TYPES: &str = r#"import type { ForwardRequest, ForwarderDomain } from "./registry.js";"#;
