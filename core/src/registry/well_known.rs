//! The document at `/.well-known/agent-registry`: a service's registry, and the services for it. Its schema
//! is `openapi/agent-registry.schema.json`.

use alloy_primitives::Address;
use serde::{Deserialize, Serialize};

use crate::eth::{json, rpc::endpoint::RpcEndpoint};

/// Path of the document below a service's origin.
pub const PATH: &str = "/.well-known/agent-registry";

/// The document. Unknown members are ignored. Each list of URLs begins with the preferred one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WellKnown {
    /// The document's version: 1.
    pub version: u64,
    /// The chain's id.
    pub chain_id: u64,
    /// The registry.
    #[serde(serialize_with = "json::Checksummed::serialize")]
    pub registry: Address,
    /// The forwarder of relayed requests (ERC-2771).
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        serialize_with = "json::OptionalChecksummed::serialize"
    )]
    pub forwarder: Option<Address>,
    /// Gasless relayers.
    #[serde(default)]
    pub relayers: Vec<String>,
    /// Read APIs.
    #[serde(default)]
    pub read_apis: Vec<String>,
    /// Pages for people.
    #[serde(default)]
    pub documents: Vec<String>,
}

impl WellKnown {
    /// Makes a document of version 1 that names only the registry.
    pub fn new(chain_id: u64, registry: Address) -> Self {
        Self {
            version: 1,
            chain_id,
            registry,
            forwarder: None,
            relayers: Vec::new(),
            read_apis: Vec::new(),
            documents: Vec::new(),
        }
    }

    /// Serializes the document to JSON.
    pub fn json(&self) -> String {
        json::text(self, 512)
    }
}

/// Returns whether a URL may be published: `http` or `https`, and without a user, as a password beside it
/// would be published, too.
pub fn is_public(url: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'<' | b'>' | b'\\');
    url.bytes().all(is_plain) && RpcEndpoint::parse(url).is_some_and(|parsed| parsed.authorization.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_has_the_members_of_its_schema_and_no_forwarder_where_there_is_none() {
        let mut document = WellKnown::new(8453, Address::repeat_byte(0xab));
        document.relayers.push("https://relay.example".to_owned());
        let expected = serde_json::json!({
            "version": 1, "chainId": 8453, "registry": Address::repeat_byte(0xab).to_checksum(None),
            "relayers": ["https://relay.example"], "readApis": [], "documents": [],
        });
        assert_eq!(serde_json::from_str::<serde_json::Value>(&document.json()).unwrap(), expected);
        let forwarder = Address::repeat_byte(0xcd);
        document.forwarder = Some(forwarder);
        assert!(document.json().contains(&format!("\"forwarder\":\"{forwarder}\"")), "{document:?}");
        assert_eq!(serde_json::from_str::<WellKnown>(&document.json()).unwrap(), document);
        let least =
            r#"{"version":1,"chainId":1,"registry":"0x0000000000000000000000000000000000000000","more":1}"#;
        assert_eq!(serde_json::from_str::<WellKnown>(least).unwrap(), WellKnown::new(1, Address::ZERO));
    }

    #[test]
    fn a_url_with_a_user_is_not_published() {
        for (url, expected) in [
            ("https://relay.example", true),
            ("http://127.0.0.1:3001/v1?a=b", true),
            ("https://key@relay.example", false),
            ("https://user:key@relay.example/", false),
            ("ftp://relay.example", false),
            ("relay.example", false),
            ("https://", false),
            ("https://a\nb", false),
            ("https://a b", false),
        ] {
            assert_eq!(is_public(url), expected, "{url:?}");
        }
    }
}
