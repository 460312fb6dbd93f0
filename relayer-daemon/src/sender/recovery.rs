//! Recovery at start: every stored nonce is accounted for before a request is accepted.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::{Sender, SenderError, SenderEvent, nonce_state::NonceState, unless_unsigned};
use crate::{
    chain::ChainNode,
    store::{RelayTerms, Store},
};

impl<N: ChainNode> Sender<N> {
    /// Takes up nonces that are open in a shared store and not here, as after a failover that lost what ended
    /// them. What was written just now may not be here yet: it is taken up at the next look.
    ///
    /// # Errors
    /// [`SenderError`]; the next look goes on.
    pub(super) async fn take_up_open(&self) -> Result<(), SenderError> {
        let may_send = self.parts.lease.is_valid() && self.parts.wallet.has_key();
        if !self.parts.store.is_shared() || !may_send {
            return Ok(());
        }
        let account = self.account();
        let open = self.parts.store.run(move |store| store.open_nonces_at(account)).await?;
        let due: BTreeSet<u64> = {
            let mut state = self.state();
            let in_flight = |nonce: &u64| state.nonces.get(nonce).and_then(NonceState::in_flight).is_some();
            let unknown: BTreeSet<u64> = open.into_iter().filter(|nonce| !in_flight(nonce)).collect();
            let due = unknown.intersection(&state.unknown).copied().collect();
            state.unknown = unknown;
            due
        };
        for nonce in due {
            let assignment = self.parts.store.run(move |store| store.assignment(account, nonce)).await?;
            tracing::warn!(%account, nonce, "open in the journal, which has lost its end: taken up again");
            let relay = assignment.relay;
            self.open(vec![assignment]);
            relay.into_iter().for_each(|relay| self.publish(SenderEvent::Reopened(relay)));
            self.sent.notify_one();
        }
        Ok(())
    }

    /// Loads what the store has of nonces that are not in flight.
    ///
    /// # Errors
    /// [`SenderError`]; the next try goes on.
    pub(super) async fn take_up_ended(&self) -> Result<(), SenderError> {
        let account = self.account();
        let read = move |store: &Store| Ok((store.highest_mined(account)?, store.lost(account)?));
        let (highest_mined, lost) = self.parts.store.run(read).await?;
        self.took_up(highest_mined, lost);
        Ok(())
    }

    /// Takes up what an operator has given up meanwhile of an account without its key. One with a key gets
    /// another sender then.
    ///
    /// # Errors
    /// [`SenderError`]; the next look goes on.
    pub(super) async fn take_up_given_up(&self) -> Result<(), SenderError> {
        if self.parts.wallet.has_key() {
            return Ok(());
        }
        let account = self.account();
        let lost = self.parts.store.run(move |store| store.lost(account)).await?;
        let mut state = self.state();
        for nonce in lost {
            state.nonces.entry(nonce).or_insert_with(NonceState::given_up);
        }
        Ok(())
    }

    fn took_up(&self, highest_mined: Option<u64>, lost: Vec<u64>) {
        let mut state = self.state();
        state.highest_mined = highest_mined;
        state.nonces.extend(lost.into_iter().map(|nonce| (nonce, NonceState::given_up())));
    }

    /// Loads the store's open nonces: settles what was mined meanwhile, sends the rest again (a node that has
    /// a transaction says so), and fills gaps. Returns the relays still in flight, without those that another
    /// nonce of their own has ended after the first was given up as lost.
    ///
    /// # Errors
    /// [`SenderError`]: then the daemon must not accept requests.
    pub async fn recover(&self) -> Result<Vec<RelayTerms>, SenderError> {
        let account = self.account();
        let read = move |store: &Store| {
            Ok((store.highest_mined(account)?, store.lost(account)?, store.open_nonces(account)?))
        };
        let (highest_mined, lost, open) = self.parts.store.run(read).await?;
        let market = self.parts.node.market().await?;
        self.saw_head(market.head);
        self.took_up(highest_mined, lost);
        let taken_over = open.len();
        self.open(open);
        let mined = self.watch_count().await?;
        self.counted(mined);
        self.collect_receipts().await;

        let nonces: Vec<u64> = self.in_flight_nonces().into_iter().filter(|nonce| *nonce >= mined).collect();
        self.send(&nonces).await;
        unless_unsigned(self.fill_gap(mined, &market).await)?;
        let in_flight: Vec<Option<RelayTerms>> = {
            let state = self.state();
            let in_flight = state.nonces.values().filter_map(NonceState::in_flight);
            in_flight.map(|in_flight| in_flight.assignment.relay).collect()
        };
        tracing::info!(
            account = %self.account(),
            open = taken_over,
            in_flight = in_flight.len(),
            resent = nonces.len(),
            "journal recovered"
        );
        self.state().health.round_at = Some(Instant::now());
        let relays: Vec<RelayTerms> = in_flight.into_iter().flatten().collect();
        let read = move |store: &Store| {
            let mut pending = Vec::with_capacity(relays.len());
            for relay in relays {
                if store.relay(relay.id)?.is_none_or(|record| record.outcome.is_none()) {
                    pending.push(relay);
                }
            }
            Ok(pending)
        };
        Ok(self.parts.store.run(read).await?)
    }
}
