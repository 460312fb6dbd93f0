//! Reorgs: what was mined may not stay mined.
//!
//! Mostly the mined count shows it: the chain counts fewer transactions of ours than the store. If the nonce
//! was used again at once, a second lookup of each receipt, a minute later, finds it.
//!
//! A count alone undoes nothing: it may be stale or wrong. A nonce is reopened when no endpoint has a receipt
//! of any of its transactions, and the state of one block, at or above the receipt's, does not count it. Only
//! the last ten minutes are examined, a bounded number of nonces at a time.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{
    GROUP, LONGEST_PATIENCE, PATIENCE, Sender, SenderError, SenderEvent,
    nonce_state::{InFlight, NonceState},
    receipt_collection::Lookup,
};
use crate::{
    chain::{AccountView, ChainNode, Receipt},
    outcome::RelayOutcome,
    store::{MinedNonce, Store, TransactionPurpose},
};

/// The delay of a receipt's second lookup: reorgs happen within seconds.
const CONFIRM_AFTER: Duration = Duration::from_secs(60);
/// How far back a reorg is looked for, also by a restart, seconds.
pub(super) const REORGANISATION_SECONDS: u64 = 600;

/// The present state of a nonce that was seen mined.
enum Standing {
    /// Mined in the same block.
    Stands,
    /// Mined in another block, or by another transaction of ours.
    Moved(TransactionPurpose, Receipt),
    /// Not mined any more.
    Undone,
    /// Answers are missing, stale, or disagree.
    Unknown,
}

impl<N: ChainNode> Sender<N> {
    /// Reads the mined count, reopens what a reorg has undone, confirms what was mined a minute ago, and
    /// looks for the receipts of lost nonces. Returns the count.
    ///
    /// # Errors
    /// [`SenderError`] if the count cannot be read.
    pub async fn watch_chain(&mut self) -> Result<u64, SenderError> {
        let mined = self.parts.node.mined_nonce().await?;
        match self.highest_mined.filter(|highest| mined <= *highest) {
            None => self.count_fell_at = None,
            Some(highest) => {
                if let Err(error) = self.examine_lower_count(highest).await {
                    tracing::warn!(%error, mined, highest, "whether blocks were undone is unknown");
                }
            }
        }
        if let Err(error) = self.confirm_mined().await {
            tracing::warn!(%error, "receipts not confirmed");
        }
        self.look_up_lost().await;
        Ok(mined)
    }

    /// Examines a mined count below the store's: finds the nonces that are really undone.
    async fn examine_lower_count(&mut self, highest: u64) -> Result<(), SenderError> {
        let fell_at = *self.count_fell_at.get_or_insert_with(Instant::now);
        let view = self.parts.node.account_view(None).await?;
        if view.mined_nonce > highest {
            return Ok(());
        }
        let (account, since) =
            (self.account(), self.parts.clock.now().saturating_sub(REORGANISATION_SECONDS));
        let read = move |store: &Store| {
            let recent = store.mined_since(account, since)?;
            let suspects = recent.into_iter().filter(|nonce| *nonce >= view.mined_nonce).take(GROUP);
            suspects
                .filter_map(|nonce| store.mined(account, nonce).transpose())
                .collect::<Result<Vec<_>, _>>()
        };
        let suspects = self.parts.store.run(read).await?;
        self.reopen_undone(suspects, &view, fell_at.elapsed()).await
    }

    /// Looks these nonces up, and reopens those that are undone.
    pub(super) async fn reopen_undone(
        &mut self,
        suspects: Vec<MinedNonce>,
        view: &AccountView,
        suspected_for: Duration,
    ) -> Result<(), SenderError> {
        let standings =
            join_all(suspects.iter().map(|mined| self.standing(mined, view, suspected_for))).await;
        let mut undone = Vec::new();
        for (mined, standing) in suspects.into_iter().zip(standings) {
            match standing? {
                Standing::Stands | Standing::Unknown => {}
                Standing::Moved(purpose, receipt) => self.settle_anew(&mined, purpose, &receipt).await,
                Standing::Undone => undone.push(mined),
            }
        }
        self.reopen(undone).await
    }

