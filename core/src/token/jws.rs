//! The compact form of a JSON Web Signature (RFC 7515, section 7.1), written and read.

use std::borrow::Cow;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use serde::{Deserialize, Serialize};

use super::claims::VerdictClaims;
use crate::eth::json;

/// The `typ` of a verdict token, which keeps it from being taken for another kind (RFC 8725, section 3.11).
pub const TYPE: &str = "kya-verdict+jwt";
/// The only algorithm: ECDSA with P-256 and SHA-256.
const ALGORITHM: &str = "ES256";
/// The longest token that is read, in bytes. Tokens from here have less than 1 KiB.
const LONGEST: usize = 16 * 1024;
/// Length of an ES256 signature: `r` and `s`.
const SIGNATURE_BYTES: usize = 64;

/// The protected header.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header<'a> {
    alg: Cow<'a, str>,
    kid: Cow<'a, str>,
    typ: Cow<'a, str>,
}

/// Returns the text that a key signs: header and claims, each as base64url, joined by a dot.
pub fn signing_input(kid: &str, claims: &VerdictClaims) -> String {
    let part = |text: String| Base64UrlUnpadded::encode_string(text.as_bytes());
    let header = json::text(&Header { alg: ALGORITHM.into(), kid: kid.into(), typ: TYPE.into() }, 128);
    [part(header), part(json::text(claims, 512))].join(".")
}

/// Joins the signing input and the signature, 64 bytes of `r` and `s`, to a token.
pub fn compact(signing_input: &str, signature: &[u8]) -> String {
    [signing_input, &Base64UrlUnpadded::encode_string(signature)].join(".")
}

/// A parsed token. Its signature is not verified yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jws<'a> {
    /// The id of the key that signed.
    pub kid: String,
    /// The claims.
    pub claims: VerdictClaims,
    /// The text that was signed.
    pub signing_input: &'a str,
    /// The signature.
    pub signature: [u8; SIGNATURE_BYTES],
}

/// The reason that a text is not a verdict token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JwsError {
    /// Not three parts of base64url.
    #[error("is no JWS in compact form")]
    Form,
    /// The header is not `{"alg":"ES256","kid":...,"typ":"kya-verdict+jwt"}`.
    #[error("is no verdict token: its header must have alg ES256, typ kya-verdict+jwt and a kid")]
    Header,
    /// The claims are not those of a verdict.
    #[error("does not have the claims of a verdict")]
    Claims,
}

impl<'a> Jws<'a> {
    /// Parses a token.
    ///
    /// # Errors
    ///
    /// [`JwsError`]; a header with more than the three members gives [`JwsError::Header`].
    pub fn parse(token: &'a str) -> Result<Self, JwsError> {
        let (signing_input, signature) =
            token.rsplit_once('.').filter(|_| token.len() <= LONGEST).ok_or(JwsError::Form)?;
        let (header, claims) = signing_input.split_once('.').ok_or(JwsError::Form)?;
        let bytes = |part: &str| Base64UrlUnpadded::decode_vec(part).map_err(|_| JwsError::Form);
        let (header, claims) = (bytes(header)?, bytes(claims)?);
        let signature = bytes(signature)?.try_into().map_err(|_| JwsError::Form)?;
        let header: Header<'_> = serde_json::from_slice(&header).map_err(|_| JwsError::Header)?;
        if header.alg != ALGORITHM || header.typ != TYPE {
            return Err(JwsError::Header);
        }
        let claims = serde_json::from_slice(&claims).map_err(|_| JwsError::Claims)?;
        Ok(Self { kid: header.kid.into_owned(), claims, signing_input, signature })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> VerdictClaims {
        let claims = r#"{"iss":"i","sub":"eip155:1:0xab","iat":1,"exp":2,"decision":"provision","reasons":[],"asOf":{"blockNumber":1}}"#;
        serde_json::from_str(claims).unwrap()
    }

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let input = signing_input("2026-11", &claims());
        // {"alg":"ES256","kid":"2026-11","typ":"kya-verdict+jwt"}
        let header = "eyJhbGciOiJFUzI1NiIsImtpZCI6IjIwMjYtMTEiLCJ0eXAiOiJreWEtdmVyZGljdCtqd3QifQ";
        assert!(input.starts_with(&format!("{header}.")), "{input}");
        let token = compact(&input, &[7; 64]);
        let read = Jws::parse(&token).unwrap();
        assert_eq!((read.kid.as_str(), &read.claims), ("2026-11", &claims()));
        assert_eq!((read.signing_input, read.signature), (input.as_str(), [7; 64]));
    }

    #[test]
    fn a_text_of_another_kind_is_no_token() {
        let encode = |text: &str| Base64UrlUnpadded::encode_string(text.as_bytes());
        let claims = json::text(&claims(), 0);
        let token = |header: &str, claims: &str, signature: &[u8]| {
            compact(&[encode(header), encode(claims)].join("."), signature)
        };
        let right = r#"{"alg":"ES256","kid":"a","typ":"kya-verdict+jwt"}"#;
        assert!(Jws::parse(&token(right, &claims, &[7; 64])).is_ok());
        for header in [
            r#"{"alg":"none","kid":"a","typ":"kya-verdict+jwt"}"#,
            r#"{"alg":"ES256","kid":"a","typ":"JWT"}"#,
            r#"{"alg":"ES256","typ":"kya-verdict+jwt"}"#,
            r#"{"alg":"ES256","kid":"a","typ":"kya-verdict+jwt","crit":["b64"]}"#,
            "[]",
        ] {
            assert_eq!(Jws::parse(&token(header, &claims, &[7; 64])), Err(JwsError::Header), "{header}");
        }
        assert_eq!(Jws::parse(&token(right, "{}", &[7; 64])), Err(JwsError::Claims));
        assert_eq!(Jws::parse(&token(right, &claims, &[7; 63])), Err(JwsError::Form));
        for text in ["", ".", "..", "a.b", "a.b.c.d", "\u{e9}.a.b", &"a".repeat(20_000)] {
            assert_eq!(Jws::parse(text), Err(JwsError::Form), "{text}");
        }
    }
}
