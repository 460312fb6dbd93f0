//! Answers kept in memory, and shared by those who ask for the same thing at once. Plain data: a clock reading in, a
//! decision out; the host does the reading and the waiting.
//!
//! A host looks a key up ([`Cache::look_up`]) with a [`Ticket`] that says when the asker came. Whoever gets a [`Lease`]
//! reads the value and [`finish`](Cache::finish)es; the others wait with timers of their own and look it up again. A lease
//! has an end, so a reader that is lost costs the others no more than that.
//!
//! ```text
//!             look_up: Read              finish
//!   (absent) ---------------> Reading --------------> Kept <----------------------+
//!                              |   ^                   |                          |
//!                              +---+                   | look_up: Read (ended),   | finish
//!                    look_up: Read (lease is over)     | or Renew (in its last    |
//!                                                      v  tenth, often asked)     |
//!                                                   Renewing ---------------------+
//! ```
//!
//! Any of them becomes absent when it is the least recently used and the room is needed.
//!
//! A value is given out until its end. Beyond it, or where there is no keeping at all, only those get it who came before
//! its reading began: it is as fresh as if they had read it themselves. A failure goes to everybody who waited for it.

mod entry;

use core::hash::Hash;

use lru::LruCache;

use entry::Entry;

/// What an entry costs beside its value, in bytes: key, links and table.
const OVERHEAD: usize = 256;
/// For how long after a reading its value is there for those who waited for it, in milliseconds.
const HANDOVER_MILLIS: u64 = 2_000;
/// A value is asked for often if it was given out this many times before its last tenth.
const HOT: u32 = 3;
/// Milliseconds between two attempts to renew a value, where the first failed.
const RENEWAL_PAUSE_MILLIS: u64 = 1_000;

/// When a value of that age is due for renewal, if it is asked for often: the last tenth of its time. Unix milliseconds.
pub const fn due_for_renewal(made_at: u64, millis: u64) -> u64 {
    made_at.saturating_add(millis - millis / 10)
}

/// When an asker came, in the order of all askers of one [`Cache`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// The right to read a key's value, until a certain time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    began: Ticket,
    /// Unix milliseconds.
    until: u64,
}

/// What an asker is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<V> {
    /// Take this.
    Found(V),
    /// Take this, and read the key again once the answer is sent, for those who come later.
    Renew(V, Lease),
    /// Read it, and [`finish`](Cache::finish).
    Read(Lease),
    /// Somebody else is reading it: look again a little later.
    Wait,
}

/// What a reading came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// A value of that many bytes, which may be given out for so many milliseconds.
    Value {
        /// What it takes in memory.
        bytes: usize,
        /// From when it was made, unix milliseconds; may lie before the reading where somebody else made it.
        made_at: u64,
        /// From then on; 0 is for nobody but those who waited.
        millis: u64,
    },
    /// A value made of another in no time, which may be given out until then (unix milliseconds). It is never renewed by
    /// itself: what it is made of is.
    Derived {
        /// What it takes in memory.
        bytes: usize,
        /// Unix milliseconds.
        until: u64,
    },
    /// A failure, which will repeat itself for so many milliseconds; 0 where it may pass at once.
    Failure {
        /// From now on.
        millis: u64,
    },
}

/// Values by key, bounded in bytes; the least recently used go first.
#[derive(Debug)]
pub struct Cache<K: Hash + Eq, V> {
    entries: LruCache<K, Entry<V>>,
    capacity: usize,
    bytes: usize,
    last: u64,
}

impl<K: Hash + Eq + Clone, V: Clone> Cache<K, V> {
    /// An empty cache of at most `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        Self { entries: LruCache::unbounded(), capacity, bytes: 0, last: 0 }
    }

    /// A ticket for somebody who has just come.
    pub const fn ticket(&mut self) -> Ticket {
        self.last += 1;
        Ticket(self.last)
    }

    /// What the asker with that ticket is to do at `now` (unix milliseconds). Where it is to read, nobody else will before
    /// `lease_millis` are over.
    pub fn look_up(&mut self, key: &K, asker: Ticket, now: u64, lease_millis: u64) -> Lookup<V> {
        // A reading that begins now serves whoever came until now. Each has a number of its own.
        let lease = Lease { began: self.ticket(), until: now.saturating_add(lease_millis) };
        match self.entries.get_mut(key) {
            Some(entry) => entry.look_up(asker, now, lease),
            None => {
                let entry = Entry::Reading(lease);
                self.bytes = self.bytes.saturating_add(entry.bytes());
                self.entries.push(key.clone(), entry);
                self.make_room();
                Lookup::Read(lease)
            }
        }
    }

    /// What may be given out under the key at `now` (unix milliseconds), if anything. Nobody is made to read it.
    pub fn peek(&self, key: &K, now: u64) -> Option<V> {
        self.entries.peek(key)?.peek(now)
    }

    /// Gives the holder of a lease more time, where nobody else has taken over.
    pub fn extend(&mut self, key: &K, lease: &Lease, until: u64) {
        if let Some(entry) = self.entries.peek_mut(key) {
            entry.extend(lease, until);
        }
    }

    /// Keeps what the holder of a lease has read at `now` (unix milliseconds). Ignored where somebody else has taken over. A
    /// failure takes nothing away: a value that still may be given out stays, and is renewed a little later. A value larger than
    /// all there is room for is not kept, and makes no room for itself.
    pub fn finish(&mut self, key: &K, lease: &Lease, value: V, outcome: Outcome, now: u64) {
        let Some(entry) = self.entries.peek_mut(key) else { return };
        let before = entry.bytes();
        if entry.finish(lease, value, outcome, now, Ticket(self.last)) {
            let bytes = entry.bytes();
            self.bytes = self.bytes.saturating_sub(before);
            if bytes > self.capacity {
                self.entries.pop(key);
            } else {
                self.bytes = self.bytes.saturating_add(bytes);
                self.entries.promote(key);
                self.make_room();
            }
        }
    }

    /// The bytes all entries take.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    fn make_room(&mut self) {
        while self.bytes > self.capacity
            && let Some((_, entry)) = self.entries.pop_lru()
        {
            self.bytes = self.bytes.saturating_sub(entry.bytes());
        }
    }
}

#[cfg(test)]
mod tests;
