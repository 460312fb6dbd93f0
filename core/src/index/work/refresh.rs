//! The refresh: one query finds what changed, SQL plans what to read, another query reads it.
//!
//! ```text
//!   find what changed --+--> nothing: done, and nothing is stored
//!                       +--> agents --> plan --+-> read them --> store --> done
//!                       |                      +-> all proved --> store --> done
//!                       +--> no event tells it: done, and for some seconds a late event is waited for
//!                       +--> still none, no events, or a contradicted record --> a comparison of all agents
//!                       +--> no known block is canonical --> the fill
//! ```
//!
//! A refresh that finds nothing takes one round trip. One with attestations takes three: the storage root, the
//! events, and the proof of the agents' words, which is all that has changed. Another takes four: storage roots
//! between the events, and the agents.

use std::{collections::BTreeSet, rc::Rc};

use super::{Stage, Work};
use crate::{
    chain::{Limits, Run},
    index::{
        IndexError,
        changes::Comparison,
        checkpoint::{self, Checkpoint},
        coverage::Coverage,
        find_changes::{
            Base, Events, ExpectedRecord, FindChanges, LOG_RANGE_REFRESHES, RegistryHead, SeenRows,
        },
        found::{Changed, Completeness, Contradicted, Found, FoundChanges, Unexplained},
        indexed_agent::IndexedAgent,
        phase::{Cause, Doubt, Late, Pass, Phase, Rows, Version},
        read_agents::{AGENTS, Agents, ReadAgents},
        seen_events::ListedEvents,
        state::{Basis, DAY_MILLIS, Provable, State, SweepPlace, Trust},
        store::{Store, one_number},
        tables::{self, AgentWriter},
    },
};

/// A refill is quicker beyond this many changes, if they also exceed a share of 1 / [`LARGE_SHARE`] of the
/// registry.
const MANY_CHANGES: u64 = 2_000;
const LARGE_SHARE: u64 = 4;
/// Changes that are stored in one piece of work: it is bounded in time. More are stored by a refill, slice by slice.
const MOST_CHANGES: u64 = 20_000;
/// Retries in search of changes, in addition to one failover per further endpoint.
const RETRIES: u32 = 5;
/// Milliseconds between two parts of the sweep.
const SWEEP_PAUSE_MILLIS: u64 = 300_000;

/// The agents to read again.
#[derive(Clone, Debug)]
pub(super) struct RefreshPlan {
    changed: Changed,
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
    /// Starts the search for what changed.
    pub(super) fn find(&mut self, store: &impl Store) -> Result<(), IndexError> {
        let Some((block, _)) = self.state.base() else {
            self.read_slice(&Pass::default());
            return Ok(());
        };
        // Between comparisons that found nothing, events are gone by even where they do not tell all changes.
        let is_trusting = self.state.is_complete() && self.state.compared.is_pausing(self.now_millis);
        let records = if is_trusting { Vec::new() } else { self.records_to_prove(store)? };
        let state = &self.state;
        let base = match &state.phase {
            Phase::Complete(rows) => Base::Rows(SeenRows {
                version: rows.version,
                unsettled: rows.unsettled(),
                records,
                asks_at: rows.coverage.asks_again_at(state.node.lateness),
                is_open: rows.coverage.is_open(),
            }),
            phase => {
                let pass = phase.pass().cloned().unwrap_or_default();
                let pinned = pass.header().filter(|_| pass.blocks.len() == 1);
                Base::Slices { blocks: pass.blocks, pinned }
            }
        };
        let query = FindChanges {
            registry: self.config.registry,
            layout: self.config.layout,
            self_contained_code: self.config.self_contained_code,
            block,
            base,
            events: if is_trusting { Events::Trusted } else { Events::Checked },
            code: state.node.trust.code(),
            total: state.total,
            from: state.asks_from(block),
            seen: state.asked.seen.clone(),
            was_late: state.node.lateness.is_known(),
            before: None,
            older: None,
            known_event: state.node.canary,
            log_range: state.node.log_range,
        };
        let limits = Limits { retries: RETRIES, ..self.config.limits };
        self.stage = Stage::Find(Box::new(self.run(query, limits)));
        Ok(())
    }

