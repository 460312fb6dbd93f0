//! Asking the chain without touching it: a [`Query`] says what it needs, a [`Run`] turns that into batches of
//! bytes for a host to send, and takes the bytes that came back.
//!
//! ```text
//! let mut run = Run::new(query, multicall3, limits);
//! let output = loop {
//!     match run.step()? {
//!         Step::Send(batch) => run.feed(host.post(batch.body).await)?,
//!         Step::Done(output) => break output,
//!     }
//! };
//! ```
//!
//! All answers of one run are read at one block. Unpinned calls carry a tag, the parent hash of the block
//! they were executed in; the first round of a longer run also asks for the newest header. What was read
//! under another parent is dropped and asked again at that header's hash (EIP-1898), or at its number,
//! tagged, where the node does not take hashes. A query of one round asks for no header: its one `eth_call`
//! is one block by nature.

mod batch;
mod view;

use alloc::{collections::BTreeMap, format, vec::Vec};

use alloy_primitives::{Address, B256};
use serde::Deserialize;

use crate::{
    multicall::{self, CallOutcome},
    rpc::{
        self, BadReply, ErrorObject,
        classify::{Action, classify},
    },
};
pub use batch::{Batch, Limits, Reply, RunError};
use batch::{Chunk, Flight, Pending, call_result};
use view::{Answer, Answers};
pub use view::{Need, Query, View};

/// What a run wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// Send this, and [`feed`](Run::feed) what comes back.
    Send(Batch),
    /// The question is answered.
    Done(T),
}

/// One question on its way to its answer; see the [module's documentation](self) for how to drive it.
#[derive(Debug)]
pub struct Run<Q> {
    query: Q,
    multicall3: Address,
    limits: Limits,
    view: View,
    /// The block all further reads are pinned to, once known.
    pin: Option<Header>,
    /// Pin by number: the node does not take block hashes.
    by_number: bool,
    /// Where unpinned reads go: the newest block (`None`), or one a little back.
    target: Option<u64>,
    /// The tag of the answers read so far without a pin.
    tag: Option<B256>,
    /// Calls waiting to be sent.
    queue: Vec<Pending>,
    flight: Option<Flight>,
    rounds: u32,
    calls: usize,
    /// Rounds that brought nothing new.
    idle_rounds: u32,
    repins: u32,
}

/// As much of a block header as pinning needs.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Header {
    #[serde(deserialize_with = "batch::quantity")]
    number: u64,
    #[serde(deserialize_with = "batch::hash")]
    hash: B256,
    #[serde(deserialize_with = "batch::hash")]
    parent_hash: B256,
}

/// An answer that just came in, and under which parent hash it was read.
struct Fresh {
    pending: Pending,
    answer: Answer,
    tag: Option<B256>,
}

/// What a reply asks for besides its answers.
#[derive(Default)]
struct Troubles {
    repin: bool,
    progress: bool,
    last: Option<RunError>,
}

impl<Q: Query> Run<Q> {
    /// A run that has asked nothing yet. `multicall3` is the address of Multicall3 on the chain.
    pub fn new(query: Q, multicall3: Address, limits: Limits) -> Self {
        Self {
            query,
            multicall3,
            limits,
            view: View::default(),
            pin: None,
            by_number: false,
            target: None,
            tag: None,
            queue: Vec::new(),
            flight: None,
            rounds: 0,
            calls: 0,
            idle_rounds: 0,
            repins: 0,
        }
    }

    /// Goes on as far as the answers known allow.
    ///
    /// # Errors
    ///
    /// [`RunError`] where the question cannot be answered, or only beyond the [`Limits`].
    pub fn step(&mut self) -> Result<Step<Q::Output>, RunError> {
        // A batch the host never answered counts as lost: its calls are asked again.
        if let Some(flight) = self.flight.take() {
            self.queue.extend(flight.into_pending());
        }
        if self.queue.is_empty() {
            let needed = match self.query.resolve(&self.view) {
                Ok(output) => return Ok(Step::Done(output)),
                Err(need) => self.view.needed(need)?,
            };
            self.calls += needed.len();
            if self.calls > self.limits.calls {
                return Err(RunError::TooManyCalls);
            }
            let peers = self.limits.calls_per_chunk;
            self.queue.extend(needed.into_iter().map(|call| Pending { call, peers }));
        }
        self.rounds += 1;
        if self.rounds > self.limits.rounds {
            return Err(RunError::TooManyRounds);
        }
        Ok(Step::Send(self.batch()))
    }

