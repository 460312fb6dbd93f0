//! The sender's loop: jobs, rounds while anything is in flight, and a periodic look for reorgs.

use std::time::Duration;

use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use super::{SendJob, Sender};
use crate::{
    chain::ChainNode,
    process::shutdown::{ShutdownSignal, stopped},
};

/// Jobs taken at once: they share one read of the chain's nonce.
const BATCH: usize = 16;
/// The pause between a send and the first round; it doubles with each round.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause between rounds while anything is in flight.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// How long unanswered sends may go on at shutdown.
const LAST_SENDS: Duration = Duration::from_secs(1);
/// How often an idle sender reads its mined count, to notice reorgs.
pub const IDLE_WATCH: Duration = Duration::from_secs(15);

impl<N: ChainNode> Sender<N> {
    /// Runs until shutdown. The current send is finished; jobs not yet taken stay in the store.
    pub async fn run(mut self, mut jobs: mpsc::Receiver<SendJob>, mut stop: ShutdownSignal) {
        let mut batch = Vec::with_capacity(BATCH);
        let mut pause = FIRST_PAUSE;
        let mut next_round = Instant::now();
        let mut idle = interval(IDLE_WATCH);
        idle.set_missed_tick_behavior(MissedTickBehavior::Delay);
        idle.reset();
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                () = sleep_until(next_round), if self.has_pending() => {
                    match self.poll().await {
                        Ok(()) => self.parts.metrics.sender_rounds.inc(),
                        Err(error) => tracing::warn!(%error, "round not finished"),
                    }
                    pause = (pause * 2).min(LONGEST_PAUSE);
                    next_round = Instant::now() + pause;
                    idle.reset();
                }
                taken = jobs.recv_many(&mut batch, BATCH) => {
                    if taken == 0 {
                        break;
                    }
                    let waiting = self.has_pending();
                    self.submit(std::mem::take(&mut batch)).await;
                    pause = FIRST_PAUSE;
                    let soon = Instant::now() + pause;
                    // An endless stream of jobs must not delay the next round for ever.
                    next_round = if waiting { next_round.min(soon) } else { soon };
                    idle.reset();
                }
                _ = idle.tick() => {
                    match self.watch_chain().await {
                        Ok(_) => self.parts.metrics.sender_rounds.inc(),
                        Err(error) => tracing::warn!(%error, "chain not reached"),
                    }
                }
            }
        }
        let cut_off = self.parts.node.finish_broadcasts(LAST_SENDS).await;
        if cut_off > 0 {
            tracing::warn!(cut_off, "sends without an answer at shutdown; the next start sends them again");
        }
    }
}
