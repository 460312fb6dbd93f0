//! Asking the chain without touching it: a [`Query`] says what it needs, a [`Run`] turns that into batches of
//! bytes for a host to send, and takes the bytes that came back.
//!
//! ```text
//! let mut run = Run::new(query, multicall3, limits);
//! let output = loop {
//!     match run.step()? {
//!         Step::Send(batch) => match host.post(batch.body, batch.timeout_ms).await {
//!             Ok(reply) => run.feed(reply)?,
//!             Err(failure) => run.fail(failure)?,
//!         },
//!         Step::Done(output) => break output,
//!     }
//! };
//! ```
//!
//! A host with several endpoints lends the run what it knows of them ([`Run::over`]), posts each batch to the one
//! it names, tells it the time that has [`passed`](Run::passed), and keeps what the run has learned
//! ([`Run::endpoints`]). An endpoint that fails is left for the next one at once; pauses begin when each has had
//! its chance.
//!
//! All answers of one run are read at one block. Unpinned calls carry a tag: the parent hash of the block they
//! were executed in, its chain, its time. The first round of a longer run also asks for the newest header. What
//! was read under another parent is dropped and asked again at that header's hash (EIP-1898), or at its number,
//! tagged, where the node does not take hashes. A query of one round asks for no header: its one `eth_call` is one
//! block by nature. Only what is pinned by hash outlives a turn to another endpoint.

mod batch;
mod endpoints;
mod error;
mod reply;
mod tag;
mod view;

use alloc::{format, vec::Vec};

use alloy_primitives::{Address, B256};
use alloy_sol_types::SolCall;

use crate::abi::IMulticall3::getCurrentBlockTimestampCall;
pub use batch::{Batch, Failure, Freshness, Limits, Reply};
use batch::{Flight, Pending};
pub use endpoints::Endpoints;
use endpoints::Rotation;
pub use error::RunError;
use reply::{Findings, Fresh, Header};
use tag::Tag;
use view::Answers;
pub use view::{Need, Query, View};

/// What a run wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// Send this, and [`feed`](Run::feed) what comes back, or tell that nothing did ([`fail`](Run::fail)).
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
    rotation: Rotation,
    view: View,
    /// The block all further reads are pinned to, once known.
    pin: Option<Pin>,
    /// Pin by number: the node does not take block hashes.
    by_number: bool,
    /// Where unpinned reads go: the newest block (`None`), or one a little back.
    target: Option<u64>,
    /// The endpoint the last header came from.
    source: usize,
    /// The parent hash of the block of the answers read so far.
    parent: Option<B256>,
    /// The head that `target` was chosen by is known to be fresh.
    fresh: bool,
    /// Calls waiting to be sent.
    queue: Vec<Pending>,
    flight: Option<Flight>,
    /// JSON-RPC requests the current endpoint takes in one batch.
    calls_per_batch: usize,
    rounds: u32,
    calls: usize,
    /// Rounds that brought nothing new.
    idle_rounds: u32,
    repins: u32,
    elapsed_ms: u32,
}

#[derive(Clone, Copy, Debug)]
struct Pin {
    header: Header,
    /// Whether its chain is known to be the right one: a header does not tell.
    checked: bool,
}

impl<Q: Query> Run<Q> {
    /// A run that has asked nothing yet, with one endpoint. `multicall3` is Multicall3's address on the chain.
    pub fn new(query: Q, multicall3: Address, limits: Limits) -> Self {
        Self {
            query,
            multicall3,
            rotation: Rotation::new(Endpoints::new(1, None)),
            view: View::default(),
            pin: None,
            by_number: false,
            target: None,
            source: 0,
            parent: None,
            fresh: false,
            queue: Vec::new(),
            flight: None,
            calls_per_batch: limits.calls_per_batch,
            rounds: 0,
            calls: 0,
            idle_rounds: 0,
            repins: 0,
            elapsed_ms: 0,
            limits,
        }
    }

    /// The same over several endpoints, or over one that has to be on a certain chain.
    #[must_use]
    pub fn over(self, endpoints: Endpoints) -> Self {
        Self { rotation: Rotation::new(endpoints), ..self }
    }

    /// What is known of the endpoints now.
    pub const fn endpoints(&self) -> &Endpoints {
        self.rotation.known()
    }

