//! What an index asks beside the registry's state: whether blocks are still canonical, and who had an event between two blocks.
//!
//! Nodes cap `eth_getLogs` by blocks (10, 1,000, 2,000, 10,000) or by results, and what range an error suggests may be the one that
//! has just failed: a range that is refused is halved, whatever the error says. Every batch asks for the header of the newest block
//! too, by its height: a machine behind a load balancer that has not got it would know no logs of it either. A node that takes no
//! batches counts as one without events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use alloy_primitives::{Address, B256, U256};

use super::{
    event_log::{self, EventLog, Filter},
    hint::{EVENTS, Log, Moment},
};
use crate::{
    chain::{Batch, Failure, Header, Limits, Reply, RunError},
    eth::rpc::{
        self, BadReply, ErrorPayload, Request,
        read_error::{Action, classify},
    },
};

/// Requests of a batch: nodes that cap batches take as many, or say so.
const REQUESTS: usize = 20;
/// A batch of the header and one range is as small as it gets where a reply was too much.
const LEAST: usize = 2;
/// Batches that may bring nothing.
const PATIENCE: u32 = 6;

/// One thing asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Header(u64),
    /// The events of these blocks, both included.
    Events(u64, u64),
}

/// How an exchange ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All is answered.
    Known(Known),
    /// The newest block is no more canonical.
    HeadMoved,
    /// The node serves no logs.
    NoEvents,
    /// The node serves so few blocks at a time, at most so many, that it takes more calls than the logs are worth.
    ShortRanges(u64),
}

/// What was found out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    /// The headers of the blocks asked about, by height.
    pub(super) headers: BTreeMap<u64, Header>,
    /// Agents that had an event.
    pub(super) ids: BTreeSet<u64>,
    /// The last event of an agent that set its status.
    pub(super) moments: BTreeMap<u64, Moment>,
    /// The block that is known to have an event has none.
    pub(super) lacks_known_event: bool,
    /// The highest block that had an event.
    pub(super) last_event: Option<u64>,
    /// Blocks of the longest range that was answered, where one was refused.
    pub(super) log_range: Option<u64>,
    /// The events of a filter, as they came in.
    pub(super) logs: Vec<EventLog>,
    /// Blocks from this one on were not asked about.
    pub(super) unasked: Option<u64>,
}

impl Known {
    /// Whether the block that the header of that height belongs to is still canonical.
    pub(super) fn has(&self, number: u64, hash: B256) -> bool {
        self.headers.get(&number).is_some_and(|header| header.hash == hash)
    }
}

/// An exchange on its way.
#[derive(Debug)]
pub(super) struct Exchange {
    registry: Address,
    limits: Limits,
    head: Header,
    queue: VecDeque<Item>,
    flight: Vec<Item>,
    known: Known,
    /// Blocks of a range at most.
    range: u64,
    /// `eth_getLogs` calls at most.
    most_calls: u64,
    /// A block that is known to have an event.
    canary: Option<u64>,
    /// The events asked for; `None` is those of all agents, of which only little is kept.
    filter: Option<Filter>,
    /// Nobody knows yet whether the endpoint takes as long ranges: one is enough to find out.
    is_first_range: bool,
    /// Where the events asked for end, if it may end earlier than that.
    goal: Option<u64>,
    /// Headers that the endpoint has no more may stay unknown.
    may_lack_headers: bool,
    requests: usize,
    endpoint: usize,
    endpoints: usize,
    idle: u32,
    end: Option<End>,
}

impl Exchange {
    /// Asks an endpoint of so many.
    pub(super) fn new(
        (registry, limits): (Address, Limits),
        head: Header,
        (endpoint, endpoints): (usize, usize),
        most_calls: u64,
    ) -> Self {
        Self {
            registry,
            limits,
            head,
            queue: VecDeque::from([Item::Header(head.number)]),
            flight: Vec::new(),
            known: Known::default(),
            range: u64::MAX,
            most_calls,
            canary: None,
            filter: None,
            is_first_range: false,
            goal: None,
            may_lack_headers: false,
            requests: REQUESTS,
            endpoint,
            endpoints: endpoints.max(1),
            idle: 0,
            end: None,
        }
    }

    /// Asks for the headers at these heights, too.
    pub(super) fn headers(mut self, numbers: impl IntoIterator<Item = u64>) -> Self {
        self.queue.extend(numbers.into_iter().filter(|number| *number != self.head.number).map(Item::Header));
        self
    }

    /// The same of blocks that are older than the newest one for certain: whoever has that, and not these, has pruned them.
    pub(super) fn headers_if_kept(mut self, numbers: impl IntoIterator<Item = u64>) -> Self {
        self.may_lack_headers = true;
        self.headers(numbers)
    }

