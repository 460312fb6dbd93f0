//! The bodies of OTLP/HTTP in its JSON encoding: numbers of 64 bits are strings, ids are hexadecimal, enums
//! are numbers.

use prometheus::proto::{Metric, MetricFamily, MetricType};
use serde_json::{Value, json};

use super::spans::{ERROR, FinishedSpan, KIND};
use crate::process::instance;

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u8 = 2;
/// `STATUS_CODE_ERROR`.
const FAILED: u8 = 2;

/// Returns the body for `/v1/traces`.
pub(super) fn traces(service: &str, spans: &[FinishedSpan]) -> Value {
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({
        "resourceSpans": [{
            "resource": resource(service),
            "scopeSpans": [{ "scope": scope(), "spans": spans }],
        }],
    })
}

/// Returns the body for `/v1/metrics`, counted since `started_ns`.
pub(super) fn metrics(service: &str, families: &[MetricFamily], started_ns: u128, now_ns: u128) -> Value {
    let metrics: Vec<Value> =
        families.iter().filter_map(|family| metric(family, started_ns, now_ns)).collect();
    json!({
        "resourceMetrics": [{
            "resource": resource(service),
            "scopeMetrics": [{ "scope": scope(), "metrics": metrics }],
        }],
    })
}

fn resource(service: &str) -> Value {
    json!({ "attributes": [
        text("service.name", service),
        // Counters of several daemons are several series.
        text("service.instance.id", instance::id()),
        text("host.name", &instance::host()),
        text("service.version", env!("CARGO_PKG_VERSION")),
    ] })
}

fn scope() -> Value {
    json!({ "name": env!("CARGO_PKG_NAME"), "version": env!("CARGO_PKG_VERSION") })
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn span(span: &FinishedSpan) -> Value {
    // Numbers of `SpanKind`.
    let kind = match span.fields.iter().find(|(name, _)| *name == KIND).map(|(_, kind)| kind.as_str()) {
        Some("server") => 2,
        Some("client") => 3,
        _ => 1,
    };
    let failed = span.fields.iter().any(|(name, value)| *name == ERROR && value == "true");
    let attributes: Vec<Value> = span
        .fields
        .iter()
        .filter(|(name, _)| ![KIND, ERROR].contains(name))
        .map(|(name, value)| text(name, value))
        .collect();
    json!({
        "traceId": format!("{:x}", span.trace_id),
        "spanId": format!("{:x}", span.span_id),
        "parentSpanId": span.parent.map(|parent| format!("{parent:x}")).unwrap_or_default(),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": span.started_ns.to_string(),
        "endTimeUnixNano": span.ended_ns.to_string(),
        "attributes": attributes,
        "status": if failed { json!({ "code": FAILED }) } else { json!({}) },
    })
}

fn metric(family: &MetricFamily, started_ns: u128, now_ns: u128) -> Option<Value> {
    let kind = family.get_field_type();
    let points: Vec<Value> = family
        .get_metric()
        .iter()
        .filter_map(|metric| {
            let mut point = match kind {
                MetricType::COUNTER => json!({ "asDouble": metric.get_counter().get_value() }),
                MetricType::GAUGE => json!({ "asDouble": metric.get_gauge().get_value() }),
                MetricType::HISTOGRAM => histogram(metric),
                MetricType::SUMMARY | MetricType::UNTYPED => return None,
            };
            let labels: Vec<Value> =
                metric.get_label().iter().map(|label| text(label.name(), label.value())).collect();
            let fields = point.as_object_mut()?;
            fields.insert("attributes".to_owned(), labels.into());
            fields.insert("startTimeUnixNano".to_owned(), started_ns.to_string().into());
            fields.insert("timeUnixNano".to_owned(), now_ns.to_string().into());
            Some(point)
        })
        .collect();
    let (field, data) = match kind {
        MetricType::COUNTER => (
            "sum",
            json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": true }),
        ),
        MetricType::GAUGE => ("gauge", json!({ "dataPoints": points })),
        MetricType::HISTOGRAM => {
            ("histogram", json!({ "dataPoints": points, "aggregationTemporality": CUMULATIVE }))
        }
        MetricType::SUMMARY | MetricType::UNTYPED => return None,
    };
    Some(json!({ "name": family.name(), "description": family.help(), field: data }))
}

/// Converts Prometheus's cumulative counts to OTLP's per bucket, with one more bucket above the last bound.
fn histogram(metric: &Metric) -> Value {
    let histogram = metric.get_histogram();
    let finite = histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound().is_finite());
    let (mut bounds, mut counts, mut below) = (Vec::new(), Vec::new(), 0);
    for bucket in finite {
        bounds.push(bucket.upper_bound());
        counts.push(bucket.cumulative_count().saturating_sub(below).to_string());
        below = bucket.cumulative_count();
    }
    counts.push(histogram.get_sample_count().saturating_sub(below).to_string());
    json!({
        "count": histogram.get_sample_count().to_string(),
        "sum": histogram.get_sample_sum(),
        "explicitBounds": bounds,
        "bucketCounts": counts,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::{Histogram, HistogramOpts, IntCounterVec, Opts, Registry};

    #[test]
    fn metrics_have_their_names_labels_and_counts_per_bucket() {
        let registry = Registry::new();
        let relays = IntCounterVec::new(Opts::new("relays_total", "Relays"), &["state"]).unwrap();
        relays.with_label_values(&["executed"]).inc_by(3);
        let seconds =
            Histogram::with_opts(HistogramOpts::new("seconds", "Time").buckets(vec![0.5, 1.0])).unwrap();
        [0.25, 0.75, 0.75, 9.0].into_iter().for_each(|value| seconds.observe(value));
        registry.register(Box::new(relays)).unwrap();
        registry.register(Box::new(seconds)).unwrap();
        let body = metrics("relayer", &registry.gather(), 5, 7);
        let metrics = &body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
        let sum = json!({ "name": "relays_total", "description": "Relays", "sum": {
            "aggregationTemporality": 2, "isMonotonic": true,
            "dataPoints": [{
                "asDouble": 3.0, "startTimeUnixNano": "5", "timeUnixNano": "7",
                "attributes": [{ "key": "state", "value": { "stringValue": "executed" } }],
            }],
        } });
        let histogram = json!({
            "count": "4", "sum": 10.75, "explicitBounds": [0.5, 1.0], "bucketCounts": ["1", "2", "1"],
            "startTimeUnixNano": "5", "timeUnixNano": "7", "attributes": [],
        });
        assert_eq!((&metrics[0], &metrics[1]["histogram"]["dataPoints"][0]), (&sum, &histogram));
        let resource = &body["resourceMetrics"][0]["resource"]["attributes"][0];
        assert_eq!(*resource, json!({ "key": "service.name", "value": { "stringValue": "relayer" } }));
    }
}
