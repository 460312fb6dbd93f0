//! `[proxy]`: where it asks from, and how it says what it was asked.

use std::net::IpAddr;

use anyhow::{Context as _, bail, ensure};
use host_kit::parse_network;
use ipnet::IpNet;
use serde::Deserialize;

/// How the reverse proxy says what it was asked.
#[derive(Debug, Clone)]
pub struct ProxySettings {
    /// The networks that it asks from.
    pub networks: Vec<IpNet>,
    /// Where the original target is.
    pub target: TargetSource,
    /// The header with the original method; the request's own method where there is none.
    pub method_header: Option<String>,
    /// What the proxy does with the content.
    pub content: ContentSource,
}

/// Where the original target is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetSource {
    /// Behind the policy in the path: Envoy.
    Path,
    /// In this header: nginx, Caddy.
    Header(String),
}

/// What the proxy does with the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentSource {
    /// It passes it on: Envoy with `with_request_body`.
    Passed,
    /// It keeps it. This header says whether there is any: `0` means none. Where it is empty or missing,
    /// requests other than GET and HEAD count as ones with content.
    Withheld(Option<String>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct ProxyTable {
    networks: Option<Vec<String>>,
    target: String,
    method_header: Option<String>,
    #[serde(default)]
    content_passed: bool,
    content_header: Option<String>,
}

impl ProxySettings {
    /// Those of a gate inside a service, which no proxy stands in front of: the target and the content are
    /// the request's own.
    pub(super) fn embedded() -> Self {
        Self {
            networks: default_networks(),
            target: TargetSource::Path,
            method_header: None,
            content: ContentSource::Passed,
        }
    }
}

impl ProxyTable {
    pub(super) fn validated(self) -> anyhow::Result<ProxySettings> {
        let target = match self.target.as_str() {
            "path" => TargetSource::Path,
            header => TargetSource::Header(header_name("proxy.target", header)?),
        };
        let method_header =
            self.method_header.map(|name| header_name("proxy.method-header", &name)).transpose()?;
        if matches!(target, TargetSource::Header(_)) && method_header.is_none() {
            bail!("proxy.method-header: is needed where the target is in a header");
        }
        let content_header =
            self.content_header.map(|name| header_name("proxy.content-header", &name)).transpose()?;
        ensure!(
            !self.content_passed || content_header.is_none(),
            "proxy.content-header: means nothing where content-passed is true"
        );
        let networks = match self.networks {
            None => default_networks(),
            Some(networks) => {
                let parsed = networks.iter().map(|text| parse_network("proxy.networks", text));
                parsed.collect::<Result<_, _>>().map_err(anyhow::Error::msg)?
            }
        };
        ensure!(!networks.is_empty(), "proxy.networks: at least one is needed");
        let content =
            if self.content_passed { ContentSource::Passed } else { ContentSource::Withheld(content_header) };
        Ok(ProxySettings { networks, target, method_header, content })
    }
}

fn default_networks() -> Vec<IpNet> {
    vec![IpNet::from(IpAddr::from([127, 0, 0, 1]))]
}

/// A header's name in lower case.
fn header_name(field: &str, name: &str) -> anyhow::Result<String> {
    let name = hyper::header::HeaderName::from_bytes(name.as_bytes());
    Ok(name.with_context(|| format!("{field}: must be the name of a header"))?.as_str().to_owned())
}