    /// The next records to prove, in the order of their ids.
    fn records_to_prove(&mut self, store: &impl Store) -> Result<Vec<ExpectedRecord>, IndexError> {
        let (total, proved) = (self.state.total, self.config.proved);
        let is_provable = self.state.is_complete() && self.state.node.trust.proves_records();
        if !is_provable || total == 0 || proved == 0 {
            return Ok(Vec::new());
        }
        let first = match self.state.asked.next_proved {
            0 => 1 + self.now_millis % total,
            next if next > total => 1,
            next => next,
        };
        let last = total.min(first.saturating_add(proved).saturating_sub(1));
        self.state.asked.next_proved = last + 1;
        let ids: Vec<u64> = (first..=last).collect();
        let records = tables::records(store, &ids)?.into_iter();
        let records = records.filter(|(_, entry)| entry.flaws() == 0);
        Ok(records.map(|(id, entry)| ExpectedRecord { id, row: entry.row, full: entry.full }).collect())
    }

    pub(super) fn take_found(
        &mut self,
        store: &impl Store,
        run: Box<Run<FindChanges>>,
        found: Found,
    ) -> Result<(), IndexError> {
        let Found { version, code, changes } = found;
        let trust = match (version, code.or(self.state.node.trust.code())) {
            (Some(_), Some(code)) => Trust::Proofs(code),
            (_, code) => Trust::Events(code),
        };
        let is_news = std::mem::replace(&mut self.state.node.trust, trust) != trust;
        let cause = self.state.phase.cause();
        let is_pinned = matches!(run.query().base, Base::Slices { pinned: Some(_), .. });
        match (changes, cause) {
            (FoundChanges::Nothing(header), _) => self.stay(store, header.into(), version, is_news),
            (FoundChanges::Named(ids), _) => {
                let ids: Vec<u64> = ids.into_iter().collect();
                let before = tables::records(store, &ids)?.into_iter();
                let before = before.filter(|(_, entry)| entry.row.record_is_readable());
                let before = before.map(|(id, entry)| (id, entry.row)).collect();
                self.find_on(run, |query| FindChanges { before: Some(before), ..query })
            }
            (FoundChanges::NotCanonical, _) => {
                // None of the known ones is.
                let known = run.query().known();
                let below = known.first().map_or(0, |first| first.number.saturating_sub(1));
                let mut older = checkpoint::checkpoints(store, below)?;
                let recent = self.state.phase.rows().map(|rows| rows.recent.as_slice()).unwrap_or_default();
                older.extend(recent.iter().filter(|recent| recent.number <= below));
                older.sort_unstable_by_key(|checkpoint| std::cmp::Reverse(checkpoint.number));
                older.dedup();
                self.find_on(run, |query| FindChanges { older: Some(older), ..query })
            }
            // The rows, or what they are compared with, are at least of the slices' block.
            (missing @ (FoundChanges::NoEvents | FoundChanges::Unexplained(_)), _) if is_pinned => {
                self.state.counters.without_events += u64::from(matches!(missing, FoundChanges::NoEvents));
                self.find_on(run, |query| FindChanges { events: Events::Ignored, ..query })
            }
            (FoundChanges::NoEvents, _) => self.go_without_events(store),
            // Slices of several blocks, and no event tells what lies between them.
            (FoundChanges::Unexplained(_) | FoundChanges::AnotherChain, Some(cause)) => {
                self.compare(store, cause)
            }
            (FoundChanges::AnotherChain, None) => self.refill(store, false),
            (FoundChanges::Unexplained(Unexplained { ids, seen, newest }), None) => {
                self.announced = ids;
                self.state.note_lateness(&seen, &newest);
                let asked = &mut self.state.asked;
                let first = seen.first().map_or(newest.number, |(number, _)| *number);
                asked.blocks = Some((asked.blocks.map_or(first, |(first, _)| first), newest.number));
                asked.awaited = seen;
                if self.state.node.lateness.is_known() && !run.query().was_late {
                    // As they were before, which says little.
                    return self.find(store);
                }
                self.wait_for_events(store)
            }
            (FoundChanges::Changed(changed), _) => self.plan(store, *changed),
        }
    }

    /// Goes on with a search.
    fn find_on(
        &mut self,
        run: Box<Run<FindChanges>>,
        query: impl FnOnce(FindChanges) -> FindChanges,
    ) -> Result<(), IndexError> {
        self.stage = Stage::Find(Box::new(run.go_on(query)));
        Ok(())
    }

    /// The rows are also of a later block.
    fn stay(
        &mut self,
        store: &impl Store,
        block: Checkpoint,
        version: Option<Version>,
        mut is_news: bool,
    ) -> Result<(), IndexError> {
        let state = &mut self.state;
        let Phase::Complete(rows) = &mut state.phase else { return Ok(()) };
        let (changes, before) = (state.log.changes, (rows.block.number, state.read_at));
        is_news |= version.is_some() && rows.version != version || matches!(rows.doubt, Doubt::Late(_));
        rows.version = version.or(rows.version);
        rows.coverage.advance(before, (&block, self.now_millis), true, None, &mut state.node.lateness);
        rows.confirm(block);
        state.listed.skip(before.0, block.number);
        state.read_at = self.now_millis;
        self.change_log(store, block).move_on()?;
        if is_news || self.state.log.changes != changes {
            self.state.save(store)?;
        }
        Ok(())
    }

