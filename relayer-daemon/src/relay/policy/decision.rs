//! The decision webhook: asks the operator's service whether a request is sponsored.
//!
//! The question and the answer are signed with the same secret. The answer's signature is over the question's
//! timestamp, and the answer names the relay, so that none can be replayed for another request. It fails
//! closed: without a good answer within a second the request is refused.

use std::time::Duration;

use alloy::primitives::{B256, Bytes};
use host_kit::native::read_body;
use registry_core::forward::ForwardRequest;
use reqwest::{Client, StatusCode, header::CONTENT_TYPE, redirect};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{WebhookTarget, function_name};
use crate::{
    metrics::Metrics,
    outcome::{ErrorCode, Failure},
    signatures::SIGNATURE,
};

/// Timeout of the webhook, connection included.
const TIMEOUT: Duration = Duration::from_secs(1);
/// The largest answer, bytes.
const LARGEST_ANSWER: usize = 4 * 1024;
/// The longest message of a denial, characters.
const LONGEST_MESSAGE: usize = 200;

/// HTTP client that asks the decision webhook.
#[derive(Debug, Clone)]
pub struct DecisionClient(Client);

/// A request about which the webhook is asked.
#[derive(Debug, Clone, Copy)]
pub struct RequestInQuestion<'a> {
    /// The relay's id.
    pub id: B256,
    /// The name of the API key that it came with.
    pub key: Option<&'a str>,
    /// The request itself.
    pub request: &'a ForwardRequest,
    /// Time of the question, unix seconds.
    pub now: u64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DecisionRequest<'a> {
    id: B256,
    key: Option<&'a str>,
    signer: String,
    function: String,
    gas: String,
    nonce: String,
    deadline: u64,
    data: &'a Bytes,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DecisionResponse {
    id: B256,
    decision: Decision,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    max_gas: Option<u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum Decision {
    Allow,
    Deny,
}

/// The reason why there is no decision. Never quotes the webhook's URL.
#[derive(Debug, Error)]
enum DecisionError {
    #[error("it did not answer within a second")]
    Slow,
    #[error("it cannot be reached")]
    Unreachable,
    #[error("it answered with status {0}")]
    Status(StatusCode),
    #[error("its answer is too large")]
    TooLarge,
    #[error("its answer is not signed with the secret")]
    WronglySigned,
    #[error("its answer cannot be read")]
    Malformed,
    #[error("its answer is about another relay")]
    Foreign,
}

impl From<reqwest::Error> for DecisionError {
    fn from(error: reqwest::Error) -> Self {
        if error.is_timeout() { Self::Slow } else { Self::Unreachable }
    }
}

impl DecisionClient {
    /// Creates a client; it opens no connection yet.
    ///
    /// # Errors
    /// Fails if no HTTP client can be built.
    pub fn new() -> Result<Self, reqwest::Error> {
        // A proxy from the environment, or a redirect's target, would see what is signed for.
        let builder = Client::builder().timeout(TIMEOUT).redirect(redirect::Policy::none()).no_proxy();
        Ok(Self(builder.build()?))
    }

    /// Asks whether a request is sponsored.
    ///
    /// # Errors
    /// 403 `SPONSORSHIP_DENIED`, `GAS_NOT_SPONSORED`, and `SPONSORSHIP_UNDECIDED` without a good answer.
    pub async fn ask(
        &self,
        target: &WebhookTarget,
        asked: &RequestInQuestion<'_>,
        metrics: &Metrics,
    ) -> Result<(), Failure> {
        let (result, decided) = match self.answer(target, asked).await {
            Ok(answer) => judge(answer, asked.request),
            Err(error) => {
                tracing::warn!(relay = %asked.id, %error, "no decision by the webhook, so refused");
                ("undecided", Err(Failure::of(ErrorCode::SponsorshipUndecided)))
            }
        };
        metrics.decisions.with_label_values(&[result]).inc();
        decided
    }

    async fn answer(
        &self,
        target: &WebhookTarget,
        asked: &RequestInQuestion<'_>,
    ) -> Result<DecisionResponse, DecisionError> {
        let RequestInQuestion { id, key, request, now } = *asked;
        let question = DecisionRequest {
            id,
            key,
            signer: request.from.to_string(),
            function: function_name(&request.data),
            gas: request.gas.to_string(),
            nonce: request.nonce.to_string(),
            deadline: request.deadline.to(),
            data: &request.data,
        };
        let body = serde_json::to_vec(&question).map_err(|_| DecisionError::Malformed)?;
        let response = self
            .0
            .post(target.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(SIGNATURE, target.secret.header(now, &body))
            .body(body)
            .send()
            .await?;
        if response.status() != StatusCode::OK {
            return Err(DecisionError::Status(response.status()));
        }
        let signature = response.headers().get(SIGNATURE).and_then(|value| value.to_str().ok());
        let signature = signature.unwrap_or_default().to_owned();
        let answer = read_body(response, LARGEST_ANSWER).await?.ok_or(DecisionError::TooLarge)?;
        if !target.secret.verifies(&signature, now, &answer) {
            return Err(DecisionError::WronglySigned);
        }
        let answer: DecisionResponse =
            serde_json::from_slice(&answer).map_err(|_| DecisionError::Malformed)?;
        if answer.id == id { Ok(answer) } else { Err(DecisionError::Foreign) }
    }
}

/// Returns the decision that an answer means for a request, with its label in the metrics.
fn judge(answer: DecisionResponse, request: &ForwardRequest) -> (&'static str, Result<(), Failure>) {
    match (answer.decision, answer.max_gas) {
        (Decision::Deny, _) => {
            let message: Option<String> = answer
                .message
                .map(|text| text.chars().filter(|c| !c.is_control()).take(LONGEST_MESSAGE).collect());
            let failure = message.filter(|text| !text.is_empty()).map_or_else(
                || Failure::of(ErrorCode::SponsorshipDenied),
                |text| Failure::new(ErrorCode::SponsorshipDenied, text),
            );
            ("deny", Err(failure))
        }
        (Decision::Allow, Some(most)) if request.gas > alloy::primitives::U256::from(most) => {
            let message = format!("request.gas is above what is sponsored: {most}");
            ("less_gas", Err(Failure::new(ErrorCode::GasNotSponsored, message)))
        }
        (Decision::Allow, _) => ("allow", Ok(())),
    }
}
