//! Addresses as text: `0x` and 40 hexadecimal digits, in one case, or in mixed case with a valid EIP-55
//! checksum.

use alloy_primitives::Address;
use thiserror::Error;

/// Reason why a text is not an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Error)]
#[error("{}", self.rule())]
pub enum AddressError {
    /// Not `0x` and 40 hexadecimal digits.
    Shape,
    /// Mixed case with a wrong EIP-55 checksum: most likely a typo.
    Checksum,
}

impl AddressError {
    /// Returns the rule that the text breaks, in words.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            Self::Shape => "must be 0x followed by 40 hexadecimal digits",
            Self::Checksum => {
                "its mixed-case checksum (EIP-55) is wrong; check for a typo, or write it in lower case"
            }
        }
    }
}

/// Reads an address.
///
/// # Errors
/// [`AddressError`].
pub fn parse(text: &str) -> Result<Address, AddressError> {
    let digits = text.strip_prefix("0x").ok_or(AddressError::Shape)?;
    if digits.len() != 40 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(AddressError::Shape);
    }
    let address: Address = text.parse().map_err(|_| AddressError::Shape)?;
    let mixed = digits.bytes().any(|byte| byte.is_ascii_uppercase())
        && digits.bytes().any(|byte| byte.is_ascii_lowercase());
    if mixed && address.to_checksum(None) != text { Err(AddressError::Checksum) } else { Ok(address) }
}
