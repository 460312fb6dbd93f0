//! Answers from the index: a Durable Object per chain and registry keeps the whole registry in SQLite
//! ([`registry_core::index`]), where the setting `INDEX` says so.
//!
//! ```text
//!   request --> memory of the instance --> the object --> its SQLite, where that is fresh enough
//!                                             |  older than the TTL: a refresh first, 1 to 4 round trips
//!                                             |  being filled: a scan, or 503 and the progress
//!                                             |  an agent's history: its events, at the rows' block
//!   alarm  --> a refresh before answers expire, or the next slice of the fill; none while no requests come
//!   cron   --> an alarm, where one has stalled
//! ```
//!
//! The objects belong to another Worker of the same crate with the same settings: `wrangler.index.toml`. A
//! request names its chain and registry, and an object with other settings refuses it.
//!
//! D1 would hold the same tables. An object is chosen because it is a single writer by nature: a refresh
//! reads the chain at one block and must be the only one to write, for which D1 would need a lock that is
//! kept alive. Its SQL is in the same process as the core that drives it, so that a refresh of 100 agents is
//! 100 local statements and one commit, and not 100 requests. It has an alarm of its own, where D1 needs a
//! Worker to be woken. D1's advantage, reads from many places, is the task of the caches in front: an answer
//! is read once per instance and TTL.

#[cfg(feature = "index-object")]
mod answer;
mod client;
#[cfg(feature = "index-object")]
mod faults;
#[cfg(feature = "index-object")]
mod garbage;
#[cfg(feature = "index-object")]
mod object;
mod protocol;
#[cfg(feature = "index-object")]
mod snapshot;
#[cfg(feature = "index-object")]
mod sql;
#[cfg(feature = "index-object")]
mod upkeep;
#[cfg(feature = "index-object")]
mod worker;

#[cfg(not(feature = "index-object"))]
pub(crate) use self::client::{IndexClient, IndexResponse};
