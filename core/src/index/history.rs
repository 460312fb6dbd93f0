//! What happened to one agent, from the events that an RPC endpoint lists of it.
//!
//! The index answers this, though its rows do not tell it. It knows a block that is canonical, when the agent was registered, and whose parent
//! it is: a question to the chain alone would have to find out all of that first. It keeps no events. They would be as many as all
//! that ever happened, and those from before the index began would still have to be asked for.
//!
//! ```text
//!   Events --> Children --> Times --> Done
//!    |  ^      where it     where the
//!    v  |      has any      events do
//!   Search                  not say
//! ```
//!
//! First all blocks are asked about in one call. An endpoint that takes no such range is asked from the block of the registration on,
//! which the times of blocks lead to ([`Stage::Search`]: 18 blocks in a round trip, six round trips for 40 million blocks), in as long
//! ranges as it takes. The ranges that it takes for the events of all agents together, which a refresh finds out, are shorter: they say nothing here. An answer makes at most [`MOST_CALLS`] such calls for the agent, and as many for its children. Where they do not suffice, the page
//! ends early and `next` goes on. Where [`MOST_PAGES`] such pages would not do, the newest blocks are asked about instead, in as many
//! calls again: the history begins there, and says so.
//!
//! Every batch asks for the header of the index's block as well, so that no reply is of another chain: an event of a block that was
//! reorganised is never told. A history is complete where the event of the registration was found, and every range from it on was answered: a
//! node that has pruned its events says that there are none. A later page asks for the registration's block again.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::Address;
use alloy_sol_types::SolEvent;

use super::{
    IndexError,
    event_log::{EventLog, Filter},
    exchange::{End, Exchange, Known},
    hint::EVENTS,
    state::{Checkpoint, State},
    store::{Columns, Store, ordered},
    tables,
    work::{Config, Step},
};
use crate::{
    chain::QueryError,
    chain::{Endpoints, Failure, Header, Limits, Reply},
    eth::abi::IAgentRegistry::AgentRegistered,
    eth::timestamp::Timestamp,
    registry::agent::AgentId,
    registry::history::{AgentHistory, Event, HistoryCursor, HistoryEvent, IncompleteBecause},
};

/// `eth_getLogs` calls for the agent's own events: five batches.
const MOST_CALLS: u64 = 95;
/// Pages that may end early.
const MOST_PAGES: u64 = 16;
/// Blocks whose times are asked for at once in the search for the registration.
const PROBES: u64 = 18;
/// Bytes of texts on a page, beyond which it ends: reasons may be of any length.
const PAGE_TEXT_BYTES: usize = 256 * 1024;

/// One history being read; driven as [`Work`](super::Work) is, without a store.
#[derive(Debug)]
pub struct History {
    registry: Address,
    limits: Limits,
    /// The endpoint to ask first, and how many there are.
    endpoints: (usize, usize),
    at: Checkpoint,
    id: u64,
    registered_at: u64,
    /// The next children, by id: as many as a page has room for, and one to go on at.
    children: Vec<u64>,
    limit: usize,
    cursor: Option<HistoryCursor>,
    /// The block that events are asked for from on.
    from: u64,
    /// Events before that block are not asked for, as they are too many calls away.
    newest_only: bool,
    /// Blocks that the endpoint takes in one call, as far as is known.
    range: Option<u64>,
    stage: Stage,
    answer: Option<AgentHistory>,
}

#[derive(Debug)]
enum Stage {
    /// The agent's own events.
    Events(Box<Exchange>),
    /// The block of the registration: the first one as late as that, behind `before` and at most `found`.
    Search {
        before: u64,
        found: u64,
        /// The blocks between them that are asked about.
        probes: BTreeSet<u64>,
        exchange: Box<Exchange>,
    },
    /// The registrations of its children, beside its own events.
    Children(Box<Exchange>, Page),
    /// The times of the page's blocks.
    Times(Box<Exchange>, Page),
    Done,
}

/// What a page will hold.
#[derive(Clone, Debug, Default)]
struct Page {
    logs: Vec<EventLog>,
    because: Option<IncompleteBecause>,
    /// The block that the history begins at; 0 where that is not known.
    first: u64,
    /// Blocks from this one on were not asked about.
    unasked: Option<u64>,
    next: Option<HistoryCursor>,
}

