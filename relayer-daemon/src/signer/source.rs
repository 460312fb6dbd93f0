//! The signers that the environment names: keys in this process, or signers outside it, one for each account.
//!
//! A signer outside is not called here, with one exception: a single KMS key without an address is asked for
//! its public key. The checks before the start find out whether the others sign, and a fault of one stops its
//! account alone.

use std::{collections::BTreeSet, env, time::Duration};

use alloy::primitives::Address;
use reqwest::Url;
use thiserror::Error;

use super::{KeyBackend, SignerError, TxSigner, remote::JsonRpcSigner};
use crate::keys::{self, KeyLoadError};

const KMS: &str = "RELAYER_KEY_KMS";
const KMS_ADDRESS: &str = "RELAYER_KEY_KMS_ADDRESS";
const REMOTE: &str = "RELAYER_KEY_REMOTE";
const REMOTE_ADDRESS: &str = "RELAYER_KEY_REMOTE_ADDRESS";

/// The reason why there is no signer. Names the variable, never its content; an address is no secret.
#[derive(Debug, Error)]
pub enum SignerSourceError {
    /// The key in this process cannot be loaded.
    #[error(transparent)]
    Key(#[from] KeyLoadError),
    /// There is a key in this process, and a signer outside it.
    #[error("more than one key: set only one of {}, or {KMS} and {REMOTE}", keys::SOURCES.join(", "))]
    Ambiguous,
    /// An entry is no URL.
    #[error("{REMOTE}: entry {0} is no http or https URL (its text is not shown: it may hold a token)")]
    Url(usize),
    /// An entry is no address.
    #[error("{REMOTE} needs {REMOTE_ADDRESS}: the addresses that it signs for; entry {0} is none")]
    Address(usize),
    /// The URLs are neither one for all nor as many as the addresses.
    #[error(
        "{REMOTE} has {0} URLs for the {1} addresses of {REMOTE_ADDRESS}: set one for all, or one for each"
    )]
    Urls(usize, usize),
    /// No HTTP client can be built.
    #[error("no HTTP client can be built for {REMOTE}")]
    Client,
    /// KMS did not give the key's account.
    #[error("{KMS}: {0}")]
    Kms(SignerError),
    /// An entry of KMS's addresses is no address.
    #[error("{KMS_ADDRESS}: entry {0} is no address")]
    KmsAddress(usize),
    /// KMS has not as many addresses as keys: the accounts are unknown while KMS does not answer.
    #[error(
        "{KMS} has {0} keys and {KMS_ADDRESS} {1} addresses: with several accounts each key needs its own"
    )]
    KmsAddresses(usize, usize),
    /// An account has two signers.
    #[error("{0} has two signers: name each account once")]
    Twice(Address),
    /// The program was built without KMS.
    #[error("{KMS}: this program was built without the feature `kms`")]
    NoKms,
}

/// Returns the signers that the environment names: at least one, and each account once. A signature may take
/// `time_limit`.
///
/// # Errors
/// [`SignerSourceError`], free of secrets.
pub async fn from_env(time_limit: Duration) -> Result<Vec<TxSigner>, SignerSourceError> {
    let var = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let here = keys::SOURCES.iter().any(|name| var(name).is_some());
    let outside = [KMS, REMOTE].map(var);
    if outside.iter().all(Option::is_none) {
        return Ok(keys::from_env()?.into_iter().map(TxSigner::from).collect());
    }
    if here {
        return Err(SignerSourceError::Ambiguous);
    }
    let [key_ids, urls] = outside;
    let mut signers = match urls {
        Some(urls) => remote(&urls, &var(REMOTE_ADDRESS).unwrap_or_default(), time_limit)?,
        None => Vec::new(),
    };
    match (key_ids, var(KMS_ADDRESS)) {
        (None, _) => {}
        (Some(key_id), None) if signers.is_empty() && !key_id.contains(',') => {
            signers.push(opened(&key_id, time_limit).await?);
        }
        (Some(key_ids), addresses) => {
            signers.extend(kms(&key_ids, &addresses.unwrap_or_default(), time_limit)?);
        }
    }
    let mut known = BTreeSet::new();
    match signers.iter().map(TxSigner::address).find(|address| !known.insert(*address)) {
        Some(twice) => Err(SignerSourceError::Twice(twice)),
        None => Ok(signers),
    }
}

/// Returns the entries of a list, each with its position from 1 on.
fn entries(list: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(list.split(',').map(str::trim))
}

/// Parses the addresses of a list; the error is the position of an entry that is none.
fn addresses(list: &str) -> Result<Vec<Address>, usize> {
    entries(list).map(|(position, text)| text.parse().map_err(|_| position)).collect()
}

