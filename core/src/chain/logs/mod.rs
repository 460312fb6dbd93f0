//! Logs, headers and storage roots of certain blocks, all of the pinned block's chain.
//!
//! Nodes cap `eth_getLogs` by blocks (10, 1,000, 2,000, 10,000) or by results, and the range that an error
//! suggests may be the one that just failed: adaptive range splitting halves a refused range and ignores the
//! suggestion. Every batch also requests the header at the pinned block's height: a node behind a load
//! balancer that lacks the block would return no logs of it either. So a node that takes no batches counts as
//! one without logs.

mod event_log;
mod hint;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use alloy_primitives::{Address, B256, U256};

pub(crate) use event_log::{EventLog, LogFilter};
pub(crate) use hint::{Announced, EVENTS, EventKind, StatusMoment, merge_moment};

use super::block::Header;
use crate::eth::rpc::{self, Request};
use hint::Hints;

/// Requests per batch, the pinned block's header included: nodes that cap batches accept as many, or report
/// their cap.
const REQUESTS: usize = 20;

/// Query for logs of the registry, and its limits of cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogsQuery {
    pub(crate) registry: Address,
    /// `None` reads all of the registry's events and keeps only [hints](FoundLogs).
    pub(crate) filter: Option<LogFilter>,
    pub(crate) from: u64,
    /// The last block, inclusive.
    pub(crate) to: u64,
    /// Blocks per call that the endpoint is known to accept.
    pub(crate) range: Option<u64>,
    /// Maximum `eth_getLogs` calls.
    pub(crate) most_calls: u64,
    /// If the calls do not suffice for all blocks, reads the first ones instead of none.
    pub(crate) may_end_early: bool,
}

/// Reason why there are no logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoLogs {
    /// The node serves no logs.
    Unserved,
    /// The node accepts at most this many blocks per call, which takes more calls than allowed.
    ShortRanges(u64),
}

/// Logs in the answered ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundLogs {
    /// Without a filter: all events.
    pub(crate) events: Vec<Announced>,
    /// Without a filter: each agent's last event that set its status.
    pub(crate) moments: BTreeMap<u64, StatusMoment>,
    /// Without a filter: the highest block with an event.
    pub(crate) last: Option<u64>,
    /// At least one log was found.
    pub(crate) is_any: bool,
    /// With a filter: the events, in order of arrival.
    pub(crate) logs: Vec<EventLog>,
    /// Blocks of the longest range that was answered, if one was refused.
    pub(crate) range: Option<u64>,
    /// Blocks from this one on were not requested.
    pub(crate) unasked: Option<u64>,
}

/// The progress of one query.
#[derive(Debug)]
pub(super) struct LogWalk {
    pub(super) query: LogsQuery,
    /// Unanswered ranges, the lowest first.
    open: VecDeque<(u64, u64)>,
    /// Maximum blocks per range.
    range: u64,
    /// The endpoint has not accepted this range yet: one request probes it.
    is_first_range: bool,
    found: FoundLogs,
    /// A range that ends before the last block was refused.
    is_limited: bool,
    refused: Option<NoLogs>,
}

impl LogWalk {
    /// Creates the walk over these logs at a node that answers `in_time` blocks per call in time.
    fn new(query: LogsQuery, in_time: u64) -> Self {
        let range = query.range.unwrap_or(u64::MAX).min(in_time).max(1);
        let is_first_range = query.filter.is_some();
        let all = (query.from, query.to);
        let mut walk = Self {
            query,
            open: VecDeque::new(),
            range,
            is_first_range,
            found: FoundLogs::default(),
            is_limited: false,
            refused: None,
        };
        if all.0 <= all.1 {
            walk.plan(&[all]);
        }
        walk
    }

    /// Plans the calls for these ranges. Too many calls end the walk, or cut it short if the query permits.
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

    /// Returns the blocks of the longest unanswered range.
    fn longest(&self) -> u64 {
        self.open.iter().map(|(from, to)| to - from + 1).max().unwrap_or(1)
    }

