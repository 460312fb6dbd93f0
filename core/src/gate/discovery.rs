//! The document at `/.well-known/erc8128` (ERC-8128, section 7): it tells clients the requirements of a route
//! before they sign. It grants nothing, and the challenge of a refusal counts where the two differ.

use serde::{Serialize, Serializer};

use super::candidate::{BASELINE_VALIDITY, Posture, SignatureRules};
use crate::eth::json;

#[derive(Serialize)]
struct Document<'a> {
    max_validity_sec: u64,
    chains: [String; 1],
    account_verification: &'static str,
    #[serde(serialize_with = "as_object")]
    route_policies: Vec<(&'a str, Route<'a>)>,
}

/// Serializes sorted pairs as an object: one more type of map would be 1 KiB of wasm.
fn as_object<S: Serializer>(routes: &[(&str, Route<'_>)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(routes.iter().map(|(pattern, route)| (pattern, route)))
}

#[derive(Serialize)]
struct Route<'a> {
    max_validity_sec: u64,
    required_components: &'a [String],
    replay: &'static str,
    content_digest: &'static str,
    account_verification: &'static str,
}

/// Returns the document of a service with accounts on `chain`, as JSON. Each route is a pattern (an absolute
/// path, one that ends in `/*`, or `default`) with its rules for signatures.
pub fn discovery_document<'a>(
    chain: u64,
    routes: impl IntoIterator<Item = (&'a str, &'a SignatureRules)>,
) -> String {
    let mut route_policies: Vec<(&str, Route<'_>)> = Vec::new();
    for (pattern, rules) in routes {
        let at = route_policies.partition_point(|(known, _)| *known < pattern);
        route_policies.insert(at, (pattern, Route::of(rules)));
    }
    let is_universal = route_policies.iter().all(|(_, route)| route.account_verification == "universal");
    let posture = if is_universal { Posture::Universal } else { Posture::EoaOnly };
    let document = Document {
        // For routes that are not listed.
        max_validity_sec: BASELINE_VALIDITY,
        chains: [format!("eip155:{chain}")],
        account_verification: posture.into(),
        route_policies,
    };
    json::text(&document, 512)
}

impl<'a> Route<'a> {
    fn of(rules: &'a SignatureRules) -> Self {
        Self {
            max_validity_sec: rules.longest_validity,
            required_components: &rules.components,
            replay: "non-replayable",
            content_digest: "request-body",
            account_verification: rules.posture.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::{Dialect, WithoutNonce};

    #[test]
    fn the_document_says_what_each_route_asks_for() {
        let rules = |posture, longest_validity, components: &[&str]| SignatureRules {
            chain: 8453,
            dialects: Dialect::ALL.to_vec(),
            components: components.iter().map(|name| (*name).to_owned()).collect(),
            longest_validity,
            posture,
            without_nonce: WithoutNonce::Unknown,
            principals: Vec::new(),
        };
        let (orders, others) =
            (rules(Posture::EoaOnly, 60, &["x-tenant"]), rules(Posture::Universal, 300, &[]));
        let text = discovery_document(8453, [("/orders", &orders), ("/items/*", &others)]);
        let route = |seconds: u64, components: &[&str], account: &str| {
            serde_json::json!({
                "max_validity_sec": seconds, "required_components": components, "replay": "non-replayable",
                "content_digest": "request-body", "account_verification": account,
            })
        };
        let expected = serde_json::json!({
            "max_validity_sec": 60, "chains": ["eip155:8453"], "account_verification": "eoa-only",
            "route_policies": {
                "/items/*": route(300, &[], "universal"),
                "/orders": route(60, &["x-tenant"], "eoa-only"),
            },
        });
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), expected);
    }
}
