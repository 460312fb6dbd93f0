//! Start-up: whatever died when, every journalled nonce is accounted for before a request is accepted.

use tokio::time::Instant;

use super::{Sender, Trouble, reorg::CONFIRM_BACKLOG};
use crate::{chain::Node, transaction::NonceAssignment};

impl<N: Node> Sender<N> {
    /// Takes over the journal's open nonces: takes in what was mined meanwhile, sends the rest again (a node
    /// that has a transaction says so, so sending is the look-up), and fills holes. Returns the nonces that are
    /// still in flight.
    ///
    /// # Errors
    /// [`Trouble`]: then the daemon must not accept requests.
    pub async fn recover(&mut self) -> Result<Vec<NonceAssignment>, Trouble> {
        let account = self.wallet.address();
        self.highest_mined = self.store.run(move |store| store.highest_mined(account)).await?;
        let since = self.clock.now().saturating_sub(CONFIRM_BACKLOG);
        let recent = self.store.run(move |store| store.mined_since(account, since)).await?;
        self.unconfirmed = recent.into_iter().map(|nonce| (nonce, Instant::now())).collect();
        let market = self.node.market().await?;
        self.head = market.head;
        for slot in self.store.run(move |store| store.open_nonces(account)).await? {
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
