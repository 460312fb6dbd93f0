//! The phase of an index, and the data of each phase.
//!
//! ```text
//!            the last slice, of one alone
//!   Filling ------------------------------> Complete <----+ a refresh
//!    ^  ^ |                                  |  |  ^ |    |
//!    |  | | the last slice of several        |  |  | +----+
//!    |  | +----------> CatchingUp -----------|--|--+ what changed meanwhile is read again
//!    |  +------------------+ no block left   |  v
//!    +---------------------------------------+ Comparing
//!      no known block is canonical any more     a change that no event tells: all agents are compared with
//!                                               the rows; those that differ are read again: Complete
//! ```

use alloy_primitives::B256;
use serde::{Deserialize, Serialize};

use super::{
    checkpoint::{Checkpoint, text},
    coverage::Coverage,
};
use crate::chain::Header;

/// Age in seconds, by the chain's time, from which on a node is taken to list all events of a block.
pub(super) const LATE_LOGS_SECONDS: u64 = 120;
/// Seconds between two of [`BlockRows::recent`].
const RECENT_SECONDS: u64 = 8;

/// The phase of an index; the module's documentation draws the transitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Phase {
    /// Every agent is being read and stored.
    Filling {
        pass: Pass,
        /// Block of the earlier rows, which answer until the first slice is stored.
        before: Option<Checkpoint>,
    },
    /// All agents were read at several blocks; what changed between them is read again.
    CatchingUp { pass: Pass, late: Option<LateEvent> },
    /// All rows are of one block.
    Complete(BlockRows),
    /// All agents are compared with the chain's newest state.
    Comparing {
        pass: Pass,
        /// `None` if the rows are of several blocks.
        rows: Option<BlockRows>,
        cause: ComparisonCause,
    },
}

impl Default for Phase {
    fn default() -> Self {
        Self::Filling { pass: Pass::default(), before: None }
    }
}

impl Phase {
    /// Returns the pass over all agents, unless all rows are of one block.
    pub(super) const fn pass(&self) -> Option<&Pass> {
        match self {
            Self::Complete(_) => None,
            Self::Filling { pass, .. } | Self::CatchingUp { pass, .. } | Self::Comparing { pass, .. } => {
                Some(pass)
            }
        }
    }

    pub(super) const fn pass_mut(&mut self) -> Option<&mut Pass> {
        match self {
            Self::Complete(_) => None,
            Self::Filling { pass, .. } | Self::CatchingUp { pass, .. } | Self::Comparing { pass, .. } => {
                Some(pass)
            }
        }
    }

    /// Returns the rows if they are all of one block, even while they are being compared.
    pub(super) const fn rows(&self) -> Option<&BlockRows> {
        match self {
            Self::Complete(rows) | Self::Comparing { rows: Some(rows), .. } => Some(rows),
            _ => None,
        }
    }

    /// Returns the reason for a comparison of all agents, if one is under way.
    pub(super) const fn cause(&self) -> Option<ComparisonCause> {
        match self {
            Self::Comparing { cause, .. } => Some(*cause),
            _ => None,
        }
    }
}

/// Rows that are all of one block.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BlockRows {
    pub(super) block: Checkpoint,
    /// The registry's version that was seen at this block, if any. It describes the chain, and says nothing
    /// of the rows.
    #[serde(default)]
    pub(super) version: Option<RegistryVersion>,
    /// The version of a later block, which was the newest one at the last search and had no logs yet.
    #[serde(default)]
    pub(super) ahead: Option<(Checkpoint, RegistryVersion)>,
    /// Time up to which the rows lack nothing.
    pub(super) coverage: Coverage,
    /// Recent blocks of the rows, at least one of them two minutes older than the last.
    #[serde(default)]
    pub(super) recent: Vec<Checkpoint>,
    /// The last block that changed the rows, until it is known to be canonical two minutes later.
    #[serde(default)]
    pub(super) unsettled: Option<Checkpoint>,
    #[serde(default)]
    pub(super) doubt: PendingCheck,
}

