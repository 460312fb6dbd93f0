//! One query on its way to its output.

use alloy_primitives::Address;

use super::{
    batch::{Batch, Failure, Limits, Reply},
    block::Header,
    endpoints::{Endpoints, Update},
    engine::Engine,
    view::{Halt, Query},
};

/// What a run wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// Send this, and [`feed`](Run::feed) what comes back, or report that nothing did ([`fail`](Run::fail)).
    Send(Batch),
    /// The query's output.
    Done(T),
}

/// One query on its way to its output; see the [module's documentation](super) for how to drive it.
#[derive(Debug)]
pub struct Run<Q> {
    query: Q,
    engine: Engine,
}

impl<Q: Query> Run<Q> {
    /// A run that has asked nothing yet, with one endpoint. `multicall3` is Multicall3's address on the chain.
    pub fn new(query: Q, multicall3: Address, limits: Limits) -> Self {
        let engine = Engine::new(query.block(), query.is_one_round(), multicall3, limits);
        Self { query, engine }
    }

    /// The same over several endpoints, or over one that has to be on a certain chain.
    #[must_use]
    pub fn over(mut self, endpoints: Endpoints) -> Self {
        self.engine.over(endpoints);
        self
    }

    /// The same at a block that the endpoint asked first has just named, by its hash.
    #[must_use]
    pub fn at(mut self, header: Header) -> Self {
        self.engine.at(header);
        self
    }

    /// The same run, its answers included, for a query that goes on where this one ended.
    #[must_use]
    pub(crate) fn go_on(self, query: impl FnOnce(Q) -> Q) -> Self {
        Self { query: query(self.query), engine: self.engine }
    }

    /// What this run has found out about the endpoints since the last time, for [`Endpoints::merge`].
    pub fn update(&mut self) -> Update {
        self.engine.update()
    }

    /// Sets how many milliseconds the run has been going; its deadline is kept by this. A host that never calls it has no
    /// deadline.
    pub const fn passed(&mut self, elapsed_ms: u32) {
        self.engine.passed(elapsed_ms);
    }

    /// Goes on as far as the answers known allow.
    ///
    /// # Errors
    ///
    /// The error that the query ends with, its own or [`QueryError`](super::QueryError).
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

    /// Takes the reply to the last batch.
    ///
    /// # Errors
    ///
    /// [`RunError`](super::RunError) where the reply ends the run. A failure that may pass is kept, and the next step asks again.
    pub fn feed(&mut self, reply: Reply<'_>) -> Result<(), Q::Error> {
        Ok(self.engine.feed(reply)?)
    }

    /// Records that no reply came to the last batch.
    ///
    /// # Errors
    ///
    /// [`RunError`](super::RunError) where no endpoint is left to ask.
    pub fn fail(&mut self, failure: Failure) -> Result<(), Q::Error> {
        Ok(self.engine.fail(failure)?)
    }
}

/// Runs a query against a function from batch to reply: for tests and for hosts that block.
///
/// # Errors
///
/// Those of the run.
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
