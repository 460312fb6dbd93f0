//! The task that exports: spans in batches, metrics at an interval, the rest at shutdown.

use std::time::Duration;

use futures_util::future::BoxFuture;
use reqwest::{Client, redirect};
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::{SpanQueue, TelemetryTarget, otlp, spans::now_ns};
use crate::{
    metrics::Metrics,
    process::shutdown::{ShutdownSignal, stopped},
};

/// Timeout of one export.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of the last exports, counted from the shutdown, the one in hand included.
const LAST_EXPORTS: Duration = Duration::from_secs(1);
/// Interval between exports of spans.
const SPANS_EVERY: Duration = Duration::from_secs(2);
/// The most spans of one export.
const BATCH: usize = 2_048;

/// Exporter to one collector.
pub struct Exporter {
    client: Client,
    target: TelemetryTarget,
    metrics: Metrics,
    started_ns: u128,
    is_failing: bool,
}

impl Exporter {
    /// Creates an exporter; it opens no connection yet.
    ///
    /// # Errors
    /// Fails if no HTTP client can be built.
    pub fn new(target: TelemetryTarget, metrics: Metrics) -> Result<Self, reqwest::Error> {
        let client = Client::builder()
            .timeout(TIMEOUT)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .default_headers(target.headers.clone())
            .build()?;
        Ok(Self { client, target, metrics, started_ns: now_ns(), is_failing: false })
    }

    /// Exports until shutdown. `refresh` brings the gauges up to date that are read on demand.
    pub async fn run(
        mut self,
        spans: SpanQueue,
        refresh: impl Fn() -> BoxFuture<'static, ()>,
        mut stop: ShutdownSignal,
    ) {
        let SpanQueue(mut spans) = spans;
        let (mut spans_due, mut metrics_due) = (interval(SPANS_EVERY), interval(self.target.metrics_every));
        for due in [&mut spans_due, &mut metrics_due] {
            due.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        let mut stopping = stop.clone();
        let exports = async move {
            loop {
                tokio::select! {
                    () = stopped(&mut stop) => break,
                    _ = spans_due.tick() => self.export_spans(&mut spans).await,
                    _ = metrics_due.tick() => {
                        refresh().await;
                        self.export_metrics().await;
                    }
                }
            }
            self.export_spans(&mut spans).await;
            self.export_metrics().await;
        };
        let end = async {
            stopped(&mut stopping).await;
            sleep(LAST_EXPORTS).await;
        };
        tokio::select! {
            () = exports => {}
            () = end => {}
        }
    }

    async fn export_spans(&mut self, spans: &mut tokio::sync::mpsc::Receiver<super::FinishedSpan>) {
        loop {
            let mut batch = Vec::new();
            while batch.len() < BATCH
                && let Ok(span) = spans.try_recv()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                return;
            }
            let body = otlp::traces(&self.target.service, &batch);
            self.post("v1/traces", &body).await;
            if batch.len() < BATCH {
                return;
            }
        }
    }

    async fn export_metrics(&mut self) {
        let families = self.metrics.gather();
        let body = otlp::metrics(&self.target.service, &families, self.started_ns, now_ns());
        self.post("v1/metrics", &body).await;
    }

    /// Posts one export. One that fails is lost, and the log says so once for each outage.
    async fn post(&mut self, path: &str, body: &Value) {
        let url = format!("{}/{path}", self.target.base);
        let request = self.client.post(url).header("content-type", "application/json").body(body.to_string());
        let problem = match request.send().await {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("status {}", response.status())),
            Err(error) if error.is_timeout() => Some("no answer in time".to_owned()),
            Err(_) => Some("it cannot be reached".to_owned()),
        };
        match &problem {
            Some(problem) if !self.is_failing => {
                tracing::warn!(path, problem, "the OpenTelemetry collector takes nothing; this is lost");
            }
            None if self.is_failing => tracing::info!("the OpenTelemetry collector takes data again"),
            _ => {}
        }
        self.is_failing = problem.is_some();
    }
}