    /// Looks each due receipt up a second time.
    async fn confirm_mined(&mut self) -> Result<(), SenderError> {
        let due: Vec<(u64, Instant)> = self
            .nonces
            .iter()
            .filter_map(|(nonce, state)| match state {
                NonceState::Mined(since) if since.elapsed() >= CONFIRM_AFTER => Some((*nonce, *since)),
                _ => None,
            })
            .take(GROUP)
            .collect();
        let account = self.account();
        for (nonce, since) in due {
            let mined = self.parts.store.run(move |store| store.mined(account, nonce)).await?;
            let Some(mined) = mined else {
                self.nonces.remove(&nonce);
                continue;
            };
            // One endpoint that agrees with the store is enough.
            if let Lookup::Found(_, receipt) = self.look_up(&mined.assignment, false).await
                && is_same(&mined, &receipt)
            {
                self.nonces.remove(&nonce);
                continue;
            }
            let signer = mined.assignment.relay.map(|relay| relay.signer);
            let view = self.parts.node.account_view(signer).await?;
            match self.standing(&mined, &view, since.elapsed().saturating_sub(CONFIRM_AFTER)).await? {
                Standing::Stands => drop(self.nonces.remove(&nonce)),
                Standing::Moved(purpose, receipt) => self.settle_anew(&mined, purpose, &receipt).await,
                Standing::Undone => self.reopen(vec![mined]).await?,
                Standing::Unknown if since.elapsed() >= CONFIRM_AFTER + LONGEST_PATIENCE => {
                    tracing::warn!(nonce, tx = %mined.inclusion.tx_hash, "its receipt is gone, its nonce is used");
                    self.nonces.remove(&nonce);
                }
                Standing::Unknown => {}
            }
        }
        Ok(())
    }

    /// Whether a nonce is still mined, by all endpoints and the state of one block.
    async fn standing(
        &self,
        mined: &MinedNonce,
        view: &AccountView,
        suspected_for: Duration,
    ) -> Result<Standing, SenderError> {
        let nonce = mined.assignment.nonce;
        let lookup = self.look_up(&mined.assignment, true).await;
        let absent = matches!(lookup, Lookup::Absent);
        match lookup {
            Lookup::Found(_, receipt) if is_same(mined, &receipt) => return Ok(Standing::Stands),
            Lookup::Found(purpose, receipt) => return Ok(Standing::Moved(purpose, receipt)),
            Lookup::Unclear if suspected_for < PATIENCE => return Ok(Standing::Unknown),
            Lookup::Unclear | Lookup::Absent => {}
        }
        if view.block_number < mined.inclusion.block_number {
            return Ok(Standing::Unknown);
        }
        if view.mined_nonce <= nonce {
            return Ok(Standing::Undone);
        }
        // The nonce is used: by another transaction if the effect of ours is undone.
        let (Some(relay), Some(forwarder_nonce)) = (mined.assignment.relay, view.forwarder_nonce) else {
            return Ok(Standing::Unknown);
        };
        let record = self.parts.store.run(move |store| store.relay(relay.id)).await?;
        let was_executed = matches!(
            record.and_then(|record| record.outcome),
            Some(RelayOutcome::Executed { mined: by, .. }) if by.tx_hash == mined.inclusion.tx_hash
        );
        // If the request is executed, it may be by us in another view, or by another account.
        let is_unused = forwarder_nonce <= relay.forward_nonce;
        let undone = was_executed && (is_unused || (absent && suspected_for >= LONGEST_PATIENCE));
        Ok(if undone { Standing::Undone } else { Standing::Unknown })
    }

    async fn settle_anew(&mut self, mined: &MinedNonce, purpose: TransactionPurpose, receipt: &Receipt) {
        let nonce = mined.assignment.nonce;
        tracing::warn!(nonce, block = receipt.block_number, "mined anew by another block");
        let written = self.settle(&mined.assignment, purpose, receipt).await;
        self.settled(nonce, written);
    }

    /// Reopens undone nonces: their bytes are sent again.
    async fn reopen(&mut self, undone: Vec<MinedNonce>) -> Result<(), SenderError> {
        if undone.is_empty() {
            return Ok(());
        }
        self.head = self.parts.node.market().await?.head;
        let (account, mut nonces) = (self.account(), Vec::new());
        for MinedNonce { assignment, inclusion } in undone {
            let (nonce, relay) = (assignment.nonce, assignment.relay);
            let expected_wei = assignment.expected_wei();
            let pending =
                self.parts.store.run(move |store| store.reopen(account, nonce, expected_wei)).await?;
            self.parts.metrics.reorganised.inc();
            tracing::warn!(
                nonce,
                tx = %inclusion.tx_hash,
                block = inclusion.block_number,
                head = self.head,
                "a reorganisation took this nonce back"
            );
            self.nonces.insert(nonce, NonceState::reopened(InFlight::new(assignment, self.head)));
            nonces.push(nonce);
            if let Some(relay) = relay.filter(|_| pending) {
                self.publish(SenderEvent::Reopened(relay));
            }
        }
        self.highest_mined = self.parts.store.run(move |store| store.highest_mined(account)).await?;
        self.send(&nonces).await;
        Ok(())
    }
}

fn is_same(mined: &MinedNonce, receipt: &Receipt) -> bool {
    (mined.inclusion.tx_hash, mined.inclusion.block_number) == (receipt.hash, receipt.block_number)
}
