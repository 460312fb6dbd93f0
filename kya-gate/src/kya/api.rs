//! The read API as the source of verdicts.
//!
//! Each answer names its chain and registry in `KYA-Registry`, and the time of its block. An answer about
//! another registry, or older than `max-head-age-seconds` and the API's own caches allow, is no verdict.

use std::time::Duration;

use alloy_primitives::Address;
use host_kit::native::read_body;
use registry_core::{
    eth::{redact::public_origin, timestamp::Timestamp},
    gate::{API_TIMEOUT_MS, ApiTerms, Verdict},
};
use reqwest::{Client, Response, StatusCode, Url, header};

use crate::{metrics::Metrics, settings::Settings};

/// The longest time that the API may take for a verdict.
const TIMEOUT: Duration = Duration::from_millis(API_TIMEOUT_MS as u64);

/// The read API.
#[derive(Debug, Clone)]
pub struct Api {
    client: Client,
    url: Url,
    terms: ApiTerms,
    metrics: Metrics,
}

impl Api {
    pub(super) fn new(client: Client, url: Url, settings: &Settings, metrics: Metrics) -> Self {
        let terms = ApiTerms::new(settings.registry(), settings.chain.max_head_age_seconds);
        Self { client, url, terms, metrics }
    }

    /// Returns its scheme and host.
    pub fn label(&self) -> String {
        public_origin(self.url.as_str())
    }

    /// Reads the verdict on a wallet, counted and logged; `None` where the API gives none.
    pub(super) async fn verdict(&self, wallet: Address, now: Timestamp) -> Option<Verdict> {
        let verdict = self.read(wallet, now).await;
        let result = if verdict.is_ok() { "ok" } else { "failed" };
        self.metrics.round_trips.with_label_values(&["api", result]).inc();
        verdict.inspect_err(|error| tracing::warn!(%error, "the read API gave no verdict")).ok()
    }

    /// Reads the verdict on a wallet. Errors: the reason for which there is none.
    pub(super) async fn read(&self, wallet: Address, now: Timestamp) -> Result<Verdict, String> {
        let url = self.endpoint(&format!("kya/{wallet}"));
        let without_url = |error: reqwest::Error| error.without_url().to_string();
        let response = self.client.get(url).timeout(TIMEOUT).send().await.map_err(without_url)?;
        if response.status() != StatusCode::OK {
            return Err(format!("status {}", response.status()));
        }
        self.check_registry(&response)?;
        let body = read_body(response, ApiTerms::LONGEST_ANSWER).await.map_err(without_url)?;
        let body = body.ok_or_else(|| "an answer of more than 1 MiB".to_owned())?;
        self.terms.verdict(&body, wallet, now)
    }

    /// Checks that an answer is about the configured registry. Errors: the registry of the answer.
    pub(super) fn check_registry(&self, response: &Response) -> Result<(), String> {
        let values = response.headers().get_all(ApiTerms::REGISTRY_HEADER).iter();
        // Several lines combine into one value, which names no registry.
        let values: Vec<&str> = values.map(|value| value.to_str().unwrap_or_default()).collect();
        self.terms.check_registry(Some(values.join(", ").as_str()).filter(|_| !values.is_empty()))
    }

    /// Opens the stream of changes after the event id `last`, or from now on.
    pub(super) async fn changes(&self, last: Option<&str>) -> Result<Response, reqwest::Error> {
        let request =
            self.client.get(self.endpoint("changes?since=now")).header(header::ACCEPT, "text/event-stream");
        let request = match last {
            Some(id) => request.header("last-event-id", id),
            None => request,
        };
        request.send().await.map_err(reqwest::Error::without_url)
    }

    fn endpoint(&self, path: &str) -> Url {
        let base = self.url.as_str().trim_end_matches('/');
        Url::parse(&format!("{base}/api/v1/{path}")).unwrap_or_else(|_| self.url.clone())
    }
}
