//! Nonce gaps: a nonce that is neither mined nor in flight blocks all higher ones.
//!
//! A no-op fills a gap once the mined count, the pending count and the state of one block agree that the
//! nonce is unused. A nonce that was mined before is no gap: what a reorg undid is reopened. Nor is one that
//! the store has pruned, whatever a node says. No-ops count towards the daily budget: where it does not allow
//! one, the gap waits for a cheaper market or a new window.

use std::{collections::BTreeSet, time::Duration};

use tokio::time::Instant;

use super::{GROUP, Sender, SenderError};
use crate::{
    chain::ChainNode,
    gas::fees::{Fees, Market},
    store::{NonceAssignment, Store, TransactionPurpose},
};

/// The pause before a no-op that the budget or the fee cap did not allow is priced and signed again: it may
/// wait for a day.
const DENIED_PAUSE: Duration = Duration::from_secs(30);

impl<N: ChainNode> Sender<N> {
    /// Fills the gaps below the highest nonce in flight, a bounded number at a time.
    pub(super) async fn fill_gap(&self, mined: u64, market: &Market) -> Result<(), SenderError> {
        let Some(highest) = self.in_flight_nonces().last().copied() else { return Ok(()) };
        let was_denied = self.state().gap_denied_at.is_some_and(|at| at.elapsed() < DENIED_PAUSE);
        if was_denied || self.has_signer_failed() {
            return Ok(());
        }
        let taken: BTreeSet<u64> = self.in_flight_nonces().into_iter().collect();
        let is_free = |nonce: &u64| !taken.contains(nonce);
        if !(mined..highest).any(|nonce| is_free(&nonce)) {
            return Ok(());
        }
        let account = self.account();
        let archived = self.parts.store.run(move |store| store.archived_nonce(account)).await?;
        let lowest = archived.map_or(mined, |archived| mined.max(archived.saturating_add(1)));
        let gap: Vec<u64> = (lowest..highest).filter(is_free).take(GROUP).collect();
        let Some(first) = gap.first().copied() else { return Ok(()) };
        if self.parts.node.pending_nonce(self.account()).await? > first {
            return Ok(());
        }
        let view = self.parts.node.account_view(self.account(), None).await?;
        let unused = gap.into_iter().filter(|nonce| *nonce >= view.mined_nonce);
        let mut filled = Vec::new();
        let result = self.store_no_ops(unused, market, &mut filled).await;
        if !filled.is_empty() {
            let nonces: Vec<u64> = filled.iter().map(|assignment| assignment.nonce).collect();
            tracing::warn!(?nonces, "filling a gap in the nonce sequence");
            self.open(filled);
            self.send(&nonces).await;
        }
        result
    }

    /// Stores no-ops for these nonces, as far as the budget allows, and adds each to `filled`. Those must be
    /// sent even after a failure: a nonce that the store has is no gap in the next round.
    async fn store_no_ops(
        &self,
        nonces: impl Iterator<Item = u64> + Send,
        market: &Market,
        filled: &mut Vec<NonceAssignment>,
    ) -> Result<(), SenderError> {
        let account = self.account();
        // Lowest first: the higher ones wait for it.
        for nonce in nonces {
            // A nonce that is open or mined by the store is no gap: the loop that watches for reorgs follows
            // it.
            let is_ours = move |store: &Store| store.explains(account, nonce, nonce.saturating_add(1));
            if self.parts.store.run(is_ours).await? {
                continue;
            }
            let Some(no_op) = self.filled(nonce, market).await? else {
                self.state().gap_denied_at = Some(Instant::now());
                tracing::warn!(nonce, "the budget or the fee cap does not allow a gap to be filled");
                break;
            };
            filled.push(no_op);
        }
        Ok(())
    }

    /// Stores a no-op for a free nonce, if the budget allows one.
    ///
    /// If the nonce was ours, and was lost to a transaction that a reorg then undid, nodes may still have
    /// what was signed for it before. If that is a no-op that pays for the next block, it is sent again.
    /// Otherwise a new one outbids it, or is as dear where the cap does not allow more, or as dear as the
    /// market where the budget does not: a node that has the earlier bytes fills the gap with them. These are
    /// out, whether a no-op is sent or not, so the budget is asked for the no-op alone.
    async fn filled(&self, nonce: u64, market: &Market) -> Result<Option<NonceAssignment>, SenderError> {
        let (cap, account) = (self.parts.spending.max_fee, self.account());
        let before = self.parts.store.run(move |store| store.assignment(account, nonce)).await?;
        let before = NonceAssignment { relay: None, ..before };
        let no_less = |fees: Fees| fees.of_cancellation(market, cap).or(fees.of_substitute(market, cap));
        let best = before.latest().and_then(|latest| no_less(latest.fees));
        let offers: Vec<Fees> = best.into_iter().chain(Fees::initial(market, cap)).collect();
        if let Some(latest) = before.latest() {
            let is_no_op = latest.purpose != TransactionPurpose::Relay;
            // Above the cap nothing is signed, and whatever is out goes out again.
            let again = offers.is_empty() || (is_no_op && !market.has_outgrown(&latest.fees));
            if again && self.record_gap(&before, latest.fees.worst_case(latest.gas_limit)).await? {
                return Ok(Some(before));
            }
        }
        for fees in offers {
            let mut gap = before.clone();
            let signed = self.parts.wallet.no_op(nonce, fees, TransactionPurpose::Gap).await;
            gap.transactions.push(self.noted(signed)?);
            if self.record_gap(&gap, self.parts.wallet.no_op_wei(fees)).await? {
                self.note_signed(&gap);
                return Ok(Some(gap));
            }
        }
        Ok(None)
    }
}
