//! The state of an index: its [phase](Phase), figures of the rows in each phase, the change log, which must
//! not be lost, and facts that may be lost, because they are learned again.

use std::collections::BTreeSet;

use alloy_primitives::{B256, U256};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    IndexError,
    checkpoint::{Checkpoint, text},
    coverage::{Coverage, Lateness},
    indexed_agent::IndexedAgent,
    phase::{BlockRows, ComparisonCause, LATE_LOGS_SECONDS, LateEvent, Pass, PendingCheck, Phase},
    seen_events::{ListedBlocks, wallet_events},
    store::{SqlValue, Store, StoreError, first_row},
};
use crate::{chain::Header, liability::WalletEvents};

/// Facts that proofs of a registry's storage show, by what is known of its code. Each level includes those
/// before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Provable {
    Nothing,
    /// A proof shows whether anything has changed: all state is in the registry's own storage.
    Changes,
    /// A proof shows records: their slots are known.
    Records,
    /// A proof shows that events tell all changes: an attestation, a suspension and a reactivation change the
    /// record's words alone. This project's registry does so, and another one once it has been seen to.
    Events,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KnownCode {
    #[serde(with = "text")]
    pub(super) hash: B256,
    pub(super) shows: Provable,
}

/// Source on which the last refresh relied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Trust {
    /// Events alone, checked by a slow sweep; with the code that was last read, if any.
    Events(Option<KnownCode>),
    /// Proofs, as far as this code allows them.
    Proofs(KnownCode),
}

impl Default for Trust {
    fn default() -> Self {
        Self::Events(None)
    }
}

impl Trust {
    pub(super) const fn code(self) -> Option<KnownCode> {
        match self {
            Self::Events(code) => code,
            Self::Proofs(code) => Some(code),
        }
    }

    pub(super) fn proves_records(self) -> bool {
        matches!(self, Self::Proofs(code) if code.shows >= Provable::Records)
    }
}

/// Source by which an index knows that it is current.
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

/// The log of changes. It must not be lost: clients have its cursors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ChangeLogState {
    /// Start of the log in unix milliseconds; 0 before it starts.
    pub(super) began: u64,
    /// The number of changes so far.
    pub(super) changes: u64,
    /// The logs that this one continues: the start of each, and its number of changes when taken over.
    pub(super) earlier_logs: Vec<(u64, u64)>,
    /// Attestations from this second on were current at the last comparison; `None` before the first one.
    pub(super) current_from: Option<u64>,
    /// Time of the block at which the ties of liable wallets to agents were last compared.
    pub(super) basis_at: u64,
}

impl ChangeLogState {
    /// Continues the log of an earlier index as a new log, because the earlier index may go on, too.
    pub(super) fn after(earlier: Self, now_millis: u64) -> Self {
        let began = now_millis.max(earlier.began.saturating_add(1));
        let ended = (earlier.began, earlier.changes);
        Self { began, earlier_logs: [earlier.earlier_logs, vec![ended]].concat(), ..earlier }
    }
}

/// Facts learned of the nodes; they may be lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NodeFacts {
    pub(super) trust: Trust,
    /// The height of a block, not above the rows', that is known to have an event.
    pub(super) canary: Option<u64>,
    /// Blocks per `eth_getLogs` that the node accepts, and the refreshes since that was detected.
    pub(super) log_range: Option<(u64, u32)>,
    pub(super) lateness: Lateness,
}

/// Outcomes of comparisons, which decide when there is another one; they may be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Comparisons {
    /// End of the last comparison because of a change that no event told, in unix milliseconds.
    pub(super) ended_at: u64,
    /// The last comparisons in a row that found no difference.
    pub(super) fruitless: u32,
    /// Comparisons within a day: after each, the index waits twice as long for an event.
    of_a_day: u32,
    /// Time at which a proof last contradicted a row, in unix milliseconds.
    pub(super) contradicted_at: u64,
}

