//! The daemon's process and its machine: clock, lock, log, shutdown signal.

pub mod clock;
pub mod faults;
pub mod instance;
pub mod lock;
pub mod logging;
pub mod shutdown;
