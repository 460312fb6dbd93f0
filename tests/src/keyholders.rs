//! Holders of the relayer's key outside its process: a stand-in for AWS KMS (moto), and a remote signer. Both
//! come from PyPI.

use alloy::hex;
use alloy::primitives::{Address, keccak256};
use alloy::signers::local::PrivateKeySigner;
use anyhow::{Context as _, Result, ensure};
use base64ct::{Base64, Encoding as _};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::{PATIENCE, Process, Spawn, eventually, free_port};
use crate::{http, python, repo};

/// Length of a secp256k1 public key, x and y, at the end of its SubjectPublicKeyInfo.
const POINT: usize = 64;
const REGION: &str = "eu-central-1";

/// moto's KMS with one key.
#[derive(Debug)]
pub struct Kms {
    process: Process,
    url: String,
    key_id: String,
    /// Account of the key.
    pub address: Address,
}

impl Kms {
    pub async fn start() -> Result<Self> {
        let python = python::programs("moto").await?.join("python");
        let script = repo::root().join("tests/moto/server.py");
        let port = free_port()?.to_string();
        let process = Spawn::new("moto", python).arg(script).arg(&port).start()?;
        let url = format!("http://127.0.0.1:{port}");
        let kind = json!({ "KeyUsage": "SIGN_VERIFY", "KeySpec": "ECC_SECG_P256K1" });
        let made = async || call(&url, "CreateKey", &kind).await.ok();
        let made = eventually("listening", PATIENCE, made).await?;
        let key_id = made["KeyMetadata"]["KeyId"].as_str().context("no key")?.to_owned();
        let public = call(&url, "GetPublicKey", &json!({ "KeyId": key_id })).await?;
        let public = Base64::decode_vec(public["PublicKey"].as_str().unwrap_or_default());
        let public = public.ok().context("no public key")?;
        let point = public.last_chunk::<POINT>().context("no point")?;
        Ok(Self { process, url, key_id, address: Address::from_slice(&keccak256(point)[12..]) })
    }

    /// Returns the environment variables of a program that uses this key.
    pub fn vars(&self) -> [(&'static str, &str); 5] {
        [
            ("RELAYER_KEY_KMS", &self.key_id),
            ("AWS_ENDPOINT_URL_KMS", &self.url),
            ("AWS_REGION", REGION),
            ("AWS_ACCESS_KEY_ID", "testing"),
            ("AWS_SECRET_ACCESS_KEY", "testing"),
        ]
    }

    /// Stops the KMS process, which then answers nothing, or lets it continue.
    pub fn pause(&mut self, paused: bool) -> Result<()> {
        self.process.signal(if paused { Signal::STOP } else { Signal::CONT })
    }

    pub async fn forget_keys(&self) -> Result<()> {
        let reset = format!("{}/moto-api/reset", self.url);
        http::client(PATIENCE).post(reset).send().await?.error_for_status().map(drop).map_err(Into::into)
    }
}

/// Calls KMS. moto finds the service by the credential scope, and does not check the signature.
async fn call(url: &str, action: &str, body: &Value) -> Result<Value> {
    let scope = format!(
        "AWS4-HMAC-SHA256 Credential=testing/20260101/{REGION}/kms/aws4_request, SignedHeaders=host, Signature=0"
    );
    let request = http::client(PATIENCE)
        .post(url)
        .header("authorization", scope)
        .header("content-type", "application/x-amz-json-1.1")
        .header("x-amz-target", format!("TrentService.{action}"));
    let answer = request.body(body.to_string()).send().await?;
    let (status, text) = (answer.status(), answer.text().await?);
    ensure!(status.is_success(), "{action}: {status}: {text}");
    Ok(serde_json::from_str(&text)?)
}

/// A signer that speaks `eth_signTransaction`: `tests/signers/remote_signer.py`.
#[derive(Debug)]
pub struct RemoteSignerProcess {
    _process: Process,
    url: String,
}

impl RemoteSignerProcess {
    /// Starts the signer with a key, and another key that it signs with when it misbehaves.
    pub async fn start(key: &PrivateKeySigner, other: &PrivateKeySigner) -> Result<Self> {
        let python = python::programs("signers").await?.join("python");
        let keys = [key, other].map(|key| hex::encode_prefixed(key.to_bytes()));
        let script = repo::root().join("tests/signers/remote_signer.py");
        let mut process = Spawn::new("remote signer", python).arg(script).args(&keys).start()?;
        let url = process.announced("remote signer listening on ", PATIENCE).await?;
        Ok(Self { _process: process, url })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// Sets one of the modes of misbehaviour that the script lists.
    pub async fn mode(&self, word: &'static str) -> Result<()> {
        let answer = http::client(PATIENCE).post(format!("{}/mode", self.url)).body(word).send().await?;
        answer.error_for_status().map(drop).map_err(Into::into)
    }
}
