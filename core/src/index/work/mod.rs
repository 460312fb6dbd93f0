//! What an index asks next, and what an answer changes: one step of work, from the store to the store.
//!
//! ```text
//!   begin -- Filling ---------------> fill: a slice --+--> done: the next work goes on with the next slice
//!     |                                   ^           |
//!     |      no events to go by, or none  |           | the last one of several
//!     |      of a change that there was   |           v
//!     +-- Complete, CatchingUp -----------+------- refresh --> done
//! ```
//!
//! The store changes only while an answer is taken, and never by halves if the host makes each [`Work::step`] a transaction: work that
//! dies is begun again.

mod fill;
mod refresh;

use alloy_primitives::Address;
use refresh::Plan;

use super::{
    IndexError,
    changes::{Comparison, Log},
    find_changes::FindChanges,
    read_agents::{ReadAgents, ReadSlice},
    state::{Basis, Checkpoint, Phase, State},
    store::Store,
};
use crate::chain::{
    Batch, Endpoints, Failure, Limits, Query, QueryError, Reply, Run, Step as RunStep, Update,
};

/// What an index reads, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// The registry's address.
    pub registry: Address,
    /// Multicall3's address on the chain.
    pub multicall3: Address,
    /// For each run.
    pub limits: Limits,
    /// Agents of a slice of the fill; a registry of no more is always read at one block.
    pub slice: u64,
    /// Agents that the sweep looks at in each refresh.
    pub sweep: u64,
}

/// What work wants next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Send this, and [`feed`](Work::feed) what comes back, or tell that nothing did ([`fail`](Work::fail)).
    Send(Batch),
    /// This work is done; the state says whether there is more.
    Done,
}

#[derive(Debug)]
enum Stage {
    Slice(Box<Run<ReadSlice>>),
    Find(Box<Run<FindChanges>>),
    Agents(Box<Run<ReadAgents>>, Box<Plan>),
    Done,
}

/// One piece of work; see the [module's documentation](super) for how to drive it.
#[derive(Debug)]
pub struct Work {
    config: Config,
    endpoints: Endpoints,
    state: State,
    stage: Stage,
    now_millis: u64,
    restarts: u32,
    elapsed_ms: u32,
    /// When the current run began, by what has passed.
    run_began_ms: u32,
}

impl Work {
    /// Takes up work where the store says. `now_millis` is the host's clock.
    ///
    /// # Errors
    ///
    /// [`IndexError::Store`].
    // As in `Run`, nothing large becomes a part of the host's function.
    #[inline(never)]
    pub fn begin(
        store: &impl Store,
        config: Config,
        endpoints: Endpoints,
        now_millis: u64,
    ) -> Result<Self, IndexError> {
        let state = State::load(store)?;
        let mut work = Self {
            config,
            endpoints: endpoints.begin(),
            state,
            stage: Stage::Done,
            now_millis,
            restarts: 0,
            elapsed_ms: 0,
            run_began_ms: 0,
        };
        if work.state.phase == Phase::Complete && work.state.basis == Basis::Sweep {
            work.state.refill(true);
        }
        match work.state.phase {
            Phase::Filling { next } => work.read_slice(next),
            Phase::CatchingUp | Phase::Complete => work.find(),
        }
        Ok(work)
    }

    /// What has been found out about the endpoints since the last time, for [`Endpoints::merge`].
    pub fn update(&mut self) -> Update {
        self.endpoints.update()
    }

    /// Tells how many milliseconds the work has been going, as [`Run::passed`] does.
    pub fn passed(&mut self, elapsed_ms: u32) {
        self.elapsed_ms = elapsed_ms;
        let of_run = elapsed_ms.saturating_sub(self.run_began_ms);
        match &mut self.stage {
            Stage::Slice(run) => run.passed(of_run),
            Stage::Find(run) => run.passed(of_run),
            Stage::Agents(run, _) => run.passed(of_run),
            Stage::Done => {}
        }
    }

