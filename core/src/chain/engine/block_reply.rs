//! Replies to the batches that ask for headers and logs of certain blocks.

use super::Engine;
use crate::{
    chain::{
        batch::{Failure, Reply},
        block::Header,
        error::{QueryError, RunError},
        logs::BlockRequest,
    },
    eth::rpc::{
        self, BadReply, ErrorObject,
        read_error::{Action, classify},
    },
};

/// A batch of the pinned block's header and one range is as small as it gets where a reply was too much.
const SMALLEST_BATCH: usize = 2;

impl Engine {
    /// Takes the reply to a batch of these requests.
    #[inline(never)]
    pub(super) fn feed_blocks(
        &mut self,
        requests: &[BlockRequest],
        reply: Reply<'_>,
    ) -> Result<(), QueryError> {
        self.view.blocks.ask_again();
        let Some(pinned) = self.block.pin().map(|pin| pin.header) else { return Ok(()) };
        let ids: Vec<u64> = (0..requests.len() as u64).collect();
        let mut outcomes = match rpc::decode(reply.body, &ids) {
            Ok(outcomes) => outcomes,
            Err(BadReply::Refused(error)) => return self.refuse_blocks(requests, &error, reply.status),
            Err(BadReply::Malformed) if reply.status == 413 => {
                return self.ask_for_less(requests, 1, RunError::Http(413));
            }
            Err(BadReply::Malformed) if reply.status == 200 => return self.fault(RunError::Malformed, false),
            Err(BadReply::Malformed) => return self.fault(RunError::Http(reply.status), false),
        };
        let (mut headers, mut absent, mut logs) = (Vec::new(), Vec::new(), Vec::new());
        let (mut lags, mut malformed, mut refusal) = (false, false, None);
        for (id, request) in (0..).zip(requests) {
            match (*request, outcomes.remove(&id)) {
                (_, None) => {}
                (BlockRequest::Header { number, may_lack }, Some(Ok(text))) => {
                    match serde_json::from_str::<Option<Header>>(text) {
                        Ok(Some(header)) if number == pinned.number && header.hash != pinned.hash => {
                            return self.leave_block();
                        }
                        Ok(Some(header)) => headers.push((number, header)),
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
                (BlockRequest::Logs { walk, range }, Some(Ok(text))) => logs.push((walk, range, text)),
                // A refusal of a range tells more than one of a header.
                (BlockRequest::Logs { .. }, Some(Err(error))) => refusal = Some(error),
            }
        }
        // A node that has not got the pinned block may lack others for the same reason.
        let vouched = requests.len() == 1 || headers.iter().any(|(number, _)| *number == pinned.number);
        if lags || (!absent.is_empty() && !vouched) {
            return self.repin();
        }
        let brought = !headers.is_empty() || !absent.is_empty() || !logs.is_empty();
        let blocks = &mut self.view.blocks;
        blocks.headers.extend(headers.into_iter().map(|(number, header)| (number, Some(header))));
        blocks.headers.extend(absent.into_iter().map(|number| (number, None)));
        for (walk, range, text) in logs {
            malformed |= !blocks.take_logs(walk, range, text);
        }
        match refusal {
            Some(error) => self.refuse_blocks(requests, &error, reply.status),
            None if malformed => self.fault(RunError::Malformed, false),
            None if brought => Ok(()),
            None => self.fault(RunError::Stalled, false),
        }
    }

    /// Takes note that no reply came to a batch of these requests.
    pub(super) fn fail_blocks(
        &mut self,
        requests: &[BlockRequest],
        failure: Failure,
        seconds: u32,
    ) -> Result<(), QueryError> {
        self.view.blocks.ask_again();
        match failure {
            Failure::Unreachable => self.fault(RunError::Unreachable, false),
            Failure::TimedOut => {
                // The first time it counts as the endpoint's fault; from then on less is asked of the next one.
                if self.idle_rounds > 0 {
                    self.shrink(requests, SMALLEST_BATCH);
                }
                self.fault(RunError::TimedOut { seconds }, false)
            }
            Failure::TooLarge => self.ask_for_less(requests, SMALLEST_BATCH, RunError::Malformed),
        }
    }

    /// The pinned block is no longer on the chain.
    fn leave_block(&mut self) -> Result<(), QueryError> {
        self.repins += 1;
        self.rotation.note(RunError::BlockUnavailable, false);
        if self.asked.is_some() || self.repins > self.limits.repins {
            return Err(self.conclude(RunError::BlockUnavailable));
        }
        self.restart();
        Ok(())
    }

    /// A node's error about the batch, or about a range of logs.
    fn refuse_blocks(
        &mut self,
        requests: &[BlockRequest],
        error: &ErrorObject,
        status: u16,
    ) -> Result<(), QueryError> {
        let has_logs = requests.iter().any(|request| matches!(request, BlockRequest::Logs { .. }));
        // Some have one code for too many requests and too many blocks: -32005.
        let message = error.message.to_ascii_lowercase();
        let names_range = ["range", "result", "block", "log"].iter().any(|word| message.contains(word));
        match classify(error) {
            Action::SmallerBatch if requests.len() > 1 => {
                self.ask_for_less(requests, 1, RunError::node(error))
            }
            Action::Retry if !(has_logs && names_range) => self.fault(RunError::node(error), false),
            _ if matches!(status, 429 | 500..) && self.idle_rounds == 0 => {
                self.fault(RunError::node(error), false)
            }
            _ if error.code == -32601 && has_logs => {
                walks(requests).for_each(|walk| self.view.blocks.refuse(walk));
                Ok(())
            }
            _ if has_logs => {
                self.halve(requests);
                Ok(())
            }
            _ => self.fault(RunError::node(error), false),
        }
    }

    /// Half as many requests in a batch, but `least` at least; where they are as few already, half as many blocks. False where
    /// less cannot be asked.
    fn shrink(&mut self, requests: &[BlockRequest], least: usize) -> bool {
        if requests.len() > least {
            self.requests_per_batch = (requests.len() / 2).max(least);
            return true;
        }
        let has_logs = walks(requests).next().is_some();
        self.halve(requests);
        has_logs
    }

    /// Less at once, or another endpoint where that is not possible.
    fn ask_for_less(
        &mut self,
        requests: &[BlockRequest],
        least: usize,
        error: RunError,
    ) -> Result<(), QueryError> {
        if self.shrink(requests, least) { Ok(()) } else { self.fault(error, false) }
    }

    /// Half as many blocks in a range, for all that is still to be asked.
    fn halve(&mut self, requests: &[BlockRequest]) {
        let mut halved: Vec<usize> = walks(requests).collect();
        halved.dedup();
        // A block that is asked about alone is refused with the longer ranges beside it.
        let lone = |walk: &usize| self.view.blocks.is_of_one_block(*walk);
        if halved.len() > 1 && !halved.iter().all(lone) {
            halved.retain(|walk| !self.view.blocks.is_of_one_block(*walk));
        }
        halved.into_iter().for_each(|walk| self.view.blocks.halve(walk));
    }
}

/// The walks that the requests are of.
fn walks(requests: &[BlockRequest]) -> impl Iterator<Item = usize> {
    requests.iter().filter_map(|request| match request {
        BlockRequest::Logs { walk, .. } => Some(*walk),
        BlockRequest::Header { .. } => None,
    })
}