    /// The registry has changed, and no event tells how: it may be late. The rows stay those of their block.
    fn wait_for_events(&mut self, store: &impl Store) -> Result<(), IndexError> {
        let is_first = self.state.late().is_none();
        let since = self.state.wait_for_event(self.now_millis);
        if self.now_millis >= since.saturating_add(self.state.compared.patience_millis(self.now_millis)) {
            return self.compare(store, Cause::Untold);
        }
        if is_first {
            self.state.save(store)?;
        }
        Ok(())
    }

    /// A proof has contradicted this agent's row, which has been read again. If the row was never true, and that
    /// was no remedy or not the first time that day, all rows are compared, and answer nothing until then.
    fn doubt(
        &mut self,
        store: &impl Store,
        contradicted: Contradicted,
        is_mended: bool,
    ) -> Result<(), IndexError> {
        self.state.counters.unannounced += u64::from(is_mended);
        if let Contradicted::Untrue(id) = contradicted {
            let last = std::mem::replace(&mut self.state.compared.contradicted_at, self.now_millis);
            if !is_mended || self.now_millis < last.saturating_add(DAY_MILLIS) {
                return self.compare(store, Cause::Contradicted(id));
            }
        }
        Ok(self.state.save(store)?)
    }

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
    fn plan(&mut self, store: &impl Store, changed: Changed) -> Result<(), IndexError> {
        self.note_log_range(changed.log_range);
        let total = self.state.total;
        let last = one_number(store, "SELECT max(id) FROM agents", &[])?.unwrap_or(0);
        let mut expected = changed.ids.clone();
        expected.extend(self.state.phase.pass().iter().flat_map(|pass| &pass.differing));
        expected.extend(changed.contradicted.map(Contradicted::id));
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
        let SweepPlace { last: swept, at } = self.state.sweep;
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
        changed: Changed,
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
        // Not older than what is stored, or compared.
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
        self.stage = Stage::Agents(Box::new(run), plan);
    }

    pub(super) fn take_agents(
        &mut self,
        store: &impl Store,
        mut plan: Box<RefreshPlan>,
        read: Option<Agents>,
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
        let mut writer =
            AgentWriter::new(store, version_of_shards, comparison, changed.moments.clone(), listed);
        let written = writer.put(&mut entries, false)?;
        let swept = writer.put(&mut swept, false)?;
        writer.end_at(total)?;
        let noted = writer.finish()?;
        self.change_log(store, checkpoint).write(noted)?;
        if let Some(undone) = undone {
            let same = entries.iter().map(|(id, _)| *id).filter(|id| !written.contains(id));
            let moved: Vec<_> = same.filter_map(|id| Some((id, *changed.moments.get(&id)?))).collect();
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
            state.sweep = SweepPlace { last, at: self.now_millis };
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
        let is_owed = rows.as_ref().is_some_and(|rows| rows.doubt == Doubt::Owed);
        let is_moved = undone_since.is_some() || !written.is_empty();
        let rows = Rows {
            version: changed.version.filter(|_| header.hash == changed.until.hash),
            unsettled: if is_moved { Some(checkpoint) } else { rows.and_then(|rows| rows.unsettled) },
            doubt: match () {
                () if is_owed || changed.completeness == Completeness::Refuted => Doubt::Owed,
                () if behind > 0 => Doubt::Late(Late { since: self.now_millis, asked_at: self.now_millis }),
                () => Doubt::None,
            },
            ..Rows::new(checkpoint, coverage, recent)
        };
        self.complete(store, rows, read_at)?;
        self.note_asked(&changed, checkpoint, asks_again);
        if let Some(surprise) = surprises.first() {
            return self.compare(store, Cause::Contradicted(*surprise));
        }
        match changed.contradicted {
            Some(contradicted) => self.doubt(store, contradicted, written.contains(&contradicted.id())),
            None => Ok(self.state.save(store)?),
        }
    }

    /// Notes what events were asked for, and read, up to this block of the rows.
    fn note_asked(&mut self, changed: &Changed, block: Checkpoint, asks_again: bool) {
        let first_unsettled = self.state.phase.rows().map_or(block.number, Rows::first_unsettled);
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