    /// Divides the unanswered ranges by `by`, with the last block apart: a node may serve that block's logs
    /// later than its header, and refuse ranges beyond. If that block alone is refused, it counts as not
    /// requested, even if it is the only one.
    pub(super) fn divide(&mut self, by: u64) {
        if self.open.is_empty() {
            // The refusal was of another query's logs in the same batch.
            return;
        }
        let last = self.query.to;
        self.is_limited |= self.open.front().is_some_and(|(_, to)| *to < last);
        let longest = self.longest();
        if longest == 1 && self.open.front() == Some(&(last, last)) {
            self.open.clear();
            self.found.unasked = Some(last);
            self.found.range = self.found.range.filter(|_| self.is_limited);
            return;
        }
        if longest == 1 {
            self.refuse();
            return;
        }
        let mut ranges: Vec<(u64, u64)> = self.open.drain(..).collect();
        if self.query.may_end_early {
            ranges.extend(self.found.unasked.take().map(|unasked| (unasked, self.query.to)));
        }
        self.range = (longest / by).max(1);
        self.is_first_range = self.query.filter.is_some();
        self.found.range = Some(self.range);
        self.plan(&ranges);
        if let Some((_, to)) = self.open.back_mut().filter(|(from, to)| from < to && *to == last) {
            *to -= 1;
            self.open.push_back((last, last));
        }
    }

    pub(super) fn refuse(&mut self) {
        self.refused = Some(NoLogs::Unserved);
    }

    /// Takes the result of one range; false if it is malformed.
    pub(super) fn take(&mut self, range: (u64, u64), text: &str) -> bool {
        if let Some(filter) = &self.query.filter {
            let Some(logs) = event_log::parse(text, self.query.registry, filter, range) else { return false };
            self.is_first_range = false;
            self.found.is_any |= !logs.is_empty();
            self.found.logs.extend(logs);
        } else {
            let Ok(hints) = serde_json::from_str::<Hints>(text) else { return false };
            let is_asked = |number| number == 0 || (range.0..=range.1).contains(&number);
            if !hints.events.iter().all(|event| is_asked(event.number)) {
                return false;
            }
            self.found.is_any |= hints.is_any;
            self.found.last = self.found.last.max(hints.last);
            self.found.events.extend(hints.events);
            for (id, moment) in hints.moments {
                merge_moment(&mut self.found.moments, id, moment);
            }
        }
        self.open.retain(|open| *open != range);
        true
    }

    /// Returns the logs, or the reason why there are none; `None` if they are incomplete.
    pub(super) fn outcome(&self) -> Option<Result<&FoundLogs, NoLogs>> {
        match self.refused {
            Some(refused) => Some(Err(refused)),
            None => self.open.is_empty().then_some(Ok(&self.found)),
        }
    }

    /// Returns the events before the first unanswered block, and that block.
    pub(super) fn settled(&self) -> (impl Iterator<Item = &EventLog>, Option<u64>) {
        let open = self.open.iter().map(|(from, _)| *from).chain(self.found.unasked).min();
        (self.found.logs.iter().filter(move |log| open.is_none_or(|open| log.number < open)), open)
    }

    fn request(&self, id: u64, (from, to): (u64, u64)) -> Request {
        let list =
            |words: &[B256]| words.iter().map(|word| format!(r#""{word}""#)).collect::<Vec<_>>().join(",");
        let topics = match &self.query.filter {
            None => String::new(),
            Some(LogFilter { events, agents }) => {
                let agents: Vec<B256> = agents.iter().map(|id| U256::from(*id).into()).collect();
                format!("[{}],[{}]", list(events), list(&agents))
            }
        };
        let params = format!(
            r#"[{{"address":"{:#x}","fromBlock":"{from:#x}","toBlock":"{to:#x}","topics":[{topics}]}}]"#,
            self.query.registry
        );
        rpc::request(id, "eth_getLogs", params)
    }
}

/// One request for a block's header or storage root, or for the logs of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockRequest {
    Header {
        number: u64,
        /// A node that has the pinned block may have pruned this one: its absence is then an answer.
        may_lack: bool,
    },
    StorageRoot {
        contract: Address,
        number: u64,
    },
    Logs {
        /// The walk's index.
        walk: usize,
        range: (u64, u64),
    },
}

/// Facts about blocks other than the pinned one.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Headers by height; `None` if the node has pruned it.
    pub(super) headers: BTreeMap<u64, Option<Header>>,
    /// Storage roots by contract and height; `None` if the node has pruned it.
    pub(super) roots: BTreeMap<(Address, u64), Option<B256>>,
    /// The state roots that headers name, by height.
    pub(super) state_roots: BTreeMap<u64, Option<B256>>,
    walks: Vec<LogWalk>,
    /// Missing storage roots.
    wanted_roots: BTreeSet<(Address, u64)>,
    /// Missing headers by height, each with whether the node may lack it.
    wanted_headers: BTreeMap<u64, bool>,
    /// Indices of missing walks.
    wanted_walks: Vec<usize>,
}

