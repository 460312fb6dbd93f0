//! The fill: every agent, slice by slice.
//!
//! ```text
//!   a slice of agents --> stored --+--> the only one: complete, at its block
//!                                  +--> one of several: the next work goes on with the next slice
//!                                  +--> the last one of several: what changed between their blocks is read again, by a refresh
//! ```

use std::collections::BTreeMap;

use super::{Stage, Work};
use crate::{
    chain::RunError,
    index::{
        IndexError,
        read_agents::{Agents, ReadSlice},
        state::{self, Basis, Checkpoint, Phase},
        store::Store,
        tables::Changes,
    },
};

/// Agents whose rows are made and written at once: those of a whole slice would take more memory than all else.
const AT_ONCE: usize = 1_250;

impl Work {
    pub(super) fn read_slice(&mut self, first: u64) {
        let query = ReadSlice { registry: self.config.registry, first, most: self.config.slice };
        self.stage = Stage::Slice(Box::new(self.run(query, self.config.limits)));
    }

    pub(super) fn take_slice(&mut self, store: &impl Store, read: Agents) -> Result<(), IndexError> {
        let Phase::Filling { next } = self.state.phase else { return Ok(()) };
        let checkpoint = Checkpoint::from(read.head.header);
        if self.state.pass.last().is_some_and(|last| last.number > checkpoint.number) {
            // A machine that lags behind the one that answered before.
            return Err(RunError::BlockUnavailable.into());
        }
        let last = next.saturating_add(read.entries.len() as u64).saturating_sub(1);
        let is_last = last >= read.head.total;
        let is_whole = is_last && next == 1;
        let changes = || Changes::new(store, checkpoint.number, self.comparison(), BTreeMap::new());
        let mut noted = Vec::new();
        for entries in read.entries.chunks(AT_ONCE) {
            let mut changes = changes();
            changes.put(entries, !is_whole)?;
            noted.extend(changes.finish()?);
        }
        if is_last {
            let mut changes = changes();
            changes.end_at(read.head.total)?;
            noted.extend(changes.finish()?);
        }
        self.log(store, checkpoint).write(noted)?;
        let state = &mut self.state;
        (state.total, state.grace_seconds) = (read.head.total, read.head.grace_seconds);
        if is_whole {
            state::keep_checkpoint(store, checkpoint, None)?;
            self.complete(store, checkpoint)?;
        } else {
            state.pass.push(checkpoint);
            state.pass.dedup();
            let begun = state.pass.first().copied();
            match (is_last, state.unannounced) {
                (false, _) => state.phase = Phase::Filling { next: last + 1 },
                // Where only the node was to blame, it gets another chance.
                (true, 0) => {
                    (state.phase, state.basis, state.block) = (Phase::CatchingUp, Basis::Events, begun)
                }
                (true, _) => self.complete(store, begun.unwrap_or(checkpoint))?,
            }
        }
        self.state.save(store)?;
        if self.state.phase == Phase::CatchingUp {
            self.find();
        }
        Ok(())
    }
}
