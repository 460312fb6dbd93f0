//! What a service says of its registry: the document at `/.well-known/agent-registry`, found from any of its
//! URLs or from its refusal.

use host_kit::native::read_body;
use registry_core::{
    eth::redact::public_origin,
    registry::well_known::{self, WellKnown},
};
use reqwest::Url;
use serde_json::Value;

use crate::{
    chain::client,
    report::{Failure, Result},
};

/// The largest document that is read, in bytes.
const LARGEST: usize = 256 << 10;

/// The document of the service at this URL: the one that its answer names as `discovery`, or else the
/// well-known one.
///
/// # Errors
/// There is none, or it cannot be read.
pub async fn find(url: &Url) -> Result<WellKnown> {
    let (_, answer) = get(url).await?;
    let named = answer.get("discovery").and_then(Value::as_str).unwrap_or(well_known::PATH);
    let place =
        url.join(named).ok().filter(|place| place.scheme() == url.scheme() || place.scheme() == "https");
    let place = place.ok_or_else(|| {
        Failure::refused(format!("{} names no discovery document's URL", public_origin(url.as_str())))
    })?;
    let (status, document) = get(&place).await?;
    let document: WellKnown = serde_json::from_value(document)
        .map_err(|_| Failure::refused(format!("no discovery document at {place} (HTTP {status})")))?;
    match document.version {
        1 => Ok(document),
        version => {
            Err(Failure::refused(format!("the document at {place} has the unknown version {version}")))
        }
    }
}

/// The answer of a read API below `/api/v1/`; `None` for what is not found.
///
/// # Errors
/// There is none.
pub async fn api(origin: &Url, path: &str) -> Result<Option<Value>> {
    let url = origin.join(&format!("/api/v1/{path}")).map_err(|_| Failure::refused("--api is no URL"))?;
    match get(&url).await? {
        (200, answer) => Ok(Some(answer)),
        (404, _) => Ok(None),
        (status, answer) => {
            let why = answer.get("error").and_then(Value::as_str).unwrap_or_default();
            Err(Failure::try_again(format!("the read API answers {status}: {why}")))
        }
    }
}

/// The status and the JSON of an answer; `null` where it is none.
async fn get(url: &Url) -> Result<(u16, Value)> {
    let silent = |_| Failure::try_again(format!("{} does not answer", public_origin(url.as_str())));
    let request = client()?.get(url.clone()).header("accept", "application/json");
    let response = request.send().await.map_err(silent)?;
    let status = response.status().as_u16();
    let body = read_body(response, LARGEST).await.map_err(silent)?.unwrap_or_default();
    Ok((status, serde_json::from_slice(&body).unwrap_or_default()))
}
