//! Log lines: text for people or JSON for machines, always on standard error.
//!
//! The operator's level applies to this daemon's own lines only. Libraries log warnings: at `debug` the HTTP
//! transport would write RPC URLs with the keys in their paths.

use std::io::IsTerminal as _;

use clap::ValueEnum;
use tracing::{Level, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, Registry, filter::Targets, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// The format of log lines, which go to standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The target of spans, which no log line shows: they are for [`crate::telemetry`] alone.
pub const SPANS: &str = "relayer_spans";

/// Starts logging, beside a layer for spans; a second call does nothing.
pub fn init(format: LogFormat, level: Level, spans: Option<Box<dyn Layer<Registry> + Send + Sync>>) {
    let filter = Targets::new()
        .with_default(Level::WARN)
        .with_target("relayer_daemon", level)
        .with_target("alloy_transport_http", Level::ERROR)
        // The sender's own line says why there is no signature.
        .with_target("alloy_signer_aws", LevelFilter::OFF)
        .with_target(SPANS, LevelFilter::OFF);
    let layer = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        // On a full disk, reporting that a line cannot be written would panic.
        .log_internal_errors(false);
    let layer = match format {
        LogFormat::Text => layer.with_target(false).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    let _ = tracing_subscriber::registry().with(spans).with(layer.with_filter(filter)).try_init();
}
