//! Replies to batches that request headers, storage roots and logs of certain blocks: reorg detection and
//! adaptive range splitting.
//!
//! A node may refuse a long range without an error message: it hangs, resets the connection, or answers a
//! page of HTML. So does a node that is down. A batch of headers alone tells the two apart; if it is
//! answered, ranges get shorter.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, B256};
use serde::Deserialize;

use super::Engine;
use crate::{
    chain::{
        batch::{Failure, Reply},
        block::Header,
        error::{QueryError, RunError},
        logs::{BlockRequest, LogWalk, LogsQuery},
        node_error::is_about_the_batch,
        node_traits::{NodeTraits, TimelyLimit},
        proof::{begins_at, state_root},
    },
    eth::rpc::{
        self, BadReply, ErrorPayload,
        read_error::{Action, classify, is_timeout},
    },
};

/// The smallest batch with logs: the pinned block's header and one range.
const SMALLEST_BATCH: usize = 2;
/// Divisor of ranges that a node does not answer in time: each attempt takes seconds.
const LATE_DIVISOR: u64 = 16;
/// Blocks of a range that is too short to be the reason for a time-out.
const FEW_BLOCKS: u64 = 10;
/// Shortest range in blocks that is kept for the next run, so that the end of a slow phase is noticed soon.
const LEAST_KEPT_BLOCKS: u64 = 1_000;

/// Failure of a batch without a JSON-RPC error that states the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BatchFault {
    /// The batch timed out.
    Late,
    /// The connection broke, or the reply is not JSON-RPC, as from a gateway.
    Broken,
    /// A gateway refused it.
    Refused,
}

/// The part of a proof that tells whether a contract's storage has changed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StorageRoot {
    storage_hash: B256,
}

/// Queues the reads of other blocks that a query misses: headers, logs, and storage roots.
type WantBlocks = fn(&mut Engine, BTreeMap<u64, bool>, Vec<LogsQuery>, BTreeSet<(Address, u64)>);

/// Functions that request headers and logs of other blocks. An engine refers to them only if its query reads
/// such blocks: a host without such queries does not link them.
#[derive(Debug)]
pub(super) struct BlockReader {
    pub(super) want: WantBlocks,
    /// Returns the next requests, given the pinned block's height, and the batch's body.
    pub(super) batch: fn(&Engine, u64) -> (Vec<BlockRequest>, String),
    pub(super) feed: fn(&mut Engine, &[BlockRequest], Reply<'_>) -> Result<(), QueryError>,
    pub(super) fail: fn(&mut Engine, &[BlockRequest], Failure, u32) -> Result<(), QueryError>,
}

impl BlockReader {
    pub(super) const READER: Self = Self {
        want: Engine::want_blocks,
        batch: Engine::batch_of_blocks,
        feed: Engine::feed_blocks,
        fail: Engine::fail_blocks,
    };
}

impl Engine {
    fn want_blocks(
        &mut self,
        headers: BTreeMap<u64, bool>,
        logs: Vec<LogsQuery>,
        roots: BTreeSet<(Address, u64)>,
    ) {
        self.view.blocks.want(headers, (logs, self.rotation.log_blocks()), roots);
        if self.most_requests() == 1 {
            self.view.blocks.refuse_unvouched_logs();
        }
    }

    fn batch_of_blocks(&self, pinned: u64) -> (Vec<BlockRequest>, String) {
        let requests = match self.checks_headers {
            Some(_) => vec![BlockRequest::Header { number: pinned, may_lack: false }; SMALLEST_BATCH],
            None => self.view.blocks.requests(pinned, self.most_requests()),
        };
        let body = if requests.is_empty() {
            String::new()
        } else {
            rpc::encode(&self.view.blocks.encode(&requests))
        };
        (requests, body)
    }

