//! Prometheus metrics. Label values come from closed sets only, so that no client can grow them.

use std::time::Duration;

use prometheus::{
    Encoder, Gauge, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts,
    Registry, TextEncoder,
};

/// Every metric of the daemon. What each one means, and what to alert on, is in the README.
#[derive(Debug, Clone)]
pub struct Metrics {
    registry: Registry,
    /// HTTP answers by `route` and `status`.
    pub http_requests: IntCounterVec,
    /// Time to answer by `route`, seconds.
    pub http_seconds: HistogramVec,
    /// Open HTTP connections.
    pub http_connections: IntGauge,
    /// Connections closed at once: their client's share was used up.
    pub http_refused: IntCounter,
    /// Relays by how they ended: `executed`, `reverted`, `dropped`.
    pub relays: IntCounterVec,
    /// Refusals and failures by stable `code`.
    pub failures: IntCounterVec,
    /// From acceptance to receipt, seconds.
    pub relay_seconds: Histogram,
    /// Transactions signed by `purpose`.
    pub transactions: IntCounterVec,
    /// Replacement transactions.
    pub replacements: IntCounter,
    /// Rebroadcasts of the same bytes.
    pub resends: IntCounter,
    /// Nonces used by foreign transactions.
    pub foreign_nonces: IntCounter,
    /// Mined nonces that a reorg undid.
    pub reorganised: IntCounter,
    /// Rounds that the sender has finished.
    pub sender_rounds: IntCounter,
    /// Gas paid, wei.
    pub paid_wei: prometheus::Counter,
    /// RPC calls by `method` and `result`: `ok`, `error`, `fault`.
    pub rpc_calls: IntCounterVec,
    /// Time an RPC call takes, by `method`, seconds.
    pub rpc_seconds: HistogramVec,
    /// The account's balance, wei.
    pub balance_wei: Gauge,
    /// The budget, wei.
    pub budget_limit_wei: Gauge,
    /// The paid and reserved part of the budget, wei.
    pub budget_used_wei: Gauge,
    /// Relays in flight.
    pub queue_depth: IntGauge,
    /// Age of the oldest pending relay, seconds.
    pub oldest_pending_seconds: IntGauge,
    /// Number of the newest block seen.
    pub head_block: IntGauge,
}

impl Metrics {
    /// All metrics, at zero.
    ///
    /// # Errors
    /// If two metrics have the same name: a mistake in this file.
    pub fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let opts = |name: &str, help: &str| Opts::new(format!("relayer_{name}"), help);
        let register = |metric: Box<dyn prometheus::core::Collector>| registry.register(metric);
        macro_rules! metric {
            ($make:expr) => {{
                let metric = $make?;
                register(Box::new(metric.clone()))?;
                metric
            }};
        }
        let counters = |name, help, labels: &[&str]| IntCounterVec::new(opts(name, help), labels);
        let counter = |name, help| IntCounter::with_opts(opts(name, help));
        let gauge = |name, help| Gauge::with_opts(opts(name, help));
        let int_gauge = |name, help| IntGauge::with_opts(opts(name, help));
        let seconds = |name, help, buckets: &[f64]| {
            HistogramOpts::new(format!("relayer_{name}"), help).buckets(buckets.to_vec())
        };
        const FAST: [f64; 9] = [0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 10.0];
        const SLOW: [f64; 9] = [0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 120.0, 600.0];

        Ok(Self {
            http_requests: metric!(counters("http_requests_total", "HTTP answers", &["route", "status"])),
            http_seconds: metric!(HistogramVec::new(
                seconds("http_seconds", "Time to answer a request", &SLOW),
                &["route"]
            )),
            http_connections: metric!(int_gauge("http_connections", "Open HTTP connections")),
            http_refused: metric!(counter(
                "http_connections_refused_total",
                "Connections beyond their client's share"
            )),
            relays: metric!(counters("relays_total", "Relays by how they ended", &["state"])),
            failures: metric!(counters("failures_total", "Refusals and failures by code", &["code"])),
            relay_seconds: metric!(Histogram::with_opts(seconds(
                "relay_seconds",
                "From acceptance to receipt",
                &SLOW
            ))),
            transactions: metric!(counters("transactions_total", "Transactions signed", &["purpose"])),
            replacements: metric!(counter("replacements_total", "Transactions that replaced another")),
            resends: metric!(counter("resends_total", "Same bytes sent once more")),
            foreign_nonces: metric!(counter("foreign_nonces_total", "Nonces lost to foreign transactions")),
            reorganised: metric!(counter("reorganised_total", "Nonces that a reorganisation took back")),
            sender_rounds: metric!(counter("sender_rounds_total", "Rounds that the sender has finished")),
            paid_wei: metric!(prometheus::Counter::with_opts(opts("paid_wei_total", "Gas paid, wei"))),
            rpc_calls: metric!(counters("rpc_calls_total", "RPC calls", &["method", "result"])),
            rpc_seconds: metric!(HistogramVec::new(
                seconds("rpc_seconds", "Time an RPC call takes", &FAST),
                &["method"]
            )),
            balance_wei: metric!(gauge("balance_wei", "Balance of the paying account, wei")),
            budget_limit_wei: metric!(gauge("budget_limit_wei", "Daily gas budget, wei")),
            budget_used_wei: metric!(gauge("budget_used_wei", "Of it paid or reserved, wei")),
            queue_depth: metric!(int_gauge("queue_depth", "Relays in flight")),
            oldest_pending_seconds: metric!(int_gauge(
                "oldest_pending_seconds",
                "Age of the oldest pending relay"
            )),
            head_block: metric!(int_gauge("head_block", "Newest block seen")),
            registry,
        })
    }

    /// Counts an RPC call.
    pub fn rpc(&self, method: &'static str, result: &'static str, took: Duration) {
        self.rpc_calls.with_label_values(&[method, result]).inc();
        self.rpc_seconds.with_label_values(&[method]).observe(took.as_secs_f64());
    }

    /// The text that Prometheus scrapes.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = Vec::new();
        match TextEncoder::new().encode(&self.registry.gather(), &mut text) {
            Ok(()) => String::from_utf8_lossy(&text).into_owned(),
            Err(error) => format!("# {error}\n"),
        }
    }
}

/// Wei as a gauge's value; a double keeps the leading 15 digits, enough for a dashboard.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a gauge is a double")]
pub const fn gauge_value(wei: u128) -> f64 {
    wei as f64
}
