//! Replies to batches that request headers, storage roots and logs of certain blocks: reorg detection and
//! adaptive range splitting.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::{Address, B256};
use serde::Deserialize;

use super::Engine;
use crate::{
    chain::{
        batch::{Failure, Reply},
        block::Header,
        endpoints::NodeTraits,
        error::{QueryError, RunError},
        logs::{BlockRequest, LogWalk, LogsQuery},
        node_error::is_about_the_batch,
        proof::{begins_at, state_root},
    },
    eth::rpc::{
        self, BadReply, ErrorPayload,
        read_error::{Action, classify},
    },
};

/// The smallest batch that a too large reply reduces to: the pinned block's header and one range.
const SMALLEST_BATCH: usize = 2;

/// The part of a proof that tells whether a contract's storage has changed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StorageRoot {
    storage_hash: B256,
}

/// What a query misses of other blocks, and puts on the engine's list.
type Want = fn(&mut Engine, BTreeMap<u64, bool>, Vec<LogsQuery>, BTreeSet<(Address, u64)>);

/// How headers and logs of other blocks are requested. An engine refers to it only if its query reads them:
/// a host without such queries does not link it.
#[derive(Debug)]
pub(super) struct BlockReader {
    pub(super) want: Want,
    /// The next requests, given the pinned block's height, and the batch's body.
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
        self.view.blocks.want(headers, logs, roots);
        if self.most_requests() == 1 {
            self.view.blocks.refuse_unvouched_logs();
        }
    }

    fn batch_of_blocks(&self, pinned: u64) -> (Vec<BlockRequest>, String) {
        let requests = self.view.blocks.requests(pinned, self.most_requests());
        let body = if requests.is_empty() {
            String::new()
        } else {
            rpc::encode(&self.view.blocks.encode(&requests))
        };
        (requests, body)
    }

    fn feed_blocks(&mut self, requests: &[BlockRequest], reply: Reply<'_>) -> Result<(), QueryError> {
        self.view.blocks.ask_again();
        let Some(pinned) = self.block.pin().map(|pin| pin.header) else { return Ok(()) };
        let ids: Vec<u64> = (0..requests.len() as u64).collect();
        let mut outcomes = match rpc::decode(reply.body, &ids) {
            Ok(outcomes) => outcomes,
            Err(BadReply::Refused(error)) => return self.refuse_blocks(requests, &error, reply.status),
            Err(BadReply::Malformed) if is_about_the_batch(reply.status) => {
                return self.ask_for_less(requests, 1, RunError::Http(reply.status));
            }
            Err(BadReply::Malformed) if reply.status == 200 => return self.fault(RunError::Malformed, false),
            Err(BadReply::Malformed) => return self.fault(RunError::Http(reply.status), false),
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
                (BlockRequest::Header { .. }, Some(Err(error))) => refusal = refusal.or(Some(error)),
                // A node keeps the state of some blocks only: another answer than that block's root is that it
                // has none.
                (BlockRequest::StorageRoot { contract, number }, Some(outcome)) => {
                    let root = outcome.ok().and_then(|proof| {
                        // Its header stands before it.
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
        self.lacks_logs(unserved.iter().copied());
        if !logs.is_empty() {
            self.rotation.learn(NodeTraits { logs: Some(true), ..NodeTraits::default() });
        }
        let brought = !unserved.is_empty()
            || !headers.is_empty()
            || !absent.is_empty()
            || !logs.is_empty()
            || !roots.is_empty();
        let blocks = &mut self.view.blocks;
        blocks.headers.extend(headers.into_iter().map(|(number, header)| (number, Some(header))));
        blocks.headers.extend(absent.into_iter().map(|number| (number, None)));
        blocks.roots.extend(roots);
        for (walk, range, text) in logs {
            malformed |= !blocks.walk_mut(walk).is_some_and(|walk| walk.take(range, text));
        }
        match refusal {
            // The first time, it may pass.
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
        match failure {
            Failure::Unreachable => self.fault(RunError::Unreachable, false),
            Failure::TimedOut => {
                // The first time-out is the endpoint's fault; from then on the next batch is smaller.
                if self.idle_rounds > 0 {
                    self.shrink(requests, SMALLEST_BATCH);
                }
                self.fault(RunError::TimedOut { seconds }, false)
            }
            Failure::TooLarge => self.ask_for_less(requests, SMALLEST_BATCH, RunError::Malformed),
        }
    }

    /// The pinned block was reorganised away.
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
            // Nodes refuse long ranges in any words: the second time it is that.
            Action::Retry if !has_logs || is_busy || (!names_range && self.idle_rounds == 0) => {
                self.fault(RunError::node(error), false)
            }
            _ if matches!(status, 429 | 500..) && self.idle_rounds == 0 => {
                self.fault(RunError::node(error), false)
            }
            _ if error.code == -32601 && has_logs => {
                self.lacks_logs(walks(requests));
                Ok(())
            }
            _ if has_logs => {
                self.halve(requests);
                Ok(())
            }
            _ => self.fault(RunError::node(error), false),
        }
    }

    /// The node serves no logs.
    fn lacks_logs(&mut self, walks: impl Iterator<Item = usize>) {
        for walk in walks {
            self.view.blocks.walk_mut(walk).map(LogWalk::refuse);
            self.rotation.learn(NodeTraits { logs: Some(false), ..NodeTraits::default() });
        }
    }

    /// Halves the number of requests down to `least`, then the number of blocks. False if neither can shrink.
    fn shrink(&mut self, requests: &[BlockRequest], least: usize) -> bool {
        if requests.len() > least {
            self.requests_per_batch = (requests.len() / 2).max(least);
            return true;
        }
        let has_logs = walks(requests).next().is_some();
        self.halve(requests);
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

    /// Halves the ranges of all open walks in `requests`.
    fn halve(&mut self, requests: &[BlockRequest]) {
        let mut halved: Vec<usize> = walks(requests).collect();
        halved.dedup();
        // A walk over single blocks is refused because of the longer ranges in its batch.
        let lone = |walk: &usize| self.view.blocks.is_of_one_block(*walk);
        if halved.len() > 1 && !halved.iter().all(lone) {
            halved.retain(|walk| !self.view.blocks.is_of_one_block(*walk));
        }
        for walk in halved {
            self.view.blocks.walk_mut(walk).map(LogWalk::halve);
        }
    }
}

/// The walks that the requests belong to.
fn walks(requests: &[BlockRequest]) -> impl Iterator<Item = usize> {
    requests.iter().filter_map(|request| match request {
        BlockRequest::Logs { walk, .. } => Some(*walk),
        BlockRequest::Header { .. } | BlockRequest::StorageRoot { .. } => None,
    })
}
