//! One agent's history, read from its events through an RPC endpoint.
//!
//! The index answers it although it stores no events: their number has no bound, and those before the index
//! began would be missing. But it knows a canonical block, the agent's registration time and its children,
//! which a query to the chain alone would have to find first.
//!
//! ```text
//!   events --> children's registrations --> times of blocks --> page
//!    |  ^      where it has any             where the events
//!    v  |                                   do not say
//!   search for the block of the registration
//! ```
//!
//! The first call asks for all blocks. If the endpoint refuses that range, calls start at the block of the
//! registration, found by a search over block timestamps
//! ([`registration_block`](HistoryQuery::registration_block): 18 blocks per round trip, six round trips for
//! 40 million blocks), with adaptive range splitting. The range that refreshes know is for the events of all
//! agents, so it is shorter than needed and not used. An answer makes at most [`MOST_CALLS`] calls for the
//! agent and as many for its children. If they do not suffice, the page ends early and `next` continues. If
//! [`MOST_PAGES`] such pages would not suffice, the newest blocks are read instead with as many calls, and
//! the history says that it starts there.
//!
//! Every batch also requests the header of the index's block, so that no event of a reorganised block is
//! reported. A history is complete if the registration's event was found and every range since was answered:
//! a node with pruned events returns empty lists. A later page requests the registration's block again.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::Address;
use alloy_sol_types::SolEvent;

use super::{
    IndexError,
    checkpoint::Checkpoint,
    postings::{self, Property},
    state::State,
    store::Store,
    tables,
    work::Config,
};
use crate::{
    chain::{
        Endpoints, Halt, Header, Limits, Need, Query, QueryError, Run, RunError, View,
        logs::{EVENTS, EventLog, FoundLogs, LogFilter, LogsQuery, NoLogs},
    },
    eth::{abi::IAgentRegistry::AgentRegistered, as_of::BlockId, timestamp::Timestamp},
    registry::{
        agent::AgentId,
        history::{AgentEvent, AgentHistory, HistoryCursor, HistoryEvent, IncompleteBecause},
    },
};

/// `eth_getLogs` calls for the agent's own events: five batches.
const MOST_CALLS: u64 = 95;
/// Maximum batches: a node with small replies answers one range in each.
const ROUNDS: u32 = 3 * MOST_CALLS as u32;
/// Maximum pages that may end early.
const MOST_PAGES: u64 = 16;
/// Timestamps requested at once in the search for the registration.
const PROBES: u64 = 18;
/// Bytes of texts that end a page: reasons have no length limit.
const PAGE_TEXT_BYTES: usize = 256 * 1024;

/// One page of an agent's history at the index's block, from headers and logs alone. After a reorg of that
/// block it ends with [`QueryError::BlockNotAvailable`], and the index has to refresh first. If the page's
/// next cursor would be its own, it ends with [`RunError::BlockUnavailable`].
#[derive(Clone, Debug)]
pub struct HistoryQuery {
    registry: Address,
    at: Checkpoint,
    id: u64,
    registered_at: u64,
    /// The next children by id: as many as fit a page, and one more to continue at.
    children: Vec<u64>,
    limit: usize,
    cursor: Option<HistoryCursor>,
}

/// A page being assembled.
#[derive(Clone, Debug, Default)]
struct PageDraft {
    logs: Vec<EventLog>,
    because: Option<IncompleteBecause>,
    /// The block at which the history starts; 0 if unknown.
    first: u64,
    /// Blocks from this one on were not requested.
    unasked: Option<u64>,
    next: Option<HistoryCursor>,
}

/// The agent's own events, and the parameters of their request.
struct OwnEvents {
    found: FoundLogs,
    /// The first requested block.
    from: u64,
    /// Earlier events are not requested, because they would take too many calls.
    newest_only: bool,
    /// Blocks per call that the endpoint is known to accept.
    range: Option<u64>,
}

impl Query for HistoryQuery {
    type Output = AgentHistory;
    type Error = QueryError;

