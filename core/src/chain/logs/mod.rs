//! Logs and headers of certain blocks, all of the chain that the run's pinned block is of.
//!
//! Nodes cap `eth_getLogs` by blocks (10, 1,000, 2,000, 10,000) or by results, and the range that an error suggests may be the
//! one that has just failed: a refused range is halved, whatever the error says. Every batch asks for the header at the pinned
//! block's height as well: a machine behind a load balancer that lacks the block would list no logs of it either. So a node
//! that takes no batches counts as one without logs.

mod event_log;
mod hint;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use alloy_primitives::{Address, B256, U256};

pub(crate) use event_log::{EventLog, Filter};
pub(crate) use hint::{EVENTS, Moment};

use super::block::Header;
use crate::eth::rpc::Request;
use hint::Hint;

/// Requests of a batch, the pinned block's header included: nodes that cap batches take as many, or say so.
const REQUESTS: usize = 20;

/// Which logs of the registry, and what may be spent on them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogsQuery {
    pub(crate) registry: Address,
    /// `None`: the events of all agents, of which only [hints](FoundLogs) are kept.
    pub(crate) filter: Option<Filter>,
    /// The first block.
    pub(crate) from: u64,
    /// The last block.
    pub(crate) to: u64,
    /// Blocks that the endpoint takes in one call, as far as that is known.
    pub(crate) range: Option<u64>,
    /// `eth_getLogs` calls at most.
    pub(crate) most_calls: u64,
    /// Where these calls do not suffice for all blocks, the first ones are read instead of none.
    pub(crate) may_end_early: bool,
}

/// Why there are no logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoLogs {
    /// The node serves none.
    Unserved,
    /// The node takes at most so many blocks at a time: more calls than may be spent.
    ShortRanges(u64),
}

/// What was found in the blocks that were answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundLogs {
    /// Without a filter: agents that had an event.
    pub(crate) ids: BTreeSet<u64>,
    /// Without a filter: the last event of an agent that set its status.
    pub(crate) moments: BTreeMap<u64, Moment>,
    /// Without a filter: the highest block that had an event.
    pub(crate) last: Option<u64>,
    /// There was at least one log.
    pub(crate) is_any: bool,
    /// With a filter: the events, as they came in.
    pub(crate) logs: Vec<EventLog>,
    /// Blocks of the longest range that was answered, where one was refused.
    pub(crate) range: Option<u64>,
    /// Blocks from this one on were not asked about.
    pub(crate) unasked: Option<u64>,
}

/// The logs of one query, as far as they are known.
#[derive(Debug)]
pub(super) struct LogWalk {
    pub(super) query: LogsQuery,
    /// Ranges that are not answered, the lowest first.
    open: VecDeque<(u64, u64)>,
    /// Blocks of a range at most.
    range: u64,
    /// Whether the endpoint takes such ranges is unknown: one is enough to find out.
    is_first_range: bool,
    found: FoundLogs,
    refused: Option<NoLogs>,
}

impl LogWalk {
    fn new(query: LogsQuery) -> Self {
        let range = query.range.unwrap_or(u64::MAX).max(1);
        let is_first_range = query.filter.is_some();
        let all = (query.from, query.to);
        let mut walk = Self {
            query,
            open: VecDeque::new(),
            range,
            is_first_range,
            found: FoundLogs::default(),
            refused: None,
        };
        if all.0 <= all.1 {
            walk.plan(&[all]);
        }
        walk
    }

    /// Plans the calls for these ranges, if they are not too many together, or for the first of them.
    fn plan(&mut self, ranges: &[(u64, u64)]) {
        let calls: u64 = ranges.iter().map(|(from, to)| (to - from + 1).div_ceil(self.range)).sum();
        if calls > self.query.most_calls && !self.query.may_end_early {
            self.refused = Some(NoLogs::ShortRanges(self.range));
            return;
        }
        let mut left = self.query.most_calls;
        for &(from, to) in ranges {
            let mut start = from;
            while start <= to {
                if left == 0 {
                    self.found.unasked.get_or_insert(start);
                    return;
                }
                left -= 1;
                let stop = start.saturating_add(self.range - 1).min(to);
                self.open.push_back((start, stop));
                start = stop + 1;
            }
        }
    }

