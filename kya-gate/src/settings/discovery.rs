//! What the gate tells programs of its registry: the document at `/.well-known/agent-registry`.

use alloy_primitives::Address;
use anyhow::ensure;
use serde::Deserialize;
use serde_json::json;
use url::Url;

/// What a service says of the way to its registry, beside chain and registry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct DiscoverySettings {
    /// The forwarder of relayed requests.
    pub forwarder: Option<Address>,
    /// Gasless relayers, the preferred first.
    pub relayers: Vec<Url>,
    /// Read APIs, the preferred first.
    pub read_apis: Vec<Url>,
    /// Where people read on.
    pub documents: Vec<Url>,
}

impl DiscoverySettings {
    pub(super) fn validated(self) -> anyhow::Result<Self> {
        for (name, urls) in
            [("relayers", &self.relayers), ("read-apis", &self.read_apis), ("documents", &self.documents)]
        {
            // They are published: a name and a password in one would be, too.
            let is_public = |url: &Url| {
                matches!(url.scheme(), "http" | "https")
                    && url.username().is_empty()
                    && url.password().is_none()
            };
            ensure!(urls.iter().all(is_public), "discovery.{name}: must be http or https, without a user");
        }
        Ok(self)
    }

    /// The document.
    pub fn document(&self, chain: u64, registry: Address) -> String {
        let Self { forwarder, relayers, read_apis, documents } = self;
        let mut document = json!({
            "version": 1, "chainId": chain, "registry": registry.to_checksum(None), "relayers": relayers,
            "readApis": read_apis, "documents": documents,
        });
        if let (Some(members), Some(forwarder)) = (document.as_object_mut(), forwarder) {
            members.insert("forwarder".to_owned(), json!(forwarder.to_checksum(None)));
        }
        document.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_names_what_is_configured_and_no_url_with_a_user() {
        let text = "relayers = [\"https://relay.example\"]\nread-apis = [\"https://kya.example\"]\n";
        let settings: DiscoverySettings = toml::from_str(text).unwrap();
        let document = settings.clone().validated().unwrap().document(8453, Address::repeat_byte(0xab));
        let document: serde_json::Value = serde_json::from_str(&document).unwrap();
        let expected = json!({
            "version": 1, "chainId": 8453, "registry": Address::repeat_byte(0xab).to_checksum(None),
            "relayers": ["https://relay.example/"], "readApis": ["https://kya.example/"], "documents": [],
        });
        assert_eq!(document, expected);
        let forwarder = Some(Address::repeat_byte(1));
        let document = DiscoverySettings { forwarder, ..settings }.document(1, Address::ZERO);
        assert!(document.contains("\"forwarder\":\"0x0101"), "{document}");
        for wrong in ["relayers = [\"ftp://a/\"]", "documents = [\"https://user@a/\"]"] {
            let settings: DiscoverySettings = toml::from_str(wrong).unwrap();
            assert!(settings.validated().unwrap_err().to_string().starts_with("discovery."), "{wrong}");
        }
    }
}
