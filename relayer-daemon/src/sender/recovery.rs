//! Recovery at start: every stored nonce is accounted for before a request is accepted.

use tokio::time::Instant;

use super::{GROUP, Sender, SenderError, nonce_state::NonceState, reorganisation::REORGANISATION_SECONDS};
use crate::{
    chain::ChainNode,
    store::{NonceAssignment, RelayTerms, Store},
};

impl<N: ChainNode> Sender<N> {
    /// Loads the store's open nonces: settles what was mined meanwhile, sends the rest again (a node that has
    /// a transaction says so), and fills gaps. Returns the relays still in flight, without those that another
    /// nonce of their own has ended after the first was given up as lost.
    ///
    /// # Errors
    /// [`SenderError`]: then the daemon must not accept requests.
    pub async fn recover(&mut self) -> Result<Vec<RelayTerms>, SenderError> {
        let (account, since) =
            (self.account(), self.parts.clock.now().saturating_sub(REORGANISATION_SECONDS));
        let read = move |store: &Store| {
            Ok((
                store.highest_mined(account)?,
                store.mined_since(account, since)?,
                store.lost(account)?,
                store.open_nonces(account)?,
            ))
        };
        let (highest_mined, recent, lost, open) = self.parts.store.run(read).await?;
        let market = self.parts.node.market().await?;
        let now = Instant::now();
        self.highest_mined = highest_mined;
        self.head = market.head;
        // The newest are confirmed in any case: the wall clock may have been set since.
        let newest = highest_mined.map(|highest| highest.saturating_sub(GROUP as u64)..=highest);
        let recent = recent.into_iter().chain(newest.into_iter().flatten());
        self.nonces.extend(recent.map(|nonce| (nonce, NonceState::mined(now))));
        let lost = lost.into_iter().map(|nonce| (nonce, NonceState::Lost { since: now, next_look: now }));
        self.nonces.extend(lost);
        let taken_over = open.len();
        self.open(open);
        let mined = self.watch_chain().await?;
        self.collect_receipts(mined).await;

        let nonces: Vec<u64> = self.in_flight_nonces().into_iter().filter(|nonce| *nonce >= mined).collect();
        self.send(&nonces).await;
        self.fill_gap(mined, &market).await?;
        let in_flight: Vec<&NonceAssignment> = self
            .nonces
            .values()
            .filter_map(NonceState::in_flight)
            .map(|in_flight| &in_flight.assignment)
            .collect();
        tracing::info!(
            open = taken_over,
            in_flight = in_flight.len(),
            resent = nonces.len(),
            "journal recovered"
        );
        let mut relays: Vec<RelayTerms> =
            in_flight.into_iter().filter_map(|assignment| assignment.relay).collect();
        let ended = self.ended(relays.iter().map(|relay| relay.id).collect()).await?;
        relays.retain(|relay| !ended.contains(&relay.id));
        Ok(relays)
    }
}
