//! The pipeline's part in a fleet: relays that other daemons run, and limits that all daemons charge.
//!
//! A relay is run by the daemon that accepted it, as long as that lives and [carries](crate::sender::carrier)
//! relays. Every daemon that a client of the relay has come to follows it in the store. Where another daemon
//! carries relays they are handed over.

use std::{collections::HashSet, sync::Arc, time::Duration};

use alloy::primitives::B256;
use tokio::{sync::watch, time::Instant};

use super::{Relayer, inflight::Runner, store_failed};
use crate::{
    chain::ChainNode,
    outcome::{Failure, RelayOutcome},
    process::shutdown::{ShutdownSignal, stopped},
    relay::policy::ApiKey,
    store::{NewRelay, Store, StoreError},
};

/// Interval at which the store is asked for relays that other daemons have ended.
const FOLLOW: Duration = Duration::from_millis(250);
/// One of this many looks is made even if this daemon runs all that it has in flight.
const RARELY: u64 = 8;

/// Time at which this daemon last gave a relay away; `None` until then.
pub type HandedOver = watch::Sender<Option<Instant>>;

impl<C: ChainNode> Relayer<C> {
    /// Puts the relays that come right before this one ahead of it, also those at other daemons.
    pub(super) async fn follow_predecessors(&self, relay: &NewRelay) {
        if !self.store.is_shared() {
            return;
        }
        let read = relay.clone();
        match self.store.run(move |store| store.ahead_of(&read)).await {
            Ok(ahead) => self.inflight.follow_ahead_of(relay.id, &ahead),
            Err(error) => tracing::debug!(%error, relay = %relay.id, "other daemons' relays not read"),
        }
    }

    /// Gives a relay that was not sent to a daemon that can send it, and follows it. Returns whether that is
    /// done.
    pub async fn hand_over(&self, id: B256) -> bool {
        let now = self.clock.now();
        match self.store.run(move |store| store.hand_over(id, now)).await {
            // Or it is another's already.
            result @ (Ok(()) | Err(StoreError::HeldElsewhere)) => {
                if result.is_ok() {
                    self.handed_over.send_replace(Some(Instant::now()));
                }
                tracing::info!(relay = %id, "handed over: another daemon carries it");
                self.inflight.set_runner(id, Runner::Elsewhere);
                true
            }
            Err(StoreError::Missing("relay")) => {
                self.lost(id);
                true
            }
            Err(error) => {
                tracing::warn!(%error, relay = %id, "not handed over");
                false
            }
        }
    }

    /// Returns whether this daemon drains while another one lives, as is assumed if the store does not
    /// answer: the other one waits with relays that no account takes now.
    pub async fn drains_beside_others(&self) -> bool {
        let drains = *self.draining.borrow();
        let others = |store: &Store| Ok(store.fleet()?.daemons > 1);
        drains && self.store.is_shared() && self.store.run(others).await.unwrap_or(true)
    }

    /// Returns whether this daemon drains while a relay waits for one that another daemon runs: that one may
    /// wait for an account that is free only once the drain has ended.
    pub(super) fn leaves_with_predecessor(&self, id: B256) -> bool {
        *self.draining.borrow() && self.inflight.waits_for_another_daemon(id)
    }

    /// Hands over a relay that leaves with its predecessor, unless this daemon is alone, which then takes the
    /// predecessor. Returns whether the relay was handed over.
    pub(super) async fn follows_predecessor(&self, id: B256) -> bool {
        self.leaves_with_predecessor(id) && self.drains_beside_others().await && self.hand_over(id).await
    }

    /// Ends the relays that other daemons have ended: those they run, and those of this daemon that another
    /// one's account has carried out, as after a reorg that undid both transactions of a relay. Ends those
    /// that the store has lost, too. What this daemon itself ends is in the store a moment earlier: it is
    /// left alone when it is first seen there. `seen` are those of the last look.
    async fn look_at_ended(&self, round: u64, seen: &mut HashSet<B256>) -> Result<(), StoreError> {
        let stored = self.inflight.stored();
        if stored.is_empty() {
            seen.clear();
            return Ok(());
        }
        if seen.is_empty() && !round.is_multiple_of(RARELY) && stored.iter().all(|(_, is_here)| *is_here) {
            return Ok(());
        }
        let read = move |store: &Store| {
            let pending = store.pending()?;
            let over = stored.into_iter().filter(|(id, _)| !pending.contains(id));
            over.map(|(id, is_here)| Ok((id, is_here, store.outcome(id)?))).collect::<Result<Vec<_>, _>>()
        };
        let before = std::mem::take(seen);
        for (id, is_here, outcome) in self.store.run(read).await? {
            match outcome {
                // Accepted or reopened since the first of these reads.
                Some(None) => {}
                _ if is_here && !before.contains(&id) => drop(seen.insert(id)),
                Some(Some(outcome)) => self.ended_elsewhere(id, outcome),
                None => self.lost(id),
            }
        }
        Ok(())
    }

    /// Tells the clients of relays that the operator has cancelled, once the store has the outcome.
    pub async fn tell_cancelled(&self) -> Result<(), StoreError> {
        let orders = self.orders.current();
        let told = orders.cancelled.iter().copied().filter(|id| self.inflight.age(*id).is_some());
        for id in told.collect::<Vec<_>>() {
            if let Some(Some(outcome)) = self.store.run(move |store| store.outcome(id)).await? {
                self.ended_elsewhere(id, outcome);
            }
        }
        Ok(())
    }

    fn ended_elsewhere(&self, id: B256, outcome: RelayOutcome) {
        if let Some(signer) = self.inflight.signer(id) {
            self.reads.forwarder_nonces.forget(&signer);
        }
        self.inflight.finish(id, outcome);
    }

    /// Charges one request to the party of this name, over the fleet. Outside a fleet it is charged already.
    pub(super) async fn charge_fleet(
        &self,
        party: impl FnOnce() -> String,
        per_hour: u32,
        denied: impl FnOnce(u64) -> Failure,
    ) -> Result<(), Failure> {
        if !self.store.is_shared() || per_hour == 0 {
            return Ok(());
        }
        let party = party();
        let charged = self.store.run(move |store| store.charge_rate(party, per_hour)).await;
        charged.map_err(store_failed)?.map_err(denied)
    }

    /// Charges an API key's rate over the fleet.
    pub(super) async fn charge_key(&self, key: &ApiKey) -> Result<(), Failure> {
        let party = || format!("key {}", key.name);
        self.charge_fleet(party, key.per_hour(), |wait| key.limited(wait)).await
    }
}

/// Follows other daemons' relays until shutdown.
pub async fn follow<C: ChainNode>(relayer: Arc<Relayer<C>>, mut stop: ShutdownSignal) {
    let mut seen = HashSet::new();
    for round in 0_u64.. {
        tokio::select! {
            () = tokio::time::sleep(FOLLOW) => {}
            () = stopped(&mut stop) => return,
        }
        if let Err(error) = relayer.look_at_ended(round, &mut seen).await {
            tracing::debug!(%error, "other daemons' relays not read");
        }
    }
}