impl Comparisons {
    /// Notes the end of a comparison because of a change that no event told.
    pub(super) fn end(&mut self, now_millis: u64, is_fruitless: bool) {
        self.of_a_day = if self.is_of_today(now_millis) { self.of_a_day.saturating_add(1) } else { 1 };
        self.ended_at = now_millis;
        self.fruitless = if is_fruitless { self.fruitless.saturating_add(1) } else { 0 };
    }

    const fn is_of_today(&self, now_millis: u64) -> bool {
        now_millis < self.ended_at.saturating_add(DAY_MILLIS)
    }

    /// Returns the milliseconds to wait for an event before all agents are compared.
    pub(super) fn patience_millis(&self, now_millis: u64) -> u64 {
        let doublings = if self.is_of_today(now_millis) { self.of_a_day.min(8) } else { 0 };
        (LATE_EVENT_MILLIS << doublings).min(LATE_LOGS_SECONDS * 1_000)
    }

    /// Returns whether it is too early for another comparison. Several without a difference show that the
    /// registry changes in ways that no agent is part of: then comparisons become ever rarer.
    pub(super) fn is_pausing(&self, now_millis: u64) -> bool {
        let pause = (PAUSE_MIN_MILLIS << self.fruitless.min(20)).min(DAY_MILLIS);
        self.fruitless >= FRUITLESS && now_millis < self.ended_at.saturating_add(pause)
    }
}

/// Position of the sweep, which reads all agents again and again if nothing proves the rows; it may be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct SweepPosition {
    /// The last id that was read.
    pub(super) last: u64,
    /// Time of that reading in unix milliseconds.
    pub(super) at: u64,
}

/// Counters for monitors; they may be lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Counters {
    /// Changes that no event announced.
    pub unannounced: u64,
    /// Refreshes without usable events, which read every agent.
    pub without_events: u64,
    /// Comparisons of all agents with the rows.
    pub comparisons: u64,
}

/// Recent searches for events, in memory only: without it, more is requested again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct EventSearchMemory {
    /// Heights and fingerprints of events that have been read, as far as they are requested again.
    pub(super) seen: BTreeSet<(u64, u64)>,
    /// Heights and fingerprints of the newest search, if its events did not tell all changes.
    pub(super) awaited: BTreeSet<(u64, u64)>,
    /// The first and the last height of the blocks with all their listed events in `seen` and `awaited`.
    pub(super) blocks: Option<(u64, u64)>,
    /// Chain time at which a refresh last requested events from before its block again.
    pub(super) again_at: u64,
    /// The next agent to prove; 0 for any agent.
    pub(super) next_proved: u64,
}

/// The state of an index. A refresh without changes stores none: a host keeps the last state of a
/// [`Work`](super::Work) in memory, and loads the stored one if it has none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct State {
    pub(super) phase: Phase,
    /// The number of agents at the last block read.
    pub total: u64,
    /// The registry's grace period in seconds.
    #[serde(with = "text")]
    pub grace_seconds: U256,
    /// Unix milliseconds by the host's clock when the rows' block was the newest.
    pub read_at: u64,
    /// Number of writes of agents: as long as it stays the same, so do the shards.
    pub writes: u64,
    /// The blocks of which events were listed.
    pub(super) listed: ListedBlocks,
    pub(super) log: ChangeLogState,
    pub(super) node: NodeFacts,
    pub(super) compared: Comparisons,
    pub(super) sweep: SweepPosition,
    /// Counters for monitors.
    pub counters: Counters,
    #[serde(skip)]
    pub(super) asked: EventSearchMemory,
}

impl State {
    /// Loads the state in the store, or that of an empty index.
    ///
    /// # Errors
    ///
    /// [`StoreError`].
    pub fn load(store: &impl Store) -> Result<Self, StoreError> {
        let row = first_row(store, "SELECT value FROM meta WHERE key = 'state'", &[])?;
        let Some(mut row) = row else { return Ok(Self::default()) };
        Self::read(&row.text()?).ok_or_else(StoreError::corrupt)
    }

