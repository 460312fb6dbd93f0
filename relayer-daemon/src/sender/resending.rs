//! Sending a transaction: first, as a rebroadcast, and as a replacement.

use futures_util::{FutureExt as _, StreamExt as _, future::join_all, stream};
use tokio::time::Instant;

use super::{
    GROUP, Sender, SenderError,
    nonce_state::NonceState,
    replacement_policy::{ReplacementStep, Situation, next_step},
};
use crate::{
    chain::{BroadcastVerdict, ChainNode},
    gas::fees::{Fees, Market},
    process::faults,
    store::TransactionPurpose,
};

impl<N: ChainNode> Sender<N> {
    /// Rebroadcasts what has waited long enough, and replaces or cancels what the market has outgrown, lowest
    /// nonce first.
    pub(super) async fn resend_and_replace(&self, market: &Market) -> Result<(), SenderError> {
        let nonces: Vec<u64> = {
            let state = self.state();
            let open = state.nonces.iter().filter(|(_, state)| matches!(state, NonceState::Open(_)));
            open.map(|(nonce, _)| *nonce).collect()
        };
        let lowest = nonces.first().copied();
        let steps: Vec<_> = nonces
            .into_iter()
            .map(|nonce| self.decide(nonce, Some(nonce) == lowest, market).boxed())
            .collect();
        let steps: Vec<Result<_, SenderError>> = stream::iter(steps).buffered(GROUP).collect().await;
        let (mut resend, mut replaced, mut result) = (Vec::new(), Vec::new(), Ok(()));
        for step in steps {
            let signed = match step {
                Err(error) => Err(error),
                Ok((_, ReplacementStep::Wait | ReplacementStep::AskForwarder)) => continue,
                Ok((nonce, ReplacementStep::Resend)) => {
                    resend.push(nonce);
                    continue;
                }
                Ok((nonce, ReplacementStep::Replace(fees))) => self.replace(nonce, fees, None).await,
                Ok((nonce, ReplacementStep::Cancel(purpose, fees))) => {
                    self.replace(nonce, fees, Some(purpose)).await
                }
            };
            match signed {
                Ok(Some(nonce)) => replaced.push(nonce),
                Ok(None) => {}
                // The log has it. The signed ones go out again as they are.
                Err(SenderError::Signing(_)) => {}
                // The others are sent all the same.
                Err(error) => result = Err(error),
            }
        }
        self.parts.metrics.resends.inc_by(resend.len() as u64);
        if !replaced.is_empty() {
            faults::point("before_replacement_send");
            self.send(&replaced).await;
        }
        self.send(&resend).await;
        result
    }

    /// Decides the next step of a nonce, after asking the forwarder if need be.
    async fn decide(
        &self,
        nonce: u64,
        is_lowest: bool,
        market: &Market,
    ) -> Result<(u64, ReplacementStep), SenderError> {
        let step = self.step(nonce, is_lowest, market, None);
        if step != ReplacementStep::AskForwarder {
            return Ok((nonce, step));
        }
        let superseded = self.is_superseded(nonce).await?;
        Ok((nonce, self.step(nonce, is_lowest, market, Some(superseded))))
    }

    fn step(
        &self,
        nonce: u64,
        is_lowest: bool,
        market: &Market,
        superseded: Option<bool>,
    ) -> ReplacementStep {
        let state = self.state();
        let Some(NonceState::Open(in_flight)) = state.nonces.get(&nonce) else {
            return ReplacementStep::Wait;
        };
        let (sent_at, sent_head) = in_flight.sent;
        let since_signed = in_flight.signed_at.elapsed();
        next_step(&Situation {
            assignment: &in_flight.assignment,
            verdict: in_flight.verdict,
            is_lowest,
            blocks_since_send: market.head.saturating_sub(sent_head),
            since_send: sent_at.elapsed(),
            since_signed,
            since_forwarder_asked: in_flight.forwarder_asked_at.map_or(since_signed, |at| at.elapsed()),
            market: *market,
            cap: self.parts.spending.max_fee,
            now: self.parts.clock.now(),
            superseded,
            is_cancelled: in_flight
                .assignment
                .relay
                .is_some_and(|relay| self.parts.orders.current().cancelled.contains(&relay.id)),
        })
    }