fn remote(urls: &str, accounts: &str, time_limit: Duration) -> Result<Vec<TxSigner>, SignerSourceError> {
    let url = |(position, text): (usize, &str)| {
        let url: Option<Url> = text.parse().ok();
        url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
            .ok_or(SignerSourceError::Url(position))
    };
    let urls: Vec<Url> = entries(urls).map(url).collect::<Result<_, _>>()?;
    let accounts = addresses(accounts).map_err(SignerSourceError::Address)?;
    if urls.len() != 1 && urls.len() != accounts.len() {
        return Err(SignerSourceError::Urls(urls.len(), accounts.len()));
    }
    let signer = |(address, url): (Address, &Url)| {
        let signer = JsonRpcSigner::new(url.clone()).map_err(|_| SignerSourceError::Client)?;
        Ok(TxSigner { address, key: KeyBackend::Remote(signer), time_limit })
    };
    accounts.into_iter().zip(urls.iter().cycle()).map(signer).collect()
}

/// Returns the signers of keys in KMS with their accounts: KMS is asked for them before they first sign.
#[cfg(feature = "kms")]
fn kms(key_ids: &str, accounts: &str, time_limit: Duration) -> Result<Vec<TxSigner>, SignerSourceError> {
    let key_ids: Vec<&str> = entries(key_ids).map(|(_, key_id)| key_id).collect();
    let known = if accounts.is_empty() { 0 } else { entries(accounts).count() };
    if known != key_ids.len() {
        return Err(SignerSourceError::KmsAddresses(key_ids.len(), known));
    }
    let accounts = addresses(accounts).map_err(SignerSourceError::KmsAddress)?;
    let key = |(address, key_id)| TxSigner {
        address,
        key: KeyBackend::Kms(super::kms::KmsSigner::new(key_id)),
        time_limit,
    };
    Ok(accounts.into_iter().zip(key_ids).map(key).collect())
}

/// Opens a single key, and reads its account from KMS.
#[cfg(feature = "kms")]
async fn opened(key_id: &str, time_limit: Duration) -> Result<TxSigner, SignerSourceError> {
    let signer = super::kms::KmsSigner::new(key_id);
    let opened = tokio::time::timeout(time_limit, signer.open()).await;
    let address = opened.unwrap_or(Err(SignerError::Slow(time_limit))).map_err(SignerSourceError::Kms)?;
    Ok(TxSigner { address, key: KeyBackend::Kms(signer), time_limit })
}

#[cfg(not(feature = "kms"))]
fn kms(_key_ids: &str, _accounts: &str, _time_limit: Duration) -> Result<Vec<TxSigner>, SignerSourceError> {
    Err(SignerSourceError::NoKms)
}

#[cfg(not(feature = "kms"))]
async fn opened(_key_id: &str, _time_limit: Duration) -> Result<TxSigner, SignerSourceError> {
    Err(SignerSourceError::NoKms)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: &str = "0xD9d5aF831afD4Df6ce4d6f8063cBDf32Cb9A17a0";
    const BOB: &str = "0x00000000000000000000000000000000000000b0";
    const LIMIT: Duration = Duration::from_secs(1);

    #[test]
    fn remote_signers_need_urls_and_addresses_and_show_neither_path_nor_query() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let signer = remote("https://signer.example:9000/t0ken?k=t0ken", ALICE, LIMIT).unwrap().remove(0);
        let shown = format!("{signer} {signer:?}");
        assert!(shown.contains("https://signer.example:9000") && !shown.contains("t0ken"), "{shown}");
        for bad in ["ftp://a/", "t0ken", "https://a/,t0ken"] {
            let error = remote(bad, ALICE, LIMIT).unwrap_err();
            assert!(matches!(error, SignerSourceError::Url(_)) && !error.to_string().contains("t0ken"));
        }
        for (none, position) in [("", 1), ("0x12", 1), (&*format!("{ALICE},0x12"), 2)] {
            let error = remote("https://a/", none, LIMIT).unwrap_err();
            assert!(matches!(error, SignerSourceError::Address(found) if found == position), "{error}");
        }
        let both = format!("{ALICE}, {BOB}");
        let labels = |urls| -> Vec<String> {
            remote(urls, &both, LIMIT).unwrap().iter().map(ToString::to_string).collect()
        };
        assert!(labels("https://a/").iter().all(|label| label.ends_with("https://a")));
        let each = labels("https://a/, https://b/");
        assert!(each[0].contains(ALICE) && each[0].ends_with("https://a") && each[1].ends_with("https://b"));
        for urls in ["https://a/,https://b/,https://c/", "https://a/,https://b/"] {
            let accounts = if urls.ends_with("c/") { both.as_str() } else { ALICE };
            assert!(matches!(remote(urls, accounts, LIMIT), Err(SignerSourceError::Urls(..))));
        }
    }

    #[cfg(feature = "kms")]
    #[test]
    fn several_keys_of_kms_need_their_addresses() {
        assert_eq!(kms("one, alias/two", &format!("{ALICE},{BOB}"), LIMIT).unwrap().len(), 2);
        for (accounts, found) in [("", 0), (ALICE, 1)] {
            let error = kms("one,two", accounts, LIMIT).unwrap_err();
            assert!(matches!(error, SignerSourceError::KmsAddresses(2, count) if count == found), "{error}");
        }
        let error = kms("one,two", &format!("{ALICE},0x12"), LIMIT).unwrap_err();
        assert!(matches!(error, SignerSourceError::KmsAddress(2)), "{error}");
    }
}
