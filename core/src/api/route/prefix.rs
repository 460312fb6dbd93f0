//! The prefix of a range of wallets: hexadecimal digits of their Keccak-256.

use core::{fmt, ops::RangeInclusive};

use crate::{api::error::Error, snapshot::ShardRange};

/// The most digits of a prefix.
const DIGITS_MAX: usize = 6;
/// The rules for prefixes, by the largest number of digits allowed, from 1 on.
const RULES: [&str; DIGITS_MAX] = [
    "must have 1 hex digit now: about thirty agents or more are to share a range",
    "must have 2 hex digits now: about thirty agents or more are to share a range, and fewer than a thousand",
    "must have 3 hex digits now: about thirty agents or more are to share a range, and fewer than a thousand",
    "must have 4 hex digits now: about thirty agents or more are to share a range, and fewer than a thousand",
    "must have 5 hex digits now: about thirty agents or more are to share a range, and fewer than a thousand",
    "must have 6 hex digits now: about thirty agents or more are to share a range, and fewer than a thousand",
];

/// One to six hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KyaPrefix {
    digits: u8,
    value: u32,
}

impl KyaPrefix {
    /// Parses the digits, of either case.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidParameter`].
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let is_hex = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = u32::from_str_radix(text, 16).ok().filter(|_| is_hex && text.len() <= DIGITS_MAX);
        let rule = "must be 1 to 6 hex digits";
        let value = value.ok_or(Error::InvalidParameter { field: "prefix", rule })?;
        Ok(Self { digits: u8::try_from(text.len()).unwrap_or(0), value })
    }

    /// Returns the range of the wallets with this prefix.
    pub fn range(self) -> ShardRange {
        let bits = self.digits * 4;
        ShardRange { start: u64::from(self.value) << (48 - bits), bits }
    }

    /// Checks the number of digits against those that a prefix may have now.
    ///
    /// # Errors
    ///
    /// [`Error::InvalidParameter`].
    pub fn check(self, digits: RangeInclusive<u8>) -> Result<(), Error> {
        if digits.contains(&self.digits) {
            return Ok(());
        }
        let rule = RULES.get(usize::from(digits.end().saturating_sub(1))).copied().unwrap_or_default();
        Err(Error::InvalidParameter { field: "prefix", rule })
    }
}

impl fmt::Display for KyaPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:0digits$x}", self.value, digits = usize::from(self.digits))
    }
}
