//! One query and its engine, driven by a host.

use alloy_primitives::Address;

use super::{
    batch::{Batch, Failure, Limits, Reply},
    block::Header,
    endpoints::{Endpoints, Update},
    engine::Engine,
    view::{Halt, Query},
};

/// The next action of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// Send the batch, then [`feed`](Run::feed) the reply or report its [failure](Run::fail).
    Send(Batch),
    /// The output.
    Done(T),
}

/// A query being executed; the [module's documentation](super) shows how to drive it.
#[derive(Debug)]
pub struct Run<Q> {
    query: Q,
    engine: Engine,
}

impl<Q: Query> Run<Q> {
    /// Creates a run over one endpoint. `multicall3` is Multicall3's address.
    pub fn new(query: Q, multicall3: Address, limits: Limits) -> Self {
        let mut engine = Engine::new(query.block(), query.is_one_round(), multicall3, limits);
        if query.reads_other_blocks() {
            engine.read_other_blocks();
        }
        if query.reads_proofs() {
            engine.read_proofs();
        }
        Self { query, engine }
    }

    /// Uses several endpoints, or one that has to be on a certain chain.
    #[must_use]
    pub fn over(mut self, endpoints: Endpoints) -> Self {
        self.engine.over(endpoints);
        self
    }

    /// Reads at a block that the preferred endpoint has just named, by its hash.
    #[must_use]
    pub fn at(mut self, header: Header) -> Self {
        self.engine.at(header);
        self
    }

    /// Returns the query.
    pub(crate) const fn query(&self) -> &Q {
        &self.query
    }

    /// Continues with another query, keeping all results.
    #[must_use]
    pub(crate) fn go_on(self, query: impl FnOnce(Q) -> Q) -> Self {
        Self { query: query(self.query), engine: self.engine }
    }

    /// Returns the engine; its type does not depend on the query's.
    pub(crate) const fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// Returns what this run learned of the endpoints since the last update, for [`Endpoints::merge`].
    pub fn update(&mut self) -> Update {
        self.engine.update()
    }

    /// Sets the elapsed milliseconds, which the deadline is measured by. Without it there is no deadline.
    pub const fn passed(&mut self, elapsed_ms: u32) {
        self.engine.passed(elapsed_ms);
    }

    /// Advances the query as far as the known results allow.
    ///
    /// # Errors
    ///
    /// The query's own error, or [`QueryError`](super::QueryError).
    pub fn step(&mut self) -> Result<Step<Q::Output>, Q::Error> {
        self.engine.begin_step();
        while self.engine.is_idle() {
            match self.query.resolve(&self.engine.view) {
                Ok(output) => return Ok(Step::Done(output)),
                Err(Halt::Error(error)) => return Err(error),
                Err(Halt::Need(_)) => self.engine.queue_missing()?,
            }
        }
        Ok(Step::Send(self.engine.next_batch()?))
    }

    /// Returns whether the last batch may be sent to another endpoint at the same time
    /// ([`hedge`](super::hedge)): its reply is expected to be small, and means the same from any endpoint.
    pub fn may_hedge(&self) -> bool {
        self.engine.may_hedge()
    }

    /// Reports that the reply to the last batch, which is fed next, is from another endpoint than the batch
    /// names, because its [hedge](super::hedge) answered first. The run stays with that endpoint.
    pub fn answered_by(&mut self, endpoint: usize) {
        self.engine.answered_by(endpoint);
    }

    /// Takes the reply to the last batch.
    ///
    /// # Errors
    ///
    /// [`RunError`](super::RunError) if the reply ends the run. Transient failures are retried by the next
    /// step.
    pub fn feed(&mut self, reply: Reply<'_>) -> Result<(), Q::Error> {
        Ok(self.engine.feed(reply)?)
    }

    /// Records that the last batch has no reply.
    ///
    /// # Errors
    ///
    /// [`RunError`](super::RunError) if no endpoint is left to ask.
    pub fn fail(&mut self, failure: Failure) -> Result<(), Q::Error> {
        Ok(self.engine.fail(failure)?)
    }
}

/// Runs a query against a function from batch to reply, for tests and blocking hosts.
///
/// # Errors
///
/// The errors of [`Run::step`] and [`Run::feed`].
pub fn drive<Q: Query>(
    mut run: Run<Q>,
    mut post: impl FnMut(&Batch) -> (u16, Vec<u8>),
) -> Result<Q::Output, Q::Error> {
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
