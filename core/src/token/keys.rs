//! The keys of an issuer, as a JSON Web Key Set (RFC 7517): the first one signs, all are published.
//!
//! This allows rotation without a refused token: a new key is published beside the present one, then takes
//! its place at the head, and the former one stays until the tokens that it signed have ended.

use core::fmt;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde::{Deserialize, Serialize};

use crate::eth::json;

/// The most keys of a set.
const KEYS: usize = 8;
/// The longest id of a key.
const KID_BYTES: usize = 64;

/// A set of P-256 keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeySet(Vec<Key>);

/// A P-256 key.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// Its id.
    pub kid: String,
    /// The public point's x coordinate, big-endian.
    pub x: [u8; 32],
    /// The public point's y coordinate, big-endian.
    pub y: [u8; 32],
    secret: Option<[u8; 32]>,
}

/// A key that signs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PrivateKey<'a> {
    key: &'a Key,
    secret: &'a [u8; 32],
}

/// The reason that a text is not a set of keys. It quotes nothing of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not JSON of a set's form.
    #[error(
        "must be a JWK set of P-256 keys: {{\"keys\":[{{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":...,\"x\":...,\"y\":...,\"d\":...}}]}}"
    )]
    Form,
    /// No key, or too many.
    #[error("must have 1 to {KEYS} keys")]
    Count,
    /// The key at this place, from 1 on, breaks a rule.
    #[error("key {0}: {1}")]
    Key(usize, &'static str),
}

#[derive(Serialize, Deserialize)]
struct Jwk<'a> {
    kty: &'a str,
    crv: &'a str,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    kid: Option<&'a str>,
    x: String,
    y: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    d: Option<String>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    alg: Option<&'a str>,
    #[serde(borrow, rename = "use", skip_serializing_if = "Option::is_none")]
    usage: Option<&'a str>,
}

#[derive(Serialize, Deserialize)]
struct Jwks<'a> {
    #[serde(borrow)]
    keys: Vec<Jwk<'a>>,
}

impl KeySet {
    /// Parses a set. Members of keys beyond those of RFC 7518, section 6.2, are ignored, except an `alg` or
    /// `use` that does not fit ES256.
    ///
    /// # Errors
    ///
    /// [`KeyError`].
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let Jwks { keys } = serde_json::from_str(text).map_err(|_| KeyError::Form)?;
        if keys.is_empty() || keys.len() > KEYS {
            return Err(KeyError::Count);
        }
        let mut set = Self(Vec::with_capacity(keys.len()));
        for (place, jwk) in keys.into_iter().enumerate() {
            let error = |rule| KeyError::Key(place + 1, rule);
            let key = Key::of(jwk).map_err(error)?;
            if set.find(&key.kid).is_some() {
                return Err(error("has the kid of another key"));
            }
            set.0.push(key);
        }
        Ok(set)
    }

    /// Returns the key that signs: the first one.
    ///
    /// # Errors
    ///
    /// [`KeyError::Key`] if it has no private part.
    pub fn signer(&self) -> Result<PrivateKey<'_>, KeyError> {
        let first = self.0.first().ok_or(KeyError::Count)?;
        let secret = first.secret.as_ref().ok_or(KeyError::Key(1, "signs, so that it needs its d"))?;
        Ok(PrivateKey { key: first, secret })
    }

    /// Returns the key with this id.
    pub fn find(&self, kid: &str) -> Option<&Key> {
        self.0.iter().find(|key| key.kid == kid)
    }

    /// Returns the set to publish: JSON, without private parts.
    pub fn published(&self) -> String {
        let keys = self.0.iter().map(|key| key.jwk(None)).collect();
        json::text(&Jwks { keys }, 512)
    }
}

impl Key {
    fn of(jwk: Jwk<'_>) -> Result<Self, &'static str> {
        if (jwk.kty, jwk.crv) != ("EC", "P-256") {
            return Err("must have kty EC and crv P-256");
        }
        if jwk.alg.is_some_and(|alg| alg != "ES256") || jwk.usage.is_some_and(|usage| usage != "sig") {
            return Err("must have alg ES256 and use sig, or none");
        }
        let is_plain = |kid: &&str| {
            (1..=KID_BYTES).contains(&kid.len())
                && kid.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte))
        };
        let kid = jwk.kid.filter(is_plain).ok_or("must have a kid of 1 to 64 letters, digits, -_.:")?;
        let scalar = |text: &str| Base64UrlUnpadded::decode_vec(text).ok()?.try_into().ok();
        let coordinate = |text: &str| scalar(text).ok_or("x and y must be 32 bytes of base64url");
        let (x, y) = (coordinate(&jwk.x)?, coordinate(&jwk.y)?);
        let secret = match jwk.d {
            None => None,
            Some(d) => Some(scalar(&d).ok_or("d must be 32 bytes of base64url")?),
        };
        Ok(Self { kid: kid.to_owned(), x, y, secret })
    }

    /// Returns the key as a JWK, with this private part.
    fn jwk(&self, secret: Option<&[u8; 32]>) -> Jwk<'_> {
        Jwk {
            kty: "EC",
            crv: "P-256",
            kid: Some(&self.kid),
            x: Base64UrlUnpadded::encode_string(&self.x),
            y: Base64UrlUnpadded::encode_string(&self.y),
            d: secret.map(|secret| Base64UrlUnpadded::encode_string(secret)),
            alg: Some("ES256"),
            usage: Some("sig"),
        }
    }

    /// Returns the public point, uncompressed (SEC 1, section 2.3.3).
    pub fn point(&self) -> [u8; 65] {
        let mut point = [4; 65];
        for (place, byte) in point.iter_mut().skip(1).zip(self.x.iter().chain(&self.y)) {
            *place = *byte;
        }
        point
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("kid", &self.kid).finish_non_exhaustive()
    }
}

