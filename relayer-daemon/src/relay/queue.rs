//! The queue of a signer's requests: what a relay waits for before it is the next one.
//!
//! Requests n and n+1 may be sent together and arrive in any order. A relay waits for a predecessor in flight
//! to end, and a moment for one that has not arrived yet.

use std::time::Duration;

use alloy::primitives::{B256, U256};
use futures_util::future::BoxFuture;
use tokio::time::{Instant, timeout, timeout_at};

use super::inflight::Inflight;
use crate::store::NewRelay;

/// Time that a request waits for its predecessor to arrive.
const ARRIVAL: Duration = Duration::from_secs(3);
/// Time for which the node may lag behind a nonce that a receipt has proved.
const NODE_LAG: Duration = Duration::from_secs(5);
/// The pause before a lagging node is asked again.
const LAG_PAUSE: Duration = Duration::from_millis(500);
/// Interval at which other daemons' arrivals are looked for.
const LOOK: Duration = Duration::from_millis(250);
/// Interval at which a waiting relay looks for its predecessors again: a reorg may have changed the order.
const REORDER: Duration = Duration::from_secs(10);
/// Number of nonces that a request may be ahead of the chain.
const FARTHEST: u64 = 64;

/// A relay's position in its signer's queue.
#[derive(Debug)]
pub(super) struct QueuePosition {
    /// Time until which the predecessor may arrive, counted from the first read of the chain that lacks it: a
    /// busy daemon may take longer than that for the read.
    arrival_deadline: Option<Instant>,
    /// Time at which the predecessor used its nonce, if it did.
    followed: Option<Instant>,
    /// True if the predecessor ended without using its nonce.
    orphaned: bool,
}

impl QueuePosition {
    pub(super) fn new() -> Self {
        Self { arrival_deadline: None, followed: None, orphaned: false }
    }

    /// Waits until nothing in flight comes before this relay, and takes the turn. Returns `false` without the
    /// turn if the relay no longer `stays` at this daemon. `look` adds what comes before it at other daemons.
    pub(super) async fn wait_for_predecessor<'a>(
        &mut self,
        inflight: &Inflight,
        id: B256,
        look: impl Fn() -> BoxFuture<'a, ()>,
        stays: impl Fn() -> bool,
    ) -> bool {
        inflight.give_turn_back(id);
        look().await;
        while let Some(mut before) = inflight.take_turn(id) {
            let Ok(ended) = timeout(REORDER, before.wait_for(Option::is_some)).await else {
                if !stays() {
                    return false;
                }
                look().await;
                continue;
            };
            self.orphaned =
                ended.ok().and_then(|outcome| outcome.clone()).is_none_or(|outcome| outcome.is_repeatable());
            self.followed = (!self.orphaned).then(Instant::now);
        }
        true
    }

    /// Waits after the chain has refused the request. Returns `true` once it may have become valid, because
    /// its predecessor arrived or the node caught up; `false` if it never will. `look` adds predecessors that
    /// have arrived at other daemons.
    pub(super) async fn becomes_valid<'a>(
        &mut self,
        inflight: &Inflight,
        relay: &NewRelay,
        on_chain: U256,
        look: impl Fn() -> BoxFuture<'a, ()>,
    ) -> bool {
        let ahead = relay.forward_nonce.checked_sub(on_chain).filter(|ahead| !ahead.is_zero());
        if ahead.is_none_or(|ahead| ahead > U256::from(FARTHEST)) {
            return false;
        }
        if let Some(followed) = self.followed {
            // The predecessor is mined, and the node lags behind.
            tokio::time::sleep(LAG_PAUSE).await;
            return followed.elapsed() < NODE_LAG;
        }
        if self.orphaned {
            return false;
        }
        let deadline = *self.arrival_deadline.get_or_insert_with(|| Instant::now() + ARRIVAL);
        let mut arrivals = inflight.arrivals();
        loop {
            if inflight.predecessor(relay.id).is_some() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            let next_look = deadline.min(Instant::now() + LOOK);
            // An arrival, or time for another look.
            let _ = timeout_at(next_look, arrivals.changed()).await;
            look().await;
        }
    }
}
