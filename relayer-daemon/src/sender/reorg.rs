//! Reorganisations: what was mined may not stay mined.
//!
//! Mostly the chain says so itself: it counts fewer transactions of ours than the journal. One that was undone
//! in silence, its nonce used again at once, is found by looking each receipt up once more after a while.

use std::time::Duration;

use tokio::time::Instant;

use super::{Event, Sender, Trouble};
use crate::{chain::Node, store::MinedNonce, transaction::SignedTransaction};

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
            let account = self.wallet.address();
            let undone = self.store.run(move |store| store.mined_from(account, mined, head)).await?;
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
            let account = self.wallet.address();
            let before = self.store.run(move |store| store.mined(account, nonce)).await?;
            if let Some(before) = before {
                match self.find_receipt(&before.assignment).await? {
                    Some((_, _, receipt))
                        if (receipt.hash, receipt.block_number)
                            == (before.inclusion.tx_hash, before.inclusion.block_number) => {}
                    Some((_, purpose, receipt)) => {
                        let (_, event) = self.settle(&before.assignment, purpose, &receipt).await?;
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
    async fn doubt(&mut self, before: MinedNonce) -> Result<(), Trouble> {
        self.head = self.node.market().await?.head;
        if self.head < before.inclusion.block_number {
            self.unconfirmed.push_back((before.assignment.nonce, Instant::now()));
            return Ok(());
        }
        self.take_back(vec![before]).await
    }

    /// Nonces seen mined are not mined any more, or not by us: their bytes are sent again.
    async fn take_back(&mut self, undone: Vec<MinedNonce>) -> Result<(), Trouble> {
        let mut nonces = Vec::new();
        for MinedNonce { assignment: slot, inclusion } in undone {
            let (nonce, relay) = (slot.nonce, slot.relay);
            let worst = slot.transactions.iter().map(SignedTransaction::worst_case).max().unwrap_or_default();
            let worst = worst.saturating_add(relay.map(|relay| relay.l1_fee_wei).unwrap_or_default());
            let account = self.wallet.address();
            self.store.run(move |store| store.reopen(account, nonce, worst)).await?;
            self.metrics.reorganised.inc();
            tracing::warn!(nonce, tx = %inclusion.tx_hash, block = inclusion.block_number, head = self.head, "a reorganisation took this nonce back");
            self.track(slot);
            nonces.push(nonce);
            if let Some(relay) = relay {
                self.tell(Event::Reopened(relay));
            }
        }
        let account = self.wallet.address();
        self.highest_mined = self.store.run(move |store| store.highest_mined(account)).await?;
        self.send(&nonces).await;
        Ok(())
    }
}
