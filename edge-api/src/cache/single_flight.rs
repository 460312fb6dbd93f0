//! Reads, coalesced: concurrent requests for the same thing share one read of it.
//!
//! A future of one request must not be awaited by another: the runtime cancels the one that waits. So
//! requests share plain data ([`registry_core::host::shared_reads`]): one request holds a lease and reads,
//! the others look again, each by a timer of its own. This is the only place with leases of reads:
//!
//! ```text
//!   share --> Found: the value in memory
//!         --> Read:  finish, by this request and by `waitUntil`: a client that disconnects does not stop the
//!             |      read for the others
//!             +----> R::read, and every second of it a beat, which extends its lease and its reply bytes
//!         --> Wait:  a pause, and look again; a lease that has no beat for five seconds is taken over
//!         --> Renew: the value in memory, and finish in the background
//! ```

use std::{
    cell::{Cell, RefCell},
    pin::pin,
    thread::LocalKey,
};

use edge_shared::{
    settings::WorkerSettings,
    time::{pause, within},
    unix_millis,
};
use futures_util::FutureExt as _;
use registry_core::{
    api::error::Error,
    chain::{Query, QueryError, RunError},
    eth::timestamp::Timestamp,
    host::shared_reads::{
        BEAT_MILLIS, Cache, CacheKey, CacheLookup, FIRST_PAUSE_MILLIS, LEASE_MILLIS, ReadLease, ReadOutcome,
        Renewal, next_pause,
    },
};

use super::{budget::ReplyBytes, context::RequestContext};
use crate::{chain, log::Record};

/// Cache of an instance. Errors are kept as well, for as long as they are certain to repeat.
pub(super) type Memory<K, V> = LocalKey<RefCell<Cache<K, Result<V, Error>>>>;

/// A kind of read with a cache for its values.
pub(super) trait SharedRead: Clone + 'static {
    type Key: CacheKey + 'static;
    type Value: Clone + 'static;

    /// Returns the cache that keeps its values.
    fn memory() -> &'static Memory<Self::Key, Self::Value>;

    /// Returns the key under which its value is kept.
    fn key(&self) -> Self::Key;

    /// Returns the seconds that a request waits for another's read: as long as the read may take.
    fn patience_seconds(&self, settings: &WorkerSettings) -> u32;

    /// Returns the error of a request that has waited for so long.
    fn out_of_patience(&self, seconds: u32) -> Error {
        RunError::OutOfTime { seconds }.into()
    }

    /// Reads the value.
    async fn read(&self, reading: &ReadInProgress) -> Result<Self::Value, Error>;

    /// Returns the size and the TTL of a value.
    fn outcome(value: &Self::Value) -> ReadOutcome;

    /// Returns the milliseconds for which an error is kept.
    fn error_millis(&self, error: &Error) -> u64 {
        error.lasting_millis()
    }
}

/// A read in progress.
pub(super) struct ReadInProgress {
    pub(super) context: RequestContext,
    /// True if the value is still served, and this read replaces it before it expires.
    pub(super) is_renewal: bool,
    /// Log record of the request that reads.
    pub(super) record: Record,
    rpc_calls: Cell<u32>,
    in_flight: RefCell<Option<ReplyBytes>>,
}

impl ReadInProgress {
    fn of(context: &RequestContext, is_renewal: bool, record: &Record) -> Self {
        let (context, record) = (context.clone(), record.clone());
        Self { context, is_renewal, record, rpc_calls: Cell::new(0), in_flight: RefCell::default() }
    }

    pub(super) fn settings(&self) -> &WorkerSettings {
        &self.context.settings.shared
    }

    /// Counts RPC requests that the read took.
    pub(super) fn count(&self, rpc_calls: u32) {
        self.rpc_calls.set(self.rpc_calls.get() + rpc_calls);
    }

