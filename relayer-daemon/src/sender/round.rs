//! One round over everything in flight: receipts in, then re-sending, replacing, giving up, filling holes.

use futures_util::future::join_all;
use tokio::time::Instant;

use super::{
    Event, LOST_AFTER, LOST_AFTER_BLOCKS, ROUND, Sender, Trouble,
    plan::{Situation, Step, next_step},
};
use crate::{
    chain::{Node, Receipt, RpcError},
    classify::Verdict,
    faults,
    fees::{Fees, Market},
    metrics::gauge_value,
    store::{Inclusion, Settlement, Store, StoreError},
    transaction::{NonceAssignment, Purpose, SignedTransaction},
};

impl<N: Node> Sender<N> {
    /// One round over everything in flight: takes in what was mined, re-sends, replaces, fills holes.
    ///
    /// # Errors
    /// [`Trouble`]; nothing is lost, the next round goes on.
    pub async fn poll(&mut self) -> Result<(), Trouble> {
        if self.slots.is_empty() {
            return Ok(());
        }
        let mined = self.watch_chain().await?;
        let settled = self.collect(mined).await?;
        // Where some were mined the rest is on its way: it has until the next round.
        if self.slots.is_empty() || settled {
            return Ok(());
        }
        let market = self.node.market().await?;
        self.head = market.head;
        self.give_up_lost(mined).await?;
        self.advance(&market).await?;
        self.fill_hole(mined, &market).await
    }

    /// Takes in receipts: of every nonce the chain has used, and of those a node called too low. Returns
    /// whether there were any.
    pub(super) async fn collect(&mut self, mined: u64) -> Result<bool, Trouble> {
        let nonces: Vec<u64> = self
            .slots
            .iter()
            .filter(|(nonce, tracked)| **nonce < mined || tracked.verdict == Verdict::NonceTooLow)
            .map(|(nonce, _)| *nonce)
            .collect();
        let mut settled = false;
        for nonces in nonces.chunks(ROUND) {
            let slots = nonces.iter().filter_map(|nonce| Some(&self.slots.get(nonce)?.slot));
            let found: Result<Vec<_>, _> =
                join_all(slots.map(|slot| self.find_receipt(slot))).await.into_iter().collect();
            let found: Vec<_> = found?.into_iter().flatten().collect();
            if !found.is_empty() {
                faults::point("after_receipt");
                faults::point("before_settle");
            }
            // Side by side, so that they share the store's commits.
            let writes = found.iter().filter_map(|(nonce, purpose, receipt)| {
                Some(self.settle(&self.slots.get(nonce)?.slot, *purpose, receipt))
            });
            for written in join_all(writes).await {
                let (nonce, event) = written?;
                faults::point("after_settle");
                self.slots.remove(&nonce);
                self.highest_mined = self.highest_mined.max(Some(nonce));
                self.unconfirmed.push_back((nonce, Instant::now()));
                settled = true;
                if let Some(event) = event {
                    self.tell(event);
                }
            }
        }
        Ok(settled)
    }

    /// Looks all hashes of a nonce up, the latest first: any of them may be the one that was mined.
    pub(super) async fn find_receipt(
        &self,
        slot: &NonceAssignment,
    ) -> Result<Option<(u64, Purpose, Receipt)>, RpcError> {
        for transaction in slot.transactions.iter().rev() {
            if let Some(receipt) = self.node.receipt(transaction.hash).await? {
                return Ok(Some((slot.nonce, transaction.purpose, receipt)));
            }
        }
        Ok(None)
    }

