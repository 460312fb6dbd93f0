//! The clock as a seam: the deadline, the budget's window and the store ask here for the time.

use std::{
    fmt::Debug,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// A source of wall-clock time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Unix seconds.
    fn now(&self) -> u64;
}

/// A clock that any part of the daemon can hold.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
    }
}

/// The clock the daemon runs with: the machine's. Test builds can move it (see [`crate::faults`]).
#[must_use]
pub fn shared() -> SharedClock {
    #[cfg(feature = "fault-injection")]
    if let Some(clock) = crate::faults::MovableClock::from_env() {
        return Arc::new(clock);
    }
    Arc::new(SystemClock)
}
