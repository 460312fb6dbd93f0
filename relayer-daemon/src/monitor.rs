//! The daemon's look around, now and then: is the chain there, is there money, what can be forgotten.
//!
//! Idle, the daemon makes a constant number of RPC calls: two here and one in the sender, every 15 seconds,
//! and one more for each endpoint where there are several.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::time::interval;

use crate::{
    error_code::ErrorCode,
    outcome::Failure,
    relay::{MINIMUM_BALANCE_WEI, Relayer},
    stop::{Stop, stopped},
};

/// How often.
pub const ROUND: Duration = Duration::from_secs(15);
/// After how long without a word from the chain the daemon is not ready, seconds.
const SILENCE: u64 = 60;
/// Rounds between two prunings of the limits' maps: a minute, since a flood of addresses fills them fast.
const FORGET_ROUNDS: u64 = 4;
/// Rounds between two prunings of the journal: an hour.
const PRUNE_ROUNDS: u64 = 240;

/// Whether the daemon can do its work.
#[derive(Debug, Clone, Default)]
pub struct Health {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    /// Wall clocks jump; silence is measured on one that does not.
    started: Instant,
    /// Seconds from `started`.
    chain_seen_after: AtomicU64,
    funded: AtomicBool,
    stopping: AtomicBool,
}

impl Default for Inner {
    fn default() -> Self {
        Self {
            started: Instant::now(),
            chain_seen_after: AtomicU64::new(0),
            funded: AtomicBool::new(true),
            stopping: AtomicBool::new(false),
        }
    }
}

impl Health {
    /// The chain answered.
    pub fn saw(&self, balance_wei: u128) {
        self.inner.chain_seen_after.store(self.inner.started.elapsed().as_secs(), Ordering::Relaxed);
        self.inner.funded.store(balance_wei >= MINIMUM_BALANCE_WEI, Ordering::Relaxed);
    }

    /// The daemon is about to stop.
    pub fn stop(&self) {
        self.inner.stopping.store(true, Ordering::Relaxed);
    }

    /// Whether requests make sense now.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), Failure> {
        if self.inner.stopping.load(Ordering::Relaxed) {
            return Err(Failure::shutting_down());
        }
        let seen_after = self.inner.chain_seen_after.load(Ordering::Relaxed);
        let silence = self.inner.started.elapsed().as_secs().saturating_sub(seen_after);
        if silence > SILENCE {
            let message = format!("No answer from the chain for {silence} s");
            return Err(Failure::new(ErrorCode::ChainSilent, message).retry_after(15));
        }
        if self.inner.funded.load(Ordering::Relaxed) { Ok(()) } else { Err(Failure::balance_too_low()) }
    }
}

/// Looks around until `stop` is set.
pub async fn run(relayer: Arc<Relayer>, health: Health, mut stop: Stop) {
    let mut rounds = interval(ROUND);
    for round in 0_u64.. {
        tokio::select! {
            _ = rounds.tick() => {}
            () = stopped(&mut stop) => return,
        }
        look(&relayer, &health).await;
        if round % FORGET_ROUNDS == 0 {
            relayer.limits.forget_idle();
        }
        if round % PRUNE_ROUNDS == 0 {
            prune(&relayer).await;
        }
    }
}

async fn look(relayer: &Relayer, health: &Health) {
    let chain = &relayer.chain;
    chain.rpc.prefer_freshest().await;
    match tokio::try_join!(chain.header("latest"), chain.balance()) {
        Ok((header, balance)) => {
            relayer.saw_balance(balance);
            health.saw(balance);
            if let Some(number) = header.and_then(|header| header.number) {
                relayer.metrics.head_block.set(number.to());
            }
        }
        Err(error) => tracing::warn!(%error, "the chain does not answer"),
    }
}

async fn prune(relayer: &Relayer) {
    let now = relayer.clock.now();
    match relayer.store.run(move |store| store.prune(now)).await {
        Ok(forgotten) => tracing::debug!(forgotten, "journal pruned"),
        Err(error) => tracing::error!(%error, "journal not pruned"),
    }
}
