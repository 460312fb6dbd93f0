//! The RLP (Yellow Paper, appendix B) of headers and accounts: lists of strings, and numbers.

use alloy_primitives::U256;
use alloy_rlp::Header;

/// The most fields of a list. Headers have twenty to thirty, accounts four.
const MAX_FIELDS: usize = 64;

/// Decodes the fields of a list of strings; `None` for anything else.
pub(super) fn fields(rlp: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = rlp;
    let list = Header::decode(&mut rest).ok()?;
    if !list.list || list.payload_length != rest.len() {
        return None;
    }
    let mut fields = Vec::new();
    while !rest.is_empty() {
        if fields.len() == MAX_FIELDS {
            return None;
        }
        fields.push(string(&mut rest)?);
    }
    Some(fields)
}

/// Decodes a string that is a number without leading zeros; `None` for anything else.
pub(super) fn number(rlp: &[u8]) -> Option<U256> {
    let mut rest = rlp;
    let digits = string(&mut rest).filter(|_| rest.is_empty())?;
    integer(digits)
}

/// Reads big-endian bytes as a number; `None` for leading zeros.
pub(super) fn integer(digits: &[u8]) -> Option<U256> {
    U256::try_from_be_slice(digits).filter(|_| digits.first() != Some(&0))
}

fn string<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    Header::decode_bytes(rest, false).ok()
}
