//! Wall-clock time as a trait, so that tests can set it.

use std::{
    fmt::Debug,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};

/// A source of wall-clock time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Unix seconds.
    fn now(&self) -> u64;
}

/// A clock shared by the daemon's parts.
pub type SharedClock = Arc<dyn Clock>;

/// The machine's time at the start, advanced by the time since boot: setting the machine's clock while the
/// daemon runs moves no deadline and no budget window. The start checks the time against the chain's.
#[derive(Debug, Clone, Copy)]
pub struct SteadyClock {
    started_at: Duration,
    since_boot: Duration,
}

impl SteadyClock {
    /// A clock that shows the machine's time now.
    pub fn start() -> Self {
        let started_at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::at(started_at, since_boot())
    }

    const fn at(started_at: Duration, since_boot: Duration) -> Self {
        Self { started_at, since_boot }
    }

    const fn seconds(&self, since_boot: Duration) -> u64 {
        self.started_at.saturating_add(since_boot.saturating_sub(self.since_boot)).as_secs()
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> u64 {
        self.seconds(since_boot())
    }
}

/// The time since boot, sleep included; it cannot be set.
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// The daemon's clock. Test builds can move it (see [`crate::faults`]).
pub fn shared() -> SharedClock {
    #[cfg(feature = "fault-injection")]
    if let Some(clock) = crate::process::faults::MovableClock::from_env() {
        return Arc::new(clock);
    }
    Arc::new(SteadyClock::start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_from_the_machines_by_what_has_passed() {
        let clock = SteadyClock::at(Duration::from_millis(1_700_000_000_900), Duration::from_secs(50));
        assert_eq!(clock.seconds(Duration::from_secs(50)), 1_700_000_000);
        assert_eq!(clock.seconds(Duration::from_millis(50_200)), 1_700_000_001);
        assert_eq!(clock.seconds(Duration::from_secs(49)), 1_700_000_000, "never back");
        let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(SteadyClock::start().now().abs_diff(machine) <= 1);
    }
}
