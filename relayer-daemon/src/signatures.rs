//! HMAC signatures of webhooks, and hashes of API keys.
//!
//! A webhook's body is signed with HMAC-SHA256 over its timestamp, a dot and the body, as the header
//! `X-Relayer-Signature: t=1767225600,v1=<hex>` says. Events are also signed as Standard Webhooks asks, for
//! which receivers have libraries. While a secret is exchanged there are several: all of them sign, and any
//! of them verifies. Secrets are read from private files, are compared in constant time and have no `Debug`
//! output.

use std::{fmt, path::Path};

use alloy::primitives::{
    B256,
    hex::{self, FromHex as _},
};
use base64ct::{Base64, Encoding as _};
use ring::{digest, hmac};
use subtle::ConstantTimeEq as _;

use host_kit::keys::{KeyFileError, secret_file};

/// The header with the timestamp and the signature of a webhook, and of the answer to one.
pub const SIGNATURE: &str = "x-relayer-signature";
/// The shortest secret, bytes.
pub const SHORTEST_SECRET: usize = 16;
/// The prefix of a secret in base64, as Standard Webhooks writes it.
const STANDARD_PREFIX: &[u8] = b"whsec_";
/// The prefix of a key's hash in the policy file.
const HASH_PREFIX: &str = "sha256:";
/// The prefix of an API key, by which scanners for leaked secrets can find it.
const KEY_PREFIX: &str = "rk_";

