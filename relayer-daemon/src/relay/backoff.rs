//! A backoff that all relays share: while the chain or the store fails, one relay at a time finds out whether
//! it still does, and the others wait. Without it each would find out for itself, with a whole check.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::outcome::Failure;

/// The backoff after the first failure; each further one doubles it.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(500);
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The step that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RelayStep {
    /// A relay's check.
    Check,
    /// The sender, which reads the next nonce and writes to the store.
    Send,
}

/// The shared backoff.
#[derive(Debug, Default)]
pub struct SharedBackoff {
    failing: Mutex<Option<FailingStep>>,
}

#[derive(Debug)]
struct FailingStep {
    step: RelayStep,
    failure: Failure,
    pause: Duration,
    next: Instant,
    /// True if a relay went on after the last failure.
    probed: bool,
}

impl SharedBackoff {
    /// Lets every relay go on while nothing fails, and otherwise one after each backoff.
    ///
    /// # Errors
    /// The failure, and the time to wait.
    pub(super) fn pass(&self) -> Result<(), (Failure, Duration)> {
        let now = Instant::now();
        match &mut *self.lock() {
            Some(failing) if now < failing.next => Err((failing.failure.clone(), failing.next - now)),
            Some(failing) => {
                failing.next = now + failing.pause;
                failing.probed = true;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Notes a failure. Failures of relays that went on together count once.
    pub(super) fn failed(&self, step: RelayStep, failure: Failure) {
        let mut failing = self.lock();
        let pause = match &*failing {
            None => FIRST_PAUSE,
            Some(before) if before.probed => (before.pause * 2).min(LONGEST_PAUSE),
            Some(_) => return,
        };
        *failing = Some(FailingStep { step, failure, pause, next: Instant::now() + pause, probed: false });
    }

    /// Notes that a step has worked. A check says nothing about the sender.
    pub(super) fn worked(&self, step: RelayStep) {
        let mut failing = self.lock();
        if step == RelayStep::Send || failing.as_ref().is_some_and(|failing| failing.step == RelayStep::Check)
        {
            *failing = None;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<FailingStep>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn while_it_fails_one_relay_goes_on_after_each_backoff_and_a_check_says_nothing_about_the_sender() {
        let backoff = SharedBackoff::default();
        assert!((0..9).all(|_| backoff.pass().is_ok()), "nothing fails");
        let mut pauses = Vec::new();
        for _ in 0..6 {
            for _ in 0..9 {
                backoff.failed(RelayStep::Check, Failure::rpc("down"));
            }
            let (failure, pause) = backoff.pass().unwrap_err();
            assert_eq!(failure, Failure::rpc("down"));
            pauses.push(pause.as_millis());
            tokio::time::sleep(pause).await;
            assert_eq!((0..9).filter(|_| backoff.pass().is_ok()).count(), 1);
        }
        assert_eq!(pauses, [500, 1_000, 2_000, 4_000, 5_000, 5_000]);
        backoff.worked(RelayStep::Check);
        assert!(backoff.pass().is_ok());
        let backoff = SharedBackoff::default();
        backoff.failed(RelayStep::Send, Failure::rpc("down"));
        backoff.worked(RelayStep::Check);
        assert!(backoff.pass().is_err());
        backoff.worked(RelayStep::Send);
        assert!(backoff.pass().is_ok());
    }
}
