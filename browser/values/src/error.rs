//! The error that JavaScript sees: a `RegistryError`, with the message, code and status of the API or the
//! relayer.

use registry_core::{
    api::error::Error,
    eth::members::MemberError,
    evidence::EvidenceError,
    forward::{ParseError, Refusal},
    snapshot::SnapshotError,
};
use wasm_bindgen::prelude::*;

#[wasm_bindgen(raw_module = "./error.js")]
extern "C" {
    /// A class that extends JavaScript's `Error`.
    pub type RegistryError;

    #[wasm_bindgen(constructor)]
    fn new(message: &str, code: &str, status: u16, cause: &JsValue) -> RegistryError;
}

impl RegistryError {
    /// Makes the error that ended a run; its cause is the value that the wallet threw, if any.
    #[must_use]
    pub fn caused(error: Error, cause: &JsValue) -> Self {
        Self::new(&error.to_string(), error.code().name(), error.status(), cause)
    }
}

impl From<Error> for RegistryError {
    fn from(error: Error) -> Self {
        Self::new(&error.to_string(), error.code().name(), error.status(), &JsValue::UNDEFINED)
    }
}

impl From<ParseError> for RegistryError {
    fn from(error: ParseError) -> Self {
        Self::new(&error.to_string(), error.code(), error.status(), &JsValue::UNDEFINED)
    }
}

impl From<Refusal> for RegistryError {
    fn from(refusal: Refusal) -> Self {
        Self::new(&refusal.to_string(), refusal.code(), refusal.status(), &JsValue::UNDEFINED)
    }
}

impl From<MemberError> for RegistryError {
    fn from(error: MemberError) -> Self {
        Self::new(&error.to_string(), "INVALID_PARAMETER", 400, &JsValue::UNDEFINED)
    }
}

impl From<EvidenceError> for RegistryError {
    fn from(error: EvidenceError) -> Self {
        Self::new(&error.to_string(), "INVALID_EVIDENCE", 400, &JsValue::UNDEFINED)
    }
}

impl From<SnapshotError> for RegistryError {
    fn from(error: SnapshotError) -> Self {
        Self::new(&error.to_string(), "INVALID_SNAPSHOT", 502, &JsValue::UNDEFINED)
    }
}
