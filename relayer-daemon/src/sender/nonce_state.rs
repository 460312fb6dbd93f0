//! The states of a nonce from its assignment to its end, and the transitions.
//!
//! ```text
//!                  assigned, stored, sent
//!                             │
//!                             ▼      the chain counts it as used
//!         ┌────────────────▶ Open ─────────────────────────────────▶ Unconfirmed
//!         │                   │  ◀─────────────────────────────────    │      │
//!         │                   │      the chain does not count it       │      │ used by a transaction
//!         │ undone by         │                                        │      │ that is not ours
//!         │ a reorg           │ receipt                        receipt │      ▼
//!         │                   ▼                                        │    Lost
//!         └──────────────── Mined ◀────────────────────────────────────┴──────┘
//!                      (in the store alone)                              late receipt
//! ```
//!
//! One answer of one machine moves a nonce between `Open` and `Unconfirmed` only, which are both in flight.
//! `Lost`, and the way back from mined, need evidence that no stale view can produce; see `lost_nonces` and
//! `reorganisation`.

use std::time::Duration;

use tokio::time::Instant;

use crate::{chain::BroadcastVerdict, store::NonceAssignment};

/// The first backoff before a lost nonce is looked up again; each further one doubles.
const FIRST_LOST_LOOK: Duration = Duration::from_secs(60);

/// A nonce that waits to be mined, and the state of its latest transaction.
#[derive(Debug)]
pub(super) struct NonceInFlight {
    /// The nonce, its relay and its signed transactions.
    pub(super) assignment: NonceAssignment,
    /// The last verdict on its latest transaction.
    pub(super) verdict: BroadcastVerdict,
    /// The time and the block at which its latest transaction was last sent.
    pub(super) sent: (Instant, u64),
    /// Time at which its first transaction was signed, or loaded from the store.
    pub(super) opened_at: Instant,
    /// Time at which its latest transaction was signed, or loaded from the store.
    pub(super) signed_at: Instant,
    /// Time at which the forwarder was last asked whether the request was executed elsewhere.
    pub(super) forwarder_asked_at: Option<Instant>,
}

impl NonceInFlight {
    /// Creates the state of a nonce just signed for, or loaded from the store.
    pub(super) fn new(assignment: NonceAssignment, head: u64) -> Self {
        let now = Instant::now();
        Self {
            assignment,
            verdict: BroadcastVerdict::Unknown,
            sent: (now, head),
            opened_at: now,
            signed_at: now,
            forwarder_asked_at: None,
        }
    }
}

#[derive(Debug)]
pub(super) enum NonceState {
    /// Signed and sent; not mined as far as the chain says.
    Open(NonceInFlight),
    /// The chain has counted it as used since then, and no receipt of ours is known: late, or foreign.
    Unconfirmed {
        /// Its signed transactions.
        in_flight: NonceInFlight,
        /// Time at which it came into this state.
        since: Instant,
        /// True once a receipt was looked for in this state.
        looked_up: bool,
    },
    /// Given up: used by a foreign transaction.
    Lost {
        /// Time at which it came into this state.
        since: Instant,
        /// Time of the next lookup of its receipts.
        next_look: Instant,
        /// True if the chain counted it as used at the last lookup: an abandoned one may not be yet.
        is_used: bool,
    },
}

impl NonceState {
    /// Returns its transactions, if they wait to be mined.
    pub(super) const fn in_flight(&self) -> Option<&NonceInFlight> {
        match self {
            Self::Open(in_flight) | Self::Unconfirmed { in_flight, .. } => Some(in_flight),
            Self::Lost { .. } => None,
        }
    }

    /// Returns its transactions to be changed, if they wait to be mined.
    pub(super) const fn in_flight_mut(&mut self) -> Option<&mut NonceInFlight> {
        match self {
            Self::Open(in_flight) | Self::Unconfirmed { in_flight, .. } => Some(in_flight),
            Self::Lost { .. } => None,
        }
    }

    /// Returns the state after a read of the mined count, which includes this nonce if `used`.
    pub(super) fn counted(self, used: bool, now: Instant) -> Self {
        match (self, used) {
            (Self::Open(in_flight), true) => Self::Unconfirmed { in_flight, since: now, looked_up: false },
            (Self::Unconfirmed { in_flight, .. }, false) => Self::Open(in_flight),
            (state, _) => state,
        }
    }

    /// Returns the state after a foreign transaction used the nonce; only from `Unconfirmed`.
    pub(super) fn lost(self, now: Instant) -> Self {
        match self {
            Self::Unconfirmed { .. } => {
                Self::Lost { since: now, next_look: now + FIRST_LOST_LOOK, is_used: true }
            }
            state => state,
        }
    }

    /// Returns the state after a lookup without a receipt; `is_used` if the chain counts the nonce.
    pub(super) fn still_lost(self, is_used: bool, now: Instant) -> Self {
        match self {
            Self::Lost { since, .. } => {
                Self::Lost { since, next_look: now + (now - since).max(FIRST_LOST_LOOK), is_used }
            }
            state => state,
        }
    }

    /// Returns the state of a nonce given up before, or without its key: it is looked up at once.
    pub(super) fn given_up() -> Self {
        let now = Instant::now();
        Self::Lost { since: now, next_look: now, is_used: false }
    }

    /// Returns the state after a mined or lost nonce became unused: its transactions wait again.
    pub(super) const fn reopened(in_flight: NonceInFlight) -> Self {
        Self::Open(in_flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> NonceState {
        let assignment = NonceAssignment { nonce: 7, relay: None, transactions: Vec::new() };
        NonceState::Open(NonceInFlight::new(assignment, 1))
    }

    #[tokio::test(start_paused = true)]
    async fn a_count_moves_between_open_and_unconfirmed_and_only_what_is_unconfirmed_can_be_lost() {
        let now = Instant::now();
        let later = now + Duration::from_secs(9);
        assert!(matches!(open().counted(false, now), NonceState::Open(_)));
        // Patience starts once.
        for unconfirmed in [open().counted(true, now), open().counted(true, now).counted(true, later)] {
            assert!(matches!(unconfirmed, NonceState::Unconfirmed { since, .. } if since == now));
            assert!(matches!(unconfirmed.counted(false, later), NonceState::Open(_)));
        }
        for used in [true, false] {
            let lost = open().counted(true, now).lost(now);
            assert!(matches!(lost.counted(used, later), NonceState::Lost { .. }));
        }
        assert!(matches!(open().lost(now), NonceState::Open(_)));
        assert!(open().counted(true, now).lost(now).in_flight().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lost_nonce_is_looked_up_less_and_less_often() {
        let now = Instant::now();
        let mut state = open().counted(true, now).lost(now);
        let mut looks = Vec::new();
        for _ in 0..4 {
            let NonceState::Lost { next_look, .. } = state else { panic!("not lost") };
            looks.push((next_look - now).as_secs());
            state = state.still_lost(true, next_look);
        }
        assert_eq!(looks, [60, 120, 240, 480]);
    }
}