/// Open check of rows of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum PendingCheck {
    #[default]
    None,
    /// The chain has changes that no event tells yet.
    Late(LateEvent),
    /// The rows follow events that do not tell all changes: a comparison is due once the pause after the last
    /// one is over.
    Owed,
}

/// A late event for which the index waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LateEvent {
    /// Time at which its change was first found, in unix milliseconds.
    pub(super) since: u64,
    /// Time of the last search for it, in unix milliseconds.
    pub(super) asked_at: u64,
}

/// Reason for a comparison of all agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum ComparisonCause {
    /// There were no usable events.
    NoEvents,
    /// A change was found that no event tells.
    Untold,
    /// A proof contradicted the row of this agent. The rows answer nothing until they have been compared.
    Contradicted(u64),
}

/// A pass over all agents, slice by slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Pass {
    /// The next id to read; `None` once all are read.
    pub(super) next: Option<u64>,
    /// The blocks of the slices by height: one, unless its state was gone before the last slice was read.
    pub(super) blocks: Vec<Checkpoint>,
    /// Slices in a row that were answered at another block than the last one. From [`MISSES`](Self::MISSES)
    /// on that block's state is taken to be gone, and the next slice is read at the newest block.
    pub(super) misses: u32,
    /// Time at which the first slice was read, in unix milliseconds.
    pub(super) began: u64,
    /// Agents that differ from their rows.
    pub(super) differing: Vec<u64>,
}

impl Default for Pass {
    fn default() -> Self {
        Self { next: Some(1), blocks: Vec::new(), misses: 0, began: 0, differing: Vec::new() }
    }
}

impl Pass {
    /// Slices in a row at another block, after which a pass goes on at the newest one.
    pub(super) const MISSES: u32 = 3;

    /// Returns the block at which the next slice is read, if there is one and its state is available.
    pub(super) fn header(&self) -> Option<Header> {
        self.blocks.last().filter(|_| self.misses < Self::MISSES).map(|block| (*block).into())
    }
}

/// A registry's version: its storage and its code at a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RegistryVersion {
    #[serde(with = "text")]
    pub(super) storage_root: B256,
    #[serde(with = "text")]
    pub(super) code_hash: B256,
}

impl BlockRows {
    /// Creates rows of this block that were of the recent ones before.
    pub(super) fn new(block: Checkpoint, coverage: Coverage, recent: Vec<Checkpoint>) -> Self {
        let (version, ahead, unsettled, doubt) = (None, None, None, PendingCheck::None);
        let mut rows = Self { block, version, ahead, coverage, recent, unsettled, doubt };
        rows.confirm(block);
        rows
    }

    /// Returns the last block that changed the rows, unless it is confirmed, and whether that is due.
    pub(super) fn unsettled(&self) -> Option<(Checkpoint, bool)> {
        self.unsettled.map(|block| (block, block.seconds + LATE_LOGS_SECONDS <= self.block.seconds))
    }

    /// Notes that the rows are also of this block, and that their blocks are canonical.
    pub(super) fn confirm(&mut self, block: Checkpoint) {
        self.unsettled = self.unsettled().filter(|(_, is_due)| !is_due).map(|(block, _)| block);
        self.block = block;
        if matches!(self.doubt, PendingCheck::Late(_)) {
            self.doubt = PendingCheck::None;
        }
        self.recent.retain(|recent| recent.number < block.number);
        if let [.., before, last] = self.recent.as_slice()
            && last.seconds < before.seconds + RECENT_SECONDS
        {
            self.recent.pop();
        }
        self.recent.push(block);
        while let [_, second, ..] = self.recent.as_slice()
            && second.seconds + LATE_LOGS_SECONDS <= block.seconds
        {
            self.recent.remove(0);
        }
    }

    /// Returns the first block of which events may be missing: nodes list some late, of the two minutes
    /// before the rows' block.
    pub(super) fn first_unsettled(&self) -> u64 {
        let Self { block, recent, .. } = self;
        let is_settled = |recent: &&Checkpoint| recent.seconds + LATE_LOGS_SECONDS <= block.seconds;
        let settled = recent.iter().rev().find(is_settled).or(recent.first());
        settled.map_or(block.number, |settled| settled.number.min(block.number)).saturating_add(1)
    }
}
