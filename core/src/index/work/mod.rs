//! One unit of upkeep, from the store to the store: a slice of the fill, or a refresh.
//!
//! ```text
//!   begin -- Filling ---------------> fill: a slice --+--> done: the next work goes on with the next slice
//!     |                                   ^           |
//!     |      no events to go by, or none  |           | the last one of several
//!     |      of a change that there was   |           v
//!     +-- Complete, CatchingUp -----------+------- refresh --> done
//! ```
//!
//! The store changes only while a result is applied. If the host makes each [`Work::step`] a transaction,
//! work that is aborted starts again from a consistent state.

mod fill;
mod refresh;

use alloy_primitives::Address;
use refresh::RefreshPlan;

use super::{
    IndexError,
    changes::{ChangeLog, Comparison},
    find_changes::FindChanges,
    read_agents::{ReadAgents, ReadSlice},
    state::{Basis, Checkpoint, Phase, State},
    store::Store,
};
use crate::chain::{Batch, Endpoints, Engine, Failure, Limits, Query, QueryError, Reply, Run, Step, Update};

/// What an index reads, and how.
#[derive(Clone, Debug)]
pub struct Config {
    /// The registry's address.
    pub registry: Address,
    /// Multicall3's address.
    pub multicall3: Address,
    /// Limits of each run.
    pub limits: Limits,
    /// Agents per slice of a fill; a smaller registry is always read at one block.
    pub slice: u64,
    /// Agents that the sweep reads in each refresh.
    pub sweep: u64,
}

#[derive(Debug)]
enum Stage {
    Slice(Box<Run<ReadSlice>>),
    Find(Box<Run<FindChanges>>),
    Agents(Box<Run<ReadAgents>>, Box<RefreshPlan>),
    Done,
}

impl Stage {
    fn engine(&mut self) -> Option<&mut Engine> {
        match self {
            Self::Slice(run) => Some(run.engine()),
            Self::Find(run) => Some(run.engine()),
            Self::Agents(run, _) => Some(run.engine()),
            Self::Done => None,
        }
    }
}

/// One unit of work; the [module's documentation](super) shows how to drive it.
#[derive(Debug)]
pub struct Work {
    config: Config,
    endpoints: Endpoints,
    state: State,
    stage: Stage,
    now_millis: u64,
    restarts: u32,
    elapsed_ms: u32,
    /// The elapsed time at which the current run began.
    run_began_ms: u32,
}

impl Work {
    /// Resumes work from the state in the store. `now_millis` is the host's clock.
    ///
    /// # Errors
    ///
    /// [`IndexError::Store`].
    // Never inlined into the host's async function: V8 needs megabytes to optimize a long one.
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

    /// What was learned of the endpoints since the last update, for [`Endpoints::merge`].
    pub fn update(&mut self) -> Update {
        self.endpoints.update()
    }

    /// Sets the elapsed milliseconds, as [`Run::passed`] does.
    pub fn passed(&mut self, elapsed_ms: u32) {
        self.elapsed_ms = elapsed_ms;
        let of_run = elapsed_ms.saturating_sub(self.run_began_ms);
        if let Some(engine) = self.stage.engine() {
            engine.passed(of_run);
        }
    }

    /// Advances as far as the known results allow.
    ///
    /// # Errors
    ///
    /// [`IndexError`]. The store is unchanged or one step further: begin again later.
    pub fn step(&mut self, store: &impl Store) -> Result<Step<()>, IndexError> {
        loop {
            match std::mem::replace(&mut self.stage, Stage::Done) {
                Stage::Done => return Ok(Step::Done(())),
                Stage::Slice(mut run) => match run.step()? {
                    Step::Send(batch) => return Ok(self.send(batch, Stage::Slice(run))),
                    Step::Done(read) => self.take_slice(store, read)?,
                },
                Stage::Find(mut run) => match run.step()? {
                    Step::Send(batch) => return Ok(self.send(batch, Stage::Find(run))),
                    Step::Done(found) => self.take_found(store, run, found)?,
                },
                Stage::Agents(mut run, plan) => match run.step()? {
                    Step::Send(batch) => return Ok(self.send(batch, Stage::Agents(run, plan))),
                    Step::Done(read) => self.take_agents(store, plan, read)?,
                },
            }
        }
    }

    fn send(&mut self, batch: Batch, stage: Stage) -> Step<()> {
        self.stage = stage;
        Step::Send(batch)
    }

    /// Takes the reply to the last batch.
    ///
    /// # Errors
    ///
    /// [`IndexError`] if no endpoint answers.
    pub fn feed(&mut self, reply: Reply<'_>) -> Result<(), IndexError> {
        self.with_engine(|engine| engine.feed(reply))
    }

    /// Records that the last batch has no reply.
    ///
    /// # Errors
    ///
    /// [`IndexError`] if no endpoint answers.
    pub fn fail(&mut self, failure: Failure) -> Result<(), IndexError> {
        self.with_engine(|engine| engine.fail(failure))
    }

    /// Merges what the run learned of the endpoints, even if it fails.
    fn with_engine(
        &mut self,
        act: impl FnOnce(&mut Engine) -> Result<(), QueryError>,
    ) -> Result<(), IndexError> {
        let Some(engine) = self.stage.engine() else { return Ok(()) };
        let (outcome, update) = (act(engine), engine.update());
        self.endpoints.merge(&update);
        Ok(outcome?)
    }

    /// The state as stored by the last step.
    pub const fn state(&self) -> &State {
        &self.state
    }

    fn run<Q: Query>(&mut self, query: Q, limits: Limits) -> Run<Q> {
        self.run_began_ms = self.elapsed_ms;
        Run::new(query, self.config.multicall3, limits).over(self.endpoints.clone())
    }

    /// Reads every agent, because no events are available. Several slices are never of one block: answers are
    /// then as of the first slice's block or later, and every refresh reads all agents again.
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
        Ok(self.change_log(store, block).move_on()?)
    }

    /// Compares verdicts, once there is a complete fill.
    fn comparison(&self) -> Option<Comparison> {
        let grace_seconds = self.state.grace();
        self.state.current_from.map(|current_from| Comparison { current_from, grace_seconds })
    }

    const fn change_log<'a, S: Store>(&'a mut self, store: &'a S, at: Checkpoint) -> ChangeLog<'a, S> {
        ChangeLog { store, now: self.now_millis / 1_000, state: &mut self.state, at }
    }
}
