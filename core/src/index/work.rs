//! What an index asks next, and what an answer changes: one step of work, from the store to the store.
//!
//! ```text
//!   begin -- Filling -----> a slice of agents --> stored --+--> done: the next work goes on with the next slice
//!     |                                                    |
//!     |                                                    +--> the last one of several: as below
//!     +-- Complete, CatchingUp --> the newest block --> blocks and events --> who changed --> stored: done
//!                                       ^                  |        |             |
//!                                       +------------------+        |             | no event announced it,
//!                                         the block was reorganised |             | or no events to go by
//!                                                                   v             v
//!                                         older blocks, to the last canonical     Filling
//! ```
//!
//! Reading takes three round trips where nothing is unusual. The store changes only while an answer is taken, and never by halves if
//! the host makes each [`Work::step`] a transaction: work that dies is begun again.

use std::collections::{BTreeMap, BTreeSet};

use alloy_primitives::Address;

use super::{
    IndexError,
    changes::{Comparison, Log},
    entry::Entry,
    exchange::{End, Exchange, Known},
    hint::Moment,
    read::{Reader, Reading, What},
    state::{self, Basis, Checkpoint, Phase, State},
    store::{Columns, Store, one_number},
    tables::Changes,
};
use crate::run::{Batch, Endpoints, Failure, Limits, Reply, Run, RunError, Step as RunStep, Update};

/// Agents by id in one run.
const AGENTS: usize = 2_000;
/// Changes beyond which reading everybody is quicker, and the share of the registry from which it is.
const MANY_CHANGES: usize = 2_000;
const LARGE_SHARE: u64 = 4;
/// Agents that one call reads at least, as a rule: what `eth_getLogs` calls are weighed against.
const AGENTS_PER_CALL: u64 = 300;
/// `eth_getLogs` calls that are always worth it.
const LOG_CALLS: u64 = 8;
/// Times a refresh begins anew as the chain is reorganised under it.
const RESTARTS: u32 = 3;
/// Refreshes after which a node is asked for longer ranges of logs again.
const LOG_RANGE_REFRESHES: u32 = 100;
/// Older blocks asked about at once, when looking for the last canonical one.
const OLDER: usize = 16;

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

/// Who is read again, and why that is enough.
#[derive(Clone, Debug, Default)]
struct Plan {
    /// The newest known block that is still canonical; `None` where the block asked at first is.
    undone_since: Option<u64>,
    /// Not read yet.
    ids: Vec<u64>,
    /// All that had an event, or are read for another reason than the sweep.
    expected: BTreeSet<u64>,
    sweep: Option<(u64, u64)>,
    /// New agents whose registration had no event.
    unannounced: u64,
    /// The highest block that had an event.
    last_event: Option<u64>,
    moments: BTreeMap<u64, Moment>,
    /// What was read.
    entries: Vec<(u64, Entry)>,
    swept: Vec<(u64, Entry)>,
    /// Where it was read.
    read_at: Option<Reading>,
}

#[derive(Debug)]
enum Stage {
    Slice(Box<Run>),
    Newest(Box<Run>),
    Blocks(Reading, Box<Exchange>, Sought),
    Agents(Reading, Box<Run>, Box<Plan>),
    /// The agents were read at an older block than the newest: whether that is canonical.
    Vouching(Box<Exchange>, Box<Plan>),
    Done,
}

/// What an exchange is about.
#[derive(Debug)]
enum Sought {
    /// Events since the block of the index, and whether that is canonical.
    Events,
    /// The last canonical block, among these; the highest is the first.
    Canonical { candidates: Vec<Checkpoint>, older: Vec<Checkpoint>, known: Known },
    /// Events since that block.
    EarlierEvents { since: u64, known: Known },
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
                    RunStep::Done(answer) => Taken::Reading(answer.reading.ok_or(RunError::Malformed)?),
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

    fn run(&mut self, what: What) -> Run {
        self.run_began_ms = self.elapsed_ms;
        let Config { registry, multicall3, limits, .. } = self.config;
        Run::new(Reader { registry, what }, multicall3, limits).over(self.endpoints.clone())
    }

    fn exchange(&self, newest: &Reading) -> Exchange {
        let endpoints = (self.endpoints.preferred(), self.endpoints.count());
        let registry = (self.config.registry, self.config.limits);
        Exchange::new(registry, newest.header, endpoints, most_calls(newest))
    }

