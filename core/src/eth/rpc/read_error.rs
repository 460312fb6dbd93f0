//! Reactions to a node's error while reading: one table, most specific first. Each phrase is followed by the
//! nodes that send it.

use super::{ErrorPayload, revert::Revert};

/// The reaction to an error of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The contract reverted, which is a result.
    Revert,
    /// Too many requests in one batch: send fewer at once.
    SmallerBatch,
    /// Too much work in one request: split it.
    Split,
    /// The node does not have the pinned block (yet): retry once, then pin a few blocks further back.
    Repin,
    /// The node does not take a block hash as parameter (EIP-1898): pin by number.
    PinByNumber,
    /// Transient, or specific to this endpoint: retry.
    Retry,
    /// Permanent.
    GiveUp,
}

const INTERNAL: &str = "internal error";

/// Phrases in lower case. proxyd is the proxy of OP-stack chains, `sepolia.base.org` among them; jsonrpsee is
/// the server of reth and of related nodes.
const TABLE: &[(&str, Action)] = &[
    // Access refused.
    ("not whitelisted", Action::GiveUp), // proxyd, -32001, of a method
    ("unauthorized", Action::GiveUp),    // Ankr, NodeReal, -32000; Goldsky, -32016
    // EIP-1898 refused.
    ("cannot unmarshal object", Action::PinByNumber), // geth family before 1.9.16, many proxies
    ("invalid type: map", Action::PinByNumber),       // nodes written in Rust, on an unexpected object
    ("invalid block number or tag", Action::PinByNumber), // proxies that validate parameters
    // The pinned block or its state is missing.
    ("header not found", Action::Repin), // geth, op-geth behind a load balancer
    ("header for hash not found", Action::Repin), // geth, EIP-1898
    ("block not found", Action::Repin),  // reth, erigon, besu
    ("unknown block", Action::Repin),    // geth, EIP-1474
    ("could not be found", Action::Repin), // nethermind, a number or hash it does not have
    ("requested block yet", Action::Repin), // hosted load balancers
    ("blockoutofrange", Action::Repin),  // anvil
    ("block out of range", Action::Repin), // reth
    ("after last accepted block", Action::Repin), // avalanche
    ("not currently canonical", Action::Repin), // geth, requireCanonical
    ("missing trie node", Action::Repin), // geth, nethermind: state already pruned
    ("missingtrienode", Action::Repin),  // nethermind 9408: an exception's name in the error's data
    ("historical state", Action::Repin), // geth, path scheme and before
    ("no state available", Action::Repin), // nethermind, -32002
    ("state not available", Action::Repin), // geth path scheme, erigon while it executes
    ("state is not available", Action::Repin),
    ("world state unavailable", Action::Repin), // besu
    ("pruned history", Action::Repin),          // 4444, execution-apis
    ("missing data", Action::Repin),            // -32014, goldsky and others
    ("resource not found", Action::Repin),      // -32001 of EIP-1474
    // Too many requests in one batch.
    ("batch too large", Action::SmallerBatch), // geth, -32600, under the first request's id
    ("response too large", Action::SmallerBatch), // geth, -32003, for what did not fit any more
    ("batch request was too large", Action::SmallerBatch), // jsonrpsee, -32010
    ("batch response was too large", Action::SmallerBatch), // jsonrpsee, -32011
    ("request is too big", Action::SmallerBatch), // jsonrpsee, -32701
    ("batched requests are not supported", Action::SmallerBatch), // jsonrpsee, -32005
    ("batch requests are", Action::SmallerBatch), // Hedera, -32202, and Polygon's cdk-node; proxies
    ("batch request amount", Action::SmallerBatch), // Hedera, -32203
    ("batch size", Action::SmallerBatch),      // besu and nethermind, -32005; NodeReal
    ("batch limit", Action::SmallerBatch),     // erigon, "batch limit 100 exceeded"
    ("batch of more than", Action::SmallerBatch), // dRPC's free tier, code 31 and HTTP 500
    ("calls in batch request", Action::SmallerBatch), // proxyd, -32014
    ("requests in batch", Action::SmallerBatch), // hosted endpoints
    ("request entity too large", Action::SmallerBatch), // nginx, HTTP 413
    ("payload too", Action::SmallerBatch),     // bodies too large for proxies written in Rust and Node
    // Too much work in one request.
    ("out of gas", Action::Split),
    ("outofgas", Action::Split),             // anvil, reth
    ("gas required exceeds", Action::Split), // geth
    ("gas uint64 overflow", Action::Split),
    ("intrinsic gas too high", Action::Split), // calldata alone exceeds the cap
    ("execution timeout", Action::Split),      // erigon
    ("execution aborted", Action::Split),      // geth, --rpc.evmtimeout
    ("enabled timeout", Action::Split),        // nethermind, -32016: "canceled due to enabled timeout"
    ("response is too big", Action::Split),    // jsonrpsee, -32008
    ("response size", Action::Split),          // hosted endpoints
    // Transient.
    ("rate limit", Action::Retry), // Infura, -32005; proxyd, -32016; Blockvision, -32605
    ("rate exceeded", Action::Retry), // Infura, "project ID request rate exceeded"
    ("too many requests", Action::Retry), // Infura, 429; op-geth passing on its sequencer's
    ("concurrent requests", Action::Retry), // hosted endpoints, "maximum number of concurrent requests"
    ("compute units", Action::Retry), // Alchemy, 429; BlastAPI, without a code
    ("capacity", Action::Retry),   // Alchemy, "Monthly capacity limit exceeded"; proxyd, -32012
    ("limit exceeded", Action::Retry), // -32005 of EIP-1474
    ("limit reached", Action::Retry), // QuickNode, -32007: "25/second request limit reached"
    ("request limit", Action::Retry),
    ("rps limit", Action::Retry),         // Chainstack, -32005
    ("qps limit", Action::Retry),         // Unifra, 429
    ("credits limited", Action::Retry),   // QuickNode, -32012
    ("ran out of cu", Action::Retry),     // NodeReal, -32005
    ("count exceeded", Action::Retry),    // Infura, "daily request count exceeded"
    ("quota", Action::Retry),             // hosted endpoints
    ("payment required", Action::Retry),  // Infura, 402: the day's credits are spent
    ("free tier", Action::Retry),         // dRPC, Alchemy
    ("too much load", Action::Retry),     // hosted endpoints
    ("server is busy", Action::Retry),    // jsonrpsee, -32009
    ("try again", Action::Retry),         // Chainstack, jsonrpsee and others
    ("timeout", Action::Retry),           // proxyd, -32015; besu, "Timeout expired"; dRPC, code 30
    ("timed out", Action::Retry),         // geth, -32002
    ("deadline exceeded", Action::Retry), // nodes and proxies written in Go
    ("connection re", Action::Retry),     // proxies: their node refused or reset the connection
    ("temporarily", Action::Retry),
    ("unavailable", Action::Retry),
    ("overloaded", Action::Retry),
    ("healthy to serve", Action::Retry),      // proxyd, -32011 and -32018
    ("no backends available", Action::Retry), // proxyd, -32011
    ("no server available", Action::Retry),   // hosted endpoints
    ("backend offline", Action::Retry),       // proxyd, -32010
    ("backend returned an invalid", Action::Retry), // proxyd, -32013
    ("sync is still in progress", Action::Retry), // besu, -32008
    ("cannot fulfill request", Action::Retry), // Cloudflare, -32046
    (INTERNAL, Action::Retry),                // -32603, almost all nodes
];

