//! The sender's loops, which do not wait for one another.
//!
//! | loop | does |
//! |---|---|
//! | submitting | signs and stores what waits, while the pool has room |
//! | sending | sends that; the next batch does not wait for the answers |
//! | counting | reads how many the chain has mined, which makes room in the pool |
//! | settling | after each count: receipts, replacements, gaps |
//! | watching | looks for reorgs, and for what has become final |
//! | trying the signer | after it has failed |
//!
//! They run in one task and end together at shutdown, each after the step in hand.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until},
};

use super::{Sender, SenderError, nonce_assignment::SignedBatch};
use crate::{
    chain::ChainNode,
    outcome::BlockHeads,
    process::shutdown::{ShutdownSignal, stopped, unless_stopped},
};

/// Jobs taken at once: they share one read of the chain's nonce.
const BATCH: usize = 16;
/// The pause between a send and the first count; it doubles with each count that has not grown.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The pause after a count that has grown, while more is in flight.
const SHORT_PAUSE: Duration = Duration::from_millis(50);
/// Time after the last send or grown count for which a full pool is counted that often; then it is counted no
/// more often than another one.
const ACTIVE_FOR: Duration = Duration::from_secs(30);
/// The longest pause between counts while anything is in flight.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a signer that has failed is tried again; it doubles with each try.
const FIRST_TRY: Duration = Duration::from_secs(1);
/// The longest pause before a signer that has failed is tried again.
const LAST_TRY: Duration = Duration::from_secs(30);
/// Time that unanswered sends have to end at shutdown.
const LAST_SENDS: Duration = Duration::from_secs(1);
/// Interval at which the mined count is read and blocks are compared, to notice reorgs.
pub const IDLE_WATCH: Duration = Duration::from_secs(15);
/// Interval at which the chain is asked which blocks are final.
const FINALITY_EVERY: Duration = Duration::from_secs(60);

/// Returns the pause after a count: shorter while relays may wait at a full pool, none while that empties.
fn pause_after(pause: Duration, is_full: bool, has_grown: bool) -> Duration {
    match (has_grown, is_full) {
        (true, true) => Duration::ZERO,
        (true, false) => SHORT_PAUSE,
        (false, true) => (pause * 2).clamp(SHORT_PAUSE, FIRST_PAUSE),
        (false, false) => (pause * 2).clamp(SHORT_PAUSE, LONGEST_PAUSE),
    }
}

impl<N: ChainNode> Sender<N> {
    /// Runs until shutdown. The current send is finished; relays not yet taken stay in the store.
    pub async fn run(self: Arc<Self>, stop: ShutdownSignal) {
        let (signed, batches) = mpsc::unbounded_channel();
        let (counted, counts) = watch::channel(0);
        tokio::join!(
            self.submitting(signed, stop.clone()),
            self.sending(batches),
            self.counting(counted, stop.clone()),
            self.settling(counts, stop.clone()),
            self.watching(stop.clone()),
            self.trying_signer(stop.clone())
        );
        let cut_off = self.parts.node.finish_broadcasts(LAST_SENDS).await;
        if cut_off > 0 {
            tracing::warn!(cut_off, "sends without an answer at shutdown; the next start sends them again");
        }
    }

    /// Follows an account without its key until shutdown: compares what it has mined with the chain until
    /// that is final, and looks up what it has given up.
    pub async fn follow_without_key(&self, mut stop: ShutdownSignal) {
        while let Err(error) = self.take_up_ended().await {
            tracing::warn!(account = %self.account(), %error, "not followed, tries again");
            if unless_stopped(&mut stop, sleep(IDLE_WATCH)).await.is_none() {
                return;
            }
        }
        self.watching(stop).await;
        self.parts.metrics.forget_account(self.account());
    }

    /// Signs and stores what waits in the queue, while the pool has room.
    async fn submitting(&self, signed: mpsc::UnboundedSender<SignedBatch>, mut stop: ShutdownSignal) {
        loop {
            if !*stop.borrow() && self.may_take_jobs() {
                // First: what comes meanwhile joins the batch.
                let pending = self.pending_count().await;
                let jobs = self.take_jobs(BATCH);
                // The loop that sends ends after this one.
                self.submit(jobs, pending).await.map(|batch| signed.send(batch));
                continue;
            }
            if unless_stopped(&mut stop, self.may_submit.notified()).await.is_none() {
                return;
            }
        }
    }

    /// Sends each batch at once; ends with the last one.
    async fn sending(&self, mut batches: mpsc::UnboundedReceiver<SignedBatch>) {
        let mut sends = FuturesUnordered::new();
        let mut is_open = true;
        while is_open || !sends.is_empty() {
            tokio::select! {
                batch = batches.recv(), if is_open => match batch {
                    Some(batch) => sends.push(self.send_batch(batch)),
                    None => is_open = false,
                },
                Some(()) = sends.next() => self.sent.notify_one(),
            }
        }
    }