    fn feed_blocks(&mut self, requests: &[BlockRequest], reply: Reply<'_>) -> Result<(), QueryError> {
        self.view.blocks.ask_again();
        let check = self.checks_headers.take();
        let Some(pinned) = self.block.pin().map(|pin| pin.header) else { return Ok(()) };
        let ids: Vec<u64> = (0..requests.len() as u64).collect();
        let mut outcomes = match rpc::decode(reply.body, &ids) {
            Ok(outcomes) => outcomes,
            Err(BadReply::Refused(error)) => return self.refuse_blocks(requests, &error, reply.status),
            Err(BadReply::Malformed) => {
                let (error, how) = match reply.status {
                    200 => (RunError::Malformed, BatchFault::Broken),
                    status @ (504 | 524) => (RunError::Http(status), BatchFault::Late),
                    status if is_about_the_batch(status) => (RunError::Http(status), BatchFault::Refused),
                    status @ 500.. => (RunError::Http(status), BatchFault::Broken),
                    status => return self.fault(RunError::Http(status), false),
                };
                return self.unanswered(requests, error, how);
            }
        };
        let answered = outcomes.values().filter(|outcome| outcome.is_ok()).count();
        let may_be_batch = answered == 0 && self.may_be_too_many(requests.len());
        self.rotation.learn_batch(answered, requests.len());
        let (mut headers, mut absent, mut logs, mut roots) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut lags, mut malformed, mut refusal, mut unserved) = (false, false, None, Vec::new());
        for (id, request) in (0..).zip(requests) {
            match (*request, outcomes.remove(&id)) {
                (_, None) => {}
                (BlockRequest::Header { number, may_lack }, Some(Ok(text))) => {
                    match serde_json::from_str::<Option<Header>>(text) {
                        Ok(Some(header)) if header.number != number => {
                            return self.fault(RunError::OtherBlock, true);
                        }
                        Ok(Some(header)) if number == pinned.number && header.hash != pinned.hash => {
                            return self.leave_block();
                        }
                        Ok(Some(header)) => {
                            headers.push((number, header));
                            self.view.blocks.state_roots.insert(number, state_root(text));
                        }
                        Ok(None) if may_lack => absent.push(number),
                        Ok(None) => lags = true,
                        Err(_) => malformed = true,
                    }
                }
                (BlockRequest::Header { number, may_lack: true }, Some(Err(error)))
                    if classify(&error) == Action::Repin =>
                {
                    absent.push(number);
                }
                // The node lacks the pinned block, and reports it as an error.
                (BlockRequest::Header { number, .. }, Some(Err(error)))
                    if number == pinned.number && classify(&error) == Action::Repin =>
                {
                    lags = true;
                }
                (BlockRequest::Header { .. }, Some(Err(error))) => refusal = refusal.or(Some(error)),
                // A node keeps the state of some blocks only: any answer but that block's root means that it
                // has none.
                (BlockRequest::StorageRoot { contract, number }, Some(outcome)) => {
                    let root = outcome.ok().and_then(|proof| {
                        // Its header comes before it in the batch.
                        let state_root = self.view.blocks.state_roots.get(&number).copied()??;
                        let StorageRoot { storage_hash } = serde_json::from_str(proof).ok()?;
                        begins_at(state_root, proof)?.then_some(storage_hash)
                    });
                    roots.push(((contract, number), root));
                }
                (BlockRequest::Logs { walk, .. }, Some(Ok("null"))) => unserved.push(walk),
                (BlockRequest::Logs { walk, range }, Some(Ok(text))) => logs.push((walk, range, text)),
                // A range's refusal is more specific than a header's.
                (BlockRequest::Logs { .. }, Some(Err(error))) => refusal = Some(error),
            }
        }
        // A node without the pinned block may lack others because it lags.
        let vouched = requests.len() == 1 || headers.iter().any(|(number, _)| *number == pinned.number);
        if lags || (!absent.is_empty() && !vouched) {
            return self.repin();
        }
        if !vouched {
            logs.clear();
            unserved.clear();
        }
        if let Some(check) = check.filter(|_| !headers.is_empty()) {
            self.rotation.answers_headers(check);
        }
        if let Some(blocks) = logs.iter().map(|(_, range, _)| blocks_of(*range)).max() {
            self.rotation.learn_logs(blocks);
        }
        let brought = !headers.is_empty() || !absent.is_empty() || !logs.is_empty() || !roots.is_empty();
        let blocks = &mut self.view.blocks;
        blocks.headers.extend(headers.into_iter().map(|(number, header)| (number, Some(header))));
        blocks.headers.extend(absent.into_iter().map(|number| (number, None)));
        blocks.roots.extend(roots);
        for (walk, range, text) in logs {
            malformed |= !blocks.walk_mut(walk).is_some_and(|walk| walk.take(range, text));
        }
        match refusal {
            _ if !unserved.is_empty() => self.lacks_logs(unserved.into_iter(), RunError::Malformed),
            // The first time, the error may be transient.
            Some(error) if may_be_batch && self.idle_rounds > 0 && classify(&error) == Action::GiveUp => {
                self.ask_for_less(requests, 1, RunError::node(&error))
            }
            Some(error) if may_be_batch && classify(&error) == Action::GiveUp => {
                self.fault(RunError::node(&error), false)
            }
            Some(error) => self.refuse_blocks(requests, &error, reply.status),
            None if malformed => self.fault(RunError::Malformed, false),
            None if brought => Ok(()),
            None => self.fault(RunError::Stalled, false),
        }
    }

