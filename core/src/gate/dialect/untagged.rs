//! The earlier draft, as the published clients sign: npm `@slicekit/erc8128` 0.2.0 (slice-so/erc8128 at
//! commit 34edae9) and crate `erc8128` 0.3.2 (qntx/erc8128 at commit 403c644).

use sfv::Parameters;

use crate::gate::{request::Request, structured};

/// The prefix of `keyid`.
pub(super) const NAMESPACE: &str = "erc8128:";

/// Returns whether a signature is of this dialect. A signature with a tag is of another profile.
pub(super) fn has_signed(parameters: &Parameters) -> bool {
    let keyid = structured::text(parameters, "keyid").unwrap_or_default();
    !parameters.contains_key("tag") && keyid.starts_with(NAMESPACE)
}

/// Returns whether a component has to be signed. The signature never binds the scheme and the content's type,
/// and the query only where there is one.
pub(super) fn requires(component: &str, request: &Request<'_>) -> bool {
    match component {
        "@authority" | "@method" | "@path" => true,
        // The clients treat `/items?` as a target without a query.
        "@query" => request.query().is_some_and(|query| !query.is_empty()),
        "content-digest" => request.has("content-digest") || !request.content.is_empty(),
        _ => false,
    }
}