/// Returns the first phrase in an error's message, or in its data: Nethermind's cause is there, below
/// "Internal error".
fn phrase(error: &ErrorPayload) -> Option<(&'static str, Action)> {
    let data = error.data.iter().flat_map(|data| data.get().chars().take(500));
    let text: String = error.message.chars().chain(data).map(|letter| letter.to_ascii_lowercase()).collect();
    TABLE.iter().find(|(phrase, _)| text.contains(phrase)).copied()
}

/// Phrases of transient errors, and of methods and blocks that an endpoint does not serve: Alchemy's
/// "eth_getProof is not available on the Free tier", dRPC's "archive is not available on free tier", "the
/// method eth_getProof is unavailable".
const UNCLEAR: [&str; 4] = [INTERNAL, "free tier", "unavailable", "cannot fulfill request"];

/// Returns whether an error may be about anything in its request, or be transient: JSON-RPC's internal error,
/// and those that do not say whether the request will ever be served.
pub(crate) fn is_unclear(error: &ErrorPayload) -> bool {
    match phrase(error) {
        Some((phrase, _)) => UNCLEAR.contains(&phrase),
        None => error.code == -32603,
    }
}

/// Returns whether an error does not say what part of its request is refused.
pub(crate) fn names_no_cause(error: &ErrorPayload) -> bool {
    phrase(error).is_none_or(|(phrase, _)| phrase == INTERNAL)
}

/// Returns whether the request itself is too long, rather than the work to answer it.
pub(crate) fn is_long_request(error: &ErrorPayload) -> bool {
    const PHRASES: [&str; 3] = ["request is too big", "request entity too large", "payload too"];
    phrase(error).is_some_and(|(phrase, _)| PHRASES.contains(&phrase))
}

/// Returns whether the node ran out of time: less work may be done in time.
pub(crate) fn is_timeout(error: &ErrorPayload) -> bool {
    phrase(error).is_some_and(|(phrase, _)| ["timeout", "timed out", "deadline exceeded"].contains(&phrase))
}