    fn resolve(&self, view: &View) -> Result<AgentHistory, Halt> {
        let Ok(events) = self.own_events(view)? else {
            let page = PageDraft { because: Some(IncompleteBecause::NoLogs), ..PageDraft::default() };
            return self.finish(view, page);
        };
        let mut page = self.begin_page(view, &events)?;
        let range = events.range;
        let last = match page.logs.get(self.limit) {
            // The page ends before this event.
            Some(log) => log.number,
            None => page.unasked.map_or(self.at.number, |unasked| unasked.saturating_sub(1)),
        };
        let from = events.from.max(page.first);
        if !self.children.is_empty() && from <= last {
            let filter =
                LogFilter { events: vec![AgentRegistered::SIGNATURE_HASH], agents: self.children.clone() };
            match view.logs(&self.logs(filter, (from, last), range, true))? {
                // The logs of the newest block may be served later. Refused below it, they are missing.
                Ok(found) if found.unasked != Some(from) || from == self.at.number => {
                    page.logs.extend(found.logs.iter().cloned());
                    page.unasked = page.unasked.into_iter().chain(found.unasked).min();
                }
                _ => page.because = Some(IncompleteBecause::EventsMissing),
            }
        }
        let page = self.cut(page);
        if page.next.is_some() && page.next == self.cursor {
            // The node does not yet serve the logs of the page's first block.
            return Err(RunError::BlockUnavailable.into());
        }
        self.finish(view, page)
    }

    fn block(&self) -> Option<BlockId> {
        Some(BlockId::Hash(self.at.hash))
    }

    fn reads_other_blocks(&self) -> bool {
        true
    }
}

impl HistoryQuery {
    /// Creates the query for a page of an agent's history.
    ///
    /// # Errors
    ///
    /// [`QueryError::AgentNotFound`], [`IndexError::Incomplete`], [`IndexError::Store`].
    pub fn new(
        store: &impl Store,
        state: &State,
        registry: Address,
        (id, limit, cursor): (AgentId, u64, Option<HistoryCursor>),
    ) -> Result<Self, IndexError> {
        let at = state.block()?;
        let number = u64::try_from(id.0).ok();
        let entry = number.map(|id| tables::find(store, id)).transpose()?.flatten();
        let (Some(number), Some(entry)) = (number, entry) else {
            return Err(QueryError::AgentNotFound(id).into());
        };
        let last_child = cursor.map_or(0, |cursor| cursor.child);
        let list = (Property::Parent, number.to_be_bytes().into());
        let children = postings::page(store, &list, last_child, limit.saturating_add(1))?;
        Ok(Self {
            registry,
            at,
            id: number,
            registered_at: entry.row.registered_at,
            children,
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            cursor,
        })
    }

    /// Creates a run that reads the page at the index's block.
    pub fn run(self, config: &Config, endpoints: Endpoints) -> Run<Self> {
        let (at, limits) = (self.at.into(), Limits { rounds: ROUNDS, ..config.limits });
        Run::new(self, config.multicall3, limits).over(endpoints).at(at)
    }

    fn logs(
        &self,
        filter: LogFilter,
        (from, to): (u64, u64),
        range: Option<u64>,
        may_end_early: bool,
    ) -> LogsQuery {
        let (registry, most_calls) = (self.registry, MOST_CALLS);
        LogsQuery { registry, filter: Some(filter), from, to, range, most_calls, may_end_early }
    }

    /// Returns the cursor's registration block, if it is not above the index's block.
    fn known_first(&self) -> Option<u64> {
        self.cursor.map(|cursor| cursor.first).filter(|first| (1..=self.at.number).contains(first))
    }

    /// Reads the agent's own events, from the first block worth requesting.
    fn own_events(&self, view: &View) -> Result<Result<OwnEvents, NoLogs>, Halt> {
        let mut from = self.cursor.map_or(0, |cursor| cursor.block);
        let (mut range, mut newest_only) = (None, false);
        let mut found = self.events_from(view, from, range)?;
        if let Err(NoLogs::ShortRanges(blocks)) = found {
            range = Some(blocks);
            from = self.registration_block(view)?;
            found = self.events_from(view, from, range)?;
        }
        if let Ok(known) = &found {
            range = known.range.or(range);
            let due = known.logs.iter().filter(|log| self.is_due(log)).count();
            if let Some(blocks) = range
                && known.unasked.is_some()
                && due <= self.limit
                && self.cursor.is_none()
                && self.at.number.saturating_sub(from) / blocks.max(1) >= MOST_CALLS * MOST_PAGES
            {
                newest_only = true;
                from = (self.at.number + 1).saturating_sub(MOST_CALLS.saturating_mul(blocks)).max(1);
                found = self.events_from(view, from, range)?;
            }
        }
        Ok(found.map(|found| OwnEvents { range: found.range.or(range), found, from, newest_only }))
    }

