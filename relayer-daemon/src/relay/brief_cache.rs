//! Reads of the chain are coalesced (single-flight) and cached for a second.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::OnceCell;

use crate::outcome::Failure;

/// The TTL of an answer, counted from the question.
const LIFETIME: Duration = Duration::from_secs(1);
/// The largest number of cached answers; beyond it each caller makes its own call.
const CAPACITY: usize = 4_096;

/// Answers by key, failures included: an endpoint that is down must not be asked more often.
#[derive(Debug)]
pub struct BriefCache<K, V> {
    entries: Mutex<HashMap<K, CachedAnswer<V>>>,
}

#[derive(Debug)]
struct CachedAnswer<V> {
    asked: Instant,
    answer: Arc<OnceCell<Result<V, Failure>>>,
}

impl<K, V> Default for BriefCache<K, V> {
    fn default() -> Self {
        Self { entries: Mutex::default() }
    }
}

impl<K: Hash + Eq, V: Clone> BriefCache<K, V> {
    /// Returns the answer for `key`: cached, coalesced with a call in flight, or the result of `ask`.
    pub async fn get(&self, key: K, ask: impl Future<Output = Result<V, Failure>>) -> Result<V, Failure> {
        let answer = self.answer(key, Instant::now());
        answer.get_or_init(|| ask).await.clone()
    }

    /// Removes an outdated answer: the next caller asks again.
    pub(super) fn forget(&self, key: &K) {
        self.lock().remove(key);
    }

    fn answer(&self, key: K, now: Instant) -> Arc<OnceCell<Result<V, Failure>>> {
        let is_fresh = |entry: &CachedAnswer<V>| now.saturating_duration_since(entry.asked) < LIFETIME;
        let mut entries = self.lock();
        if let Some(entry) = entries.get(&key).filter(|entry| is_fresh(entry)) {
            return Arc::clone(&entry.answer);
        }
        if entries.len() >= CAPACITY {
            entries.retain(|_, entry| is_fresh(entry));
        }
        let answer = Arc::default();
        if entries.len() < CAPACITY {
            entries.insert(key, CachedAnswer { asked: now, answer: Arc::clone(&answer) });
        }
        answer
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, CachedAnswer<V>>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Default)]
    struct CountingSource(AtomicU64);

    impl CountingSource {
        async fn ask(&self) -> Result<u64, Failure> {
            let count = self.0.fetch_add(1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            Ok(count)
        }
    }

    #[tokio::test]
    async fn concurrent_calls_share_one_answer_and_a_failure_too() {
        let (cache, source) = (BriefCache::default(), CountingSource::default());
        let answers = futures_util::future::join_all((0..50).map(|_| cache.get("key", source.ask()))).await;
        assert!(answers.iter().all(|answer| *answer == Ok(0)), "{answers:?}");
        assert_eq!(cache.get("other", source.ask()).await, Ok(1));
        let down = async { Err(Failure::rpc("down")) };
        assert_eq!(cache.get("down", down).await, Err(Failure::rpc("down")));
        assert_eq!(cache.get("down", source.ask()).await, Err(Failure::rpc("down")));
    }

    #[tokio::test]
    async fn a_removed_answer_is_asked_again_also_while_another_caller_waits() {
        let (cache, source) = (BriefCache::default(), CountingSource::default());
        let (first, second) = tokio::join!(cache.get("key", source.ask()), async {
            cache.forget(&"key");
            cache.get("key", source.ask()).await
        });
        assert_eq!((first, second), (Ok(0), Ok(1)));
    }

    #[test]
    fn an_answer_lasts_a_second_and_there_are_not_too_many() {
        let cache = BriefCache::<usize, u64>::default();
        let now = Instant::now();
        let first = cache.answer(0, now);
        assert!(Arc::ptr_eq(&first, &cache.answer(0, now + LIFETIME / 2)));
        assert!(!Arc::ptr_eq(&first, &cache.answer(0, now + LIFETIME)));
        for key in 0..2 * CAPACITY {
            let _ = cache.answer(key, now);
        }
        assert_eq!(cache.lock().len(), CAPACITY);
        let _ = cache.answer(usize::MAX, now + 2 * LIFETIME);
        assert_eq!(cache.lock().len(), 1, "what is over makes room");
    }
}