    /// Returns whether a nonce's request was executed elsewhere: at one block its forwarder nonce is used and
    /// ours is not.
    async fn is_superseded(&self, nonce: u64) -> Result<bool, SenderError> {
        self.update(nonce, |in_flight| in_flight.forwarder_asked_at = Some(Instant::now()));
        let Some(relay) = self.assignment(nonce).and_then(|assignment| assignment.relay) else {
            return Ok(false);
        };
        let view = self.parts.node.account_view(self.account(), Some(relay.signer)).await?;
        Ok(view.has_used(relay.forward_nonce) && view.mined_nonce <= nonce)
    }

    /// Signs a replacement: the same call, or a no-op for the reason `cancel`. If the budget does not allow
    /// it, or the signer has failed, the old bytes are to be sent again. Returns the nonce if there is
    /// anything to send.
    async fn replace(
        &self,
        nonce: u64,
        fees: Fees,
        cancel: Option<TransactionPurpose>,
    ) -> Result<Option<u64>, SenderError> {
        let Some(assignment) = self.assignment(nonce) else { return Ok(None) };
        let Some(latest) = assignment.latest() else { return Ok(None) };
        if self.has_signer_failed() {
            return Ok(Some(nonce));
        }
        let replacement =
            match cancel.or((latest.purpose != TransactionPurpose::Relay).then_some(latest.purpose)) {
                Some(purpose) => self.parts.wallet.no_op(nonce, fees, purpose).await,
                None => self.parts.wallet.relay_again(nonce, latest, fees).await,
            };
        let replacement = self.noted(replacement)?;
        let mut replaced = assignment.clone();
        replaced.transactions.push(replacement.clone());
        let wei = replaced.expected_wei();
        let allowed = match assignment.relay {
            Some(relay) => {
                // As with the first transaction, a no-op for a gap below must fit beside it.
                let limit = self.parts.spending.daily_wei.saturating_sub(self.parts.wallet.no_op_wei(fees));
                let (payer, now) = (self.payer(), self.parts.clock.now());
                self.record_if_allowed(&replaced, move |store, replacement| {
                    store.record_replacement(payer, relay.id, replacement, wei, limit, now)
                })
                .await?
            }
            None => self.record_gap(&replaced, wei.saturating_sub(assignment.expected_wei())).await?,
        };
        if allowed {
            self.note_signed(&replaced);
            self.parts.metrics.replacements.inc();
            self.update(nonce, |in_flight| {
                in_flight.assignment.transactions.push(replacement);
                in_flight.signed_at = Instant::now();
            });
        } else {
            tracing::warn!(nonce, "the budget does not allow a replacement");
        }
        Ok(Some(nonce))
    }

    /// Sends the latest transaction of each of these nonces, a bounded number at once, while the account is
    /// this daemon's.
    pub(super) async fn send(&self, nonces: &[u64]) {
        let latest = |nonce: &u64| {
            let state = self.state();
            Some((*nonce, state.nonces.get(nonce)?.in_flight()?.assignment.latest()?.clone()))
        };
        for group in nonces.chunks(GROUP) {
            if !self.parts.lease.is_valid() {
                tracing::warn!(account = %self.account(), ?group, "not sent: the account's lease is over");
                return;
            }
            let sends = group.iter().filter_map(latest).map(|(nonce, transaction)| async move {
                let (verdict, text) = self.parts.node.broadcast(&transaction.raw).await;
                (nonce, transaction.hash, verdict, text)
            });
            for (nonce, hash, verdict, text) in join_all(sends).await {
                if verdict == BroadcastVerdict::Accepted {
                    tracing::debug!(nonce, tx = %hash, "sent");
                } else {
                    tracing::warn!(nonce, tx = %hash, ?verdict, node = %text, "sent, but not accepted");
                }
                let head = self.state().head;
                self.update(nonce, |in_flight| {
                    // Another loop may have replaced it meanwhile.
                    if in_flight.assignment.latest().is_some_and(|latest| latest.hash == hash) {
                        in_flight.verdict = verdict;
                        in_flight.sent = (Instant::now(), head);
                    }
                });
            }
        }
    }
}
