//! The RPC engine: decides what to send next and processes replies, for queries of any type. It is not
//! generic, so that the wasm holds it once.

mod block_reply;
mod checks;
mod failover;
mod pack;
mod proof_reply;

use alloy_primitives::Address;
use block_reply::BlockReader;
use proof_reply::ProofReader;

use super::{
    batch::{self, Batch, Failure, InFlight, Job, Limits, PendingCall, Reply},
    block::{Header, ReadBlock},
    endpoints::{Endpoints, Rotation, Update},
    error::{QueryError, RunError},
    hedge::MAX_HEDGED_BYTES,
    marker::Marker,
    node_traits::NodeTraits,
    reply::{JobResult, MarkedResult, ParsedReply},
    view::{CallResult, View},
    walk::AgentWalk,
};
use crate::eth::as_of::BlockId;

/// Largest batch with a time-out that counts against the endpoint; a larger batch may itself be the reason.
const FEW_REQUESTS: usize = 4;

/// The state of one run without its query, which [`Run`](super::Run) adds.
#[derive(Debug)]
pub(crate) struct Engine {
    multicall3: Address,
    limits: Limits,
    rotation: Rotation,
    pub(super) view: View,
    /// Set for a query that reads other blocks.
    block_reader: Option<&'static BlockReader>,
    /// Set for a query that reads proofs.
    proof_reader: Option<&'static ProofReader>,
    /// The first round's results are usually all that the query needs.
    is_one_round: bool,
    /// The block the query is about, if not the newest.
    asked: Option<BlockId>,
    block: ReadBlock,
    /// The query needs the header of its block to continue.
    wants_header: bool,
    /// Calls to send. Walks keep their own queues.
    queue: Vec<PendingCall>,
    in_flight: Option<InFlight>,
    /// JSON-RPC requests per batch, after larger batches failed.
    requests_per_batch: usize,
    /// Batches are answered in part: the header does not come with each.
    is_short: bool,
    /// A batch with logs had no answer: one of headers alone is next. If it is answered, the endpoint has
    /// these traits.
    checks_headers: Option<NodeTraits>,
    /// Error of a batch without results at the block asked about, and whether it is lasting, while the same
    /// batch is tried at the newest block.
    probe: Option<(RunError, bool)>,
    /// Result of a refused batch at the newest block: if it worked, the next refusal is about the block.
    works_at_newest: Option<bool>,
    rounds: u32,
    calls: usize,
    /// Rounds without progress.
    idle_rounds: u32,
    repins: u32,
    /// Times that the newest block was taken together with its proof, because an older one was refused.
    proofs_of_newest: u32,
    elapsed_ms: u32,
    /// Milliseconds added to the deadline by walks.
    extra_ms: u32,
}

impl Engine {
    /// Creates an engine without any state, for a query about the block `asked`. `multicall3` is Multicall3's
    /// address.
    pub(super) fn new(
        asked: Option<BlockId>,
        is_one_round: bool,
        multicall3: Address,
        limits: Limits,
    ) -> Self {
        Self {
            asked,
            block: ReadBlock::begin(asked),
            block_reader: None,
            proof_reader: None,
            is_one_round,
            multicall3,
            requests_per_batch: limits.requests_per_batch,
            limits,
            rotation: Rotation::new(Endpoints::new(1, None)),
            view: View::about(asked),
            wants_header: false,
            queue: Vec::new(),
            in_flight: None,
            probe: None,
            works_at_newest: None,
            is_short: false,
            checks_headers: None,
            rounds: 0,
            calls: 0,
            idle_rounds: 0,
            repins: 0,
            proofs_of_newest: 0,
            elapsed_ms: 0,
            extra_ms: 0,
        }
    }

    /// Enables reads of headers and logs of other blocks.
    pub(super) const fn read_other_blocks(&mut self) {
        self.block_reader = Some(&BlockReader::READER);
    }

    /// Enables reads of proofs.
    pub(super) const fn read_proofs(&mut self) {
        self.proof_reader = Some(&ProofReader::READER);
    }

    pub(super) fn over(&mut self, endpoints: Endpoints) {
        self.rotation = Rotation::new(endpoints);
    }

    pub(super) fn at(&mut self, header: Header) {
        self.block = ReadBlock::pinned(header, self.rotation.current());
    }

    /// See [`Run::update`](super::Run::update).
    pub(crate) fn update(&mut self) -> Update {
        self.rotation.known.update()
    }

