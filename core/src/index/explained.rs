//! The check of events by storage roots at older blocks, if a node has them: between two blocks with events
//! the root has to stay the same.

use std::collections::BTreeSet;

use alloy_primitives::{Address, B256};

use super::{checkpoint::Checkpoint, found::Completeness, phase::RegistryVersion};
use crate::chain::{Halt, Header, View, logs::Announced};

/// Ranges of blocks without events that are checked by storage roots; of more, the first and the last one.
const MOST_GAPS: usize = 32;

/// The newest block up to which events tell all changes, and its storage root.
pub(super) struct ExplainedHead {
    pub(super) until: Header,
    pub(super) storage_root: Option<B256>,
    pub(super) completeness: Completeness,
}

pub(super) struct StorageRoots<'a> {
    pub(super) registry: Address,
    /// The height of the rows' or the slices' block, or of the last canonical one after a reorg.
    pub(super) left: u64,
    /// The root that was seen there, if any.
    pub(super) seen: Option<B256>,
    /// The newest block, and its root.
    pub(super) newest: &'a Header,
    pub(super) newest_root: B256,
    /// Height up to which changes that no event tells are in the rows only in part.
    pub(super) whole_after: u64,
}

impl StorageRoots<'_> {
    /// Returns the newest block up to which the events tell all changes; `None` if it is not later than the
    /// rows'. If a node does not keep the state of a block, nothing is known against its events.
    pub(super) fn explained(&self, view: &View, events: &[Announced]) -> Result<Option<ExplainedHead>, Halt> {
        let root = |number: u64| match self.seen {
            _ if number == self.newest.number => Ok(Some(self.newest_root)),
            Some(seen) if number == self.left => Ok(Some(seen)),
            _ => view.storage_root_at(self.registry, number),
        };
        let blocks: BTreeSet<u64> = events.iter().map(|event| event.number).collect();
        let mut gaps = gaps(self.left, blocks.range(self.left + 1..).copied(), self.newest.number);
        let mut completeness = Completeness::Roots;
        if gaps.len() > MOST_GAPS {
            completeness = Completeness::Unproved;
            gaps.drain(1..gaps.len() - 1);
        }
        let roots: Vec<_> = gaps.iter().map(|(from, to)| (*from, root(*from), root(*to))).collect();
        for (from, before, after) in roots {
            let (Some(before), Some(after)) = (before?, after?) else {
                completeness = Completeness::Unproved;
                continue;
            };
            if before != after {
                if from < self.whole_after {
                    return Ok(None);
                }
                let until = view.header_at(from)?;
                return Ok(Some(ExplainedHead { until, storage_root: Some(before), completeness }));
            }
        }
        Ok(Some(ExplainedHead { until: *self.newest, storage_root: Some(self.newest_root), completeness }))
    }
}

/// Returns the version at the block `last` for a node that proves the newest block alone: the newest version,
/// if one of the `seen` blocks, which have to be canonical, had it already, and no event since was listed.
/// Events were listed from the block `from` on.
pub(super) fn unchanged_version(
    view: &View,
    seen: [Option<(Checkpoint, RegistryVersion)>; 2],
    newest: Option<RegistryVersion>,
    (from, last): (u64, u64),
    events: &[Announced],
) -> Result<Option<RegistryVersion>, Halt> {
    for (block, version) in seen.into_iter().flatten() {
        let is_later = |event: &Announced| event.number == 0 || event.number > block.number;
        if newest == Some(version)
            && from <= block.number + 1
            && block.number <= last
            && !events.iter().any(is_later)
            && view.header_at(block.number)?.hash == block.hash
        {
            return Ok(newest);
        }
    }
    Ok(None)
}

/// Returns the ranges of blocks without events after `left`, each as the block before it and its last one.
fn gaps(left: u64, blocks: impl Iterator<Item = u64>, newest: u64) -> Vec<(u64, u64)> {
    let mut from = left;
    let mut gaps = Vec::new();
    for block in blocks.take_while(|block| *block <= newest) {
        if block - 1 > from {
            gaps.push((from, block - 1));
        }
        from = block;
    }
    if newest > from {
        gaps.push((from, newest));
    }
    gaps
}
