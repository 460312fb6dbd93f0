//! Single flight: of callers that want the same value at the same time, one gets it for all.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex},
};

use host_kit::native::lock;
use tokio::sync::OnceCell;

/// The flights under way, by key.
#[derive(Debug)]
pub(super) struct SingleFlight<K, V>(Mutex<HashMap<K, Arc<OnceCell<V>>>>);

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Copy + Eq + Hash, V: Clone> SingleFlight<K, V> {
    /// Returns the value of a key, by `get` unless another caller is getting it now. Where that caller is
    /// cancelled, the next one runs its own `get`.
    pub(super) async fn run(&self, key: K, get: impl Future<Output = V>) -> V {
        let cell = Arc::clone(lock(&self.0).entry(key).or_default());
        let place = FlightGuard { flight: self, key, cell };
        place.cell.get_or_init(|| get).await.clone()
    }
}

/// A caller's share of a flight, which ends with the value or with its last caller.
struct FlightGuard<'a, K: Copy + Eq + Hash, V: Clone> {
    flight: &'a SingleFlight<K, V>,
    key: K,
    cell: Arc<OnceCell<V>>,
}

impl<K: Copy + Eq + Hash, V: Clone> Drop for FlightGuard<'_, K, V> {
    fn drop(&mut self) {
        let mut flights = lock(&self.flight.0);
        // Two references: the map's and this caller's.
        let is_last = Arc::strong_count(&self.cell) <= 2;
        let is_this = flights.get(&self.key).is_some_and(|cell| Arc::ptr_eq(cell, &self.cell));
        if is_this && (self.cell.initialized() || is_last) {
            flights.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn one_gets_it_for_all_and_another_goes_on_where_that_one_is_cancelled() {
        let (flight, got, open) = (Arc::new(SingleFlight::default()), AtomicUsize::new(0), Semaphore::new(0));
        let get = |key: u8| {
            flight.run(key, async {
                got.fetch_add(1, Ordering::Relaxed);
                open.acquire().await.unwrap().forget();
                7
            })
        };
        let open_one = async {
            tokio::task::yield_now().await;
            open.add_permits(1);
        };
        let (first, second, ()) = tokio::join!(get(1), get(1), open_one);
        assert_eq!((first, second, got.load(Ordering::Relaxed)), (7, 7, 1));
        open.add_permits(1);
        assert_eq!((get(1).await, got.load(Ordering::Relaxed)), (7, 2), "the next one is got anew");

        let mut cancelled = Box::pin(get(2));
        assert!(futures_util::poll!(&mut cancelled).is_pending());
        let mut other = Box::pin(get(2));
        assert!(futures_util::poll!(&mut other).is_pending());
        drop(cancelled);
        open.add_permits(1);
        assert_eq!((other.await, got.load(Ordering::Relaxed)), (7, 4));
        let lonely = Box::pin(get(3));
        drop(lonely);
        assert!(lock(&flight.0).is_empty(), "nothing is left behind");
    }
}
