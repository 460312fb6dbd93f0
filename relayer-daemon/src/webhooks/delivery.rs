//! One attempt to deliver an event.

use std::time::Duration;

use reqwest::{Client, StatusCode, header::CONTENT_TYPE, redirect};
use thiserror::Error;

use crate::{relay::policy::WebhookTarget, signatures::SIGNATURE, store::events::WebhookEvent};

/// Timeout of a receiver, connection included.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The header with an event's id.
const EVENT: &str = "x-relayer-event";

/// HTTP client that delivers events.
#[derive(Debug, Clone)]
pub struct DeliveryClient(Client);

/// The reason why an event was not delivered. Never quotes the webhook's URL.
#[derive(Debug, Error)]
pub(super) enum DeliveryError {
    #[error("the receiver did not answer within {} seconds", TIMEOUT.as_secs())]
    Slow,
    #[error("the receiver cannot be reached")]
    Unreachable,
    #[error("the receiver answered with status {0}")]
    Status(StatusCode),
}

impl DeliveryClient {
    /// Creates a client; it opens no connection yet.
    ///
    /// # Errors
    /// Fails if no HTTP client can be built.
    pub fn new() -> Result<Self, reqwest::Error> {
        // A proxy from the environment, or a redirect's target, would see what is not theirs.
        let builder = Client::builder().timeout(TIMEOUT).redirect(redirect::Policy::none()).no_proxy();
        Ok(Self(builder.build()?))
    }

    /// Sends an event, signed at `now`. The receiver has it if it answers 2xx.
    pub(super) async fn send(
        &self,
        target: &WebhookTarget,
        event: &WebhookEvent,
        now: u64,
    ) -> Result<(), DeliveryError> {
        let request = self
            .0
            .post(target.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(SIGNATURE, target.secret.header(now, event.body.as_bytes()))
            .header(EVENT, &event.id)
            .header("webhook-id", &event.id)
            .header("webhook-timestamp", now)
            .header("webhook-signature", target.secret.standard_header(&event.id, now, event.body.as_bytes()))
            .body(event.body.clone());
        match request.send().await {
            Ok(response) if response.status().is_success() => Ok(()),
            Ok(response) => Err(DeliveryError::Status(response.status())),
            Err(error) if error.is_timeout() => Err(DeliveryError::Slow),
            Err(_) => Err(DeliveryError::Unreachable),
        }
    }
}
