//! The index: the whole registry in SQL, at one block, kept up at a cost that follows what changes and not what exists.
//!
//! Events are hints, state is the truth. An event only says whom to read again ([`work`]); every row is what the registry's getters
//! said at the index's block. New agents are known by the registry's counter. A reorganisation needs no log of what to undo:
//! whoever changed after the last known block that is still canonical is read again. In each refresh a sweep reads some agents
//! that nothing was heard of; where it finds a change, the index says so, and from then on reads everybody each time
//! ([`Basis::Sweep`]).
//!
//! | file | what it holds |
//! |---|---|
//! | `store` | the SQL tables, and the one function a host provides for them |
//! | `state` | how far an index has come, what it rests on, the blocks it knows |
//! | `work` | what to ask next, and what an answer changes: the fill, the refresh |
//! | `find_changes` | what changed since the index's block |
//! | `read_agents` | state, through the lens and the getters |
//! | `tables` | rows in, with the sums kept along |
//! | `changes` | changes of verdicts, in the order in which they were seen |
//! | `answers` | answers about the registry |
//! | `reader` | what answers share |
//! | `open_lists` | agents as they were when a list was opened |
//! | `compliance_list` | the list of `/agents/compliance`: pages, the whole, and one of any size, piece by piece |
//! | `listing` | pages of agents, filtered, searched and sorted |
//! | `words` | what of a scope is searched |
//! | `liable` | the answer about a person |
//! | `history` | the answer about what happened to an agent, read from its events |
//! | `excerpt` | what verdicts tell of wallets' pasts by |
//!
//! A host drives it as it drives a [`Run`](crate::chain::Run), lending the store to each step:
//!
//! ```text
//! prepare(&store)?;                                    // once
//! let mut work = Work::begin(&store, config, endpoints, now)?;
//! loop {
//!     match work.step(&store)? {                       // one transaction
//!         Step::Send(batch) => match host.post(&batch).await {
//!             Ok(reply) => work.feed(reply)?,
//!             Err(failure) => work.fail(failure)?,
//!         },
//!         Step::Done => break,
//!     }
//! }
//! ```

mod answers;
mod changes;
mod compliance_list;
mod entry;
mod excerpt;
mod find_changes;
mod history;
mod liable;
mod listing;
mod open_lists;
mod read_agents;
mod reader;
mod state;
mod store;
mod tables;
mod words;
mod work;

use crate::chain::{QueryError, RunError};
pub use compliance_list::{LIST_IN_MEMORY_MAX, ListCursor, Piece};
pub use excerpt::Excerpt;
pub use history::HistoryQuery;
pub use reader::{Bounds, Index};
pub use state::{Basis, Checkpoint, Phase, Progress, State};
pub use store::{Store, StoreError, Value, prepare};
pub use work::{Config, Step, Work};

/// Why an index has no answer, or could not be kept up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// Its store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// It is being filled.
    #[error("the index is being filled: {percent} %")]
    Incomplete {
        /// How much of the registry has been read.
        percent: u8,
    },
    /// It does not hold what the answer takes.
    #[error("the index does not cover this question")]
    Uncovered,
    /// The changes since the cursor are no longer kept, or the list of the cursor was lost.
    #[error("the changes since this cursor are no longer kept")]
    CursorExpired,
    /// As many long lists are open as the index takes at once.
    #[error("too many lists are open")]
    Busy,
    /// What reading the registry ended with.
    #[error(transparent)]
    Query(#[from] QueryError),
}

impl From<RunError> for IndexError {
    fn from(error: RunError) -> Self {
        Self::Query(error.into())
    }
}
