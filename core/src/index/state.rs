//! The state of an index, and its progress as shown to clients.
//!
//! ```text
//!            the last slice, of one alone
//!   Filling ------------------------------> Complete <--+ a refresh
//!    ^  ^ |                                  |     |    |
//!    |  | | the last slice of several        |     +----+
//!    |  | +----------> CatchingUp -----------|--------> Complete
//!    |  +------------------+ no block left   |  what changed meanwhile is read again
//!    +---------------------------------------+
//!      no events to go by, a change that no event announced, or no known block is canonical any more
//! ```

use alloy_primitives::{B256, U256};
use serde::{Deserialize, Serialize};

use super::store::{SqlValue, Store, StoreError, first_row, query};
use crate::{chain::Header, eth::as_of::IndexedAt, eth::timestamp::Timestamp};

/// A block that an index was read at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Its height.
    pub number: u64,
    /// Its hash.
    #[serde(with = "text")]
    pub hash: B256,
    /// Its timestamp, unix seconds.
    pub seconds: u64,
}

impl From<Checkpoint> for IndexedAt {
    fn from(block: Checkpoint) -> Self {
        Self { block_number: block.number, block_timestamp: Timestamp::from_seconds(block.seconds) }
    }
}

impl From<Header> for Checkpoint {
    fn from(header: Header) -> Self {
        Self { number: header.number, hash: header.hash, seconds: header.timestamp }
    }
}

/// Numbers and hashes as text.
mod text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(
        value: &impl core::fmt::Display,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, T>(deserializer: D) -> Result<T, D::Error>
    where
        T: core::str::FromStr<Err: core::fmt::Display>,
    {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// The phase of an index; the module's documentation draws the transitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Phase {
    /// Every agent is being read, from `next` on.
    Filling {
        /// The next id to read.
        next: u64,
    },
    /// All agents were read at several blocks; what changed between them is read again.
    CatchingUp,
    /// All agents are of one block.
    Complete,
}

/// What an index rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    /// Events say what has changed; the sweep only checks.
    Events,
    /// An agent changed without an event, or the node serves too few: each refresh reads every agent.
    Sweep,
}

/// The state of an index.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// The phase.
    pub phase: Phase,
    /// How changes are found.
    pub basis: Basis,
    /// The block of all rows; in [`Phase::CatchingUp`] the oldest block of any row.
    pub block: Option<Checkpoint>,
    /// The number of agents at the last block read.
    pub total: u64,
    /// The registry's grace period in seconds.
    #[serde(with = "text")]
    pub grace_seconds: U256,
    /// Unix milliseconds by the host's clock when [`Self::block`] was the newest.
    pub read_at: u64,
    /// Changes that no event announced.
    pub unannounced: u64,
    /// The next id of the sweep.
    pub sweep: u64,
    /// Completed sweeps over all agents.
    pub sweeps: u64,
    /// Refreshes without usable events, which read every agent.
    pub without_events: u64,
    /// Start of the change log in unix milliseconds; 0 before it starts.
    pub(super) began: u64,
    /// The number of changes so far.
    pub(super) changes: u64,
    /// Attestations from this second on were current at the last comparison; `None` before the first.
    pub(super) current_from: Option<u64>,
    /// The height of a block, not above [`Self::block`], that is known to have an event.
    pub(super) canary: Option<u64>,
    /// Blocks that the slices of this fill were read at, by height.
    pub(super) pass: Vec<Checkpoint>,
    /// Blocks per `eth_getLogs` that the node accepts, and the refreshes since that was detected.
    pub(super) log_range: Option<(u64, u32)>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            phase: Phase::Filling { next: 1 },
            basis: Basis::Events,
            block: None,
            total: 0,
            grace_seconds: U256::ZERO,
            read_at: 0,
            unannounced: 0,
            sweep: 1,
            sweeps: 0,
            without_events: 0,
            began: 0,
            changes: 0,
            current_from: None,
            canary: None,
            pass: Vec::new(),
            log_range: None,
        }
    }
}

