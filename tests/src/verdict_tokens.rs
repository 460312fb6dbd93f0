//! Keys of a verdict issuer, and hand-signed tokens: valid ones, and ones that no verifier may accept.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use base64ct::{Base64UrlUnpadded, Encoding as _};
use registry_core::token::{KeySet, VerdictClaims, compact, signing_input};
use ring::hmac;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::daemon::write_private;
use crate::process::output;
use crate::repo;

/// Makes a new key by the command of `docs/signed-verdicts.md`, as a JWK with its private part.
pub async fn new_key() -> Result<Value> {
    let page = fs::read_to_string(repo::root().join("docs/signed-verdicts.md"))?;
    let (_, rest) = page.split_once("```sh\numask 077\nnode -e").context("a command that makes keys")?;
    let (command, _) = rest.split_once(" > keys.json\n```").context("a command that writes keys.json")?;
    let printed = output(Command::new("sh").args(["-c", &format!("node -e{command}")])).await?;
    let set: Value = serde_json::from_slice(&printed)?;
    Ok(set["keys"][0].clone())
}

pub fn key_set(keys: &[&Value]) -> String {
    json!({ "keys": keys }).to_string()
}

/// Writes or replaces a file of keys, atomically and readable by its owner alone.
pub fn key_file(file: &Path, keys: &str) -> Result<()> {
    let next = file.with_extension("next");
    write_private(&next, keys);
    Ok(fs::rename(next, file)?)
}

/// Returns the configuration table with which a gate signs by the keys of a file; it goes after the others.
pub fn signing(issuer: &str, keys: &Path) -> String {
    format!("\n[verdict]\nissuer = \"{issuer}\"\nkeys = \"{}\"\n", keys.display())
}

pub fn kid(key: &Value) -> String {
    key["kid"].as_str().expect("a key has an id").to_owned()
}

/// Signs a token with these claims by this key under this key id.
pub fn signed(key: &Value, kid: &str, claims: &VerdictClaims) -> Result<String> {
    let keys = KeySet::parse(&key_set(&[key]))?;
    let (signer, random) = (keys.signer()?, SystemRandom::new());
    let (secret, point) = (signer.secret(), signer.key().point());
    let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
    let pair = EcdsaKeyPair::from_private_key_and_public_key(algorithm, secret, &point, &random);
    let input = signing_input(kid, claims);
    let signature = pair.ok().and_then(|pair| pair.sign(&random, input.as_bytes()).ok());
    Ok(compact(&input, signature.context("a key that signs")?.as_ref()))
}

/// Makes a token of another algorithm: unsigned `none`, or HS256 with the public key as its secret.
pub fn of_algorithm(algorithm: &str, key: &Value, claims: &VerdictClaims) -> String {
    let part = |text: String| Base64UrlUnpadded::encode_string(text.as_bytes());
    let header = json!({ "alg": algorithm, "kid": key["kid"], "typ": "kya-verdict+jwt" });
    let claims = serde_json::to_string(claims).expect("claims are JSON");
    let input = [part(header.to_string()), part(claims)].join(".");
    let secret = hmac::Key::new(hmac::HMAC_SHA256, key["x"].as_str().unwrap_or_default().as_bytes());
    match algorithm {
        "none" => compact(&input, &[]),
        _ => compact(&input, hmac::sign(&secret, input.as_bytes()).as_ref()),
    }
}
