//! How long the journal keeps what has ended, and the task that lets go of the rest.
//!
//! ```text
//! relay ends ──▶ whole ──retention──▶ archived ──twelve times retention──▶ forgotten
//!                calldata, nonces,    outcome and transaction hashes:
//!                signed transactions  what GET /relay/:id answers
//! ```
//!
//! Nothing needs a whole relay for that long: reorganisations are undone for ten minutes, lost nonces are looked up for
//! a day. The task works in small steps with pauses between them, so that nobody waits for it.

use std::{sync::Arc, time::Duration};

use crate::{
    process::{
        clock::SharedClock,
        shutdown::{ShutdownSignal, stopped},
    },
    store::Store,
};

/// How many times as long as a whole relay its archived outcome is kept.
const ARCHIVE_FACTOR: u64 = 12;
/// The pause between two steps while there is something to do.
const PAUSE: Duration = Duration::from_millis(250);
/// The pause once there is nothing left to do.
const LONG_PAUSE: Duration = Duration::from_secs(60);

/// How long the journal keeps relays that have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// How long they stay whole, seconds.
    pub whole_seconds: u64,
    /// How long their outcomes and transaction hashes are kept, seconds.
    pub archive_seconds: u64,
}

impl Retention {
    /// Whole for `days`, archived for twelve times as long.
    #[must_use]
    pub const fn of_days(days: u16) -> Self {
        let whole_seconds = days as u64 * 24 * 60 * 60;
        Self { whole_seconds, archive_seconds: whole_seconds * ARCHIVE_FACTOR }
    }
}

/// Lets go of what is old until `stop` is set.
pub async fn run(store: Arc<dyn Store>, retention: Retention, clock: SharedClock, mut stop: ShutdownSignal) {
    let mut pruned = 0;
    loop {
        let now = clock.now();
        let pause = match store.run(move |store| store.prune(&retention, now)).await {
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
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = stopped(&mut stop) => return,
        }
    }
}