    fn read_slice(&mut self, first: u64) {
        let run = self.run(What::Slice { first, most: self.config.slice });
        self.stage = Stage::Slice(Box::new(run));
    }

    fn read_newest(&mut self) {
        let run = self.run(What::Head);
        self.stage = Stage::Newest(Box::new(run));
    }

    /// Begins a refresh anew: the chain has changed under it.
    fn restart(&mut self) -> Result<(), IndexError> {
        self.restarts += 1;
        if self.restarts > RESTARTS {
            return Err(RunError::BlockUnavailable.into());
        }
        self.read_newest();
        Ok(())
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

    fn take_slice(&mut self, store: &impl Store, reading: Reading) -> Result<(), IndexError> {
        let Phase::Filling { next } = self.state.phase else { return Ok(()) };
        let checkpoint = Checkpoint::from(reading.header);
        if self.state.pass.last().is_some_and(|last| last.number > checkpoint.number) {
            // A machine that lags behind the one that answered before.
            return Err(RunError::BlockUnavailable.into());
        }
        let last = next.saturating_add(reading.entries.len() as u64).saturating_sub(1);
        let is_last = last >= reading.total;
        let is_whole = is_last && next == 1;
        let mut changes = Changes::new(store, checkpoint.number, self.comparison(), BTreeMap::new());
        changes.put(&reading.entries, !is_whole)?;
        if is_last {
            changes.end_at(reading.total)?;
        }
        let noted = changes.finish()?;
        self.log(store, checkpoint).write(noted)?;
        let state = &mut self.state;
        (state.total, state.grace_seconds) = (reading.total, reading.grace_seconds);
        if is_whole {
            state::keep_checkpoint(store, checkpoint, None)?;
            self.complete(store, checkpoint)?;
        } else {
            state.pass.push(checkpoint);
            state.pass.dedup();
            let begun = state.pass.first().copied();
            match (is_last, state.unannounced) {
                (false, _) => state.phase = Phase::Filling { next: last + 1 },
                // Where only the node was to blame, it gets another chance.
                (true, 0) => {
                    (state.phase, state.basis, state.block) = (Phase::CatchingUp, Basis::Events, begun)
                }
                (true, _) => self.complete(store, begun.unwrap_or(checkpoint))?,
            }
        }
        self.state.save(store)?;
        if self.state.phase == Phase::CatchingUp {
            self.read_newest();
        }
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

    fn take_newest(&mut self, store: &impl Store, newest: Reading) -> Result<(), IndexError> {
        let Some(block) = self.state.block else { return self.refill(store, false) };
        let head = newest.header;
        if self.state.phase == Phase::Complete && head.hash == block.hash {
            self.state.read_at = self.now_millis;
            self.log(store, block).move_on()?;
            self.state.save(store)?;
            return Ok(());
        }
        if head.number < block.number && head.timestamp <= block.seconds {
            // It lags. A chain that was reorganised to a lower height is younger all the same.
            return Err(RunError::BlockUnavailable.into());
        }
        let to_check: Vec<u64> = match self.state.phase {
            Phase::CatchingUp => self.state.pass.iter().map(|slice| slice.number).collect(),
            _ => vec![block.number],
        };
        // A range that was too long once may be right now: it is tried where keeping to the shorter one would take too many calls.
        let blocks = head.number.saturating_sub(block.number);
        let fits = |range: u64| blocks.div_ceil(range.max(1)) <= most_calls(&newest);
        let range = self
            .state
            .log_range
            .filter(|(range, refreshes)| *refreshes < LOG_RANGE_REFRESHES && fits(*range));
        let exchange = self
            .exchange(&newest)
            .headers(to_check.into_iter().filter(|number| *number <= head.number))
            .canary(self.state.canary.filter(|number| *number <= head.number))
            .events(block.number.saturating_add(1), head.number, range.map(|(range, _)| range));
        self.stage = Stage::Blocks(newest, Box::new(exchange), Sought::Events);
        Ok(())
    }

    fn take_blocks(
        &mut self,
        store: &impl Store,
        newest: Reading,
        sought: Sought,
        found: Known,
    ) -> Result<(), IndexError> {
        self.note_log_range(found.log_range);
        let is_canonical = |found: &Known, block: &Checkpoint| found.has(block.number, block.hash);
        match sought {
            Sought::Events if self.state.phase == Phase::CatchingUp => {
                let canonical = self.state.pass.iter().take_while(|slice| is_canonical(&found, slice));
                match (canonical.last(), self.state.pass.last()) {
                    (None, _) => self.refill(store, false),
                    (last, newest_slice) if last == newest_slice => self.plan(store, newest, None, found),
                    (Some(since), _) => {
                        let since = since.number;
                        self.plan(store, newest, Some(since), found)
                    }
                }
            }
            Sought::Events => match self.state.block {
                Some(block) if is_canonical(&found, &block) && found.lacks_known_event => {
                    self.go_without_events(store)
                }
                Some(block) if is_canonical(&found, &block) => self.plan(store, newest, None, found),
                _ => {
                    let block = self.state.block.map_or(0, |block| block.number);
                    let older = state::checkpoints(store, block.saturating_sub(1).min(newest.header.number))?;
                    self.seek(store, newest, older, found)
                }
            },
            Sought::Canonical { candidates, older, mut known } => {
                match candidates.iter().find(|block| is_canonical(&found, block)) {
                    None => self.seek(store, newest, older, known),
                    Some(since) => {
                        known.ids.extend(found.ids);
                        known.moments.extend(found.moments);
                        let block = self.state.block.map_or(since.number, |block| block.number);
                        let exchange = self.exchange(&newest).events(
                            since.number.saturating_add(1),
                            block.min(newest.header.number),
                            self.state.log_range.map(|(range, _)| range),
                        );
                        let sought = Sought::EarlierEvents { since: since.number, known };
                        self.stage = Stage::Blocks(newest, Box::new(exchange), sought);
                        Ok(())
                    }
                }
            }
            Sought::EarlierEvents { since, mut known } => {
                known.ids.extend(found.ids);
                self.plan(store, newest, Some(since), known)
            }
        }
    }

    /// Looks for the last canonical block among older ones.
    fn seek(
        &mut self,
        store: &impl Store,
        newest: Reading,
        mut candidates: Vec<Checkpoint>,
        known: Known,
    ) -> Result<(), IndexError> {
        if candidates.is_empty() {
            return self.refill(store, false);
        }
        let older = candidates.split_off(candidates.len().min(OLDER));
        let exchange = self.exchange(&newest).headers(candidates.iter().map(|block| block.number));
        self.stage =
            Stage::Blocks(newest, Box::new(exchange), Sought::Canonical { candidates, older, known });
        Ok(())
    }

    fn note_log_range(&mut self, found: Option<u64>) {
        self.state.log_range = match (found, self.state.log_range) {
            (Some(range), _) => Some((range, 0)),
            (None, Some((range, refreshes))) if refreshes < LOG_RANGE_REFRESHES => {
                Some((range, refreshes + 1))
            }
            (None, _) => None,
        };
    }

    /// Decides whom to read again.
    fn plan(
        &mut self,
        store: &impl Store,
        newest: Reading,
        undone_since: Option<u64>,
        found: Known,
    ) -> Result<(), IndexError> {
        let (total, mut expected) = (newest.total, found.ids);
        let known = one_number(store, "SELECT max(id) FROM agents", &[])?.unwrap_or(0);
        let mut unannounced = 0;
        for id in known.saturating_add(1)..=total {
            // Without its event an agent is new all the same, but no event can be relied on any more.
            unannounced += u64::from(expected.insert(id) && undone_since.is_none());
        }
        if let Some(since) = undone_since {
            for row in store.execute("SELECT id FROM agents WHERE changed_at > ?1", &[since.into()])? {
                expected.insert(Columns::of(row).number()?);
            }
        }
        expected.retain(|id| (1..=total).contains(id));
        if expected.len() > MANY_CHANGES && expected.len() as u64 > total / LARGE_SHARE {
            return self.refill(store, true);
        }
        let first = if self.state.sweep > total { 1 } else { self.state.sweep };
        let sweep = (total > 0 && self.config.sweep > 0)
            .then(|| (first, total.min(first.saturating_add(self.config.sweep).saturating_sub(1))));
        let swept = |id: &u64| sweep.is_some_and(|(first, last)| (first..=last).contains(id));
        let ids = expected.iter().copied().filter(|id| !swept(id)).collect();
        let last_event = found.last_event.filter(|_| undone_since.is_none());
        let moments = found.moments;
        let plan =
            Plan { undone_since, ids, expected, sweep, unannounced, last_event, moments, ..Plan::default() };
        self.read_agents(newest, Box::new(plan));
        Ok(())
    }

    /// Reads the next of those planned, with the sweep's.
    fn read_agents(&mut self, newest: Reading, mut plan: Box<Plan>) {
        let rest = plan.ids.split_off(plan.ids.len().min(AGENTS));
        let ids = std::mem::replace(&mut plan.ids, rest);
        let sweep = if plan.read_at.is_none() { plan.sweep } else { None };
        let run = self.run(What::Agents { ids, sweep }).at(newest.header);
        self.stage = Stage::Agents(newest, Box::new(run), plan);
    }

    fn take_agents(
        &mut self,
        store: &impl Store,
        newest: Reading,
        mut plan: Box<Plan>,
        mut reading: Reading,
    ) -> Result<(), IndexError> {
        plan.entries.append(&mut reading.entries);
        plan.swept.append(&mut reading.swept);
        if plan.read_at.as_ref().is_some_and(|first| first.header.hash != reading.header.hash) {
            return self.restart();
        }
        let header = plan.read_at.get_or_insert(reading).header;
        if !plan.ids.is_empty() {
            self.read_agents(newest, plan);
            return Ok(());
        }
        if header.hash == newest.header.hash {
            return self.apply(store, *plan);
        }
        // The node lacked the newest block, and another was read.
        let since = plan.undone_since.or(self.state.block.map(|block| block.number)).unwrap_or(u64::MAX);
        let since = self.state.pass.last().map_or(since, |slice| slice.number.max(since));
        if header.number < since || header.number >= newest.header.number {
            return self.restart();
        }
        let exchange = self.exchange(&newest).headers([header.number]);
        self.stage = Stage::Vouching(Box::new(exchange), plan);
        Ok(())
    }

    fn take_vouching(&mut self, store: &impl Store, plan: Box<Plan>, end: &End) -> Result<(), IndexError> {
        let header = plan.read_at.as_ref().map(|reading| reading.header);
        match (header, end) {
            (Some(header), End::Known(known)) if known.has(header.number, header.hash) => {
                self.apply(store, *plan)
            }
            _ => self.restart(),
        }
    }

    /// Stores what was read: from now on all rows are of that block.
    fn apply(&mut self, store: &impl Store, plan: Plan) -> Result<(), IndexError> {
        let Plan {
            undone_since,
            expected,
            sweep,
            mut unannounced,
            last_event,
            moments,
            entries,
            swept,
            read_at,
            ..
        } = plan;
        let Some(Reading { header, total, grace_seconds, .. }) = read_at else { return Ok(()) };
        let checkpoint = Checkpoint::from(header);
        let mut changes = Changes::new(store, checkpoint.number, self.comparison(), moments);
        changes.put(&entries, false)?;
        let changed = changes.put(&swept, false)?;
        unannounced += changed.iter().filter(|id| !expected.contains(id)).count() as u64;
        changes.end_at(total)?;
        let noted = changes.finish()?;
        self.log(store, checkpoint).write(noted)?;
        let state = &mut self.state;
        (state.total, state.grace_seconds) = (total, grace_seconds);
        if let Some((_, last)) = sweep {
            state.sweeps += u64::from(last >= total);
            state.sweep = if last >= total { 1 } else { last + 1 };
        }
        let canary = last_event.filter(|number| *number <= checkpoint.number).or(state.canary);
        state.canary = canary.filter(|number| undone_since.is_none_or(|since| *number <= since));
        // The blocks of a pass are known no longer than it takes.
        let since = match state.phase {
            Phase::CatchingUp => None,
            _ => Some(undone_since.unwrap_or(checkpoint.number)),
        };
        state::keep_checkpoint(store, checkpoint, since)?;
        self.complete(store, checkpoint)?;
        if unannounced > 0 {
            self.state.unannounced += unannounced;
            self.state.basis = Basis::Sweep;
            return self.refill(store, false);
        }
        self.state.save(store)?;
        Ok(())
    }
}

/// `eth_getLogs` calls that take no longer than reading everybody.
const fn most_calls(newest: &Reading) -> u64 {
    newest.total / AGENTS_PER_CALL + LOG_CALLS
}

/// What a stage has come to.
enum Taken {
    Reading(Box<Reading>),
    End(End),
}