    /// Tells the run how many milliseconds it has been going; by this its deadline is kept. A host that never tells
    /// has none.
    pub const fn passed(&mut self, elapsed_ms: u32) {
        self.elapsed_ms = elapsed_ms;
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
        // No pause before each endpoint has had its chance.
        let delay_ms = self.idle_rounds.saturating_sub(self.rotation.others()).min(4).pow(2) * 100;
        let left = self.limits.deadline_ms.saturating_sub(self.elapsed_ms).saturating_sub(delay_ms);
        if left == 0 {
            let seconds = self.limits.deadline_ms.div_ceil(1_000);
            return Err(self.rotation.conclude().unwrap_or(RunError::OutOfTime { seconds }));
        }
        Ok(Step::Send(self.batch(delay_ms, self.limits.timeout_ms.min(left))))
    }

    /// Takes the reply to the last batch.
    ///
    /// # Errors
    ///
    /// [`RunError`] where the reply ends the run. What may pass is kept, and asked again by the next step.
    pub fn feed(&mut self, reply: Reply<'_>) -> Result<(), RunError> {
        let Some(flight) = self.flight.take() else { return Ok(()) };
        let read = Findings::of(&flight, reply, self.multicall3)
            .and_then(|findings| Ok((self.check(&findings.tags)?, findings)));
        let (other_chain, findings) = match read {
            Ok(read) => read,
            Err(error) => {
                self.queue.extend(flight.into_pending());
                return self.fault(error, true);
            }
        };
        if other_chain {
            // The first endpoint has spoken, and what was read so far is of another chain than its.
            self.restart(None);
            return Ok(());
        }
        if findings.by_number && self.rotation.current() != self.source {
            // A number is not the same block everywhere.
            self.restart(None);
            self.by_number = true;
            return Ok(());
        }
        self.by_number |= findings.by_number;
        self.queue.extend(findings.again);
        self.calls_per_batch = findings.calls_per_batch.unwrap_or(self.calls_per_batch);
        let answers_before = self.view.answers.len();
        let pinned = findings.header.is_some() && self.pin.is_none();
        let moved_on = self.accept(findings.fresh, findings.header, !findings.tags.is_empty());
        if findings.lacks_block || moved_on {
            return self.repin();
        }
        if findings.progress || pinned || self.view.answers.len() > answers_before {
            return Ok(());
        }
        self.fault(findings.passing.unwrap_or(RunError::Stalled), false)
    }

    /// Takes note that nothing came back.
    ///
    /// # Errors
    ///
    /// [`RunError`] where nobody is left to ask.
    pub fn fail(&mut self, failure: Failure) -> Result<(), RunError> {
        let Some(flight) = self.flight.take() else { return Ok(()) };
        let error = match failure {
            Failure::Unreachable => RunError::Unreachable,
            Failure::TimedOut => RunError::TimedOut { seconds: flight.timeout_ms.div_ceil(1_000) },
        };
        self.queue.extend(flight.into_pending());
        self.fault(error, false)
    }

