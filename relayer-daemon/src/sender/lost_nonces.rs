//! Used nonces without a known receipt of ours: the receipt is late, or the key is used elsewhere.
//!
//! A nonce is given up as lost when, after [`PATIENCE`], no endpoint has a receipt of any of its hashes, and
//! one block's state shows the nonce used and the request not executed: however stale the view, no
//! transaction with this nonce has executed it. If the request was executed, or an endpoint does not answer,
//! the nonce stays unconfirmed for [`LONGEST_PATIENCE`].
//!
//! A lost nonce is looked up again with exponential backoff; a late receipt is settled and charged. What the
//! nonce may cost stays reserved for a day.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    GROUP, LONGEST_PATIENCE, PATIENCE, Sender, SenderEvent,
    nonce_state::NonceState,
    receipt_collection::{Lookup, LookupRound, look_up},
};
use crate::{chain::ChainNode, store::RelayTerms};

/// Time for which a lost nonce is looked up.
const FORGET_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

impl<N: ChainNode> Sender<N> {
    /// Gives up nonces that foreign transactions have used. Their relays run through the pipeline again.
    pub(super) async fn give_up_lost(&self, collected: &LookupRound) {
        let due: Vec<(u64, Option<RelayTerms>, Duration)> = self
            .state()
            .nonces
            .iter()
            .filter_map(|(nonce, state)| match state {
                NonceState::Unconfirmed { in_flight, since, .. } if since.elapsed() >= PATIENCE => {
                    Some((*nonce, in_flight.assignment.relay, since.elapsed()))
                }
                _ => None,
            })
            .take(GROUP)
            .collect();
        for (nonce, relay, waited) in due {
            let absent = collected.absent.contains(&nonce);
            if !(absent || waited >= LONGEST_PATIENCE) || !self.is_lost(nonce, relay, waited).await {
                continue;
            }
            let (account, payer, now) = (self.account(), self.payer(), self.parts.clock.now());
            if let Err(error) = self.parts.store.run(move |store| store.lose(payer, nonce, now)).await {
                tracing::error!(nonce, %error, "a lost nonce is not written down");
                continue;
            }
            self.parts.metrics.foreign_nonces.with_label_values(&[account.to_string().as_str()]).inc();
            tracing::error!(%account, nonce, "a transaction that is not ours used this nonce: who else has the key?");
            self.change(nonce, |state| state.lost(Instant::now()));
            if let Some(relay) = relay {
                self.publish(SenderEvent::Requeue(relay.id));
            }
        }
    }

    /// Returns whether one block's state shows that no transaction with this nonce has executed its relay.
    async fn is_lost(&self, nonce: u64, relay: Option<RelayTerms>, waited: Duration) -> bool {
        let view = match self.parts.node.account_view(self.account(), relay.map(|relay| relay.signer)).await {
            Ok(view) => view,
            Err(error) => {
                tracing::warn!(nonce, %error, "whether this nonce is lost is unknown");
                return false;
            }
        };
        if view.mined_nonce <= nonce {
            return false;
        }
        let executed = relay.is_some_and(|relay| view.has_used(relay.forward_nonce));
        !executed || waited >= LONGEST_PATIENCE
    }

    /// Looks up the lost nonces that are due, or that the chain counts since the last lookup.
    pub(super) async fn look_up_lost(&self, mined: u64) {
        let now = Instant::now();
        let due: Vec<(u64, Instant)> = self
            .state()
            .nonces
            .iter()
            .filter_map(|(nonce, state)| match state {
                NonceState::Lost { since, next_look, is_used }
                    if *next_look <= now || !is_used && *nonce < mined =>
                {
                    Some((*nonce, *since))
                }
                _ => None,
            })
            .take(GROUP)
            .collect();
        let account = self.account();
        for (nonce, since) in due {
            let assignment = match self.parts.store.run(move |store| store.assignment(account, nonce)).await {
                Ok(assignment) => assignment,
                Err(error) => {
                    tracing::warn!(nonce, %error, "a lost nonce is not looked up");
                    continue;
                }
            };
            if let Lookup::Found(purpose, receipt) = look_up(&*self.parts.node, &assignment, true).await {
                tracing::warn!(nonce, tx = %receipt.hash, "taken for lost, but it is ours: its receipt was late");
                let written = self.settle(&assignment, purpose, &receipt).await;
                self.settled(nonce, written);
            } else if since.elapsed() >= FORGET_AFTER {
                self.state().nonces.remove(&nonce);
            } else {
                self.change(nonce, |state| state.still_lost(nonce < mined, now));
            }
        }
    }
}
