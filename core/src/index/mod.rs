//! The index: the whole registry in SQL at one block. The cost of a refresh follows what changes, not what
//! exists.
//!
//! The root of the registry's storage is its version: as long as it stays the same, so do all rows, and a
//! refresh is one round trip. Once it changes, events are hints, and state is the truth: an event only
//! names an agent to read again (`work`); every row is what the registry's getters returned at the
//! index's block, or what a proof showed. The words that the named agents' records had before, put back into
//! the newest block's trie, have to give the root that was seen before. Then nothing else has changed,
//! whatever the node lists; no old state is requested, and no agent is read (`tip_proof`). New agents are
//! found by the registry's counter. A reorg needs no undo log: all agents that changed after the last
//! canonical checkpoint are read again. If no event explains a change of the root, the index waits for late
//! events, and then compares all agents with its rows, once. Without such a root ([`Basis::Events`]),
//! a slow sweep over all agents checks the events.
//!
//! | file | contents |
//! |---|---|
//! | `store` | the SQL tables, and the one function a host implements |
//! | `state` | the state of an index: the part that may be lost, and the part that may not |
//! | `phase` | its phase: a pass over all agents, or rows of one block |
//! | `checkpoint` | blocks at which an index was read |
//! | `coverage` | time up to which the rows lack nothing |
//! | `work` | one unit of upkeep: a slice of the fill, or a refresh |
//! | `base` | what a search for changes starts from |
//! | `find_changes` | the query for changes since the index's block |
//! | `found` | the result of that query |
//! | `canonical` | the search for canonical blocks among the known ones |
//! | `explained` | the check of events by storage roots at older blocks |
//! | `tip_proof` | the proof at the newest block that events tell all changes |
//! | `registry_head` | the newest block, and the registry's own figures there |
//! | `read_agents` | the queries for agents' state, through the lens and the getters |
//! | `indexed_agent` | an agent as the tables store it |
//! | `tables` | writes to agents and their sums |
//! | `takeover` | the takeover from the index of the release before |
//! | `alarm` | when an object's alarm is set |
//! | `counts` | keys of the counts of agents |
//! | `postings` | the lists of agents with a property |
//! | `large_persons` | sums and a list of each liable person with many agents |
//! | `derived` | SQL indexes and lists made of all agents at the end of the first fill |
//! | `changes` | the log of verdict changes |
//! | `answers` | answers about the registry |
//! | `reader` | an index to answer from, shared by all answers |
//! | `progress` | progress for monitors |
//! | `open_lists` | copies of agents for lists that are open |
//! | `compliance_list` | the list of `/agents/compliance`: a page, the whole, or chunks |
//! | `listing` | pages of agents, filtered, searched and sorted |
//! | `candidates` | the candidates of a page of such a list |
//! | `words` | the searchable words of a scope |
//! | `liable` | the answer about a liable person |
//! | `history` | the query for an agent's events |
//! | `protocol` | questions of a host to the object that keeps an index, and its answers |
//! | `excerpt` | the agents that have or had certain wallets |
//! | `seen_events` | the events of liable wallets that were seen |
//! | `shard_range` | the wallets of a shard, and its version |
//! | `shard_table` | rows of shards, and the sizes of the snapshot's files |
//! | `segments` | the wallets that have changed since their shards were last made |
//! | `shards` | the wallets of a [snapshot](crate::snapshot)'s shards, and the shards' versions |
//!
//! A host drives it like a [`Run`](crate::chain::Run), and passes the store to each step:
//!
//! ```text
//! prepare(&store)?;                                    // once
//! let mut work = Work::begin(&store, kept, config, endpoints, now)?;
//! loop {
//!     match work.step(&store)? {                       // one transaction
//!         Step::Send(batch) => match host.post(&batch).await {
//!             Ok(reply) => work.feed(reply)?,
//!             Err(failure) => work.fail(failure)?,
//!         },
//!         Step::Done(()) => break,
//!     }
//! }
//! let kept = Some(work.state().clone());               // until a step fails
//! ```

pub mod alarm;
mod answers;
mod base;
mod candidates;
mod canonical;
mod changes;
mod checkpoint;
mod compliance_list;
mod counts;
mod coverage;
mod derived;
mod excerpt;
mod explained;
mod find_changes;
mod found;
mod history;
pub(crate) mod indexed_agent;
mod large_persons;
mod liable;
mod listing;
mod open_lists;
mod phase;
mod postings;
mod progress;
pub mod protocol;
mod read_agents;
mod reader;
mod registry_head;
mod seen_events;
pub(crate) mod segments;
mod shard_range;
mod shard_table;
pub(crate) mod shards;
mod state;
mod store;
mod tables;
pub mod takeover;
mod tip_proof;
mod words;
mod work;

use crate::chain::{QueryError, RunError};
pub use checkpoint::Checkpoint;
pub use compliance_list::{LIST_IN_MEMORY_MAX, ListChunk, ListCursor};
pub use derived::PART;
pub use excerpt::Excerpt;
pub use history::HistoryQuery;
pub use large_persons::FEW_AGENTS;
pub use progress::{Progress, RowsBilled};
pub use reader::{Bounds, Index};
pub(crate) use seen_events::wallet_events;
pub(crate) use segments::FAN_OUT_BITS as SEGMENT_FAN_OUT_BITS;
pub(crate) use shard_range::{PLACE_BITS, place};
pub use shard_range::{ShardRange, ShardVersion};
pub use shard_table::FileSizes;
pub use state::{Basis, Counters, SWEEP, State};
pub use store::{SqlValue, Store, StoreError, StoreFault, prepare};
pub use work::{Config, Work};

/// Reason why an index has no answer, or why its upkeep failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The index is being filled.
    #[error("the index is being filled: {percent} %")]
    Incomplete {
        /// The percentage of agents read.
        percent: u8,
    },
    /// The index does not hold what the answer requires.
    #[error("the index does not cover this question")]
    Uncovered,
    /// The cursor's changes are past their TTL, or its list was closed.
    #[error("the changes since this cursor are no longer kept")]
    CursorExpired,
    /// Too many long lists are open.
    #[error("too many lists are open")]
    Busy,
    /// A query to the registry failed.
    #[error(transparent)]
    Query(#[from] QueryError),
}

impl From<RunError> for IndexError {
    fn from(error: RunError) -> Self {
        Self::Query(error.into())
    }
}
