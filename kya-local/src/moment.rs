//! A moment by two clocks: this computer's, which may be set back, and one that never is.

use std::time::Instant;

use host_kit::native::now;

/// A moment by both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Time by the clock that is never set back.
    pub(crate) instant: Instant,
    /// Time by this computer's clock, unix milliseconds.
    pub(crate) clock: u64,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self { instant: Instant::now(), clock: now_millis() }
    }

    /// Returns the later of `clock`, this computer's time in unix milliseconds, and this moment plus the time
    /// passed since: where that is later, the clock was set back.
    pub(crate) fn time(&self, clock: u64) -> u64 {
        let passed = u64::try_from(self.instant.elapsed().as_millis()).unwrap_or(u64::MAX);
        clock.max(self.clock.saturating_add(passed))
    }
}

/// Returns the time by this computer's clock, in unix milliseconds.
pub(crate) fn now_millis() -> u64 {
    now().as_millis()
}
