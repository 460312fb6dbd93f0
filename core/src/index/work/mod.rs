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
use refresh::{Plan, Sought};

use super::{
    IndexError,
    changes::{Comparison, Log},
    exchange::{End, Exchange},
    read::{Reader, Reading, What},
    state::{Basis, Checkpoint, Phase, State},
    store::Store,
};
use crate::chain::{Batch, Endpoints, Failure, Limits, Reply, Run, Step as RunStep, Update};

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
    Slice(Box<Run<Reader>>),
    Newest(Box<Run<Reader>>),
    Blocks(Reading, Box<Exchange>, Sought),
    Agents(Reading, Box<Run<Reader>>, Box<Plan>),
    /// The agents were read at an older block than the newest: whether that is canonical.
    Vouching(Box<Exchange>, Box<Plan>),
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
            Phase::CatchingUp | Phase::Complete => work.read_newest(),
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
        if let Stage::Slice(run) | Stage::Newest(run) | Stage::Agents(_, run, _) = &mut self.stage {
            run.passed(of_run);
        }
    }

    /// Goes on as far as the answers known allow.
    ///
    /// # Errors
    ///
    /// [`IndexError`]. What is in the store is as it was, or one step further: begin again later.
    pub fn step(&mut self, store: &impl Store) -> Result<Step, IndexError> {
        loop {
            let sent = match &mut self.stage {
                Stage::Done => return Ok(Step::Done),
                Stage::Slice(run) | Stage::Newest(run) | Stage::Agents(_, run, _) => match run.step()? {
                    RunStep::Send(batch) => return Ok(Step::Send(batch)),
                    RunStep::Done(answer) => Taken::Reading(Box::new(answer)),
                },
                Stage::Blocks(_, exchange, _) | Stage::Vouching(exchange, _) => match exchange.end() {
                    None => return Ok(Step::Send(exchange.batch())),
                    Some(end) => Taken::End(end),
                },
            };
            self.take(store, sent)?;
        }
    }

    /// Takes the reply to the last batch.
    ///
    /// # Errors
    ///
    /// [`IndexError`] where no endpoint answers.
    pub fn feed(&mut self, reply: Reply<'_>) -> Result<(), IndexError> {
        match &mut self.stage {
            Stage::Done => {}
            Stage::Slice(run) | Stage::Newest(run) | Stage::Agents(_, run, _) => {
                let fed = run.feed(reply);
                self.endpoints.merge(&run.update());
                fed?;
            }
            Stage::Blocks(_, exchange, _) | Stage::Vouching(exchange, _) => exchange.feed(reply)?,
        }
        Ok(())
    }

    /// Takes note that nothing came back.
    ///
    /// # Errors
    ///
    /// [`IndexError`] where no endpoint answers.
    pub fn fail(&mut self, failure: Failure) -> Result<(), IndexError> {
        match &mut self.stage {
            Stage::Done => {}
            Stage::Slice(run) | Stage::Newest(run) | Stage::Agents(_, run, _) => {
                let failed = run.fail(failure);
                self.endpoints.merge(&run.update());
                failed?;
            }
            Stage::Blocks(_, exchange, _) | Stage::Vouching(exchange, _) => exchange.fail(failure)?,
        }
        Ok(())
    }

    /// The state, as it is in the store after a step.
    pub const fn state(&self) -> &State {
        &self.state
    }

    #[inline(never)]
    fn take(&mut self, store: &impl Store, taken: Taken) -> Result<(), IndexError> {
        let stage = std::mem::replace(&mut self.stage, Stage::Done);
        match (stage, taken) {
            (Stage::Slice(_), Taken::Reading(reading)) => self.take_slice(store, *reading),
            (Stage::Newest(_), Taken::Reading(newest)) => self.take_newest(store, *newest),
            (Stage::Blocks(newest, _, sought), Taken::End(end)) => match end {
                End::Known(known) => self.take_blocks(store, newest, sought, known),
                End::HeadMoved => self.restart(),
                End::NoEvents | End::ShortRanges(_) => self.go_without_events(store),
            },
            (Stage::Agents(newest, _, plan), Taken::Reading(reading)) => {
                self.take_agents(store, newest, plan, *reading)
            }
            (Stage::Vouching(_, plan), Taken::End(end)) => self.take_vouching(store, plan, &end),
            _ => Ok(()),
        }
    }

    fn run(&mut self, what: What) -> Run<Reader> {
        self.run_began_ms = self.elapsed_ms;
        let Config { registry, multicall3, limits, .. } = self.config;
        Run::new(Reader { registry, what }, multicall3, limits).over(self.endpoints.clone())
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

/// What a stage has come to.
enum Taken {
    Reading(Box<Reading>),
    End(End),
}
