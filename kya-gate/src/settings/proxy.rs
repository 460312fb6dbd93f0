//! `[proxy]`: the proxy's networks, and its way to pass on the original request.

use std::net::IpAddr;

use anyhow::{Context as _, bail, ensure};
use host_kit::parse_network;
use ipnet::IpNet;
use serde::Deserialize;

/// The reverse proxy, and its way to pass on the original request.
#[derive(Debug, Clone)]
pub struct ProxySettings {
    /// The networks from which it asks.
    pub networks: Vec<IpNet>,
    /// The place of the original target.
    pub target: TargetSource,
    /// The header with the original method; the request's own method where there is none.
    pub method_header: Option<String>,
    /// The proxy's handling of the content.
    pub content: ContentSource,
}

/// The place of the original target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetSource {
    /// The path, behind the policy: Envoy.
    Path,
    /// This header: nginx, Caddy.
    Header(String),
}

/// The proxy's handling of the content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentSource {
    /// The proxy passes it on: Envoy with `with_request_body`.
    Passed,
    /// The proxy keeps it. This header says whether there is any: `0` means none. Where it is empty or
    /// missing, requests other than GET and HEAD count as requests with content.
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
    /// Returns the settings of a gate inside a service: target and content are the request's own.
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

/// Parses a header's name, and returns it in lower case.
fn header_name(field: &str, name: &str) -> anyhow::Result<String> {
    let name = hyper::header::HeaderName::from_bytes(name.as_bytes());
    Ok(name.with_context(|| format!("{field}: must be the name of a header"))?.as_str().to_owned())
}
