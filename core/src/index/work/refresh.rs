//! The refresh: one query finds what changed, SQL plans what to read, another query reads it.
//!
//! ```text
//!   find what changed --+--> nothing: done
//!                       +--> agents --> plan --> read them, and the sweep's --> store --> done
//!                       +--> no events to go by, or no known block is canonical --> the fill
//! ```
//!
//! A usual refresh takes three round trips.

use std::collections::{BTreeMap, BTreeSet};

use super::{Stage, Work};
use crate::{
    chain::{Header, Limits, Run, RunError, logs::Moment},
    index::{
        IndexError,
        find_changes::{Changed, FindChanges, FoundChanges, LOG_RANGE_REFRESHES, RegistryHead},
        indexed_agent::IndexedAgent,
        read_agents::{Agents, ReadAgents},
        state::{self, Basis, Checkpoint, Phase},
        store::{Columns, Store, one_number, query},
        tables::AgentWriter,
    },
};

/// Agents by id per run.
const AGENTS: usize = 2_000;
/// A refill is quicker beyond this many changes, if they also exceed a share of 1 / [`LARGE_SHARE`] of the
/// registry.
const MANY_CHANGES: usize = 2_000;
const LARGE_SHARE: u64 = 4;
/// Restarts of a refresh because of reorgs.
const RESTARTS: u32 = 3;
/// Retries in search of changes, in addition to one failover per further endpoint.
const RETRIES: u32 = 5;

/// The agents to read again.
#[derive(Clone, Debug)]
pub(super) struct RefreshPlan {
    newest: Header,
    /// The newest canonical checkpoint, if a reorg replaced the index's block.
    undone_since: Option<u64>,
    /// Ids not read yet.
    ids: Vec<u64>,
    /// Agents with an event, or read for another reason than the sweep.
    expected: BTreeSet<u64>,
    sweep: Option<(u64, u64)>,
    /// New agents without an event of their registration.
    unannounced: u64,
    /// The highest block with an event.
    last_event: Option<u64>,
    moments: BTreeMap<u64, Moment>,
    /// The agents read so far.
    entries: Vec<(u64, IndexedAgent)>,
    swept: Vec<(u64, IndexedAgent)>,
    read_at: Option<RegistryHead>,
}

impl Work {
    /// Starts the search for what changed.
    pub(super) fn find(&mut self) {
        let Some(block) = self.state.block else { return self.read_slice(1) };
        let query = FindChanges {
            registry: self.config.registry,
            block,
            pass: match self.state.phase {
                Phase::CatchingUp => self.state.pass.clone(),
                _ => Vec::new(),
            },
            older: None,
            known_event: self.state.canary,
            log_range: self.state.log_range,
        };
        let limits = Limits { retries: RETRIES, ..self.config.limits };
        self.stage = Stage::Find(Box::new(self.run(query, limits)));
    }

    /// Starts over after a reorg.
    fn restart(&mut self) -> Result<(), IndexError> {
        self.restarts += 1;
        if self.restarts > RESTARTS {
            return Err(RunError::BlockUnavailable.into());
        }
        self.find();
        Ok(())
    }

