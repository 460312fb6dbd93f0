//! What an index asks the registry: its counter, a slice of its agents, or some agents by id. All of one run, so of one block.

use std::sync::Arc;

use alloy_primitives::{Address, U256};

use super::entry::Entry;
use crate::{
    chain::{Halt, Header, Query, QueryError, RunError, View, lens::Detail, reader::Registry, rows::Rows},
    eth::abi::IAgentRegistry::{getAgentCall, getRevenueHistoryCall},
    registry::row::{Full, Row},
};

/// What an index has read, all of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    pub(super) header: Header,
    /// How many agents there are.
    pub(super) total: u64,
    pub(super) grace_seconds: U256,
    /// The agents asked for, as far as they exist.
    pub(super) entries: Vec<(u64, Entry)>,
    /// The agents that the sweep looked at.
    pub(super) swept: Vec<(u64, Entry)>,
}

/// What is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// How many agents there are.
    Head,
    /// At most so many agents, from the first on.
    Slice { first: u64, most: u64 },
    /// These agents, and those that the sweep is about, first and last.
    Agents { ids: Vec<u64>, sweep: Option<(u64, u64)> },
}

#[derive(Clone, Debug)]
pub(super) struct Reader {
    pub(super) registry: Address,
    pub(super) what: What,
}

impl Query for Reader {
    type Output = Reading;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<Reading, Halt> {
        let registry = Registry { view, address: self.registry };
        let (total, grace, header) = (registry.total(), registry.grace_period(), view.header());
        // Until the counter is known, whoever is asked for is taken to exist: so all comes in one round trip.
        let bound = total.as_ref().map_or(u64::MAX, |total| u64::try_from(*total).unwrap_or(u64::MAX));
        let (entries, swept) = match &self.what {
            What::Head => (Ok(Vec::new()), Ok(Vec::new())),
            What::Slice { first, most } => match &total {
                Ok(_) => (
                    slice(&registry, *first, bound.min(first.saturating_add(*most).saturating_sub(1))),
                    Ok(Vec::new()),
                ),
                // The first rows come along with the counter.
                Err(_) => (
                    registry.rows(*first, Detail::Full, None).map(|_| Vec::new()).map_err(Halt::from),
                    Ok(Vec::new()),
                ),
            },
            What::Agents { ids, sweep } => {
                let there: Vec<u64> = ids.iter().copied().filter(|id| *id <= bound).collect();
                let swept = sweep.map(|(first, last)| slice(&registry, first, bound.min(last)));
                (agents(&registry, &there), swept.unwrap_or_else(|| Ok(Vec::new())))
            }
        };
        let (total, grace_seconds) = (total?, grace?);
        let total = u64::try_from(total).map_err(|_| QueryError::TooManyAgents(total))?;
        let (entries, swept) = (entries?, swept?);
        Ok(Reading { header: header?, total, grace_seconds, entries, swept })
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
