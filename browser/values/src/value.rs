//! JSON text and JavaScript values, without losing a digit: integers that a double cannot hold are BigInts.

use std::collections::BTreeMap;

use js_sys::{BigInt, JSON, JsString, Reflect};
use registry_core::api::error::Error;
use serde_json::value::RawValue;
use wasm_bindgen::prelude::*;

use crate::error::RegistryError;

/// `Number.MAX_SAFE_INTEGER`: up to it, a double can hold every integer.
const MAX_SAFE_INTEGER: u64 = (1 << 53) - 1;

/// The number of digits of the first integer above [`MAX_SAFE_INTEGER`].
const UNSAFE_DIGITS: usize = 16;

/// The greatest depth at which long numbers are corrected. Answers of the API are far less deep.
const MAX_DEPTH: usize = 128;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(catch, js_name = String)]
    fn string_of(value: &JsValue) -> Result<JsString, JsValue>;
}

/// Parses JSON text such as an answer of the API. Integers beyond `Number.MAX_SAFE_INTEGER` become BigInts;
/// everything else is parsed as by `JSON.parse`. Errors: `INVALID_PARAMETER` for a text that is no JSON.
pub fn parse(text: &str) -> Result<JsValue, RegistryError> {
    JSON::parse(text)
        .ok()
        .and_then(|rounded| exact(rounded, text.trim(), MAX_DEPTH))
        .ok_or_else(|| Error::InvalidParameter { field: "text", rule: "must be JSON" }.into())
}

/// Corrects the integers that `JSON.parse` rounded when it made a value of `text`. Only the branches with
/// long numbers are walked. `None` where they are nested too deep.
fn exact(rounded: JsValue, text: &str, depth: usize) -> Option<JsValue> {
    if !has_long_number(text) {
        return Some(rounded);
    }
    let depth = depth.checked_sub(1)?;
    match text.as_bytes().first()? {
        b'{' => {
            let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
            for (name, member) in members {
                put_right(&rounded, &name.into(), member.get(), depth)?;
            }
        }
        b'[' => {
            let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            for (index, item) in (0_u32..).zip(items) {
                put_right(&rounded, &index.into(), item.get(), depth)?;
            }
        }
        b'-' | b'0'..=b'9' if is_unsafe_integer(text) => {
            return BigInt::new(&text.into()).ok().map(JsValue::from);
        }
        _ => {}
    }
    Some(rounded)
}

/// Corrects one property. `JSON.parse` made it the object's own: even `__proto__` is an ordinary property.
fn put_right(object: &JsValue, key: &JsValue, text: &str, depth: usize) -> Option<()> {
    if has_long_number(text) {
        let value = exact(Reflect::get(object, key).ok()?, text, depth)?;
        Reflect::set(object, key, &value).ok()?;
    }
    Some(())
}

fn has_long_number(text: &str) -> bool {
    text.as_bytes().split(|byte| !byte.is_ascii_digit()).any(|digits| digits.len() >= UNSAFE_DIGITS)
}

fn is_unsafe_integer(text: &str) -> bool {
    let digits = text.trim_start_matches('-');
    let is_integer = digits.bytes().all(|byte| byte.is_ascii_digit());
    // An integer of more than 64 bits is unsafe as well.
    is_integer && digits.parse::<u64>().map_or(true, |number| number > MAX_SAFE_INTEGER)
}

/// Serializes a value as JSON, its BigInts as decimal strings. A value without JSON, such as `undefined`,
/// gives an empty text.
#[must_use]
pub fn json_text(value: &JsValue) -> String {
    let replacer = Closure::<dyn Fn(JsValue, JsValue) -> JsValue>::new(|_, value: JsValue| {
        if value.is_bigint() { text_of(&value).into() } else { value }
    });
    let json = JSON::stringify_with_replacer(value, replacer.as_ref());
    json.ok().and_then(|json| json.as_string()).unwrap_or_default()
}

/// Converts a value by JavaScript's `String`: the digits of a number or BigInt, a string unchanged.
#[must_use]
pub fn text_of(value: &JsValue) -> String {
    string_of(value).ok().and_then(|text| text.as_string()).unwrap_or_default()
}
