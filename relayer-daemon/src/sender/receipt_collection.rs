//! Looks up the receipts of nonces in flight, and settles them in the store.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
};

use alloy::primitives::B256;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use tracing::Instrument as _;

use super::{Sender, SenderError, SenderEvent, nonce_state::NonceState};
use crate::{
    chain::{BroadcastVerdict, ChainNode, Receipt, ReceiptLookup, RpcError},
    metrics::gauge_value,
    outcome::{ErrorCode, Failure, RelayOutcome},
    process::{faults, logging::SPANS},
    store::{Inclusion, NonceAssignment, RelayTerms, Settlement, TransactionPurpose, Unsettled},
};

/// Nonces that are looked up at the same time.
const LOOKUPS: usize = 32;

/// The result of looking up all transactions of a nonce.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// One of them was mined.
    Found(TransactionPurpose, Receipt),
    /// No endpoint has a receipt of any of them.
    Absent,
    /// None was found, but an endpoint did not answer or was not asked.
    Unclear,
}

/// The result of a round of lookups.
#[derive(Debug, Default)]
pub(super) struct LookupRound {
    /// True if anything was settled.
    pub(super) settled: bool,
    /// The nonces of which all endpoints answered, and none has a receipt.
    pub(super) absent: BTreeSet<u64>,
}

/// Looks up all transactions of a nonce, latest first: any of them may have been mined.
pub(crate) async fn look_up<N: ChainNode>(
    node: &N,
    assignment: &NonceAssignment,
    everywhere: bool,
) -> Lookup {
    let mut absent = everywhere;
    for transaction in assignment.transactions.iter().rev() {
        let found = if everywhere {
            node.receipt_everywhere(transaction.hash).await
        } else {
            match node.receipt(transaction.hash).await {
                Ok(Some(receipt)) => ReceiptLookup::Found(receipt),
                Ok(None) => ReceiptLookup::Absent,
                Err(error) => {
                    tracing::warn!(nonce = assignment.nonce, tx = %transaction.hash, %error, "no receipt");
                    ReceiptLookup::Unclear
                }
            }
        };
        match found {
            ReceiptLookup::Found(receipt) => return Lookup::Found(transaction.purpose, receipt),
            ReceiptLookup::Absent => {}
            ReceiptLookup::Unclear => absent = false,
        }
    }
    if absent { Lookup::Absent } else { Lookup::Unclear }
}

impl<N: ChainNode> Sender<N> {
    /// Looks up the receipts of every nonce that the chain has counted as used, and of those that a node
    /// called too low. A failed lookup or write does not hold up the others.
    pub(super) async fn collect_receipts(&self) -> LookupRound {
        let due = self.due();
        let tried = |(assignment, _): &(NonceAssignment, bool)| {
            assignment.transactions.iter().map(|transaction| transaction.hash).collect()
        };
        let tried: Vec<Vec<B256>> = due.iter().map(tried).collect();
        let found = self.parts.node.receipts_by_block(&tried).await;
        let lookups: Vec<_> = due
            .iter()
            .map(|(assignment, everywhere)| self.collect(assignment, *everywhere, &found).boxed())
            .collect();
        let ended: Vec<_> = stream::iter(lookups).buffer_unordered(LOOKUPS).collect().await;
        LookupRound {
            settled: ended.iter().any(|(.., settled)| *settled),
            absent: ended.into_iter().filter(|(_, absent, _)| *absent).map(|(nonce, ..)| nonce).collect(),
        }
    }

    /// Looks a nonce up, unless its receipt is among those `found` already, and settles it if it was mined.
    /// Returns the nonce, whether all endpoints answered that it was not, and whether it is settled.
    async fn collect(
        &self,
        assignment: &NonceAssignment,
        everywhere: bool,
        found: &HashMap<B256, Receipt>,
    ) -> (u64, bool, bool) {
        let nonce = assignment.nonce;
        let known = assignment
            .transactions
            .iter()
            .find_map(|transaction| Some((transaction.purpose, found.get(&transaction.hash)?.clone())));
        let lookup = match known {
            Some((purpose, receipt)) => Lookup::Found(purpose, receipt),
            None => look_up(&*self.parts.node, assignment, everywhere).await,
        };
        match lookup {
            Lookup::Absent => (nonce, true, false),
            Lookup::Unclear => (nonce, false, false),
            Lookup::Found(purpose, receipt) => {
                faults::point("after_receipt");
                faults::point("before_settle");
                // Those that are found together share a group commit.
                let id = assignment.relay.map(|relay| relay.id);
                let span = tracing::info_span!(target: SPANS, "sender.settle", nonce, relay = ?id, tx = %receipt.hash);
                let written = self.settle(assignment, purpose, &receipt).instrument(span).await;
                (nonce, false, self.settled(nonce, written))
            }
        }
    }

