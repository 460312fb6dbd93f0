//! The refresh: one query finds what changed, SQL plans what to read, another query reads it.
//!
//! ```text
//!   find what changed --+--> nothing: done, and nothing is stored
//!                       +--> agents --> plan --> read them --> store --> done
//!                       +--> no event tells it: done, and for some seconds a late event is waited for
//!                       +--> still none, no events, or a contradicted record --> a comparison of all agents
//!                       +--> no known block is canonical --> the fill
//! ```
//!
//! A refresh that finds nothing takes one round trip, a usual one four: the storage root, the events, the
//! storage roots between them, and the agents.

use std::{collections::BTreeSet, rc::Rc};

use super::{Stage, Work};
use crate::{
    chain::{Limits, Run},
    index::{
        IndexError,
        changes::Comparison,
        checkpoint::{self, Checkpoint},
        find_changes::{ExpectedRecord, FindChanges, LOG_RANGE_REFRESHES, RegistryHead},
        found::{Changed, Found, FoundChanges, Unexplained},
        indexed_agent::IndexedAgent,
        read_agents::{AGENTS, Agents, ReadAgents},
        seen_events::ListedEvents,
        state::{Basis, PASS_MISSES, Phase, State},
        store::{Store, one_number},
        tables::{self, AgentWriter},
    },
};

