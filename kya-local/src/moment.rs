//! A moment by two clocks: this computer's, which may be set back, and one that never is.

use std::time::Instant;

use host_kit::native::now;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// By the clock that is never set back.
    pub(crate) instant: Instant,
    /// By this computer's, unix milliseconds.
    pub(crate) clock: u64,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self { instant: Instant::now(), clock: now_millis() }
    }

    /// The time by this computer's `clock`, unix milliseconds, or by what has passed since this moment where
    /// that is later: then the clock was set back.
    pub(crate) fn time(&self, clock: u64) -> u64 {
        let passed = u64::try_from(self.instant.elapsed().as_millis()).unwrap_or(u64::MAX);
        clock.max(self.clock.saturating_add(passed))
    }
}

/// This computer's clock, in unix milliseconds.
pub(crate) fn now_millis() -> u64 {
    now().as_millis()
}
