//! One unit of upkeep, from the store to the store: a slice of the fill, or a refresh.
//!
//! ```text
//!   begin -- Filling, Comparing ----> fill: a slice --+--> done: the next work goes on with the next slice
//!     |                                   ^           |
//!     |      no events to go by, or none  |           | the last one of several
//!     |      of a change that there was   |           v
//!     +-- Complete, CatchingUp -----------+------- refresh --> done
//! ```
//!
//! The store changes only while a result is applied. If the host makes each [`Work::step`] a transaction,
//! work that is aborted starts again from a consistent state.

mod changed;
mod fill;
mod refresh;

use std::collections::BTreeSet;

use alloy_primitives::{Address, B256};
use changed::RefreshPlan;

use super::{
    IndexError,
    changes::ChangeLog,
    checkpoint::Checkpoint,
    find_changes::FindChanges,
    phase::{BlockRows, ComparisonCause, Pass, PendingCheck, Phase},
    read_agents::{ReadAgents, ReadSlice},
    shard_range::ShardVersion,
    shard_table::FileSizes,
    state::State,
    store::Store,
    tables,
};
use crate::{
    chain::{
        Batch, Endpoints, Engine, Failure, Limits, Query, QueryError, Reply, Run, RunError, Step, Update,
    },
    evidence::Layout,
};

/// Configuration of an index's work.
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
    /// Agents that the sweep reads every five minutes if the storage root is not known.
    pub sweep: u64,
    /// Agents that each refresh proves.
    pub proved: u64,
    /// Agents of which one piece of work makes lists at the end of the first fill.
    pub part: u64,
    /// Agents of a liable person up to which an answer about it reads all of them. Sums are kept for others.
    pub few_agents: u64,
    /// The sizes of the snapshot's files.
    pub files: FileSizes,
    /// The storage layout of a registry with other code than this project's. With it the operator also
    /// vouches that this code keeps all state in its own storage.
    pub layout: Option<Layout>,
    /// The Keccak-256 of code that the operator vouches for to keep all state in its own storage. Without a
    /// layout, no record is proved.
    pub self_contained_code: Option<B256>,
}

/// Restarts of a refresh because of reorgs.
const RESTARTS: u32 = 3;

#[derive(Debug)]
enum WorkStage {
    Slice(Box<Run<ReadSlice>>),
    Find(Box<Run<FindChanges>>),
    Agents(Box<Run<ReadAgents>>, Box<RefreshPlan>),
    /// The next derivation step is taken.
    Derived,
    Done,
}

impl WorkStage {
    fn engine(&mut self) -> Option<&mut Engine> {
        match self {
            Self::Slice(run) => Some(run.engine()),
            Self::Find(run) => Some(run.engine()),
            Self::Agents(run, _) => Some(run.engine()),
            Self::Derived | Self::Done => None,
        }
    }
}

/// One unit of work; the [module's documentation](super) shows how to drive it.
#[derive(Debug)]
pub struct Work {
    config: Config,
    endpoints: Endpoints,
    state: State,
    stage: WorkStage,
    /// Agents of known events that are not applied.
    announced: BTreeSet<u64>,
    now_millis: u64,
    restarts: u32,
    /// Number of endpoints that lag behind the rows, and are no longer asked.
    left: usize,
    elapsed_ms: u32,
    /// The elapsed time at which the current run began.
    run_began_ms: u32,
}

impl Work {
    /// Resumes work from the state that the host has kept, or else the one in the store. `now_millis` is the
    /// host's clock.
    ///
    /// # Errors
    ///
    /// [`IndexError::Store`].
    // Never inlined into the host's async function: V8 needs megabytes to optimize a long one.
    #[inline(never)]
    pub fn begin(
        store: &impl Store,
        kept: Option<State>,
        config: Config,
        endpoints: Endpoints,
        now_millis: u64,
    ) -> Result<Self, IndexError> {
        let state = kept.map_or_else(|| State::load(store), Ok)?;
        let mut work = Self {
            config,
            endpoints: endpoints.begin(),
            state,
            stage: WorkStage::Done,
            announced: BTreeSet::new(),
            now_millis,
            restarts: 0,
            left: 0,
            elapsed_ms: 0,
            run_began_ms: 0,
        };
        let is_owed = work.state.phase.rows().is_some_and(|rows| rows.doubt == PendingCheck::Owed);
        if is_owed && !work.state.compared.is_pausing(now_millis) {
            work.state.compare(ComparisonCause::Untold);
        }
        // A state that could not be read claims that all agents have been stored.
        let is_unknown = matches!(work.state.phase, Phase::Comparing { rows: None, .. });
        if is_unknown && work.derived(store)?.count() > 0 {
            work.state.refill(false);
        }
        match work.state.phase.pass().cloned() {
            Some(pass) if pass.next.is_some() => work.read_slice(&pass),
            _ if work.lacks_derived(store)? => work.stage = WorkStage::Derived,
            _ => work.find(store)?,
        }
        Ok(work)
    }

