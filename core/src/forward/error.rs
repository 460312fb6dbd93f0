//! Errors of reading a forward request's JSON: the field, and the rule that it breaks.

use thiserror::Error;

use crate::eth::address::AddressError;

/// The reason that a relay body cannot be read: the client's error, HTTP 400.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ParseError {
    /// The body is not JSON, or not a JSON object.
    #[error("Body is not a JSON object")]
    NotJson,
    /// `request` or `signature` is absent, `null` or, for the signature, empty (service.md section 7).
    #[error("Missing request or signature")]
    Missing,
    /// `request` is present but not an object, or names one of its fields twice.
    #[error("Invalid request: must be a JSON object with each field once")]
    NotAnObject,
    /// One field breaks a rule.
    #[error("Invalid {field}: {problem}")]
    Field {
        /// The field's path, for instance `request.gas`.
        field: &'static str,
        /// The rule that it breaks.
        problem: Problem,
    },
}

/// The rule that a field breaks.
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
    /// A number too large for its Solidity type.
    #[error("must fit in {bits} bits")]
    TooLarge {
        /// The width of the Solidity type.
        bits: usize,
    },
    /// Not a JSON string.
    #[error("must be a string")]
    NotAString,
    /// A string that is not `0x`-prefixed hex.
    #[error("must be 0x-prefixed hex")]
    NotHex,
    /// Hex with an odd number of digits.
    #[error("must have an even number of hex digits")]
    OddHex,
    /// Not a JSON object, or one that names a field twice.
    #[error("must be an object with each field once")]
    NotAnObject,
    /// A string that is not an address.
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
    /// Returns the stable, machine-readable name of the error.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotJson => "INVALID_JSON",
            Self::Missing => "MISSING_REQUEST_OR_SIGNATURE",
            Self::NotAnObject | Self::Field { .. } => "INVALID_FIELD",
        }
    }

    /// Returns the HTTP status: always the client's error.
    #[must_use]
    pub const fn status(&self) -> u16 {
        400
    }
}
