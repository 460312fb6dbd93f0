//! The account's mined count: what the chain has counted makes room in the pool, before any receipt is read.
//!
//! A count that may make room in a full pool is read together with the pending count, which the relays that
//! wait for room need for their nonces.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Sender, SenderError, nonce_state::NonceState};
use crate::chain::{ChainNode, RpcError};

/// Time after a new block for which another one is taken for the same: the senders do not call one another
/// again and again.
const SAME_BLOCK: Duration = Duration::from_millis(200);
/// Time for which a pending count is good that was read beside the mined one.
const AT_HAND: Duration = Duration::from_secs(1);
/// Time for which a batch waits for relays that the same count has made room for.
const GATHER: Duration = Duration::from_millis(10);

impl<N: ChainNode> Sender<N> {
    /// Reads the mined count. Returns it, and whether it includes nonces that it did not before; `None` while
    /// the account is not this daemon's. `with_pending` reads the pending count beside it: relays that wait
    /// for room need that next.
    ///
    /// # Errors
    /// [`SenderError`]; the next count goes on.
    pub(super) async fn count(&self, with_pending: bool) -> Result<Option<(u64, bool)>, SenderError> {
        if !self.parts.lease.is_valid() {
            return Ok(None);
        }
        let (node, account, at) = (&self.parts.node, self.account(), Instant::now());
        let mined = if with_pending {
            let (mined, pending) = tokio::join!(node.mined_nonce(account), node.pending_nonce(account));
            self.state().pending = pending.ok().map(|count| (count, at));
            mined?
        } else {
            node.mined_nonce(account).await?
        };
        if self.state().highest_mined.is_some_and(|highest| mined <= highest) {
            self.count_fell.notify_one();
        }
        Ok(Some((mined, self.counted(mined))))
    }

    /// Notes a mined count: what it includes waits in the pool no more. Returns whether it includes nonces
    /// that it did not before.
    pub(super) fn counted(&self, mined: u64) -> bool {
        let now = Instant::now();
        let mut has_grown = false;
        for nonce in self.in_flight_nonces() {
            let was_open = matches!(self.state().nonces.get(&nonce), Some(NonceState::Open(_)));
            has_grown |= was_open && nonce < mined;
            self.change(nonce, |state| state.counted(nonce < mined, now));
        }
        if has_grown {
            self.saw_block();
            self.made_room();
        }
        has_grown
    }

    /// Tells the other senders to look as well: the chain has counted more of the account's transactions.
    fn saw_block(&self) {
        self.parts.block.send_if_modified(|last| {
            let is_new = last.elapsed() >= SAME_BLOCK;
            if is_new {
                *last = Instant::now();
            }
            is_new
        });
    }

    /// Returns the chain's pending count: the one that was read while the pool was full, after a wait for
    /// other relays of the batch, or one read now.
    pub(super) async fn pending_count(&self) -> Result<u64, RpcError> {
        let read = self.state().pending.take().filter(|(_, at)| at.elapsed() < AT_HAND);
        let Some((count, _)) = read else { return self.parts.node.pending_nonce(self.account()).await };
        sleep(GATHER).await;
        Ok(count)
    }
}
