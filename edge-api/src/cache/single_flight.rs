//! Reads, coalesced: concurrent requests for the same thing share one read of it.
//!
//! A future of one request must not be awaited by another: the runtime cancels the one that waits. So what
//! they share is plain data ([`registry_core::host::shared_reads`]): one request holds a lease and reads, the
//! others look again, each by a timer of its own. The read outlives its request, so that a client that
//! disconnects takes nothing from the others.

use core::time::Duration;
use std::{
    cell::{Cell, RefCell},
    thread::LocalKey,
};

use edge_shared::{settings::WorkerSettings, unix_millis};
use futures_util::FutureExt as _;
use registry_core::{
    api::error::Error,
    chain::{Query, QueryError, RunError},
    eth::timestamp::Timestamp,
    host::shared_reads::{Cache, CacheKey, CacheLookup, ReadLease, ReadOutcome, Renewal},
    registry::error_code::Code,
};
use worker::Delay;

use super::context::RequestContext;
use crate::{chain, log::Record};

/// Runtime margin added to the lease, beyond the time that a batch may take.
const LEASE_MARGIN_MILLIS: u64 = 1_000;
/// Milliseconds until a waiting request looks for the first time; each further pause is half as long again.
const FIRST_PAUSE_MILLIS: u64 = 4;
const LONGEST_PAUSE_MILLIS: u64 = 40;
/// Milliseconds for which an error is kept that is certain to repeat.
const LASTING_ERROR_MILLIS: u64 = 5_000;

/// A cache of an instance. Errors are kept, too, for the time that they are certain to repeat.
pub(super) type Memory<K, V> = LocalKey<RefCell<Cache<K, Result<V, Error>>>>;

/// Something that can be read, and kept in a cache.
pub(super) trait SharedRead: Clone + 'static {
    type Key: CacheKey + 'static;
    type Value: Clone + 'static;

    /// The cache that keeps it.
    fn memory() -> &'static Memory<Self::Key, Self::Value>;

    /// The key under which it is kept.
    fn key(&self) -> Self::Key;

    /// How long a request waits for another's read of it: as long as that may take.
    fn patience_seconds(&self, settings: &WorkerSettings) -> u32;

    /// Reads it.
    async fn read(&self, flight: &Flight<Self>) -> Result<Self::Value, Error>;

    /// The size and the TTL of a value.
    fn outcome(value: &Self::Value) -> ReadOutcome;

    /// Milliseconds for which an error is kept.
    fn error_millis(&self, error: &Error) -> u64 {
        lasting_millis(error)
    }
}

/// Milliseconds for which an error is certain to repeat.
pub(super) const fn lasting_millis(error: &Error) -> u64 {
    match error.code() {
        Code::TooLarge | Code::RegistryError => LASTING_ERROR_MILLIS,
        _ => 0,
    }
}

/// A read in progress.
pub(super) struct Flight<R: SharedRead> {
    pub(super) context: RequestContext,
    key: R::Key,
    lease: ReadLease,
    /// Whether the value is still served, and this read replaces it before it expires.
    pub(super) is_renewal: bool,
    /// The request that reads, as its line in the log names it.
    pub(super) record: Record,
    rpc_calls: Cell<u32>,
}

impl<R: SharedRead> Flight<R> {
    fn new(
        context: &RequestContext,
        key: R::Key,
        lease: ReadLease,
        is_renewal: bool,
        record: &Record,
    ) -> Self {
        let (context, record) = (context.clone(), record.clone());
        Self { context, key, lease, is_renewal, record, rpc_calls: Cell::new(0) }
    }

    pub(super) fn settings(&self) -> &WorkerSettings {
        &self.context.settings.shared
    }

    /// Counts RPC requests that the read took.
    pub(super) fn count(&self, rpc_calls: u32) {
        self.rpc_calls.set(self.rpc_calls.get() + rpc_calls);
    }

    /// Keeps the lease for so many milliseconds more, and the runtime margin.
    pub(super) fn hold(&self, millis: u32) {
        let until = unix_millis() + u64::from(millis) + LEASE_MARGIN_MILLIS;
        R::memory().with_borrow_mut(|memory| memory.extend(&self.key, &self.lease, until));
    }

    /// Asks the chain, and holds the lease meanwhile.
    pub(super) async fn ask<Q: Query>(&self, query: Q, now: Timestamp) -> Result<Q::Output, Error>
    where
        Error: From<Q::Error>,
    {
        let mut rpc_calls = 0;
        let output =
            chain::ask(query, now, self.settings(), &mut rpc_calls, &|millis| self.hold(millis)).await;
        self.count(rpc_calls);
        output
    }
}

/// The value in memory, or else the one that a single request reads for all that ask for it now. `record`
/// takes the cost.
pub(super) async fn share<R: SharedRead>(
    context: &RequestContext,
    read: R,
    record: &mut Record,
) -> Result<R::Value, Error> {
    let settings = &context.settings.shared;
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
                let flight = Flight::new(context, key, lease, true, record);
                context.runtime.wait_until(renew(read, flight));
                record.cache = "HIT";
                return value;
            }
            CacheLookup::Read(lease) => {
                let flight = Flight::new(context, key, lease, false, record);
                // Polled by this request, and by `waitUntil` if the client disconnects.
                let reading = finish(read, flight).shared();
                context.runtime.wait_until(reading.clone().map(drop));
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
async fn renew<R: SharedRead>(read: R, flight: Flight<R>) {
    let record = flight.record.clone();
    let (value, rpc_calls) = finish(read, flight).await;
    let (status, error) = match &value {
        Ok(_) => (200, ""),
        Err(error) => (error.status(), error.code().name()),
    };
    Record { cache: "RENEWAL", rpc_calls, error, ..record }.write(status, unix_millis());
}

/// Reads a value for all requests that wait for it; with it the number of RPC requests that it took.
async fn finish<R: SharedRead>(read: R, flight: Flight<R>) -> (Result<R::Value, Error>, u32) {
    let value = read.read(&flight).await;
    let now = unix_millis();
    let outcome = match &value {
        Ok(value) => R::outcome(value),
        // True of one block, as values are: a request that came after the read began needs a newer block.
        Err(Error::Query(QueryError::AgentNotFound(_))) => {
            ReadOutcome::Value { bytes: 0, made_at: now, millis: 0, renewal: Renewal::IfHot }
        }
        Err(error) => ReadOutcome::Failure { millis: read.error_millis(error) },
    };
    let Flight { key, lease, rpc_calls, .. } = flight;
    R::memory().with_borrow_mut(|memory| memory.finish(&key, &lease, value.clone(), outcome, now));
    (value, rpc_calls.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_certain_to_repeat_is_kept_for_five_seconds() {
        let no_contract = Error::from(RunError::NoContract(Default::default()));
        let unreachable = Error::from(RunError::Unreachable);
        assert_eq!([&no_contract, &unreachable].map(lasting_millis), [5_000, 0]);
    }
}
