//! A lenient reader of relay bodies, `{"request": {...}, "signature": "0x..."}`, with precise errors.
//!
//! Lenient: numbers in any of three spellings ([`super::number`]), unknown fields ignored. Precise: an error
//! names the field and the rule that it breaks. `super::rules` decides whether the request may be relayed,
//! `super::signature` whether its signature is valid.

use std::borrow::Cow;

use alloy_primitives::{Address, B256, Bytes, U256, aliases::U48, hex};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{ParseError, Problem, number};
use crate::{eth::abi::ForwardRequest, eth::address};

/// Length of a signature: `r` 32, `s` 32, `v` 1 (service.md section 5).
pub const SIGNATURE_LENGTH: usize = 65;

/// A request and its signature, as received: neither is verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRequest {
    /// The request that the forwarder executes.
    pub request: ForwardRequest,
    /// The signature as sent, of any length. Read from JSON, a `v` of 0 or 1 becomes 27 or 28.
    pub signature: Bytes,
}

/// A JSON object with these members, each as raw text; `null` is absent.
macro_rules! raw_object {
    ($name:ident { $($field:ident),* $(,)? }) => {
        #[derive(::serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct $name<'a> {
            $(#[serde(borrow)] $field: Option<&'a ::serde_json::value::RawValue>,)*
        }
    };
}
pub(super) use raw_object;

raw_object!(RawBody { request, signature });
raw_object!(RawRequest { from, to, value, gas, nonce, deadline, data });

impl SignedRequest {
    /// Parses the body of a relay request. No input makes it panic.
    ///
    /// # Errors
    /// [`ParseError`], naming the first field in the order of the Solidity struct that breaks a rule.
    pub fn from_json(body: &[u8]) -> Result<Self, ParseError> {
        let body: RawBody<'_> = object(body).ok_or(ParseError::NotJson)?;
        let (Some(request), Some(signature)) = (body.request, body.signature) else {
            return Err(ParseError::Missing);
        };
        if signature.get() == "\"\"" {
            return Err(ParseError::Missing);
        }
        let request = request_from_json(request.get().as_bytes())?;
        let signature = field("signature", Some(signature), bytes)?;
        Ok(Self { request, signature: with_recovery_id(signature) })
    }
}

/// Replaces a `v` of 0 or 1, as hardware wallets and `secp256k1` libraries write it, with 27 or 28, which the
/// forwarder requires. Other signatures stay unchanged.
fn with_recovery_id(signature: Bytes) -> Bytes {
    match <[u8; 65]>::try_from(&signature[..]) {
        Ok([rs @ .., v @ (0 | 1)]) => [&rs[..], &[v + 27]].concat().into(),
        _ => signature,
    }
}

/// Parses the `request` of a relay body, for clients that have not signed it yet.
///
/// # Errors
/// [`ParseError`], naming the first field in the order of the Solidity struct that breaks a rule.
pub fn request_from_json(json: &[u8]) -> Result<ForwardRequest, ParseError> {
    let raw: RawRequest<'_> = object(json).ok_or(ParseError::NotAnObject)?;
    Ok(ForwardRequest {
        from: field("request.from", raw.from, address)?,
        to: field("request.to", raw.to, address)?,
        value: field("request.value", raw.value, number::parse)?,
        gas: field("request.gas", raw.gas, number::parse)?,
        nonce: field("request.nonce", raw.nonce, number::parse)?,
        deadline: field("request.deadline", raw.deadline, uint48)?,
        data: field("request.data", raw.data, bytes)?,
    })
}

/// Deserializes a JSON object. Serde also reads a struct from an array, so the brace is checked first.
pub(super) fn object<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Option<T> {
    if json.trim_ascii_start().first() != Some(&b'{') {
        return None;
    }
    serde_json::from_slice(json).ok()
}

pub(super) fn field<T>(
    field: &'static str,
    raw: Option<&RawValue>,
    read: impl FnOnce(&str) -> Result<T, Problem>,
) -> Result<T, ParseError> {
    raw.map_or(Err(Problem::Missing), |raw| read(raw.get()))
        .map_err(|problem| ParseError::Field { field, problem })
}

fn uint48(json: &str) -> Result<U48, Problem> {
    let value: U256 = number::parse(json).map_err(|problem| match problem {
        Problem::TooLarge { .. } => Problem::TooLarge { bits: 48 },
        other => other,
    })?;
    u64::try_from(value)
        .ok()
        .and_then(|value| U48::try_from(value).ok())
        .ok_or(Problem::TooLarge { bits: 48 })
}

fn bytes(json: &str) -> Result<Bytes, Problem> {
    let text = string(json)?;
    let digits = text.strip_prefix("0x").ok_or(Problem::NotHex)?;
    if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(Problem::NotHex);
    }
    if digits.len() % 2 != 0 {
        return Err(Problem::OddHex);
    }
    hex::decode(digits).map(Bytes::from).map_err(|_| Problem::NotHex)
}

/// Parses 32 bytes.
pub(super) fn hash(json: &str) -> Result<B256, Problem> {
    B256::try_from(bytes(json)?.as_ref()).map_err(|_| Problem::HashLength)
}

/// Parses an address in one case, or in mixed case with a valid EIP-55 checksum.
pub(super) fn address(json: &str) -> Result<Address, Problem> {
    Ok(address::parse(&string(json)?)?)
}

pub(super) fn string(json: &str) -> Result<Cow<'_, str>, Problem> {
    if !json.starts_with('"') {
        return Err(Problem::NotAString);
    }
    // `Cow<str>` alone would deserialize into an owned copy; the wrapper borrows where there are no escapes.
    #[derive(Deserialize)]
    struct Text<'a>(#[serde(borrow)] Cow<'a, str>);
    serde_json::from_str::<Text<'_>>(json).map(|text| text.0).map_err(|_| Problem::NotAString)
}
