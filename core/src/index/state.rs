//! The state of an index, and its progress as shown to clients.
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
//!
//! Of a block, the registry's version that was seen there is a fact. Up to when the rows lack nothing is
//! another one: [`Coverage`].

use std::collections::BTreeSet;

use alloy_primitives::{B256, U256};
use serde::{Deserialize, Serialize};

use super::{
    checkpoint::{Checkpoint, text},
    coverage::Coverage,
    indexed_agent::IndexedAgent,
    seen_events::{ListedBlocks, wallet_events},
    store::{SqlValue, Store, StoreError, first_row},
};
use crate::{chain::Header, liability::WalletEvents};

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
    /// All agents are of one block, and are compared with the chain's newest, because no event tells a
    /// change.
    Comparing {
        /// The next id to compare; [`Phase::COMPARED`] once all are.
        next: u64,
    },
}

impl Phase {
    /// In [`Phase::Comparing`]: all agents are compared.
    pub(super) const COMPARED: u64 = u64::MAX;

    /// Whether slices of agents are being read.
    pub(super) const fn next_slice(self) -> Option<u64> {
        match self {
            Self::Comparing { next: Self::COMPARED } | Self::CatchingUp | Self::Complete => None,
            Self::Filling { next } | Self::Comparing { next } => Some(next),
        }
    }
}

/// A registry's version: what it consists of at a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Version {
    #[serde(with = "text")]
    pub(super) storage_root: B256,
    #[serde(with = "text")]
    pub(super) code_hash: B256,
}

/// A registry's code, and what is known of its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct KnownCode {
    #[serde(with = "text")]
    pub(super) hash: B256,
    /// It keeps all state in its own storage.
    pub(super) is_self_contained: bool,
    /// The slots of its records are known.
    pub(super) has_layout: bool,
    /// A proof has shown that an attestation, a suspension or a reactivation changes the record's words alone.
    #[serde(default)]
    pub(super) proves_words: bool,
}

/// What an index rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Basis {
    /// The root of the registry's storage says whether anything has changed, and events say what.
    StorageRoot,
    /// Events say what has changed, and a slow sweep checks them: the node serves no proofs, or the
    /// registry's code is not known to keep all state in its own storage.
    Events,
}

