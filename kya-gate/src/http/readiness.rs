//! The last answer of `/readyz`: many requests cause one probe, and none waits for the probe of another.

use std::{sync::Mutex, time::Duration};

use host_kit::native::lock;
use tokio::{sync::Semaphore, time::Instant};

/// The time for which an answer is given again.
const HOLDS: Duration = Duration::from_secs(5);

/// The readiness of a gate in words, and the time of the probe.
#[derive(Debug)]
pub struct Readiness {
    last: Mutex<(Option<Instant>, Result<String, String>)>,
    probes: Semaphore,
}

impl Readiness {
    /// Gives `words` until the first probe.
    pub fn new(words: Result<String, String>) -> Self {
        Self { last: Mutex::new((None, words)), probes: Semaphore::new(1) }
    }

    /// Returns the last words, or those of `probe` where they are old and no other probe is under way.
    pub(super) async fn or_else(
        &self,
        probe: impl Future<Output = Result<String, String>>,
    ) -> Result<String, String> {
        // Before the last words are read, so that they include those of a probe that just ended.
        let probing = self.probes.try_acquire();
        let (at, last) = lock(&self.last).clone();
        if probing.is_err() || at.is_some_and(|at| at.elapsed() < HOLDS) {
            return last;
        }
        let words = probe.await;
        *lock(&self.last) = (Some(Instant::now()), words.clone());
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    #[tokio::test(start_paused = true)]
    async fn the_last_words_are_given_while_a_probe_is_under_way() {
        let ok = |words: &str| Ok::<_, String>(words.to_owned());
        let readiness = Readiness::new(ok("first"));
        assert_eq!(readiness.or_else(ready(ok("second"))).await, ok("second"));
        assert_eq!(readiness.or_else(pending()).await, ok("second"));
        tokio::time::advance(HOLDS).await;
        let mut probing = Box::pin(readiness.or_else(pending()));
        assert!(futures_util::poll!(&mut probing).is_pending());
        assert_eq!(readiness.or_else(pending()).await, ok("second"));
        // The request that probed was dropped.
        drop(probing);
        assert_eq!(readiness.or_else(ready(Err("away".to_owned()))).await, Err("away".to_owned()));
        assert_eq!(readiness.or_else(pending()).await, Err("away".to_owned()));
    }
}