    pub(super) fn take_found(
        &mut self,
        store: &impl Store,
        run: Box<Run<FindChanges>>,
        found: FoundChanges,
    ) -> Result<(), IndexError> {
        let block = self.state.block;
        match found {
            FoundChanges::Nothing => {
                self.state.read_at = self.now_millis;
                if let Some(block) = block {
                    self.change_log(store, block).move_on()?;
                }
                Ok(self.state.save(store)?)
            }
            FoundChanges::NotCanonical => {
                let below = block.map_or(0, |block| block.number.saturating_sub(1));
                let older = Some(state::checkpoints(store, below)?);
                let run = run.go_on(|query| FindChanges { older, ..query });
                self.stage = Stage::Find(Box::new(run));
                Ok(())
            }
            FoundChanges::NoEvents => self.go_without_events(store),
            FoundChanges::AnotherChain => self.refill(store, false),
            FoundChanges::Changed(changed) => self.plan(store, *changed),
        }
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
        let Changed { head, undone_since, ids: mut expected, moments, last_event, log_range } = changed;
        self.note_log_range(log_range);
        let total = head.total;
        let known = one_number(store, "SELECT max(id) FROM agents", &[])?.unwrap_or(0);
        let mut unannounced = 0;
        for id in known.saturating_add(1)..=total {
            // A new agent without an event shows that events are unreliable.
            unannounced += u64::from(expected.insert(id) && undone_since.is_none());
        }
        if let Some(since) = undone_since {
            let statement = "SELECT id FROM agents WHERE changed_at > ?1";
            expected.extend(query(store, statement, &[since.into()], Columns::number)?);
        }
        expected.retain(|id| (1..=total).contains(id));
        if expected.len() > MANY_CHANGES && expected.len() as u64 > total / LARGE_SHARE {
            return self.refill(store, true);
        }
        let first = if self.state.sweep > total { 1 } else { self.state.sweep };
        let sweep = (total > 0 && self.config.sweep > 0)
            .then(|| (first, total.min(first.saturating_add(self.config.sweep).saturating_sub(1))));
        let swept = |id: &u64| sweep.is_some_and(|(first, last)| (first..=last).contains(id));
        let ids = expected.iter().copied().filter(|id| !swept(id)).collect();
        self.read_agents(Box::new(RefreshPlan {
            newest: head.header,
            undone_since,
            ids,
            expected,
            sweep,
            unannounced,
            last_event,
            moments,
            entries: Vec::new(),
            swept: Vec::new(),
            read_at: None,
        }));
        Ok(())
    }

    /// Reads the next planned agents, and first the sweep's.
    fn read_agents(&mut self, mut plan: Box<RefreshPlan>) {
        let rest = plan.ids.split_off(plan.ids.len().min(AGENTS));
        let ids = std::mem::replace(&mut plan.ids, rest);
        let sweep = if plan.read_at.is_none() { plan.sweep } else { None };
        let since = plan.undone_since.or(self.state.block.map(|block| block.number)).unwrap_or(u64::MAX);
        let since = self.state.pass.last().map_or(since, |slice| slice.number.max(since));
        let query = ReadAgents { registry: self.config.registry, ids, sweep, newest: plan.newest, since };
        let run = self.run(query, self.config.limits).at(plan.newest);
        self.stage = Stage::Agents(Box::new(run), plan);
    }

    pub(super) fn take_agents(
        &mut self,
        store: &impl Store,
        mut plan: Box<RefreshPlan>,
        read: Option<Agents>,
    ) -> Result<(), IndexError> {
        let Some(mut read) = read else { return self.restart() };
        plan.entries.append(&mut read.entries);
        plan.swept.append(&mut read.swept);
        if plan.read_at.get_or_insert(read.head).header.hash != read.head.header.hash {
            return self.restart();
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
        let RefreshPlan {
            undone_since,
            expected,
            sweep,
            mut unannounced,
            last_event,
            moments,
            entries,
            swept,
            ..
        } = plan;
        let RegistryHead { header, total, grace_seconds } = read_at;
        let checkpoint = Checkpoint::from(header);
        let mut changes = AgentWriter::new(store, checkpoint.number, self.comparison(), moments);
        changes.put(&entries, false)?;
        let changed = changes.put(&swept, false)?;
        unannounced += changed.iter().filter(|id| !expected.contains(id)).count() as u64;
        changes.end_at(total)?;
        let noted = changes.finish()?;
        self.change_log(store, checkpoint).write(noted)?;
        let state = &mut self.state;
        (state.total, state.grace_seconds) = (total, grace_seconds);
        if let Some((_, last)) = sweep {
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
        state::keep_checkpoint(store, checkpoint, since)?;
        self.complete(store, checkpoint)?;
        if unannounced > 0 {
            self.state.unannounced += unannounced;
            self.state.basis = Basis::Sweep;
            return self.refill(store, false);
        }
        self.state.save(store)?;
        Ok(())
    }
}