    /// See [`Run::passed`](super::Run::passed).
    pub(crate) const fn passed(&mut self, elapsed_ms: u32) {
        self.elapsed_ms = elapsed_ms;
    }

    /// Prepares the view for the query. The jobs of a batch that the host never answered are queued again.
    #[inline(never)]
    pub(super) fn begin_step(&mut self) {
        if let Some(in_flight) = self.in_flight.take() {
            self.take_back(in_flight.into_jobs());
        }
        self.view.as_of = self.block.as_of();
        self.view.block = self.block.pin().map(|pin| pin.header);
    }

    /// Returns whether nothing is left to send, so that the query can continue.
    pub(super) fn is_idle(&self) -> bool {
        !self.wants_header
            && self.view.pending_proof.is_none()
            && !self.view.blocks.is_wanted()
            && self.queue.is_empty()
            && self.view.walks.values().all(AgentWalk::is_idle)
    }

    /// Returns the next batch, or an error beyond the [`Limits`].
    // Never inlined into the host's async function, which is polled repeatedly: V8 needs megabytes to
    // optimize a long function. The same holds for every `inline(never)` of this module.
    #[inline(never)]
    pub(super) fn next_batch(&mut self) -> Result<Batch, QueryError> {
        self.rounds += 1;
        if self.rounds > self.limits.rounds {
            return Err(RunError::TooManyRounds.into());
        }
        // Backoff starts after each endpoint has had its chance.
        let delay_ms = self.idle_rounds.saturating_sub(self.rotation.others()).min(4).pow(2) * 100;
        let in_flight = self.pack();
        let is_empty = in_flight.requests() == 0;
        let reader = self.proof_reader.filter(|_| is_empty);
        let proof = reader.and_then(|reader| (reader.batch)(self, in_flight.by_hash));
        let walks = in_flight.jobs.iter().filter(|sent| matches!(sent.job, Job::Walk(..))).count();
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
            _ if in_flight.is_probe => batch::block_number(None),
            ReadBlock::Pinned(pin) if in_flight.by_hash => {
                format!(r#"{{"blockHash":"{:#x}"}}"#, pin.header.hash)
            }
            // If two blocks share a number, only the canonical one is meant.
            ReadBlock::Asked(BlockId::Hash(hash)) => {
                format!(r#"{{"blockHash":"{hash:#x}","requireCanonical":true}}"#)
            }
            ReadBlock::Asked(BlockId::Number(number)) => batch::block_number(Some(number)),
            block => batch::block_number(block.pin().map(|pin| pin.header.number)),
        };
        let pin = self.block.pin().filter(|_| is_empty && proof.is_none());
        let blocks = pin.zip(self.block_reader).map(|(pin, reader)| (reader.batch)(self, pin.header.number));
        let (blocks, of_blocks) = blocks.unwrap_or_default();
        let (body, proof) = match proof {
            Some((ids, body)) => (body, ids),
            None if !blocks.is_empty() => (of_blocks, Vec::new()),
            None => (in_flight.body(self.multicall3, &block), Vec::new()),
        };
        self.in_flight = Some(InFlight { timeout_ms, proof, blocks, ..in_flight });
        let (endpoint, max_reply_bytes) = (self.rotation.current(), self.limits.max_reply_bytes);
        Ok(Batch { endpoint, body, delay_ms, timeout_ms, max_reply_bytes })
    }

    /// See [`Run::may_hedge`](super::Run::may_hedge).
    pub(super) fn may_hedge(&self) -> bool {
        self.in_flight.as_ref().is_some_and(|in_flight| {
            // At another endpoint a number may be another block than that of earlier results.
            let is_same_anywhere = in_flight.by_hash || (self.block.is_open() && self.progress() == 0);
            let is_check = self.checks_headers.is_some();
            is_same_anywhere && !is_check && in_flight.expected_bytes() <= MAX_HEDGED_BYTES
        })
    }

    /// See [`Run::answered_by`](super::Run::answered_by).
    pub(super) fn answered_by(&mut self, endpoint: usize) {
        self.rotation.stay_with(endpoint);
    }

    /// Takes the reply to the last batch. Transient failures are retried by the next step; others end the
    /// run.
    #[inline(never)]
    pub(crate) fn feed(&mut self, reply: Reply<'_>) -> Result<(), QueryError> {
        let Some(in_flight) = self.in_flight.take() else { return Ok(()) };
        if reply.body.len() > self.limits.max_reply_bytes {
            self.in_flight = Some(in_flight);
            return self.fail(Failure::TooLarge);
        }
        if let Some(reader) = self.block_reader.filter(|_| !in_flight.blocks.is_empty()) {
            return (reader.feed)(self, &in_flight.blocks, reply);
        }
        if let Some(reader) = self.proof_reader.filter(|_| !in_flight.proof.is_empty()) {
            return (reader.feed)(self, &in_flight.proof, in_flight.by_hash, reply);
        }
        // A gateway's time-out.
        if ParsedReply::is_gateway_timeout(reply, in_flight.requests()) {
            return self.no_reply(in_flight, Failure::TimedOut, RunError::Http(reply.status));
        }
        let stepping_back = matches!(self.block, ReadBlock::SteppingBack { .. });
        let (by_hash, before) = (in_flight.by_hash, self.progress());
        let (method, requests, work) = (in_flight.method, in_flight.requests(), in_flight.most_work());
        let checked = ParsedReply::of(&in_flight, reply, self.multicall3, self.node()).and_then(|parsed| {
            parsed.markers.iter().try_for_each(|marker| self.check(marker))?;
            self.check_block(&parsed, &in_flight)?;
            Ok(parsed)
        });
        let (tried, refusal) = (self.probe.take(), self.refusal(&checked));
        let parsed = match checked {
            Ok(parsed) if tried.is_none() && (refusal.is_none() || self.works_at_newest == Some(false)) => {
                parsed
            }
            checked => {
                self.take_back(in_flight.into_jobs());
                return self.without_results(checked, tried, refusal, by_hash);
            }
        };
        if self.sees_other_blocks(&parsed) {
            self.take_back(in_flight.into_jobs());
            return Ok(());
        }
        self.take_back(parsed.again);
        for (key, span) in parsed.refused {
            if let Some(walk) = self.view.walks.get_mut(&key) {
                walk.refuse(span);
            }
        }
        let tells_block = |marker: &Marker| marker.parent.is_some() || marker.seconds.is_some();
        let is_silent = !parsed.markers.is_empty() && !parsed.markers.iter().any(tells_block);
        let is_by_number = self.rotation.traits().takes_hashes == Some(false);
        let is_trial = self.block.pin().is_some() && !by_hash && !is_by_number;
        if is_trial && (is_silent || parsed.is_too_much) {
            self.rotation.leave_numbers();
            self.take_back(parsed.results.into_iter().map(|marked| marked.result.into_job()));
            return Ok(());
        }
        if parsed.by_number {
            self.rotation.try_numbers(true);
        } else if parsed.lacks_method {
            self.rotation.try_numbers(false);
        } else if !parsed.results.is_empty() {
            self.rotation.learn_answer(by_hash, !self.block.is_open());
        }
        if parsed.is_refused {
            self.rotation.refused();
        }
        if parsed.answered > 0 {
            self.works_at_newest = None;
        }
        self.rotation.learn_batch(parsed.answered, requests);
        self.rotation.learn(NodeTraits {
            method: if parsed.lacks_method { method.next() } else { parsed.used_method },
            requests_per_batch: parsed.requests_per_batch,
            ..NodeTraits::default()
        });
        if parsed.by_number && self.block.pin().is_some_and(|pin| pin.source != self.rotation.current()) {
            // A number is not the same block at every endpoint.
            self.restart();
            return Ok(());
        }
        let checked = !parsed.markers.is_empty();
        let mut pinned = false;
        if stepping_back {
            let oldest = self.limits.freshness.map_or(0, |freshness| freshness.oldest());
            pinned = self.block.pin_to_older(&parsed.headers, self.rotation.current(), oldest);
            if pinned {
                self.view.forget();
            }
        } else if let Some((pin, header)) = self.block.pin().zip(parsed.headers.first()) {
            if pin.header.hash != header.hash {
                return self.leave_block();
            }
            self.block.confirm();
            if checked {
                self.block.check();
            }
            if parsed.results.is_empty() && !parsed.progress && !parsed.lacks_method && !self.is_short {
                // A node that answers the first requests of a batch alone answers the others without the
                // header.
                self.is_short = true;
                return Ok(());
            }
        } else if let Some(header) = parsed.headers.first() {
            pinned = self.block.is_open();
            let is_asked = self.asked.is_some() && pinned;
            self.view.is_final = is_asked && parsed.finalized.is_some_and(|number| header.number <= number);
            if self.block.pin_to(*header, self.rotation.current(), checked) && self.progress() > 0 {
                self.view.forget();
            }
        } else if checked {
            self.block.check();
        }
        let moved_on = self.accept(parsed.results, &parsed.markers, by_hash, pinned);
        if parsed.lacks_block || moved_on || (stepping_back && !pinned) {
            return self.repin();
        }
        if parsed.progress || parsed.lacks_method || pinned || self.progress() > before {
            return Ok(());
        }
        match parsed.passing {
            Some(error) if parsed.timed_out => self.timed_out(requests, work, error),
            // Requests that a reply leaves out are sent in a smaller batch, in the end alone.
            None if requests > 1 => {
                self.requests_per_batch = requests / 2;
                Ok(())
            }
            passing => self.fault(passing.unwrap_or(RunError::Stalled), false),
        }
    }

    /// Records that the last batch has no reply; an error if no endpoint is left to ask.
    pub(crate) fn fail(&mut self, failure: Failure) -> Result<(), QueryError> {
        let Some(in_flight) = self.in_flight.take() else { return Ok(()) };
        let seconds = in_flight.timeout_ms.div_ceil(1_000);
        if let Some(reader) = self.block_reader.filter(|_| !in_flight.blocks.is_empty()) {
            return (reader.fail)(self, &in_flight.blocks, failure, seconds);
        }
        let error = match failure {
            Failure::Unreachable => RunError::Unreachable,
            Failure::TimedOut => RunError::TimedOut { seconds },
            Failure::TooLarge => RunError::Malformed,
        };
        self.no_reply(in_flight, failure, error)
    }

    /// Returns the current limit of JSON-RPC requests per batch.
    fn most_requests(&self) -> usize {
        self.requests_per_batch.min(self.rotation.traits().requests_per_batch.unwrap_or(usize::MAX)).max(1)
    }

    /// Returns a number that grows whenever a reply adds a result.
    fn progress(&self) -> usize {
        self.view.answers.len() + self.view.walks.values().map(AgentWalk::answered).sum::<usize>()
    }

    /// Keeps the results of this run's block and queues the others again. True if a reorg replaced that
    /// block. `by_hash`: the requests were pinned by hash; `pinned`: this reply pinned the block.
    #[inline(never)]
    fn accept(
        &mut self,
        results: Vec<MarkedResult>,
        markers: &[Marker],
        by_hash: bool,
        pinned: bool,
    ) -> bool {
        let parent_of = |marked: &MarkedResult| marked.marker.and_then(|marker| marker.parent);
        let expected = self.block.parent().or_else(|| results.iter().find_map(parent_of));
        let unpinned = self.block.is_open();
        let header = self.block.pin().map(|pin| pin.header);
        // Without a marker to compare, a single call is consistent by itself.
        let alone =
            unpinned && self.progress() == 0 && results.iter().all(|marked| parent_of(marked) == expected);
        let read = markers.iter().filter(|marker| marker.parent == expected);
        self.block.set_read(read.max_by_key(|marker| marker.number.is_some()).copied());
        let mut moved_on = false;
        for marked in results {
            let parent = parent_of(&marked);
            let MarkedResult { result, marker } = marked;
            let is_of_block = match (header, marker) {
                (Some(header), Some(marker)) => header.is_of_marker(&marker).unwrap_or(by_hash),
                (Some(_), None) => by_hash,
                // Its header comes later.
                (None, _) => {
                    by_hash || (parent.is_some() && parent == expected) || (parent.is_none() && alone)
                }
            };
            let belongs = is_of_block
                // Holds at any block.
                || matches!(&result, JobResult::Call(_, outcome) if !matches!(outcome, CallResult::Returned(_)) && parent.is_none());
            match result {
                JobResult::Call(pending, outcome) if belongs => {
                    self.view.answers.insert(pending.call, outcome);
                }
                JobResult::Walk(key, span, slice) if belongs => {
                    if let Some(walk) = self.view.walks.get_mut(&key) {
                        walk.fold(span, slice);
                    }
                }
                result => {
                    // Pinned by number, with another parent: a reorg.
                    moved_on |= !unpinned && !pinned;
                    self.take_back([result.into_job()]);
                }
            }
        }
        moved_on
    }
}
