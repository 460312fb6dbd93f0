//! Which signer the environment names.

use std::{env, time::Duration};

use alloy::primitives::Address;
use reqwest::Url;
use thiserror::Error;

use super::{Key, SignerError, TxSigner, remote::RemoteSigner};
use crate::keys::{self, KeyError};

const KMS: &str = "RELAYER_KEY_KMS";
const REMOTE: &str = "RELAYER_KEY_REMOTE";
const REMOTE_ADDRESS: &str = "RELAYER_KEY_REMOTE_ADDRESS";

/// Why there is no signer. Says which variable, never what is in it.
#[derive(Debug, Error)]
pub enum SignerSourceError {
    /// A key in this process.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// More than one source is set.
    #[error("more than one key: set only one of {}, {KMS}, {REMOTE}", keys::SOURCES.join(", "))]
    Ambiguous,
    /// Not a URL.
    #[error("{REMOTE} is no http or https URL")]
    Url,
    /// No address, or a wrong one.
    #[error("{REMOTE} needs {REMOTE_ADDRESS}: the address that it signs for")]
    Address,
    /// No HTTP client.
    #[error("no HTTP client can be built for {REMOTE}")]
    Client,
    /// KMS does not have it.
    #[error("{KMS}: {0}")]
    Kms(SignerError),
    /// Built without KMS.
    #[error("{KMS}: this program was built without the feature `kms`")]
    NoKms,
}

/// The signers that the environment names: at least one, and each account once. A signature may take
/// `time_limit`.
///
/// # Errors
/// [`SignerSourceError`], free of secrets.
pub async fn from_env(time_limit: Duration) -> Result<Vec<TxSigner>, SignerSourceError> {
    let var = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let here = keys::SOURCES.iter().filter(|name| var(name).is_some()).count();
    match (here, var(KMS), var(REMOTE)) {
        (_, None, None) => Ok(keys::from_env()?.into_iter().map(TxSigner::from).collect()),
        (0, Some(key_id), None) => Ok(vec![kms(key_id, time_limit).await?]),
        (0, None, Some(url)) => Ok(vec![remote(&url, var(REMOTE_ADDRESS), time_limit)?]),
        _ => Err(SignerSourceError::Ambiguous),
    }
}

fn remote(url: &str, address: Option<String>, time_limit: Duration) -> Result<TxSigner, SignerSourceError> {
    let url = url.parse().ok().filter(|url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host());
    let url = url.ok_or(SignerSourceError::Url)?;
    let address: Option<Address> = address.and_then(|text| text.parse().ok());
    let address = address.ok_or(SignerSourceError::Address)?;
    let signer = RemoteSigner::new(url).map_err(|_| SignerSourceError::Client)?;
    Ok(TxSigner { address, key: Key::Remote(signer), time_limit })
}

#[cfg(feature = "kms")]
async fn kms(key_id: String, time_limit: Duration) -> Result<TxSigner, SignerSourceError> {
    use futures_util::FutureExt as _;
    // Boxed: AWS's futures are nested deeper than the compiler looks.
    let opening = super::kms::KmsSigner::new(key_id).boxed();
    let opened = tokio::time::timeout(time_limit, opening).await;
    let signer = opened.unwrap_or(Err(SignerError::Slow(time_limit))).map_err(SignerSourceError::Kms)?;
    Ok(TxSigner { address: signer.address(), key: Key::Kms(signer), time_limit })
}

#[cfg(not(feature = "kms"))]
async fn kms(_key_id: String, _time_limit: Duration) -> Result<TxSigner, SignerSourceError> {
    Err(SignerSourceError::NoKms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_signer_needs_a_url_and_an_address_and_shows_neither_path_nor_query() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let address = Some("0xD9d5aF831afD4Df6ce4d6f8063cBDf32Cb9A17a0".to_owned());
        let limit = Duration::from_secs(1);
        let signer = remote("https://signer.example:9000/t0ken?k=t0ken", address.clone(), limit).unwrap();
        let shown = format!("{signer} {signer:?}");
        assert!(shown.contains("https://signer.example:9000") && !shown.contains("t0ken"), "{shown}");
        for bad in ["ftp://a/", "t0ken"] {
            let error = remote(bad, address.clone(), limit).unwrap_err();
            assert!(matches!(error, SignerSourceError::Url) && !error.to_string().contains("t0ken"));
        }
        for none in [None, Some("0x12".to_owned())] {
            assert!(matches!(remote("https://a/", none, limit), Err(SignerSourceError::Address)));
        }
    }
}
