//! Slices of all agents: the fill, which stores them, and the comparison with the rows, which only notes the
//! agents that differ. Answers go on meanwhile: the rows remain those of their block.
//!
//! All slices are read at the first one's block, as long as the node has its state. The first fill writes no SQL
//! index and no shard: these are made of all agents at its end, one index in each piece of work.
//!
//! ```text
//!   a slice of agents --> stored, or compared --+--> the only one: stored, complete at its block
//!                                               +--> one of several: the next work takes the next slice
//!                                               +--> the last one: a refresh reads again what changed
//!                                                    meanwhile, and the agents that differ
//! ```

use std::collections::BTreeMap;

use super::{Stage, Work};
use crate::{
    chain::RunError,
    index::{
        IndexError,
        changes::Comparison,
        checkpoint::{self, Checkpoint},
        read_agents::{Agents, ReadSlice},
        seen_events::ListedEvents,
        shards,
        state::Phase,
        store::{Store, missing_indexes},
        tables::{AgentWriter, differing},
        takeover,
    },
};

/// Differing agents beyond which a new fill is quicker.
const MOST_DIFFERING: usize = 20_000;
/// Agents converted and written at once, which bounds memory below that of a whole slice.
const AT_ONCE: usize = 1_250;

impl Work {
    pub(super) fn read_slice(&mut self, first: u64) {
        let query = ReadSlice { registry: self.config.registry, first, most: self.config.slice };
        let run = self.run(query, self.config.limits);
        let run = match self.state.pass_header() {
            Some(header) => run.at(header),
            None => run,
        };
        self.stage = Stage::Slice(Box::new(run));
    }

    pub(super) fn take_slice(&mut self, store: &impl Store, mut read: Agents) -> Result<(), IndexError> {
        let phase = self.state.phase;
        let Some(next) = phase.next_slice() else { return Ok(()) };
        let compares = matches!(phase, Phase::Comparing { .. });
        let checkpoint = Checkpoint::from(read.head.header);
        let is_older =
            |block: Checkpoint| checkpoint.number < block.number && checkpoint.seconds <= block.seconds;
        if self.state.pass.last().is_some_and(|last| last.number > checkpoint.number)
            || (compares && self.state.block.is_some_and(is_older))
        {
            // The node lags behind the one that answered before.
            if self.leaves_endpoint() {
                self.read_slice(next);
                return Ok(());
            }
            return Err(RunError::BlockUnavailable.into());
        }
        if self.state.pass_header().is_some_and(|pinned| pinned.hash != checkpoint.hash) {
            // Another endpoint was asked, or the block's state is gone.
            self.state.pass_misses += 1;
            self.state.save(store)?;
            return Err(RunError::BlockUnavailable.into());
        }
        let last = next.saturating_add(read.entries.len() as u64).saturating_sub(1);
        let is_last = last >= read.head.total;
        let is_whole = is_last && next == 1;
        if self.state.pass.is_empty() {
            self.state.pass_began = self.now_millis;
        }
        if !compares || is_whole {
            self.store_slice(store, &mut read, checkpoint, (is_last, is_whole))?;
        } else {
            for entries in read.entries.chunks(AT_ONCE) {
                self.state.differing.extend(differing(store, entries)?);
            }
        }
        if is_whole {
            checkpoint::keep_checkpoint(store, checkpoint, compares.then_some(checkpoint.number))?;
            self.state.coverage.begin(self.now_millis);
            self.complete(store, (checkpoint, None), self.now_millis)?;
            return Ok(self.state.save(store)?);
        }
        let state = &mut self.state;
        state.pass.push(checkpoint);
        state.pass.dedup();
        state.pass_misses = 0;
        state.phase = match (compares, is_last) {
            (false, false) => Phase::Filling { next: last + 1 },
            (true, false) => Phase::Comparing { next: last + 1 },
            (true, true) => Phase::Comparing { next: Phase::COMPARED },
            (false, true) => {
                state.block = state.pass.first().copied();
                Phase::CatchingUp
            }
        };
        if state.differing.len() > MOST_DIFFERING {
            return self.refill(store, true);
        }
        state.save(store)?;
        if is_last && !self.is_without_indexes(store)? {
            self.find(store)?;
        }
        Ok(())
    }

    /// Whether the first fill has stored all agents, and their SQL indexes are not all made.
    pub(super) fn is_without_indexes(&self, store: &impl Store) -> Result<bool, IndexError> {
        Ok(self.state.phase == Phase::CatchingUp && !missing_indexes(store)?.is_empty())
    }

    /// Makes so many of the SQL indexes that are missing, and with the last one the shards as of this block.
    pub(super) fn make_indexes(
        &mut self,
        store: &impl Store,
        most: usize,
        at: Checkpoint,
    ) -> Result<(), IndexError> {
        let missing = missing_indexes(store)?;
        for statement in missing.iter().take(most) {
            store.execute(statement, &[])?;
        }
        if (1..=most).contains(&missing.len()) {
            shards::make(store, self.shard_version(at))?;
            self.state.save(store)?;
        }
        Ok(())
    }

    fn store_slice(
        &mut self,
        store: &impl Store,
        read: &mut Agents,
        checkpoint: Checkpoint,
        (is_last, is_whole): (bool, bool),
    ) -> Result<(), IndexError> {
        let version = self.shard_version(checkpoint);
        let announced = self.announced.clone();
        let is_fill = matches!(self.state.phase, Phase::Filling { .. });
        if is_fill && self.state.pass.is_empty() {
            self.state.listed.begin(checkpoint.number);
        }
        let comparison = Comparison::of(&self.state, checkpoint.number);
        let events = || match is_fill {
            true => ListedEvents::of_fill(),
            false => ListedEvents::later_of(announced.clone()),
        };
        if is_whole {
            self.make_indexes(store, usize::MAX, checkpoint)?;
        }
        let has_shards = missing_indexes(store)?.is_empty();
        let changes = || {
            let writer = AgentWriter::new(store, version, comparison, BTreeMap::new(), events());
            if has_shards { writer } else { writer.without_shards() }
        };
        let mut noted = Vec::new();
        let mut changed = 0;
        for entries in read.entries.chunks_mut(AT_ONCE) {
            let mut changes = changes();
            let ids = changes.put(entries, !is_whole)?;
            changed += ids.iter().filter(|id| !self.announced.contains(id)).count() as u64;
            noted.extend(changes.finish()?);
        }
        if is_last {
            let mut changes = changes();
            changes.end_at(read.head.total)?;
            noted.extend(changes.finish()?);
            takeover::end(store)?;
        }
        self.change_log(store, checkpoint).write(noted)?;
        if matches!(self.state.phase, Phase::Comparing { .. }) {
            self.end_comparison(changed);
        }
        (self.state.total, self.state.grace_seconds) = (read.head.total, read.head.grace_seconds);
        Ok(())
    }

    /// Counts a comparison that found so many changes without events.
    pub(super) fn end_comparison(&mut self, changed: u64) {
        let state = &mut self.state;
        state.comparisons += 1;
        if state.is_doubted {
            state.wait_longer(self.now_millis);
            state.unannounced += changed;
            let is_fruitless = changed == 0 && state.contradicted.is_none();
            state.fruitless = if is_fruitless { state.fruitless.saturating_add(1) } else { 0 };
        }
    }
}