    /// Reads the agent's own events from the block `from` on, as many as the page holds.
    fn events_from(
        &self,
        view: &View,
        from: u64,
        range: Option<u64>,
    ) -> Result<Result<FoundLogs, NoLogs>, Need> {
        let filter = LogFilter { events: EVENTS.to_vec(), agents: vec![self.id] };
        // Block 0 has no events: it stands for an unknown start, so the query has to cover all blocks.
        let query = self.logs(filter, (from, self.at.number), range, from > 0);
        let registration = self.known_first().map(|first| {
            let event = (first < from).then(|| view.logs(&self.registration_event(first)));
            (view.header_if_kept(first), event)
        });
        let (settled, open) = view.settled_logs(&query);
        let found = if open.is_some() && settled.iter().filter(|log| self.is_due(log)).count() > self.limit {
            let logs = settled.into_iter().cloned().collect();
            Ok(FoundLogs { logs, unasked: open, is_any: true, ..FoundLogs::default() })
        } else {
            view.logs(&query)?.cloned()
        };
        if let Some((header, event)) = registration {
            header?;
            if let Some(Err(refused)) = event.transpose()? {
                return Ok(Err(refused));
            }
        }
        Ok(found.map(|mut found| {
            found.logs.sort_by_key(position);
            found.logs.dedup_by_key(|log| position(log));
            found
        }))
    }

    /// Returns the query for the registration's event, which a later page requests again: a node that has
    /// pruned its logs returns an empty list.
    fn registration_event(&self, block: u64) -> LogsQuery {
        let filter = LogFilter { events: EVENTS.to_vec(), agents: vec![self.id] };
        self.logs(filter, (block, block), None, false)
    }

    /// Finds the first block at or after the registration time. Blocks without a header are pruned, and
    /// therefore early.
    fn registration_block(&self, view: &View) -> Result<u64, Need> {
        let (mut before, mut found) = (0, self.at.number);
        while found.saturating_sub(before) > 1 {
            let blocks = found - before;
            let probe = |probe: u64| {
                let share = u128::from(blocks) * u128::from(probe) / u128::from(PROBES + 1);
                before.saturating_add(u64::try_from(share).unwrap_or(blocks))
            };
            let probes: BTreeSet<u64> =
                (1..=PROBES).map(probe).filter(|number| (before + 1..found).contains(number)).collect();
            let headers: Vec<_> =
                probes.iter().map(|number| (*number, view.header_if_kept(*number))).collect();
            for (number, header) in headers {
                if header?.is_some_and(|header| header.timestamp >= self.registered_at) {
                    found = number;
                    break;
                }
                before = number;
            }
        }
        Ok(found.max(1))
    }

    /// Begins a page with the agent's own events and the block from which on the history is known.
    fn begin_page(&self, view: &View, events: &OwnEvents) -> Result<PageDraft, Need> {
        let OwnEvents { found, newest_only, from, .. } = events;
        let registration = found.logs.iter().find(|log| log.is_registration()).map(|log| log.number);
        let (first, because) = match (self.cursor, registration) {
            (None, Some(first)) => (first, None),
            (None, None) if *newest_only => (*from, Some(IncompleteBecause::LogRange)),
            (None, None) | (Some(HistoryCursor { first: 0, .. }), _) => {
                (0, Some(IncompleteBecause::EventsMissing))
            }
            (Some(HistoryCursor { first, block, .. }), registration) => {
                let is_found = match self.known_first().filter(|_| first < block) {
                    Some(first) => view
                        .logs(&self.registration_event(first))?
                        .is_ok_and(|event| event.logs.iter().any(EventLog::is_registration)),
                    None => first < block || registration.is_some(),
                };
                // Earlier blocks were not requested, or it is the registration's block without the event.
                let header =
                    self.known_first().map(|first| view.header_if_kept(first)).transpose()?.flatten();
                let is_registration = header.is_none_or(|header| header.timestamp == self.registered_at);
                let because = match is_registration {
                    true => IncompleteBecause::EventsMissing,
                    false => IncompleteBecause::LogRange,
                };
                (first, (!is_found).then_some(because))
            }
        };
        let logs = found.logs.iter().filter(|log| self.is_due(log)).cloned().collect();
        Ok(PageDraft { logs, because, first, unasked: found.unasked, next: None })
    }

