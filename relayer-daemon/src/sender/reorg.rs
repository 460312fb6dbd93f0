//! Reorganisations: what was mined may not stay mined.
//!
//! Mostly the chain says so itself: it counts fewer transactions of ours than the journal. One that was undone
//! in silence, its nonce used again at once, is found by looking each receipt up once more after a while.

use std::time::Duration;

use tokio::time::Instant;

use super::{Event, Sender, Trouble, worst_case};
use crate::{
    chain::Node,
    journal::{Journal, MinedSlot},
};

/// After how long a receipt is looked up once more: what is undone is undone within seconds.
pub(super) const CONFIRM_AFTER: Duration = Duration::from_secs(60);
/// How far back a restart looks for receipts that were not looked up again, seconds.
pub(super) const CONFIRM_BACKLOG: u64 = 600;

impl<N: Node> Sender<N> {
    /// Asks how many of our transactions are mined, takes back what a reorganisation has undone, and confirms
    /// what was mined a while ago.
    ///
    /// # Errors
    /// [`Trouble`].
    pub async fn watch_chain(&mut self) -> Result<u64, Trouble> {
        let mined = self.node.mined_nonce().await?;
        if self.highest_mined.is_some_and(|highest| mined <= highest) {
            self.head = self.node.market().await?.head;
            let head = self.head;
            let undone = self.journal.run(move |journal| journal.mined_from(mined, head)).await?;
            self.take_back(undone).await?;
        }
        self.confirm().await?;
        Ok(mined)
    }

    /// Looks each receipt up once more, once.
    async fn confirm(&mut self) -> Result<(), Trouble> {
        while let Some((nonce, since)) = self.unconfirmed.front().copied() {
            if since.elapsed() < CONFIRM_AFTER {
                return Ok(());
            }
            let before = self.journal.run(move |journal| journal.mined_slot(nonce)).await?;
            if let Some(before) = before {
                match self.find_receipt(&before.slot).await? {
                    Some((_, _, receipt)) if (receipt.hash, receipt.block_number) == before.mined => {}
                    Some((_, purpose, receipt)) => {
                        let (_, event) = self.settle(&before.slot, purpose, &receipt).await?;
                        tracing::warn!(nonce, block = receipt.block_number, "mined anew by another block");
                        event.into_iter().for_each(|event| self.tell(event));
                    }
                    None => self.doubt(before).await?,
                }
            }
            self.unconfirmed.pop_front();
        }
        Ok(())
    }

    /// A receipt is gone. A node that is behind does not know it yet; one that is not has lost it.
    async fn doubt(&mut self, before: MinedSlot) -> Result<(), Trouble> {
        self.head = self.node.market().await?.head;
        if self.head < before.mined.1 {
            self.unconfirmed.push_back((before.slot.nonce, Instant::now()));
            return Ok(());
        }
        self.take_back(vec![before]).await
    }

    /// Nonces seen mined are not mined any more, or not by us: their bytes are sent again.
    async fn take_back(&mut self, undone: Vec<MinedSlot>) -> Result<(), Trouble> {
        let mut nonces = Vec::new();
        for MinedSlot { slot, mined: (tx, block) } in undone {
            let (nonce, order) = (slot.nonce, slot.order);
            let worst = slot.attempts.iter().map(worst_case).max().unwrap_or_default();
            let worst = worst.saturating_add(order.map(|order| order.l1_fee_wei).unwrap_or_default());
            self.journal.run(move |journal| journal.reopen(nonce, worst)).await?;
            self.metrics.reorganised.inc();
            tracing::warn!(nonce, %tx, block, head = self.head, "a reorganisation took this nonce back");
            self.track(slot);
            nonces.push(nonce);
            if let Some(order) = order {
                self.tell(Event::Reopened(order));
            }
        }
        self.highest_mined = self.journal.run(Journal::highest_mined).await?;
        self.send(&nonces).await;
        Ok(())
    }
}
