//! Whether requests make sense now: what `GET /readyz` answers. The monitor brings the facts.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::outcome::{ErrorCode, Failure};

/// After how long without an answer from the chain the daemon is not ready.
const CHAIN_SILENCE: Duration = Duration::from_secs(60);
/// After how long without a round of the sender. It makes one every 15 seconds even if it has nothing to do.
const SENDER_SILENCE: Duration = Duration::from_secs(45);

/// What is known of the daemon's ability to relay. Clones share it.
#[derive(Debug, Clone)]
pub struct RelayerReadiness {
    facts: Arc<Mutex<Facts>>,
}

/// Silences are measured by a clock that does not jump.
#[derive(Debug)]
struct Facts {
    stopping: bool,
    chain_answered: Instant,
    /// Rounds of the sender that came to their end, and when the number last grew.
    sender_rounds: (u64, Instant),
    funded: bool,
    store_writable: bool,
    /// If the budget is spent, seconds until it is fresh again.
    budget_spent: Option<u64>,
}

impl Default for RelayerReadiness {
    fn default() -> Self {
        let now = Instant::now();
        let facts = Facts {
            stopping: false,
            chain_answered: now,
            sender_rounds: (0, now),
            funded: true,
            store_writable: true,
            budget_spent: None,
        };
        Self { facts: Arc::new(Mutex::new(facts)) }
    }
}

impl RelayerReadiness {
    /// The chain answered, and whether the account holds enough.
    pub fn chain_answered(&self, funded: bool) {
        let mut facts = self.lock();
        (facts.chain_answered, facts.funded) = (Instant::now(), funded);
    }

    /// How many rounds the sender has finished so far.
    pub fn sender_rounds(&self, count: u64) {
        let mut facts = self.lock();
        if count != facts.sender_rounds.0 {
            facts.sender_rounds = (count, Instant::now());
        }
    }

    /// Whether the journal could be written.
    pub fn store(&self, writable: bool) {
        self.lock().store_writable = writable;
    }

    /// Whether the budget is spent, and then in how many seconds it is fresh again.
    pub fn budget_spent(&self, seconds: Option<u64>) {
        self.lock().budget_spent = seconds;
    }

    /// The daemon is about to stop, or drains.
    pub fn stop(&self) {
        self.lock().stopping = true;
    }

    /// Whether requests make sense now.
    ///
    /// # Errors
    /// Why not, the worst first.
    pub fn check(&self) -> Result<(), Failure> {
        self.lock().check(Instant::now())
    }

    fn lock(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Facts {
    fn check(&self, now: Instant) -> Result<(), Failure> {
        if self.stopping {
            return Err(Failure::shutting_down());
        }
        if !self.store_writable {
            return Err(Failure::store().retry_after(15));
        }
        let silence = now.saturating_duration_since(self.chain_answered);
        if silence > CHAIN_SILENCE {
            let message = format!("No answer from the chain for {} s", silence.as_secs());
            return Err(Failure::new(ErrorCode::ChainSilent, message).retry_after(15));
        }
        let silence = now.saturating_duration_since(self.sender_rounds.1);
        if silence > SENDER_SILENCE {
            let message = format!("The sender has stood still for {} s", silence.as_secs());
            return Err(Failure::new(ErrorCode::SenderStalled, message).retry_after(15));
        }
        if !self.funded {
            return Err(Failure::balance_too_low());
        }
        self.budget_spent.map_or(Ok(()), |seconds| Err(Failure::budget_exhausted(seconds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(readiness: &RelayerReadiness, after: Duration) -> Option<ErrorCode> {
        readiness.lock().check(Instant::now() + after).err().map(|failure| failure.code)
    }

    #[test]
    fn each_reason_is_told_and_the_worst_first() {
        let ready = RelayerReadiness::default();
        assert_eq!(code(&ready, Duration::ZERO), None);
        assert_eq!(code(&ready, Duration::from_secs(50)), Some(ErrorCode::SenderStalled));
        assert_eq!(code(&ready, Duration::from_secs(70)), Some(ErrorCode::ChainSilent));
        ready.budget_spent(Some(7));
        assert_eq!(ready.check(), Err(Failure::budget_exhausted(7)));
        ready.chain_answered(false);
        assert_eq!(code(&ready, Duration::ZERO), Some(ErrorCode::RelayerBalanceTooLow));
        ready.store(false);
        assert_eq!(code(&ready, Duration::ZERO), Some(ErrorCode::JournalFailed));
        ready.stop();
        assert_eq!(code(&ready, Duration::ZERO), Some(ErrorCode::ShuttingDown));
    }

    #[test]
    fn a_sender_that_counts_no_further_stands_still() {
        let ready = RelayerReadiness::default();
        ready.lock().sender_rounds = (7, Instant::now() - Duration::from_secs(60));
        ready.sender_rounds(7);
        assert_eq!(code(&ready, Duration::ZERO), Some(ErrorCode::SenderStalled));
        ready.sender_rounds(8);
        assert_eq!(code(&ready, Duration::ZERO), None);
    }
}