    /// Returns the facts learned of the endpoints since the last update, for [`Endpoints::merge`].
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
            match std::mem::replace(&mut self.stage, WorkStage::Done) {
                WorkStage::Done => return Ok(Step::Done(())),
                WorkStage::Derived => {
                    if let Some((at, _)) = self.state.base() {
                        self.make_derived(store, 1, at)?;
                    }
                }
                WorkStage::Slice(mut run) => match run.step()? {
                    Step::Send(batch) => return Ok(self.send(batch, WorkStage::Slice(run))),
                    Step::Done(read) => self.take_slice(store, read)?,
                },
                WorkStage::Find(mut run) => match run.step() {
                    Err(QueryError::Run(RunError::BlockUnavailable)) if self.leaves_endpoint() => {
                        self.find(store)?;
                    }
                    Ok(Step::Send(batch)) => return Ok(self.send(batch, WorkStage::Find(run))),
                    Ok(Step::Done(found)) => self.take_found(store, run, found)?,
                    Err(error) => return Err(error.into()),
                },
                WorkStage::Agents(mut run, plan) => match run.step()? {
                    Step::Send(batch) => return Ok(self.send(batch, WorkStage::Agents(run, plan))),
                    Step::Done(read) => self.take_agents(store, plan, read)?,
                },
            }
        }
    }

    /// Switches from an endpoint that lags behind the rows to another one, and returns whether there is one.
    fn leaves_endpoint(&mut self) -> bool {
        self.left += 1;
        let is_other = self.left < self.endpoints.count();
        if is_other {
            self.endpoints.leave_preferred();
        }
        is_other
    }

    fn send(&mut self, batch: Batch, stage: WorkStage) -> Step<()> {
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

    /// Runs `act`, and merges the facts that the run learned of the endpoints, even if it fails.
    fn with_engine(
        &mut self,
        act: impl FnOnce(&mut Engine) -> Result<(), QueryError>,
    ) -> Result<(), IndexError> {
        let Some(engine) = self.stage.engine() else { return Ok(()) };
        let (outcome, update) = (act(engine), engine.update());
        self.endpoints.merge(&update);
        Ok(outcome?)
    }

    /// Returns the state after the last step, which the host keeps for the next work and for answers.
    pub const fn state(&self) -> &State {
        &self.state
    }

    fn run<Q: Query>(&mut self, query: Q, limits: Limits) -> Run<Q> {
        self.run_began_ms = self.elapsed_ms;
        Run::new(query, self.config.multicall3, limits).over(self.endpoints.clone())
    }

    /// Compares all agents with the rows, because no events tell the changes, or those between a pass's
    /// slices of several blocks.
    fn go_without_events(&mut self, store: &impl Store) -> Result<(), IndexError> {
        self.state.counters.without_events += 1;
        // The node has no event of that block any more, or never had.
        self.state.node.canary = None;
        self.compare(store, self.state.phase.cause().unwrap_or(ComparisonCause::NoEvents))
    }

    /// Compares all agents with the rows.
    fn compare(&mut self, store: &impl Store, cause: ComparisonCause) -> Result<(), IndexError> {
        self.state.compare(cause);
        self.state.save(store)?;
        self.read_slice(&Pass::default());
        Ok(())
    }

    fn refill(&mut self, store: &impl Store, trusted: bool) -> Result<(), IndexError> {
        self.state.refill(trusted);
        self.state.save(store)?;
        self.read_slice(&Pass::default());
        Ok(())
    }

    /// Starts over after a reorg.
    fn restart(&mut self, store: &impl Store) -> Result<(), IndexError> {
        self.restarts += 1;
        if self.restarts > RESTARTS {
            return Err(RunError::BlockUnavailable.into());
        }
        self.find(store)
    }

    /// Completes the index with all agents stored as these rows. Their block was the newest at `read_at`.
    fn complete(&mut self, store: &impl Store, rows: BlockRows, read_at: u64) -> Result<(), IndexError> {
        let block = rows.block;
        let oldest = rows.recent.first().map_or(block.number, |recent| recent.number);
        tables::forget_written(store, oldest)?;
        self.state.phase = Phase::Complete(rows);
        // A block noted as the newest at a later time is not newer than this one.
        self.state.read_at = read_at.max(self.state.read_at.min(self.now_millis));
        if self.state.log.began == 0 {
            self.state.log.began = self.now_millis;
        }
        Ok(self.change_log(store, block).move_on()?)
    }

    /// Returns the version of the shards that change with rows of this block, which are about to be written.
    fn shard_version(&mut self, at: Checkpoint) -> ShardVersion {
        self.state.writes += 1;
        ShardVersion::new(at.number, at.hash, self.now_millis)
    }

    const fn change_log<'a, S: Store>(&'a mut self, store: &'a S, at: Checkpoint) -> ChangeLog<'a, S> {
        ChangeLog { store, now: self.now_millis / 1_000, state: &mut self.state, at }
    }
}