    /// Reads the mined count while it may tell more about what is in flight.
    async fn counting(&self, counted: watch::Sender<u64>, mut stop: ShutdownSignal) {
        let mut pause = FIRST_PAUSE;
        let (mut next_count, mut moved_at) = (Instant::now(), Instant::now());
        let mut block = self.parts.block.subscribe();
        loop {
            let waiting = self.state().awaits_count();
            tokio::select! {
                biased;
                () = stopped(&mut stop) => return,
                () = sleep_until(next_count), if waiting => {
                    let is_full = moved_at.elapsed() < ACTIVE_FOR && (pause.is_zero() || !self.has_room());
                    let has_grown = match self.count(pause.is_zero()).await {
                        Ok(Some((mined, has_grown))) => {
                            self.state().is_settling = true;
                            counted.send_replace(mined);
                            has_grown
                        }
                        Ok(None) => false,
                        Err(error) => {
                            tracing::warn!(%error, "the chain's count is not read");
                            false
                        }
                    };
                    // The signal that this count sent to the others needs no second count here.
                    block.mark_unchanged();
                    if has_grown {
                        moved_at = Instant::now();
                    }
                    pause = pause_after(pause, is_full, has_grown);
                    next_count = Instant::now() + pause;
                }
                // The sender itself keeps the channel open.
                Ok(()) = block.changed(), if waiting => next_count = Instant::now(),
                () = self.settled.notified() => {}
                () = self.sent.notified() => {
                    // With a full pool others wait, and the chain may have taken this one already.
                    pause = if self.has_room() { FIRST_PAUSE } else { Duration::ZERO };
                    moved_at = Instant::now();
                    let soon = moved_at + pause;
                    // An endless stream of jobs must not delay the next count for ever.
                    next_count = if waiting { next_count.min(soon) } else { soon };
                }
            }
        }
    }

    /// Makes a round after each count, or after the last of those that came meanwhile.
    async fn settling(&self, mut counts: watch::Receiver<u64>, mut stop: ShutdownSignal) {
        loop {
            let mined = tokio::select! {
                biased;
                () = stopped(&mut stop) => return,
                Ok(()) = counts.changed() => *counts.borrow_and_update(),
            };
            match self.settle_round(mined).await {
                Ok(()) => self.finished_round(),
                Err(error) => tracing::warn!(%error, "round not finished"),
            }
            if !counts.has_changed().unwrap_or(false) {
                self.state().is_settling = false;
                self.settled.notify_one();
            }
        }
    }

    /// Looks for reorgs, also while nothing is in flight, and for what has become final.
    async fn watching(&self, mut stop: ShutdownSignal) {
        let mut asked_for_finality = None;
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => return,
                () = sleep(IDLE_WATCH) => {}
                () = self.count_fell.notified() => {}
            }
            if let Err(error) = self.watch(&mut asked_for_finality).await {
                tracing::warn!(%error, "chain not watched");
            } else if !self.has_pending() {
                self.finished_round();
            }
        }
    }

    /// Tries a signer that has failed, with backoff, until it signs.
    async fn trying_signer(&self, mut stop: ShutdownSignal) {
        while unless_stopped(&mut stop, self.signer_failed.notified()).await.is_some() {
            let mut pause = FIRST_TRY;
            while self.has_signer_failed() {
                let trying = async {
                    sleep(pause).await;
                    self.parts.wallet.try_out().await
                };
                let Some(tried) = unless_stopped(&mut stop, trying).await else { return };
                match tried {
                    Ok(()) => self.signer_works(),
                    // The first failure is in the log already.
                    Err(error) => tracing::debug!(account = %self.account(), %error, "tried in vain to sign"),
                }
                pause = (pause * 2).min(LAST_TRY);
            }
        }
    }

    fn finished_round(&self) {
        self.state().health.round_at = Some(Instant::now());
        self.parts.metrics.sender_rounds.with_label_values(&[self.account().to_string().as_str()]).inc();
    }

    async fn watch(&self, asked_for_finality: &mut Option<Instant>) -> Result<(), SenderError> {
        let mined = self.watch_count().await?;
        self.take_up_given_up().await?;
        self.look_up_lost(mined).await;
        self.take_up_open().await?;
        if !self.awaits_finality().await? {
            return Ok(());
        }
        let is_due = asked_for_finality.is_none_or(|at| at.elapsed() >= FINALITY_EVERY);
        let heads = if is_due { self.read_heads().await } else { None };
        self.watch_blocks(heads).await?;
        if is_due {
            *asked_for_finality = Some(Instant::now());
        }
        Ok(())
    }

    /// Reads the safe and the final block. Without them blocks are still compared; nothing becomes final.
    async fn read_heads(&self) -> Option<BlockHeads> {
        let heads = self.parts.node.heads().await;
        heads.inspect_err(|error| tracing::warn!(%error, "which blocks are final is unknown")).ok()
    }
}