impl<'a> PrivateKey<'a> {
    /// Returns the public part.
    pub const fn key(self) -> &'a Key {
        self.key
    }

    /// Returns the scalar, big-endian.
    pub const fn secret(self) -> &'a [u8; 32] {
        self.secret
    }

    /// Returns the key as a JWK, private part included, for signing libraries.
    pub fn jwk(self) -> String {
        json::text(&self.key.jwk(Some(self.secret)), 256)
    }
}

impl fmt::Debug for PrivateKey<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7515, appendix A.3.
    const X: &str = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
    const Y: &str = "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0";
    const D: &str = "jpsQnnGQmL-YBIffH1136cspYG6-0iY7X1fCE9-E9LI";

    fn key(kid: &str, d: &str) -> String {
        let d = if d.is_empty() { String::new() } else { format!(r#","d":"{d}""#) };
        format!(r#"{{"kty":"EC","crv":"P-256","kid":"{kid}","x":"{X}","y":"{Y}"{d},"ext":true}}"#)
    }

    fn set(keys: &[String]) -> String {
        format!(r#"{{"keys":[{}]}}"#, keys.join(","))
    }

    #[test]
    fn the_first_key_signs_and_all_are_published_without_their_private_parts() {
        let keys = KeySet::parse(&set(&[key("now", D), key("next", D), key("former", "")])).unwrap();
        let signer = keys.signer().unwrap();
        assert_eq!(signer.key().kid, "now");
        assert_eq!(Base64UrlUnpadded::encode_string(signer.secret()), D);
        assert!(signer.jwk().contains(&format!(r#""d":"{D}""#)));
        let published = keys.published();
        let one = |kid| key(kid, "").replace(r#""ext":true"#, r#""alg":"ES256","use":"sig""#);
        assert_eq!(published, set(&["now", "next", "former"].map(one)));
        let read = KeySet::parse(&published).unwrap();
        assert_eq!(read.signer(), Err(KeyError::Key(1, "signs, so that it needs its d")));
        let point = read.find("next").unwrap().point();
        assert_eq!((point[0], &point[1..33], &point[33..]), (4, &signer.key().x[..], &signer.key().y[..]));
        assert_eq!(format!("{signer:?}"), r#"Key { kid: "now", .. }"#, "no private part is printed");
    }

    #[test]
    fn a_wrong_set_is_named_with_its_place_and_rule() {
        let good = key("now", D);
        let changed = |from: &str, to: &str| set(&[good.clone(), key("next", D).replacen(from, to, 1)]);
        for (text, error) in [
            ("", "must be a JWK set"),
            (&good, "must be a JWK set"),
            ("{\"keys\":[]}", "must have 1 to 8 keys"),
            (&set(&vec![good.clone(); 9]), "must have 1 to 8 keys"),
            (&changed("\"EC\"", "\"RSA\""), "key 2: must have kty EC"),
            (&changed("P-256", "P-384"), "key 2: must have kty EC and crv P-256"),
            (&changed("\"ext\":true", "\"alg\":\"none\""), "key 2: must have alg ES256"),
            (&changed("\"ext\":true", "\"use\":\"enc\""), "key 2: must have alg ES256 and use sig"),
            (&changed("\"next\"", "\"\""), "key 2: must have a kid"),
            (&changed("\"next\"", "\"a b\""), "key 2: must have a kid"),
            (&changed("\"kid\":\"next\",", ""), "key 2: must have a kid"),
            (&changed("\"next\"", "\"now\""), "key 2: has the kid of another key"),
            (&changed(X, "AAAA"), "key 2: x and y must be 32 bytes"),
            (&changed(Y, &format!("{Y}=")), "key 2: x and y must be 32 bytes"),
            (&changed(D, "AAAA"), "key 2: d must be 32 bytes"),
        ] {
            let message = KeySet::parse(text).unwrap_err().to_string();
            assert!(message.starts_with(error) && !message.contains(D), "{message}");
        }
    }
}