    /// Asks for the events of a block that is known to have some: a node that has none there has pruned its logs, or keeps none,
    /// and says so by an empty list.
    pub(super) fn canary(mut self, number: Option<u64>) -> Self {
        self.canary = number;
        self.queue.extend(number.map(|number| Item::Events(number, number)));
        self
    }

    /// Of all events asks for these.
    pub(super) fn only(mut self, filter: Filter) -> Self {
        self.filter = Some(filter);
        self.is_first_range = true;
        self
    }

    /// Where the calls do not suffice for all blocks, asks about the first of them.
    pub(super) const fn or_fewer(mut self, to: u64) -> Self {
        self.goal = Some(to);
        self
    }

    /// Asks for events of these blocks, both included, at most `range` blocks at a time.
    pub(super) fn events(mut self, from: u64, to: u64, range: Option<u64>) -> Self {
        self.range = range.unwrap_or(u64::MAX).max(1);
        if from <= to {
            self.plan(&[(from, to)]);
        }
        self
    }

    /// The end, once it is reached.
    pub(super) fn end(&mut self) -> Option<End> {
        let mut open = self.queue.iter().chain(&self.flight);
        if self.requests == 1 && open.any(|item| matches!(item, Item::Events(..))) {
            // Without the header in the same batch nobody can tell whether a machine has the blocks whose events it lists.
            return Some(End::NoEvents);
        }
        if self.end.is_none() && self.queue.is_empty() && self.flight.is_empty() {
            self.end = Some(End::Known(std::mem::take(&mut self.known)));
        }
        self.end.take()
    }

    /// Plans the calls for these ranges, if they are not too many together, or for the first of them.
    fn plan(&mut self, ranges: &[(u64, u64)]) {
        let calls: u64 = ranges.iter().map(|(from, to)| (to - from + 1).div_ceil(self.range)).sum();
        if calls > self.most_calls && self.goal.is_none() {
            self.end = Some(End::ShortRanges(self.range));
            return;
        }
        let mut left = self.most_calls;
        for &(from, to) in ranges {
            let mut start = from;
            while start <= to {
                if left == 0 {
                    self.known.unasked.get_or_insert(start);
                    return;
                }
                left -= 1;
                let stop = start.saturating_add(self.range - 1).min(to);
                self.queue.push_back(Item::Events(start, stop));
                start = stop + 1;
            }
        }
    }

    /// The events before the first block that is still to be asked about, and that block.
    pub(super) fn settled(&self) -> (impl Iterator<Item = &EventLog>, Option<u64>) {
        let open = self.queue.iter().chain(&self.flight).filter_map(|item| match *item {
            Item::Events(from, to) if self.canary != Some(from) || from != to => Some(from),
            Item::Events(..) => Some(0),
            Item::Header(_) => None,
        });
        let open = open.chain(self.known.unasked).min();
        (self.known.logs.iter().filter(move |log| open.is_none_or(|open| log.number < open)), open)
    }

    /// Asks no more: what is settled will do.
    pub(super) fn stop(&mut self) {
        let (_, open) = self.settled();
        self.known.logs.retain(|log| open.is_none_or(|open| log.number < open));
        self.known.unasked = open;
        self.queue.clear();
        self.flight.clear();
    }

    /// The next batch.
    pub(super) fn batch(&mut self) -> Batch {
        self.take_back();
        let room = self.requests.saturating_sub(1).max(1).min(self.queue.len());
        let is_range =
            |item: &Item| matches!(*item, Item::Events(from, to) if from != to || self.canary != Some(from));
        let room = match self.queue.iter().position(is_range) {
            Some(first) if self.is_first_range => room.min(first + 1),
            _ => room,
        };
        let next: Vec<Item> = self.queue.drain(..room).collect();
        let head = Item::Header(self.head.number);
        // Beside the header of the newest block, where a batch may hold more than one.
        let with_head = self.requests > 1 && !next.contains(&head);
        self.flight = with_head.then_some(head).into_iter().chain(next).collect();
        let requests: Vec<Request> =
            (0..).zip(&self.flight).map(|(id, item)| self.request(id, *item)).collect();
        let others = u32::try_from(self.endpoints - 1).unwrap_or(u32::MAX);
        let delay_ms = self.idle.saturating_sub(others).min(4).pow(2) * 100;
        let Limits { timeout_ms, max_reply_bytes, .. } = self.limits;
        Batch { endpoint: self.endpoint, body: rpc::encode(&requests), delay_ms, timeout_ms, max_reply_bytes }
    }

