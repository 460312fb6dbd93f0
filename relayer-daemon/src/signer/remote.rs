//! A remote signer that speaks JSON-RPC's `eth_signTransaction`, as Web3Signer does.

use std::sync::Arc;

use alloy::{
    consensus::{TxEip1559, TxEnvelope},
    eips::eip2718::Decodable2718 as _,
    primitives::{Address, Bytes, Signature, U64, U256},
};
use host_kit::native::read_body;
use registry_core::eth::redact::public_origin;
use reqwest::{Client, Url, redirect};
use serde::Deserialize;
use serde_json::{Value, json};

use super::SignerError;

/// The longest reason of a refusal that is kept, characters.
const LONGEST_REASON: usize = 200;
/// The largest answer, bytes: a transaction of a request's size, in hexadecimal digits, several times over.
const LARGEST_ANSWER: usize = 1024 * 1024;

#[derive(Clone)]
pub(super) struct JsonRpcSigner {
    client: Client,
    /// Its text is never shown: it may hold a token.
    url: Arc<Url>,
}

#[derive(Deserialize)]
struct SignTransactionResponse {
    #[serde(default)]
    result: Option<Signed1559>,
    #[serde(default)]
    error: Option<SignerErrorObject>,
}

/// Web3Signer answers with the bytes, geth with an object that has them.
#[derive(Deserialize)]
#[serde(untagged)]
enum Signed1559 {
    Bytes(Bytes),
    Object { raw: Bytes },
}

#[derive(Deserialize)]
struct SignerErrorObject {
    #[serde(default)]
    message: String,
}

impl JsonRpcSigner {
    pub(super) fn new(url: Url) -> Result<Self, reqwest::Error> {
        // A proxy from the environment, or a redirect's target, would see every transaction.
        let client = Client::builder().redirect(redirect::Policy::none()).no_proxy().build()?;
        Ok(Self { client, url: Arc::new(url) })
    }

    /// Returns its scheme, host and port.
    pub(super) fn label(&self) -> String {
        public_origin(self.url.as_str())
    }

    pub(super) async fn sign(
        &self,
        from: Address,
        transaction: &TxEip1559,
    ) -> Result<Signature, SignerError> {
        let question = json!({
            "jsonrpc": "2.0", "id": 1, "method": "eth_signTransaction", "params": [call(from, transaction)],
        });
        let answer: SignTransactionResponse = serde_json::from_slice(&self.post(&question).await?)
            .map_err(|_| SignerError::Malformed("no JSON-RPC answer"))?;
        if let Some(SignerErrorObject { message }) = answer.error {
            // A signer's message may quote its own address, with its path.
            let message = message.replace(self.url.as_str(), &self.label());
            let reason = message.chars().filter(|character| !character.is_control()).take(LONGEST_REASON);
            return Err(SignerError::Refused(reason.collect()));
        }
        let raw = match answer.result {
            Some(Signed1559::Bytes(raw) | Signed1559::Object { raw }) => raw,
            None => return Err(SignerError::Malformed("neither result nor error")),
        };
        let signed = TxEnvelope::decode_2718_exact(&raw)
            .map_err(|_| SignerError::Malformed("no signed transaction"))?;
        match signed {
            TxEnvelope::Eip1559(signed) if signed.tx() == transaction => Ok(*signed.signature()),
            _ => Err(SignerError::AnotherTransaction),
        }
    }

    async fn post(&self, question: &Value) -> Result<Vec<u8>, SignerError> {
        let unreachable = |_: reqwest::Error| SignerError::Unreachable;
        let request = self.client.post(Url::clone(&self.url)).header("content-type", "application/json");
        let response = request.body(question.to_string()).send().await.map_err(unreachable)?;
        let status = response.status();
        let body = read_body(response, LARGEST_ANSWER).await.map_err(unreachable)?;
        let body = body.ok_or(SignerError::Malformed("too large"))?;
        // An error of JSON-RPC may come with any status.
        let is_refusal = || {
            serde_json::from_slice::<SignTransactionResponse>(&body)
                .is_ok_and(|answer| answer.error.is_some())
        };
        if !status.is_success() && !is_refusal() {
            return Err(SignerError::Refused(format!("status {status}")));
        }
        Ok(body)
    }
}

/// Returns the transaction as `eth_signTransaction` takes it.
fn call(from: Address, transaction: &TxEip1559) -> Value {
    json!({
        "type": "0x2",
        // With checksums, which some signers insist on.
        "from": from.to_string(),
        "to": transaction.to.to().map(ToString::to_string),
        "gas": U64::from(transaction.gas_limit),
        "maxFeePerGas": U256::from(transaction.max_fee_per_gas),
        "maxPriorityFeePerGas": U256::from(transaction.max_priority_fee_per_gas),
        "value": transaction.value,
        "nonce": U64::from(transaction.nonce),
        "data": transaction.input,
        "chainId": U64::from(transaction.chain_id),
    })
}