/// The state of an index. A refresh that finds nothing changed stores none: a host keeps the last state of a
/// [`Work`](super::Work) in memory, and loads the stored one where it has none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
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
    /// When the last part of the sweep was read, unix milliseconds.
    pub(super) swept_at: u64,
    /// Refreshes without usable events, which read every agent.
    pub without_events: u64,
    /// Comparisons of all agents with the rows.
    pub comparisons: u64,
    /// The comparison under way is for a change that no event tells.
    pub(super) is_doubted: bool,
    /// When the last comparison ended, unix milliseconds.
    pub(super) compared_at: u64,
    /// The last comparisons in a row that found no difference.
    pub(super) fruitless: u32,
    /// Events were gone by that do not tell all changes: a comparison is due once the pause after the last
    /// one is over.
    pub(super) owes_comparison: bool,
    /// Agents found to differ by the comparison under way.
    pub(super) differing: Vec<u64>,
    /// The agent of which a proof contradicted the rows. They answer nothing until they have been compared.
    pub contradicted: Option<u64>,
    /// When a change was first found that no event tells, unix milliseconds.
    pub(super) unexplained_since: Option<u64>,
    /// Milliseconds for which an event is waited for before all agents are compared: twice as long after each
    /// comparison of a day.
    pub(super) patience_millis: u64,
    /// The registry's version that was seen at [`Self::block`], if any. It is of the chain, and says nothing of
    /// the rows.
    pub(super) version: Option<Version>,
    /// Up to when the rows lack nothing.
    pub(super) coverage: Coverage,
    /// The blocks whose events were listed.
    pub(super) listed: ListedBlocks,
    /// When a proof last contradicted a record, unix milliseconds.
    pub(super) contradicted_at: u64,
    /// The code that was last read.
    pub(super) code: Option<KnownCode>,
    /// Blocks of which the rows were, at least one of them two minutes older than the last.
    pub(super) recent: Vec<Checkpoint>,
    /// Blocks' heights and fingerprints of events that have been read, as far as they are asked for again.
    #[serde(skip)]
    pub(super) seen: BTreeSet<(u64, u64)>,
    /// Those of the newest search, where its events did not tell all changes.
    #[serde(skip)]
    pub(super) awaited: BTreeSet<(u64, u64)>,
    /// The first and the last height of blocks of which all events that were listed are in these two.
    #[serde(skip)]
    pub(super) asked: Option<(u64, u64)>,
    /// When the last refresh asked again for events of before its block, by the chain's time.
    #[serde(skip)]
    pub(super) asked_again_at: u64,
    /// The next agent to prove; 0 for any one.
    #[serde(skip)]
    pub(super) next_proved: u64,
    /// When the last refresh found changes in the newest block that no event tells yet, unix milliseconds:
    /// the rows are of an older one. `None` where it found none.
    #[serde(skip)]
    pub(super) lagging_at: Option<u64>,
    /// Start of the change log in unix milliseconds; 0 before it starts.
    pub began: u64,
    /// The number of changes so far.
    pub(super) changes: u64,
    /// The logs that this one goes on from: when each began, and its number of changes then.
    pub(super) earlier_logs: Vec<(u64, u64)>,
    /// Attestations from this second on were current at the last comparison; `None` before the first.
    pub(super) current_from: Option<u64>,
    /// The time of the block that what ties liable wallets to agents was last compared at.
    pub(super) basis_at: u64,
    /// The height of a block, not above [`Self::block`], that is known to have an event.
    pub(super) canary: Option<u64>,
    /// Blocks that the slices of this pass over all agents were read at, by height: one, unless its state was
    /// gone before the last slice was read.
    pub(super) pass: Vec<Checkpoint>,
    /// Slices in a row that were answered at another block than the last of these; from [`PASS_MISSES`] on
    /// its state passes for gone, and the next slice is read at the newest block.
    pub(super) pass_misses: u32,
    /// When the first of these slices was read, unix milliseconds.
    pub(super) pass_began: u64,
    /// Blocks per `eth_getLogs` that the node accepts, and the refreshes since that was detected.
    pub(super) log_range: Option<(u64, u32)>,
    /// How often agents have been written: as long as it stays the same, so do the shards.
    pub writes: u64,
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
            swept_at: 0,
            without_events: 0,
            comparisons: 0,
            is_doubted: false,
            compared_at: 0,
            fruitless: 0,
            owes_comparison: false,
            differing: Vec::new(),
            contradicted: None,
            unexplained_since: None,
            patience_millis: LATE_EVENT_MILLIS,
            version: None,
            coverage: Coverage::default(),
            listed: ListedBlocks::default(),
            contradicted_at: 0,
            code: None,
            recent: Vec::new(),
            seen: BTreeSet::new(),
            awaited: BTreeSet::new(),
            asked: None,
            asked_again_at: 0,
            next_proved: 0,
            lagging_at: None,
            began: 0,
            changes: 0,
            earlier_logs: Vec::new(),
            current_from: None,
            basis_at: 0,
            canary: None,
            pass: Vec::new(),
            pass_misses: 0,
            pass_began: 0,
            log_range: None,
            writes: 0,
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
        Self::read(&row.text()?).ok_or_else(StoreError::corrupt)
    }

    /// Reads a stored state, of this version or another: what is missing is as at first. Where fields cannot be
    /// read, the rows are kept, and compared.
    pub(super) fn read(text: &str) -> Option<Self> {
        if let Ok(state) = serde_json::from_str(text) {
            return Some(state);
        }
        let mut fields = serde_json::to_value(Self::default()).ok()?;
        for (name, value) in serde_json::from_str::<serde_json::Map<_, _>>(text).ok()? {
            let mut with = fields.clone();
            with.as_object_mut()?.insert(name, value);
            if Self::deserialize(&with).is_ok() {
                fields = with;
            }
        }
        let mut state = Self::deserialize(fields).ok()?;
        match state.block {
            Some(_) if matches!(state.phase, Phase::Complete | Phase::Comparing { .. }) => {
                state.compare(true)
            }
            _ => state.refill(false),
        }
        state.coverage.forget();
        Some(state)
    }

    /// Goes on from the change log of an earlier index. The log is a new one, as the earlier index may go on, too.
    pub(super) fn take_over(&mut self, earlier: Self, now_millis: u64) {
        let Self { began, changes, earlier_logs, current_from, grace_seconds, total, .. } = earlier;
        *self = Self { changes, earlier_logs, current_from, grace_seconds, total, ..Self::default() };
        self.earlier_logs.push((began, changes));
        self.began = now_millis.max(began.saturating_add(1));
    }

    /// The grace period in seconds, capped to the range of clocks.
    pub(crate) fn grace(&self) -> u64 {
        u64::try_from(self.grace_seconds).unwrap_or(u64::MAX)
    }

    pub(super) fn save(&self, store: &impl Store) -> Result<(), StoreError> {
        let text = serde_json::to_string(self).map_err(|_| StoreError::corrupt())?;
        let statement = "INSERT OR REPLACE INTO meta (key, value) VALUES ('state', ?1)";
        store.execute(statement, &[SqlValue::Text(text)]).map(drop)
    }

    /// The block of all answers; `None` while the rows are of different blocks, or contradicted.
    pub fn as_of(&self) -> Option<Checkpoint> {
        let is_whole = match self.phase {
            Phase::Complete | Phase::Comparing { .. } => self.contradicted.is_none(),
            Phase::Filling { .. } => self.pass.is_empty(),
            Phase::CatchingUp => false,
        };
        self.block.filter(|_| is_whole)
    }

    /// The storage root of the rows' block, and up to when the rows lack nothing (unix milliseconds). The layout
    /// says of the registry's code that a wallet without a live agent is not registered.
    pub(crate) fn vouched(&self) -> Option<(B256, u64)> {
        let has_layout = self.code.is_some_and(|code| code.has_layout);
        let is_vouched = has_layout && self.basis == Basis::StorageRoot && self.as_of().is_some();
        let version = self.version.filter(|_| is_vouched)?;
        Some((version.storage_root, self.coverage.complete_to()?))
    }

    /// The height after which events were listed without a gap, up to the rows' block.
    pub(crate) fn listed_after(&self) -> Option<u64> {
        self.listed.after(self.block?.number)
    }

    /// What is known of the events by an agent's liable wallet, at the rows' block.
    pub(crate) fn wallet_events(&self, agent: &IndexedAgent) -> WalletEvents {
        wallet_events(agent.events.last, agent.events.registered_in(), self.listed_after())
    }

    /// Whether the chain has changes that are not in the rows yet: an event is waited for, or all agents
    /// are being compared. Answers are true of the rows' block.
    pub const fn awaits_changes(&self) -> bool {
        self.lagging_at.is_some() || matches!(self.phase, Phase::Comparing { .. })
    }

    /// The block that the next slice is read at, if the pass has one and its state is there.
    pub(super) fn pass_header(&self) -> Option<Header> {
        let last = self.pass.last().filter(|_| self.pass_misses < PASS_MISSES)?;
        let Checkpoint { number, hash, seconds, parent } = *last;
        Some(Header { number, hash, parent_hash: parent, timestamp: seconds })
    }

    /// When to look again for an event that is waited for, unix milliseconds: after half the time waited so
    /// far.
    pub fn retry_at(&self) -> Option<u64> {
        let at = self.lagging_at?;
        let waited = at.saturating_sub(self.unexplained_since.unwrap_or(at));
        Some(at.saturating_add((waited / 2).max(LATE_EVENT_PAUSE_MILLIS)))
    }

    /// Starts a new fill. `trusted`: the stored rows may be served until the first slice is stored.
    pub(super) fn refill(&mut self, trusted: bool) {
        let trusted = trusted && self.as_of().is_some();
        self.phase = Phase::Filling { next: 1 };
        self.pass.clear();
        self.forget_blocks();
        if !trusted {
            self.block = None;
        }
    }

    /// Starts a comparison of all agents with the rows.
    pub(super) fn compare(&mut self, is_doubted: bool) {
        self.is_doubted = is_doubted;
        self.phase = Phase::Comparing { next: 1 };
        self.owes_comparison = false;
        self.pass.clear();
        self.differing.clear();
    }

    /// Notes the end of a comparison for a change that no event told. Should it have been late, then the
    /// next one has more time.
    pub(super) fn wait_longer(&mut self, now_millis: u64) {
        self.patience_millis = self.patience(now_millis).saturating_mul(2).min(LATE_EVENT_MAX_MILLIS);
        self.compared_at = now_millis;
    }

    /// How long an event is waited for.
    pub(super) fn patience(&self, now_millis: u64) -> u64 {
        match now_millis >= self.compared_at.saturating_add(PATIENCE_MILLIS) {
            true => LATE_EVENT_MILLIS,
            false => self.patience_millis,
        }
    }

    /// Notes that the rows are of this block, which was the newest at `read_at`.
    pub(super) fn confirm(&mut self, block: Checkpoint, read_at: u64) {
        self.block = Some(block);
        self.read_at = read_at;
        self.lagging_at = None;
        self.unexplained_since = None;
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

    /// Notes the events that a search up to this block has found, so that those of earlier blocks are known to
    /// have been late.
    pub(super) fn note_lateness(&mut self, told: &BTreeSet<(u64, u64)>, (number, seconds): (u64, u64)) {
        let (Some((first, last)), Some(block)) = (self.asked, self.block) else { return };
        let is_new =
            |event: &&(u64, u64)| event.1 != 0 && !self.seen.contains(event) && !self.awaited.contains(event);
        let asked = told.iter().filter(|(number, _)| (first..=last).contains(number));
        let late: BTreeSet<u64> = asked.filter(is_new).map(|(number, _)| *number).collect();
        let base = self.recent.first().unwrap_or(&block);
        let millis = seconds.saturating_sub(base.seconds).saturating_mul(1_000);
        let blocks = number.saturating_sub(base.number).max(1);
        self.coverage.note_late(&late, last, millis / blocks);
    }

    /// Forgets what is known of blocks: the rows are read anew.
    fn forget_blocks(&mut self) {
        (self.canary, self.version, self.asked) = (None, None, None);
        self.coverage.forget();
        self.recent.clear();
        self.seen.clear();
        self.awaited.clear();
    }

    /// The first block of which events are asked for. Those of blocks that may be listed late are asked for
    /// again with each search; those of the two minutes before the rows' block once a minute, in which only
    /// another one of an agent that had one could be late.
    pub(super) fn asks_from(&self, block: Checkpoint) -> u64 {
        let asked_lately = block.seconds < self.asked_again_at.saturating_add(ASK_AGAIN_SECONDS);
        let next = match self.version.is_some() && asked_lately {
            true => block.number.saturating_add(1),
            false => self.first_unsettled(block),
        };
        self.coverage.first_late().map_or(next, |first| first.min(next))
    }

    /// The first block of which events may be missing: nodes list some late, of the two minutes before the rows'
    /// block.
    pub(super) fn first_unsettled(&self, block: Checkpoint) -> u64 {
        let is_settled = |recent: &&Checkpoint| recent.seconds + LATE_LOGS_SECONDS <= block.seconds;
        let settled = self.recent.iter().rev().find(is_settled).or(self.recent.first());
        settled.map_or(block.number, |settled| settled.number.min(block.number)).saturating_add(1)
    }
}

/// Milliseconds for which an event is waited for that tells a change of the storage root, at first and at
/// most.
const LATE_EVENT_MILLIS: u64 = 20_000;
const LATE_EVENT_MAX_MILLIS: u64 = LATE_LOGS_SECONDS * 1_000;
/// The shortest pause between two searches for it.
const LATE_EVENT_PAUSE_MILLIS: u64 = 2_000;
/// Milliseconds after a comparison from which on the next event is waited for as long as at first.
const PATIENCE_MILLIS: u64 = 24 * 3_600_000;
/// The age, by the chain's time, from which on a node is taken to list all events of a block.
const LATE_LOGS_SECONDS: u64 = 120;
/// Seconds, by the chain's time, for which events that have been read are not asked for again.
const ASK_AGAIN_SECONDS: u64 = LATE_LOGS_SECONDS / 2;
/// Seconds between two of [`State::recent`].
const RECENT_SECONDS: u64 = 8;

/// Slices in a row at another block than the pass's, after which the pass goes on at the newest block.
pub(super) const PASS_MISSES: u32 = 3;

/// Agents that the sweep reads at once.
pub const SWEEP: u64 = 500;
