//! The progress of an index for monitors.

use serde::{Deserialize, Serialize};

use super::{
    phase::Phase,
    state::{Basis, Counters, SWEEP, State},
};

/// Agents that are read within a second or two.
const FILLED_AT_ONCE: u64 = 5_000;
/// Seconds after which there may be a snapshot if there was none.
const SNAPSHOT_RETRY_SECONDS: u64 = 10;

/// Progress of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "IndexProgress"))]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// Percentage of the registry that has been read; 100 once answers are made from the index.
    pub percent: u8,
    /// Number of agents at the last block read.
    pub total: u64,
    /// Block of the answers; absent while there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// Source by which the index knows that it is current.
    pub basis: Basis,
    /// Changes that no event announced.
    pub unannounced_changes: u64,
    /// Refreshes without usable events, which read every agent.
    pub refreshes_without_events: u64,
    /// Comparisons of all agents with the chain, because of a change that no event told.
    pub comparisons: u64,
    /// True while such a comparison is under way.
    pub is_comparing: bool,
    /// Agents that are read every five minutes to check the events; 0 if the storage root checks them.
    pub swept_agents: u64,
    /// Agent of which a storage proof contradicted the index for the second time in a day. The index answers
    /// nothing until all agents are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contradicted_agent: Option<u64>,
}

/// Rows that the store of an index has read and written, as the platform bills them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RowsBilled {
    /// Rows read, including those of table scans and of indexes.
    pub read: u64,
    /// Rows written; an entry of an index counts as one.
    pub written: u64,
    /// Start of the count in unix seconds: when the index's object last started.
    pub since: u64,
}

impl RowsBilled {
    /// Adds written rows, such as one for each alarm that is set.
    #[must_use]
    pub const fn plus_written(self, more: u64) -> Self {
        Self { written: self.written + more, ..self }
    }
}

impl State {
    /// Returns whether nothing proves the rows, by the last refresh. Before the first one it is meaningless.
    pub fn has_no_proofs(&self) -> bool {
        self.is_complete() && !self.node.trust.proves_records()
    }

    /// Returns the seconds after which it is worth asking again for a missing snapshot.
    pub const fn snapshot_retry_seconds(&self) -> u64 {
        match self.phase {
            Phase::Filling { .. } | Phase::CatchingUp { .. } if self.total <= FILLED_AT_ONCE => 1,
            // The storage root is seen with the first refresh.
            Phase::Complete(_) if self.node.trust.code().is_none() => 1,
            _ => SNAPSHOT_RETRY_SECONDS,
        }
    }

    /// Returns the percentage of agents that the first fill has read; 100 once answers are made.
    pub fn percent(&self) -> u8 {
        if self.as_of().is_some() {
            return 100;
        }
        let Some(next) = self.phase.pass().and_then(|pass| pass.next) else { return 99 };
        let done = next.saturating_sub(1).saturating_mul(100).checked_div(self.total).unwrap_or(0);
        u8::try_from(done.min(99)).unwrap_or(99)
    }
}

impl From<&State> for Progress {
    fn from(state: &State) -> Self {
        let Counters { unannounced, without_events, comparisons } = state.counters;
        Self {
            percent: state.percent(),
            total: state.total,
            block: state.as_of().map(|block| block.number),
            basis: state.basis(),
            unannounced_changes: unannounced,
            refreshes_without_events: without_events,
            comparisons,
            is_comparing: state.phase.cause().is_some(),
            swept_agents: if state.basis() == Basis::Events { SWEEP } else { 0 },
            contradicted_agent: state.contradicted(),
        }
    }
}
