//! What changed in the registry since the index's block: one query, from the newest block back to the last one known that is
//! still canonical.
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

/// Agents that one call reads at least, as a rule: what `eth_getLogs` calls are weighed against.
const AGENTS_PER_CALL: u64 = 300;
/// `eth_getLogs` calls that are always worth it.
const LOG_CALLS: u64 = 8;
/// Refreshes after which a node is asked for longer ranges of logs again.
pub(super) const LOG_RANGE_REFRESHES: u32 = 100;
/// Older blocks asked about at once, when looking for the last canonical one.
const OLDER: usize = 16;

/// The newest block, and the registry's own figures there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) header: Header,
    /// How many agents there are.
    pub(super) total: u64,
    pub(super) grace_seconds: U256,
}

/// Finds out what changed.
#[derive(Clone, Debug)]
pub(super) struct FindChanges {
    pub(super) registry: Address,
    /// The index's block.
    pub(super) block: Checkpoint,
    /// While the slices of a fill are of several blocks: those, by height.
    pub(super) pass: Vec<Checkpoint>,
    /// The blocks known before, the highest first, once they are needed.
    pub(super) older: Option<Vec<Checkpoint>>,
    /// A block that is known to have an event: a node that has none there has pruned its logs.
    pub(super) known_event: Option<u64>,
    /// Blocks that the node takes in one `eth_getLogs`, and how many refreshes have kept to it.
    pub(super) log_range: Option<(u64, u32)>,
}

/// What there is to read again.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// The newest block is the index's.
    Nothing,
    /// Agents had events, or there is a newer block.
    Changed(Box<Changed>),
    /// The node serves no logs, or has pruned them.
    NoEvents,
    /// The index's block is not canonical: [`FindChanges::older`] is needed.
    NotCanonical,
    /// No known block is canonical.
    AnotherChain,
}

/// What changed between the index's block and the newest.
#[derive(Clone, Debug)]
pub(super) struct Changed {
    pub(super) head: Head,
    /// The newest known block that is still canonical; `None` where the index's own is.
    pub(super) undone_since: Option<u64>,
    /// Agents that had an event.
    pub(super) ids: BTreeSet<u64>,
    /// The last event of an agent that set its status.
    pub(super) moments: BTreeMap<u64, Moment>,
    /// The highest block that had an event; `None` where the index's own block is not canonical.
    pub(super) last_event: Option<u64>,
    /// Blocks of the longest range of logs that was answered, where one was refused.
    pub(super) log_range: Option<u64>,
}

impl Query for FindChanges {
    type Output = Found;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<Found, Halt> {
        let head = Head::read(view, self.registry)?;
        let (header, block) = (head.header, self.block);
        if self.pass.is_empty() && header.hash == block.hash {
            return Ok(Found::Nothing);
        }
        if header.number < block.number && header.timestamp <= block.seconds {
            // It lags. A chain that was reorganised to a lower height is younger all the same.
            return Err(RunError::BlockUnavailable.into());
        }
        let known = if self.pass.is_empty() { std::slice::from_ref(&block) } else { &self.pass };
        let canonical = known_canonical(view, known, &header);
        let known_event = self.known_event.filter(|number| *number <= header.number);
        let known_event = known_event.map(|number| view.logs(&self.events(&head, number, number)));
        let found = view.logs(&self.events(&head, block.number.saturating_add(1), header.number))?;
        let (canonical, known_event) = (canonical?, known_event.transpose()?);
        let Ok(found) = found else { return Ok(Found::NoEvents) };
        let (mut ids, mut undone_since) = (found.ids.clone(), None);
        match canonical {
            // Of several blocks the last canonical one counts; later slices are read again.
            Some(since) if since.number < known.last().map_or(0, |last| last.number) => {
                undone_since = Some(since.number);
            }
            Some(_) if known_event.is_some_and(|known| !known.is_ok_and(|known| known.is_any)) => {
                return Ok(Found::NoEvents);
            }
            Some(_) => {}
            None if !self.pass.is_empty() => return Ok(Found::AnotherChain),
            None => {
                let Some(older) = &self.older else { return Ok(Found::NotCanonical) };
                let Some(since) = last_canonical(view, older, &header)? else {
                    return Ok(Found::AnotherChain);
                };
                let to = block.number.min(header.number);
                let Ok(earlier) = view.logs(&self.events(&head, since.saturating_add(1), to))? else {
                    return Ok(Found::NoEvents);
                };
                ids.extend(&earlier.ids);
                undone_since = Some(since);
            }
        }
        Ok(Found::Changed(Box::new(Changed {
            head,
            undone_since,
            ids,
            moments: found.moments.clone(),
            last_event: found.last.filter(|_| undone_since.is_none()),
            log_range: found.range,
        })))
    }
}

impl FindChanges {
    /// The events of these blocks, both included.
    fn events(&self, head: &Head, from: u64, to: u64) -> LogsQuery {
        let most_calls = head.total / AGENTS_PER_CALL + LOG_CALLS;
        // A range that was too long once may be right now: it is tried where keeping to the shorter one would take too many calls.
        let blocks = head.header.number.saturating_sub(self.block.number);
        let fits = |range: u64| blocks.div_ceil(range.max(1)) <= most_calls;
        let range =
            self.log_range.filter(|(range, refreshes)| *refreshes < LOG_RANGE_REFRESHES && fits(*range));
        let range = range.map(|(range, _)| range);
        LogsQuery { registry: self.registry, filter: None, from, to, range, most_calls, may_end_early: false }
    }
}

impl Head {
    pub(super) fn read(view: &View, registry: Address) -> Result<Self, Halt> {
        let registry = Registry { view, address: registry };
        let (total, grace, header) = (registry.total(), registry.grace_period(), view.header());
        let (total, grace_seconds) = (total?, grace?);
        let total = u64::try_from(total).map_err(|_| QueryError::TooManyAgents(total))?;
        Ok(Self { header: header?, total, grace_seconds })
    }
}

/// The last of these blocks, which are given by height, that is canonical with all before it.
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

/// The height of the highest of these older blocks that is still canonical.
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
