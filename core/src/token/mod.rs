//! Verdict tokens: signed statements about a wallet, as JSON Web Tokens (RFC 7519) in the compact form of
//! JSON Web Signatures (RFC 7515), with ES256 (RFC 7518, section 3.4).
//!
//! ```text
//! Stated, Terms --> VerdictClaims --> signing_input --> the host's signature --> compact
//! ```
//!
//! The host has the clock and makes the signature: WebCrypto in a Worker, a library in a daemon. This module
//! defines the signed bytes, writes and reads tokens, and publishes the keys.
//!
//! A token is a statement about a wallet, not a credential: it can be copied, and says nothing about the
//! party that presents it.

mod claims;
mod jws;
mod keys;

pub use claims::{Audience, Stated, StatedAt, Terms, VerdictClaims};
pub use jws::{Jws, JwsError, TYPE, compact, signing_input};
pub use keys::{Key, KeyError, KeySet, PrivateKey};