    /// Takes the reply to the last batch.
    ///
    /// # Errors
    ///
    /// [`RunError`] where the reply ends the run. What may pass is kept, and asked again by the next step.
    pub fn feed(&mut self, reply: Reply<'_>) -> Result<(), RunError> {
        let Some(flight) = self.flight.take() else { return Ok(()) };
        let answers_before = self.view.answers.len();
        let mut troubles = Troubles::default();
        match rpc::decode(reply.body, &flight.ids()) {
            Ok(outcomes) => self.take(flight, outcomes, &mut troubles)?,
            Err(bad) => self.refused(flight, bad, reply.status, &mut troubles)?,
        }
        if troubles.repin {
            return self.repin();
        }
        if troubles.progress || self.view.answers.len() > answers_before {
            return Ok(());
        }
        self.idle_rounds += 1;
        match troubles.last {
            _ if self.idle_rounds <= self.limits.retries => Ok(()),
            Some(error) => Err(error),
            None => Err(RunError::Stalled),
        }
    }

    /// Packs the head of the queue into a batch; what does not fit waits for the next one.
    fn batch(&mut self) -> Batch {
        let learn_header = self.pin.is_none() && (self.rounds > 1 || !self.query.is_one_round());
        let tagged = self.pin.is_none() || self.by_number;
        // Where a batch may hold one request only, the header goes alone, and all calls are pinned to it.
        let room = self.limits.calls_per_batch.max(1) - usize::from(learn_header);
        let (chunks, rest) = batch::chunks(core::mem::take(&mut self.queue), &self.limits, room);
        self.queue = rest;
        let flight = Flight::new(chunks, learn_header, tagged);
        let block = match (self.pin, self.by_number) {
            (Some(pin), false) => format!(r#"{{"blockHash":"{:#x}"}}"#, pin.hash),
            (Some(pin), true) => batch::block_number(Some(pin.number)),
            (None, _) => batch::block_number(self.target),
        };
        let body = flight.body(self.multicall3, &block, &batch::block_number(self.target));
        self.flight = Some(flight);
        Batch { body, delay_ms: self.idle_rounds.min(4).pow(2) * 100 }
    }

    /// Sorts a reply's outcomes into answers and calls to ask again.
    fn take(
        &mut self,
        flight: Flight,
        mut outcomes: BTreeMap<u64, rpc::Outcome>,
        troubles: &mut Troubles,
    ) -> Result<(), RunError> {
        let header = match flight.header.and_then(|id| outcomes.remove(&id)) {
            Some(outcome) => self.header(outcome, flight.tagged, troubles)?,
            None => None,
        };
        let tagged = flight.tagged;
        let mut fresh = Vec::new();
        for Chunk { id, calls } in flight.chunks {
            match outcomes.remove(&id) {
                Some(Ok(result)) => self.unpack(calls, &result, tagged, &mut fresh, troubles)?,
                Some(Err(error)) => self.node_error(calls, &error, tagged, troubles)?,
                None => self.queue.extend(calls),
            }
        }
        self.accept(fresh, header, troubles);
        Ok(())
    }

    /// The header in an outcome; `None` where it has to be asked for again.
    fn header(
        &mut self,
        outcome: rpc::Outcome,
        tagged: bool,
        troubles: &mut Troubles,
    ) -> Result<Option<Header>, RunError> {
        match outcome {
            Ok(result) => match serde_json::from_str::<Option<Header>>(&result) {
                Ok(Some(header)) => Ok(Some(header)),
                // A node behind a load balancer that has not seen the block yet answers null.
                Ok(None) => {
                    troubles.repin = true;
                    Ok(None)
                }
                Err(_) => Err(RunError::Malformed),
            },
            Err(error) => self.node_error(Vec::new(), &error, tagged, troubles).map(|()| None),
        }
    }

    /// Takes one `aggregate3` result apart.
    fn unpack(
        &mut self,
        calls: Vec<Pending>,
        result: &str,
        tagged: bool,
        fresh: &mut Vec<Fresh>,
        troubles: &mut Troubles,
    ) -> Result<(), RunError> {
        let data = call_result(result).ok_or(RunError::Malformed)?;
        if data.is_empty() {
            return Err(RunError::NoMulticall(self.multicall3));
        }
        let mut outcomes = multicall::unpack(&data).ok_or(RunError::Malformed)?.into_iter();
        let tag = match tagged.then(|| outcomes.next()).flatten() {
            Some(CallOutcome::Returned(hash)) => B256::try_from(hash.as_ref()).ok(),
            _ => None,
        };
        if outcomes.len() != calls.len() {
            return Err(RunError::Malformed);
        }
        let alone = calls.len() == 1;
        for (pending, outcome) in calls.into_iter().zip(outcomes) {
            let answer = match outcome {
                CallOutcome::Returned(data) => Answer::Returned(data),
                CallOutcome::Reverted(revert) => Answer::Reverted(revert),
                CallOutcome::Ambiguous if alone => Answer::Reverted(Default::default()),
                CallOutcome::Ambiguous => {
                    self.queue.push(pending.split());
                    troubles.progress = true;
                    continue;
                }
            };
            fresh.push(Fresh { pending, answer, tag });
        }
        Ok(())
    }

    /// Does about a node's error what it calls for.
    fn node_error(
        &mut self,
        calls: Vec<Pending>,
        error: &ErrorObject,
        tagged: bool,
        troubles: &mut Troubles,
    ) -> Result<(), RunError> {
        let splittable = calls.len() > 1;
        match classify(error) {
            Action::Split | Action::Revert if splittable => {
                self.queue.extend(calls.into_iter().map(Pending::split));
                troubles.progress = true;
                return Ok(());
            }
            // Only calls pinned by hash go untagged.
            Action::PinByNumber if !tagged => {
                self.by_number = true;
                troubles.progress = true;
            }
            Action::Repin => troubles.repin = true,
            Action::Retry => troubles.last = Some(RunError::node(error)),
            _ => return Err(RunError::node(error)),
        }
        self.queue.extend(calls);
        Ok(())
    }

    /// Deals with a reply that answers nothing that was asked.
    fn refused(
        &mut self,
        flight: Flight,
        bad: BadReply,
        status: u16,
        troubles: &mut Troubles,
    ) -> Result<(), RunError> {
        let (requests, tagged) = (flight.ids().len(), flight.tagged);
        let calls: Vec<Pending> = flight.into_pending().collect();
        match bad {
            BadReply::Refused(error)
                if requests > 1 && matches!(classify(&error), Action::Split | Action::GiveUp) =>
            {
                // Too large a batch, or none allowed: half as many requests, in the end one by one.
                self.limits.calls_per_batch = requests / 2;
                troubles.progress = true;
                self.queue.extend(calls);
                Ok(())
            }
            BadReply::Refused(error) => self.node_error(calls, &error, tagged, troubles),
            BadReply::Malformed => {
                let error =
                    if (200..300).contains(&status) { RunError::Malformed } else { RunError::Http(status) };
                if !matches!(status, 200..300 | 408 | 429 | 500..) {
                    return Err(error);
                }
                troubles.last = Some(error);
                self.queue.extend(calls);
                Ok(())
            }
        }
    }

    /// Keeps the answers that belong to this run's block, and asks the others again.
    fn accept(&mut self, fresh: Vec<Fresh>, header: Option<Header>, troubles: &mut Troubles) {
        if let (None, Some(header)) = (self.pin, header) {
            self.pin = Some(header);
            troubles.progress = true;
            if self.tag != Some(header.parent_hash) {
                self.view.answers.clear();
            }
            self.tag = Some(header.parent_hash);
        }
        let pinned_by_hash = self.pin.is_some() && !self.by_number && header.is_none();
        let whole = self.view.answers.is_empty() && self.pin.is_none();
        let expected = self.tag.or_else(|| fresh.iter().find_map(|fresh| fresh.tag));
        if self.pin.is_none() {
            self.tag = expected;
        }
        let one_chunk = fresh.iter().all(|fresh| fresh.tag == expected);
        for Fresh { pending, answer, tag } in fresh {
            // Without a tag to compare, one chunk alone is still of one block.
            if pinned_by_hash || (tag.is_some() && tag == expected) || (tag.is_none() && whole && one_chunk) {
                self.view.answers.insert(pending.call, answer);
            } else {
                // By number, another parent under the same number: the chain was reorganised.
                troubles.repin |= self.pin.is_some() && self.by_number && header.is_none();
                self.queue.push(pending);
            }
        }
    }

    /// The node does not know the block: once more, then from a block a little further back.
    fn repin(&mut self) -> Result<(), RunError> {
        const BLOCKS_BACK: u64 = 2;
        self.repins += 1;
        if self.repins > self.limits.repins {
            return Err(RunError::BlockUnavailable);
        }
        let number = self.pin.map(|pin| pin.number).or(self.target);
        if let (Some(number), true) = (number, self.repins > 1) {
            self.target = Some(number.saturating_sub(BLOCKS_BACK));
            self.pin = None;
            self.tag = None;
            self.queue.clear();
            self.view.answers = Answers::new();
        }
        Ok(())
    }
}

/// Runs a query against a function from body to reply: for tests and for hosts that block.
///
/// # Errors
///
/// [`RunError`] of the run.
pub fn drive<Q: Query>(
    mut run: Run<Q>,
    mut post: impl FnMut(&Batch) -> (u16, Vec<u8>),
) -> Result<Q::Output, RunError> {
    loop {
        match run.step()? {
            Step::Send(batch) => {
                let (status, body) = post(&batch);
                run.feed(Reply { status, body: &body })?;
            }
            Step::Done(output) => return Ok(output),
        }
    }
}