    /// Reads a stored state of this version or another. Missing fields have their initial values. If fields
    /// cannot be read, the rows are kept, and compared.
    pub(super) fn read(text: &str) -> Option<Self> {
        // All from one kind of deserializer: a second one would add 16 KiB to the Worker.
        let stored: Value = serde_json::from_str(text).ok()?;
        if let Ok(state) = Self::deserialize(&stored) {
            return Some(state.with_basis_at());
        }
        // In the format before, the log's fields are fields of the state.
        let log = ChangeLogState::deserialize(&stored).unwrap_or_default();
        let mut fields = serde_json::to_value(Self { log, ..Self::default() }).ok()?;
        let block =
            stored.pointer("/phase/complete/block").and_then(|block| Checkpoint::deserialize(block).ok());
        for (name, value) in stored.as_object()? {
            let mut with = fields.clone();
            with.as_object_mut()?.insert(name.clone(), value.clone());
            if Self::deserialize(&with).is_ok() {
                fields = with;
            }
        }
        let mut state = Self::deserialize(&fields).ok()?;
        if let Some(block) = block {
            state.phase = Phase::Complete(BlockRows::new(block, Coverage::default(), Vec::new()));
        }
        match state.log.began {
            0 => state.refill(false),
            // All agents have been stored.
            _ => state.compare(state.phase.cause().unwrap_or(ComparisonCause::Untold)),
        }
        Some(state.with_basis_at())
    }

    /// Sets the time at which ties to agents were compared to that of the rows' block, if the log has none.
    fn with_basis_at(mut self) -> Self {
        let block = self.phase.rows().map(|rows| rows.block).or(self.as_of());
        if let (0, Some(block)) = (self.log.basis_at, block) {
            self.log.basis_at = block.seconds;
        }
        self
    }

    /// Continues the change log of an earlier index.
    pub(super) fn take_over(&mut self, earlier: Self, now_millis: u64) {
        let Self { log, grace_seconds, total, .. } = earlier;
        *self = Self { log: ChangeLogState::after(log, now_millis), grace_seconds, total, ..Self::default() };
    }

    pub(super) fn save(&self, store: &impl Store) -> Result<(), StoreError> {
        let text = serde_json::to_string(self).map_err(|_| StoreError::corrupt())?;
        let statement = "INSERT OR REPLACE INTO meta (key, value) VALUES ('state', ?1)";
        store.execute(statement, &[SqlValue::Text(text)]).map(drop)
    }

    /// Returns the grace period in seconds, capped to the range of clocks.
    pub(crate) fn grace(&self) -> u64 {
        u64::try_from(self.grace_seconds).unwrap_or(u64::MAX)
    }

    /// Returns the start of the change log in unix milliseconds; 0 before it starts.
    pub const fn began(&self) -> u64 {
        self.log.began
    }

    /// Returns the block of all answers; `None` while the rows are of different blocks, or contradicted.
    pub const fn as_of(&self) -> Option<Checkpoint> {
        match &self.phase {
            Phase::Filling { before, .. } => *before,
            Phase::CatchingUp { .. } | Phase::Comparing { cause: ComparisonCause::Contradicted(_), .. } => {
                None
            }
            Phase::Complete(rows) | Phase::Comparing { rows: Some(rows), .. } => Some(rows.block),
            Phase::Comparing { rows: None, .. } => None,
        }
    }

    /// Returns the block of all answers, or [`IndexError::Incomplete`].
    pub(crate) fn block(&self) -> Result<Checkpoint, IndexError> {
        self.as_of().ok_or_else(|| IndexError::Incomplete { percent: self.percent() })
    }

    /// Returns whether all agents are of one block, and are not being compared.
    pub const fn is_complete(&self) -> bool {
        matches!(self.phase, Phase::Complete(_))
    }