    /// Halves the ranges that are not answered.
    fn halve(&mut self) {
        let longest = self.open.iter().map(|(from, to)| to - from + 1).max().unwrap_or(1);
        if longest == 1 {
            self.refuse();
            return;
        }
        let mut ranges: Vec<(u64, u64)> = self.open.drain(..).collect();
        if self.query.may_end_early {
            ranges.extend(self.found.unasked.take().map(|unasked| (unasked, self.query.to)));
        }
        self.range = longest / 2;
        self.is_first_range = self.query.filter.is_some();
        self.found.range = Some(self.range);
        self.plan(&ranges);
    }

    fn refuse(&mut self) {
        self.refused = Some(NoLogs::Unserved);
    }

    /// Reads the result for one range; false where it is none.
    fn take(&mut self, range: (u64, u64), text: &str) -> bool {
        if let Some(filter) = &self.query.filter {
            let Some(logs) = event_log::parse(text, self.query.registry, filter, range) else { return false };
            self.is_first_range = false;
            self.found.is_any |= !logs.is_empty();
            self.found.logs.extend(logs);
        } else {
            let Ok(hints) = serde_json::from_str::<Vec<Hint>>(text) else { return false };
            self.found.is_any |= !hints.is_empty();
            self.found.last = self.found.last.max(hints.iter().filter_map(Hint::number).max());
            self.found.ids.extend(hints.iter().filter_map(Hint::agent));
            for (id, moment) in hints.iter().filter_map(Hint::moment) {
                let last = self.found.moments.entry(id).or_insert(moment);
                if last.number <= moment.number {
                    *last = moment;
                }
            }
        }
        self.open.retain(|open| *open != range);
        true
    }

    /// The logs, or why there are none; `None` where they are not all known yet.
    pub(super) fn outcome(&self) -> Option<Result<&FoundLogs, NoLogs>> {
        match self.refused {
            Some(refused) => Some(Err(refused)),
            None => self.open.is_empty().then_some(Ok(&self.found)),
        }
    }

    /// The events before the first block that is not answered, and that block.
    pub(super) fn settled(&self) -> (impl Iterator<Item = &EventLog>, Option<u64>) {
        let open = self.open.iter().map(|(from, _)| *from).chain(self.found.unasked).min();
        (self.found.logs.iter().filter(move |log| open.is_none_or(|open| log.number < open)), open)
    }

    fn request(&self, id: u64, (from, to): (u64, u64)) -> Request {
        let list =
            |words: &[B256]| words.iter().map(|word| format!(r#""{word}""#)).collect::<Vec<_>>().join(",");
        let topics = match &self.query.filter {
            None => format!("[{}]", list(&EVENTS)),
            Some(Filter { events, agents }) => {
                let agents: Vec<B256> = agents.iter().map(|id| U256::from(*id).into()).collect();
                format!("[{}],[{}]", list(events), list(&agents))
            }
        };
        let params = format!(
            r#"[{{"address":"{:#x}","fromBlock":"{from:#x}","toBlock":"{to:#x}","topics":[{topics}]}}]"#,
            self.query.registry
        );
        Request { id, method: "eth_getLogs", params }
    }
}

/// One request for a block's header, or for the logs of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockRequest {
    Header {
        number: u64,
        /// A node that has the pinned block and not this one has pruned it: that is an answer.
        may_lack: bool,
    },
    Logs {
        /// The walk's place.
        walk: usize,
        range: (u64, u64),
    },
}

/// What is known of blocks beside the pinned one.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// By height; `None` where the node has pruned it.
    pub(super) headers: BTreeMap<u64, Option<Header>>,
    walks: Vec<LogWalk>,
    /// What the query misses: headers, each with whether it may be lacking.
    wanted_headers: BTreeMap<u64, bool>,
    /// What the query misses: the walks' places.
    wanted_walks: Vec<usize>,
}

