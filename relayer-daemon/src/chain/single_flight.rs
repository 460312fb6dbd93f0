//! Single flight: callers that ask for the same while a call is on its way share it.
//!
//! Nothing is kept once the answer is there: it is no older than the call.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
};

use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Shared, WeakShared},
};

/// The calls on their way, by what they ask for.
#[derive(Debug)]
pub(super) struct SingleFlight<K, V: Clone>(Mutex<HashMap<K, WeakShared<BoxFuture<'static, V>>>>);

impl<K, V: Clone> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Hash + Eq, V: Clone> SingleFlight<K, V> {
    /// Joins the call for `key` that is on its way, or makes one. If the caller that made it goes away, the
    /// others go on with it.
    pub(super) fn get(
        &self,
        key: K,
        call: impl Future<Output = V> + Send + 'static,
    ) -> Shared<BoxFuture<'static, V>> {
        let mut calls = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let on_its_way = calls.get(&key).and_then(WeakShared::upgrade).filter(|call| call.peek().is_none());
        if let Some(call) = on_its_way {
            return call;
        }
        let call = call.boxed().shared();
        calls.retain(|_, call| call.upgrade().is_some());
        if let Some(weak) = call.downgrade() {
            calls.insert(key, weak);
        }
        call
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::{sync::Arc, time::Duration};
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn calls_at_the_same_time_are_one_though_a_caller_goes_away_and_later_ones_are_made_anew() {
        let (flight, made) = (SingleFlight::default(), Arc::new(AtomicUsize::new(0)));
        let call = || {
            let made = Arc::clone(&made);
            async move {
                sleep(Duration::from_millis(50)).await;
                made.fetch_add(1, Ordering::Relaxed)
            }
        };
        let first = flight.get(1, call());
        let second = flight.get(1, call());
        let other = flight.get(2, call());
        assert_eq!(tokio::join!(first, second), (0, 0));
        assert_eq!(other.await, 1);
        assert_eq!(flight.get(1, call()).await, 2);
        assert_eq!(made.load(Ordering::Relaxed), 3);
        let flight = SingleFlight::default();
        let first = flight.get((), async {
            sleep(Duration::from_millis(50)).await;
            7
        });
        let second = flight.get((), async { 8 });
        assert!(tokio::time::timeout(Duration::from_millis(10), first).await.is_err());
        assert_eq!(second.await, 7);
    }
}
