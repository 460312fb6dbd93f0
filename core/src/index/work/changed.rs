//! Plans, reads and stores the changes that a refresh has found.

use std::{collections::BTreeSet, rc::Rc};

use super::{Work, WorkStage};
use crate::index::{
    IndexError,
    changes::Comparison,
    checkpoint::{self, Checkpoint},
    coverage::Coverage,
    find_changes::LOG_RANGE_REFRESHES,
    found::{ChangeSet, Completeness, ContradictedRecord},
    indexed_agent::IndexedAgent,
    phase::{BlockRows, ComparisonCause, LateEvent, Pass, PendingCheck},
    read_agents::{AGENTS, AgentsAtBlock, ReadAgents},
    registry_head::RegistryHead,
    seen_events::ListedEvents,
    shards,
    state::{Basis, Provable, State, SweepPosition, Trust},
    store::{Store, one_number},
    tables::{self, AgentWriter},
};

/// Changes beyond which a refill is quicker, if they also exceed 1 / [`LARGE_SHARE`] of the registry.
const MANY_CHANGES: u64 = 2_000;
const LARGE_SHARE: u64 = 4;
/// Maximum changes that one piece of work stores, because its time is bounded. A refill stores more, slice by
/// slice.
const MOST_CHANGES: u64 = 20_000;
/// Milliseconds between two parts of the sweep.
const SWEEP_PAUSE_MILLIS: u64 = 300_000;

/// The agents to read again.
#[derive(Clone, Debug)]
pub(super) struct RefreshPlan {
    changed: ChangeSet,
    /// Ids not read yet.
    ids: Vec<u64>,
    /// Agents with an event, or read for another reason than the sweep.
    expected: Rc<BTreeSet<u64>>,
    /// The last agent that is stored.
    last: u64,
    sweep: Option<(u64, u64)>,
    /// The agents read so far.
    entries: Vec<(u64, IndexedAgent)>,
    swept: Vec<(u64, IndexedAgent)>,
    read_at: Option<RegistryHead>,
}

impl Work {
    fn note_log_range(&mut self, found: Option<u64>) {
        let log_range = &mut self.state.node.log_range;
        *log_range = match (found, *log_range) {
            (Some(range), _) => Some((range, 0)),
            (None, Some((range, refreshes))) if refreshes < LOG_RANGE_REFRESHES => {
                Some((range, refreshes + 1))
            }
            (None, _) => None,
        };
    }

    /// Decides which agents to read again.
    pub(super) fn plan(&mut self, store: &impl Store, changed: ChangeSet) -> Result<(), IndexError> {
        self.note_log_range(changed.log_range);
        let total = self.state.total;
        let last = one_number(store, "SELECT max(id) FROM agents", &[])?.unwrap_or(0);
        let mut expected = changed.ids.clone();
        expected.extend(self.state.phase.pass().iter().flat_map(|pass| &pass.differing));
        expected.extend(changed.contradicted.map(ContradictedRecord::id));
        if let Some(since) = changed.undone_since {
            // More are filled anew. After a fill at several blocks, nearly all may be of the last one.
            let most = MANY_CHANGES.max(total / LARGE_SHARE).min(MOST_CHANGES) + 1;
            expected.extend(tables::written_since(store, since.number, most)?);
        }
        let changes = expected.len() as u64;
        if changes > MOST_CHANGES || changes > MANY_CHANGES.max(total / LARGE_SHARE) {
            return self.refill(store, true);
        }
        if !expected.is_empty() && expected.iter().all(|id| changed.records.contains_key(id)) {
            return self.apply_proved(store, changed, expected, last);
        }
        let SweepPosition { last: swept, at } = self.state.sweep;
        let first = if swept >= total { 1 } else { swept + 1 };
        let is_due = self.now_millis >= at.saturating_add(SWEEP_PAUSE_MILLIS)
            && self.state.basis() == Basis::Events
            && self.state.is_complete();
        let sweep = (is_due && total > 0 && self.config.sweep > 0)
            .then(|| (first, total.min(first.saturating_add(self.config.sweep).saturating_sub(1))));
        let swept = |id: &u64| sweep.is_some_and(|(first, last)| (first..=last).contains(id));
        let ids = expected.iter().copied().filter(|id| !swept(id)).collect();
        self.read_agents(Box::new(RefreshPlan {
            changed,
            ids,
            expected: Rc::new(expected),
            last,
            sweep,
            entries: Vec::new(),
            swept: Vec::new(),
            read_at: None,
        }));
        Ok(())
    }

    /// Stores changes that a proof has shown in full: no agent is read.
    fn apply_proved(
        &mut self,
        store: &impl Store,
        changed: ChangeSet,
        expected: BTreeSet<u64>,
        last: u64,
    ) -> Result<(), IndexError> {
        let ids: Vec<u64> = expected.iter().copied().collect();
        let entries = tables::find_all(store, &ids)?.into_iter();
        let proved = |(id, entry)| Some((id, IndexedAgent { row: *changed.records.get(&id)?, ..entry }));
        let entries = entries.filter_map(proved).collect();
        let State { total, grace_seconds, .. } = self.state;
        let head = RegistryHead { header: changed.until, total, grace_seconds };
        let (expected, ids, swept) = (Rc::new(expected), Vec::new(), Vec::new());
        let plan = RefreshPlan { changed, ids, expected, last, sweep: None, entries, swept, read_at: None };
        self.apply(store, plan, head)
    }

