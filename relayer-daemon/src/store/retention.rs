//! The retention of relays that have ended, and the task that prunes them.
//!
//! ```text
//! relay ends ──▶ whole ──retention──▶ archived ──twelve times retention──▶ deleted
//!                calldata, nonces,    outcome and transaction hashes:
//!                signed transactions  what GET /relay/:id answers
//! ```
//!
//! The sender needs whole relays for about a day: it follows blocks until they are final, and lost nonces for
//! a day. The task works in small steps with pauses between them, so that other writes do not wait for it.

use std::{sync::Arc, time::Duration};

use crate::{
    process::{
        clock::SharedClock,
        shutdown::{ShutdownSignal, unless_stopped},
    },
    store::Store,
};

/// The archived outcome of a relay is kept this many times as long as the whole relay.
const ARCHIVE_FACTOR: u64 = 12;
/// The pause between two steps while something is due.
const PAUSE: Duration = Duration::from_millis(250);
/// The pause once nothing is due.
const LONG_PAUSE: Duration = Duration::from_secs(60);

/// The time for which the store keeps relays that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Seconds that a relay stays whole.
    pub whole_seconds: u64,
    /// Seconds that its outcome and transaction hashes are kept.
    pub archive_seconds: u64,
}

impl Retention {
    /// Keeps relays whole for `days`, and archived for twelve times as long.
    pub const fn of_days(days: u16) -> Self {
        let whole_seconds = days as u64 * 24 * 60 * 60;
        Self { whole_seconds, archive_seconds: whole_seconds * ARCHIVE_FACTOR }
    }
}

/// Prunes until shutdown, while `is_due` says so: in a fleet one daemon does it.
pub async fn run(
    store: Arc<Store>,
    retention: Retention,
    clock: SharedClock,
    is_due: impl Fn() -> bool,
    mut stop: ShutdownSignal,
) {
    let mut pruned = 0;
    loop {
        let now = clock.now();
        let step = async {
            if is_due() { store.run(move |store| store.prune(&retention, now)).await } else { Ok(0) }
        };
        let pause = match step.await {
            Ok(0) => {
                if pruned > 0 {
                    tracing::info!(relays = pruned, "journal pruned");
                }
                pruned = 0;
                LONG_PAUSE
            }
            Ok(some) => {
                pruned += some;
                PAUSE
            }
            Err(error) => {
                tracing::error!(%error, "journal not pruned");
                LONG_PAUSE
            }
        };
        if unless_stopped(&mut stop, tokio::time::sleep(pause)).await.is_none() {
            return;
        }
    }
}