    /// Returns whether a large first fill ends, which takes seconds of computation without a round trip.
    pub const fn ends_large_fill(&self) -> bool {
        matches!(self.phase, Phase::CatchingUp { .. }) && self.total > LARGE_FILL
    }

    /// Returns whether nothing has been read yet.
    pub fn is_empty(&self) -> bool {
        matches!(&self.phase, Phase::Filling { pass, .. } if pass.next == Some(1))
    }

    /// Returns the source by which the index knows that it is current.
    pub const fn basis(&self) -> Basis {
        match self.node.trust {
            Trust::Proofs(_) => Basis::StorageRoot,
            Trust::Events(_) => Basis::Events,
        }
    }

    /// Returns the agent of which a proof contradicted the rows, while they answer nothing because of it.
    pub const fn contradicted(&self) -> Option<u64> {
        match self.phase.cause() {
            Some(ComparisonCause::Contradicted(id)) => Some(id),
            _ => None,
        }
    }

    /// Returns the oldest block of the rows, after which events are searched for, and the time at which it
    /// was the newest block.
    pub(super) fn base(&self) -> Option<(Checkpoint, u64)> {
        match self.phase.pass() {
            Some(pass) => pass.blocks.first().map(|first| (*first, pass.began)),
            None => self.phase.rows().map(|rows| (rows.block, self.read_at)),
        }
    }

    /// Returns the storage root of the rows' block, and the unix milliseconds up to which the rows lack
    /// nothing. It needs a known layout, by which a wallet without a live agent is not registered.
    pub(crate) fn vouched(&self) -> Option<(B256, u64)> {
        let is_vouched = self.node.trust.proves_records() && self.contradicted().is_none();
        let rows = self.phase.rows().filter(|_| is_vouched)?;
        Some((rows.version?.storage_root, rows.coverage.complete_to()?))
    }

    /// Returns the height after which events were listed without a gap, up to the rows' block.
    pub(crate) fn listed_after(&self) -> Option<u64> {
        self.listed.after(self.as_of()?.number)
    }

    /// Returns the known events by an agent's liable wallet, at the rows' block.
    pub(crate) fn wallet_events(&self, agent: &IndexedAgent) -> WalletEvents {
        wallet_events(agent.events.last, agent.events.registered_in(), self.listed_after())
    }

    /// Returns whether the change log lacks attestations that have lapsed, are current again, or are too old
    /// to tie liable wallets to agents: there are too many for one piece of work.
    pub fn has_more_lapses(&self) -> bool {
        let current_from = (self.read_at / 1_000).saturating_sub(self.grace());
        let (Phase::Complete(rows), Some(before)) = (&self.phase, self.log.current_from) else {
            return false;
        };
        before != current_from || self.log.basis_at != rows.block.seconds
    }

    /// Returns whether the chain has changes that are not in the rows yet: the index waits for an event, or
    /// compares all agents. Answers are true of the rows' block.
    pub const fn awaits_changes(&self) -> bool {
        self.late().is_some() || self.phase.cause().is_some()
    }

    /// Returns the event that the index waits for.
    pub(super) const fn late(&self) -> Option<LateEvent> {
        match &self.phase {
            Phase::CatchingUp { late, .. } => *late,
            Phase::Complete(BlockRows { doubt: PendingCheck::Late(late), .. }) => Some(*late),
            _ => None,
        }
    }

    /// Notes a wait for an event, and returns when its change was first found, in unix milliseconds.
    pub(super) fn wait_for_event(&mut self, now_millis: u64) -> u64 {
        let since = self.late().map_or(now_millis, |late| late.since);
        let waited = LateEvent { since, asked_at: now_millis };
        match &mut self.phase {
            Phase::CatchingUp { late, .. } => *late = Some(waited),
            Phase::Complete(rows) => rows.doubt = PendingCheck::Late(waited),
            Phase::Filling { .. } | Phase::Comparing { .. } => {}
        }
        since
    }

