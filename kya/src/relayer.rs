//! The gasless relayer's HTTP interface, as a client sees it.

use std::{fmt, time::Duration};

use alloy::primitives::{Address, B256};
use host_kit::native::read_body;
use registry_core::eth::redact::public_origin;
use reqwest::{
    Client, Method, RequestBuilder, Url,
    header::{HeaderValue, RETRY_AFTER},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    chain::client,
    report::{Failure, Result, may_pass},
};

/// The largest answer that is read, in bytes.
const LARGEST_ANSWER: usize = 1 << 20;

/// The environment variable with the key that a relayer has given: it does not belong on a command line.
pub const KEY_VARIABLE: &str = "KYA_RELAYER_KEY";

/// A relayer.
#[derive(Clone)]
pub struct Relayer {
    client: Client,
    url: String,
    key: Option<String>,
}

impl fmt::Debug for Relayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relayer").field("url", &public_origin(&self.url)).finish_non_exhaustive()
    }
}

/// What a relayer works for.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The chain's id.
    pub chain: u64,
    /// The forwarder, the contract of the EIP-712 domain.
    pub forwarder: Address,
    /// The registry.
    pub registry: Address,
    /// The most gas of an inner call.
    pub max_gas: u64,
}

/// What became of a relay.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Relay {
    /// `pending`, `executed`, `reverted` or `dropped`.
    pub state: String,
    /// The transaction.
    pub tx_hash: Option<B256>,
    /// Its block.
    pub block_number: Option<u64>,
    /// `latest`, `safe` or `finalized`.
    pub finality: Option<String>,
    /// Blocks from its own to the newest.
    #[serde(default)]
    pub confirmations: u64,
    /// The agent that was registered.
    pub agent_id: Option<u64>,
    /// Why it was not executed.
    pub error: Option<String>,
    /// The stable name of that.
    pub code: Option<String>,
}

/// An answer that is no success.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The stable name.
    pub code: String,
    /// In words for people.
    pub error: String,
    /// `Retry-After`.
    pub retry_after: Option<Duration>,
}

impl Refusal {
    /// As a failure: one that a later request may not meet is to be tried again.
    pub fn failure(&self) -> Failure {
        let Self { status, code, error, retry_after } = self;
        let text = format!("the relayer refused: {error} ({code}, HTTP {status})");
        match may_pass(*status) {
            true => Failure { retry_after: *retry_after, ..Failure::try_again(text) },
            false => Failure::refused(text),
        }
    }
}

impl Relayer {
    /// The relayer at this URL, which is shown this API key, without the white space around it. Errors: no
    /// client can be built, or the key cannot be sent.
    pub fn new(url: &Url, key: Option<String>) -> Result<Self> {
        let key = key.map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
        if key.as_ref().is_some_and(|key| HeaderValue::from_str(key).is_err()) {
            return Err(Failure::usage(format!("{KEY_VARIABLE} has a character that no header may have")));
        }
        Ok(Self { client: client()?, url: url.as_str().trim_end_matches('/').to_owned(), key })
    }

    /// Its URL, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it works for. Errors: it does not say.
    pub async fn terms(&self) -> Result<Terms> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Limits {
            max_request_gas: u64,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Status {
            chain_id: u64,
            registry: Address,
            forwarder: Address,
            limits: Limits,
        }
        let Status { chain_id, registry, forwarder, limits } = self.get("/status").await?;
        Ok(Terms { chain: chain_id, forwarder, registry, max_gas: limits.max_request_gas })
    }

    /// The nonce to sign the next request with: relays in flight are counted. Errors: it does not say.
    pub async fn next_nonce(&self, signer: Address) -> Result<u64> {
        #[derive(Deserialize)]
        struct Nonce {
            next: u64,
        }
        let Nonce { next } = self.get(&format!("/nonce/{signer}")).await?;
        Ok(next)
    }

    /// What became of a relay, once it is this final or the relayer has waited as long as it does; `None`
    /// where it knows of none. Errors: it does not say.
    pub async fn relay(&self, id: B256, finality: &str) -> Result<Option<Relay>> {
        let path = format!("/relay/{id}?wait={finality}");
        match self.answer(self.request(Method::GET, &path)).await? {
            Ok(relay) => Ok(Some(relay)),
            Err(Refusal { status: 404, .. }) => Ok(None),
            Err(refusal) => Err(refusal.failure()),
        }
    }

    /// Sends a signed request. Errors: there is no answer: the relayer may have taken it.
    pub async fn send(&self, body: &Value) -> Result<Result<Value, Refusal>> {
        let request = self.request(Method::POST, "/relay").header("content-type", "application/json");
        self.answer(request.body(body.to_string())).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let answer = self.answer(self.request(Method::GET, path)).await?;
        answer.map_err(|refusal| refusal.failure())
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.client.request(method, format!("{}{path}", self.url));
        match &self.key {
            Some(key) => request.bearer_auth(key),
            None => request,
        }
    }

    async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<Result<T, Refusal>> {
        let silent =
            |_| Failure::try_again(format!("the relayer {} does not answer", public_origin(&self.url)));
        let response = request.send().await.map_err(silent)?;
        let status = response.status();
        let retry_after =
            response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = read_body(response, LARGEST_ANSWER).await.map_err(silent)?.unwrap_or_default();
        if status.as_u16() < 400 {
            // What cannot be read may be the answer to what was done.
            let lost = |_| Failure::try_again(format!("the relayer's answer, HTTP {status}, cannot be read"));
            return serde_json::from_slice(&body).map(Ok).map_err(lost);
        }
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let retry_after = retry_after.map(Duration::from_secs);
        Ok(Err(Refusal { status: status.as_u16(), code: text("code"), error: text("error"), retry_after }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_words_do_not_steer_a_terminal() {
        let refusal = Refusal {
            status: 429,
            code: "LIMIT".to_owned(),
            error: "a\u{1b}[2Jb\nc\u{202e}d — ü".to_owned(),
            retry_after: Some(Duration::from_secs(7)),
        };
        let failure = refusal.failure();
        assert_eq!(
            failure.to_string(),
            "the relayer refused: a\u{fffd}[2Jb\u{fffd}c\u{fffd}d — ü (LIMIT, HTTP 429)"
        );
        assert_eq!(failure.retry_after, Some(Duration::from_secs(7)));
    }
}