    /// Packs the head of the queue into a batch; what does not fit waits for the next one.
    fn batch(&mut self, delay_ms: u32, timeout_ms: u32) -> Batch {
        let learn_header = self.pin.is_none() && (self.rounds > 1 || !self.query.is_one_round());
        // Where a batch may hold one request only, the header goes alone, and all calls are pinned to it.
        let room = self.calls_per_batch.max(1) - usize::from(learn_header);
        let (chunks, rest) = batch::chunks(core::mem::take(&mut self.queue), &self.limits, room);
        self.queue = rest;
        let by_hash = self.pin.is_some() && !self.by_number;
        let tagged = !by_hash || self.pin.is_some_and(|pin| !pin.checked);
        let flight = Flight { tagged, by_hash, timeout_ms, ..Flight::new(chunks, learn_header) };
        let block = match self.pin {
            Some(pin) if by_hash => format!(r#"{{"blockHash":"{:#x}"}}"#, pin.header.hash),
            Some(pin) => batch::block_number(Some(pin.header.number)),
            None => batch::block_number(self.target),
        };
        let body = flight.body(self.multicall3, &block, &batch::block_number(self.target));
        self.flight = Some(flight);
        Batch { endpoint: self.rotation.current(), body, delay_ms, timeout_ms }
    }

    /// Holds the endpoint to what its tags tell; true where answers read earlier are of another chain.
    fn check(&mut self, tags: &[Tag]) -> Result<bool, RunError> {
        let mut other_chain = false;
        for tag in tags {
            other_chain |= self.rotation.check_chain(tag.chain_id)?;
            let Some(freshness) = self.limits.freshness.filter(|_| !self.fresh) else { continue };
            let function = getCurrentBlockTimestampCall::SIGNATURE;
            let read_at = tag.seconds.ok_or(RunError::MulticallLacks { function })?;
            let seconds = freshness.now.seconds().saturating_sub(read_at);
            if seconds > freshness.max_age_seconds {
                return Err(RunError::StaleHead { seconds });
            }
            // A block a little back may be older than this one, which was the newest.
            self.fresh = true;
        }
        Ok(other_chain)
    }

    /// Counts a fault against the current endpoint, and turns to the next.
    fn fault(&mut self, error: RunError, lasting: bool) -> Result<(), RunError> {
        self.idle_rounds += 1;
        let before = self.rotation.current();
        let anyone_left = self.rotation.fault(error, lasting);
        self.turned(before);
        if anyone_left && self.idle_rounds <= self.limits.retries + self.rotation.others() {
            return Ok(());
        }
        Err(self.rotation.conclude().unwrap_or(RunError::Stalled))
    }

    /// Forgets, where the endpoint is another than `before`, how that one wants to be asked, and what it said that no
    /// hash vouches for.
    fn turned(&mut self, before: usize) {
        if self.rotation.current() == before {
            return;
        }
        self.calls_per_batch = self.limits.calls_per_batch;
        if self.pin.is_none() || self.by_number {
            self.restart(None);
        }
        self.by_number = false;
    }

    /// Keeps the answers that belong to this run's block, and asks the others again. True where that block is no more
    /// under its number. `checked`: the reply told its chain, and it is the right one.
    fn accept(&mut self, fresh: Vec<Fresh>, header: Option<Header>, checked: bool) -> bool {
        let mut moved_on = false;
        match (&mut self.pin, header) {
            (None, Some(header)) => {
                self.pin = Some(Pin { header, checked });
                self.source = self.rotation.current();
                if self.parent != Some(header.parent_hash) {
                    self.view.answers.clear();
                }
                self.parent = Some(header.parent_hash);
            }
            (Some(pin), _) => pin.checked |= checked,
            (None, None) => {}
        }
        let pinned_by_hash = self.pin.is_some() && !self.by_number && header.is_none();
        let whole = self.view.answers.is_empty() && self.pin.is_none();
        let expected = self.parent.or_else(|| fresh.iter().find_map(|fresh| fresh.parent));
        if self.pin.is_none() {
            self.parent = expected;
        }
        let one_chunk = fresh.iter().all(|fresh| fresh.parent == expected);
        for Fresh { pending, answer, parent } in fresh {
            // Without a tag to compare, one chunk alone is still of one block.
            if pinned_by_hash
                || (parent.is_some() && parent == expected)
                || (parent.is_none() && whole && one_chunk)
            {
                self.view.answers.insert(pending.call, answer);
            } else {
                // By number, another parent under the same number: the chain was reorganised.
                moved_on |= self.pin.is_some() && self.by_number && header.is_none();
                self.queue.push(pending);
            }
        }
        moved_on
    }

    /// The node does not know the block: once more, then from a block a little further back, or from the newest of
    /// another endpoint than the one that named the block.
    fn repin(&mut self) -> Result<(), RunError> {
        const BLOCKS_BACK: u64 = 2;
        self.repins += 1;
        self.rotation.note(RunError::BlockUnavailable, false);
        if self.repins > self.limits.repins {
            return Err(self.rotation.conclude().unwrap_or(RunError::BlockUnavailable));
        }
        let before = self.rotation.current();
        self.rotation.lacks_block();
        self.turned(before);
        let number = self.pin.map(|pin| pin.header.number).or(self.target);
        if let (Some(number), true) = (number, self.repins > 1) {
            let own = self.rotation.current() == self.source;
            self.restart(own.then(|| number.saturating_sub(BLOCKS_BACK)));
        }
        Ok(())
    }

    /// Begins anew, reading at `target` or the newest block.
    fn restart(&mut self, target: Option<u64>) {
        self.target = target;
        self.fresh &= target.is_some();
        self.pin = None;
        self.parent = None;
        self.queue.clear();
        self.view.answers = Answers::new();
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
