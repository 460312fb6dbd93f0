//! Keys: in a private file, in an encrypted keystore, or behind a remote signer. Never on the command line.

use std::{env, path::PathBuf, time::Duration};

use alloy::{
    consensus::{SignableTransaction as _, TxEip1559, TxEnvelope},
    eips::eip2718::Decodable2718 as _,
    network::TxSignerSync as _,
    primitives::{Address, B256, Bytes, Signature, U64, U256, eip191_hash_message},
    signers::{SignerSync as _, local::PrivateKeySigner},
};
use clap::Args;
use host_kit::{
    keys::{open_keystore, read_key, secret_file},
    native::read_body,
};
use registry_core::eth::{address, redact::public_origin};
use reqwest::{Client, Url};
use serde_json::{Value, json};

use crate::{
    chain::{http_url, no_client},
    report::{CommandFailure, Exit, Result},
};

/// The largest answer of a remote signer, in bytes.
const LARGEST_ANSWER: usize = 1 << 20;
/// Timeout of a remote signer: people may have to confirm.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Source of the key.
#[derive(Clone, Debug, Default, Args)]
#[group(id = "key source", multiple = false)]
pub struct KeyArguments {
    /// The file with the private key in hexadecimal digits, of mode 600.
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// An encrypted keystore (Web3 secret storage, version 3).
    #[arg(long, value_name = "FILE", requires = "password_file")]
    pub keystore: Option<PathBuf>,
    /// A remote signer that speaks JSON-RPC, as Web3Signer does; its URL may be in KYA_REMOTE_SIGNER.
    #[arg(long, value_name = "URL", requires = "signer_address")]
    pub remote_signer: Option<Url>,
}

/// Details of the key's source.
#[derive(Clone, Debug, Default, Args)]
pub struct KeyDetails {
    /// The file with the keystore's password, of mode 600.
    #[arg(long, value_name = "FILE")]
    pub password_file: Option<PathBuf>,
    /// The address that the remote signer signs for.
    #[arg(long, value_name = "0x...", value_parser = address::parse)]
    pub signer_address: Option<Address>,
}

/// Options of the key.
#[derive(Clone, Debug, Default, Args)]
pub struct KeyOptions {
    #[command(flatten)]
    source: KeyArguments,
    #[command(flatten)]
    details: KeyDetails,
}

impl KeyOptions {
    /// Opens the signer that the options name. Errors: an option is missing or wrong, told without secrets.
    pub fn signer(&self) -> Result<Signer> {
        let failed = |error: host_kit::keys::KeyFileError| CommandFailure::refused(error.to_string());
        if let Some(file) = &self.source.key {
            return read_key(file).map(Signer::Local).map_err(failed);
        }
        if let Some(file) = &self.source.keystore {
            let password = self.details.password_file.as_deref();
            let password =
                password.ok_or_else(|| CommandFailure::usage("--keystore needs --password-file"))?;
            let password = secret_file(password).map_err(failed)?;
            return open_keystore(file, &password).map(Signer::Local).map_err(failed);
        }
        let missing = "no key: give --key FILE, --keystore FILE with --password-file, or --remote-signer URL";
        let environment = || env::var("KYA_REMOTE_SIGNER").ok().filter(|url| !url.is_empty());
        let url = self.source.remote_signer.as_ref().map(Url::to_string).or_else(environment);
        let url = url.ok_or_else(|| CommandFailure::usage(missing))?;
        // Not by the argument's parser: its error would quote the URL and its token.
        let url = http_url(&url)
            .map_err(|_| CommandFailure::usage("the remote signer's URL has to be one of http or https"))?;
        let address = self.details.signer_address;
        let address =
            address.ok_or_else(|| CommandFailure::usage("--remote-signer needs --signer-address"))?;
        // A proxy from the environment, or a redirect's target, would see all that is signed.
        let client = Client::builder()
            .connect_timeout(Duration::from_secs(5))
            .timeout(TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build();
        let client = client.map_err(|error| no_client(&error))?;
        Ok(Signer::Remote(RemoteKeySigner { client, url, address }))
    }
}

/// Signer of one account.
#[derive(Clone, Debug)]
pub enum Signer {
    /// Key in this process.
    Local(PrivateKeySigner),
    /// Signer outside this process.
    Remote(RemoteKeySigner),
}

/// A signer that speaks JSON-RPC.
#[derive(Clone)]
pub struct RemoteKeySigner {
    client: Client,
    /// Its text is never shown: it may hold a token.
    url: Url,
    address: Address,
}

impl std::fmt::Debug for RemoteKeySigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RemoteKeySigner({}, {})", self.address, public_origin(self.url.as_str()))
    }
}

impl Signer {
    /// Returns the account's address.
    pub const fn address(&self) -> Address {
        match self {
            Self::Local(key) => key.address(),
            Self::Remote(remote) => remote.address,
        }
    }

