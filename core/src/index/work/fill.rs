//! Slices of all agents: the fill, which stores them, and the comparison with the rows, which only notes the
//! agents that differ. Answers go on meanwhile: the rows remain those of their block.
//!
//! All slices are read at the first one's block, as long as the node has its state. The first fill writes no
//! SQL index, no posting list and no shard: these are made of all agents at its end, one in each piece of
//! work.
//!
//! ```text
//!   a slice of agents --> stored, or compared --+--> the only one: stored, complete at its block
//!                                               +--> one of several: the next work takes the next slice
//!                                               +--> the last one: a refresh reads again what changed
//!                                                    meanwhile, and the agents that differ
//! ```

use std::collections::BTreeMap;

use super::{Work, WorkStage};
use crate::{
    chain::RunError,
    index::{
        IndexError,
        changes::Comparison,
        checkpoint::{self, Checkpoint},
        coverage::Coverage,
        derived::DerivationSteps,
        phase::{BlockRows, ComparisonCause, Pass, Phase},
        read_agents::{AgentsAtBlock, ReadSlice},
        seen_events::ListedEvents,
        shards,
        store::{Store, StoreError},
        tables::{AgentWriter, differing},
        takeover,
    },
};

/// Position of a slice in its pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SliceKind {
    /// One of several, and not the last one.
    OneOf,
    /// The last one of several.
    Last,
    /// The only one.
    Whole,
}

/// Differing agents beyond which a new fill is quicker.
const MOST_DIFFERING: usize = 20_000;
/// Agents converted and written at once, which bounds memory below that of a whole slice.
const AT_ONCE: usize = 1_250;

impl Work {
    /// Reads the next slice of the pass over all agents.
    pub(super) fn read_slice(&mut self, pass: &Pass) {
        let first = pass.next.unwrap_or(1);
        let query = ReadSlice { registry: self.config.registry, first, most: self.config.slice };
        let run = self.run(query, self.config.limits);
        let run = match pass.header() {
            Some(header) => run.at(header),
            None => run,
        };
        self.stage = WorkStage::Slice(Box::new(run));
    }

    pub(super) fn take_slice(
        &mut self,
        store: &impl Store,
        mut read: AgentsAtBlock,
    ) -> Result<(), IndexError> {
        let Some(mut pass) = self.state.phase.pass().cloned() else { return Ok(()) };
        let Some(next) = pass.next else { return Ok(()) };
        let checkpoint = Checkpoint::from(read.head.header);
        let is_older =
            |block: &Checkpoint| checkpoint.number < block.number && checkpoint.seconds <= block.seconds;
        if pass.blocks.last().is_some_and(|last| last.number > checkpoint.number)
            || self.state.phase.rows().is_some_and(|rows| is_older(&rows.block))
        {
            // The node lags behind the one that answered before.
            if self.leaves_endpoint() {
                self.read_slice(&pass);
                return Ok(());
            }
            return Err(RunError::BlockUnavailable.into());
        }
        if pass.header().is_some_and(|pinned| pinned.hash != checkpoint.hash) {
            // Another endpoint was asked, or the block's state is gone.
            if let Some(pass) = self.state.phase.pass_mut() {
                pass.misses += 1;
            }
            self.state.save(store)?;
            return Err(RunError::BlockUnavailable.into());
        }
        let last = next.saturating_add(read.entries.len() as u64).saturating_sub(1);
        let is_last = last >= read.head.total;
        if pass.blocks.is_empty() {
            pass.began = self.now_millis;
        }
        let compares = self.state.phase.cause().is_some();
        if is_last && next == 1 {
            if !self.store_slice(store, &mut read, checkpoint, SliceKind::Whole)? {
                return self.read_again(store, pass);
            }
            checkpoint::keep_checkpoint(store, checkpoint, compares.then_some(checkpoint.number))?;
            let recent = self.state.phase.rows().map(|rows| rows.recent.clone()).unwrap_or_default();
            let rows = BlockRows::new(checkpoint, Coverage::begun(self.now_millis), recent);
            self.complete(store, rows, self.now_millis)?;
            return Ok(self.state.save(store)?);
        }
        if compares {
            for entries in read.entries.chunks(AT_ONCE) {
                pass.differing.extend(differing(store, entries)?);
            }
            if pass.differing.len() > MOST_DIFFERING {
                return self.refill(store, true);
            }
        } else {
            let slice = if is_last { SliceKind::Last } else { SliceKind::OneOf };
            if !self.store_slice(store, &mut read, checkpoint, slice)? {
                return self.read_again(store, pass);
            }
        }
        pass.blocks.push(checkpoint);
        pass.blocks.dedup();
        pass.misses = 0;
        pass.next = (!is_last).then_some(last + 1);
        self.state.phase = match std::mem::take(&mut self.state.phase) {
            Phase::Comparing { rows, cause, .. } => Phase::Comparing { pass, rows, cause },
            _ if is_last => Phase::CatchingUp { pass, late: None },
            _ => Phase::Filling { pass, before: None },
        };
        self.state.save(store)?;
        if is_last && !self.lacks_derived(store)? {
            self.find(store)?;
        }
        Ok(())
    }