/// Returns a hash to compare configurations by, in hex: half of SHA-256 of the parts, each with its length.
pub fn short_hash(parts: &[&[u8]]) -> String {
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in parts {
        hash.update(&(part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hex::encode(hash.finish().as_ref().get(..16).unwrap_or_default())
}

/// A secret that webhooks are signed with.
#[derive(Clone)]
pub struct WebhookSecret(hmac::Key);

impl fmt::Debug for WebhookSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebhookSecret")
    }
}

impl WebhookSecret {
    /// Reads the secret in a private file; `None` as for [`WebhookSecret::new`].
    ///
    /// # Errors
    /// [`KeyFileError`]: the file cannot be read, or others can read it.
    pub fn from_file(path: &Path) -> Result<Option<Self>, KeyFileError> {
        let text = secret_file(path)?;
        Ok(Self::new(text.trim_end_matches(['\r', '\n']).as_bytes()))
    }

    /// Creates the secret with these bytes, or those that `whsec_` and base64 stand for; `None` if they are
    /// too few, or what follows `whsec_` is no base64: the receiver would have another secret.
    pub fn new(secret: &[u8]) -> Option<Self> {
        let decode = |text: &[u8]| Base64::decode_vec(str::from_utf8(text.trim_ascii_end()).ok()?).ok();
        let secret = match secret.strip_prefix(STANDARD_PREFIX) {
            Some(text) => decode(text)?,
            None => secret.to_vec(),
        };
        (secret.len() >= SHORTEST_SECRET).then(|| Self(hmac::Key::new(hmac::HMAC_SHA256, &secret)))
    }
}

/// The secrets of one webhook.
#[derive(Debug, Clone)]
pub struct WebhookSecrets(pub Vec<WebhookSecret>);

impl WebhookSecrets {
    /// Returns tags that distinguish these secrets from others and do not reveal them.
    pub(crate) fn marks(&self) -> impl Iterator<Item = hmac::Tag> {
        self.0.iter().map(|secret| hmac::sign(&secret.0, b"policy"))
    }

    /// Returns the value of [`SIGNATURE`] for a body sent at `timestamp`, unix seconds: `v1` by each secret.
    pub fn header(&self, timestamp: u64, body: &[u8]) -> String {
        let message = message(timestamp, body);
        let tags =
            self.0.iter().map(|secret| format!(",v1={}", hex::encode(hmac::sign(&secret.0, &message))));
        format!("t={timestamp}{}", tags.collect::<String>())
    }

    /// Returns the value of `webhook-signature` (Standard Webhooks) for an event sent at `timestamp`.
    pub fn standard_header(&self, id: &str, timestamp: u64, body: &[u8]) -> String {
        let message = [id.as_bytes(), b".", &message(timestamp, body)].concat();
        let sign = |secret: &WebhookSecret| Base64::encode_string(hmac::sign(&secret.0, &message).as_ref());
        let tags: Vec<String> = self.0.iter().map(|secret| format!("v1,{}", sign(secret))).collect();
        tags.join(" ")
    }

    /// Returns whether `header` is one of this timestamp and body, by any of the secrets.
    pub fn verifies(&self, header: &str, timestamp: u64, body: &[u8]) -> bool {
        let message = message(timestamp, body);
        let tags = header.strip_prefix(&format!("t={timestamp},")).unwrap_or_default().split(',');
        let mut tags = tags.filter_map(|tag| <[u8; 32]>::from_hex(tag.strip_prefix("v1=")?).ok());
        tags.any(|tag| self.0.iter().any(|secret| hmac::verify(&secret.0, &message, &tag).is_ok()))
    }
}

fn message(timestamp: u64, body: &[u8]) -> Vec<u8> {
    [timestamp.to_string().as_bytes(), b".", body].concat()
}

/// The SHA-256 hash of an API key. A key has 256 random bits, so a slow hash would add nothing.
#[derive(Clone, Copy)]
pub struct KeyHash([u8; 32]);

impl KeyHash {
    /// Returns the hash of a key.
    pub fn of(key: &str) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(digest::digest(&digest::SHA256, key.as_bytes()).as_ref());
        Self(hash)
    }

    /// Parses a hash as the policy file has it: `sha256:` and 64 hexadecimal digits.
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

/// Generates an API key.
pub fn new_api_key() -> String {
    format!("{KEY_PREFIX}{}", hex::encode(B256::random()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_holds_for_its_timestamp_body_and_secret_only() {
        let one = |bytes: &[u8]| WebhookSecret::new(bytes).unwrap();
        let secret = WebhookSecrets(vec![one(b"sixteen bytes or more")]);
        let header = secret.header(1_767_225_600, b"{}");
        // By `printf '1767225600.{}' | openssl dgst -sha256 -hmac 'sixteen bytes or more'`.
        let tag = "9945188c508339e0fda008c30ad6b3410ba6ff7c58852b15af5da40e13766582";
        assert_eq!(header, format!("t=1767225600,v1={tag}"));
        assert!(secret.verifies(&header, 1_767_225_600, b"{}"));
        assert!(!secret.verifies(&header, 1_767_225_601, b"{}"));
        assert!(!secret.verifies(&header, 1_767_225_600, b"{ }"));
        assert!(!secret.verifies("t=1767225600,v1=00", 1_767_225_600, b"{}"));
        assert!(!secret.verifies("", 1_767_225_600, b"{}"));
        let other = WebhookSecrets(vec![one(b"another secret of some length")]);
        assert!(!other.verifies(&header, 1_767_225_600, b"{}"));
        assert!(WebhookSecret::new(b"short").is_none());
        assert_eq!(format!("{secret:?}"), "WebhookSecrets([WebhookSecret])");
        // While secrets are exchanged, either side may know one of the two alone.
        let both = WebhookSecrets(vec![other.0[0].clone(), secret.0[0].clone()]);
        let by_both = both.header(1_767_225_600, b"{}");
        for known in [&secret, &other, &both] {
            assert!(known.verifies(&by_both, 1_767_225_600, b"{}"));
            assert!(both.verifies(&known.header(1_767_225_600, b"{}"), 1_767_225_600, b"{}"));
        }
        // The example of Standard Webhooks.
        let standard = WebhookSecrets(vec![one(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")]);
        let body = br#"{"test": 2432232314}"#;
        let signature = standard.standard_header("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, body);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_in_base64_is_the_same_with_space_behind_it_and_refused_where_it_is_malformed() {
        let header = |secret: &str| {
            let secret = WebhookSecret::new(secret.as_bytes())?;
            Some(WebhookSecrets(vec![secret]).header(1_767_225_600, b"{}"))
        };
        let plain = header("old secret of 24 bytes!!").unwrap();
        for space in ["", " ", "\t", "\r\n"] {
            let same = format!("whsec_b2xkIHNlY3JldCBvZiAyNCBieXRlcyEh{space}");
            assert_eq!(header(&same).as_ref(), Some(&plain), "{same:?}");
        }
        for malformed in [
            "whsec_b2xkIHNlY3JldCBvZiAyNCBieXRlcyE",
            "whsec_b2xkIHNlY3JldCBvZiAyNCBi eXRlcyEh",
            "whsec_not-in-base64-at-all",
            "whsec_c2hvcnQ=",
        ] {
            assert_eq!(header(malformed), None, "{malformed}");
        }
        assert_ne!(header("old secret of 24 bytes!! "), Some(plain), "a space may end a plain secret");
    }

    #[test]
    fn a_keys_hash_is_read_as_it_is_printed() {
        let key = new_api_key();
        assert!(key.starts_with(KEY_PREFIX) && key.len() == KEY_PREFIX.len() + 64 && key != new_api_key());
        let hash = KeyHash::of(&key);
        assert!(KeyHash::parse(&hash.to_string()).unwrap().matches(&hash));
        assert!(!KeyHash::of("rk_other").matches(&hash));
        // The hash of no bytes, by FIPS 180-4.
        let digits = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(KeyHash::of("").to_string(), format!("sha256:{digits}"));
        for bad in ["", "sha256:", "sha256:00", digits] {
            assert!(KeyHash::parse(bad).is_none(), "{bad}");
        }
    }
}