    /// Records that a batch has no reply.
    fn fail_blocks(
        &mut self,
        requests: &[BlockRequest],
        failure: Failure,
        seconds: u32,
    ) -> Result<(), QueryError> {
        self.view.blocks.ask_again();
        self.checks_headers = None;
        match failure {
            Failure::Unreachable => self.unanswered(requests, RunError::Unreachable, BatchFault::Broken),
            Failure::TimedOut => self.unanswered(requests, RunError::TimedOut { seconds }, BatchFault::Late),
            Failure::TooLarge => self.ask_for_less(requests, SMALLEST_BATCH, RunError::Malformed),
        }
    }

    /// Makes the next batch smaller, or fails over.
    fn unanswered(
        &mut self,
        requests: &[BlockRequest],
        error: RunError,
        how: BatchFault,
    ) -> Result<(), QueryError> {
        let longest = ranges(requests).map(blocks_of).max();
        // Without a reason, the first time is the endpoint's fault.
        let is_first = how != BatchFault::Refused && self.idle_rounds == 0;
        let Some(blocks) = longest.filter(|_| !is_first) else {
            return match how {
                BatchFault::Refused => self.ask_for_less(requests, 1, error),
                BatchFault::Late if !is_first => {
                    self.shrink(requests, SMALLEST_BATCH);
                    self.fault(error, false)
                }
                _ => self.fault(error, false),
            };
        };
        if requests.len() > SMALLEST_BATCH {
            self.rotation.note(error, false);
            self.requests_per_batch = (requests.len() / 2).max(SMALLEST_BATCH);
            return Ok(());
        }
        let (divisor, least) = if how == BatchFault::Late { (LATE_DIVISOR, FEW_BLOCKS) } else { (2, 0) };
        if blocks <= least {
            return self.fault(error, false);
        }
        self.rotation.note(error, false);
        self.divide(requests, divisor);
        let kept = (blocks / divisor).max(LEAST_KEPT_BLOCKS);
        let log_blocks = if how == BatchFault::Late { TimelyLimit::of(kept) } else { TimelyLimit::default() };
        let learned = NodeTraits { log_blocks, ..NodeTraits::default() };
        if self.rotation.has_answered_headers() {
            self.rotation.learn(learned);
        } else {
            self.checks_headers = Some(learned);
        }
        Ok(())
    }

    /// Leaves the pinned block, which was reorganised away.
    pub(super) fn leave_block(&mut self) -> Result<(), QueryError> {
        self.repins += 1;
        self.rotation.note(RunError::BlockUnavailable, false);
        if self.asked_hash().is_some() || self.repins > self.limits.repins {
            return Err(self.conclude(RunError::BlockUnavailable));
        }
        self.restart();
        Ok(())
    }

