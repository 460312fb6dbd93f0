//! Revert reasons, in the formats of all known nodes.
//!
//! A revert's payload is `Error(string)` or `Panic(uint256)`, ABI-encoded. Nodes put it into the error's
//! `data`, into text with a prefix or into a nested object, or send only a message.

use std::fmt;

use alloy_primitives::hex;
use alloy_sol_types::{Panic, Revert as ErrorString, SolError};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::ErrorPayload;
use crate::eth::abi::bounded;

/// The most bytes of a reason that are kept: an answer may state one for each of its items.
const REASON_BYTES_MAX: usize = 1_024;

/// A call's revert. `message` is the contract's reason, `panic 0x..` for a Solidity panic, or
/// `custom error 0x........` for an error that the interfaces here do not define; `None` for a revert without
/// data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Revert {
    /// The reason.
    pub message: Option<String>,
}

impl Revert {
    /// Decodes revert data as the EVM returns it.
    pub fn from_data(data: &[u8]) -> Self {
        Self { message: reason(data) }
    }

    /// Reads a node's error; `None` if it is not a revert. Nodes attach hex to errors of any kind, so data
    /// other than `Error(string)` and `Panic(uint256)` counts only if the message or the code says "revert".
    pub fn from_error(error: &ErrorPayload) -> Option<Self> {
        let data = error.data.as_deref().map_or("", RawValue::get);
        let (in_data, in_text) = (from_value(data, DEEPEST), from_text(&error.message));
        let says_so = error.code == 3 || in_text.is_some() || data.starts_with("\"Reverted ");
        let is_reason = |message: &String| !message.starts_with(CUSTOM_ERROR);
        let speaks_for_itself =
            in_data.as_ref().is_some_and(|revert| revert.message.as_ref().is_none_or(is_reason));
        // The payload is more precise than the node's rendering of it.
        (says_so || speaks_for_itself)
            .then(|| Self { message: in_data.into_iter().chain(in_text).find_map(|revert| revert.message) })
    }
}

impl fmt::Display for Revert {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message.as_deref().unwrap_or("no reason given"))
    }
}

/// The prefix of reasons that the interfaces here do not define.
const CUSTOM_ERROR: &str = "custom error 0x";

/// Returns the reason in revert data.
fn reason(data: &[u8]) -> Option<String> {
    if let Ok(error) = ErrorString::abi_decode_with_config(data, bounded(data)) {
        return Some(beginning(&error.reason).to_owned());
    }
    if let Ok(panic) = Panic::abi_decode(data) {
        return Some(format!("panic {:#04x}", panic.code));
    }
    let selector = data.get(..4)?;
    Some(format!("{CUSTOM_ERROR}{}", hex::encode(selector)))
}

/// Returns the part of a reason that is kept, cut at a character boundary.
fn beginning(reason: &str) -> &str {
    reason.get(..reason.floor_char_boundary(REASON_BYTES_MAX)).unwrap_or_default()
}

/// The most nested objects that are searched for revert data.
const DEEPEST: u32 = 8;

/// The members of an error's `data` that may hold revert data.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ErrorDataMembers<'a> {
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    original_error: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    cause: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

/// Parses a revert in an error's `data`, as JSON text: hex of a reason, the same after a word, text, or an
/// object around one of these.
fn from_value(data: &str, deepest: u32) -> Option<Revert> {
    if data.starts_with('{') {
        let members: ErrorDataMembers<'_> = serde_json::from_str(data).ok()?;
        let deeper = |raw: &RawValue| from_value(raw.get(), deepest.checked_sub(1)?);
        let message = || from_text(&serde_json::from_str::<String>(members.message?.get()).ok()?);
        let nested = [members.data, members.original_error, members.error, members.cause];
        return nested.into_iter().flatten().find_map(deeper).or_else(message);
    }
    let text: String = serde_json::from_str(data).ok()?;
    let text = text.strip_prefix("Reverted ").unwrap_or(&text);
    match text.strip_prefix("0x") {
        Some(digits) => Some(Revert { message: Some(reason(&hex::decode(digits).ok()?)?) }),
        None => from_text(text),
    }
}