    /// Goes on as far as the answers known allow.
    ///
    /// # Errors
    ///
    /// [`IndexError`]. What is in the store is as it was, or one step further: begin again later.
    pub fn step(&mut self, store: &impl Store) -> Result<Step, IndexError> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Done) {
                Stage::Done => return Ok(Step::Done),
                Stage::Slice(mut run) => match run.step()? {
                    RunStep::Send(batch) => return Ok(self.send(batch, Stage::Slice(run))),
                    RunStep::Done(read) => self.take_slice(store, read)?,
                },
                Stage::Find(mut run) => match run.step()? {
                    RunStep::Send(batch) => return Ok(self.send(batch, Stage::Find(run))),
                    RunStep::Done(found) => self.take_found(store, run, found)?,
                },
                Stage::Agents(mut run, plan) => match run.step()? {
                    RunStep::Send(batch) => return Ok(self.send(batch, Stage::Agents(run, plan))),
                    RunStep::Done(read) => self.take_agents(store, plan, read)?,
                },
            }
        }
    }

    fn send(&mut self, batch: Batch, stage: Stage) -> Step {
        self.stage = stage;
        Step::Send(batch)
    }

    /// Takes the reply to the last batch.
    ///
    /// # Errors
    ///
    /// [`IndexError`] where no endpoint answers.
    pub fn feed(&mut self, reply: Reply<'_>) -> Result<(), IndexError> {
        let (fed, update) = match &mut self.stage {
            Stage::Slice(run) => (run.feed(reply), run.update()),
            Stage::Find(run) => (run.feed(reply), run.update()),
            Stage::Agents(run, _) => (run.feed(reply), run.update()),
            Stage::Done => return Ok(()),
        };
        self.learn(fed, &update)
    }

    /// Takes note that nothing came back.
    ///
    /// # Errors
    ///
    /// [`IndexError`] where no endpoint answers.
    pub fn fail(&mut self, failure: Failure) -> Result<(), IndexError> {
        let (failed, update) = match &mut self.stage {
            Stage::Slice(run) => (run.fail(failure), run.update()),
            Stage::Find(run) => (run.fail(failure), run.update()),
            Stage::Agents(run, _) => (run.fail(failure), run.update()),
            Stage::Done => return Ok(()),
        };
        self.learn(failed, &update)
    }

    /// What a run has found out about the endpoints is of use to the next, however it ends.
    fn learn(&mut self, outcome: Result<(), QueryError>, update: &Update) -> Result<(), IndexError> {
        self.endpoints.merge(update);
        Ok(outcome?)
    }

    /// The state, as it is in the store after a step.
    pub const fn state(&self) -> &State {
        &self.state
    }

    fn run<Q: Query>(&mut self, query: Q, limits: Limits) -> Run<Q> {
        self.run_began_ms = self.elapsed_ms;
        Run::new(query, self.config.multicall3, limits).over(self.endpoints.clone())
    }

    /// Reads everybody, as nobody says who has changed. Where that takes several slices, they are never of one block: then answers
    /// are as of the first slice's block or later, and rest on reading everybody again and again.
    fn go_without_events(&mut self, store: &impl Store) -> Result<(), IndexError> {
        self.state.without_events += 1;
        if let (Phase::CatchingUp, Some(begun)) = (self.state.phase, self.state.block) {
            self.state.basis = Basis::Sweep;
            self.complete(store, begun)?;
            return Ok(self.state.save(store)?);
        }
        self.refill(store, true)
    }

    fn refill(&mut self, store: &impl Store, trusted: bool) -> Result<(), IndexError> {
        self.state.refill(trusted);
        self.state.save(store)?;
        self.read_slice(1);
        Ok(())
    }

    fn complete(&mut self, store: &impl Store, block: Checkpoint) -> Result<(), IndexError> {
        self.state.phase = Phase::Complete;
        self.state.block = Some(block);
        self.state.read_at = self.now_millis;
        self.state.pass.clear();
        if self.state.began == 0 {
            self.state.began = self.now_millis;
        }
        Ok(self.log(store, block).move_on()?)
    }

    /// How verdicts are compared, once there is something to compare with.
    fn comparison(&self) -> Option<Comparison> {
        let grace_seconds = self.state.grace();
        self.state.current_from.map(|current_from| Comparison { current_from, grace_seconds })
    }

    const fn log<'a, S: Store>(&'a mut self, store: &'a S, at: Checkpoint) -> Log<'a, S> {
        Log { store, now: self.now_millis / 1_000, state: &mut self.state, at }
    }
}