impl Blocks {
    /// Notes what a query misses, until the next reply.
    pub(super) fn want(&mut self, headers: BTreeMap<u64, bool>, logs: Vec<LogsQuery>) {
        self.wanted_headers = headers;
        self.wanted_walks.clear();
        for query in logs {
            let place = self.walks.iter().position(|walk| walk.query == query).unwrap_or_else(|| {
                self.walks.push(LogWalk::new(query));
                self.walks.len() - 1
            });
            if self.walks.get(place).is_some_and(|walk| walk.outcome().is_none()) {
                self.wanted_walks.push(place);
            }
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.wanted_headers.is_empty() || !self.wanted_walks.is_empty()
    }

    pub(super) fn walk(&self, query: &LogsQuery) -> Option<&LogWalk> {
        self.walks.iter().find(|walk| walk.query == *query)
    }

    /// Without the pinned block's header in the same batch, whether a machine has the blocks of its logs is unknown.
    pub(super) fn refuse_unvouched_logs(&mut self) {
        for place in std::mem::take(&mut self.wanted_walks) {
            self.refuse(place);
        }
    }

    /// What to ask next, in at most `most` requests, the header at `pinned` among them.
    pub(super) fn requests(&self, pinned: u64, most: usize) -> Vec<BlockRequest> {
        let headers = self
            .wanted_headers
            .iter()
            .map(|(number, may_lack)| BlockRequest::Header { number: *number, may_lack: *may_lack });
        let logs = self.wanted_walks.iter().filter_map(|place| Some((*place, self.walks.get(*place)?)));
        let logs = logs.flat_map(|(walk, logs)| {
            let ranges = if logs.is_first_range { 1 } else { usize::MAX };
            logs.open.iter().take(ranges).map(move |range| BlockRequest::Logs { walk, range: *range })
        });
        let most = most.min(REQUESTS);
        let vouching = (most > 1 && !self.wanted_headers.contains_key(&pinned))
            .then_some(BlockRequest::Header { number: pinned, may_lack: false });
        vouching.into_iter().chain(headers).chain(logs).take(most).collect()
    }

    /// The JSON-RPC requests, their ids counted from 0.
    pub(super) fn encode(&self, requests: &[BlockRequest]) -> Vec<Request> {
        let request = |(id, request): (u64, &BlockRequest)| match *request {
            BlockRequest::Header { number, .. } => {
                let params = format!(r#"["{number:#x}",false]"#);
                Some(Request { id, method: "eth_getBlockByNumber", params })
            }
            BlockRequest::Logs { walk, range } => Some(self.walks.get(walk)?.request(id, range)),
        };
        (0..).zip(requests).filter_map(request).collect()
    }

    /// Reads the logs of a range; false where the result is none.
    pub(super) fn take_logs(&mut self, walk: usize, range: (u64, u64), text: &str) -> bool {
        self.walks.get_mut(walk).is_some_and(|walk| walk.take(range, text))
    }

    /// The node refuses a range of this walk.
    pub(super) fn halve(&mut self, walk: usize) {
        if let Some(walk) = self.walks.get_mut(walk) {
            walk.halve();
        }
    }

    /// Whether a walk asks about single blocks only.
    pub(super) fn is_of_one_block(&self, walk: usize) -> bool {
        self.walks.get(walk).is_none_or(|walk| walk.open.iter().all(|(from, to)| from == to))
    }

    /// The node serves no logs.
    pub(super) fn refuse(&mut self, walk: usize) {
        if let Some(walk) = self.walks.get_mut(walk) {
            walk.refuse();
        }
    }

    /// Forgets what the query missed: it says so again.
    pub(super) fn ask_again(&mut self) {
        self.wanted_headers.clear();
        self.wanted_walks.clear();
    }
}