    fn request(&self, id: u64, item: Item) -> Request {
        match item {
            Item::Header(number) => {
                rpc::request(id, "eth_getBlockByNumber", format!(r#"["{number:#x}",false]"#))
            }
            Item::Events(from, to) => {
                let list = |words: &[B256]| {
                    words.iter().map(|word| format!(r#""{word}""#)).collect::<Vec<_>>().join(",")
                };
                let topics = match &self.filter {
                    None => format!("[{}]", list(&EVENTS)),
                    Some(Filter { events, agents }) => {
                        let agents: Vec<B256> = agents.iter().map(|id| U256::from(*id).into()).collect();
                        format!("[{}],[{}]", list(events), list(&agents))
                    }
                };
                let params = format!(
                    r#"[{{"address":"{:#x}","fromBlock":"{from:#x}","toBlock":"{to:#x}","topics":[{topics}]}}]"#,
                    self.registry
                );
                rpc::request(id, "eth_getLogs", params)
            }
        }
    }

    /// What was on its way is asked again.
    fn take_back(&mut self) {
        for item in std::mem::take(&mut self.flight).into_iter().rev() {
            if !self.queue.contains(&item) {
                self.queue.push_front(item);
            }
        }
    }

    /// Takes a reply.
    ///
    /// # Errors
    ///
    /// [`RunError`] where no endpoint is left to ask.
    pub(super) fn feed(&mut self, reply: Reply<'_>) -> Result<(), RunError> {
        let ids: Vec<u64> = (0..self.flight.len() as u64).collect();
        let mut outcomes = match rpc::decode(reply.body, &ids) {
            Ok(outcomes) => outcomes,
            Err(BadReply::Refused(error)) => return self.refused(&error, reply.status),
            Err(BadReply::Malformed) if reply.status == 413 => return self.smaller(1, RunError::Http(413)),
            Err(BadReply::Malformed) => {
                let error =
                    if reply.status == 200 { RunError::Malformed } else { RunError::Http(reply.status) };
                return self.idle(error);
            }
        };
        let mut absent = Vec::new();
        let (mut lags, mut answered, mut headers, mut agents) = (false, Vec::new(), Vec::new(), Vec::new());
        let (mut malformed, mut refusal, mut missed) = (false, None, false);
        let (mut moments, mut of_filter) = (Vec::new(), Vec::new());
        for (id, item) in (0..).zip(&self.flight) {
            match (*item, outcomes.remove(&id)) {
                (_, None) => {}
                (Item::Header(number), Some(Ok(text))) => {
                    match serde_json::from_str::<Option<Header>>(text) {
                        Ok(Some(header)) if number == self.head.number && header.hash != self.head.hash => {
                            self.end = Some(End::HeadMoved);
                            return Ok(());
                        }
                        Ok(Some(header)) => {
                            headers.push((number, header));
                            answered.push(*item);
                        }
                        Ok(None) if self.may_lack(number) => absent.push(*item),
                        // Whoever lacks the newest block lacks its logs.
                        Ok(None) => lags = true,
                        Err(_) => malformed = true,
                    }
                }
                (Item::Events(from, to), Some(Ok(text))) if let Some(filter) = &self.filter => {
                    match event_log::parse(text, self.registry, filter, (from, to)) {
                        Some(logs) if from == to && self.canary == Some(from) => {
                            missed |= !logs.iter().any(EventLog::is_registration);
                            answered.push(*item);
                        }
                        Some(logs) => {
                            self.is_first_range = false;
                            of_filter.extend(logs);
                            answered.push(*item);
                        }
                        None => malformed = true,
                    }
                }
                (Item::Events(..), Some(Ok(text))) => match serde_json::from_str::<Vec<Log>>(text) {
                    Ok(logs) => {
                        if self.canary.map(|number| Item::Events(number, number)) == Some(*item) {
                            missed |= logs.is_empty();
                        } else {
                            let last = logs.iter().filter_map(Log::number).max();
                            self.known.last_event = self.known.last_event.max(last);
                            agents.extend(logs.iter().filter_map(Log::agent));
                            moments.extend(logs.iter().filter_map(Log::moment));
                        }
                        answered.push(*item);
                    }
                    Err(_) => malformed = true,
                },
                // A refusal of a range tells more than one of a header.
                (Item::Events(..), Some(Err(error))) => refusal = Some(error),
                (Item::Header(number), Some(Err(error)))
                    if self.may_lack(number) && classify(&error) == Action::Repin =>
                {
                    absent.push(*item);
                }
                (Item::Header(_), Some(Err(error))) => refusal = refusal.or(Some(error)),
            }
        }
        if answered.contains(&Item::Header(self.head.number)) {
            answered.append(&mut absent);
        }
        lags |= !absent.is_empty();
        if lags {
            return self.idle(RunError::BlockUnavailable);
        }
        self.known.headers.extend(headers);
        self.known.logs.extend(of_filter);
        self.known.ids.extend(agents);
        for (id, moment) in moments {
            let last = self.known.moments.entry(id).or_insert(moment);
            if last.number <= moment.number {
                *last = moment;
            }
        }
        self.known.lacks_known_event |= missed;
        let brought = !answered.is_empty();
        self.flight.retain(|item| !answered.contains(item));
        match refusal {
            Some(error) => self.refused(&error, reply.status),
            None if malformed => self.idle(RunError::Malformed),
            None if brought => {
                self.take_back();
                Ok(())
            }
            None => self.idle(RunError::Stalled),
        }
    }

    fn may_lack(&self, number: u64) -> bool {
        self.may_lack_headers && number != self.head.number
    }

    /// A node's error about the batch, or about a range of events.
    fn refused(&mut self, error: &ErrorPayload, status: u16) -> Result<(), RunError> {
        let has_events = self.flight.iter().any(|item| matches!(item, Item::Events(..)));
        // Some have one code for too many requests and too many blocks: -32005.
        let message = error.message.to_ascii_lowercase();
        let names_range = ["range", "result", "block", "log"].iter().any(|word| message.contains(word));
        match classify(error) {
            Action::SmallerBatch if self.flight.len() > 1 => self.smaller(1, RunError::node(error)),
            Action::Retry if !(has_events && names_range) => self.idle(RunError::node(error)),
            _ if matches!(status, 429 | 500..) && self.idle == 0 => self.idle(RunError::node(error)),
            _ if error.code == -32601 && has_events => {
                self.end = Some(End::NoEvents);
                Ok(())
            }
            _ if has_events => {
                self.halve();
                Ok(())
            }
            _ => self.idle(RunError::node(error)),
        }
    }

    /// Half as many requests in a batch, but so many at least; where they are as few already, half as many blocks. False where less
    /// cannot be asked.
    fn shrink(&mut self, least: usize) -> bool {
        if self.flight.len() > least {
            self.requests = (self.flight.len() / 2).max(least);
            return true;
        }
        let has_events = self.flight.iter().any(|item| matches!(item, Item::Events(..)));
        if has_events {
            self.halve();
        }
        has_events
    }

    /// Less at once, or another endpoint where that is not possible.
    fn smaller(&mut self, least: usize, error: RunError) -> Result<(), RunError> {
        if self.shrink(least) { Ok(()) } else { self.idle(error) }
    }

    /// Half as many blocks in a range, for all that is still to be asked.
    fn halve(&mut self) {
        self.take_back();
        let mut ranges: Vec<(u64, u64)> = self
            .queue
            .iter()
            .filter_map(|item| match item {
                Item::Events(from, to) => Some((*from, *to)),
                Item::Header(_) => None,
            })
            .collect();
        let longest = ranges.iter().map(|(from, to)| to - from + 1).max().unwrap_or(1);
        if longest == 1 {
            self.end = Some(End::NoEvents);
            return;
        }
        ranges.extend(self.known.unasked.take().zip(self.goal));
        self.queue.retain(|item| matches!(item, Item::Header(_)));
        self.range = longest / 2;
        self.is_first_range = self.filter.is_some();
        self.known.log_range = Some(self.range);
        self.plan(&ranges);
    }

    /// Nothing came back.
    ///
    /// # Errors
    ///
    /// [`RunError`] where no endpoint is left to ask.
    pub(super) fn fail(&mut self, failure: Failure) -> Result<(), RunError> {
        let seconds = self.limits.timeout_ms.div_ceil(1_000);
        match failure {
            Failure::Unreachable => self.idle(RunError::Unreachable),
            Failure::TimedOut => {
                // The first time it was the endpoint, for all anybody knows; from then on less is asked of the next one.
                if self.idle > 0 {
                    self.shrink(LEAST);
                }
                self.idle(RunError::TimedOut { seconds })
            }
            Failure::TooLarge => self.smaller(LEAST, RunError::Malformed),
        }
    }

    /// Another endpoint, after a pause once each has had its chance.
    fn idle(&mut self, error: RunError) -> Result<(), RunError> {
        self.idle += 1;
        if self.idle > PATIENCE {
            return Err(error);
        }
        self.endpoint = (self.endpoint + 1) % self.endpoints;
        Ok(())
    }
}
