//! Static pages: the API's description, the catalog that links to it, the card of its MCP server and the
//! catalog of that (SEP-2127), and an introduction for language models. They need neither settings nor the
//! chain, so they are served during any outage, and are not rate-limited. Beside them is the document of the
//! registry, which is made of the settings.
//!
//! Their texts are assets beside the explorer's: as parts of the Worker they would make it start more slowly.

use edge_shared::binding;
use registry_core::{
    api::document::entity_tag, api::error::Error, eth::timestamp::Timestamp, registry::well_known::WellKnown,
};
use worker::{Env, Result as WorkerResult, js_sys::Reflect, web_sys::RequestInit};

use crate::{
    http::{Content, JSON_TYPE, Lifetime, Target},
    settings::Settings,
};

/// The TTL of a page in seconds: pages change with deployments alone.
const MAX_AGE: u32 = 3_600;

/// The binding of the assets in `wrangler.toml`, which also names those that are served through the Worker
/// alone.
const BINDING: &str = "ASSETS";

/// A page, and its address.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) path: &'static str,
    media_type: &'static str,
    /// The asset with its text, in which `{origin}` stands for the scheme and host of the request, `{host}`
    /// for the name of the host, and `{version}` for this service's version.
    asset: &'static str,
    /// The `Link` header.
    links: Option<&'static str>,
}

static PAGES: [Page; 5] = [
    Page { path: "/openapi.json", media_type: "application/json", asset: "/openapi.json", links: None },
    Page {
        path: "/.well-known/api-catalog",
        media_type: "application/linkset+json; profile=\"https://www.rfc-editor.org/info/rfc9727\"",
        asset: "/api-catalog.json",
        links: Some("</.well-known/api-catalog>; rel=\"api-catalog\", </openapi.json>; rel=\"service-desc\""),
    },
    Page {
        path: "/.well-known/ai-catalog.json",
        media_type: "application/ai-catalog+json",
        asset: "/ai-catalog.json",
        links: None,
    },
    Page {
        path: "/mcp/server-card",
        media_type: "application/mcp-server-card+json",
        asset: "/server-card.json",
        links: None,
    },
    Page { path: "/llms.txt", media_type: "text/plain; charset=utf-8", asset: "/llms.txt", links: None },
];

/// Returns the page at this path.
pub(crate) fn find(path: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.path == path)
}

impl Page {
    /// Returns the page, with the request's origin. Errors: [`Error::Misconfigured`] where the Worker was
    /// deployed without it.
    pub(crate) async fn content(&self, env: &Env, target: &Target, now: Timestamp) -> Result<Content, Error> {
        let text = match read(env, target.origin(), self.asset).await {
            Ok(Some(text)) => text,
            _ => return Err(Error::Misconfigured(format!("{BINDING} has no {}", self.asset))),
        };
        let (origin, version) = (target.origin(), env!("CARGO_PKG_VERSION"));
        let host = origin.rsplit("//").next().unwrap_or_default();
        let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
        let host = host.rsplit_once(':').filter(|(_, port)| is_port(port)).map_or(host, |(host, _)| host);
        let values = [("{origin}", origin), ("{host}", host), ("{version}", version)];
        let text = values.into_iter().fold(text, |text, (name, value)| text.replace(name, value));
        // The tag is that of the text as sent: it changes with the version.
        let etag = entity_tag(&text);
        Ok(Content::new(
            self.media_type,
            text.into_bytes(),
            etag,
            self.links.map(str::to_owned),
            now,
            Lifetime::Seconds(MAX_AGE),
        ))
    }
}

/// Returns the discovery document of the registry, which is at [`well_known::PATH`]. Errors:
/// [`Error::NotFound`] where the chain, which the document has to name, is not configured.
pub(crate) fn registry(env: &Env, target: &Target, now: Timestamp) -> Result<Content, Error> {
    let settings = Settings::of(env)?;
    let document = settings.well_known.as_ref().ok_or(Error::NotFound)?;
    let issuer = settings.signing.as_ref().map(|signing| signing.issuer.as_str());
    let read_apis = vec![issuer.unwrap_or_else(|| target.origin()).to_owned()];
    let text = WellKnown { read_apis, ..document.clone() }.json();
    let etag = entity_tag(&text);
    Ok(Content::new(JSON_TYPE, text.into_bytes(), etag, None, now, Lifetime::Seconds(MAX_AGE)))
}

/// Reads an asset's text; `None` where there is no such asset.
async fn read(env: &Env, origin: &str, asset: &str) -> WorkerResult<Option<String>> {
    let assets = Reflect::get(env, &BINDING.into())?;
    let response = binding::fetch(&assets, &format!("{origin}{asset}"), &RequestInit::new()).await?;
    if response.ok() { binding::text(&response).await.map(Some) } else { Ok(None) }
}
