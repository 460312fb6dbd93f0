//! Pages that are the same for everybody: the API's description, where to find it, and an introduction for language models.
//! They need neither settings nor a chain, so they are there on the worst of days, and cost a client nothing.

use std::sync::OnceLock;

use registry_core::{response::entity_tag, timestamp::Timestamp};

use crate::http::{Content, Target};

/// How long a page may be kept, in seconds: they change with deployments alone.
const KEEP_FOR: u32 = 3_600;

/// A page, and where it is.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) path: &'static str,
    media_type: &'static str,
    /// `{origin}` stands for the scheme and host it is asked at.
    text: &'static str,
    /// The `Link` header.
    links: Option<&'static str>,
    /// The entity tag, once somebody asked.
    tag: OnceLock<String>,
}

static PAGES: [Page; 3] = [
    Page {
        path: "/openapi.json",
        media_type: "application/json",
        text: include_str!(concat!(env!("OUT_DIR"), "/openapi.json")),
        links: None,
        tag: OnceLock::new(),
    },
    Page {
        path: "/.well-known/api-catalog",
        media_type: "application/linkset+json; profile=\"https://www.rfc-editor.org/info/rfc9727\"",
        text: include_str!("api-catalog.json"),
        links: Some("</.well-known/api-catalog>; rel=\"api-catalog\", </openapi.json>; rel=\"service-desc\""),
        tag: OnceLock::new(),
    },
    Page {
        path: "/llms.txt",
        media_type: "text/plain; charset=utf-8",
        text: include_str!("llms.txt"),
        links: None,
        tag: OnceLock::new(),
    },
];

/// The page at this path.
pub(crate) fn find(path: &str) -> Option<&'static Page> {
    PAGES.iter().find(|page| page.path == path)
}

impl Page {
    /// The page, as asked for at this origin.
    pub(crate) fn content(&self, target: &Target, now: Timestamp) -> Content {
        let body = self.text.replace("{origin}", target.origin()).into_bytes();
        let etag = self.tag.get_or_init(|| entity_tag(self.text)).clone();
        Content::new(self.media_type, body, etag, self.links.map(str::to_owned), now, KEEP_FOR)
    }
}