    /// Writes down what a mined transaction did and cost.
    pub(super) async fn settle(
        &self,
        slot: &NonceAssignment,
        purpose: Purpose,
        receipt: &Receipt,
    ) -> Result<(u64, Option<Event>), StoreError> {
        let nonce = slot.nonce;
        let outcome = slot.relay.map(|relay| (relay.id, self.contracts.outcome(&relay, purpose, receipt)));
        let (account, paid, now) = (self.wallet.address(), receipt.paid_wei, self.clock.now());
        let settlement = Settlement {
            assignment: slot.clone(),
            inclusion: Inclusion { tx_hash: receipt.hash, block_number: receipt.block_number },
            paid_wei: paid,
            outcome: outcome.as_ref().map(|(_, outcome)| outcome.clone()),
        };
        self.store.run(move |store| store.settle(account, &settlement, now)).await?;
        self.metrics.paid_wei.inc_by(gauge_value(paid));
        tracing::info!(
            nonce,
            tx = %receipt.hash,
            block = receipt.block_number,
            purpose = purpose.name(),
            paid_wei = paid,
            "mined"
        );
        Ok((nonce, outcome.map(|(id, outcome)| Event::Finished(id, outcome))))
    }

    /// Re-sends, replaces or cancels what has waited long enough.
    async fn advance(&mut self, market: &Market) -> Result<(), Trouble> {
        let nonces: Vec<u64> = self.slots.keys().copied().take(ROUND).collect();
        let mut resend = Vec::new();
        for nonce in nonces {
            let mut step = self.step(nonce, market, None);
            if step == Step::AskForwarder {
                let superseded = self.is_superseded(nonce).await?;
                if superseded && self.node.mined_nonce().await? > nonce {
                    // It was our own transaction, mined since this round began.
                    continue;
                }
                step = self.step(nonce, market, Some(superseded));
            }
            match step {
                Step::Wait | Step::AskForwarder => {}
                Step::Resend => resend.push(nonce),
                Step::Replace(fees) => self.replace(nonce, fees, None).await?,
                Step::Cancel(purpose, fees) => self.replace(nonce, fees, Some(purpose)).await?,
            }
        }
        self.metrics.resends.inc_by(resend.len() as u64);
        self.send(&resend).await;
        Ok(())
    }

    fn step(&self, nonce: u64, market: &Market, superseded: Option<bool>) -> Step {
        let Some(tracked) = self.slots.get(&nonce).filter(|tracked| tracked.absent.is_none()) else {
            return Step::Wait;
        };
        next_step(&Situation {
            slot: &tracked.slot,
            verdict: tracked.verdict,
            blocks_since_send: market.head.saturating_sub(tracked.sent_head),
            blocks_since_signed: market.head.saturating_sub(tracked.signed_head),
            since_send: tracked.sent_at.elapsed(),
            since_signed: tracked.signed_at.elapsed(),
            market: *market,
            cap: self.spending.max_fee,
            now: self.clock.now(),
            superseded,
        })
    }

    /// Whether the request behind a nonce was executed by a transaction that is not ours: then its forwarder
    /// nonce is used up though our nonce is not.
    async fn is_superseded(&self, nonce: u64) -> Result<bool, Trouble> {
        let Some(relay) = self.slots.get(&nonce).and_then(|tracked| tracked.slot.relay) else {
            return Ok(false);
        };
        Ok(self.node.forwarder_nonce(relay.signer).await? > relay.forward_nonce)
    }

