//! The cache: entries by key, bounded in bytes.

use core::hash::Hash;

use lru::LruCache;

use crate::api::route::Route;

use super::{
    entry::CacheEntry,
    read::{Arrival, CacheLookup, ReadLease, ReadOutcome},
};

/// A key of a [`Cache`].
pub trait CacheKey: Hash + Eq + Clone {
    /// Returns the approximate bytes that the key holds on the heap. Clients choose keys: those of many long
    /// searches would take more memory than the answers.
    fn heap_bytes(&self) -> usize;
}

/// The key of a cache with one entry.
impl CacheKey for () {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl CacheKey for Route {
    fn heap_bytes(&self) -> usize {
        Self::heap_bytes(self)
    }
}

/// Values by key, bounded in bytes; the least recently used are evicted first.
#[derive(Debug)]
pub struct Cache<K: Hash + Eq, V> {
    entries: LruCache<K, CacheEntry<V>>,
    capacity: usize,
    bytes: usize,
    last: u64,
}

impl<K: CacheKey, V: Clone> Cache<K, V> {
    /// Makes an empty cache of at most `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        Self { entries: LruCache::unbounded(), capacity, bytes: 0, last: 0 }
    }

    /// Returns the arrival of a caller that has just come.
    pub const fn arrive(&mut self) -> Arrival {
        self.last += 1;
        Arrival(self.last)
    }

    /// Returns the value, or the next step, for the caller of that arrival at `now` (unix milliseconds). A
    /// lease that it gets expires after `lease_millis`.
    pub fn look_up(&mut self, key: &K, arrival: Arrival, now: u64, lease_millis: u64) -> CacheLookup<V> {
        // A read that begins now serves all callers that have come by now. Each read has a number of its own.
        let lease = ReadLease { began: self.arrive(), until: now.saturating_add(lease_millis) };
        match self.entries.get_mut(key) {
            Some(entry) => entry.look_up(arrival, now, lease),
            None => {
                self.insert(key, CacheEntry::Reading(lease));
                CacheLookup::Read(lease)
            }
        }
    }

    /// Returns the value under the key that may be served at `now` (unix milliseconds), without a read.
    pub fn peek(&self, key: &K, now: u64) -> Option<V> {
        self.entries.peek(key)?.peek(now)
    }

    /// Returns the value under the key that may be served at `now` (unix milliseconds), without a read, and
    /// makes it the most recently used.
    pub fn get(&mut self, key: &K, now: u64) -> Option<V> {
        self.entries.get(key)?.peek(now)
    }

    /// Returns the value under the key that may be served at `now`, or else one that `derive` computes, with
    /// its bytes and the time before which it may be served (both times in unix milliseconds). The value is
    /// not renewed; its source is.
    ///
    /// # Errors
    ///
    /// The errors of `derive`, which are not kept.
    pub fn get_or_derive<E>(
        &mut self,
        key: &K,
        now: u64,
        derive: impl FnOnce() -> Result<(V, usize, u64), E>,
    ) -> Result<V, E> {
        if let Some(value) = self.get(key, now) {
            return Ok(value);
        }
        let (value, bytes, until) = derive()?;
        let entry = CacheEntry::derived(value.clone(), bytes, until);
        self.remove(key);
        if room(key, &entry) <= self.capacity {
            self.insert(key, entry);
        }
        Ok(value)
    }

    /// Gives the holder of a lease more time, unless it has lost the lease.
    pub fn extend(&mut self, key: &K, lease: &ReadLease, until: u64) {
        if let Some(entry) = self.entries.peek_mut(key) {
            entry.extend(lease, until);
        }
    }

    /// Keeps the result of a lease holder's read at `now` (unix milliseconds), unless it has lost the lease.
    /// A failure replaces no value that may still be served; that value is renewed a little later. A value
    /// larger than the whole cache is not kept, and evicts nothing.
    pub fn finish(&mut self, key: &K, lease: &ReadLease, value: V, outcome: ReadOutcome, now: u64) {
        let Some(entry) = self.entries.peek_mut(key) else { return };
        let before = room(key, entry);
        if entry.finish(lease, value, outcome, now, Arrival(self.last)) {
            let bytes = room(key, entry);
            self.bytes = self.bytes.saturating_sub(before);
            if bytes > self.capacity {
                self.entries.pop(key);
            } else {
                self.bytes = self.bytes.saturating_add(bytes);
                self.entries.promote(key);
                self.evict();
            }
        }
    }

    /// Returns the bytes that all entries take.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn insert(&mut self, key: &K, entry: CacheEntry<V>) {
        self.bytes = self.bytes.saturating_add(room(key, &entry));
        self.entries.push(key.clone(), entry);
        self.evict();
    }

    fn remove(&mut self, key: &K) {
        if let Some(entry) = self.entries.pop(key) {
            self.bytes = self.bytes.saturating_sub(room(key, &entry));
        }
    }

    fn evict(&mut self) {
        while self.bytes > self.capacity
            && let Some((key, entry)) = self.entries.pop_lru()
        {
            self.bytes = self.bytes.saturating_sub(room(&key, &entry));
        }
    }
}

/// Returns the bytes that an entry takes, with its key.
fn room<K: CacheKey, V: Clone>(key: &K, entry: &CacheEntry<V>) -> usize {
    entry.bytes().saturating_add(key.heap_bytes())
}
