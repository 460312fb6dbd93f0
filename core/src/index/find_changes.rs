//! Finds what changed since the index's block, with one query. It detects reorgs by comparing the known
//! blocks with canonical headers.
//!
//! ```text
//!   newest block --> same as the index's: nothing
//!        |
//!   headers of the index's blocks, a block known to have an event, all events since
//!        |
//!        +-- canonical --> the agents that had an event
//!        +-- not: older blocks, 16 at a time, to the last canonical one --> the events since that one, too
//!                                                     |
//!                                                     +-- none: everything is read anew
//! ```

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, U256};

use super::state::Checkpoint;
use crate::chain::{
    Halt, Header, Query, QueryError, RunError, View,
    logs::{LogsQuery, Moment},
    reader::Registry,
};

/// Agents that one call usually reads: what `eth_getLogs` calls are weighed against.
const AGENTS_PER_CALL: u64 = 300;
/// `eth_getLogs` calls that are always worth it.
const LOG_CALLS: u64 = 8;
/// Refreshes after which longer log ranges are tried again.
pub(super) const LOG_RANGE_REFRESHES: u32 = 100;
/// Older blocks compared at once in search of the last canonical one.
const OLDER: usize = 16;

/// The newest block, and the registry's own figures there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegistryHead {
    pub(super) header: Header,
    /// The number of agents.
    pub(super) total: u64,
    pub(super) grace_seconds: U256,
}

/// Finds what changed.
#[derive(Clone, Debug)]
pub(super) struct FindChanges {
    pub(super) registry: Address,
    pub(super) block: Checkpoint,
    /// The blocks of a fill with slices of several blocks, by height; else empty.
    pub(super) pass: Vec<Checkpoint>,
    /// Older checkpoints, the highest first, once needed.
    pub(super) older: Option<Vec<Checkpoint>>,
    /// A block known to have an event: a node that returns none has pruned its logs.
    pub(super) known_event: Option<u64>,
    /// Blocks per `eth_getLogs` that the node accepts, and the refreshes since that was detected.
    pub(super) log_range: Option<(u64, u32)>,
}

/// The outcome of the search.
#[derive(Clone, Debug)]
pub(super) enum FoundChanges {
    /// The newest block is the index's.
    Nothing,
    /// Agents had events, or there is a newer block.
    Changed(Box<Changed>),
    /// The node serves no logs, or has pruned them.
    NoEvents,
    /// A reorg replaced the index's block: [`FindChanges::older`] is needed.
    NotCanonical,
    /// No known block is canonical.
    AnotherChain,
}

/// What changed between the index's block and the newest.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) head: RegistryHead,
    /// The newest canonical checkpoint, if a reorg replaced the index's block.
    pub(super) undone_since: Option<u64>,
    /// Agents that had an event.
    pub(super) ids: BTreeSet<u64>,
    /// Each agent's last event that set its status.
    pub(super) moments: BTreeMap<u64, Moment>,
    /// The highest block with an event; `None` after a reorg of the index's block.
    pub(super) last_event: Option<u64>,
    /// Blocks of the longest log range that was answered, if one was refused.
    pub(super) log_range: Option<u64>,
}