    /// Signs and sends a replacement: the same call, or a no-op if `cancel` says why. Where the budget does
    /// not allow it, the old bytes go out again.
    async fn replace(&mut self, nonce: u64, fees: Fees, cancel: Option<Purpose>) -> Result<(), Trouble> {
        let Some(slot) = self.slots.get(&nonce).map(|tracked| tracked.slot.clone()) else { return Ok(()) };
        let Some(latest) = slot.latest() else { return Ok(()) };
        let transaction = match cancel.or((latest.purpose != Purpose::Relay).then_some(latest.purpose)) {
            Some(purpose) => self.wallet.no_op(nonce, fees, purpose)?,
            None => self.wallet.relay_again(nonce, latest, fees)?,
        };
        if let Some(relay) = slot.relay {
            let worst = slot
                .transactions
                .iter()
                .chain([&transaction])
                .map(SignedTransaction::worst_case)
                .max()
                .unwrap_or_default();
            let (limit, now) = (self.spending.daily_wei, self.clock.now());
            let wei = worst.saturating_add(relay.l1_fee_wei);
            let reserve = move |store: &dyn Store| store.reserve(relay.id, wei, relay.l1_fee_wei, limit, now);
            if !self.store.run(reserve).await? {
                tracing::warn!(nonce, "the budget does not allow a replacement");
                self.send(&[nonce]).await;
                return Ok(());
            }
        }
        let replaced = NonceAssignment { transactions: vec![transaction.clone()], ..slot };
        self.write(&[replaced]).await?;
        faults::point("before_replacement_send");
        self.metrics.replacements.inc();
        if let Some(tracked) = self.slots.get_mut(&nonce) {
            tracked.slot.transactions.push(transaction);
            tracked.signed_head = self.head;
            tracked.signed_at = Instant::now();
        }
        self.send(&[nonce]).await;
        Ok(())
    }

    /// Gives up nonces that somebody else's transaction has used, once receipts have had time to show up.
    async fn give_up_lost(&mut self, mined: u64) -> Result<(), Trouble> {
        let mut lost = Vec::new();
        for (nonce, tracked) in &mut self.slots {
            if *nonce >= mined {
                tracked.absent = None;
                continue;
            }
            let (head, since) = *tracked.absent.get_or_insert_with(|| (self.head, Instant::now()));
            if self.head >= head.saturating_add(LOST_AFTER_BLOCKS) || since.elapsed() >= LOST_AFTER {
                lost.push(*nonce);
            }
        }
        for nonce in lost {
            let account = self.wallet.address();
            self.store.run(move |store| store.lose(account, nonce)).await?;
            self.metrics.foreign_nonces.inc();
            tracing::error!(nonce, "a transaction that is not ours used this nonce: who else has the key?");
            if let Some(relay) = self.slots.remove(&nonce).and_then(|tracked| tracked.slot.relay) {
                self.tell(Event::Requeue(relay.id));
            }
        }
        Ok(())
    }

    /// The lowest nonce that is not mined must be in somebody's hands, or everything behind it is stuck.
    pub(super) async fn fill_hole(&mut self, mined: u64, market: &Market) -> Result<(), Trouble> {
        let Some(lowest) = self.slots.keys().next().copied().filter(|lowest| *lowest > mined) else {
            return Ok(());
        };
        let pending = self.node.pending_nonce().await?;
        if pending > mined {
            return Ok(());
        }
        let mut slots = Vec::new();
        for nonce in (mined..lowest).take(ROUND) {
            slots.extend(self.filler(nonce, market).await?);
        }
        tracing::warn!(from = mined, to = lowest, "filling a hole in the nonce sequence");
        self.write(&slots).await?;
        let holes: Vec<u64> = slots.iter().map(|slot| slot.nonce).collect();
        slots.into_iter().for_each(|slot| self.track(slot));
        self.send(&holes).await;
        Ok(())
    }

    /// A no-op for a nonce in nobody's hands. It may have been ours once, lost to somebody else's transaction
    /// that a reorganisation then undid: what was signed for it may still be about, and has to be outbid.
    async fn filler(&self, nonce: u64, market: &Market) -> Result<Option<NonceAssignment>, Trouble> {
        let cap = self.spending.max_fee;
        let account = self.wallet.address();
        let once = self.store.run(move |store| store.assignment(account, nonce)).await?;
        let fees = match once.latest() {
            Some(latest) => latest.fees.bumped(market, cap),
            None => Fees::initial(market, cap),
        };
        let mut transactions = once.transactions;
        if let Some(fees) = fees {
            transactions.push(self.wallet.no_op(nonce, fees, Purpose::Gap)?);
        }
        // At the cap what was signed once goes out again; where nothing was, the next round tries anew.
        Ok((!transactions.is_empty()).then_some(NonceAssignment { nonce, relay: None, transactions }))
    }
}
