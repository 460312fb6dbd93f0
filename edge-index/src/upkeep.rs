//! The object's work: one piece at a time, under a lease.

use std::{rc::Rc, time::Duration};

use edge_shared::{chain, index::IndexObject, settings::WorkerSettings, time::within, unix_millis};
use futures_util::FutureExt as _;
use host_kit::{RpcHost, RpcReply};
use registry_core::{
    chain::{Batch, Failure, Reply, Step, Update},
    eth::timestamp::Timestamp,
    host::shared_reads::due_for_renewal,
    index::{
        Config, FEW_AGENTS, FileSizes, IndexError, PART, SWEEP, State, Work,
        alarm::RETRY_MILLIS,
        protocol::{IndexAnswer, IndexQuestion},
        takeover::{self, TakeoverPart},
    },
};
use worker::{Delay, Error, console_warn};

use crate::{garbage::let_v8_collect, object::RegistryIndex, sql::Sql};

/// Agents in a slice of the fill, which is read at once. A larger slice takes more memory while it is read.
const SLICE: u64 = 5_000;
/// Milliseconds between two checks of a request that waits for another's work.
const PAUSE_MILLIS: u64 = 25;
/// Milliseconds that a request waits for the fill: enough for some slices.
const FILL_PATIENCE_MILLIS: u64 = 3_000;
/// Timeout in milliseconds of an earlier index's answer with a part.
const PART_MILLIS: u64 = 10_000;
/// Runtime margin added to the lease, beyond the time that the chain has.
const LEASE_MARGIN_MILLIS: u64 = 1_000;

/// The lease of a piece of work. Work that loses it while it waits for the chain writes nothing any more: its
/// results may be of another block than the rows, or the rows are deleted.
#[derive(Clone, Copy, Default)]
pub(crate) struct WorkLease {
    /// The fencing token: the number of the piece of work that has the lease.
    number: u64,
    /// Expiry of the lease in unix milliseconds.
    pub(crate) until: u64,
}

impl WorkLease {
    /// Returns the lease after the work under way has lost it, so that other work may begin.
    pub(crate) const fn revoked(self) -> Self {
        Self { number: self.number + 1, until: 0 }
    }
}

impl RegistryIndex {
    /// Does one piece of work, and returns whether it was done. It waits briefly if other work holds the
    /// lease, and ends early if it loses its own.
    pub(crate) async fn work(
        &self,
        sql: &Sql,
        settings: &WorkerSettings,
        rpc_calls: &mut u32,
    ) -> Result<bool, IndexError> {
        if let Some(fault) = self.faults.pause() {
            return Err(fault.error.into());
        }
        let WorkLease { number, until } = self.lease.get();
        let now = unix_millis();
        if now < until {
            Delay::from(Duration::from_millis(PAUSE_MILLIS)).await;
            return Ok(false);
        }
        let lease = WorkLease { number: number + 1, until: now + LEASE_MARGIN_MILLIS };
        self.lease.set(lease);
        let worked = self.drive(sql, settings, lease.number, rpc_calls).await;
        let is_own = self.lease.get().number == lease.number;
        if is_own {
            self.lease.set(WorkLease { until: 0, ..lease });
        }
        if worked.is_err() {
            // The stored state is loaded. If the work has stored nothing, the state in memory stays: its
            // confirmations of the rows are not stored.
            let kept = self.kept.replace(None);
            if let (Err(IndexError::Query(_)), Some(kept)) = (&worked, kept)
                && let Ok(stored) = self.load(sql)
                && kept.is_complete()
                && stored.is_complete()
                && (kept.began(), kept.writes) == (stored.began(), stored.writes)
            {
                self.kept.replace(Some(kept));
            }
        }
        match &worked {
            // Revoked or expired: the work has ended early, and a fault of the store lasts.
            Ok(()) if !is_own => {}
            Ok(()) => {
                self.faults.end();
                self.paused_until.set(0);
            }
            Err(IndexError::Store(error)) => drop(self.keep_fault(error.clone()).await),
            Err(_) => self.paused_until.set(unix_millis() + RETRY_MILLIS),
        }
        worked.map(|()| is_own)
    }

    /// Does one piece of work, if the index is in use and not fresh. Several per alarm might take more CPU
    /// time than one request is allowed.
    pub(crate) async fn work_if_due(&self, sql: &Sql, settings: &WorkerSettings) -> Result<(), IndexError> {
        let state = self.load(sql)?;
        if self.is_in_use(sql, settings)? && self.due_at(&state, settings) <= unix_millis() {
            self.work(sql, settings, &mut 0).boxed_local().await?;
        }
        Ok(())
    }

    async fn drive(
        &self,
        sql: &Sql,
        settings: &WorkerSettings,
        number: u64,
        rpc_calls: &mut u32,
    ) -> Result<(), IndexError> {
        if self.load(sql)?.is_empty() && !self.take_over(sql, settings, number).boxed_local().await? {
            return Ok(());
        }
        let began = unix_millis();
        let kept = Some((*self.load(sql)?).clone());
        let endpoints = self.endpoints.for_run(settings, began);
        let mut work = Work::begin(sql, kept, config(settings, began), endpoints, began)?;
        let mut host = LeasedHost { object: self, settings, began, number, rpc_calls };
        loop {
            work.passed(host.elapsed_ms());
            let step = sql.transaction(|| work.step(sql))?;
            self.kept.replace(Some(Rc::new(work.state().clone())));
            let Step::Send(batch) = step else { return Ok(()) };
            let reply = host.round_trip(&batch, false).await;
            if self.lease.get().number != number {
                return Ok(());
            }
            let taken = match reply {
                Ok(RpcReply { status, body, .. }) => work.feed(Reply { status, body: &body }),
                Err(failure) => work.fail(failure),
            };
            host.merge(|| work.update());
            taken?;
        }
    }

