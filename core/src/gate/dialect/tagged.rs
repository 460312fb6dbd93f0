//! The draft of August 2026: ethereum/ERCs pull request 1478, `ERCS/erc-8128.md` at commit 0f738bf.

use sfv::Parameters;

use crate::gate::{request::Request, structured};

/// The prefix of `keyid`: CAIP-10.
pub(super) const NAMESPACE: &str = "eip155:";

/// Returns whether a signature is of this dialect.
pub(super) fn has_signed(parameters: &Parameters) -> bool {
    structured::text(parameters, "tag") == Some("erc8128")
}

/// Returns whether a component has to be signed: the five that bind the request, and the content's two.
pub(super) fn requires(component: &str, request: &Request<'_>) -> bool {
    match component {
        "@scheme" | "@authority" | "@method" | "@path" | "@query" => true,
        "content-digest" => request.has("content-digest") || !request.content.is_empty(),
        "content-type" => request.has("content-type"),
        _ => false,
    }
}