/// Classifies an error by its message first, as nodes use codes inconsistently. Reverts are recognised before
/// any phrase: a contract's reason may contain one. Out of gas is not a revert.
pub fn classify(error: &ErrorPayload) -> Action {
    if Revert::from_error(error).is_some() {
        return Action::Revert;
    }
    if let Some((_, action)) = phrase(error) {
        return action;
    }
    match error.code {
        -32001 => Action::Repin, // EIP-1474
        // EIP-1474's limit; QuickNode's two; proxyd's and eRPC's timeouts; Cloudflare's two; HTTP statuses.
        -32005 | -32007 | -32009 | -32015 | -32016 | -32029 | -32046 | -32055 | -32097 | 402 | 429 => {
            Action::Retry
        }
        -32603 => Action::Retry, // JSON-RPC's internal error, with any message
        _ => Action::GiveUp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_calls_for_its_action() {
        for (code, message, expected) in [
            (-32000, "header not found", Action::Repin),
            (-32001, "Resource not found.", Action::Repin),
            (-32001, "block not found: hash 0x01", Action::Repin),
            (-32000, "Block not found", Action::Repin),
            (-32000, "4294967295 could not be found", Action::Repin),
            (-32603, "upstream does not have the requested block yet", Action::Repin),
            (-32002, "No state available for block 0xe7b1", Action::Repin),
            (-32000, "World state unavailable", Action::Repin),
            (-32000, "historical state 0x12 is not available", Action::Repin),
            (4444, "Pruned history unavailable", Action::Repin),
            (
                -32602,
                "invalid argument 1: json: cannot unmarshal object into Go value of type rpc.BlockNumber",
                Action::PinByNumber,
            ),
            (-32600, "batch too large", Action::SmallerBatch),
            (-32003, "response too large", Action::SmallerBatch),
            (-32000, "batch limit 100 exceeded: 142 requests given", Action::SmallerBatch),
            (-32005, "Number of requests exceeds max batch size", Action::SmallerBatch),
            (-32005, "batch size exceed limit 500", Action::SmallerBatch),
            (-32005, "Batched requests are not supported by this server", Action::SmallerBatch),
            (-32010, "The batch request was too large", Action::SmallerBatch),
            (-32600, "batch requests are not supported", Action::SmallerBatch),
            (-32202, "Batch requests are disabled", Action::SmallerBatch),
            (-32203, "Batch request amount 142 exceeds max 100", Action::SmallerBatch),
            (-32014, "too many RPC calls in batch request", Action::SmallerBatch),
            (31, "Batch of more than 3 requests are not allowed on free tier", Action::SmallerBatch),
            (-32000, "out of gas", Action::Split),
            (-32000, "execution aborted (timeout = 5s)", Action::Split),
            (-32016, "eth_call request was canceled due to enabled timeout.", Action::Split),
            (-32008, "Response is too big", Action::Split),
            (-32005, "daily request count exceeded, request rate limited", Action::Retry),
            (-32005, "project ID request rate exceeded", Action::Retry),
            (-32005, "You've exceeded the RPS limit available on the current plan.", Action::Retry),
            (-32005, "ran out of cu", Action::Retry),
            (-32007, "25/second request limit reached - reduce calls per second", Action::Retry),
            (-32012, "credits limited to 6000/sec", Action::Retry),
            (-32012, "backend is over capacity", Action::Retry),
            (-32011, "no backend is currently healthy to serve traffic", Action::Retry),
            (-32013, "backend returned an invalid response", Action::Retry),
            (-32016, "over rate limit", Action::Retry),
            (-32000, r#"429 Too Many Requests: {"error":{"code":-32016}}"#, Action::Retry),
            (429, "Your app has exceeded its compute units per second capacity.", Action::Retry),
            (0, "Monthly capacity limit exceeded.", Action::Retry),
            (30, "Request timeout on the free tier, please upgrade your tier to the paid one", Action::Retry),
            (402, "Payment Required", Action::Retry),
            (429, "slow down", Action::Retry),
            (-32002, "request timed out", Action::Retry),
            (-32008, "Initial sync is still in progress", Action::Retry),
            (-32009, "Server is busy, try again later", Action::Retry),
            (-32046, "Cannot fulfill request", Action::Retry),
            (-32000, "context deadline exceeded", Action::Retry),
            (-32603, "Internal error", Action::Retry),
            (-32603, "something of the node's own", Action::Retry),
            (-32601, "the method eth_call does not exist", Action::GiveUp),
            (-32001, "rpc method is not whitelisted", Action::GiveUp),
            (-32016, "Unauthorized", Action::GiveUp),
            (-32000, "Unauthorized: You must authenticate your request with an API key", Action::GiveUp),
            (3, "execution reverted", Action::Revert),
            (-32603, "execution reverted", Action::Revert),
            (-32000, "execution reverted: out of gas", Action::Revert),
            (3, "execution reverted: header not found", Action::Revert),
        ] {
            let error = ErrorPayload { code, message: message.into(), data: None };
            assert_eq!(classify(&error), expected, "{message}");
        }
    }
}
