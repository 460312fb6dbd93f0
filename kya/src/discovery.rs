//! Discovery of a service's registry: the document at `/.well-known/agent-registry`, found from any of the
//! service's URLs or from its refusal.

use host_kit::native::read_body;
use registry_core::{
    eth::redact::public_origin,
    registry::well_known::{self, WellKnown},
};
use reqwest::Url;
use serde_json::Value;

use crate::{
    chain::client,
    report::{CommandFailure, Result, may_pass},
};

/// The largest document that is read, in bytes.
const LARGEST: usize = 256 << 10;

/// Fetches the document of the service at this URL: the one that its answer names as `discovery`, or else the
/// well-known one. Errors: there is none, or it cannot be read.
pub async fn find(url: &Url) -> Result<WellKnown> {
    let (_, answer) = get(url).await?;
    let named = answer.get("discovery").and_then(Value::as_str).unwrap_or(well_known::PATH);
    let place =
        url.join(named).ok().filter(|place| place.scheme() == url.scheme() || place.scheme() == "https");
    let place = place.ok_or_else(|| {
        CommandFailure::refused(format!("{} names no discovery document's URL", public_origin(url.as_str())))
    })?;
    let (status, document) = get(&place).await?;
    if may_pass(status) {
        return Err(CommandFailure::try_again(format!("{} answers {status}", shown(&place))));
    }
    let document: WellKnown = serde_json::from_value(document).map_err(|_| {
        CommandFailure::refused(format!("no discovery document at {} (HTTP {status})", shown(&place)))
    })?;
    match document.version {
        1 => Ok(document),
        version => {
            let place = shown(&place);
            Err(CommandFailure::refused(format!("the document at {place} has the unknown version {version}")))
        }
    }
}

/// Returns a URL without its query and its user, which may be secret.
fn shown(url: &Url) -> String {
    format!("{}{}", public_origin(url.as_str()), url.path())
}

/// Asks a read API, at this block where one is given; `None` where it has no such agent. The path is below
/// `/api/v1`, with which the API's URL may end. Errors: there is no answer, or it is not a read API's.
pub async fn api(base: &Url, path: &str, block: Option<u64>) -> Result<Option<Value>> {
    let mut url = below(base, path);
    if let Some(block) = block {
        url.query_pairs_mut().append_pair("block", &block.to_string());
    }
    let (status, answer) = get(&url).await?;
    let error = answer.get("error").and_then(Value::as_str);
    match status {
        200 if answer.is_object() => Ok(Some(answer)),
        // Any other 404 says nothing about an agent.
        404 if error.is_some_and(|error| error.starts_with("Agent not found")) => Ok(None),
        404 | 200 => {
            Err(CommandFailure::refused(format!("no read API answers at {} (HTTP {status})", shown(&url))))
        }
        _ => {
            let why = error.unwrap_or_default();
            Err(CommandFailure::try_again(format!("the read API answers {status}: {why}")))
        }
    }
}

fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    let prefix = base.path().trim_end_matches('/').trim_end_matches("/api/v1");
    url.set_path(&format!("{prefix}/api/v1/{path}"));
    url
}

/// Fetches a URL: the status and the JSON of the answer, `null` where its body is no JSON.
async fn get(url: &Url) -> Result<(u16, Value)> {
    let silent = |_| CommandFailure::try_again(format!("{} does not answer", public_origin(url.as_str())));
    let request = client()?.get(url.clone()).header("accept", "application/json");
    let response = request.send().await.map_err(silent)?;
    let status = response.status().as_u16();
    let body = read_body(response, LARGEST).await.map_err(silent)?.unwrap_or_default();
    Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_api_is_asked_below_the_path_of_its_url() {
        for (base, expected) in [
            ("https://api.example", "https://api.example/api/v1/agent/7"),
            ("https://api.example/", "https://api.example/api/v1/agent/7"),
            ("https://api.example/api/v1", "https://api.example/api/v1/agent/7"),
            ("https://example/registry/", "https://example/registry/api/v1/agent/7"),
            ("https://example/registry/api/v1/", "https://example/registry/api/v1/agent/7"),
            ("https://api.example/?token=a", "https://api.example/api/v1/agent/7?token=a"),
        ] {
            assert_eq!(below(&base.parse().unwrap(), "agent/7").as_str(), expected);
        }
        let url = "https://user:pass@api.example/a/b?token=a".parse().unwrap();
        assert_eq!(shown(&url), "https://api.example/a/b");
    }
}
