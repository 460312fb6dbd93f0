//! The state behind `GET /readyz`: ready, or the reason why not. The monitor reports the facts.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::outcome::{ErrorCode, Failure};

/// Silence of the chain after which the daemon is not ready.
const CHAIN_SILENCE: Duration = Duration::from_secs(60);
/// Time without a finished round of the sender after which the daemon is not ready; an idle sender makes a
/// round every 15 seconds.
const SENDER_SILENCE: Duration = Duration::from_secs(45);

/// The daemon's ability to relay. Clones share it.
#[derive(Debug, Clone)]
pub struct RelayerReadiness {
    facts: Arc<Mutex<ReadinessFacts>>,
}

/// The facts, with times of the monotonic clock.
#[derive(Debug)]
struct ReadinessFacts {
    stopping: bool,
    chain_answered: Instant,
    /// Finished rounds of the sender, and the time at which their number last grew.
    sender_rounds: (u64, Instant),
    /// The reason why no account can take relays, if none can.
    accounts: Result<(), Failure>,
    /// The reason why the store could not be written, if so.
    store: Result<(), Failure>,
    is_budget_spent: bool,
    /// True if the operator has paused the intake.
    is_paused: bool,
}

impl Default for RelayerReadiness {
    fn default() -> Self {
        let now = Instant::now();
        let facts = ReadinessFacts {
            stopping: false,
            chain_answered: now,
            sender_rounds: (0, now),
            accounts: Ok(()),
            store: Ok(()),
            is_budget_spent: false,
            is_paused: false,
        };
        Self { facts: Arc::new(Mutex::new(facts)) }
    }
}

impl RelayerReadiness {
    /// Reports an answer of the chain.
    pub fn chain_answered(&self) {
        self.lock().chain_answered = Instant::now();
    }

    /// Reports whether any account can take relays, or why none can.
    pub fn accounts(&self, accounts: Result<(), Failure>) {
        self.lock().accounts = accounts;
    }

    /// Reports how many rounds the accounts' senders have finished, together.
    pub fn sender_rounds(&self, count: u64) {
        let mut facts = self.lock();
        if count != facts.sender_rounds.0 {
            facts.sender_rounds = (count, Instant::now());
        }
    }

    /// Reports that there is no sender now.
    pub fn no_sender(&self) {
        self.lock().sender_rounds.1 = Instant::now();
    }

    /// Reports whether the store could be written, or why not.
    pub fn store(&self, written: Result<(), Failure>) {
        self.lock().store = written;
    }

    /// Reports whether the budget is spent.
    pub fn budget_spent(&self, is_spent: bool) {
        self.lock().is_budget_spent = is_spent;
    }

    /// Reports whether the operator has paused the intake.
    pub fn paused(&self, is_paused: bool) {
        self.lock().is_paused = is_paused;
    }

    /// Reports that the daemon stops or drains.
    pub fn stop(&self) {
        self.lock().stopping = true;
    }

    /// Checks that the daemon is ready for requests. An empty balance or budget, or a paused intake, is no
    /// reason to take it out of a load balancer, since others have the same, and it still answers questions
    /// about relays: it refuses requests then with the returned code.
    ///
    /// # Errors
    /// The worst reason why it is not.
    pub fn check(&self) -> Result<Option<ErrorCode>, Failure> {
        self.lock().check(Instant::now())
    }

    fn lock(&self) -> MutexGuard<'_, ReadinessFacts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReadinessFacts {
    fn check(&self, now: Instant) -> Result<Option<ErrorCode>, Failure> {
        if self.stopping {
            return Err(Failure::of(ErrorCode::ShuttingDown));
        }
        self.store.clone().map_err(|failure| failure.retry_after(15))?;
        let silence = now.saturating_duration_since(self.chain_answered);
        if silence > CHAIN_SILENCE {
            let message = format!("No answer from the chain for {} s", silence.as_secs());
            return Err(Failure::new(ErrorCode::ChainSilent, message));
        }
        let silence = now.saturating_duration_since(self.sender_rounds.1);
        if silence > SENDER_SILENCE {
            let message = format!("The sender has stood still for {} s", silence.as_secs());
            return Err(Failure::new(ErrorCode::SenderStalled, message));
        }
        let refuses = [ErrorCode::RelayerBalanceTooLow, ErrorCode::IntakePaused];
        match &self.accounts {
            Err(failure) if refuses.contains(&failure.code) => Ok(Some(failure.code)),
            Err(failure) => Err(failure.clone().retry_after(failure.retry_after.unwrap_or(15))),
            Ok(()) if self.is_paused => Ok(Some(ErrorCode::IntakePaused)),
            Ok(()) => Ok(self.is_budget_spent.then_some(ErrorCode::GasBudgetExhausted)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(readiness: &RelayerReadiness, after: Duration) -> Option<ErrorCode> {
        readiness.lock().check(Instant::now() + after).err().map(|failure| failure.code)
    }

    #[test]
    fn each_reason_is_told_and_the_worst_first_and_a_sender_that_counts_no_further_stands_still() {
        let ready = RelayerReadiness::default();
        assert_eq!(code(&ready, Duration::ZERO), None);
        assert_eq!(code(&ready, Duration::from_secs(50)), Some(ErrorCode::SenderStalled));
        assert_eq!(code(&ready, Duration::from_secs(70)), Some(ErrorCode::ChainSilent));
        ready.budget_spent(true);
        assert_eq!(ready.check(), Ok(Some(ErrorCode::GasBudgetExhausted)));
        ready.paused(true);
        assert_eq!(ready.check(), Ok(Some(ErrorCode::IntakePaused)));
        ready.accounts(Err(Failure::of(ErrorCode::RelayerBalanceTooLow)));
        assert_eq!(ready.check(), Ok(Some(ErrorCode::RelayerBalanceTooLow)));
        ready.accounts(Err(Failure::of(ErrorCode::SignerFailed)));
        assert_eq!(ready.check(), Err(Failure::of(ErrorCode::SignerFailed).retry_after(15)));
        ready.accounts(Err(Failure::of(ErrorCode::AccountDelegated)));
        assert_eq!(ready.check(), Err(Failure::of(ErrorCode::AccountDelegated).retry_after(600)));
        ready.store(Err(Failure::of(ErrorCode::JournalFailed)));
        assert_eq!(code(&ready, Duration::ZERO), Some(ErrorCode::JournalFailed));
        ready.stop();
        assert_eq!(code(&ready, Duration::ZERO), Some(ErrorCode::ShuttingDown));

        let ready = RelayerReadiness::default();
        ready.lock().sender_rounds = (7, Instant::now() - Duration::from_secs(60));
        ready.sender_rounds(7);
        assert_eq!(code(&ready, Duration::ZERO), Some(ErrorCode::SenderStalled));
        ready.sender_rounds(8);
        assert_eq!(code(&ready, Duration::ZERO), None);
    }
}
