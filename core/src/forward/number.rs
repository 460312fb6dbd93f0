//! The three spellings of a number in a signed request: JSON number, decimal string, `0x`-hex string.
//!
//! ethers, web3.py and viem each serialise integers their own way, so all three are read, up to 2^256-1.
//! A JSON number is taken from its text: going through a double would change digits beyond 2^53.

use alloy_primitives::U256;

use super::parse::Problem;

/// Reads the raw JSON text of one field as an unsigned integer.
pub(super) fn parse(json: &str) -> Result<U256, Problem> {
    match json.as_bytes().first() {
        Some(b'"') => {
            let text: alloc::borrow::Cow<'_, str> =
                serde_json::from_str(json).map_err(|_| Problem::NotANumber)?;
            spelled(&text)
        }
        Some(b'0'..=b'9' | b'-') => literal(json),
        _ => Err(Problem::NotANumber),
    }
}

/// A JSON number literal. Fractions and exponents are refused: `1e21` is how JavaScript writes a number
/// whose last digits it no longer knows.
fn literal(text: &str) -> Result<U256, Problem> {
    if text.contains(['.', 'e', 'E']) {
        return Err(Problem::NotWhole);
    }
    decimal(text)
}

/// The content of a JSON string.
fn spelled(text: &str) -> Result<U256, Problem> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => {
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(Problem::NotANumber);
            }
            U256::from_str_radix(digits, 16).map_err(|_| Problem::TooLarge { bits: 256 })
        }
        None => decimal(text),
    }
}

fn decimal(text: &str) -> Result<U256, Problem> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Problem::NotANumber);
    }
    if negative {
        return Err(Problem::Negative);
    }
    U256::from_str_radix(digits, 10).map_err(|_| Problem::TooLarge { bits: 256 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_spelling() {
        for (json, value) in [
            ("0", 0_u128),
            ("7", 7),
            ("\"7\"", 7),
            ("\"007\"", 7),
            ("\"0x7\"", 7),
            ("\"0X00fF\"", 255),
            ("9007199254740993", 9_007_199_254_740_993),
            ("340282366920938463463374607431768211455", u128::MAX),
            ("\"340282366920938463463374607431768211455\"", u128::MAX),
        ] {
            assert_eq!(parse(json), Ok(U256::from(value)), "{json}");
        }
        let max = alloc::format!("{}", U256::MAX);
        assert_eq!(parse(&max), Ok(U256::MAX));
    }

    #[test]
    fn refuses_what_is_no_unsigned_integer() {
        let too_large = Problem::TooLarge { bits: 256 };
        let beyond = alloc::format!("{}0", U256::MAX);
        let hex_beyond = alloc::format!("\"0x1{}\"", "0".repeat(64));
        for (json, problem) in [
            ("1.0", Problem::NotWhole),
            ("1e3", Problem::NotWhole),
            ("1E+21", Problem::NotWhole),
            ("-1", Problem::Negative),
            ("\"-1\"", Problem::Negative),
            ("\"\"", Problem::NotANumber),
            ("\"0x\"", Problem::NotANumber),
            ("\"0xg\"", Problem::NotANumber),
            ("\"0x-1\"", Problem::NotANumber),
            ("\"+1\"", Problem::NotANumber),
            ("\" 1\"", Problem::NotANumber),
            ("\"1_000\"", Problem::NotANumber),
            ("\"0x1_0\"", Problem::NotANumber),
            ("true", Problem::NotANumber),
            ("{}", Problem::NotANumber),
            ("[]", Problem::NotANumber),
            (beyond.as_str(), too_large),
            (hex_beyond.as_str(), too_large),
        ] {
            assert_eq!(parse(json), Err(problem), "{json}");
        }
    }
}
