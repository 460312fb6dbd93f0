//! The daemon as the operator sees it: settings, the checks before the start, `serve` and `drain`.

pub mod abandon;
pub mod check;
pub mod fleet;
pub mod lifecycle;
pub mod monitor;
mod reload;
pub mod replay;
pub mod report;
pub mod settings;