    /// Returns the state, once it is fresh enough for an answer with a TTL of `max_age` milliseconds; if a
    /// refresh fails, or takes too long, one that is not older than `usable`.
    pub(crate) async fn ready(
        &self,
        sql: &Sql,
        settings: &WorkerSettings,
        (max_age, usable): (u64, u64),
        rpc_calls: &mut u32,
    ) -> Result<Rc<State>, IndexError> {
        let began = unix_millis();
        let mut has_worked = false;
        let or_usable = |state: Rc<State>, error| {
            let is_usable = unix_millis() < state.read_at.saturating_add(usable);
            if is_usable && state.as_of().is_some() { Ok(state) } else { Err(error) }
        };
        loop {
            let state = self.load(sql)?;
            let is_fresh = unix_millis() < due_for_renewal(state.read_at, max_age);
            // With a TTL of 0, the rows must have been read since this request came. During the wait for an
            // event, the rows are true of the block that the answer names.
            let is_current = state.read_at >= began || is_fresh || (has_worked && state.awaits_changes());
            if state.as_of().is_some() && is_current {
                return Ok(state);
            }
            let patience = match state.as_of() {
                Some(_) => u64::from(settings.rpc_deadline_seconds) * 1_000,
                None => FILL_PATIENCE_MILLIS,
            };
            if unix_millis() > began + patience {
                let error = IndexError::Incomplete { percent: state.percent() };
                return or_usable(state, error);
            }
            let calls_before = *rpc_calls;
            match self.work(sql, settings, rpc_calls).boxed_local().await {
                // A Worker's clock stands still until it waits for an answer, and the end of a fill waits for
                // none: alarms do its work, one piece each.
                Ok(true) if state.ends_large_fill() && *rpc_calls == calls_before => {
                    return Err(IndexError::Incomplete { percent: state.percent() });
                }
                Ok(worked) => has_worked |= worked,
                Err(error @ IndexError::Query(_)) => return or_usable(self.load(sql)?, error),
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes over some parts of the latest index of an earlier format. Returns whether none are left.
    async fn take_over(&self, sql: &Sql, settings: &WorkerSettings, number: u64) -> Result<bool, IndexError> {
        for _ in 0..takeover::PARTS_AT_ONCE {
            let Some(place) = takeover::next(sql)? else { return Ok(true) };
            let mut answer = Ok(IndexAnswer::Part(TakeoverPart::default()));
            for earlier in IndexObject::earlier(settings, &self.env) {
                let until = unix_millis() + PART_MILLIS + LEASE_MARGIN_MILLIS;
                self.lease.set(WorkLease { number, until });
                let asked = within(PART_MILLIS, earlier.ask(IndexQuestion::Takeover(place))).await;
                answer = asked.unwrap_or_else(|| Err(Error::RustError("no answer in time".to_owned())));
                if self.lease.get().number != number {
                    return Ok(false);
                }
                if !matches!(&answer, Ok(IndexAnswer::Part(part)) if part.is_empty()) {
                    break;
                }
            }
            let Ok(IndexAnswer::Part(part)) = answer else {
                console_warn!("an index of an earlier format does not answer");
                match sql.transaction(|| Ok(takeover::is_awaited(sql, unix_millis())?))? {
                    true => return Err(IndexError::Incomplete { percent: 0 }),
                    false => {
                        self.kept.replace(None);
                        continue;
                    }
                }
            };
            sql.transaction(|| Ok(takeover::take(sql, place, part, unix_millis())?))?;
            self.kept.replace(None);
        }
        Ok(takeover::next(sql)?.is_none())
    }
}

/// The host of a piece of work, which holds the lease for as long as each round trip may take.
struct LeasedHost<'a> {
    object: &'a RegistryIndex,
    settings: &'a WorkerSettings,
    began: u64,
    /// The number of the piece of work.
    number: u64,
    rpc_calls: &'a mut u32,
}

impl RpcHost for LeasedHost<'_> {
    fn elapsed_ms(&self) -> u32 {
        u32::try_from(unix_millis().saturating_sub(self.began)).unwrap_or(u32::MAX)
    }

    async fn round_trip(&mut self, batch: &Batch, _may_hedge: bool) -> Result<RpcReply, Failure> {
        *self.rpc_calls += 1;
        let millis = u64::from(batch.delay_ms) + u64::from(batch.timeout_ms);
        let until = unix_millis() + millis + LEASE_MARGIN_MILLIS;
        self.object.lease.set(WorkLease { number: self.number, until });
        let reply = chain::post(&self.settings.rpc, batch).await;
        let_v8_collect();
        reply
    }

    fn merge(&mut self, update: impl FnOnce() -> Update) {
        self.object.endpoints.merge(&update());
    }
}

/// Returns the configuration of the work at a time in unix milliseconds.
pub(crate) fn config(settings: &WorkerSettings, now: u64) -> Config {
    Config {
        registry: settings.registry,
        multicall3: settings.multicall3,
        limits: chain::limits(settings, Timestamp::from_millis(now)),
        slice: SLICE,
        sweep: SWEEP,
        proved: settings.spot_checks,
        layout: settings.layout,
        part: PART,
        few_agents: FEW_AGENTS,
        files: FileSizes::DEFAULT,
        self_contained_code: settings.self_contained_code,
    }
}