    /// Returns the nonces to be looked up, each with whether every endpoint is asked: true where one had no
    /// receipt since the count.
    fn due(&self) -> Vec<(NonceAssignment, bool)> {
        let mut state = self.state();
        let due = state.nonces.values_mut().filter_map(|nonce| match nonce {
            NonceState::Unconfirmed { in_flight, looked_up, .. } => {
                Some((in_flight.assignment.clone(), mem::replace(looked_up, true)))
            }
            NonceState::Open(in_flight) if in_flight.verdict == BroadcastVerdict::NonceTooLow => {
                Some((in_flight.assignment.clone(), false))
            }
            _ => None,
        });
        due.collect()
    }

    /// Ends a nonce after its settlement was written. After a failed read or write the next round retries.
    pub(super) fn settled(&self, nonce: u64, written: Result<Option<SenderEvent>, SenderError>) -> bool {
        match written {
            Ok(event) => {
                faults::point("after_settle");
                {
                    let mut state = self.state();
                    state.nonces.remove(&nonce);
                    state.highest_mined = state.highest_mined.max(Some(nonce));
                }
                self.made_room();
                event.into_iter().for_each(|event| self.publish(event));
                true
            }
            Err(error) => {
                tracing::error!(nonce, %error, "a receipt is not settled");
                false
            }
        }
    }

    /// Returns how a relay ended. If its transaction did not carry it out, the forwarder says whether another
    /// one has: only if not, the request may be sent again.
    async fn outcome(
        &self,
        relay: &RelayTerms,
        purpose: TransactionPurpose,
        receipt: &Receipt,
    ) -> Result<RelayOutcome, SenderError> {
        match self.parts.contracts.outcome(relay, purpose, receipt) {
            RelayOutcome::Reverted { mined, failure } if failure.code == ErrorCode::ForwarderRefused => {
                let view = self.parts.node.account_view(self.account(), Some(relay.signer)).await?;
                if view.block_number < receipt.block.number {
                    return Err(
                        RpcError::Unreachable("its state is older than the receipt".to_owned()).into()
                    );
                }
                let is_used = view.has_used(relay.forward_nonce);
                let failure = if is_used { Failure::of(ErrorCode::Superseded) } else { failure };
                Ok(RelayOutcome::Reverted { mined, failure })
            }
            outcome => Ok(outcome),
        }
    }

    /// Stores the outcome and the cost of a mined transaction.
    pub(super) async fn settle(
        &self,
        assignment: &NonceAssignment,
        purpose: TransactionPurpose,
        receipt: &Receipt,
    ) -> Result<Option<SenderEvent>, SenderError> {
        let (nonce, now) = (assignment.nonce, self.parts.clock.now());
        let (account, payer) = (self.account(), self.payer());
        let relay = assignment.relay;
        let outcome = match relay {
            Some(relay) => Some(self.outcome(&relay, purpose, receipt).await?),
            None => None,
        };
        let fees = assignment.transactions.iter().find(|transaction| transaction.hash == receipt.hash);
        let paid_wei = receipt.paid_wei(fees.map_or(self.parts.spending.max_fee, |one| one.fees.max_fee));
        let failure = outcome.as_ref().and_then(|outcome| outcome.parts().1).cloned();
        let settlement = Settlement {
            assignment: assignment.clone(),
            inclusion: Inclusion { tx_hash: receipt.hash, block: receipt.block },
            paid_wei,
            outcome,
        };
        let outcome = self.parts.store.run(move |store| store.settle(payer, &settlement, now)).await?;
        let label = account.to_string();
        self.parts.metrics.paid_wei.with_label_values(&[label.as_str()]).inc_by(gauge_value(paid_wei));
        tracing::info!(
            %account,
            nonce,
            tx = %receipt.hash,
            block = receipt.block.number,
            relay = ?relay.map(|relay| relay.id),
            purpose = purpose.name(),
            paid_wei,
            "mined"
        );
        let Some(terms) = relay else { return Ok(None) };
        let id = terms.id;
        let (unsettled, failure) = match (outcome, failure) {
            (Some(outcome), _) => return Ok(Some(SenderEvent::Finished(id, outcome))),
            (None, Some(failure)) => (self.parts.store.run(move |store| store.unsettled(id)).await?, failure),
            (None, None) => return Ok(None),
        };
        Ok(unsettled.map(|unsettled| match unsettled {
            Unsettled::GivenUp => SenderEvent::Undecided(terms, failure),
            // It had ended, where a reorganisation has undone its outcome.
            Unsettled::InFlight => SenderEvent::Reopened(terms),
        }))
    }
}
