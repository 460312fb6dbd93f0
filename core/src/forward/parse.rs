//! The relay body, `{"request": {...}, "signature": "0x..."}`, read leniently and blamed precisely.
//!
//! Lenient: numbers in any of three spellings ([`super::number`]), unknown fields ignored. Precise: an error
//! names the field and the rule it broke. Whether the request may be relayed is not decided here
//! (`super::rules`), nor whether its signature is right (`super::signature`).

use std::borrow::Cow;

use alloy_primitives::{Address, B256, Bytes, U256, aliases::U48, hex};
use serde::Deserialize;
use serde_json::value::RawValue;
use thiserror::Error;

use super::number;
use crate::{
    eth::abi::ForwardRequest,
    eth::address::{self, AddressError},
};

/// A request together with the signature that claims to be its `from`'s. Nothing is verified yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRequest {
    /// What is to be executed.
    pub request: ForwardRequest,
    /// The signature as sent, of any length.
    pub signature: Bytes,
}

/// Why a relay body could not be read: the client's fault, HTTP 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ParseError {
    /// The body is not JSON, or not a JSON object.
    #[error("Body is not a JSON object")]
    NotJson,
    /// `request` or `signature` is absent, `null` or, for the signature, empty (service.md section 7).
    #[error("Missing request or signature")]
    Missing,
    /// `request` is there but is not an object, or names one of its fields twice.
    #[error("Invalid request: must be a JSON object with each field once")]
    NotAnObject,
    /// One field breaks a rule.
    #[error("Invalid {field}: {problem}")]
    Field {
        /// The field's path, for instance `request.gas`.
        field: &'static str,
        /// The rule it broke.
        problem: Problem,
    },
}

/// The rule that a field broke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Problem {
    /// The field is absent or `null`.
    #[error("missing")]
    Missing,
    /// Not a number in any of the accepted spellings.
    #[error("must be a whole number: a JSON number, a decimal string or a 0x-hex string")]
    NotANumber,
    /// A number with a fraction or an exponent.
    #[error("must be a whole number without fraction or exponent; write large values as strings")]
    NotWhole,
    /// A number below zero.
    #[error("must not be negative")]
    Negative,
    /// A number that its Solidity type cannot hold.
    #[error("must fit in {bits} bits")]
    TooLarge {
        /// The width of the Solidity type.
        bits: usize,
    },
    /// Not a JSON string where one is needed.
    #[error("must be a string")]
    NotAString,
    /// A string that is no `0x`-prefixed hex.
    #[error("must be 0x-prefixed hex")]
    NotHex,
    /// Hex with an odd number of digits.
    #[error("must have an even number of hex digits")]
    OddHex,
    /// Not a JSON object, or one that names a field twice.
    #[error("must be an object with each field once")]
    NotAnObject,
    /// A string that is no address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// A hash that is not 32 bytes.
    #[error("must be 32 bytes, 0x and 64 hex digits")]
    HashLength,
    /// Not `true` or `false`.
    #[error("must be true or false")]
    NotABoolean,
}

impl ParseError {
    /// The stable, machine-readable name of the error.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotJson => "INVALID_JSON",
            Self::Missing => "MISSING_REQUEST_OR_SIGNATURE",
            Self::NotAnObject | Self::Field { .. } => "INVALID_FIELD",
        }
    }

    /// The HTTP status: always the client's fault.
    #[must_use]
    pub const fn status(&self) -> u16 {
        400
    }
}

#[derive(Deserialize)]
struct RawBody<'a> {
    #[serde(borrow)]
    request: Option<&'a RawValue>,
    #[serde(borrow)]
    signature: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct RawRequest<'a> {
    #[serde(borrow)]
    from: Option<&'a RawValue>,
    #[serde(borrow)]
    to: Option<&'a RawValue>,
    #[serde(borrow)]
    value: Option<&'a RawValue>,
    #[serde(borrow)]
    gas: Option<&'a RawValue>,
    #[serde(borrow)]
    nonce: Option<&'a RawValue>,
    #[serde(borrow)]
    deadline: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

impl SignedRequest {
    /// Reads the body of a relay request. Never panics, whatever the bytes.
    ///
    /// # Errors
    /// [`ParseError`], naming the first field in the order of the Solidity struct that is wrong.
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
        Ok(Self { request, signature })
    }
}

/// Reads the `request` of a relay body alone, as it is before anybody has signed it.
///
/// # Errors
/// [`ParseError`], naming the first field in the order of the Solidity struct that is wrong.
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

/// Deserializes a JSON object. Serde would take an array for a struct as well, so the brace is asked for.
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

/// 32 bytes.
pub(super) fn hash(json: &str) -> Result<B256, Problem> {
    B256::try_from(bytes(json)?.as_ref()).map_err(|_| Problem::HashLength)
}

/// An address in any single case, or in mixed case with a right EIP-55 checksum.
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
