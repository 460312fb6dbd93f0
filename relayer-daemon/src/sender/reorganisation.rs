//! Reorgs: what was mined may not stay mined.
//!
//! Two things show one: the chain counts fewer transactions of ours than the store, or a block that holds one
//! is not on the chain any more (`finality`).
//!
//! Neither undoes anything by itself: an answer may be stale or wrong. A nonce is reopened when no endpoint
//! has a receipt of any of its transactions, and the state of one block, at or above the receipt's, does not
//! count it. There is no age after which a reorg is not looked for, until a block is final.

use std::time::Duration;

use tokio::time::Instant;

use super::{
    GROUP, LONGEST_PATIENCE, PATIENCE, Sender, SenderError, SenderEvent,
    nonce_state::{NonceInFlight, NonceState},
    receipt_collection::{Lookup, look_up},
};
use crate::{
    chain::{AccountView, ChainNode, Receipt},
    outcome::RelayOutcome,
    store::{BlockId, MinedNonce, Store, TransactionPurpose},
};

/// The present state of a nonce that was seen mined.
enum MinedNonceStatus {
    /// Mined in the same block, by one endpoint's receipt.
    Stands,
    /// Mined in another block, or by another transaction of ours.
    Moved(TransactionPurpose, Receipt),
    /// Not mined any more.
    Undone,
    /// Answers are missing, stale, or disagree.
    Unknown,
}

impl<N: ChainNode> Sender<N> {
    /// Reads the mined count, and reopens what a reorg has undone. Returns the count.
    ///
    /// # Errors
    /// [`SenderError`] if the count cannot be read.
    pub(super) async fn watch_count(&self) -> Result<u64, SenderError> {
        let mined = self.parts.node.mined_nonce(self.account()).await?;
        let highest = self.state().highest_mined.filter(|highest| mined <= *highest);
        match highest {
            None => self.state().count_fell_at = None,
            Some(highest) => {
                if let Err(error) = self.examine_lower_count(highest).await {
                    tracing::warn!(%error, mined, highest, "whether blocks were undone is unknown");
                }
            }
        }
        Ok(mined)
    }

    /// Examines a mined count below the store's: finds the nonces that are really undone.
    async fn examine_lower_count(&self, highest: u64) -> Result<(), SenderError> {
        let fell_at = *self.state().count_fell_at.get_or_insert_with(Instant::now);
        let view = self.parts.node.account_view(self.account(), None).await?;
        if view.mined_nonce > highest {
            return Ok(());
        }
        let account = self.account();
        let suspects = self.parts.store.run(move |store| store.mined_from(account, view.mined_nonce, GROUP));
        let suspects = suspects.await?;
        if suspects.is_empty() {
            // They were reopened. Read here and not there: a failed read is made up for at the next count.
            let stored = self.parts.store.run(move |store| store.highest_mined(account)).await?;
            let mut state = self.state();
            // Unless another one was settled meanwhile.
            if state.highest_mined == Some(highest) {
                state.highest_mined = stored;
            }
        }
        for mined in suspects {
            self.examine(mined, &view, fell_at.elapsed()).await?;
        }
        Ok(())
    }

    /// Examines the nonces of a block that is not on the chain by one answer.
    pub(super) async fn examine_block(&self, block: BlockId) -> Result<(), SenderError> {
        let (account, payer) = (self.account(), self.payer());
        let suspects = self.parts.store.run(move |store| store.nonces_of(account, &block, GROUP)).await?;
        let since = *self.state().suspects.entry(block).or_insert_with(Instant::now);
        let mut all_known = true;
        for mined in suspects {
            let nonce = mined.assignment.nonce;
            let signer = mined.assignment.relay.map(|relay| relay.signer);
            let view = self.parts.node.account_view(self.account(), signer).await?;
            let known = self.examine(mined, &view, since.elapsed()).await?;
            if !known && since.elapsed() >= LONGEST_PATIENCE {
                tracing::warn!(nonce, block = block.number, "its block is gone, and its nonce is used");
                self.parts.store.run(move |store| store.give_up(payer, nonce)).await?;
            }
            all_known &= known;
        }
        if all_known || since.elapsed() >= LONGEST_PATIENCE {
            self.state().suspects.remove(&block);
        }
        Ok(())
    }

