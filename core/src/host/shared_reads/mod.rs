//! Values kept in memory, and reads coalesced (single-flight): concurrent callers with one key share one read
//! of it. Plain data: a clock reading in, a decision out; the host does the reading and the waiting.
//!
//! A host looks a key up ([`Cache::look_up`]) with an [`Arrival`], which says when the caller came. The
//! caller that gets a [`ReadLease`] reads the value and [`finish`](Cache::finish)es; the others wait with
//! timers of their own ([`next_pause`]) and look it up again. A lease is short, and a reader that lives
//! extends it, so a reader that is lost delays the others by a lease: the next one of them to look reads.
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
//! In every state an entry is evicted when it is the least recently used and the room is needed.
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
