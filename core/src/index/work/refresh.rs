//! The refresh: what changed is found out by one query, planned in SQL, and read by another.
//!
//! ```text
//!   find what changed --+--> nothing: done
//!                       +--> agents --> plan --> read them, and the sweep's --> store --> done
//!                       +--> no events to go by, or no known block is canonical --> the fill
//! ```
//!
//! It takes three round trips where nothing is unusual.

use std::collections::{BTreeMap, BTreeSet};

use super::{Stage, Work};
use crate::{
    chain::{Header, Limits, Run, RunError, logs::Moment},
    index::{
        IndexError,
        entry::Entry,
        find_changes::{Changed, FindChanges, Found, Head, LOG_RANGE_REFRESHES},
        read_agents::{Agents, ReadAgents},
        state::{self, Basis, Checkpoint, Phase},
        store::{Columns, Store, one_number},
        tables::Changes,
    },
};

/// Agents by id in one run.
const AGENTS: usize = 2_000;
/// Changes beyond which reading every agent is quicker, and the share of the registry from which it is.
const MANY_CHANGES: usize = 2_000;
const LARGE_SHARE: u64 = 4;
/// Times a refresh begins anew as the chain is reorganised under it.
const RESTARTS: u32 = 3;
/// Batches in search of what changed that may bring nothing, beyond one for each endpoint but one.
const RETRIES: u32 = 5;

/// The agents to read again.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    newest: Header,
    /// The newest known block that is still canonical; `None` where the index's own is.
    undone_since: Option<u64>,
    /// Not read yet.
    ids: Vec<u64>,
    /// All that had an event, or are read for another reason than the sweep.
    expected: BTreeSet<u64>,
    sweep: Option<(u64, u64)>,
    /// New agents whose registration had no event.
    unannounced: u64,
    /// The highest block that had an event.
    last_event: Option<u64>,
    moments: BTreeMap<u64, Moment>,
    /// What was read, and where.
    entries: Vec<(u64, Entry)>,
    swept: Vec<(u64, Entry)>,
    read_at: Option<Head>,
}

impl Work {
    /// Begins to find out what changed.
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

    /// Begins a refresh anew: the chain has changed under it.
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
        found: Found,
    ) -> Result<(), IndexError> {
        let block = self.state.block;
        match found {
            Found::Nothing => {
                self.state.read_at = self.now_millis;
                if let Some(block) = block {
                    self.log(store, block).move_on()?;
                }
                Ok(self.state.save(store)?)
            }
            Found::NotCanonical => {
                let below = block.map_or(0, |block| block.number.saturating_sub(1));
                let older = Some(state::checkpoints(store, below)?);
                let run = run.go_on(|query| FindChanges { older, ..query });
                self.stage = Stage::Find(Box::new(run));
                Ok(())
            }
            Found::NoEvents => self.go_without_events(store),
            Found::AnotherChain => self.refill(store, false),
            Found::Changed(changed) => self.plan(store, *changed),
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
            // Without its event an agent is new all the same, but no event can be relied on any more.
            unannounced += u64::from(expected.insert(id) && undone_since.is_none());
        }
        if let Some(since) = undone_since {
            for row in store.execute("SELECT id FROM agents WHERE changed_at > ?1", &[since.into()])? {
                expected.insert(Columns::of(row).number()?);
            }
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
        self.read_agents(Box::new(Plan {
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

    /// Reads the next of those planned, with the sweep's.
    fn read_agents(&mut self, mut plan: Box<Plan>) {
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
        mut plan: Box<Plan>,
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

    /// Stores what was read: from now on all rows are of that block.
    fn apply(&mut self, store: &impl Store, plan: Plan, read_at: Head) -> Result<(), IndexError> {
        let Plan {
            undone_since, expected, sweep, mut unannounced, last_event, moments, entries, swept, ..
        } = plan;
        let Head { header, total, grace_seconds } = read_at;
        let checkpoint = Checkpoint::from(header);
        let mut changes = Changes::new(store, checkpoint.number, self.comparison(), moments);
        changes.put(&entries, false)?;
        let changed = changes.put(&swept, false)?;
        unannounced += changed.iter().filter(|id| !expected.contains(id)).count() as u64;
        changes.end_at(total)?;
        let noted = changes.finish()?;
        self.log(store, checkpoint).write(noted)?;
        let state = &mut self.state;
        (state.total, state.grace_seconds) = (total, grace_seconds);
        if let Some((_, last)) = sweep {
            state.sweeps += u64::from(last >= total);
            state.sweep = if last >= total { 1 } else { last + 1 };
        }
        let canary = last_event.filter(|number| *number <= checkpoint.number).or(state.canary);
        state.canary = canary.filter(|number| undone_since.is_none_or(|since| *number <= since));
        // The blocks of a pass are known no longer than it takes.
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
