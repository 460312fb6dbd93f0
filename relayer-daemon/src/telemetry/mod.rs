//! Traces and metrics for an OpenTelemetry collector: OTLP over HTTP in its JSON encoding.
//!
//! Off unless an endpoint is set. Spans are those of the target [`SPANS`]; a full queue drops spans rather
//! than delay a relay. Metrics are those of `/metrics`, by the same names. Nothing waits for the collector.

mod exporter;
mod otlp;
mod spans;

use std::time::Duration;

use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};
use thiserror::Error;
use tokio::sync::mpsc;
use tracing::Level;
use tracing_subscriber::{Layer, Registry, filter::Targets};

pub use exporter::Exporter;
use spans::{FinishedSpan, SpanLayer};

use crate::process::logging::SPANS;

/// Largest number of spans that wait for their export.
const QUEUE: usize = 8_192;

/// The collector's URL, the headers it wants, and the interval of exports.
#[derive(Clone)]
pub struct TelemetryTarget {
    /// The collector's base URL, without a slash at its end.
    base: String,
    headers: HeaderMap,
    service: String,
    metrics_every: Duration,
}

/// A setting of OpenTelemetry that breaks a rule. Its text is not shown: it may hold a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0} {1}")]
pub struct TelemetryError(&'static str, &'static str);

/// The spans that the log's subscriber collects.
#[derive(Debug)]
pub struct SpanQueue(mpsc::Receiver<FinishedSpan>);

impl TelemetryTarget {
    /// Creates a target; `headers` are `name=value`, comma-separated.
    pub fn new(
        endpoint: &str,
        headers: &str,
        service: &str,
        metrics_every: Duration,
    ) -> Result<Self, TelemetryError> {
        let is_http = |url: &Url| matches!(url.scheme(), "http" | "https") && url.has_host();
        endpoint
            .parse()
            .ok()
            .filter(is_http)
            .ok_or(TelemetryError("OTEL_EXPORTER_OTLP_ENDPOINT", "is no http or https URL"))?;
        let wrong = TelemetryError("OTEL_EXPORTER_OTLP_HEADERS", "must be name=value, comma-separated");
        let header = |pair: &str| {
            let (name, value) = pair.split_once('=')?;
            let mut value = HeaderValue::from_bytes(&percent_decoded(value.trim())?).ok()?;
            value.set_sensitive(true);
            Some((name.trim().parse::<HeaderName>().ok()?, value))
        };
        let pairs = headers.split(',').filter(|pair| !pair.trim().is_empty());
        let headers = pairs.map(|pair| header(pair).ok_or(wrong)).collect::<Result<_, _>>()?;
        let base = endpoint.trim_end_matches('/').to_owned();
        Ok(Self { base, headers, service: service.to_owned(), metrics_every })
    }
}

/// Decodes a header's value as OpenTelemetry writes it, percent-encoded.
fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut decoded) = (text.bytes(), Vec::with_capacity(text.len()));
    while let Some(byte) = bytes.next() {
        let digits = if byte == b'%' { Some([bytes.next()?, bytes.next()?]) } else { None };
        decoded.push(match digits {
            Some(digits) => u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?,
            None => byte,
        });
    }
    Some(decoded)
}

/// Creates a layer that collects finished spans, and the queue that has them.
pub fn collect() -> (Box<dyn Layer<Registry> + Send + Sync>, SpanQueue) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let filter = Targets::new().with_target(SPANS, Level::TRACE);
    (SpanLayer(sender).with_filter(filter).boxed(), SpanQueue(receiver))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_target_is_named_and_not_shown() {
        let target = |endpoint, headers| {
            TelemetryTarget::new(endpoint, headers, "relayer", Duration::from_secs(60))
                .map(|target| target.base)
        };
        assert_eq!(target("http://collector:4318/", "").unwrap(), "http://collector:4318");
        assert!(target("https://collector/otlp", "authorization=Bearer t0ken, x-scope=a").is_ok());
        let encoded =
            TelemetryTarget::new("http://a/", "authorization=Basic%20dA==", "relayer", Duration::MAX);
        assert_eq!(encoded.unwrap().headers["authorization"], "Basic dA==");
        for (endpoint, headers, name) in [
            ("ftp://t0ken/", "", "OTEL_EXPORTER_OTLP_ENDPOINT"),
            ("t0ken", "", "OTEL_EXPORTER_OTLP_ENDPOINT"),
            ("http://a/", "t0ken", "OTEL_EXPORTER_OTLP_HEADERS"),
            ("http://a/", "a=t0ken%2", "OTEL_EXPORTER_OTLP_HEADERS"),
            ("http://a/", "a b=t0ken", "OTEL_EXPORTER_OTLP_HEADERS"),
        ] {
            let error = target(endpoint, headers).unwrap_err().to_string();
            assert!(error.starts_with(name) && !error.contains("t0ken"), "{error}");
        }
    }
}
