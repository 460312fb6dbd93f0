//! Asks a service behind the gate twice, with a signature and without one, and prints what became of it.
//!
//! `cargo run -p kya-gate --example request -- KEY_FILE CHAIN_ID URL`, where the file has the private key of an
//! agent's wallet in hex digits.

use std::fs;

use alloy_primitives::{Address, eip191_hash_message, hex};
use anyhow::{Context as _, Result};
use k256::ecdsa::SigningKey;
use registry_core::gate::{Account, Content, Origin, Request, SigningTerms, Unsigned};
use reqwest::Client;
use ring::rand::{SecureRandom as _, SystemRandom};
use url::{Position, Url};

const USAGE: &str = "usage: request KEY_FILE CHAIN_ID URL";

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [file, chain, url] = arguments.as_slice() else { anyhow::bail!(USAGE) };
    let key = fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?;
    let key = hex::decode(key.trim()).ok().and_then(|key| SigningKey::from_slice(&key).ok());
    let key = key.with_context(|| format!("{file} has no private key in hex digits"))?;
    let account = Account { chain: chain.parse()?, address: Address::from_private_key(&key) };
    let url: Url = url.parse()?;
    let headers = signed(&key, account, &url)?;
    // An error says that there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    println!("signed by {}: {}", account.address, outcome(&url, &headers).await?);
    println!("unsigned: {}", outcome(&url, &[]).await?);
    Ok(())
}

/// The headers that make a GET of this URL a signed one.
fn signed(key: &SigningKey, account: Account, url: &Url) -> Result<Vec<(&'static str, String)>> {
    let origin = Origin::parse(&url.origin().ascii_serialization()).context("a URL of http or https")?;
    let target = &url[Position::BeforePath..Position::AfterQuery];
    let request =
        Request { method: "GET", origin: &origin, target, fields: &[], content: Content::Whole(b"") };
    let mut nonce = [0; 16];
    SystemRandom::new().fill(&mut nonce).map_err(|_| anyhow::anyhow!("no random numbers"))?;
    let (nonce, created) = (hex::encode(nonce), kya_gate::http::now().seconds());
    let terms = SigningTerms { account, created, valid_seconds: 60, nonce: &nonce };
    let unsigned = Unsigned::new(&request, &terms).context("a request that can be signed")?;
    let hash = eip191_hash_message(unsigned.message());
    let (signature, id) = key.sign_prehash_recoverable(hash.as_slice())?;
    Ok(unsigned.headers(&[&signature.to_bytes()[..], &[27 + id.to_byte()]].concat()))
}

/// The status, and the code of a refusal.
async fn outcome(url: &Url, headers: &[(&'static str, String)]) -> Result<String> {
    let request = Client::builder().no_proxy().build()?.get(url.clone());
    let answer =
        headers.iter().fold(request, |request, (name, value)| request.header(*name, value)).send().await?;
    let status = answer.status().as_u16();
    let body: serde_json::Value = serde_json::from_slice(&answer.bytes().await?).unwrap_or_default();
    let reason = body.get("reason").and_then(|reason| reason.as_str()).unwrap_or_default();
    Ok(format!("{status} {reason}").trim_end().to_owned())
}
