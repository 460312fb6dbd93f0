//! The headers of an answer for the upstream, and the names that services read as theirs. Names are compared
//! here alone.

/// The headers that an answer has for the upstream.
pub const OUTPUT_HEADERS: [&str; 7] = [
    "kya-wallet",
    "kya-agent-id",
    "kya-decision",
    "kya-liable",
    "kya-liable-basis",
    "kya-until",
    "kya-verdict",
];

/// Returns whether some service reads a header of this name as one of [`OUTPUT_HEADERS`]: CGI, WSGI, Rack and
/// PHP fold case and take every separator for the same one.
pub fn reads_as_output_header(name: &str) -> bool {
    let name = name.trim();
    let is_same = |(byte, expected): (u8, u8)| {
        byte.eq_ignore_ascii_case(&expected) || expected == b'-' && !byte.is_ascii_alphanumeric()
    };
    OUTPUT_HEADERS
        .iter()
        .any(|output| name.len() == output.len() && name.bytes().zip(output.bytes()).all(is_same))
}

/// Returns whether a header in lower case reads as one of [`OUTPUT_HEADERS`] under another name, so that it
/// stays beside the gate's own where that is set.
pub fn is_lookalike(name: &str) -> bool {
    reads_as_output_header(name) && !OUTPUT_HEADERS.contains(&name)
}
