//! HMAC signatures of webhooks, and hashes of API keys.
//!
//! A webhook's body is signed with HMAC-SHA256 over its timestamp, a dot and the body, as the header
//! `X-Relayer-Signature: t=1767225600,v1=<hex>` says. Secrets are read from private files, are compared in
//! constant time and have no `Debug` output.

use std::{fmt, path::Path};

use alloy::primitives::{
    B256,
    hex::{self, FromHex as _},
};
use ring::{digest, hmac};
use subtle::ConstantTimeEq as _;

use crate::keys::{self, KeyLoadError};

/// The header with the timestamp and the signature of a webhook, and of the answer to one.
pub const SIGNATURE: &str = "x-relayer-signature";
/// The shortest secret, bytes.
pub const SHORTEST_SECRET: usize = 16;
/// The prefix of a key's hash in the policy file.
const HASH_PREFIX: &str = "sha256:";
/// The prefix of an API key, by which scanners for leaked secrets can find it.
const KEY_PREFIX: &str = "rk_";

/// A secret that webhooks are signed with.
#[derive(Clone)]
pub struct WebhookSecret(hmac::Key);

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret")
    }
}

impl WebhookSecret {
    /// The secret in a private file; `None` if it is too short.
    ///
    /// # Errors
    /// [`KeyLoadError`]: the file cannot be read, or others can read it.
    pub fn from_file(path: &Path) -> Result<Option<Self>, KeyLoadError> {
        let text = keys::secret_file(path)?;
        Ok(Self::new(text.trim_end_matches(['\r', '\n']).as_bytes()))
    }

    /// The secret with these bytes; `None` if they are too few.
    pub fn new(secret: &[u8]) -> Option<Self> {
        (secret.len() >= SHORTEST_SECRET).then(|| Self(hmac::Key::new(hmac::HMAC_SHA256, secret)))
    }

    /// The header's value for a body that is sent at `timestamp`, unix seconds.
    pub fn header(&self, timestamp: u64, body: &[u8]) -> String {
        let tag = hmac::sign(&self.0, &message(timestamp, body));
        format!("t={timestamp},v1={}", hex::encode(tag))
    }

    /// Returns whether `header` is the one of this timestamp and body.
    pub fn verifies(&self, header: &str, timestamp: u64, body: &[u8]) -> bool {
        let tag =
            header.strip_prefix(&format!("t={timestamp},v1=")).and_then(|tag| <[u8; 32]>::from_hex(tag).ok());
        tag.is_some_and(|tag| hmac::verify(&self.0, &message(timestamp, body), &tag).is_ok())
    }
}

fn message(timestamp: u64, body: &[u8]) -> Vec<u8> {
    [timestamp.to_string().as_bytes(), b".", body].concat()
}

/// The SHA-256 hash of an API key. A key has 256 random bits, so a slow hash would add nothing.
#[derive(Clone, Copy)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// The hash of a key.
    pub fn of(key: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, key.as_bytes()).as_ref());
        Self(hash)
    }

    /// The hash that the policy file has as `sha256:` and 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        <[u8; 32]>::from_hex(text.strip_prefix(HASH_PREFIX)?).ok().map(Self)
    }

    /// Compares in constant time.
    pub fn matches(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HASH_PREFIX}{}", hex::encode(self.0))
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A new API key.
pub fn new_api_key() -> String {
    format!("{KEY_PREFIX}{}", hex::encode(B256::random()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_holds_for_its_timestamp_body_and_secret_only() {
        let secret = WebhookSecret::new(b"sixteen bytes or more").unwrap();
        let header = secret.header(1_767_225_600, b"{}");
        // By `printf '1767225600.{}' | openssl dgst -sha256 -hmac 'sixteen bytes or more'`.
        let tag = "9945188c508339e0fda008c30ad6b3410ba6ff7c58852b15af5da40e13766582";
        assert_eq!(header, format!("t=1767225600,v1={tag}"));
        assert!(secret.verifies(&header, 1_767_225_600, b"{}"));
        assert!(!secret.verifies(&header, 1_767_225_601, b"{}"));
        assert!(!secret.verifies(&header, 1_767_225_600, b"{ }"));
        assert!(!secret.verifies("t=1767225600,v1=00", 1_767_225_600, b"{}"));
        assert!(!secret.verifies("", 1_767_225_600, b"{}"));
        let other = WebhookSecret::new(b"another secret of some length").unwrap();
        assert!(!other.verifies(&header, 1_767_225_600, b"{}"));
        assert!(WebhookSecret::new(b"short").is_none());
        assert_eq!(format!("{secret:?}"), "WebhookSecret");
    }

    #[test]
    fn a_keys_hash_is_read_as_it_is_printed() {
        let key = new_api_key();
        assert!(key.starts_with(KEY_PREFIX) && key.len() == KEY_PREFIX.len() + 64 && key != new_api_key());
        let hash = KeyHash::of(&key);
        assert!(KeyHash::parse(&hash.to_string()).unwrap().matches(&hash));
        assert!(!KeyHash::of("rk_other").matches(&hash));
        // The hash of no bytes, by FIPS 180-4.
        assert_eq!(
            KeyHash::of("").to_string(),
            "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        for bad in
            ["", "sha256:", "sha256:00", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]
        {
            assert!(KeyHash::parse(bad).is_none(), "{bad}");
        }
    }
}
