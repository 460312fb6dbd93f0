//! What monitors are told of an index.

use serde::{Deserialize, Serialize};

use super::{
    phase::Phase,
    state::{Basis, Counters, SWEEP, State},
};

/// Agents that are read within a second or two.
const FILLED_AT_ONCE: u64 = 5_000;
/// Seconds after which there may be a snapshot where there was none.
const SNAPSHOT_RETRY_SECONDS: u64 = 10;

/// What an index says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(rename = "IndexProgress"))]
#[serde(rename_all = "camelCase")]
pub struct Progress {
    /// How much of the registry has been read; 100 where answers are made from the index.
    pub percent: u8,
    /// How many agents there are, by the last block read.
    pub total: u64,
    /// The block that answers are as of; absent where there are none yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub block: Option<u64>,
    /// What the index rests on.
    pub basis: Basis,
    /// Changes that no event announced.
    pub unannounced_changes: u64,
    /// Refreshes that had no events to go by, and read every agent.
    pub refreshes_without_events: u64,
    /// Comparisons of all agents with the chain, because a change was found that no event tells.
    pub comparisons: u64,
    /// Whether such a comparison is under way.
    pub is_comparing: bool,
    /// Agents that are read every five minutes to check the events; 0 where the storage root does.
    pub swept_agents: u64,
    /// The agent of which a storage proof contradicted the index for the second time in a day. It answers
    /// nothing until all agents are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub contradicted_agent: Option<u64>,
}

/// Rows that the store of an index has read and written, as the platform bills them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RowsBilled {
    /// Rows read, those of table scans and of indexes included.
    pub read: u64,
    /// Rows written, an entry of an index counted as one.
    pub written: u64,
    /// Unix seconds since when they are counted: when the index's object last started.
    pub since: u64,
}

impl RowsBilled {
    /// With so many more rows written, such as one for each alarm that is set.
    #[must_use]
    pub const fn plus_written(self, more: u64) -> Self {
        Self { written: self.written + more, ..self }
    }
}

impl State {
    /// Whether nothing proves the rows, by the last refresh; before the first one that says nothing.
    pub fn has_no_proofs(&self) -> bool {
        self.is_complete() && !self.node.trust.proves_records()
    }

    /// Where there is no snapshot, the seconds after which it is worth asking for one again.
    pub const fn snapshot_retry_seconds(&self) -> u64 {
        match self.phase {
            Phase::Filling { .. } | Phase::CatchingUp { .. } if self.total <= FILLED_AT_ONCE => 1,
            // Its root is seen with the first refresh.
            Phase::Complete(_) if self.node.trust.code().is_none() => 1,
            _ => SNAPSHOT_RETRY_SECONDS,
        }
    }

    /// The percentage of agents that the first fill has read; 100 once answers are made.
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
