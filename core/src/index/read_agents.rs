//! Queries for agents' state: a slice of consecutive agents, or agents by id. Each result is of one block.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    sync::Arc,
};

use alloy_primitives::{Address, U256};

use super::{
    indexed_agent::{IndexedAgent, flaw},
    registry_head::RegistryHead,
};
use crate::{
    chain::{Halt, Header, Query, QueryError, RunError, View, lens::Detail, reader::Registry, rows::Rows},
    eth::abi::IAgentRegistry::{getAgentCall, getRevenueHistoryCall},
    registry::row::{Row, RowDetail},
};

/// Agents by id per run.
pub(super) const AGENTS: usize = 2_000;

/// Agents of one block, and the registry's own figures there.
#[derive(Clone, Debug)]
pub(super) struct AgentsAtBlock {
    pub(super) head: RegistryHead,
    /// The existing ones of the agents asked for.
    pub(super) entries: Vec<(u64, IndexedAgent)>,
    /// The agents read by the sweep.
    pub(super) swept: Vec<(u64, IndexedAgent)>,
}

/// Reads at most `most` consecutive agents from `first` on, at the newest block.
#[derive(Clone, Debug)]
pub(super) struct ReadSlice {
    pub(super) registry: Address,
    pub(super) first: u64,
    pub(super) most: u64,
}

impl Query for ReadSlice {
    type Output = AgentsAtBlock;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<AgentsAtBlock, Halt> {
        let registry = Registry { view, address: self.registry };
        // The first rows share a round trip with the counter.
        let first =
            registry.total().is_err().then(|| registry.rows(self.first, Detail::Full, None).map(drop));
        let head = RegistryHead::read(view, self.registry)?;
        first.transpose()?;
        let last = head.total.min(self.first.saturating_add(self.most).saturating_sub(1));
        let entries = slice(&registry, self.first, last)?;
        Ok(AgentsAtBlock { head, entries, swept: Vec::new() })
    }
}

/// Reads agents by id, and the sweep's range of ids.
#[derive(Clone, Debug)]
pub(super) struct ReadAgents {
    pub(super) registry: Address,
    pub(super) ids: Arc<[u64]>,
    pub(super) sweep: Option<(u64, u64)>,
    /// The last stored agent, and agents that other runs read: all others after the last are read as well.
    pub(super) beyond: Option<(u64, Rc<BTreeSet<u64>>)>,
    /// The block to read at. A node that lacks it may answer at an older one, down to the height `since`.
    pub(super) newest: Header,
    pub(super) since: u64,
}

impl Query for ReadAgents {
    /// `None` after a reorg between the block read and the newest one.
    type Output = Option<AgentsAtBlock>;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<Option<AgentsAtBlock>, Halt> {
        let registry = Registry { view, address: self.registry };
        let total = registry.total();
        let head = RegistryHead::read(view, self.registry);
        // Until the counter is known every agent is assumed to exist, so that all reads share one round trip.
        let bound = total.map_or(u64::MAX, |total| u64::try_from(total).unwrap_or(u64::MAX));
        let beyond = self.beyond.as_ref().filter(|_| bound != u64::MAX);
        let unlisted = beyond.map(|(last, others)| {
            let ids = (last.saturating_add(1)..=bound).filter(|id| !others.contains(id));
            listed(&registry, &ids.take(AGENTS).collect(), bound)
        });
        let swept = self.sweep.map(|(first, last)| slice(&registry, first, bound.min(last)));
        let entries = listed(&registry, &self.ids, bound);
        let head = head?;
        let (mut entries, swept) = (entries?, swept.transpose()?.unwrap_or_default());
        entries.extend(unlisted.transpose()?.unwrap_or_default());
        let is_canonical = self.is_canonical(view, &head.header)?;
        Ok(is_canonical.then_some(AgentsAtBlock { head, entries, swept }))
    }

    fn reads_other_blocks(&self) -> bool {
        true
    }
}

impl ReadAgents {
    /// Returns whether the block that was read is of the newest one's chain: both must be canonical at once.
    fn is_canonical(&self, view: &View, read: &Header) -> Result<bool, Halt> {
        if read.hash == self.newest.hash {
            return Ok(true);
        }
        if read.number < self.since || read.number >= self.newest.number {
            return Ok(false);
        }
        // The header of the block that was read is checked with any other header.
        let newest = view.header_if_kept(self.newest.number)?;
        Ok(newest.is_some_and(|newest| newest.hash == self.newest.hash))
    }
}

fn slice(registry: &Registry<'_>, first: u64, last: u64) -> Result<Vec<(u64, IndexedAgent)>, Halt> {
    if last < first {
        return Ok(Vec::new());
    }
    let rows = registry.rows(first, Detail::Full, Some(last))?;
    readable(registry, entries(rows, first..=last)?)
}

/// Reads these agents, as far as they exist: up to the id `last`.
fn listed(registry: &Registry<'_>, ids: &Arc<[u64]>, last: u64) -> Result<Vec<(u64, IndexedAgent)>, Halt> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let rows = registry.listed_rows(ids, Detail::Full)?;
    let mut entries = entries(rows, ids.iter().copied())?;
    entries.retain(|(id, _)| *id <= last);
    readable(registry, entries)
}

/// Converts the lens's rows of agents with these ids.
fn entries(rows: &Rows, ids: impl Iterator<Item = u64> + Clone) -> Result<Vec<(u64, IndexedAgent)>, Halt> {
    if rows.len() != ids.clone().count() || rows.iter().any(|(_, row)| row.is_unread()) {
        return Err(RunError::Malformed.into());
    }
    Ok(ids.zip(rows.full()).map(|(id, (_, row, full))| (id, IndexedAgent::new(row, full))).collect())
}

/// Reads through the getters the agents that the lens could not read: a record is readable if either can read
/// it, so that readability does not depend on the method.
fn readable(
    registry: &Registry<'_>,
    mut entries: Vec<(u64, IndexedAgent)>,
) -> Result<Vec<(u64, IndexedAgent)>, Halt> {
    let is_flawed = |(_, entry): &&(u64, IndexedAgent)| entry.flaws() & (flaw::RECORD | flaw::HISTORY) != 0;
    let flawed: Vec<u64> = entries.iter().filter(is_flawed).map(|(id, _)| *id).collect();
    let read: BTreeMap<u64, IndexedAgent> = through_getters(registry, &flawed)?.into_iter().collect();
    for (id, entry) in &mut entries {
        if let Some(read) = read.get(id) {
            entry.clone_from(read);
        }
    }
    Ok(entries)
}

/// Reads those of these agents with a readable record and history, through the getters.
fn through_getters(registry: &Registry<'_>, ids: &[u64]) -> Result<Vec<(u64, IndexedAgent)>, Halt> {
    let id = |id: &u64| U256::from(*id);
    let records = ids.iter().map(|agent| getAgentCall { agentId: id(agent) });
    let histories = ids.iter().map(|agent| getRevenueHistoryCall { agentId: id(agent) });
    let records = registry.view.calls(registry.address, records);
    let histories = registry.view.calls(registry.address, histories);
    let read = records?.into_iter().zip(histories?);
    let entry = |(id, (record, history)): (&u64, (Result<_, _>, Result<Vec<_>, _>))| {
        let (record, history) = (record.ok()?, history.ok()?);
        let row = Row::of(&record);
        let detail = || RowDetail::of(&record, &history);
        row.record_is_readable().then(|| (*id, IndexedAgent::new(row, detail())))
    };
    Ok(ids.iter().zip(read).filter_map(entry).collect())
}