impl State {
    /// The state in the store, or that of an empty index.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn load(store: &impl Store) -> Result<Self, StoreError> {
        let row = first_row(store, "SELECT value FROM meta WHERE key = 'state'", &[])?;
        let Some(mut row) = row else { return Ok(Self::default()) };
        serde_json::from_str(&row.text()?).map_err(|_| StoreError::corrupt())
    }

    /// The grace period in seconds, capped to the range of clocks.
    pub(super) fn grace(&self) -> u64 {
        u64::try_from(self.grace_seconds).unwrap_or(u64::MAX)
    }

    pub(super) fn save(&self, store: &impl Store) -> Result<(), StoreError> {
        let text = serde_json::to_string(self).map_err(|_| StoreError::corrupt())?;
        let statement = "INSERT OR REPLACE INTO meta (key, value) VALUES ('state', ?1)";
        store.execute(statement, &[SqlValue::Text(text)]).map(drop)
    }

    /// The block of all answers; `None` while the rows are of different blocks.
    pub fn as_of(&self) -> Option<Checkpoint> {
        let whole = match self.phase {
            Phase::Complete => true,
            Phase::Filling { .. } => self.pass.is_empty() || self.basis == Basis::Sweep,
            Phase::CatchingUp => false,
        };
        self.block.filter(|_| whole)
    }

    /// The percentage of agents that the first fill has read; 100 once answers are made.
    pub fn percent(&self) -> u8 {
        let Phase::Filling { next } = self.phase else { return 100 };
        if self.as_of().is_some() {
            return 100;
        }
        let done = next.saturating_sub(1).saturating_mul(100).checked_div(self.total).unwrap_or(0);
        u8::try_from(done.min(99)).unwrap_or(99)
    }

    /// Starts a new fill. `trusted`: the stored rows may be served until the first slice is stored.
    pub(super) fn refill(&mut self, trusted: bool) {
        let trusted = trusted && self.as_of().is_some();
        self.phase = Phase::Filling { next: 1 };
        self.pass.clear();
        self.canary = None;
        if !trusted {
            self.block = None;
        }
    }
}

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
}

impl From<&State> for Progress {
    fn from(state: &State) -> Self {
        Self {
            percent: state.percent(),
            total: state.total,
            block: state.as_of().map(|block| block.number),
            basis: state.basis,
            unannounced_changes: state.unannounced,
            refreshes_without_events: state.without_events,
        }
    }
}

/// Checkpoints kept to find the last canonical one after a reorg.
const CHECKPOINTS: u64 = 64;

/// The checkpoints at heights up to `number`, the highest first.
pub(super) fn checkpoints(store: &impl Store, number: u64) -> Result<Vec<Checkpoint>, StoreError> {
    let statement = "SELECT number, hash, seconds FROM checkpoints WHERE number <= ?1 ORDER BY number DESC";
    query(store, statement, &[number.into()], |row| {
        Ok(Checkpoint { number: row.number()?, hash: row.array()?.into(), seconds: row.number()? })
    })
}

/// Stores a checkpoint, and keeps older ones at heights up to `since`.
pub(super) fn keep_checkpoint(
    store: &impl Store,
    checkpoint: Checkpoint,
    since: Option<u64>,
) -> Result<(), StoreError> {
    match since {
        Some(since) => store.execute("DELETE FROM checkpoints WHERE number > ?1", &[since.into()])?,
        None => store.execute("DELETE FROM checkpoints", &[])?,
    };
    let Checkpoint { number, hash, seconds } = checkpoint;
    store.execute(
        "INSERT OR REPLACE INTO checkpoints (number, hash, seconds) VALUES (?1, ?2, ?3)",
        &[number.into(), SqlValue::Blob(hash.to_vec()), seconds.into()],
    )?;
    let outdated = "DELETE FROM checkpoints WHERE number NOT IN \
                    (SELECT number FROM checkpoints ORDER BY number DESC LIMIT ?1)";
    store.execute(outdated, &[CHECKPOINTS.into()]).map(drop)
}
