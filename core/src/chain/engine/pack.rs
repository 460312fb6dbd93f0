//! Queue of a run: the reads that the query misses, and the part of them that goes into the next batch.

use super::Engine;
use crate::{
    chain::{
        batch::{self, InFlight, Job, Limits, PendingCall},
        block::{HeaderOf, ReadBlock},
        error::{QueryError, RunError},
        lens::Method,
        node_traits::NodeTraits,
        view::CallResult,
        walk::AgentWalk,
    },
    eth::as_of::BlockId,
};

impl Engine {
    /// Queues jobs without a result again.
    pub(in crate::chain) fn take_back(&mut self, jobs: impl IntoIterator<Item = Job>) {
        for job in jobs {
            match job {
                Job::Calls(calls) => self.queue.extend(calls),
                Job::Suspect(pending) | Job::Direct(pending) => self.queue.push(pending),
                Job::Walk(key, span) => {
                    if let Some(walk) = self.view.walks.get_mut(&key) {
                        walk.give_back(span);
                    }
                }
            }
        }
    }

    /// Splits a job with a too large reply, or records it as too heavy.
    pub(in crate::chain) fn cut(&mut self, job: Job) {
        match job {
            Job::Calls(calls) if calls.len() > 1 => {
                let count = calls.len();
                self.queue.extend(calls.into_iter().map(|pending| pending.split(count)));
            }
            Job::Calls(calls) => {
                let heavy = calls.into_iter().map(|pending| (pending.call, CallResult::TooHeavy));
                self.view.answers.extend(heavy);
            }
            Job::Suspect(pending) | Job::Direct(pending) => {
                self.view.answers.insert(pending.call, CallResult::TooHeavy);
            }
            Job::Walk(key, span) => {
                if let Some(walk) = self.view.walks.get_mut(&key) {
                    walk.refuse(span);
                }
            }
        }
    }

    #[inline(never)]
    pub(in crate::chain) fn queue_missing(&mut self) -> Result<(), QueryError> {
        let missing = self.view.missing();
        if let Some(reader) = self.proof_reader {
            if let Some((key, reason)) = missing.refused_proof {
                return (reader.refuse)(self, &key, reason);
            }
            if let Some(key) = missing.proof.filter(|_| missing.calls.is_empty()) {
                (reader.want)(self, key);
                return Ok(());
            }
        }
        if let Some(reader) = self.block_reader
            && (!missing.headers.is_empty() || !missing.logs.is_empty() || !missing.roots.is_empty())
        {
            (reader.want)(self, missing.headers, missing.logs, missing.roots);
            if missing.calls.is_empty() && missing.walks.is_empty() {
                return Ok(());
            }
        }
        if missing.calls.is_empty() && missing.walks.is_empty() {
            self.wants_header = missing.as_of || missing.header;
            return if self.wants_header { Ok(()) } else { Err(RunError::Stalled.into()) };
        }
        self.calls += missing.calls.len();
        if self.calls > self.limits.calls {
            return Err(RunError::TooManyCalls.into());
        }
        let peers = self.limits.calls_per_chunk;
        let pending = missing.calls.into_iter().map(|call| PendingCall { call, peers, suspect: false });
        self.queue.extend(pending);
        for (key, last) in missing.walks {
            let agents = self.limits.agents_per_call;
            let first = key.first;
            let walk = self.view.walks.entry(key).or_insert_with(|| AgentWalk::new(first, agents));
            if let Some(last) = last {
                walk.extend_to(last);
            }
            // The walk is complete and still missed: its spans were answered with nothing.
            if walk.is_idle() && walk.rows(last).is_none() {
                return Err(RunError::Malformed.into());
            }
        }
        Ok(())
    }

    /// Packs queued work into a batch; what does not fit stays queued.
    #[inline(never)]
    pub(in crate::chain) fn pack(&mut self) -> InFlight {
        let NodeTraits { method, sees_own_blocks, .. } = self.rotation.traits();
        let method = method.unwrap_or_default();
        let by_number = self.rotation.pins_by_number(self.rotation.current());
        let most = self.most_requests();
        let asked_for = std::mem::take(&mut self.wants_header);
        let is_probe = self.probe.is_some();
        let wants_header = match self.block {
            ReadBlock::Newest { .. } if self.is_proof_of_newest() && self.queue.is_empty() => false,
            // A header shows once whether contracts see the chain's own blocks. Where they do not, nothing
            // else names the block.
            ReadBlock::Newest { .. } => {
                asked_for || self.rounds > 1 || !self.is_one_round || sees_own_blocks != Some(true)
            }
            // Of two blocks with one parent, the marker does not tell which was read by its number.
            ReadBlock::Pinned(pin) => {
                let is_vouched = pin.is_canonical || self.asked_hash().is_none();
                by_number && (!is_vouched || (most > 1 && !self.is_short))
            }
            ReadBlock::Asked(_) | ReadBlock::SteppingBack { .. } => true,
        };
        let mut headers = match self.block {
            _ if !wants_header => Vec::new(),
            ReadBlock::Pinned(pin) => vec![HeaderOf::Block(BlockId::Number(pin.header.number))],
            block => block.headers(most),
        };
        if let Some(header) = headers.first_mut().filter(|_| is_probe) {
            *header = HeaderOf::Newest;
        }
        // A node that accepts one request per batch gets the header alone, and all calls are pinned to it.
        let room = match self.block {
            ReadBlock::SteppingBack { .. } => 0,
            ReadBlock::Asked(BlockId::Hash(_)) if by_number => 0,
            ReadBlock::Newest { .. } if sees_own_blocks == Some(false) => 0,
            _ => most - headers.len().min(most),
        };
        let work = self.rotation.work_per_call();
        let peers = self.limits.calls_per_chunk.min(usize::try_from(work).unwrap_or(usize::MAX));
        let limits = Limits { calls_per_chunk: peers.max(1), ..self.limits };
        let (mut jobs, rest) = batch::jobs(std::mem::take(&mut self.queue), &limits, room, most > 1);
        self.queue = rest;
        let left = room.saturating_sub(jobs.iter().map(Job::requests).sum());
        jobs.extend(self.take_spans(method, work, left));
        let has_hash = matches!(self.block, ReadBlock::Pinned(_) | ReadBlock::Asked(BlockId::Hash(_)));
        let by_hash = has_hash && !by_number && !is_probe;
        let jobs = InFlight::with_ids(jobs, headers.len());
        InFlight {
            headers,
            jobs,
            by_hash,
            is_probe,
            method,
            proof: Vec::new(),
            blocks: Vec::new(),
            timeout_ms: 0,
        }
    }

    /// Takes spans of walks, within `room` and the size cap of a reply.
    fn take_spans(&mut self, method: Method, work: u64, room: usize) -> Vec<Job> {
        let most = match method {
            Method::Override => self.limits.agents_per_call,
            Method::Create => 350,
            Method::Multicall => (self.limits.calls_per_chunk as u64 / 2).max(1),
        };
        let most = most.min(work);
        let mut bytes_left = (self.limits.max_reply_bytes / 4 * 3) as u64;
        let mut jobs = Vec::new();
        for (key, walk) in &mut self.view.walks {
            while jobs.len() < room && (bytes_left > 0 || jobs.is_empty()) {
                let Some(span) = walk.take(most) else { break };
                // A reply with long scopes may be too large, and is split then.
                let agent_bytes = batch::agent_bytes(method, key.detail);
                bytes_left = bytes_left.saturating_sub(span.count.saturating_mul(agent_bytes));
                jobs.push(Job::Walk(key.clone(), span));
            }
        }
        jobs
    }
}
