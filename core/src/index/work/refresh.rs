//! The refresh: what changed since the index's block, and whether that is still one of the chain's.
//!
//! ```text
//!   the newest block --> blocks and events --> who changed --> stored: done
//!         ^                  |        |             |
//!         +------------------+        |             | no event announced it,
//!           the block was reorganised |             | or no events to go by
//!                                     v             v
//!           older blocks, to the last canonical     the fill
//! ```
//!
//! It takes three round trips where nothing is unusual.

use std::collections::{BTreeMap, BTreeSet};

use super::{Stage, Work};
use crate::{
    chain::RunError,
    index::{
        IndexError,
        entry::Entry,
        exchange::{End, Exchange, Known},
        hint::Moment,
        read::{Reading, What},
        state::{self, Basis, Checkpoint, Phase},
        store::{Columns, Store, one_number},
        tables::Changes,
    },
};

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

/// Who is read again, and why that is enough.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
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

/// What an exchange is about.
#[derive(Debug)]
pub(super) enum Sought {
    /// Events since the block of the index, and whether that is canonical.
    Events,
    /// The last canonical block, among these; the highest is the first.
    Canonical { candidates: Vec<Checkpoint>, older: Vec<Checkpoint>, known: Known },
    /// Events since that block.
    EarlierEvents { since: u64, known: Known },
}

impl Work {
    fn exchange(&self, newest: &Reading) -> Exchange {
        let endpoints = (self.endpoints.preferred(), self.endpoints.count());
        let registry = (self.config.registry, self.config.limits);
        Exchange::new(registry, newest.header, endpoints, most_calls(newest))
    }

    pub(super) fn read_newest(&mut self) {
        let run = self.run(What::Head);
        self.stage = Stage::Newest(Box::new(run));
    }

    /// Begins a refresh anew: the chain has changed under it.
    pub(super) fn restart(&mut self) -> Result<(), IndexError> {
        self.restarts += 1;
        if self.restarts > RESTARTS {
            return Err(RunError::BlockUnavailable.into());
        }
        self.read_newest();
        Ok(())
    }

    pub(super) fn take_newest(&mut self, store: &impl Store, newest: Reading) -> Result<(), IndexError> {
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

    pub(super) fn take_blocks(
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

    pub(super) fn take_agents(
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

    pub(super) fn take_vouching(
        &mut self,
        store: &impl Store,
        plan: Box<Plan>,
        end: &End,
    ) -> Result<(), IndexError> {
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