/// Parses a revert in a message such as `execution reverted: revert: Agent not found`.
fn from_text(text: &str) -> Option<Revert> {
    let text = text.strip_prefix("Error: ").unwrap_or(text);
    let start = text.to_ascii_lowercase();
    // EDR's message where the contract states no reason. Out of gas is not a revert.
    if start.starts_with("transaction reverted") {
        return (!start.contains("out of gas")).then(Revert::default);
    }
    let said = [
        "execution reverted",
        "vm exception while processing transaction: reverted",
        "vm exception while processing transaction: revert",
        "reverted",
        "revert",
    ]
    .into_iter()
    .find(|phrase| start.starts_with(phrase))?;
    let mut rest = text.get(said.len()..)?;
    for prefix in [":", " ", "revert:", " "] {
        rest = rest.strip_prefix(prefix).unwrap_or(rest);
    }
    let rest = rest.trim();
    let quoted = rest.strip_prefix("reverted ").unwrap_or(rest).strip_prefix("with reason string ");
    let rest = quoted.unwrap_or(rest).trim_matches('\'');
    let message = (!rest.is_empty() && !rest.starts_with("0x")).then(|| beginning(rest).to_owned());
    Some(Revert { message: message.map(|message| panic_code(&message).unwrap_or(message)) })
}

/// Rewrites `panic: arithmetic underflow or overflow (0x11)` as `panic 0x11`.
fn panic_code(message: &str) -> Option<String> {
    let (_, code) = message.strip_prefix("panic")?.rsplit_once("(0x")?;
    Some(format!("panic 0x{}", code.strip_suffix(')')?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eth::rpc::read_error::{Action, classify};
    use proptest::prelude::*;
    use serde_json::value::to_raw_value;

    #[derive(Deserialize)]
    struct Vector {
        node: String,
        error: ErrorPayload,
        message: Option<String>,
    }

    #[test]
    fn every_nodes_way_of_writing_a_revert_is_read() {
        let vectors: Vec<Vector> =
            serde_json::from_str(include_str!("../../../tests/vectors/revert_errors.json")).unwrap();
        assert!(!vectors.is_empty());
        for Vector { node, error, message } in vectors {
            assert_eq!(Revert::from_error(&error), Some(Revert { message }), "{node}");
            assert_eq!(classify(&error), Action::Revert, "{node}");
        }
    }

    #[test]
    fn what_is_no_revert_is_not_taken_for_one() {
        for (code, message, data) in [
            (-32000, "header not found", None),
            (-32000, "nonce too low", Some("0x")),
            (-32005, "limit exceeded", Some("see docs")),
            (-32603, "Internal error", None),
            (-32603, "Error: Transaction reverted: contract call run out of gas", Some("0x")),
        ] {
            let data = data.map(|text| to_raw_value(text).unwrap());
            let error = ErrorPayload { code, message: message.into(), data };
            assert_eq!(Revert::from_error(&error), None, "{message}");
        }
    }

    #[test]
    fn unknown_custom_errors_show_their_selector() {
        let revert = Revert::from_data(&[0xde, 0xad, 0xbe, 0xef, 1]);
        assert_eq!(revert.to_string(), "custom error 0xdeadbeef");
        assert_eq!(Revert::from_data(&[1, 2]).message, None);
    }

    #[test]
    fn a_long_reason_is_cut_at_a_character() {
        let reason = format!("a{}", "ä".repeat(5_000));
        let kept = format!("a{}", "ä".repeat(511));
        let data = ErrorString { reason: reason.clone() }.abi_encode();
        assert_eq!(Revert::from_data(&data).message.as_deref(), Some(kept.as_str()));
        let message = format!("execution reverted: {reason}").into();
        let error = ErrorPayload { code: 3, message, data: None };
        assert_eq!(Revert::from_error(&error).unwrap().message, Some(kept));
    }

    proptest! {
        #[test]
        fn any_data_is_survived(data: Vec<u8>, message: String, code: i64) {
            Revert::from_data(&data);
            let data = to_raw_value(&message).ok();
            let error = ErrorPayload { code, message: message.into(), data };
            Revert::from_error(&error);
        }
    }
}
