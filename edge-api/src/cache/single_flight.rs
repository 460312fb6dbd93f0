//! Reads, coalesced: concurrent requests for the same thing share one read of it.
//!
//! A future of one request must not be awaited by another: the runtime cancels the one that waits. So what
//! they share is plain data ([`registry_core::host::shared_reads`]): one request holds a lease and reads, the
//! others look again, each by a timer of its own. The read outlives its request, so that a client that
//! disconnects takes nothing from the others.

use core::{hash::Hash, time::Duration};
use std::{cell::RefCell, thread::LocalKey};

use futures_util::FutureExt as _;
use registry_core::{
    api::error::Error,
    chain::{Query, RunError},
    eth::timestamp::Timestamp,
    host::shared_reads::{Cache, CacheLookup, ReadLease, ReadOutcome},
};
use worker::Delay;

use super::context::RequestContext;
use crate::{
    chain,
    log::{Record, unix_millis},
    settings::Settings,
};

/// Runtime margin added to the lease, beyond the time that a batch may take.
const LEASE_MARGIN_MILLIS: u64 = 1_000;
/// Milliseconds until a waiting request looks for the first time; each further pause is half as long again.
const FIRST_PAUSE_MILLIS: u64 = 4;
const LONGEST_PAUSE_MILLIS: u64 = 40;

/// A cache of an instance. Errors are kept, too, for the time that they are certain to repeat.
pub(super) type Memory<K, V> = LocalKey<RefCell<Cache<K, Result<V, Error>>>>;

/// Something that can be read, and kept in a cache.
pub(super) trait SharedRead: Clone + 'static {
    type Key: Clone + Eq + Hash + 'static;
    type Value: Clone + 'static;

    /// The cache that keeps it.
    fn memory() -> &'static Memory<Self::Key, Self::Value>;

    /// The key under which it is kept.
    fn key(&self) -> Self::Key;

    /// How long a request waits for another's read of it: as long as that may take.
    fn patience_seconds(&self, settings: &Settings) -> u32;

    /// Reads it.
    async fn read(&self, context: &RequestContext, flight: &mut Flight<Self>) -> Result<Self::Value, Error>;

    /// For how long the result of a read is kept.
    fn outcome(&self, result: &Result<Self::Value, Error>) -> ReadOutcome;
}

/// A read in progress.
pub(super) struct Flight<R: SharedRead> {
    key: R::Key,
    lease: ReadLease,
    /// Whether the value is still served, and this read replaces it before it expires.
    pub(super) is_renewal: bool,
    /// RPC requests that it took so far.
    pub(super) rpc_calls: u32,
}

impl<R: SharedRead> Flight<R> {
    /// Keeps the lease for so many milliseconds more, and the runtime margin.
    pub(super) fn hold(&self, millis: u32) {
        hold::<R>(&self.key, &self.lease, millis);
    }

    /// Asks the chain, and holds the lease meanwhile.
    pub(super) async fn ask<Q: Query>(
        &mut self,
        query: Q,
        now: Timestamp,
        settings: &Settings,
    ) -> Result<Q::Output, Error>
    where
        Error: From<Q::Error>,
    {
        let (key, lease) = (&self.key, &self.lease);
        let hold = |millis| hold::<R>(key, lease, millis);
        chain::ask(query, now, settings, &mut self.rpc_calls, &hold).await
    }
}

fn hold<R: SharedRead>(key: &R::Key, lease: &ReadLease, millis: u32) {
    let until = unix_millis() + u64::from(millis) + LEASE_MARGIN_MILLIS;
    R::memory().with_borrow_mut(|memory| memory.extend(key, lease, until));
}

/// The value in memory, or else the one that a single request reads for all that ask for it now. `record`
/// takes the cost.
pub(super) async fn share<R: SharedRead>(
    context: &RequestContext,
    read: R,
    record: &mut Record,
) -> Result<R::Value, Error> {
    let settings = &context.settings;
    let began = unix_millis();
    let lease_millis = u64::from(settings.rpc_timeout_seconds) * 1_000 + LEASE_MARGIN_MILLIS;
    let key = read.key();
    let arrival = R::memory().with_borrow_mut(Cache::arrive);
    let mut pause = FIRST_PAUSE_MILLIS;
    loop {
        let now = unix_millis();
        let found = R::memory().with_borrow_mut(|memory| memory.look_up(&key, arrival, now, lease_millis));
        match found {
            CacheLookup::Found(value) => {
                record.cache = "HIT";
                return value;
            }
            CacheLookup::Renew(value, lease) => {
                let flight = Flight { key, lease, is_renewal: true, rpc_calls: 0 };
                context.context.wait_until(renew(context.clone(), read, flight, record.clone()));
                record.cache = "HIT";
                return value;
            }
            CacheLookup::Read(lease) => {
                let flight = Flight { key, lease, is_renewal: false, rpc_calls: 0 };
                // Polled by this request, and by `waitUntil` if the client disconnects.
                let reading = finish(context.clone(), read, flight).shared();
                context.context.wait_until(reading.clone().map(drop));
                let (value, rpc_calls) = reading.await;
                record.rpc_calls = rpc_calls;
                record.cache = match (&value, rpc_calls) {
                    (Ok(_), 0) => "HIT",
                    (Ok(_), _) => "MISS",
                    (Err(_), _) => "",
                };
                return value;
            }
            CacheLookup::Wait => {
                let seconds = read.patience_seconds(settings);
                if now.saturating_sub(began) >= u64::from(seconds) * 1_000 {
                    return Err(RunError::OutOfTime { seconds }.into());
                }
                Delay::from(Duration::from_millis(pause)).await;
                pause = (pause + pause / 2).min(LONGEST_PAUSE_MILLIS);
            }
        }
    }
}

/// Reads a value again before it expires, and writes a line of its own to the log.
async fn renew<R: SharedRead>(context: RequestContext, read: R, flight: Flight<R>, record: Record) {
    let (value, rpc_calls) = finish(context, read, flight).await;
    let (status, error) = match &value {
        Ok(_) => (200, ""),
        Err(error) => (error.status(), error.code().name()),
    };
    Record { cache: "RENEWAL", rpc_calls, error, ..record }.write(status, unix_millis());
}

/// Reads a value for all requests that wait for it; with it the number of RPC requests that it took.
async fn finish<R: SharedRead>(
    context: RequestContext,
    read: R,
    mut flight: Flight<R>,
) -> (Result<R::Value, Error>, u32) {
    let value = read.read(&context, &mut flight).await;
    let Flight { key, lease, rpc_calls, .. } = flight;
    let outcome = read.outcome(&value);
    R::memory().with_borrow_mut(|memory| memory.finish(&key, &lease, value.clone(), outcome, unix_millis()));
    (value, rpc_calls)
}
