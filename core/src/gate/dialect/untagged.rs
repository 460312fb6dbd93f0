//! The earlier draft, as the published clients sign: npm `@slicekit/erc8128` 0.2.0 (slice-so/erc8128 at
//! commit 34edae9) and crate `erc8128` 0.3.2 (qntx/erc8128 at commit 403c644).

use sfv::Parameters;

use crate::gate::{request::Request, structured};

/// The prefix of `keyid`.
pub(super) const NAMESPACE: &str = "erc8128:";

/// Whether a signature is of this dialect. One with another tag is another profile's.
pub(super) fn has_signed(parameters: &Parameters) -> bool {
    let keyid = structured::text(parameters, "keyid").unwrap_or_default();
    !parameters.contains_key("tag") && keyid.starts_with(NAMESPACE)
}

/// Whether a received component is to be signed. The scheme and the content's type never are, the query only
/// where there is one: the signature does not bind them.
pub(super) fn requires(component: &str, request: &Request<'_>) -> bool {
    match component {
        "@authority" | "@method" | "@path" => true,
        // The clients take `/items?` for a target without a query.
        "@query" => request.query().is_some_and(|query| !query.is_empty()),
        "content-digest" => request.has("content-digest") || !request.content.is_empty(),
        _ => false,
    }
}
