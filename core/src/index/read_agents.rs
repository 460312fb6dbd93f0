//! What an index reads of the registry: a slice of its agents, or some agents by id. All of one run, so of one block.

use std::sync::Arc;

use alloy_primitives::{Address, U256};

use super::{entry::Entry, find_changes::Head};
use crate::{
    chain::{Halt, Header, Query, QueryError, RunError, View, lens::Detail, reader::Registry, rows::Rows},
    eth::abi::IAgentRegistry::{getAgentCall, getRevenueHistoryCall},
    registry::row::{Full, Row},
};

/// Agents of one block, and the registry's own figures there.
#[derive(Clone, Debug)]
pub(super) struct Agents {
    pub(super) head: Head,
    /// The agents asked for, as far as they exist.
    pub(super) entries: Vec<(u64, Entry)>,
    /// The agents that the sweep looked at.
    pub(super) swept: Vec<(u64, Entry)>,
}

/// Reads consecutive agents at the newest block: at most so many, from the first on.
#[derive(Clone, Debug)]
pub(super) struct ReadSlice {
    pub(super) registry: Address,
    pub(super) first: u64,
    pub(super) most: u64,
}

impl Query for ReadSlice {
    type Output = Agents;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<Agents, Halt> {
        let registry = Registry { view, address: self.registry };
        // The first rows come along with the counter.
        let first =
            registry.total().is_err().then(|| registry.rows(self.first, Detail::Full, None).map(drop));
        let head = Head::read(view, self.registry)?;
        first.transpose()?;
        let last = head.total.min(self.first.saturating_add(self.most).saturating_sub(1));
        let entries = slice(&registry, self.first, last)?;
        Ok(Agents { head, entries, swept: Vec::new() })
    }
}

/// Reads agents by id, and those that the sweep is about, first and last.
#[derive(Clone, Debug)]
pub(super) struct ReadAgents {
    pub(super) registry: Address,
    pub(super) ids: Vec<u64>,
    pub(super) sweep: Option<(u64, u64)>,
    /// The block to read at. A node that lacks it may answer at an older one, above the height `since`.
    pub(super) newest: Header,
    pub(super) since: u64,
}

impl Query for ReadAgents {
    /// `None` where the block read at is not of the newest one's chain.
    type Output = Option<Agents>;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<Option<Agents>, Halt> {
        let registry = Registry { view, address: self.registry };
        let total = registry.total();
        let head = Head::read(view, self.registry);
        // Until the counter is known, every agent asked for is taken to exist: so all comes in one round trip.
        let bound = total.map_or(u64::MAX, |total| u64::try_from(total).unwrap_or(u64::MAX));
        let there: Vec<u64> = self.ids.iter().copied().filter(|id| *id <= bound).collect();
        let swept = self.sweep.map(|(first, last)| slice(&registry, first, bound.min(last)));
        let entries = agents(&registry, &there);
        let head = head?;
        let (entries, swept) = (entries?, swept.transpose()?.unwrap_or_default());
        let is_canonical = self.is_canonical(view, &head.header)?;
        Ok(is_canonical.then_some(Agents { head, entries, swept }))
    }
}

impl ReadAgents {
    /// Whether an older block that was read at is of the newest one's chain: both have to be canonical at once.
    fn is_canonical(&self, view: &View, read: &Header) -> Result<bool, Halt> {
        if read.hash == self.newest.hash {
            return Ok(true);
        }
        if read.number < self.since || read.number >= self.newest.number {
            return Ok(false);
        }
        // The header of the block read at comes along with any other.
        let newest = view.header_if_kept(self.newest.number)?;
        Ok(newest.is_some_and(|newest| newest.hash == self.newest.hash))
    }
}

/// The agents from `first` to `last`, through the lens.
fn slice(registry: &Registry<'_>, first: u64, last: u64) -> Result<Vec<(u64, Entry)>, Halt> {
    if last < first {
        return Ok(Vec::new());
    }
    let rows: &Arc<Rows> = registry.rows(first, Detail::Full, Some(last))?;
    let entries: Vec<_> = rows.full().map(|(id, row, full)| (id, Entry::new(row, full))).collect();
    if entries.len() as u64 != last - first + 1 || entries.iter().any(|(_, entry)| entry.row.is_unread()) {
        return Err(RunError::Malformed.into());
    }
    Ok(entries)
}

/// Agents by id: through the getters, many in a call; who needs more gas than that through the lens, alone.
#[inline(never)]
fn agents(registry: &Registry<'_>, ids: &[u64]) -> Result<Vec<(u64, Entry)>, Halt> {
    let id = |id: &u64| U256::from(*id);
    let records = ids.iter().map(|agent| getAgentCall { agentId: id(agent) });
    let histories = ids.iter().map(|agent| getRevenueHistoryCall { agentId: id(agent) });
    let records = registry.view.calls(registry.address, records);
    let histories = registry.view.calls(registry.address, histories);
    let read = records?.into_iter().zip(histories?);
    let entries: Vec<_> = ids
        .iter()
        .zip(read)
        .map(|(id, read)| {
            if let (Ok(record), Ok(history)) = read {
                let row = Row::of(&record);
                if row.record_is_readable() {
                    return Ok(vec![(*id, Entry::new(row, Full::of(&record, &history)))]);
                }
            }
            slice(registry, *id, *id)
        })
        .collect();
    Ok(entries.into_iter().collect::<Result<Vec<_>, _>>()?.concat())
}
