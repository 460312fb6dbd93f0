//! The read API's client: manifests, and shards in bundles. No request depends on the wallets asked about.

use std::{io::Read as _, sync::Arc, time::Duration};

use flate2::read::GzDecoder;
use host_kit::native::read_body;
use registry_core::snapshot::{ShardEntry, SnapshotError, bundle_names};
use reqwest::{
    Client, Response,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, RETRY_AFTER},
    redirect::Policy,
};
use rustls::{ClientConfig, crypto::CryptoProvider};
use rustls_platform_verifier::BuilderVerifierExt;

use crate::error::Error;

/// Timeout of an answer.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The largest answer that is read, compressed or not: several times what the API sends.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// The path of the manifest.
pub(crate) const MANIFEST: &str = "/api/v1/snapshot";

/// Returns the path of several shards, in a form for [`registry_core::snapshot::read_bundle`].
pub(crate) fn bundle_path(entries: &[ShardEntry]) -> String {
    format!("{MANIFEST}/shards?names={}", bundle_names(entries))
}

/// Client of the API.
#[derive(Clone, Debug)]
pub(crate) struct ApiClient {
    client: Client,
    base: String,
}

/// An answer's bytes, and their number as sent over the network.
pub(crate) struct ApiResponse {
    pub(crate) bytes: Vec<u8>,
    pub(crate) sent: u64,
}

/// Builds a client that follows no redirect. TLS uses the crypto provider of the whole process, or else ring,
/// for this client alone.
pub(crate) fn client() -> Result<Client, Error> {
    let provider = CryptoProvider::get_default().cloned();
    let provider = provider.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()));
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(BuilderVerifierExt::with_platform_verifier)
        .map_err(|error| Error::Unreachable(error.to_string()))?
        .with_no_client_auth();
    let client = Client::builder().timeout(TIMEOUT).redirect(Policy::none()).tls_backend_preconfigured(tls);
    client.build().map_err(unreachable)
}

impl ApiClient {
    pub(crate) fn new(api: &str) -> Result<Self, Error> {
        if !api.starts_with("https://") && !api.starts_with("http://") {
            return Err(Error::Option("api must begin with https:// or http://"));
        }
        Ok(Self { client: client()?, base: api.trim_end_matches('/').to_owned() })
    }

    /// Fetches a path.
    pub(crate) async fn get(&self, path: &str) -> Result<ApiResponse, Error> {
        let request = self.client.get([&self.base, path].concat()).header(ACCEPT_ENCODING, "gzip");
        let response = request.send().await.map_err(unreachable)?;
        let status = response.status().as_u16();
        if status != 200 {
            return Err(Error::Refused { status, retry_after: retry_after(&response) });
        }
        let is_compressed = response.headers().get(CONTENT_ENCODING).is_some_and(|coding| coding == "gzip");
        let bytes = read_body(response, BYTES_MAX).await.map_err(unreachable)?;
        let bytes = bytes.ok_or(SnapshotError::Damaged)?;
        let sent = bytes.len() as u64;
        let bytes = if is_compressed { inflate(&bytes)? } else { bytes };
        Ok(ApiResponse { bytes, sent })
    }
}

fn inflate(bytes: &[u8]) -> Result<Vec<u8>, Error> {
    let mut inflated = Vec::new();
    let read = GzDecoder::new(bytes).take(BYTES_MAX as u64 + 1).read_to_end(&mut inflated);
    match read {
        Ok(length) if length <= BYTES_MAX => Ok(inflated),
        _ => Err(SnapshotError::Damaged.into()),
    }
}

fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Converts an error, without the URL, which may hold a key.
fn unreachable(error: reqwest::Error) -> Error {
    Error::Unreachable(error.without_url().to_string())
}