impl History {
    /// Begins to read a page of an agent's history, as of the index's block.
    ///
    /// # Errors
    ///
    /// [`QueryError::AgentNotFound`], [`IndexError::Incomplete`], [`IndexError::Store`].
    pub fn begin(
        store: &impl Store,
        state: &State,
        config: &Config,
        endpoints: &Endpoints,
        (id, limit, cursor): (AgentId, u64, Option<HistoryCursor>),
    ) -> Result<Self, IndexError> {
        let Some(at) = state.as_of() else { return Err(IndexError::Incomplete { percent: state.percent() }) };
        let number = u64::try_from(id.0).ok();
        let entry = number.map(|id| tables::find(store, id)).transpose()?.flatten();
        let (Some(number), Some(entry)) = (number, entry) else {
            return Err(QueryError::AgentNotFound(id).into());
        };
        let statement = "SELECT id FROM agents WHERE parent = ?1 AND id > ?2 ORDER BY id LIMIT ?3";
        let told = cursor.map_or(0, |cursor| cursor.child);
        let children =
            store.execute(statement, &[ordered(number), told.into(), limit.saturating_add(1).into()])?;
        let children = children.into_iter().map(|row| Columns::of(row).number()).collect::<Result<_, _>>()?;
        let mut history = Self {
            registry: config.registry,
            limits: config.limits,
            endpoints: (endpoints.preferred(), endpoints.count()),
            at,
            id: number,
            registered_at: entry.row.registered_at,
            children,
            limit: usize::try_from(limit).unwrap_or(usize::MAX),
            cursor,
            from: cursor.map_or(0, |cursor| cursor.block),
            newest_only: false,
            range: None,
            stage: Stage::Done,
            answer: None,
        };
        history.ask_for_events();
        Ok(history)
    }

    /// Goes on as far as the replies known allow.
    pub fn step(&mut self) -> Step {
        loop {
            self.stop_early();
            let end = match &mut self.stage {
                Stage::Done => return Step::Done,
                Stage::Events(exchange)
                | Stage::Search { exchange, .. }
                | Stage::Children(exchange, _)
                | Stage::Times(exchange, _) => match exchange.end() {
                    None => return Step::Send(exchange.batch()),
                    Some(end) => end,
                },
            };
            self.take(end);
        }
    }

    /// Takes the reply to the last batch.
    ///
    /// # Errors
    ///
    /// [`IndexError`] where no endpoint answers.
    pub fn feed(&mut self, reply: Reply<'_>) -> Result<(), IndexError> {
        match &mut self.stage {
            Stage::Done => Ok(()),
            Stage::Events(exchange)
            | Stage::Search { exchange, .. }
            | Stage::Children(exchange, _)
            | Stage::Times(exchange, _) => Ok(exchange.feed(reply)?),
        }
    }

    /// Takes note that nothing came back.
    ///
    /// # Errors
    ///
    /// [`IndexError`] where no endpoint answers.
    pub fn fail(&mut self, failure: Failure) -> Result<(), IndexError> {
        match &mut self.stage {
            Stage::Done => Ok(()),
            Stage::Events(exchange)
            | Stage::Search { exchange, .. }
            | Stage::Children(exchange, _)
            | Stage::Times(exchange, _) => Ok(exchange.fail(failure)?),
        }
    }

    /// The answer, once there is nothing more to do; `None` where the index's block is no more canonical: begin again after a refresh.
    pub fn answer(self) -> Option<AgentHistory> {
        self.answer
    }

    fn exchange(&self) -> Exchange {
        let Checkpoint { number, hash, seconds } = self.at;
        let head = Header { number, hash, parent_hash: hash, timestamp: seconds };
        Exchange::new((self.registry, self.limits), head, self.endpoints, MOST_CALLS)
    }

    fn ask_for_events(&mut self) {
        let filter = Filter { events: EVENTS.to_vec(), agents: vec![self.id] };
        let first =
            self.cursor.map(|cursor| cursor.first).filter(|first| (1..=self.at.number).contains(first));
        let registration = first.filter(|first| *first < self.from);
        let mut exchange = self.exchange().headers_if_kept(first).canary(registration).only(filter);
        // Block 0 has no events: whoever asks from there on does not know better.
        if self.from > 0 {
            exchange = exchange.or_fewer(self.at.number);
        }
        self.stage = Stage::Events(Box::new(exchange.events(self.from, self.at.number, self.range)));
    }

