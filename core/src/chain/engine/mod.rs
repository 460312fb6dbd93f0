//! The RPC engine: what a run has asked, what came back, and what to ask next, whatever the query's type. It is not generic,
//! so that wasm holds it once.

mod block_reply;
mod pack;
mod proof_reply;

use alloy_primitives::Address;
use alloy_sol_types::SolCall;

use super::{
    batch::{self, Batch, Failure, Flight, Job, Limits, Pending, Reply},
    block::{Block, Header},
    endpoints::{Endpoints, Rotation, Update},
    error::{QueryError, RunError},
    lens::{Slice, Span},
    marker::Marker,
    reply::{Answered, Findings, Fresh},
    view::{Outcome, View},
    walk::{Walk, WalkKey},
};
use crate::eth::{abi::IMulticall3::getCurrentBlockTimestampCall, as_of::BlockId, rpc};

/// The most requests of a batch whose time-out counts against the endpoint; a larger batch may just be too large.
const FEW_REQUESTS: usize = 4;

/// The state of one run, whatever its query is: [`Run`](super::Run) adds that.
#[derive(Debug)]
pub(super) struct Engine {
    multicall3: Address,
    limits: Limits,
    rotation: Rotation,
    pub(super) view: View,
    /// The first round's answers are all that the query needs, as a rule.
    is_one_round: bool,
    /// The block the query is about, if not the newest.
    asked: Option<BlockId>,
    block: Block,
    /// The query cannot go on without the header of the block it reads.
    wants_header: bool,
    /// Calls waiting to be sent. Walks keep their own queues.
    queue: Vec<Pending>,
    flight: Option<Flight>,
    /// JSON-RPC requests in a batch, where the last ones were too large.
    requests_per_batch: usize,
    rounds: u32,
    calls: usize,
    /// Rounds that brought nothing new.
    idle_rounds: u32,
    repins: u32,
    elapsed_ms: u32,
    /// Milliseconds that walks have added to the deadline.
    extra_ms: u32,
}

impl Engine {
    /// An engine that has asked nothing yet, for a query about that block. `multicall3` is Multicall3's address on the chain.
    pub(super) fn new(
        asked: Option<BlockId>,
        is_one_round: bool,
        multicall3: Address,
        limits: Limits,
    ) -> Self {
        Self {
            asked,
            block: Block::begin(asked),
            is_one_round,
            multicall3,
            requests_per_batch: limits.requests_per_batch,
            limits,
            rotation: Rotation::new(Endpoints::new(1, None)),
            view: View::about(asked),
            wants_header: false,
            queue: Vec::new(),
            flight: None,
            rounds: 0,
            calls: 0,
            idle_rounds: 0,
            repins: 0,
            elapsed_ms: 0,
            extra_ms: 0,
        }
    }

    pub(super) fn over(&mut self, endpoints: Endpoints) {
        self.rotation = Rotation::new(endpoints);
    }

    pub(super) fn at(&mut self, header: Header) {
        self.block = Block::pinned(header, self.rotation.current());
    }

    /// What this run has found out about the endpoints since the last time, for [`Endpoints::merge`].
    pub(super) fn update(&mut self) -> Update {
        self.rotation.update()
    }

    /// Sets how many milliseconds the run has been going; its deadline is kept by this. A host that never calls it has no
    /// deadline.
    pub(super) const fn passed(&mut self, elapsed_ms: u32) {
        self.elapsed_ms = elapsed_ms;
    }

    /// Prepares the view for the query. A batch that the host never answered counts as lost: its work is done again.
    #[inline(never)]
    pub(super) fn begin_step(&mut self) {
        if let Some(flight) = self.flight.take() {
            self.take_back(flight.jobs.into_iter().map(|posted| posted.job));
        }
        self.view.as_of = self.block.as_of();
        self.view.block = self.block.pin().map(|pin| pin.header);
    }

    /// Nothing is left to send: the query goes on with the answers known.
    pub(super) fn is_idle(&self) -> bool {
        !self.wants_header
            && self.view.wanted_proof.is_none()
            && !self.view.blocks.is_wanted()
            && self.queue.is_empty()
            && self.view.walks.values().all(Walk::is_idle)
    }

