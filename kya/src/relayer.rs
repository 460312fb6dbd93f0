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
    report::{CommandFailure, Result, may_pass},
};

/// The largest answer that is read, in bytes.
const LARGEST_ANSWER: usize = 1 << 20;

/// Environment variable with the relayer's API key, which does not belong on a command line.
pub const KEY_VARIABLE: &str = "KYA_RELAYER_KEY";

/// Client of a relayer.
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

/// Chain, contracts and gas limit that a relayer serves.
#[derive(Clone, Copy, Debug)]
pub struct RelayerTerms {
    /// The chain's id.
    pub chain: u64,
    /// The forwarder, the contract of the EIP-712 domain.
    pub forwarder: Address,
    /// The registry.
    pub registry: Address,
    /// Gas limit of an inner call.
    pub max_gas: u64,
}

/// State of a relay.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RelayStatus {
    /// `pending`, `executed`, `reverted` or `dropped`.
    pub state: String,
    /// Transaction hash.
    pub tx_hash: Option<B256>,
    /// Number of the transaction's block.
    pub block_number: Option<u64>,
    /// `latest`, `safe` or `finalized`.
    pub finality: Option<String>,
    /// Blocks from the transaction's own to the newest.
    #[serde(default)]
    pub confirmations: u64,
    /// The agent that was registered.
    pub agent_id: Option<u64>,
    /// Reason why it was not executed.
    pub error: Option<String>,
    /// Stable name of the reason.
    pub code: Option<String>,
}

/// Error answer of a relayer.
#[derive(Clone, Debug)]
pub struct RelayerRefusal {
    /// The HTTP status.
    pub status: u16,
    /// Stable name of the error.
    pub code: String,
    /// Error text for people.
    pub error: String,
    /// Time of the `Retry-After` header.
    pub retry_after: Option<Duration>,
}

impl RelayerRefusal {
    /// Converts it to a failure, to be tried again where its status may pass.
    pub fn failure(&self) -> CommandFailure {
        let Self { status, code, error, retry_after } = self;
        let text = format!("the relayer refused: {error} ({code}, HTTP {status})");
        match may_pass(*status) {
            true => CommandFailure { retry_after: *retry_after, ..CommandFailure::try_again(text) },
            false => CommandFailure::refused(text),
        }
    }
}

impl Relayer {
    /// Creates the client of the relayer at this URL, with this API key, trimmed. Errors: no HTTP client can
    /// be built, or the key cannot be sent.
    pub fn new(url: &Url, key: Option<String>) -> Result<Self> {
        let key = key.map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
        if key.as_ref().is_some_and(|key| HeaderValue::from_str(key).is_err()) {
            return Err(CommandFailure::usage(format!(
                "{KEY_VARIABLE} has a character that no header may have"
            )));
        }
        Ok(Self { client: client()?, url: url.as_str().trim_end_matches('/').to_owned(), key })
    }

    /// Returns the relayer's URL, without a slash at the end.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Reads the relayer's terms. Errors: it does not tell them.
    pub async fn terms(&self) -> Result<RelayerTerms> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct StatusLimits {
            max_request_gas: u64,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct StatusAnswer {
            chain_id: u64,
            registry: Address,
            forwarder: Address,
            limits: StatusLimits,
        }
        let StatusAnswer { chain_id, registry, forwarder, limits } = self.get("/status").await?;
        Ok(RelayerTerms { chain: chain_id, forwarder, registry, max_gas: limits.max_request_gas })
    }

    /// Reads the nonce of the signer's next request, counting relays in flight. Errors: it does not tell it.
    pub async fn next_nonce(&self, signer: Address) -> Result<u64> {
        #[derive(Deserialize)]
        struct NonceAnswer {
            next: u64,
        }
        let NonceAnswer { next } = self.get(&format!("/nonce/{signer}")).await?;
        Ok(next)
    }

    /// Reads the state of a relay, once it is this final or the relayer's longest wait is over; `None` where
    /// the relayer does not know it. Errors: the relayer does not say.
    pub async fn relay(&self, id: B256, finality: &str) -> Result<Option<RelayStatus>> {
        let path = format!("/relay/{id}?wait={finality}");
        match self.answer(self.request(Method::GET, &path)).await? {
            Ok(relay) => Ok(Some(relay)),
            Err(RelayerRefusal { status: 404, .. }) => Ok(None),
            Err(refusal) => Err(refusal.failure()),
        }
    }

    /// Sends a signed request. Errors: there is no readable answer, and the relayer may have taken it.
    pub async fn send(&self, body: &Value) -> Result<Result<Value, RelayerRefusal>> {
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

    async fn answer<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<Result<T, RelayerRefusal>> {
        let silent = |_| {
            CommandFailure::try_again(format!("the relayer {} does not answer", public_origin(&self.url)))
        };
        let response = request.send().await.map_err(silent)?;
        let status = response.status();
        let retry_after =
            response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        let body = read_body(response, LARGEST_ANSWER).await.map_err(silent)?.unwrap_or_default();
        if status.as_u16() < 400 {
            // The request may have been carried out: an unreadable success is no refusal.
            let lost =
                |_| CommandFailure::try_again(format!("the relayer's answer, HTTP {status}, cannot be read"));
            return serde_json::from_slice(&body).map(Ok).map_err(lost);
        }
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = |name: &str| body.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let retry_after = retry_after.map(Duration::from_secs);
        Ok(Err(RelayerRefusal {
            status: status.as_u16(),
            code: text("code"),
            error: text("error"),
            retry_after,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_words_do_not_steer_a_terminal() {
        let refusal = RelayerRefusal {
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