    /// Reads the next planned agents, and first those that no event announced, and the sweep's.
    fn read_agents(&mut self, mut plan: Box<RefreshPlan>) {
        let rest = plan.ids.split_off(plan.ids.len().min(AGENTS));
        let ids = std::mem::replace(&mut plan.ids, rest);
        let is_first = plan.read_at.is_none();
        let newest = plan.changed.until;
        // Not older than the stored or compared rows.
        let rows = self.state.phase.rows().map(|rows| rows.block).or(self.state.base().map(|(base, _)| base));
        let since = plan.changed.undone_since.or(rows);
        let since = since.map_or(u64::MAX, |since| since.number).min(newest.number);
        let last = self.state.phase.pass().and_then(|pass| pass.blocks.last());
        let since = last.map_or(since, |slice| slice.number.max(since));
        let query = ReadAgents {
            registry: self.config.registry,
            ids: ids.into(),
            sweep: plan.sweep.filter(|_| is_first),
            beyond: is_first.then(|| (plan.last, Rc::clone(&plan.expected))),
            newest,
            since,
        };
        let run = self.run(query, self.config.limits).at(newest);
        self.stage = WorkStage::Agents(Box::new(run), plan);
    }

    pub(super) fn take_agents(
        &mut self,
        store: &impl Store,
        mut plan: Box<RefreshPlan>,
        read: Option<AgentsAtBlock>,
    ) -> Result<(), IndexError> {
        let Some(mut read) = read else {
            if let (true, Some(pass)) = (plan.changed.is_without_events(), self.state.phase.pass_mut()) {
                // The state of the pass's block may be gone.
                pass.misses = Pass::MISSES;
            }
            return self.restart(store);
        };
        plan.entries.append(&mut read.entries);
        plan.swept.append(&mut read.swept);
        if plan.read_at.get_or_insert(read.head).header.hash != read.head.header.hash {
            return self.restart(store);
        }
        if !plan.ids.is_empty() {
            self.read_agents(plan);
            return Ok(());
        }
        self.apply(store, *plan, read.head)
    }

