//! Where the relayer's key can be outside its process: a stand-in of AWS KMS (moto), and a remote signer.
//! Both come from PyPI.

use std::time::Duration;

use alloy::hex;
use alloy::primitives::{Address, keccak256};
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{Process, Spawn, eventually, free_port};
use crate::{http, python, repo};

/// How long a program may take to listen.
const START: Duration = Duration::from_secs(60);

/// The length of a secp256k1 public key at the end of its SubjectPublicKeyInfo: x and y.
const POINT: usize = 64;

/// moto's KMS with one key.
#[derive(Debug)]
pub struct Kms {
    process: Process,
    url: String,
    /// The key's id.
    pub key_id: String,
    /// The account of the key.
    pub address: Address,
}

impl Kms {
    /// Starts it and makes a key.
    pub async fn start() -> Result<Self> {
        let python = python::programs("moto").await?.join("python");
        let script = repo::root().join("tests/moto/server.py");
        let port = free_port()?.to_string();
        let process = Spawn::new("moto", python).arg(script).arg(&port).start()?;
        let url = format!("http://127.0.0.1:{port}");
        let made = eventually("listening", START, async || {
            call(&url, "CreateKey", &json!({ "KeyUsage": "SIGN_VERIFY", "KeySpec": "ECC_SECG_P256K1" }))
                .await
                .ok()
        })
        .await?;
        let key_id = made["KeyMetadata"]["KeyId"].as_str().context("no key")?.to_owned();
        let public = call(&url, "GetPublicKey", &json!({ "KeyId": key_id })).await?;
        let public = public["PublicKey"].as_str().context("no public key")?;
        let spki = alloy::primitives::Bytes::from(decode_base64(public)?);
        let point = spki.len().checked_sub(POINT).map(|start| &spki[start..]).context("no point")?;
        let address = Address::from_slice(&keccak256(point)[12..]);
        Ok(Self { process, url, key_id, address })
    }

    /// The environment of a program that uses it.
    pub fn vars(&self) -> [(&'static str, String); 5] {
        [
            ("RELAYER_KEY_KMS", self.key_id.clone()),
            ("AWS_ENDPOINT_URL_KMS", self.url.clone()),
            ("AWS_REGION", REGION.to_owned()),
            ("AWS_ACCESS_KEY_ID", "testing".to_owned()),
            ("AWS_SECRET_ACCESS_KEY", "testing".to_owned()),
        ]
    }

    /// Pauses it, or lets it go on: it answers nothing meanwhile.
    pub fn pause(&mut self, paused: bool) -> Result<()> {
        self.process.signal(if paused { Signal::STOP } else { Signal::CONT })
    }

    /// Takes its keys away for good.
    pub async fn forget_keys(&self) -> Result<()> {
        let reset = format!("{}/moto-api/reset", self.url);
        http::client(START).post(reset).send().await?.error_for_status().map(drop).map_err(Into::into)
    }
}

const REGION: &str = "eu-central-1";

/// A call of KMS. moto does not check the signature, and finds the service by it.
async fn call(url: &str, action: &str, body: &Value) -> Result<Value> {
    let scope = format!(
        "AWS4-HMAC-SHA256 Credential=testing/20260101/{REGION}/kms/aws4_request, SignedHeaders=host, Signature=0"
    );
    let request = http::client(START)
        .post(url)
        .header("authorization", scope)
        .header("content-type", "application/x-amz-json-1.1")
        .header("x-amz-target", format!("TrentService.{action}"))
        .body(body.to_string());
    let answer = request.send().await?;
    let (status, text) = (answer.status(), answer.text().await?);
    ensure!(status.is_success(), "{action}: {status}: {text}");
    if text.is_empty() { Ok(Value::Null) } else { Ok(serde_json::from_str(&text)?) }
}

fn decode_base64(text: &str) -> Result<Vec<u8>> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for character in text.bytes().filter(|byte| *byte != b'=') {
        let digit = ALPHABET.iter().position(|known| *known == character).context("no base64")?;
        (bits, count) = (bits << 6 | u32::try_from(digit)?, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Ok(bytes)
}

/// A signer that speaks `eth_signTransaction`: `tests/signers/remote_signer.py`.
#[derive(Debug)]
pub struct RemoteSigner {
    _process: Process,
    url: String,
}

impl RemoteSigner {
    /// Starts it with a key, and another one to sign with when it misbehaves.
    pub async fn start(key: &PrivateKeySigner, other: &PrivateKeySigner) -> Result<Self> {
        let python = python::programs("signers").await?.join("python");
        let keys = [key, other].map(|key| hex::encode_prefixed(key.to_bytes()));
        let script = repo::root().join("tests/signers/remote_signer.py");
        let mut process = Spawn::new("remote signer", python).arg(script).args(&keys).start()?;
        let url = process.announced("remote signer listening on ", START).await?;
        Ok(Self { _process: process, url })
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Makes it misbehave, in one of the ways that the script lists.
    pub async fn mode(&self, word: &'static str) -> Result<()> {
        let answer = http::client(START).post(format!("{}/mode", self.url)).body(word).send().await?;
        answer.error_for_status().map(drop).map_err(Into::into)
    }
}