impl Blocks {
    /// Records the reads that a query misses, until the next reply. `in_time`: blocks per `eth_getLogs` that
    /// the node answers in time.
    pub(super) fn want(
        &mut self,
        headers: BTreeMap<u64, bool>,
        (logs, in_time): (Vec<LogsQuery>, u64),
        roots: BTreeSet<(Address, u64)>,
    ) {
        self.wanted_headers = headers;
        self.wanted_roots = roots;
        self.wanted_walks.clear();
        for query in logs {
            let place = self.walks.iter().position(|walk| walk.query == query).unwrap_or_else(|| {
                self.walks.push(LogWalk::new(query, in_time));
                self.walks.len() - 1
            });
            if self.walks.get(place).is_some_and(|walk| walk.outcome().is_none()) {
                self.wanted_walks.push(place);
            }
        }
    }

    pub(super) fn is_wanted(&self) -> bool {
        !self.wanted_headers.is_empty() || !self.wanted_roots.is_empty() || !self.wanted_walks.is_empty()
    }

    pub(super) fn walk(&self, query: &LogsQuery) -> Option<&LogWalk> {
        self.walks.iter().find(|walk| walk.query == *query)
    }

    /// Refuses logs that cannot share a batch with the pinned block's header: the node may lag behind their
    /// blocks.
    pub(super) fn refuse_unvouched_logs(&mut self) {
        for place in std::mem::take(&mut self.wanted_walks) {
            self.walks.get_mut(place).map(LogWalk::refuse);
        }
    }

    /// Returns the next requests, at most `most`, including the header at `pinned`.
    pub(super) fn requests(&self, pinned: u64, most: usize) -> Vec<BlockRequest> {
        let headers = self
            .wanted_headers
            .iter()
            .map(|(number, may_lack)| BlockRequest::Header { number: *number, may_lack: *may_lack });
        // A root counts with its block's header.
        let roots = self.wanted_roots.iter().flat_map(|&(contract, number)| {
            let is_asked =
                self.wanted_headers.contains_key(&number) || self.state_roots.contains_key(&number);
            let header = (!is_asked).then_some(BlockRequest::Header { number, may_lack: true });
            header.into_iter().chain([BlockRequest::StorageRoot { contract, number }])
        });
        let logs = self.wanted_walks.iter().filter_map(|place| Some((*place, self.walks.get(*place)?)));
        let logs = logs.flat_map(|(walk, logs)| {
            let ranges = if logs.is_first_range { 1 } else { usize::MAX };
            logs.open.iter().take(ranges).map(move |range| BlockRequest::Logs { walk, range: *range })
        });
        let most = most.min(REQUESTS);
        let vouching = (most > 1 && !self.wanted_headers.contains_key(&pinned))
            .then_some(BlockRequest::Header { number: pinned, may_lack: false });
        vouching.into_iter().chain(headers).chain(roots).chain(logs).take(most).collect()
    }

    /// Returns the JSON-RPC requests, with ids from 0.
    pub(super) fn encode(&self, requests: &[BlockRequest]) -> Vec<Request> {
        let request = |(id, request): (u64, &BlockRequest)| match *request {
            BlockRequest::Header { number, .. } => {
                let params = format!(r#"["{number:#x}",false]"#);
                Some(rpc::request(id, "eth_getBlockByNumber", params))
            }
            BlockRequest::StorageRoot { contract, number } => {
                Some(rpc::get_proof(id, contract, &[], &format!(r#""{number:#x}""#)))
            }
            BlockRequest::Logs { walk, range } => Some(self.walks.get(walk)?.request(id, range)),
        };
        (0..).zip(requests).filter_map(request).collect()
    }

    pub(super) fn walk_mut(&mut self, walk: usize) -> Option<&mut LogWalk> {
        self.walks.get_mut(walk)
    }

    /// Returns the blocks of a walk's longest open range.
    pub(super) fn longest(&self, walk: usize) -> u64 {
        self.walks.get(walk).map_or(1, LogWalk::longest)
    }

    /// Clears the reads that the query misses: it reports them again.
    pub(super) fn ask_again(&mut self) {
        self.wanted_headers.clear();
        self.wanted_roots.clear();
        self.wanted_walks.clear();
    }
}
