//! Relays with transactions that were given up, as by an operator's `abandon`: until it is known what these
//! still do the relay is not called dropped. Each [`LateWait`] has its own time. While no endpoint answers,
//! nothing is known, and the relay waits.

use std::time::Duration;

use alloy::primitives::{Address, B256};

use super::{
    Relayer,
    backoff::FIRST_PAUSE,
    patience::{LateWait, Patience},
};
use crate::{
    chain::{ChainNode, RpcError},
    outcome::{ErrorCode, Failure, RelayOutcome},
    sender::receipt_collection::{Lookup, look_up},
    store::{NonceAssignment, Store},
};

/// Longest pause before a relay with a transaction that was given up is looked at again.
const LONGEST_LOOK: Duration = Duration::from_secs(60);

/// Effect that a transaction that was given up may still have on its relay.
#[derive(Debug)]
enum LateEffect {
    /// The transaction can never execute the relay.
    Dead,
    /// The transaction may execute the relay, or may have done so; the relay waits for this.
    Open(LateWait),
    /// The transaction has executed the relay.
    Executed(RelayOutcome),
    /// The transaction may execute the relay, and a reorganisation has undone what had used the request.
    Unused,
}

/// Decision about a relay that is about to be dropped.
#[derive(Debug)]
pub(super) enum DropDecision {
    /// The relay waits.
    Open {
        /// True if its request is not used, as far as is known.
        is_unused: bool,
    },
    /// The relay is checked anew: the reason to drop it is gone.
    Anew,
    /// The relay ends with this outcome.
    Known(RelayOutcome),
}

impl<C: ChainNode> Relayer<C> {
    /// Decides how a relay that is about to be dropped ends. `None` where [`retry`](Self::retry) ends.
    pub(super) async fn ending(&self, id: B256, failure: Failure) -> Option<DropDecision> {
        let given_up = self.retry(id, "journal not read", move |store| store.given_up_of(id)).await?;
        self.inflight.patience(id, |it| it.gave_up(given_up.len()));
        let (mut wait, mut executed, mut is_unknown) = (None, None, false);
        for (account, nonce) in given_up {
            let read = move |store: &Store| store.assignment(account, nonce);
            let assignment = self.retry(id, "journal not read", read).await?;
            match self.fate(account, &assignment, failure.code).await {
                Ok(LateEffect::Dead) => {}
                Ok(LateEffect::Open(other)) => wait = wait.max(Some(other)),
                Ok(LateEffect::Executed(outcome)) => executed = Some(outcome),
                Ok(LateEffect::Unused) => return Some(DropDecision::Anew),
                Err(_) => is_unknown = true,
            }
        }
        let (wait, outcome) = match executed {
            Some(outcome) => (Some(LateWait::Settlement), outcome),
            None if is_unknown => {
                self.inflight.patience(id, Patience::unknown);
                return Some(DropDecision::Open { is_unused: false });
            }
            None => (wait, RelayOutcome::Dropped { failure }),
        };
        let is_over = wait.is_none_or(|wait| self.inflight.patience(id, |it| it.has_waited_for(wait)));
        let is_unused = matches!(wait, Some(LateWait::Refusal | LateWait::Mining));
        Some(if is_over { DropDecision::Known(outcome) } else { DropDecision::Open { is_unused } })
    }

    /// Returns what a nonce's transactions may still do to its relay, about to be dropped for this reason.
    async fn fate(
        &self,
        account: Address,
        assignment: &NonceAssignment,
        reason: ErrorCode,
    ) -> Result<LateEffect, RpcError> {
        let Some(relay) = assignment.relay else { return Ok(LateEffect::Dead) };
        let view = self.chain.account_view(account, Some(relay.signer)).await?;
        // In one block's state: if only one of the nonces is used, another transaction used it.
        Ok(match (view.mined_nonce > assignment.nonce, view.has_used(relay.forward_nonce)) {
            (true, false) | (false, true) => LateEffect::Dead,
            (false, false) => match reason {
                // The order itself ends a relay without an open nonce at once.
                ErrorCode::Cancelled => LateEffect::Dead,
                ErrorCode::Superseded => LateEffect::Unused,
                ErrorCode::DeadlinePassed | ErrorCode::InvalidSignatureOrNonce => {
                    LateEffect::Open(LateWait::Refusal)
                }
                _ => LateEffect::Open(LateWait::Mining),
            },
            (true, true) => {
                let (purpose, receipt) = match look_up(&*self.chain, assignment, true).await {
                    Lookup::Found(purpose, receipt) => (purpose, receipt),
                    Lookup::Absent => return Ok(LateEffect::Open(LateWait::Receipt)),
                    Lookup::Unclear => return Ok(LateEffect::Open(LateWait::Answer)),
                };
                let outcome = self.contracts.outcome(&relay, purpose, &receipt);
                if outcome.has_used_request() { LateEffect::Executed(outcome) } else { LateEffect::Dead }
            }
        })
    }
}

/// Returns the pause before a waiting relay is looked at again, which is as long as it has waited, and
/// whether it is checked anew then, as another transaction might execute it. `is_unused` is that of
/// [`DropDecision::Open`].
pub(super) fn pause_after(reason: ErrorCode, waited: Duration, is_unused: bool) -> (Duration, bool) {
    let pause = waited.clamp(FIRST_PAUSE, LONGEST_LOOK);
    match reason {
        ErrorCode::Cancelled
        | ErrorCode::DeadlinePassed
        | ErrorCode::Superseded
        | ErrorCode::ForwarderRefused => (pause, false),
        // Only a look, which costs no transaction: waits for a receipt need several.
        ErrorCode::TransactionRejected if !is_unused => (pause, false),
        // Each further one costs a transaction that changes nothing.
        ErrorCode::TransactionRejected => (waited.max(LONGEST_LOOK), true),
        _ => (pause, true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_whose_request_may_be_used_is_looked_at_every_minute_whatever_the_reason_to_drop_it() {
        use ErrorCode::{DeadlinePassed, RelayerBalanceTooLow, TransactionRejected};
        for (reason, waited, is_unused, pause, is_checked_anew) in [
            (TransactionRejected, 10, true, 60, true),
            (TransactionRejected, 7_000, true, 7_000, true),
            (TransactionRejected, 10, false, 10, false),
            (TransactionRejected, 7_000, false, 60, false),
            (RelayerBalanceTooLow, 7_000, true, 60, true),
            (RelayerBalanceTooLow, 7_000, false, 60, true),
            (DeadlinePassed, 7_000, false, 60, false),
        ] {
            let expected = (Duration::from_secs(pause), is_checked_anew);
            let found = pause_after(reason, Duration::from_secs(waited), is_unused);
            assert_eq!(found, expected, "{reason:?} after {waited} s, unused: {is_unused}");
        }
    }
}