    /// Runs a query once there is room for so many bytes of replies.
    pub(super) async fn ask<Q: Query>(
        &self,
        query: Q,
        now: Timestamp,
        reply_bytes: usize,
    ) -> Result<Q::Output, Error>
    where
        Error: From<Q::Error>,
    {
        let deadline = self.settings().rpc_deadline_seconds;
        let in_flight = ReplyBytes::take(reply_bytes, deadline, LEASE_MILLIS).await?;
        self.in_flight.replace(Some(in_flight));
        let mut rpc_calls = 0;
        let output = chain::ask(query, now, self.settings(), &mut rpc_calls).await;
        self.in_flight.take();
        self.count(rpc_calls);
        output
    }
}

/// Returns the value in memory, or else the one that a single request reads for all concurrent ones. `record`
/// takes the cost.
pub(super) async fn share<R: SharedRead>(
    context: &RequestContext,
    read: R,
    record: &mut Record,
) -> Result<R::Value, Error> {
    let (key, began) = (read.key(), unix_millis());
    let arrival = R::memory().with_borrow_mut(Cache::arrive);
    let mut millis = FIRST_PAUSE_MILLIS;
    loop {
        let now = unix_millis();
        let found = R::memory().with_borrow_mut(|memory| memory.look_up(&key, arrival, now, LEASE_MILLIS));
        match found {
            CacheLookup::Found(value) => {
                record.cache = if value.is_ok() { "HIT" } else { "" };
                return value;
            }
            CacheLookup::Renew(value, lease) => {
                let reading = ReadInProgress::of(context, true, record);
                context.runtime.wait_until(renew(read, key, lease, reading));
                record.cache = if value.is_ok() { "HIT" } else { "" };
                return value;
            }
            CacheLookup::Read(lease) => {
                let reading = ReadInProgress::of(context, false, record);
                // Polled by this request, and by `waitUntil` if the client disconnects.
                let reading = finish(read, key, lease, reading).shared();
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
                let seconds = read.patience_seconds(&context.settings.shared);
                if now.saturating_sub(began) >= u64::from(seconds) * 1_000 {
                    return Err(read.out_of_patience(seconds));
                }
                pause(millis).await;
                millis = next_pause(millis);
            }
        }
    }
}

/// Reads a value again before it expires, and writes a line of its own to the log.
async fn renew<R: SharedRead>(read: R, key: R::Key, lease: ReadLease, reading: ReadInProgress) {
    let record = reading.record.clone();
    let (value, rpc_calls) = finish(read, key, lease, reading).await;
    let (status, error) = match &value {
        Ok(_) => (200, ""),
        Err(error) => (error.status(), error.code().name()),
    };
    Record { cache: "RENEWAL", rpc_calls, error, ..record }.write(status, unix_millis());
}

/// Reads a value for all requests that wait for it; returns it with the number of RPC requests that it took.
async fn finish<R: SharedRead>(
    read: R,
    key: R::Key,
    lease: ReadLease,
    reading: ReadInProgress,
) -> (Result<R::Value, Error>, u32) {
    let value = {
        let mut reads = pin!(read.read(&reading));
        loop {
            if let Some(value) = within(BEAT_MILLIS, reads.as_mut()).await {
                break value;
            }
            let until = unix_millis() + LEASE_MILLIS;
            R::memory().with_borrow_mut(|memory| memory.extend(&key, &lease, until));
            if let Some(bytes) = &*reading.in_flight.borrow() {
                bytes.extend(until);
            }
        }
    };
    let now = unix_millis();
    let outcome = match &value {
        Ok(value) => R::outcome(value),
        // Like a value, it is true of one block: a request that came after the read began needs a newer one.
        Err(Error::Query(QueryError::AgentNotFound(_))) => {
            ReadOutcome::Value { bytes: 0, made_at: now, millis: 0, renewal: Renewal::IfHot }
        }
        Err(error) => ReadOutcome::Failure { millis: read.error_millis(error) },
    };
    R::memory().with_borrow_mut(|memory| memory.finish(&key, &lease, value.clone(), outcome, now));
    (value, reading.rpc_calls.get())
}