    /// Handles a node's error about the batch or a range of logs.
    fn refuse_blocks(
        &mut self,
        requests: &[BlockRequest],
        error: &ErrorPayload,
        status: u16,
    ) -> Result<(), QueryError> {
        let has_logs = requests.iter().any(|request| matches!(request, BlockRequest::Logs { .. }));
        // Some nodes use -32005 for both too many requests and too many blocks.
        let message = error.message.to_ascii_lowercase();
        let names_range = ["range", "result", "block", "log"].iter().any(|word| message.contains(word));
        let is_busy = status == 429 || error.code == 429;
        match classify(error) {
            Action::SmallerBatch if requests.len() > 1 => {
                self.ask_for_less(requests, 1, RunError::node(error))
            }
            _ if has_logs && !is_busy && is_timeout(error) => {
                self.unanswered(requests, RunError::node(error), BatchFault::Late)
            }
            // Nodes refuse long ranges with any message: the second time it is taken for that.
            Action::Retry if !has_logs || is_busy || (!names_range && self.idle_rounds == 0) => {
                self.fault(RunError::node(error), false)
            }
            _ if matches!(status, 429 | 500..) && self.idle_rounds == 0 => {
                self.fault(RunError::node(error), false)
            }
            _ if error.code == -32601 && has_logs => self.lacks_logs(walks(requests), RunError::node(error)),
            _ if has_logs => {
                self.divide(requests, 2);
                Ok(())
            }
            _ => self.fault(RunError::node(error), false),
        }
    }

    /// Records that the node serves no logs, and fails over if another one may.
    fn lacks_logs(&mut self, walks: impl Iterator<Item = usize>, error: RunError) -> Result<(), QueryError> {
        self.rotation.learn(NodeTraits { logs: Some(false), ..NodeTraits::default() });
        if self.rotation.may_leave_for_logs() {
            return self.fault(error, false);
        }
        for walk in walks {
            self.view.blocks.walk_mut(walk).map(LogWalk::refuse);
        }
        Ok(())
    }

    /// Halves the number of requests down to `least`, then the number of blocks. False if neither can shrink.
    fn shrink(&mut self, requests: &[BlockRequest], least: usize) -> bool {
        if requests.len() > least {
            self.requests_per_batch = (requests.len() / 2).max(least);
            return true;
        }
        let has_logs = walks(requests).next().is_some();
        self.divide(requests, 2);
        has_logs
    }

    /// Shrinks the batch, or fails over where that is not possible.
    fn ask_for_less(
        &mut self,
        requests: &[BlockRequest],
        least: usize,
        error: RunError,
    ) -> Result<(), QueryError> {
        if self.shrink(requests, least) { Ok(()) } else { self.fault(error, false) }
    }

    /// Divides the ranges of all open walks in `requests`.
    fn divide(&mut self, requests: &[BlockRequest], by: u64) {
        let mut divided: Vec<usize> = walks(requests).collect();
        divided.dedup();
        // A walk over single blocks is refused because of the longer ranges in its batch.
        let lone = |walk: &usize| self.view.blocks.longest(*walk) == 1;
        if divided.len() > 1 && !divided.iter().all(lone) {
            divided.retain(|walk| self.view.blocks.longest(*walk) > 1);
        }
        for walk in divided {
            if let Some(walk) = self.view.blocks.walk_mut(walk) {
                walk.divide(by);
            }
        }
    }
}

/// Returns the ranges of logs in the requests.
fn ranges(requests: &[BlockRequest]) -> impl Iterator<Item = (u64, u64)> {
    requests.iter().filter_map(|request| match request {
        BlockRequest::Logs { range, .. } => Some(*range),
        BlockRequest::Header { .. } | BlockRequest::StorageRoot { .. } => None,
    })
}

const fn blocks_of((from, to): (u64, u64)) -> u64 {
    to.saturating_sub(from).saturating_add(1)
}

/// Returns the walks that the requests belong to.
fn walks(requests: &[BlockRequest]) -> impl Iterator<Item = usize> {
    requests.iter().filter_map(|request| match request {
        BlockRequest::Logs { walk, .. } => Some(*walk),
        BlockRequest::Header { .. } | BlockRequest::StorageRoot { .. } => None,
    })
}
