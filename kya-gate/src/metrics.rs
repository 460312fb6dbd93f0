//! Prometheus metrics. Label values come from closed sets only, so that no client can grow them.

use prometheus::{
    Encoder as _, HistogramOpts, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder, core::Collector,
};
use registry_core::gate::{Outcome, RefusalCode, Unavailable};

use crate::settings::{KyaSource, NonceSettings, Settings};

/// Every metric of the gate; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Registry,
    /// Requests decided, by `policy` and `outcome`.
    pub requests: IntCounterVec,
    /// Agents judged, by `policy`, `outcome` and `basis`: what ties the liable wallet to the agent.
    pub liable: IntCounterVec,
    /// Seconds to decide a request, by `policy`.
    pub seconds: HistogramVec,
    /// Accounts and verdicts by where they came from: `cache`, `read`.
    pub lookups: IntCounterVec,
    /// Reads that were refused as too many, by `limit`: `in_flight`, `per_second`.
    pub reads_refused: IntCounterVec,
    /// Round trips to `chain`, `api` and `redis`, by `result`: `ok`, `failed`.
    pub round_trips: IntCounterVec,
    /// Nonces that this process remembers: none of those in Redis.
    pub nonces: IntGauge,
    /// 1 while changes of verdicts are followed, else 0.
    pub following: IntGauge,
    /// Changes of verdicts received, by `kind`: `change`, `failure`.
    pub changes: IntCounterVec,
    /// Fetches of the files of domains, by `domain` of the configuration and `result`: `ok`, `gone`,
    /// `failed`.
    pub domain_fetches: IntCounterVec,
    /// Wallets of domains, by `domain` and `state`: `counted`, and `waiting` for those that are new.
    pub domain_wallets: IntGaugeVec,
    /// Time of the last read of a `domain`'s file, in unix seconds: 0 where it is gone, or was never read.
    pub domain_read: IntGaugeVec,
}

impl Metrics {
    /// Makes all metrics, without any labelled series yet. Errors: if two metrics have the same name, a
    /// mistake in this file.
    pub fn new() -> Result<Self, prometheus::Error> {
        const SECONDS: [f64; 10] = [0.000_1, 0.000_25, 0.000_5, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0];
        let registry = Registry::new();
        let counter =
            |name, help, labels: &[&str]| registered(&registry, IntCounterVec::new(opts(name, help), labels));
        let gauge = |name, help| registered(&registry, IntGauge::with_opts(opts(name, help)));
        let gauges =
            |name, help, labels: &[&str]| registered(&registry, IntGaugeVec::new(opts(name, help), labels));
        let seconds = HistogramOpts::from(opts("request_seconds", "Time to decide a request"));
        let seconds = HistogramVec::new(seconds.buckets(SECONDS.to_vec()), &["policy"]);
        Ok(Self {
            requests: counter("requests_total", "Requests decided", &["policy", "outcome"])?,
            liable: counter(
                "liable_basis_total",
                "Agents judged, by what ties the liable wallet to them",
                &["policy", "outcome", "basis"],
            )?,
            seconds: registered(&registry, seconds)?,
            lookups: counter("lookups_total", "Accounts and verdicts needed", &["from"])?,
            reads_refused: counter("reads_refused_total", "Reads refused as too many", &["limit"])?,
            round_trips: counter("round_trips_total", "Round trips", &["to", "result"])?,
            nonces: gauge("nonces", "Nonces remembered")?,
            following: gauge("following_changes", "Whether changes of verdicts are followed")?,
            changes: counter("changes_total", "Changes of verdicts received", &["kind"])?,
            domain_fetches: counter(
                "domain_fetches_total",
                "Fetches of the files of domains",
                &["domain", "result"],
            )?,
            domain_wallets: gauges("domain_wallets", "Liable wallets of domains", &["domain", "state"])?,
            domain_read: gauges(
                "domain_read_seconds",
                "When the file of a domain was last read, unix seconds; 0 without one",
                &["domain"],
            )?,
            registry,
        })
    }

    /// Starts the series that alarms watch at 0: otherwise a first event would be no increase.
    pub fn start_at_zero(&self, settings: &Settings) {
        for policy in settings.policies.values() {
            let unavailable = Unavailable::ALL.iter().map(|reason| Outcome::Unavailable(*reason).code());
            for outcome in unavailable.chain([RefusalCode::SignatureVerificationUnavailable.code()]) {
                self.requests.with_label_values(&[policy.name.as_str(), outcome]);
            }
            for domain in &policy.agents.domains {
                self.domain_read.with_label_values(&[domain.as_str()]);
                for result in ["ok", "gone", "failed"] {
                    self.domain_fetches.with_label_values(&[domain.as_str(), result]);
                }
            }
        }
        for limit in ["in_flight", "per_second"] {
            self.reads_refused.with_label_values(&[limit]);
        }
        for (to, is_used) in [
            ("chain", true),
            ("api", matches!(settings.kya.source, KyaSource::Api { .. })),
            ("redis", matches!(settings.nonces, NonceSettings::Redis(_))),
        ] {
            for result in ["ok", "failed"].iter().filter(|_| is_used) {
                self.round_trips.with_label_values(&[to, *result]);
            }
        }
    }

    /// Returns the text for `/metrics`.
    pub fn text(&self) -> String {
        let mut text = Vec::new();
        // Encoding fails only for a metric without a sample, and there is none.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        String::from_utf8(text).unwrap_or_default()
    }
}

fn registered<M: Collector + Clone + 'static>(
    registry: &Registry,
    metric: Result<M, prometheus::Error>,
) -> Result<M, prometheus::Error> {
    let metric = metric?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}

fn opts(name: &str, help: &str) -> Opts {
    Opts::new(format!("kya_gate_{name}"), help)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_alarm_counts_is_there_before_its_first_event() {
        let settings = r#"
            origin = "https://api.example"
            chain = { id = 8453, rpc = ["http://127.0.0.1:1"] }
            kya = { registry = "0x00000000000000000000000000000000000000aa", api = "http://127.0.0.1:2" }
            policy.api = { allow = ["provision"], liable.domains = ["acme.example"] }
        "#;
        let (settings, metrics) =
            (Settings::parse_embedded(settings, None).unwrap(), Metrics::new().unwrap());
        metrics.start_at_zero(&settings);
        let text = metrics.text();
        for series in [
            r#"requests_total{outcome="gate_misconfigured",policy="api"}"#,
            r#"requests_total{outcome="signature_verification_unavailable",policy="api"}"#,
            r#"domain_fetches_total{domain="acme.example",result="failed"}"#,
            r#"domain_read_seconds{domain="acme.example"}"#,
            r#"reads_refused_total{limit="in_flight"}"#,
            r#"round_trips_total{result="failed",to="api"}"#,
        ] {
            assert!(text.contains(&format!("\nkya_gate_{series} 0\n")), "{series}: {text}");
        }
        assert!(!text.contains("redis"), "{text}");
    }
}