impl Query for FindChanges {
    type Output = FoundChanges;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<FoundChanges, Halt> {
        let head = RegistryHead::read(view, self.registry)?;
        let (header, block) = (head.header, self.block);
        if self.pass.is_empty() && header.hash == block.hash {
            return Ok(FoundChanges::Nothing);
        }
        if header.number < block.number && header.timestamp <= block.seconds {
            // The node lags. A reorg to a lower height has a later timestamp.
            return Err(RunError::BlockUnavailable.into());
        }
        let known = if self.pass.is_empty() { std::slice::from_ref(&block) } else { &self.pass };
        let canonical = known_canonical(view, known, &header);
        let known_event = self.known_event.filter(|number| *number <= header.number);
        let known_event = known_event.map(|number| view.logs(&self.events(&head, number, number)));
        let found = view.logs(&self.events(&head, block.number.saturating_add(1), header.number))?;
        let (canonical, known_event) = (canonical?, known_event.transpose()?);
        let Ok(found) = found else { return Ok(FoundChanges::NoEvents) };
        let (mut ids, mut undone_since) = (found.ids.clone(), None);
        match canonical {
            // The last canonical block counts; slices read at later ones are read again.
            Some(since) if since.number < known.last().map_or(0, |last| last.number) => {
                undone_since = Some(since.number);
            }
            Some(_) if known_event.is_some_and(|known| !known.is_ok_and(|known| known.is_any)) => {
                return Ok(FoundChanges::NoEvents);
            }
            Some(_) => {}
            None if !self.pass.is_empty() => return Ok(FoundChanges::AnotherChain),
            None => {
                let Some(older) = &self.older else { return Ok(FoundChanges::NotCanonical) };
                let Some(since) = last_canonical(view, older, &header)? else {
                    return Ok(FoundChanges::AnotherChain);
                };
                let to = block.number.min(header.number);
                let Ok(earlier) = view.logs(&self.events(&head, since.saturating_add(1), to))? else {
                    return Ok(FoundChanges::NoEvents);
                };
                ids.extend(&earlier.ids);
                undone_since = Some(since);
            }
        }
        Ok(FoundChanges::Changed(Box::new(Changed {
            head,
            undone_since,
            ids,
            moments: found.moments.clone(),
            last_event: found.last.filter(|_| undone_since.is_none()),
            log_range: found.range,
        })))
    }

    fn reads_other_blocks(&self) -> bool {
        true
    }
}

impl FindChanges {
    /// The events of blocks `from` to `to`, both inclusive.
    fn events(&self, head: &RegistryHead, from: u64, to: u64) -> LogsQuery {
        let most_calls = head.total / AGENTS_PER_CALL + LOG_CALLS;
        // The node may accept longer ranges by now: one is tried if the shorter one would take too many
        // calls.
        let blocks = head.header.number.saturating_sub(self.block.number);
        let fits = |range: u64| blocks.div_ceil(range.max(1)) <= most_calls;
        let range =
            self.log_range.filter(|(range, refreshes)| *refreshes < LOG_RANGE_REFRESHES && fits(*range));
        let range = range.map(|(range, _)| range);
        LogsQuery { registry: self.registry, filter: None, from, to, range, most_calls, may_end_early: false }
    }
}

impl RegistryHead {
    pub(super) fn read(view: &View, registry: Address) -> Result<Self, Halt> {
        let registry = Registry { view, address: registry };
        let (total, grace, header) = (registry.total(), registry.grace_period(), view.header());
        let (total, grace_seconds) = (total?, grace?);
        let total = u64::try_from(total).map_err(|_| QueryError::TooManyAgents(total))?;
        Ok(Self { header: header?, total, grace_seconds })
    }
}

/// The last of these blocks, by ascending height, that is canonical with all before it.
fn known_canonical(view: &View, blocks: &[Checkpoint], head: &Header) -> Result<Option<Checkpoint>, Halt> {
    let headers: Vec<_> = blocks
        .iter()
        .take_while(|block| block.number <= head.number)
        .map(|block| (block, view.header_at(block.number)))
        .collect();
    let mut last = None;
    for (block, header) in headers {
        if header?.hash != block.hash {
            break;
        }
        last = Some(*block);
    }
    Ok(last)
}

/// The height of the highest canonical block of these.
fn last_canonical(view: &View, older: &[Checkpoint], head: &Header) -> Result<Option<u64>, Halt> {
    let older: Vec<&Checkpoint> = older.iter().filter(|block| block.number <= head.number).collect();
    for blocks in older.chunks(OLDER) {
        let headers: Vec<_> = blocks.iter().map(|block| view.header_at(block.number)).collect();
        for (block, header) in blocks.iter().zip(headers) {
            if header?.hash == block.hash {
                return Ok(Some(block.number));
            }
        }
    }
    Ok(None)
}