    /// Looks a nonce up, and settles it anew or reopens it. Returns whether its state is known now.
    async fn examine(
        &self,
        mined: MinedNonce,
        view: &AccountView,
        suspected_for: Duration,
    ) -> Result<bool, SenderError> {
        match self.standing(&mined, view, suspected_for).await? {
            MinedNonceStatus::Stands => {}
            MinedNonceStatus::Unknown => return Ok(false),
            MinedNonceStatus::Moved(purpose, receipt) => self.settle_anew(&mined, purpose, &receipt).await,
            MinedNonceStatus::Undone => self.reopen(mined).await?,
        }
        Ok(true)
    }

    /// Looks up whether a nonce is still mined, by all endpoints and the state of one block.
    async fn standing(
        &self,
        mined: &MinedNonce,
        view: &AccountView,
        suspected_for: Duration,
    ) -> Result<MinedNonceStatus, SenderError> {
        let nonce = mined.assignment.nonce;
        let lookup = look_up(&*self.parts.node, &mined.assignment, true).await;
        let absent = matches!(lookup, Lookup::Absent);
        match lookup {
            Lookup::Found(_, receipt) if is_same(mined, &receipt) => return Ok(MinedNonceStatus::Stands),
            Lookup::Found(purpose, receipt) => return Ok(MinedNonceStatus::Moved(purpose, receipt)),
            Lookup::Unclear if suspected_for < PATIENCE => return Ok(MinedNonceStatus::Unknown),
            Lookup::Unclear | Lookup::Absent => {}
        }
        if view.block_number < mined.inclusion.block.number {
            return Ok(MinedNonceStatus::Unknown);
        }
        if view.mined_nonce <= nonce {
            return Ok(MinedNonceStatus::Undone);
        }
        // The nonce is used: by another transaction if the effect of ours is undone.
        let (Some(relay), Some(forwarder_nonce)) = (mined.assignment.relay, view.forwarder_nonce) else {
            return Ok(MinedNonceStatus::Unknown);
        };
        let record = self.parts.store.run(move |store| store.relay(relay.id)).await?;
        let was_executed = matches!(
            record.and_then(|record| record.outcome),
            Some(RelayOutcome::Executed { mined: by, .. }) if by.tx_hash == mined.inclusion.tx_hash
        );
        // If the request is executed, it may be by us in another view, or by another account.
        let is_unused = forwarder_nonce <= relay.forward_nonce;
        let undone = was_executed && (is_unused || (absent && suspected_for >= LONGEST_PATIENCE));
        Ok(if undone { MinedNonceStatus::Undone } else { MinedNonceStatus::Unknown })
    }

    async fn settle_anew(&self, mined: &MinedNonce, purpose: TransactionPurpose, receipt: &Receipt) {
        let nonce = mined.assignment.nonce;
        tracing::warn!(nonce, block = receipt.block.number, "mined anew by another block");
        let written = self.settle(&mined.assignment, purpose, receipt).await;
        self.settled(nonce, written);
    }

    /// Reopens an undone nonce: its bytes are sent again. Without the account's key it is given up instead,
    /// and another account carries its relay.
    async fn reopen(&self, undone: MinedNonce) -> Result<(), SenderError> {
        let head = self.parts.node.market().await?.head;
        self.saw_head(head);
        let MinedNonce { assignment, inclusion } = undone;
        let payer = self.payer();
        let (nonce, relay) = (assignment.nonce, assignment.relay);
        let expected_wei = assignment.expected_wei();
        let (now, has_key) = (self.parts.clock.now(), self.parts.wallet.has_key());
        let undo = move |store: &Store| {
            if has_key {
                store.reopen(payer, nonce, expected_wei, now)
            } else {
                store.undo(payer, nonce, expected_wei, now)
            }
        };
        let pending = self.parts.store.run(undo).await?;
        self.parts.metrics.reorganised.inc();
        tracing::warn!(
            nonce,
            tx = %inclusion.tx_hash,
            block = inclusion.block.number,
            head,
            "a reorganisation took this nonce back"
        );
        let next = if has_key {
            NonceState::reopened(NonceInFlight::new(assignment, head))
        } else {
            NonceState::given_up()
        };
        self.state().nonces.insert(nonce, next);
        if let Some(relay) = relay.filter(|_| pending) {
            self.publish(if has_key { SenderEvent::Reopened(relay) } else { SenderEvent::Requeue(relay.id) });
        }
        if has_key {
            self.send(&[nonce]).await;
            self.sent.notify_one();
        }
        Ok(())
    }
}

fn is_same(mined: &MinedNonce, receipt: &Receipt) -> bool {
    (mined.inclusion.tx_hash, mined.inclusion.block) == (receipt.hash, receipt.block)
}