    /// Leaves the last slice to the next piece of work: agents beyond the registry's last one are left.
    fn read_again(&mut self, store: &impl Store, pass: Pass) -> Result<(), IndexError> {
        self.state.phase = Phase::Filling { pass, before: None };
        Ok(self.state.save(store)?)
    }

    /// Returns whether the first fill has stored all agents, but not made everything derived from them.
    pub(super) fn lacks_derived(&self, store: &impl Store) -> Result<bool, IndexError> {
        Ok(matches!(self.state.phase, Phase::CatchingUp { .. }) && self.derived(store)?.count() > 0)
    }

    pub(super) fn derived(&self, store: &impl Store) -> Result<DerivationSteps, StoreError> {
        DerivationSteps::left(store, self.config.part.max(1))
    }

    /// Takes at most `most` of the [`DerivationSteps`]; the last one also makes the shards, as of this block.
    pub(super) fn make_derived(
        &mut self,
        store: &impl Store,
        most: u64,
        at: Checkpoint,
    ) -> Result<(), IndexError> {
        let steps = self.derived(store)?;
        steps.take(store, most, self.config.few_agents)?;
        if (1..=most).contains(&steps.count()) {
            shards::make(store, self.shard_version(at), self.config.files)?;
            self.state.save(store)?;
        }
        Ok(())
    }

    /// Stores a slice. Returns false if a fill left agents beyond the registry's last one, too many for one
    /// piece of work.
    fn store_slice(
        &mut self,
        store: &impl Store,
        read: &mut AgentsAtBlock,
        checkpoint: Checkpoint,
        slice: SliceKind,
    ) -> Result<bool, IndexError> {
        let version = self.shard_version(checkpoint);
        let announced = self.announced.clone();
        let is_fill = self.state.phase.cause().is_none();
        if is_fill && self.state.phase.pass().is_some_and(|pass| pass.blocks.is_empty()) {
            self.state.listed.begin(checkpoint.number);
        }
        let comparison = Comparison::of(&self.state, checkpoint.number);
        let events = || match is_fill {
            true => ListedEvents::of_fill(),
            false => ListedEvents::later_of(announced.clone()),
        };
        if slice == SliceKind::Whole {
            self.make_derived(store, u64::MAX, checkpoint)?;
        }
        let (few, sizes) = (self.config.few_agents, self.config.files);
        let steps = self.derived(store)?;
        steps.begin_again(store)?;
        let has_derived = steps.count() == 0;
        let changes = || {
            let writer = AgentWriter::new(store, version, comparison, BTreeMap::new(), events(), few, sizes);
            if has_derived { writer } else { writer.without_derived() }
        };
        let mut noted = Vec::new();
        let mut changed = 0;
        for entries in read.entries.chunks_mut(AT_ONCE) {
            let mut changes = changes();
            let ids = changes.put(entries, slice != SliceKind::Whole)?;
            changed += ids.iter().filter(|id| !self.announced.contains(id)).count() as u64;
            noted.extend(changes.finish()?);
        }
        let mut is_ended = true;
        if slice != SliceKind::OneOf {
            let mut changes = changes();
            is_ended = changes.end_at(read.head.total)?;
            // The compared rows answer meanwhile, and have to stay of one block.
            while !is_ended && !is_fill {
                is_ended = changes.end_at(read.head.total)?;
            }
            noted.extend(changes.finish()?);
            match slice == SliceKind::Whole && is_fill {
                true => shards::make(store, version, self.config.files)?,
                false => shards::undo(store, version)?,
            }
            takeover::end(store)?;
        }
        self.change_log(store, checkpoint).write(noted)?;
        self.end_comparison(changed);
        (self.state.total, self.state.grace_seconds) = (read.head.total, read.head.grace_seconds);
        Ok(is_ended)
    }

    /// Counts a comparison that ends, if there is one, and its changes without events.
    pub(super) fn end_comparison(&mut self, changed: u64) {
        let Some(cause) = self.state.phase.cause() else { return };
        self.state.counters.comparisons += 1;
        if cause != ComparisonCause::NoEvents {
            self.state.counters.unannounced += changed;
            self.state.compared.end(self.now_millis, changed == 0 && cause == ComparisonCause::Untold);
        }
    }
}
