//! The Worker that keeps the index of the read API: a Durable Object per chain and registry has the whole
//! registry in SQLite ([`registry_core::index`]), if the setting `INDEX` says so. Its configuration is
//! `wrangler.index.toml`.
//!
//! ```text
//!   a question of edge-api --> the object --> its SQLite, where that is fresh enough
//!                                 |  older than the TTL: a refresh first, 1 to 4 round trips
//!                                 |  an agent's history: its events, at the rows' block
//!   alarm  --> a refresh before answers expire, or the next slice of the fill; none while no requests come
//!   cron   --> an alarm, where one has stalled
//! ```
//!
//! It is a Worker of its own: with both in one, a Worker that answers without an index would be a third
//! larger.
//!
//! D1 would hold the same tables. An object is chosen because it is a single writer by nature: a refresh
//! reads the chain at one block and must be the only one to write, for which D1 would need a lock that is
//! kept alive. Its SQL is in the same process as the core that drives it, so that a refresh of 100 agents is
//! 100 local statements and one commit, and not 100 requests. It has an alarm of its own, where D1 needs a
//! Worker to be woken. D1's advantage, reads from many places, is the task of the caches in front: an answer
//! is read once per instance and TTL.

mod alarm;
mod answer;
mod entry;
mod faults;
mod garbage;
mod name;
mod object;
mod snapshot;
mod sql;
mod upkeep;
