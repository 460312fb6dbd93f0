//! The three spellings of a number in a signed request: JSON number, decimal string, `0x`-hex string.
//!
//! ethers, web3.py and viem serialise integers in different ways, so all three are read, up to 2^256-1. A
//! JSON number is read from its text: a double would change digits beyond 2^53.

use std::borrow::Cow;

use alloy_primitives::U256;

use super::Problem;

/// Parses the raw JSON text of one field as an unsigned integer.
pub(super) fn parse(json: &str) -> Result<U256, Problem> {
    match json.as_bytes().first() {
        Some(b'"') => spelled(&serde_json::from_str::<Cow<'_, str>>(json).map_err(|_| Problem::NotANumber)?),
        Some(b'0'..=b'9' | b'-') => literal(json),
        _ => Err(Problem::NotANumber),
    }
}

/// 2^53: a double holds every whole number up to this one.
const LARGEST_IN_A_DOUBLE: U256 = U256::from_limbs([1 << 53, 0, 0, 0]);

/// Parses a JSON number literal. Libraries that keep numbers as doubles may write whole ones with a fraction
/// of zeros, which is exact up to 2^53. Exponents are refused: JavaScript writes `1e21` for a number after
/// losing its last digits.
fn literal(text: &str) -> Result<U256, Problem> {
    if text.contains(['e', 'E']) {
        return Err(Problem::NotWhole);
    }
    let Some((whole, fraction)) = text.split_once('.') else { return decimal(text) };
    match decimal(whole)? {
        value if fraction.bytes().all(|b| b == b'0') && value <= LARGEST_IN_A_DOUBLE => Ok(value),
        _ => Err(Problem::NotWhole),
    }
}

/// Parses the content of a JSON string.
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
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Problem::NotANumber);
    }
    if digits != text {
        return Err(Problem::Negative);
    }
    U256::from_str_radix(digits, 10).map_err(|_| Problem::TooLarge { bits: 256 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_spelling() {
        for (value, spellings) in [
            (U256::ZERO, "0"),
            (U256::from(7), "7 \"7\" \"007\" \"0x7\" 7.0"),
            (U256::from(255), "\"0X00fF\""),
            (U256::from(9_007_199_254_740_992_u64), "9007199254740992.000"),
            (U256::from(9_007_199_254_740_993_u64), "9007199254740993"),
            (U256::MAX, &format!("{0} \"{0}\" \"{0:#x}\" \"0x{0:X}\"", U256::MAX)),
        ] {
            for json in spellings.split(' ') {
                assert_eq!(parse(json), Ok(value), "{json}");
            }
        }
    }

    #[test]
    fn refuses_what_is_no_unsigned_integer() {
        let beyond = format!("{}0", U256::MAX);
        let hex_beyond = format!("\"0x1{}\"", "0".repeat(64));
        let no_number = r#""" "0x" "0xg" "0x-1" "+1" "1_000" "0x1_0" true {} []"#;
        for (problem, texts) in [
            (Problem::NotWhole, "1.5 0.00001 9007199254740993.0 1e3 1E+21"),
            (Problem::Negative, "-1.0 -1 \"-1\""),
            (Problem::NotANumber, no_number),
            (Problem::TooLarge { bits: 256 }, &format!("{beyond} {hex_beyond}")),
        ] {
            for json in texts.split(' ') {
                assert_eq!(parse(json), Err(problem), "{json}");
            }
        }
        assert_eq!(parse("\" 1\""), Err(Problem::NotANumber));
    }
}