    /// Signs typed data of this digest (EIP-712): 65 bytes, `v` 27 or 28. Errors: there is no signature, or
    /// it is another account's.
    pub async fn typed_data(&self, typed: &str, digest: B256) -> Result<Bytes> {
        match self {
            Self::Local(key) => local(key, digest),
            Self::Remote(remote) => {
                let typed: Value = serde_json::from_str(typed).unwrap_or_default();
                let params = json!([remote.name(), typed]);
                // Web3Signer and geth have the first name, anvil, hardhat and wallets the second.
                match remote.signature("eth_signTypedData", params.clone(), digest).await {
                    Err(refused) if refused.exit == Exit::Refused => {
                        let signed = remote.signature("eth_signTypedData_v4", params, digest).await;
                        signed.map_err(|_| refused)
                    }
                    signed => signed,
                }
            }
        }
    }

    /// Signs a message (EIP-191). Errors: there is no signature, or it is another account's.
    pub async fn message(&self, message: &[u8]) -> Result<Bytes> {
        let digest = eip191_hash_message(message);
        match self {
            Self::Local(key) => local(key, digest),
            Self::Remote(remote) => {
                let params = json!([remote.name(), Bytes::copy_from_slice(message)]);
                remote.signature("eth_sign", params, digest).await
            }
        }
    }

    /// Signs a transaction. Errors: there is no signature, or it is another account's or another
    /// transaction's.
    pub async fn transaction(&self, transaction: &mut TxEip1559) -> Result<Signature> {
        match self {
            Self::Local(key) => key.sign_transaction_sync(transaction).map_err(unsigned),
            Self::Remote(remote) => remote.transaction(transaction).await,
        }
    }
}

fn local(key: &PrivateKeySigner, digest: B256) -> Result<Bytes> {
    Ok(key.sign_hash_sync(&digest).map_err(unsigned)?.as_bytes().into())
}

fn unsigned(error: alloy::signers::Error) -> CommandFailure {
    CommandFailure::refused(format!("nothing was signed: {error}"))
}

impl RemoteKeySigner {
    /// Returns the address with its checksum, which some signers insist on.
    fn name(&self) -> String {
        self.address.to_string()
    }

    async fn signature(&self, method: &str, params: Value, digest: B256) -> Result<Bytes> {
        let raw: Bytes = serde_json::from_value(self.ask(method, params).await?).unwrap_or_default();
        self.verified(Signature::from_raw(&raw).ok(), digest).map(|signature| signature.as_bytes().into())
    }

    /// Returns the account's own signature of the digest, with a low `s`. Errors: it is not the account's.
    fn verified(&self, signature: Option<Signature>, digest: B256) -> Result<Signature> {
        let signature = signature.map(|signature| signature.normalized_s());
        signature
            .filter(|it| it.recover_address_from_prehash(&digest).is_ok_and(|by| by == self.address))
            .ok_or_else(|| {
                CommandFailure::refused(format!("the remote signer did not sign this as {}", self.address))
            })
    }

    async fn transaction(&self, wanted: &TxEip1559) -> Result<Signature> {
        let call = json!({
            "type": "0x2", "from": self.name(), "to": wanted.to.to().map(ToString::to_string),
            "gas": U64::from(wanted.gas_limit), "maxFeePerGas": U256::from(wanted.max_fee_per_gas),
            "maxPriorityFeePerGas": U256::from(wanted.max_priority_fee_per_gas), "value": wanted.value,
            "nonce": U64::from(wanted.nonce), "data": wanted.input, "chainId": U64::from(wanted.chain_id),
        });
        // Web3Signer answers with the bytes, geth with an object that has them.
        let answer = self.ask("eth_signTransaction", json!([call])).await?;
        let raw = answer.get("raw").unwrap_or(&answer).clone();
        let raw: Bytes = serde_json::from_value(raw).unwrap_or_default();
        let signed = match TxEnvelope::decode_2718_exact(&raw) {
            Ok(TxEnvelope::Eip1559(signed)) if signed.tx() == wanted => Some(*signed.signature()),
            _ => None,
        };
        self.verified(signed, wanted.signature_hash())
    }

    async fn ask(&self, method: &str, params: Value) -> Result<Value> {
        let silent = |_| {
            let origin = public_origin(self.url.as_str());
            CommandFailure::try_again(format!("the remote signer {origin} does not answer"))
        };
        let question = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
        let request = self.client.post(self.url.clone()).header("content-type", "application/json");
        let response = request.body(question).send().await.map_err(silent)?;
        let body = read_body(response, LARGEST_ANSWER).await.map_err(silent)?.unwrap_or_default();
        let mut answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        match answer.get_mut("result").map(Value::take) {
            Some(result) if !result.is_null() => Ok(result),
            _ if answer.get("error").is_none() => {
                let origin = public_origin(self.url.as_str());
                Err(CommandFailure::try_again(format!(
                    "the remote signer {origin} gives no answer to {method}"
                )))
            }
            _ => {
                let message = answer.pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
                let message = message.replace(self.url.as_str(), "");
                let reason: String = message.chars().take(200).collect();
                Err(CommandFailure::refused(format!("the remote signer refused {method}: {reason}")))
            }
        }
    }
}
