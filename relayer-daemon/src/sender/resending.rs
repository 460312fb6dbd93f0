//! Sending a transaction: first, as a rebroadcast, and as a replacement.

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{
    GROUP, Sender, SenderError,
    nonce_state::{InFlight, NonceState},
    replacement_policy::{ReplacementStep, Situation, next_step},
};
use crate::{
    chain::{BroadcastVerdict, ChainNode},
    gas::{
        self,
        fees::{Fees, Market},
    },
    process::faults,
    store::{Store, TransactionPurpose},
};

impl<N: ChainNode> Sender<N> {
    /// Rebroadcasts what has waited long enough, and replaces or cancels the lowest nonce where that helps.
    pub(super) async fn resend_and_replace(&mut self, market: &Market) -> Result<(), SenderError> {
        let open =
            |(nonce, state): (&u64, &NonceState)| matches!(state, NonceState::Open(_)).then_some(*nonce);
        let nonces: Vec<u64> = self.nonces.iter().filter_map(open).take(GROUP).collect();
        let lowest = nonces.first().copied();
        let mut resend = Vec::new();
        for nonce in nonces {
            let is_lowest = Some(nonce) == lowest;
            let mut step = self.step(nonce, is_lowest, market, None);
            if step == ReplacementStep::AskForwarder {
                let superseded = self.is_superseded(nonce).await?;
                step = self.step(nonce, is_lowest, market, Some(superseded));
            }
            match step {
                ReplacementStep::Wait | ReplacementStep::AskForwarder => {}
                ReplacementStep::Resend => resend.push(nonce),
                ReplacementStep::Replace(fees) => self.replace(nonce, fees, None).await?,
                ReplacementStep::Cancel(purpose, fees) => self.replace(nonce, fees, Some(purpose)).await?,
            }
        }
        self.parts.metrics.resends.inc_by(resend.len() as u64);
        self.send(&resend).await;
        Ok(())
    }

    fn step(
        &self,
        nonce: u64,
        is_lowest: bool,
        market: &Market,
        superseded: Option<bool>,
    ) -> ReplacementStep {
        let Some(NonceState::Open(in_flight)) = self.nonces.get(&nonce) else { return ReplacementStep::Wait };
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
        })
    }

    /// Whether a nonce's request was executed elsewhere: one block has its forwarder nonce used, ours not.
    async fn is_superseded(&mut self, nonce: u64) -> Result<bool, SenderError> {
        let in_flight = self.nonces.get_mut(&nonce).and_then(NonceState::in_flight_mut);
        let Some(in_flight) = in_flight else { return Ok(false) };
        in_flight.forwarder_asked_at = Some(Instant::now());
        let Some(relay) = in_flight.assignment.relay else { return Ok(false) };
        let view = self.parts.node.account_view(Some(relay.signer)).await?;
        let executed = view.forwarder_nonce.is_some_and(|forwarder| forwarder > relay.forward_nonce);
        Ok(executed && view.mined_nonce <= nonce)
    }

    /// Signs and sends a replacement: the same call, or a no-op for the reason `cancel`. If the budget does
    /// not allow it, the old bytes go out again.
    async fn replace(
        &mut self,
        nonce: u64,
        fees: Fees,
        cancel: Option<TransactionPurpose>,
    ) -> Result<(), SenderError> {
        let Some(InFlight { assignment, .. }) = self.nonces.get(&nonce).and_then(NonceState::in_flight)
        else {
            return Ok(());
        };
        let assignment = assignment.clone();
        let Some(latest) = assignment.latest() else { return Ok(()) };
        let replacement =
            match cancel.or((latest.purpose != TransactionPurpose::Relay).then_some(latest.purpose)) {
                Some(purpose) => self.parts.wallet.no_op(nonce, fees, purpose)?,
                None => self.parts.wallet.relay_again(nonce, latest, fees)?,
            };
        let mut replaced = assignment.clone();
        replaced.transactions.push(replacement.clone());
        let wei = replaced.expected_wei();
        let allowed = match assignment.relay {
            Some(relay) => {
                // As with the first transaction, a no-op for a gap below must fit beside it.
                let limit = self.parts.spending.daily_wei.saturating_sub(fees.worst_case(gas::NO_OP));
                let now = self.parts.clock.now();
                let reserve = move |store: &Store| store.reserve(relay.id, wei, limit, now);
                let allowed = self.parts.store.run(reserve).await?;
                if allowed {
                    self.record(&[replaced]).await?;
                }
                allowed
            }
            None => self.record_gap(&replaced, wei.saturating_sub(assignment.expected_wei())).await?,
        };
        if !allowed {
            tracing::warn!(nonce, "the budget does not allow a replacement");
            self.send(&[nonce]).await;
            return Ok(());
        }
        faults::point("before_replacement_send");
        self.parts.metrics.replacements.inc();
        if let Some(in_flight) = self.nonces.get_mut(&nonce).and_then(NonceState::in_flight_mut) {
            in_flight.assignment.transactions.push(replacement);
            in_flight.signed_at = Instant::now();
        }
        self.send(&[nonce]).await;
        Ok(())
    }

    /// Sends the latest transaction of each of these nonces, a bounded number at once.
    pub(super) async fn send(&mut self, nonces: &[u64]) {
        for group in nonces.chunks(GROUP) {
            let sends = group.iter().filter_map(|nonce| {
                let latest = self.nonces.get(nonce)?.in_flight()?.assignment.latest()?;
                let node = &self.parts.node;
                Some(async move { (*nonce, latest.hash, node.broadcast(&latest.raw).await) })
            });
            for (nonce, hash, (verdict, text)) in join_all(sends).await {
                if verdict == BroadcastVerdict::Accepted {
                    tracing::debug!(nonce, tx = %hash, "sent");
                } else {
                    tracing::warn!(nonce, tx = %hash, ?verdict, node = %text, "sent, but not accepted");
                }
                if let Some(in_flight) = self.nonces.get_mut(&nonce).and_then(NonceState::in_flight_mut) {
                    in_flight.verdict = verdict;
                    in_flight.sent = (Instant::now(), self.head);
                }
            }
        }
    }
}