/// A refill is quicker beyond this many changes, if they also exceed a share of 1 / [`LARGE_SHARE`] of the
/// registry.
const MANY_CHANGES: usize = 2_000;
const LARGE_SHARE: u64 = 4;
/// Retries in search of changes, in addition to one failover per further endpoint.
const RETRIES: u32 = 5;
/// Comparisons in a row that find no difference, after which there is a pause, twice as long each time.
const FRUITLESS: u32 = 3;
/// The shortest and the longest such pause.
const COMPARISON_PAUSE_MIN_MILLIS: u64 = 20_000;
const COMPARISON_PAUSE_MILLIS: u64 = 24 * 3_600_000;
/// Milliseconds after a contradicted record from which on another one counts as the first.
const CONTRADICTED_MILLIS: u64 = 24 * 3_600_000;
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
        let state = &self.state;
        let compares = matches!(state.phase, Phase::Comparing { .. });
        // What is compared is of the slices' blocks, not of the rows'.
        let begun = state.pass.first().copied().filter(|_| compares);
        let Some(block) = begun.or(state.block) else {
            self.read_slice(1);
            return Ok(());
        };
        let is_whole = state.phase == Phase::Complete;
        // Between comparisons that found nothing, events are gone by even where they do not tell all changes.
        let trusts_events = is_whole && self.is_pausing();
        let records = if is_whole && !trusts_events { self.records_to_prove(store)? } else { Vec::new() };
        let state = &self.state;
        let query = FindChanges {
            registry: self.config.registry,
            layout: self.config.layout,
            self_contained_code: self.config.self_contained_code,
            block,
            version: state.version.filter(|_| is_whole),
            code: state.code,
            records,
            total: state.total,
            from: state.asks_from(state.block.unwrap_or(block)),
            seen: state.seen.clone(),
            asks_at: state.coverage.asks_again_at().filter(|_| is_whole),
            is_open: state.coverage.is_open(),
            was_late: state.coverage.was_late(),
            before: None,
            pass: if is_whole { Vec::new() } else { state.pass.clone() },
            older: None,
            pinned: state.pass_header().filter(|_| state.pass.len() == 1 && !is_whole),
            known_event: state.canary,
            log_range: state.log_range,
            without_events: false,
            trusts_events,
        };
        let limits = Limits { retries: RETRIES, ..self.config.limits };
        self.stage = Stage::Find(Box::new(self.run(query, limits)));
        Ok(())
    }

    /// Whether it is too early for another comparison. Some that find no difference show that the registry
    /// changes in ways that no agent is part of: then there are ever fewer of them.
    pub(super) fn is_pausing(&self) -> bool {
        let State { fruitless, compared_at, .. } = &self.state;
        let pause = (COMPARISON_PAUSE_MIN_MILLIS << fruitless.min(&20)).min(COMPARISON_PAUSE_MILLIS);
        *fruitless >= FRUITLESS && self.now_millis < compared_at.saturating_add(pause)
    }

    /// The next records to prove, in the order of their ids.
    fn records_to_prove(&mut self, store: &impl Store) -> Result<Vec<ExpectedRecord>, IndexError> {
        let (total, proved) = (self.state.total, self.config.proved);
        let has_layout = self.state.code.is_some_and(|code| code.has_layout);
        if self.state.basis != Basis::StorageRoot || !has_layout || total == 0 || proved == 0 {
            return Ok(Vec::new());
        }
        let first = match self.state.next_proved {
            0 => 1 + self.now_millis % total,
            next if next > total => 1,
            next => next,
        };
        let last = total.min(first.saturating_add(proved).saturating_sub(1));
        self.state.next_proved = last + 1;
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
        let basis = if version.is_some() { Basis::StorageRoot } else { Basis::Events };
        let is_news = self.state.basis != basis || code.is_some();
        self.state.basis = basis;
        self.state.code = code.or(self.state.code);
        let compares = matches!(self.state.phase, Phase::Comparing { .. });
        match changes {
            FoundChanges::Nothing(header) => {
                let version = version.or(self.state.version);
                let is_first = self.state.version != version;
                self.state.version = version;
                self.stay(store, Checkpoint::from(header), is_news || is_first)
            }
            FoundChanges::Named(ids) => {
                let ids: Vec<u64> = ids.into_iter().collect();
                let before = tables::records(store, &ids)?.into_iter();
                let before = before.filter(|(_, entry)| entry.row.record_is_readable());
                let before = before.map(|(id, entry)| (id, entry.row)).collect();
                let run = run.go_on(|query| FindChanges { before: Some(before), ..query });
                self.stage = Stage::Find(Box::new(run));
                Ok(())
            }
            FoundChanges::NotCanonical => {
                let below = run.query().block.number.saturating_sub(1);
                let mut older = checkpoint::checkpoints(store, below)?;
                older.extend(self.state.recent.iter().filter(|recent| recent.number <= below));
                older.sort_unstable_by_key(|checkpoint| std::cmp::Reverse(checkpoint.number));
                older.dedup();
                let run = run.go_on(|query| FindChanges { older: Some(older), ..query });
                self.stage = Stage::Find(Box::new(run));
                Ok(())
            }
            // The rows, or what they are compared with, are at least of the slices' block.
            ref missing @ (FoundChanges::NoEvents | FoundChanges::Unexplained(_))
                if run.query().pinned.is_some() =>
            {
                self.state.without_events += u64::from(matches!(missing, FoundChanges::NoEvents));
                let run = run.go_on(|query| FindChanges { without_events: true, ..query });
                self.stage = Stage::Find(Box::new(run));
                Ok(())
            }
            FoundChanges::NoEvents => self.go_without_events(store),
            // Slices of several blocks, and no event tells what lies between them.
            FoundChanges::Unexplained(_) if compares => self.compare(store, self.state.is_doubted),
            FoundChanges::AnotherChain if compares => self.compare(store, self.state.is_doubted),
            FoundChanges::AnotherChain => self.refill(store, false),
            FoundChanges::Unexplained(Unexplained { ids, seen, newest }) => {
                self.announced = ids;
                self.state.note_lateness(&seen, (newest.number, newest.timestamp));
                let first = seen.first().map_or(newest.number, |(number, _)| *number);
                let first = self.state.asked.map_or(first, |(asked, _)| asked);
                self.state.asked = Some((first, newest.number));
                self.state.awaited = seen;
                if self.state.coverage.was_late() && !run.query().was_late {
                    // As they were before, which says little.
                    return self.find(store);
                }
                self.wait_for_events(store)
            }
            FoundChanges::Changed(changed) => self.plan(store, *changed),
        }
    }

    /// The rows are also of a later block.
    fn stay(&mut self, store: &impl Store, block: Checkpoint, is_news: bool) -> Result<(), IndexError> {
        let (changes, waited) = (self.state.changes, self.state.unexplained_since.is_some());
        let before = (self.state.block.map_or(block.number, |block| block.number), self.state.read_at);
        self.state.coverage.advance(before, (&block, self.now_millis), true, None);
        self.state.listed.skip(before.0, block.number);
        self.state.confirm(block, self.now_millis);
        self.change_log(store, block).move_on()?;
        if is_news || waited || self.state.changes != changes {
            self.state.save(store)?;
        }
        Ok(())
    }

    /// The registry has changed, and no event tells how: it may be late. The rows stay those of their block.
    fn wait_for_events(&mut self, store: &impl Store) -> Result<(), IndexError> {
        self.state.lagging_at = Some(self.now_millis);
        if self.has_waited() {
            if self.state.phase == Phase::CatchingUp {
                // The rows are of no block that they can be compared as.
                self.state.block = None;
            }
            return self.compare(store, true);
        }
        if self.state.unexplained_since.is_none() {
            self.state.unexplained_since = Some(self.now_millis);
            self.state.save(store)?;
        }
        Ok(())
    }

    /// A proof has contradicted this agent's row, which has been read again. If the row was never true, and that
    /// was no remedy or not the first time that day, all rows are compared, and answer nothing until then.
    fn doubt(
        &mut self,
        store: &impl Store,
        id: u64,
        (is_mended, was_untrue): (bool, bool),
    ) -> Result<(), IndexError> {
        self.state.unannounced += u64::from(is_mended);
        if was_untrue {
            let next = self.state.contradicted_at.saturating_add(CONTRADICTED_MILLIS);
            self.state.contradicted_at = self.now_millis;
            if !is_mended || self.now_millis < next {
                self.state.contradicted = Some(id);
                return self.compare(store, true);
            }
        }
        Ok(self.state.save(store)?)
    }

    fn note_log_range(&mut self, found: Option<u64>) {
        self.state.log_range = match (found, self.state.log_range) {
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
        expected.extend(&self.state.differing);
        expected.extend(changed.contradicted);
        if let Some(since) = changed.undone_since {
            // More are filled anew. After a fill at several blocks, nearly all may be of the last one.
            let most = (total / LARGE_SHARE).max(MANY_CHANGES as u64) + 1;
            expected.extend(tables::written_since(store, since, most)?);
        }
        if expected.len() > MANY_CHANGES && expected.len() as u64 > total / LARGE_SHARE {
            return self.refill(store, true);
        }
        let first = if self.state.sweep > total { 1 } else { self.state.sweep };
        let is_due = self.now_millis >= self.state.swept_at.saturating_add(SWEEP_PAUSE_MILLIS)
            && self.state.basis == Basis::Events
            && self.state.phase == Phase::Complete;
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

    /// Reads the next planned agents, and first those that no event announced, and the sweep's.
    fn read_agents(&mut self, mut plan: Box<RefreshPlan>) {
        let rest = plan.ids.split_off(plan.ids.len().min(AGENTS));
        let ids = std::mem::replace(&mut plan.ids, rest);
        let is_first = plan.read_at.is_none();
        let newest = plan.changed.until;
        let since = plan.changed.undone_since.or(self.state.block.map(|block| block.number));
        let since = since.unwrap_or(u64::MAX).min(newest.number);
        let since = self.state.pass.last().map_or(since, |slice| slice.number.max(since));
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
            if plan.changed.without_events {
                // The state of the pass's block may be gone.
                self.state.pass_misses = PASS_MISSES;
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
        let Changed {
            until,
            behind,
            version,
            is_verified,
            proves_words,
            newest,
            contradicted,
            was_untrue,
            is_incomplete,
            without_events,
            undone_since,
            undone_seconds,
            from,
            ids,
            events,
            seen,
            moments,
            last_event,
            ..
        } = changed;
        let RegistryHead { header, total, grace_seconds } = read_at;
        let checkpoint = Checkpoint::from(header);
        let asks_again = self.state.block.is_none_or(|block| from <= self.state.first_unsettled(block));
        let unannounced: Vec<u64> =
            entries.iter().map(|(id, _)| *id).filter(|id| *id > last && !expected.contains(id)).collect();
        if unannounced.len() >= AGENTS {
            return self.refill(store, true);
        }
        let version_of_shards = self.shard_version(checkpoint);
        let compares = matches!(self.state.phase, Phase::Comparing { .. });
        let undone = undone_since.map(|number| (number, undone_seconds));
        let listed =
            ListedEvents::of(&events, ids.clone(), checkpoint.number, undone).of_comparison(compares);
        let before = match self.state.pass.first() {
            Some(slice) => (slice.number, self.state.pass_began),
            None => (self.state.block.map_or(until.number, |block| block.number), self.state.read_at),
        };
        let before = undone_since.map_or(before, |since| (since.min(before.0), before.1));
        if from > until.number && !without_events {
            self.state.listed.skip(before.0, checkpoint.number);
        } else if !without_events {
            self.state.listed.list(from, checkpoint.number);
        }
        let comparison = Comparison::of(&self.state, checkpoint.number);
        let mut changes = AgentWriter::new(store, version_of_shards, comparison, moments.clone(), listed);
        let changed = changes.put(&mut entries, false)?;
        let swept = changes.put(&mut swept, false)?;
        changes.end_at(total)?;
        let noted = changes.finish()?;
        self.change_log(store, checkpoint).write(noted)?;
        if let Some(undone) = undone {
            let same = entries.iter().map(|(id, _)| *id).filter(|id| !changed.contains(id));
            let moved: Vec<_> = same.filter_map(|id| Some((id, *moments.get(&id)?))).collect();
            self.change_log(store, checkpoint).move_undone(undone, &moved)?;
        }
        if undone_since.is_none() && !without_events {
            self.state.unannounced += unannounced.len() as u64;
        }
        if compares {
            let told = |id: &&u64| !ids.contains(id) && !unannounced.contains(id);
            self.end_comparison(changed.iter().filter(told).count() as u64);
        }
        let is_surprise = |id: &u64| !expected.contains(id) && *id <= last;
        let surprises: Vec<u64> = swept.into_iter().filter(is_surprise).collect();
        let state = &mut self.state;
        if undone_since.is_none() {
            state.note_lateness(&seen, (newest.number, newest.timestamp));
        }
        state.unannounced += surprises.len() as u64;
        (state.total, state.grace_seconds) = (total, grace_seconds);
        if let Some((_, last)) = sweep {
            state.swept_at = self.now_millis;
            state.sweeps += u64::from(last >= total);
            state.sweep = if last >= total { 1 } else { last + 1 };
        }
        let canary = last_event.filter(|number| *number <= checkpoint.number).or(state.canary);
        state.canary = canary.filter(|number| undone_since.is_none_or(|since| *number <= since));
        // Blocks of a fill's slices are kept only during that fill.
        let since = match state.phase {
            Phase::CatchingUp => None,
            _ => Some(undone_since.unwrap_or(checkpoint.number)),
        };
        if let Some(since) = undone_since {
            state.recent.retain(|recent| recent.number <= since);
        }
        if state.recent.is_empty() {
            // Events since the first slice, or since the last canonical block, may still be late.
            let begun = match (state.pass.first(), undone_since) {
                (Some(slice), _) => Some(*slice),
                (None, Some(since)) => checkpoint::checkpoints(store, since)?.first().copied(),
                (None, None) => None,
            };
            state.recent.extend(begun);
        }
        checkpoint::keep_checkpoint(store, checkpoint, since)?;
        let version = version.filter(|_| header.hash == until.hash);
        if let (true, Some(code)) = (proves_words, &mut state.code) {
            code.proves_words = true;
        }
        let read_at = match without_events {
            // The block was the newest one then.
            true => state.pass_began,
            false => self.now_millis.saturating_sub(behind.saturating_mul(1_000)),
        };
        if !state.pass.is_empty() {
            // All agents were read at this block.
            state.coverage.begin(state.pass_began);
        }
        if !without_events {
            state.coverage.advance(before, (&checkpoint, read_at), is_verified, Some(from));
        }
        self.complete(store, (checkpoint, version), read_at)?;
        if asks_again {
            self.state.asked_again_at = checkpoint.seconds;
        }
        // The agents may have been read at an older block than the events.
        let unsettled = self.state.first_unsettled(checkpoint)..=checkpoint.number;
        self.state.seen.retain(|(number, _)| *number < from);
        self.state.seen.extend(seen);
        self.state.seen.retain(|(number, _)| unsettled.contains(number));
        self.state.awaited.clear();
        let asked_from = self.state.asked.map_or(from, |(first, _)| first.min(from));
        let asked_from = asked_from.max(*unsettled.start());
        self.state.asked = (!without_events).then_some((asked_from, checkpoint.number));
        self.state.lagging_at = (behind > 0).then_some(self.now_millis);
        self.state.owes_comparison |= is_incomplete;
        if !surprises.is_empty() {
            self.state.contradicted = surprises.first().copied();
            return self.compare(store, true);
        }
        if let Some(id) = contradicted {
            return self.doubt(store, id, (changed.contains(&id), was_untrue));
        }
        Ok(self.state.save(store)?)
    }
}
