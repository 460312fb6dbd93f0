//! Log lines: JSON for machines or text for people, always on standard error.

use clap::ValueEnum;
use tracing::{Level, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer as _, filter::Targets, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Starts logging; a second call does nothing. Log lines of libraries are dropped: at `debug` they contain
/// RPC URLs with keys in their paths.
pub fn init(format: LogFormat, level: Level) {
    let filter = Targets::new().with_default(LevelFilter::OFF).with_target("kya_gate", level);
    let layer = fmt::layer().with_writer(std::io::stderr).log_internal_errors(false);
    let layer = match format {
        LogFormat::Text => layer.with_target(false).boxed(),
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
    };
    let _ = tracing_subscriber::registry().with(layer.with_filter(filter)).try_init();
}
