//! What to do about a node's error while reading: one table, most specific first. The texts are the nodes'
//! own; each row names who says so.

use super::{ErrorObject, revert::Revert};

/// What an error of a read calls for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The contract said no: an answer like any other.
    Revert,
    /// Too much at once: ask in smaller parts.
    Split,
    /// The node does not know the pinned block (yet): ask once more, then pin a little further back.
    Repin,
    /// The node does not take a block hash as parameter (EIP-1898): pin by number.
    PinByNumber,
    /// It may pass: ask again.
    Retry,
    /// It will not pass.
    GiveUp,
}

const TABLE: &[(&str, Action)] = &[
    // EIP-1898 refused.
    ("cannot unmarshal object", Action::PinByNumber), // geth family before 1.9.16, many proxies
    ("invalid type: map", Action::PinByNumber),       // nodes written in Rust, on an unexpected object
    ("invalid block number or tag", Action::PinByNumber), // proxies that validate parameters
    // The pinned block is not there.
    ("header not found", Action::Repin), // geth, op-geth behind a load balancer
    ("header for hash not found", Action::Repin), // geth, EIP-1898
    ("block not found", Action::Repin),  // reth, erigon, nethermind
    ("unknown block", Action::Repin),    // geth, besu
    ("blockoutofrange", Action::Repin),  // anvil
    ("block out of range", Action::Repin), // reth
    ("not currently canonical", Action::Repin), // geth, requireCanonical
    ("missing trie node", Action::Repin), // geth, state already pruned
    ("state not available", Action::Repin), // geth path scheme, nethermind
    ("state is not available", Action::Repin),
    ("resource not found", Action::Repin), // -32001 of EIP-1474
    // Too much at once.
    ("out of gas", Action::Split),
    ("outofgas", Action::Split),             // anvil, reth
    ("gas required exceeds", Action::Split), // geth
    ("gas uint64 overflow", Action::Split),
    ("intrinsic gas too high", Action::Split), // calldata alone exceeds the cap
    ("execution timeout", Action::Split),      // erigon
    ("execution aborted", Action::Split),      // geth, --rpc.evmtimeout
    ("response is too big", Action::Split),    // reth, jsonrpsee
    ("response too large", Action::Split),     // geth, batch-response-max-size
    ("response size", Action::Split),          // hosted endpoints
    ("batch too large", Action::Split),        // geth, batch-request-limit
    ("too many requests in batch", Action::Split), // hosted endpoints
    ("batch size", Action::Split),             // hosted endpoints
    ("batch limit", Action::Split),
    ("request entity too large", Action::Split),
    // It may pass.
    ("rate limit", Action::Retry),
    ("too many requests", Action::Retry),
    ("limit exceeded", Action::Retry), // -32005 of EIP-1474
    ("request limit", Action::Retry),
    ("timeout", Action::Retry),
    ("timed out", Action::Retry),
    ("temporarily", Action::Retry),
    ("unavailable", Action::Retry),
    ("overloaded", Action::Retry),
    ("internal error", Action::Retry), // -32603, from almost everybody
];

/// Classifies by message first: codes are used too freely to trust. A revert is recognised before any
/// phrase, so a contract's reason that quotes one stays a revert; gas running out is no revert.
pub fn classify(error: &ErrorObject) -> Action {
    if Revert::from_error(error).is_some() {
        return Action::Revert;
    }
    let message = error.message.to_ascii_lowercase();
    if let Some((_, action)) = TABLE.iter().find(|(phrase, _)| message.contains(phrase)) {
        return *action;
    }
    match error.code {
        -32005 | -32016 | 429 => Action::Retry,
        -32001 => Action::Repin,
        _ => Action::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use serde_json::Value;

    fn action(code: i64, message: &str) -> Action {
        classify(&ErrorObject { code, message: message.to_string(), data: None })
    }

    #[test]
    fn each_error_calls_for_its_action() {
        for (code, message, expected) in [
            (-32000, "header not found", Action::Repin),
            (-32001, "Resource not found.", Action::Repin),
            (-32001, "block not found: hash 0x01", Action::Repin),
            (
                -32602,
                "invalid argument 1: json: cannot unmarshal object into Go value of type rpc.BlockNumber",
                Action::PinByNumber,
            ),
            (-32000, "out of gas", Action::Split),
            (-32000, "execution aborted (timeout = 5s)", Action::Split),
            (-32600, "batch too large", Action::Split),
            (-32005, "daily request count exceeded, request rate limited", Action::Retry),
            (429, "slow down", Action::Retry),
            (-32603, "Internal error", Action::Retry),
            (-32601, "the method eth_call does not exist", Action::GiveUp),
            (3, "execution reverted", Action::Revert),
            (-32000, "execution reverted: out of gas", Action::Revert),
            (3, "execution reverted: header not found", Action::Revert),
        ] {
            assert_eq!(action(code, message), expected, "{message}");
        }
    }

    #[test]
    fn every_known_revert_is_a_revert() {
        let vectors: Vec<serde_json::Map<String, Value>> =
            serde_json::from_str(include_str!("../../tests/vectors/revert_errors.json")).unwrap();
        for vector in vectors {
            let error = serde_json::from_value(vector["error"].clone()).unwrap();
            assert_eq!(classify(&error), Action::Revert, "{}", vector["node"]);
        }
    }
}
