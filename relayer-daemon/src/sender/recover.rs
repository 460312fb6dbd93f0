//! Start-up: whatever died when, every journalled nonce is accounted for before a request is accepted.

use tokio::time::Instant;

use super::{Sender, Trouble, reorg::CONFIRM_BACKLOG, slot::Slot};
use crate::{chain::Node, journal::Journal};

impl<N: Node> Sender<N> {
    /// Takes over the journal's open nonces: takes in what was mined meanwhile, sends the rest again (a node
    /// that has a transaction says so, so sending is the look-up), and fills holes. Returns the nonces that are
    /// still in flight.
    ///
    /// # Errors
    /// [`Trouble`]: then the daemon must not accept requests.
    pub async fn recover(&mut self) -> Result<Vec<Slot>, Trouble> {
        self.highest_mined = self.journal.run(Journal::highest_mined).await?;
        let since = self.clock.now().saturating_sub(CONFIRM_BACKLOG);
        let recent = self.journal.run(move |journal| journal.mined_since(since)).await?;
        self.unconfirmed = recent.into_iter().map(|nonce| (nonce, Instant::now())).collect();
        let market = self.node.market().await?;
        self.head = market.head;
        for slot in self.journal.run(Journal::open_slots).await? {
            self.track(slot);
        }
        let open = self.slots.len();
        let mined = self.watch_chain().await?;
        self.collect(mined).await?;

        let nonces: Vec<u64> = self.slots.keys().copied().filter(|nonce| *nonce >= mined).collect();
        self.send(&nonces).await;
        self.fill_hole(mined, &market).await?;
        tracing::info!(
            open,
            mined = open.saturating_sub(self.slots.len()),
            resent = nonces.len(),
            "journal recovered"
        );
        Ok(self.slots.values().map(|tracked| tracked.slot.clone()).collect())
    }
}
