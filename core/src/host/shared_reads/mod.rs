//! An in-memory cache with coalesced reads (single-flight): concurrent callers with one key share one read of
//! it. It is plain data, from a time to a decision; the host does the reading and the waiting.
//!
//! A host looks a key up ([`Cache::look_up`]) with an [`Arrival`], the caller's number in their order. The
//! caller that gets a [`ReadLease`] reads the value and [`finish`](Cache::finish)es; the others wait with
//! timers of their own ([`next_pause`]) and look it up again. A lease is short, and a live reader extends it,
//! so a lost reader delays the others by one lease: then the next of them to look reads.
//!
//! ```text
//!             look_up: Read              finish
//!   (absent) ---------------> Reading --------------> Kept <-----------------------+
//!                              |   ^                   |                           |
//!                              +---+                   | look_up: Read (expired),  | finish
//!                    look_up: Read (lease expired)     | or Renew (last tenth of   |
//!                                                      v  its TTL, often asked)    |
//!                                                   Renewing ----------------------+
//! ```
//!
//! In every state, the least recently used entry is evicted when the cache is full.
//!
//! A value is served until its TTL is over. After expiry, and with a TTL of 0, only coalesced callers get it,
//! which came before its read began: it is as fresh as if each had read it. A failure goes to all callers
//! that waited.

mod cache;
mod entry;
mod read;

pub use self::{
    cache::{Cache, CacheKey},
    read::{
        Arrival, BEAT_MILLIS, CacheLookup, FIRST_PAUSE_MILLIS, LEASE_MILLIS, ReadLease, ReadOutcome, Renewal,
        due_for_renewal, next_pause,
    },
};

#[cfg(test)]
mod tests;