    /// Returns when to search again for an awaited event, in unix milliseconds: after half the time waited so
    /// far.
    pub fn retry_at(&self) -> Option<u64> {
        let LateEvent { since, asked_at } = self.late()?;
        let waited = asked_at.saturating_sub(since);
        Some(asked_at.saturating_add((waited / 2).max(LATE_EVENT_PAUSE_MILLIS)))
    }

    /// Starts a new fill. If `trusted`, the stored rows may be served until the first slice is stored.
    pub(super) fn refill(&mut self, trusted: bool) {
        let before = self.as_of().filter(|_| trusted);
        self.phase = Phase::Filling { pass: Pass::default(), before };
        self.node.canary = None;
        self.asked = EventSearchMemory::default();
    }

    /// Starts a comparison of all agents with the rows.
    pub(super) fn compare(&mut self, cause: ComparisonCause) {
        let rows = match std::mem::take(&mut self.phase) {
            Phase::Complete(rows) | Phase::Comparing { rows: Some(rows), .. } => Some(rows),
            _ => None,
        };
        let rows = rows.map(|rows| BlockRows { doubt: PendingCheck::None, ..rows });
        self.phase = Phase::Comparing { pass: Pass::default(), rows, cause };
    }

    /// Notes the events that a search up to this block has found, so that those of earlier blocks are known
    /// to have been late.
    pub(super) fn note_lateness(&mut self, told: &BTreeSet<(u64, u64)>, newest: &Header) {
        let (Some((first, last)), Some((base, _))) = (self.asked.blocks, self.base()) else { return };
        let EventSearchMemory { seen, awaited, .. } = &self.asked;
        let is_new = |event: &&(u64, u64)| event.1 != 0 && !seen.contains(event) && !awaited.contains(event);
        let asked = told.iter().filter(|(number, _)| (first..=last).contains(number));
        let late: BTreeSet<u64> = asked.filter(is_new).map(|(number, _)| *number).collect();
        let base = self.phase.rows().and_then(|rows| rows.recent.first()).unwrap_or(&base);
        let millis = newest.timestamp.saturating_sub(base.seconds).saturating_mul(1_000);
        let blocks = newest.number.saturating_sub(base.number).max(1);
        self.node.lateness.note(&late, last, millis / blocks);
    }

    /// Returns the first block of which events are requested, for rows at least of this block. Events of
    /// blocks that may be listed late are requested again with each search; those of the two minutes before
    /// the rows' block once a minute: only a further event of an agent with an event could be late there.
    pub(super) fn asks_from(&self, block: Checkpoint) -> u64 {
        let Some(rows) = self.phase.rows() else { return block.number.saturating_add(1) };
        let asked_lately = rows.block.seconds < self.asked.again_at.saturating_add(ASK_AGAIN_SECONDS);
        let next = match rows.version.is_some() && asked_lately {
            true => rows.block.number.saturating_add(1),
            false => rows.first_unsettled(),
        };
        rows.coverage.first_late().map_or(next, |first| first.min(next))
    }
}

/// Initial milliseconds of the wait for an event that tells a change of the storage root.
const LATE_EVENT_MILLIS: u64 = 20_000;
/// The shortest pause between two searches for it.
const LATE_EVENT_PAUSE_MILLIS: u64 = 2_000;
/// Seconds, by the chain's time, for which events that have been read are not requested again.
const ASK_AGAIN_SECONDS: u64 = LATE_LOGS_SECONDS / 2;
/// Comparisons in a row that find no difference, after which there is a pause, twice as long each time.
const FRUITLESS: u32 = 3;
/// The shortest such pause; the longest is a day.
const PAUSE_MIN_MILLIS: u64 = 20_000;
/// Milliseconds after which a comparison or a contradicted row is the first one again.
pub(super) const DAY_MILLIS: u64 = 24 * 3_600_000;

/// Agents that the sweep reads at once.
pub const SWEEP: u64 = 500;
/// Number of agents beyond which a first fill ends with seconds of computation.
const LARGE_FILL: u64 = 100_000;
