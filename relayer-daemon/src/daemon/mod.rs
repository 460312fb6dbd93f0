//! The daemon as the operator sees it: settings, the checks before the start, `serve` and `drain`.

pub mod assembly;
pub mod check;
mod control;
pub mod ctl;
pub mod fleet;
pub mod keyless;
pub mod lifecycle;
pub mod migrate;
pub mod monitor;
pub mod replay;
pub mod report;
pub mod settings;