    /// Ends the agent's own events where there are more than the page takes.
    fn stop_early(&mut self) {
        let (cursor, limit) = (self.cursor, self.limit);
        if let Stage::Events(exchange) = &mut self.stage {
            let (settled, open) = exchange.settled();
            if open.is_some() && settled.filter(|log| is_due(log, cursor)).count() > limit {
                exchange.stop();
            }
        }
    }

    fn take(&mut self, end: End) {
        match (std::mem::replace(&mut self.stage, Stage::Done), end) {
            // Nothing more, and no answer.
            (_, End::HeadMoved) | (Stage::Done, _) => {}
            (Stage::Events(_), End::Known(known)) => self.take_events(known),
            (Stage::Events(_), End::ShortRanges(range)) => {
                self.range = Some(range);
                self.search(0, self.at.number);
            }
            (Stage::Search { before, found, probes, .. }, End::Known(known)) => {
                self.narrow(before, found, &probes, &known);
            }
            (Stage::Children(_, page), End::Known(known)) => self.take_children(page, known),
            (Stage::Children(_, page), _) => {
                self.ask_for_times(Page { because: Some(IncompleteBecause::EventsMissing), ..page });
            }
            (Stage::Times(_, page), End::Known(known)) => self.take_times(page, &known),
            (Stage::Events(_) | Stage::Search { .. } | Stage::Times(..), _) => {
                self.finish(Page { because: Some(IncompleteBecause::NoLogs), ..Page::default() });
            }
        }
    }

    /// Looks for the first block as late as the registration, behind `before` and at most `found`.
    fn search(&mut self, before: u64, found: u64) {
        let blocks = found.saturating_sub(before);
        if blocks <= 1 {
            self.from = found.max(1);
            return self.ask_for_events();
        }
        let probes: BTreeSet<u64> = (1..=PROBES)
            .map(|probe| {
                let share = u128::from(blocks) * u128::from(probe) / u128::from(PROBES + 1);
                before.saturating_add(u64::try_from(share).unwrap_or(blocks))
            })
            .filter(|number| (before + 1..found).contains(number))
            .collect();
        let exchange = Box::new(self.exchange().headers_if_kept(probes.iter().copied()));
        self.stage = Stage::Search { before, found, probes, exchange };
    }

    /// Goes on between the last probe that is too early and the first that is not. Blocks without a header are pruned, so early ones.
    fn narrow(&mut self, before: u64, found: u64, probes: &BTreeSet<u64>, known: &Known) {
        let is_late = |number: &&u64| {
            known.headers.get(*number).is_some_and(|header| header.timestamp >= self.registered_at)
        };
        let first = probes.iter().find(is_late).copied().unwrap_or(found);
        let last = probes.range(..first).next_back().copied().unwrap_or(before);
        self.search(last, first);
    }

    fn take_events(&mut self, mut known: Known) {
        self.range = known.log_range.or(self.range);
        known.logs.sort_by_key(position);
        known.logs.dedup_by_key(|log| position(log));
        let registration = known.logs.iter().find(|log| log.is_registration()).map(|log| log.number);
        let logs: Vec<EventLog> = known.logs.into_iter().filter(|log| is_due(log, self.cursor)).collect();
        let is_filled = logs.len() > self.limit;
        if let Some(range) = self.range
            && known.unasked.is_some()
            && !is_filled
            && self.cursor.is_none()
            && !self.newest_only
            && self.at.number.saturating_sub(self.from) / range.max(1) >= MOST_CALLS * MOST_PAGES
        {
            self.newest_only = true;
            self.from = (self.at.number + 1).saturating_sub(MOST_CALLS.saturating_mul(range)).max(1);
            return self.ask_for_events();
        }
        let (first, because) = match (self.cursor, registration) {
            (None, Some(first)) => (first, None),
            (None, None) if self.newest_only => (self.from, Some(IncompleteBecause::LogRange)),
            (None, None) | (Some(HistoryCursor { first: 0, .. }), _) => {
                (0, Some(IncompleteBecause::EventsMissing))
            }
            (Some(HistoryCursor { first, block, .. }), registration) => {
                let is_found = if first < block { !known.lacks_known_event } else { registration.is_some() };
                // Before that block nothing was asked for, or it is that of the registration, whose event is gone.
                let is_registration =
                    known.headers.get(&first).is_none_or(|header| header.timestamp == self.registered_at);
                let because = match is_registration {
                    true => IncompleteBecause::EventsMissing,
                    false => IncompleteBecause::LogRange,
                };
                (first, (!is_found).then_some(because))
            }
        };
        let last = match logs.get(self.limit) {
            // The page ends before this one.
            Some(log) => log.number,
            None => known.unasked.map_or(self.at.number, |unasked| unasked.saturating_sub(1)),
        };
        let from = self.from.max(first);
        let page = Page { logs, because, first, unasked: known.unasked, next: None };
        if self.children.is_empty() || from > last {
            return self.ask_for_times(page);
        }
        let filter = Filter { events: vec![AgentRegistered::SIGNATURE_HASH], agents: self.children.clone() };
        let exchange = self.exchange().only(filter).or_fewer(last).events(from, last, self.range);
        self.stage = Stage::Children(Box::new(exchange), page);
    }

