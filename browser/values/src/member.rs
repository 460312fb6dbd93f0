//! Members of the objects that pages pass: options and queries. A member that is `undefined` is absent.

use alloy_primitives::Address;
use js_sys::Reflect;
use registry_core::{api::error::Error, eth::address};
use wasm_bindgen::prelude::*;

use crate::value::text_of;

/// Makes the error of a parameter that breaks its rule.
#[must_use]
pub const fn invalid(field: &'static str, rule: &'static str) -> Error {
    Error::InvalidParameter { field, rule }
}

/// Returns a member; `None` where it is absent, or the value is no object.
#[must_use]
pub fn member(object: &JsValue, name: &str) -> Option<JsValue> {
    Reflect::get(object, &name.into()).ok().filter(|value| !value.is_undefined())
}

/// Reads a member that is an address. Errors: `INVALID_PARAMETER` for a member that is no address.
pub fn address(object: &JsValue, field: &'static str) -> Result<Option<Address>, Error> {
    let Some(value) = member(object, field) else { return Ok(None) };
    let read = address::parse(&value.as_string().unwrap_or_default());
    read.map(Some).map_err(|error| invalid(field, error.rule()))
}

/// Reads the member `chainId`. Errors: `INVALID_PARAMETER` for a member that is no whole number.
pub fn chain_id(object: &JsValue) -> Result<Option<u64>, Error> {
    let id = member(object, "chainId").map(|id| text_of(&id).parse());
    id.transpose().map_err(|_| invalid("chainId", "must be a whole number"))
}