    /// Stores the result: all rows are now of the block `read_at`.
    fn apply(
        &mut self,
        store: &impl Store,
        plan: RefreshPlan,
        read_at: RegistryHead,
    ) -> Result<(), IndexError> {
        let RefreshPlan { changed, expected, last, sweep, mut entries, mut swept, .. } = plan;
        let RegistryHead { header, total, grace_seconds } = read_at;
        let checkpoint = Checkpoint::from(header);
        let Some((base, base_read_at)) = self.state.base() else { return Ok(()) };
        let (rows, pass) = (self.state.phase.rows().cloned(), self.state.phase.pass().cloned());
        let (is_without_events, undone_since) = (changed.is_without_events(), changed.undone_since);
        let unannounced: Vec<u64> =
            entries.iter().map(|(id, _)| *id).filter(|id| *id > last && !expected.contains(id)).collect();
        if unannounced.len() >= AGENTS {
            return self.refill(store, true);
        }
        let compares = self.state.phase.cause().is_some();
        let undone = undone_since.map(|since| (since.number, since.seconds));
        let listed = ListedEvents::of(&changed.events, changed.ids.clone(), checkpoint.number, undone)
            .of_comparison(compares);
        let version_of_shards = self.shard_version(checkpoint);
        let start = undone_since.map_or(base.number, |since| since.number.min(base.number));
        if !is_without_events {
            match changed.from > changed.until.number {
                true => self.state.listed.skip(start, checkpoint.number),
                false => self.state.listed.list(changed.from, checkpoint.number),
            }
        }
        let comparison = Comparison::of(&self.state, checkpoint.number);
        let mut writer = AgentWriter::new(
            store,
            version_of_shards,
            comparison,
            changed.moments.clone(),
            listed,
            self.config.few_agents,
            self.config.files,
        );
        let written = writer.put(&mut entries, false)?;
        let swept = writer.put(&mut swept, false)?;
        while !writer.end_at(total)? {}
        let mut moved = Vec::new();
        if undone.is_some() {
            for (id, entry) in entries.iter().filter(|(id, _)| !written.contains(id)) {
                if let Some(moment) = changed.moments.get(id) {
                    moved.push((*id, *moment));
                    writer.note_moved(entry);
                }
            }
        }
        let noted = writer.finish()?;
        if undone.is_some() || pass.is_some() {
            shards::undo(store, version_of_shards)?;
        }
        self.change_log(store, checkpoint).write(noted)?;
        if let Some(undone) = undone {
            self.change_log(store, checkpoint).move_undone(undone, &moved)?;
        }
        let told = |id: &&u64| !changed.ids.contains(id) && !unannounced.contains(id);
        self.end_comparison(written.iter().filter(told).count() as u64);
        let is_surprise = |id: &u64| !expected.contains(id) && *id <= last;
        let surprises: Vec<u64> = swept.into_iter().filter(is_surprise).collect();

        let state = &mut self.state;
        if undone_since.is_none() {
            state.note_lateness(&changed.seen, &changed.newest);
            let few = if is_without_events { 0 } else { unannounced.len() };
            state.counters.unannounced += few as u64;
        }
        state.counters.unannounced += surprises.len() as u64;
        (state.total, state.grace_seconds) = (total, grace_seconds);
        if let Some((_, last)) = sweep {
            state.sweep = SweepPosition { last, at: self.now_millis };
        }
        let canary = changed.last_event.filter(|number| *number <= checkpoint.number).or(state.node.canary);
        state.node.canary = canary.filter(|number| undone_since.is_none_or(|since| *number <= since.number));
        if let (Completeness::Words, Trust::Proofs(code)) = (changed.completeness, &mut state.node.trust) {
            code.shows = Provable::Events;
        }
        let asks_again = rows.as_ref().is_none_or(|rows| changed.from <= rows.first_unsettled());

        let mut recent = rows.as_ref().map(|rows| rows.recent.clone()).unwrap_or_default();
        if let Some(since) = undone_since {
            recent.retain(|recent| recent.number <= since.number);
        }
        if recent.is_empty() {
            // Events since the first slice, or since the last canonical block, may still be late.
            recent.extend(match (&pass, undone_since) {
                (Some(_), _) => Some(base),
                (None, Some(since)) => checkpoint::checkpoints(store, since.number)?.first().copied(),
                (None, None) => None,
            });
        }
        // Blocks of a fill's slices are kept only during that fill.
        let kept = undone_since.map_or(checkpoint.number, |since| since.number);
        let is_filled = pass.is_some() && !compares;
        checkpoint::keep_checkpoint(store, checkpoint, (!is_filled).then_some(kept))?;

        let behind = changed.newest.timestamp.saturating_sub(changed.until.timestamp);
        let read_at = match is_without_events {
            // The block was the newest one then.
            true => base_read_at,
            false => self.now_millis.saturating_sub(behind.saturating_mul(1_000)),
        };
        let mut coverage = match &pass {
            // All agents were read at this block.
            Some(pass) => Coverage::begun(pass.began),
            None => rows.as_ref().map(|rows| rows.coverage.clone()).unwrap_or_default(),
        };
        if !is_without_events {
            let (step, is_proved) = ((start, base_read_at), changed.completeness.is_proved());
            let lateness = &mut state.node.lateness;
            coverage.advance(step, (&checkpoint, read_at), is_proved, Some(changed.from), lateness);
        }
        let is_owed = rows.as_ref().is_some_and(|rows| rows.doubt == PendingCheck::Owed);
        let is_moved = undone_since.is_some() || !written.is_empty();
        let rows = BlockRows {
            version: changed.version.filter(|_| header.hash == changed.until.hash),
            ahead: changed.ahead.filter(|(block, _)| block.number > header.number),
            unsettled: if is_moved { Some(checkpoint) } else { rows.and_then(|rows| rows.unsettled) },
            doubt: match () {
                () if is_owed || changed.completeness == Completeness::Refuted => PendingCheck::Owed,
                () if behind > 0 => {
                    PendingCheck::Late(LateEvent { since: self.now_millis, asked_at: self.now_millis })
                }
                () => PendingCheck::None,
            },
            ..BlockRows::new(checkpoint, coverage, recent)
        };
        self.complete(store, rows, read_at)?;
        self.note_asked(&changed, checkpoint, asks_again);
        if let Some(surprise) = surprises.first() {
            return self.compare(store, ComparisonCause::Contradicted(*surprise));
        }
        match changed.contradicted {
            Some(contradicted) => self.doubt(store, contradicted, written.contains(&contradicted.id())),
            None => Ok(self.state.save(store)?),
        }
    }

    /// Notes the events that were requested and read, up to this block of the rows.
    fn note_asked(&mut self, changed: &ChangeSet, block: Checkpoint, asks_again: bool) {
        let first_unsettled = self.state.phase.rows().map_or(block.number, BlockRows::first_unsettled);
        let asked = &mut self.state.asked;
        if asks_again {
            asked.again_at = block.seconds;
        }
        // The agents may have been read at an older block than the events.
        asked.seen.retain(|(number, _)| *number < changed.from);
        asked.seen.extend(&changed.seen);
        asked.seen.retain(|(number, _)| (first_unsettled..=block.number).contains(number));
        asked.awaited.clear();
        let from = asked.blocks.map_or(changed.from, |(first, _)| first.min(changed.from));
        asked.blocks = (!changed.is_without_events()).then_some((from.max(first_unsettled), block.number));
    }
}
