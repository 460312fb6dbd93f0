//! Named points at which an unoptimised build can be made to die, and a clock that a test can move.
//!
//! In a release, which has no debug assertions, a [`point`] compiles to nothing and no variable is read.
//!
//! Otherwise `CRASH_AT=<point>` aborts the process the first time the point is reached,
//! `CRASH_AT=<point>:<n>` the n-th time. `CLOCK_OFFSET_FILE` names a file with a number of seconds that is
//! added to the machine's time; it is read at each call of the clock.

/// The points, in the order of the pipeline.
pub const POINTS: [&str; 12] = [
    "after_accept",
    "after_reserve",
    "after_simulate",
    "after_nonce",
    "after_sign",
    "after_journal",
    "after_send",
    "before_replacement_send",
    "after_receipt",
    "before_settle",
    "after_settle",
    "before_answer",
];

/// Marks a step of the pipeline as reached, which does nothing in a release.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub const fn point(_name: &'static str) {}

#[cfg(debug_assertions)]
pub use enabled::{MovableClock, point};

#[cfg(debug_assertions)]
mod enabled {
    use std::{
        env, fs,
        path::PathBuf,
        sync::{
            LazyLock,
            atomic::{AtomicU64, Ordering},
        },
    };

    use crate::process::clock::{Clock, SteadyClock};

    struct Crash {
        point: String,
        remaining: AtomicU64,
    }

    static CRASH: LazyLock<Option<Crash>> = LazyLock::new(|| {
        let value = env::var("CRASH_AT").ok()?;
        let (point, nth) = value.split_once(':').unwrap_or((&value, "1"));
        let nth = nth.parse().ok().filter(|nth| *nth > 0)?;
        Some(Crash { point: point.to_owned(), remaining: AtomicU64::new(nth) })
    });

    /// Marks a step of the pipeline as reached: aborts if the test has chosen it.
    pub fn point(name: &'static str) {
        debug_assert!(super::POINTS.contains(&name), "{name} is no documented crash point");
        let Some(crash) = CRASH.as_ref().filter(|crash| crash.point == name) else { return };
        if crash.remaining.fetch_sub(1, Ordering::SeqCst) == 1 {
            host_kit::say(format_args!("crash point {name}\n"));
            std::process::abort();
        }
    }

    /// The machine's clock, moved by the seconds in a file.
    #[derive(Debug)]
    pub struct MovableClock {
        clock: SteadyClock,
        offset_file: PathBuf,
    }

    impl MovableClock {
        /// Returns the clock if `CLOCK_OFFSET_FILE` is set.
        pub fn from_env() -> Option<Self> {
            let offset_file = env::var_os("CLOCK_OFFSET_FILE")?.into();
            Some(Self { clock: SteadyClock::start(), offset_file })
        }
    }

    impl Clock for MovableClock {
        fn now(&self) -> u64 {
            let text = fs::read_to_string(&self.offset_file).unwrap_or_default();
            self.clock.now().saturating_add_signed(text.trim().parse().unwrap_or(0))
        }
    }
}