    /// The next batch.
    ///
    /// # Errors
    ///
    /// [`RunError`] beyond the [`Limits`].
    // Nothing large becomes a part of the host's function, which is polled again and again: V8 takes megabytes to optimize a long one.
    // So it is with all of this module that is never inlined.
    #[inline(never)]
    pub(super) fn next_batch(&mut self) -> Result<Batch, QueryError> {
        self.rounds += 1;
        if self.rounds > self.limits.rounds {
            return Err(RunError::TooManyRounds.into());
        }
        // No pause before each endpoint has had its chance.
        let delay_ms = self.idle_rounds.saturating_sub(self.rotation.others()).min(4).pow(2) * 100;
        let flight = self.pack();
        let proof = self.view.wanted_proof.as_ref().zip(self.block.pin()).filter(|_| flight.requests() == 0);
        let proof = proof.map(|(wanted, pin)| {
            let most = self.requests_per_batch.min(self.rotation.traits().requests_per_batch);
            let ids = wanted.missing(most);
            let number = (!flight.by_hash).then_some(pin.header.number);
            (wanted.body(&ids, pin.header.hash, number), ids)
        });
        let walks = flight.jobs.iter().filter(|posted| matches!(posted.job, Job::Walk(..))).count();
        let walk_ms = self.limits.walk_ms.saturating_mul(u32::try_from(walks).unwrap_or(u32::MAX));
        self.extra_ms = self.extra_ms.saturating_add(walk_ms).min(self.limits.deadline_ms.saturating_mul(3));
        let deadline_ms = self.limits.deadline_ms.saturating_add(self.extra_ms);
        let left = deadline_ms.saturating_sub(self.elapsed_ms).saturating_sub(delay_ms);
        if left == 0 {
            let seconds = deadline_ms.div_ceil(1_000);
            return Err(self.conclude(RunError::OutOfTime { seconds }));
        }
        let timeout_ms = self.limits.timeout_ms.saturating_add(walk_ms).min(left);
        let block = match self.block {
            Block::Pinned(pin) if flight.by_hash => format!(r#"{{"blockHash":"{:#x}"}}"#, pin.header.hash),
            // Of two blocks with one number only the one on the chain is meant.
            Block::Asked(BlockId::Hash(hash)) => {
                format!(r#"{{"blockHash":"{hash:#x}","requireCanonical":true}}"#)
            }
            Block::Asked(BlockId::Number(number)) => batch::block_number(Some(number)),
            block => batch::block_number(block.pin().map(|pin| pin.header.number)),
        };
        let pin = self.block.pin().filter(|_| flight.requests() == 0 && proof.is_none());
        let blocks = match pin {
            Some(pin) => {
                let most = self.requests_per_batch.min(self.rotation.traits().requests_per_batch).max(1);
                self.view.blocks.requests(pin.header.number, most)
            }
            None => Vec::new(),
        };
        let (body, proof) = match proof {
            Some((body, ids)) => (body, ids),
            None if !blocks.is_empty() => (rpc::encode(&self.view.blocks.encode(&blocks)), Vec::new()),
            None => (flight.body(self.multicall3, &block), Vec::new()),
        };
        self.flight = Some(Flight { timeout_ms, proof, blocks, ..flight });
        let (endpoint, max_reply_bytes) = (self.rotation.current(), self.limits.max_reply_bytes);
        Ok(Batch { endpoint, body, delay_ms, timeout_ms, max_reply_bytes })
    }

    /// Takes the reply to the last batch.
    ///
    /// # Errors
    ///
    /// [`RunError`] where the reply ends the run. What may pass is kept, and asked again by the next step.
    #[inline(never)]
    pub(super) fn feed(&mut self, reply: Reply<'_>) -> Result<(), QueryError> {
        let Some(flight) = self.flight.take() else { return Ok(()) };
        if reply.body.len() > self.limits.max_reply_bytes {
            self.flight = Some(flight);
            return self.fail(Failure::TooLarge);
        }
        if !flight.blocks.is_empty() {
            return self.feed_blocks(&flight.blocks, reply);
        }
        if !flight.proof.is_empty() {
            return self.feed_proof(&flight.proof, flight.by_hash, reply);
        }
        let stepping_back = matches!(self.block, Block::SteppingBack { .. });
        let (by_hash, before) = (flight.by_hash, self.progress());
        let findings = match Findings::of(flight, reply, self.multicall3) {
            Ok(findings) => findings,
            Err((error, undone)) => {
                self.take_back(undone);
                return self.fault(error, true);
            }
        };
        if let Err(error) = findings.markers.iter().try_for_each(|marker| self.check(marker)) {
            self.take_back(findings.again);
            self.take_back(findings.fresh.into_iter().map(|fresh| fresh.answer.into_job()));
            self.take_back(findings.refused.into_iter().map(|(key, span)| Job::Walk(key, span)));
            return self.fault(error, true);
        }
        self.take_back(findings.again);
        for (key, span) in findings.refused {
            if let Some(walk) = self.view.walks.get_mut(&key) {
                walk.refuse(span);
            }
        }
        self.rotation.update_traits(|traits| {
            traits.by_number |= findings.by_number;
            if let Some(method) = traits.method.next().filter(|_| findings.lacks_method) {
                traits.method = method;
            }
            if let Some(requests) = findings.requests_per_batch {
                traits.requests_per_batch = requests.max(1);
            }
        });
        if findings.by_number && self.block.pin().is_some_and(|pin| pin.source != self.rotation.current()) {
            // A number is not the same block everywhere.
            self.restart();
            return Ok(());
        }
        let checked = !findings.markers.is_empty();
        let mut pinned = false;
        if stepping_back {
            let oldest = self.limits.freshness.map_or(0, |freshness| freshness.oldest());
            pinned = self.block.pin_to_older(&findings.headers, self.rotation.current(), oldest);
            if pinned {
                self.view.forget();
            }
        } else if let Some(header) = findings.headers.first() {
            pinned = self.block.is_open();
            let is_asked = self.asked.is_some() && pinned;
            self.view.is_final = is_asked && findings.finalized.is_some_and(|number| header.number <= number);
            if self.block.pin_to(*header, self.rotation.current(), checked) && self.progress() > 0 {
                self.view.forget();
            }
        } else if checked {
            self.block.check();
        }
        let moved_on = self.accept(findings.fresh, &findings.markers, by_hash, pinned);
        if findings.lacks_block || moved_on || (stepping_back && !pinned) {
            return self.repin();
        }
        if findings.progress || findings.lacks_method || pinned || self.progress() > before {
            return Ok(());
        }
        self.fault(findings.passing.unwrap_or(RunError::Stalled), false)
    }

    /// Takes note that nothing came back.
    ///
    /// # Errors
    ///
    /// [`RunError`] where nobody is left to ask.
    pub(super) fn fail(&mut self, failure: Failure) -> Result<(), QueryError> {
        let Some(flight) = self.flight.take() else { return Ok(()) };
        let (requests, seconds) = (flight.requests(), flight.timeout_ms.div_ceil(1_000));
        if !flight.blocks.is_empty() {
            return self.fail_blocks(&flight.blocks, failure, seconds);
        }
        let large = match failure {
            Failure::Unreachable => false,
            Failure::TimedOut => requests > FEW_REQUESTS,
            Failure::TooLarge => requests > 1,
        };
        let jobs: Vec<Job> = flight.jobs.into_iter().map(|posted| posted.job).collect();
        let before = self.rotation.current();
        if failure == Failure::TooLarge && self.rotation.try_another_size() {
            self.take_back(jobs);
            self.after_switch(before);
            return Ok(());
        }
        if failure == Failure::TooLarge && !flight.proof.is_empty() {
            return Err(QueryError::TooHeavy { function: "eth_getProof" });
        }
        if large {
            self.take_back(jobs);
            self.requests_per_batch = requests / 2;
            return Ok(());
        }
        if failure == Failure::TooLarge && !jobs.is_empty() {
            jobs.into_iter().for_each(|job| self.cut(job));
            return Ok(());
        }
        self.take_back(jobs);
        let error = match failure {
            Failure::Unreachable => RunError::Unreachable,
            Failure::TimedOut => RunError::TimedOut { seconds },
            Failure::TooLarge => RunError::Malformed,
        };
        self.fault(error, false)
    }

    /// Holds the endpoint to what a reply says of its block.
    fn check(&self, marker: &Marker) -> Result<(), RunError> {
        self.rotation.check_chain(marker.chain_id)?;
        let is_older = self.asked.is_some() || self.block.pin().is_some_and(|pin| pin.is_older);
        let Some(freshness) = self.limits.freshness.filter(|_| !is_older) else { return Ok(()) };
        let function = getCurrentBlockTimestampCall::SIGNATURE;
        let read_at = marker.seconds.ok_or(RunError::MulticallLacks { function })?;
        let seconds = freshness.now.seconds().saturating_sub(read_at);
        if seconds > freshness.max_age_seconds { Err(RunError::StaleHead { seconds }) } else { Ok(()) }
    }

    /// A number that grows when a reply brings something.
    fn progress(&self) -> usize {
        self.view.answers.len() + self.view.walks.values().map(Walk::answered).sum::<usize>()
    }

    /// Counts a fault against the current endpoint, and switches to the next.
    fn fault(&mut self, error: RunError, lasting: bool) -> Result<(), QueryError> {
        self.idle_rounds += 1;
        let before = self.rotation.current();
        let anyone_left = self.rotation.fault(error, lasting);
        self.after_switch(before);
        if anyone_left && self.idle_rounds <= self.limits.retries + self.rotation.others() {
            return Ok(());
        }
        Err(self.conclude(RunError::Stalled))
    }

    /// After switching endpoint: forgets what the endpoint `before` answered, unless a block hash vouches for it.
    fn after_switch(&mut self, before: usize) {
        if self.rotation.current() == before {
            return;
        }
        let by_number = |endpoint| self.rotation.known().takes_numbers_only(endpoint);
        if self.block.pin().is_none() || by_number(before) || by_number(self.rotation.current()) {
            self.restart();
        }
    }

    /// Keeps the answers that belong to this run's block, and asks the others again. True where that block is no more
    /// under its number. `by_hash`: they were asked for at the pinned hash; `pinned`: the pin came in with them.
    #[inline(never)]
    fn accept(&mut self, fresh: Vec<Fresh>, markers: &[Marker], by_hash: bool, pinned: bool) -> bool {
        let expected = self.block.parent().or_else(|| fresh.iter().find_map(|fresh| fresh.parent));
        let unpinned = self.block.is_open();
        // Without a marker to compare, one call alone is still of one block.
        let alone = unpinned && self.progress() == 0 && fresh.iter().all(|fresh| fresh.parent == expected);
        let read = markers.iter().filter(|marker| marker.parent == expected);
        self.block.set_read(read.max_by_key(|marker| marker.number.is_some()).copied());
        let mut moved_on = false;
        for Fresh { answer, parent } in fresh {
            let belongs = by_hash
                || (parent.is_some() && parent == expected)
                || (parent.is_none() && alone)
                // It holds at any block.
                || matches!(&answer, Answered::Call(_, outcome) if !matches!(outcome, Outcome::Returned(_)) && parent.is_none());
            match answer {
                Answered::Call(pending, outcome) if belongs => {
                    self.view.answers.insert(pending.call, outcome);
                }
                Answered::Walk(key, span, slice) if belongs => self.fold(key, span, slice),
                answer => {
                    // By number, another parent under the same number: the chain was reorganised.
                    moved_on |= !unpinned && !pinned;
                    self.take_back([answer.into_job()]);
                }
            }
        }
        moved_on
    }

    fn fold(&mut self, key: WalkKey, span: Span, slice: Slice) {
        if let Some(walk) = self.view.walks.get_mut(&key) {
            walk.fold(span, slice);
        }
    }

    /// The node does not know the block: once more, then a block seconds further back, or the newest of
    /// another endpoint than the one that named the block.
    fn repin(&mut self) -> Result<(), QueryError> {
        self.repins += 1;
        self.rotation.note(RunError::BlockUnavailable, false);
        // A block asked about is there or not: each endpoint is asked once more, and no other block will do.
        let most = if self.asked.is_some() { 1 + self.rotation.others() } else { self.limits.repins };
        if self.repins > most {
            return Err(self.conclude(RunError::BlockUnavailable));
        }
        let before = self.rotation.current();
        self.rotation.lacks_block();
        self.after_switch(before);
        if self.repins > 1
            && self.asked.is_none()
            && let Some(pin) = self.block.pin()
        {
            if pin.source == self.rotation.current() {
                self.block.step_back();
            } else {
                self.restart();
            }
        }
        Ok(())
    }

    /// The error to end with, of the endpoint whose trouble tells most.
    fn conclude(&mut self, otherwise: RunError) -> QueryError {
        let error = self.rotation.conclude().unwrap_or(otherwise);
        match self.asked {
            Some(block) if error.is_about_the_block() => QueryError::BlockNotAvailable(block),
            _ => error.into(),
        }
    }

    /// Begins anew, reading where the run began.
    fn restart(&mut self) {
        self.block = Block::begin(self.asked);
        self.queue.clear();
        self.view.forget();
    }
}