    fn cut(&self, mut page: PageDraft) -> PageDraft {
        let is_asked = |log: &EventLog| page.unasked.is_none_or(|unasked| log.number < unasked);
        page.logs.retain(|log| self.is_due(log) && is_asked(log));
        page.logs.sort_by_key(position);
        page.logs.dedup_by_key(|log| position(log));
        let found: BTreeSet<u64> = page.logs.iter().map(|log| log.agent).collect();
        let mut bytes = 0;
        let fits = page.logs.iter().take(self.limit).take_while(|log| {
            let begun = bytes;
            bytes += log.text_bytes();
            begun == 0 || bytes <= PAGE_TEXT_BYTES
        });
        let fits = fits.count();
        let goes_on_at = match page.logs.get(fits) {
            Some(log) => Some(position(log)),
            // A page that begins in this block continues at its own cursor.
            None => page.unasked.map(|unasked| {
                let begun = self.cursor.filter(|cursor| cursor.block == unasked);
                (unasked, begun.map_or(0, |cursor| cursor.log_index))
            }),
        };
        page.logs.truncate(fits);
        let children = page.logs.iter().filter(|log| log.agent != self.id).map(|log| log.agent);
        let child = children.max().or(self.cursor.map(|cursor| cursor.child)).unwrap_or(0);
        page.next =
            goes_on_at.map(|(block, log_index)| HistoryCursor { first: page.first, block, log_index, child });
        if page.next.is_none() && self.children.iter().any(|child| !found.contains(child)) {
            page.because = page.because.or(Some(IncompleteBecause::EventsMissing));
        }
        page
    }

    /// Makes the answer, with block timestamps that the node's logs omit.
    fn finish(&self, view: &View, page: PageDraft) -> Result<AgentHistory, Halt> {
        let untimed: BTreeSet<u64> =
            page.logs.iter().filter(|log| log.seconds.is_none()).map(|log| log.number).collect();
        let headers: Vec<_> = untimed.into_iter().map(|number| (number, view.header_at(number))).collect();
        let headers = headers.into_iter().map(|(number, header)| Ok((number, header?)));
        let headers: BTreeMap<u64, Header> = headers.collect::<Result<_, Need>>()?;
        let mut data = Vec::with_capacity(page.logs.len());
        for log in page.logs {
            let seconds = match (log.seconds, headers.get(&log.number)) {
                (Some(seconds), _) => seconds,
                (None, Some(header)) if header.hash == log.block_hash => header.timestamp,
                // The event is of another chain than the block.
                (None, _) => return Err(QueryError::BlockNotAvailable(BlockId::Hash(self.at.hash)).into()),
            };
            data.push(HistoryEvent {
                block_number: log.number,
                time: Timestamp::from_seconds(seconds),
                transaction_hash: log.transaction_hash,
                log_index: log.index,
                event: match log.event {
                    AgentEvent::Registered { creator, agent_wallet, .. } if log.agent != self.id => {
                        AgentEvent::ChildRegistered {
                            child_agent_id: log.agent.into(),
                            creator,
                            agent_wallet,
                        }
                    }
                    event => event,
                },
            });
        }
        Ok(AgentHistory {
            agent_id: self.id.into(),
            complete: page.because.is_none(),
            incomplete_because: page.because,
            from_block: Some(page.first).filter(|first| *first > 0),
            limit: u64::try_from(self.limit).unwrap_or(u64::MAX),
            data,
            next: page.next,
            as_of: self.at.into(),
        })
    }

    /// Returns whether an event belongs to this page or a later one.
    fn is_due(&self, log: &EventLog) -> bool {
        self.cursor.is_none_or(|cursor| position(log) >= (cursor.block, cursor.log_index))
    }
}

const fn position(log: &EventLog) -> (u64, u64) {
    (log.number, log.index)
}
