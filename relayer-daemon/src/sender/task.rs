//! The sender's loops, which do not wait for one another: submitting, following, watching, and trying a
//! signer that does not sign.
//!
//! They run in one task and end together at shutdown, each after the step in hand.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep, sleep_until};

use super::{Sender, SenderError};
use crate::{
    chain::ChainNode,
    process::shutdown::{ShutdownSignal, stopped},
};

/// Jobs taken at once: they share one read of the chain's nonce.
const BATCH: usize = 16;
/// The pause between a send and the first round; it doubles with each round.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The pause after a round that settled something, while more is in flight.
const SHORT_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between rounds while anything is in flight.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The pause before a signer that has failed is tried again; it doubles with each try.
const FIRST_TRY: Duration = Duration::from_secs(1);
/// The longest pause before a signer that has failed is tried again.
const LAST_TRY: Duration = Duration::from_secs(30);
/// How long unanswered sends may go on at shutdown.
const LAST_SENDS: Duration = Duration::from_secs(1);
/// How often the mined count is read and blocks are compared, to notice reorgs.
pub const IDLE_WATCH: Duration = Duration::from_secs(15);
/// How often the chain is asked what is final.
const FINALITY_EVERY: Duration = Duration::from_secs(60);

impl<N: ChainNode> Sender<N> {
    /// Runs until shutdown. The current send is finished; relays not yet taken stay in the store.
    pub async fn run(self: Arc<Self>, stop: ShutdownSignal) {
        tokio::join!(
            self.submitting(stop.clone()),
            self.following(stop.clone()),
            self.watching(stop.clone()),
            self.trying_signer(stop.clone())
        );
        let cut_off = self.parts.node.finish_broadcasts(LAST_SENDS).await;
        if cut_off > 0 {
            tracing::warn!(cut_off, "sends without an answer at shutdown; the next start sends them again");
        }
    }

    /// Signs and sends what waits in the queue, while the pool has room.
    async fn submitting(&self, mut stop: ShutdownSignal) {
        loop {
            let jobs = if *stop.borrow() { Vec::new() } else { self.take_jobs(BATCH) };
            if !jobs.is_empty() {
                self.submit(jobs).await;
                self.sent.notify_one();
                continue;
            }
            tokio::select! {
                biased;
                () = stopped(&mut stop) => return,
                () = self.may_submit.notified() => {}
            }
        }
    }

    /// Makes rounds while anything is in flight.
    async fn following(&self, mut stop: ShutdownSignal) {
        let mut pause = FIRST_PAUSE;
        let mut next_round = Instant::now();
        let mut block = self.parts.block.subscribe();
        loop {
            let waiting = self.has_pending();
            tokio::select! {
                biased;
                () = stopped(&mut stop) => return,
                () = sleep_until(next_round), if waiting => {
                    let settled = match self.poll().await {
                        Ok(settled) => {
                            self.finished_round();
                            settled
                        }
                        Err(error) => {
                            tracing::warn!(%error, "round not finished");
                            false
                        }
                    };
                    // What this round has told the others is no news here.
                    block.mark_unchanged();
                    pause = if settled { SHORT_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
                    next_round = Instant::now() + pause;
                }
                // The sender itself keeps the channel open.
                Ok(()) = block.changed(), if waiting => next_round = Instant::now(),
                () = self.sent.notified() => {
                    pause = FIRST_PAUSE;
                    // Where a full pool keeps others waiting, the chain may have taken it already.
                    let soon = Instant::now() + if self.room() == 0 { Duration::ZERO } else { pause };
                    // An endless stream of jobs must not delay the next round for ever.
                    next_round = if waiting { next_round.min(soon) } else { soon };
                }
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
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => return,
                () = self.signer_failed.notified() => {}
            }
            let mut pause = FIRST_TRY;
            while self.has_signer_failed() {
                tokio::select! {
                    biased;
                    () = stopped(&mut stop) => return,
                    () = sleep(pause) => {}
                }
                let tried = tokio::select! {
                    biased;
                    () = stopped(&mut stop) => return,
                    tried = self.parts.wallet.try_out() => tried,
                };
                match tried {
                    Ok(()) => self.signer_works(),
                    // What is wrong is in the log since the first failure.
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
        self.watch_count().await?;
        self.look_up_lost().await;
        if !self.awaits_finality().await? {
            return Ok(());
        }
        let is_due = asked_for_finality.is_none_or(|at| at.elapsed() >= FINALITY_EVERY);
        let heads = if is_due { Some(self.parts.node.heads().await?) } else { None };
        self.watch_blocks(heads).await?;
        if is_due {
            *asked_for_finality = Some(Instant::now());
        }
        Ok(())
    }
}