    fn take_children(&mut self, mut page: Page, known: Known) {
        page.logs.extend(known.logs);
        page.unasked = page.unasked.into_iter().chain(known.unasked).min();
        self.ask_for_times(page);
    }

    /// Cuts the page to its size, and asks for the times that are missing on it.
    fn ask_for_times(&mut self, mut page: Page) {
        let cursor = self.cursor;
        let is_asked = |log: &EventLog| page.unasked.is_none_or(|unasked| log.number < unasked);
        page.logs.retain(|log| is_due(log, cursor) && is_asked(log));
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
            None => page.unasked.map(|unasked| (unasked, 0)),
        };
        page.logs.truncate(fits);
        let told = page.logs.iter().filter(|log| log.agent != self.id).map(|log| log.agent).max();
        let child = told.or(cursor.map(|cursor| cursor.child)).unwrap_or(0);
        page.next =
            goes_on_at.map(|(block, log_index)| HistoryCursor { first: page.first, block, log_index, child });
        if page.next.is_none() && self.children.iter().any(|child| !found.contains(child)) {
            page.because = page.because.or(Some(IncompleteBecause::EventsMissing));
        }
        let untimed: BTreeSet<u64> =
            page.logs.iter().filter(|log| log.seconds.is_none()).map(|log| log.number).collect();
        if untimed.is_empty() {
            return self.finish(page);
        }
        let exchange = self.exchange().headers(untimed);
        self.stage = Stage::Times(Box::new(exchange), page);
    }

    fn take_times(&mut self, mut page: Page, known: &Known) {
        for log in page.logs.iter_mut().filter(|log| log.seconds.is_none()) {
            match known.headers.get(&log.number) {
                Some(header) if header.hash == log.block_hash => log.seconds = Some(header.timestamp),
                // The event was of another chain than the block.
                _ => return,
            }
        }
        self.finish(page);
    }

    fn finish(&mut self, page: Page) {
        let times: BTreeMap<u64, u64> =
            page.logs.iter().filter_map(|log| Some((log.number, log.seconds?))).collect();
        let told = |log: EventLog| HistoryEvent {
            block_number: log.number,
            time: Timestamp::from_seconds(times.get(&log.number).copied().unwrap_or_default()),
            transaction_hash: log.transaction_hash,
            log_index: log.index,
            event: match log.event {
                Event::Registered { creator, agent_wallet, .. } if log.agent != self.id => {
                    Event::ChildRegistered { child_agent_id: log.agent.into(), creator, agent_wallet }
                }
                event => event,
            },
        };
        self.answer = Some(AgentHistory {
            agent_id: self.id.into(),
            complete: page.because.is_none(),
            incomplete_because: page.because,
            from_block: Some(page.first).filter(|first| *first > 0),
            limit: u64::try_from(self.limit).unwrap_or(u64::MAX),
            data: page.logs.into_iter().map(told).collect(),
            next: page.next,
            as_of: self.at.into(),
        });
    }
}

const fn position(log: &EventLog) -> (u64, u64) {
    (log.number, log.index)
}

/// Whether an event comes on this page or a later one.
fn is_due(log: &EventLog, cursor: Option<HistoryCursor>) -> bool {
    cursor.is_none_or(|cursor| position(log) >= (cursor.block, cursor.log_index))
}
