//! Wall-clock time as a trait, so that tests can set it.

use std::{
    fmt::Debug,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::time::{ClockId, clock_gettime};

/// A source of wall-clock time.
pub trait Clock: Debug + Send + Sync + 'static {
    /// Returns the time, unix seconds.
    fn now(&self) -> u64;

    /// Tells the time of the chain's newest block, unix seconds. A clock that fell behind catches up.
    fn saw_chain(&self, _block_time: u64) {}
}

/// A clock shared by the daemon's parts.
pub type SharedClock = Arc<dyn Clock>;

/// Seconds that this clock may be behind the chain and the machine.
const TOLERATED: u64 = 60;

/// The machine's time at the start, advanced by the time since boot: setting the machine's clock while the
/// daemon runs moves no deadline and no budget window. The start checks the time against the chain's.
///
/// A virtual machine that was paused has not counted that time. If both the chain and the machine's clock are
/// ahead then, this one catches up with the one that is less so: neither of them alone can move it.
#[derive(Debug)]
pub struct SteadyClock {
    started_at: Duration,
    since_boot: Duration,
    /// Seconds that were caught up with.
    missed: AtomicU64,
}

impl SteadyClock {
    /// Creates a clock that shows the machine's time now.
    pub fn start() -> Self {
        Self::at(machine_time(), since_boot())
    }

    const fn at(started_at: Duration, since_boot: Duration) -> Self {
        Self { started_at, since_boot, missed: AtomicU64::new(0) }
    }

    fn seconds(&self, since_boot: Duration) -> u64 {
        let steady = self.started_at.saturating_add(since_boot.saturating_sub(self.since_boot)).as_secs();
        steady.saturating_add(self.missed.load(Ordering::Relaxed))
    }

    fn catch_up(&self, block_time: u64, machine_time: u64, since_boot: Duration) {
        let behind = block_time.min(machine_time).saturating_sub(self.seconds(since_boot));
        if behind > TOLERATED {
            tracing::warn!(
                seconds = behind,
                "the machine stood still: the clock has caught up with the chain"
            );
            self.missed.fetch_add(behind, Ordering::Relaxed);
        }
    }
}

impl Clock for SteadyClock {
    fn now(&self) -> u64 {
        self.seconds(since_boot())
    }

    fn saw_chain(&self, block_time: u64) {
        self.catch_up(block_time, machine_time().as_secs(), since_boot());
    }
}

fn machine_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Returns the time since boot, sleep included; it cannot be set.
fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Returns the daemon's clock. A test can move that of an unoptimised build (see [`crate::process::faults`]).
pub fn shared() -> SharedClock {
    #[cfg(debug_assertions)]
    if let Some(clock) = crate::process::faults::MovableClock::from_env() {
        return Arc::new(clock);
    }
    Arc::new(SteadyClock::start())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_goes_on_by_what_has_passed_and_catches_up_after_a_pause_where_both_clocks_agree() {
        let clock = SteadyClock::at(Duration::from_millis(1_700_000_000_900), Duration::from_secs(50));
        assert_eq!(clock.seconds(Duration::from_secs(50)), 1_700_000_000);
        assert_eq!(clock.seconds(Duration::from_millis(50_200)), 1_700_000_001);
        assert_eq!(clock.seconds(Duration::from_secs(49)), 1_700_000_000, "never back");
        assert_eq!(clock.seconds(Duration::from_secs(60)), 1_700_000_010);
        let machine = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        assert!(SteadyClock::start().now().abs_diff(machine) <= 1);
        let boot = Duration::from_secs(50);
        let clock = SteadyClock::at(Duration::from_secs(1_000_000), boot);
        clock.catch_up(1_009_000, 1_000_000, boot);
        assert_eq!(clock.seconds(boot), 1_000_000, "a chain that claims to be ahead");
        clock.catch_up(1_000_000, 1_009_000, boot);
        assert_eq!(clock.seconds(boot), 1_000_000, "a machine's clock that was set");
        clock.catch_up(1_000_060, 1_000_060, boot);
        assert_eq!(clock.seconds(boot), 1_000_000, "clocks differ");
        clock.catch_up(1_009_000, 1_009_003, boot);
        assert_eq!(clock.seconds(boot), 1_009_000);
        clock.catch_up(1_000_000, 1_000_000, boot);
        assert_eq!(clock.seconds(boot), 1_009_000, "never back");
    }
}
