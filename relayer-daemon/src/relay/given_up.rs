//! What becomes of the transactions that were given up, as an operator's `abandon` does: until that is known
//! their relay is not called dropped.

use std::time::Duration;

use alloy::primitives::{Address, B256};

use super::Relayer;
use crate::{
    chain::{ChainNode, ReceiptLookup},
    outcome::{ErrorCode, Failure},
    store::{NonceAssignment, Store},
};

/// The longest pause before such a relay is checked anew.
pub(super) const LONGEST_LOOK: Duration = Duration::from_secs(60);
/// How long a relay waits for its transaction to be mined: as long as its account's sender looks it up.
const UNTIL_MINED: Duration = Duration::from_secs(24 * 60 * 60);
/// How long it waits where its transaction was or is as good as mined, for the sender to settle it.
const UNTIL_SETTLED: Duration = Duration::from_secs(600);

impl<C: ChainNode> Relayer<C> {
    /// Whether a transaction of this relay, which is about to be dropped, was given up and may be mined yet, or
    /// was mined and is not settled. Where that cannot be read, it may.
    /// `None` where [`retry`](Self::retry) ends.
    pub(super) async fn may_be_executed(&self, id: B256, failure: &Failure) -> Option<bool> {
        let given_up = self.retry(id, "journal not read", move |store| store.given_up_of(id)).await?;
        let mut longest = Duration::ZERO;
        for (account, nonce) in given_up {
            let read = move |store: &Store| store.assignment(account, nonce);
            let assignment = self.retry(id, "journal not read", read).await?;
            longest = longest.max(self.may_wait(account, &assignment, failure).await);
        }
        Some(!longest.is_zero() && self.inflight.blocked(id) < longest)
    }

    /// How long a relay waits for a nonce that was given up; not at all if its transactions can never be mined.
    async fn may_wait(&self, account: Address, assignment: &NonceAssignment, failure: &Failure) -> Duration {
        let Some(relay) = assignment.relay else { return Duration::ZERO };
        let Ok(view) = self.chain.account_view(account, Some(relay.signer)).await else {
            return UNTIL_SETTLED;
        };
        if view.mined_nonce > assignment.nonce {
            for transaction in &assignment.transactions {
                if self.chain.receipt_everywhere(transaction.hash).await != ReceiptLookup::Absent {
                    return UNTIL_SETTLED;
                }
            }
            return Duration::ZERO;
        }
        let is_used = view.forwarder_nonce.is_some_and(|nonce| nonce > relay.forward_nonce);
        match failure.code {
            // Another transaction has executed the request.
            _ if is_used => Duration::ZERO,
            // Its block may be older than this daemon's clock.
            ErrorCode::DeadlinePassed => UNTIL_SETTLED,
            _ => UNTIL_MINED,
        }
    }
}
