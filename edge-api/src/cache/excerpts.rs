//! The index's excerpts on wallets. A verdict asks for one beside the chain and does not wait for it: an
//! excerpt that comes too late for its verdict is kept for the next one on the same wallets.

use std::{cell::RefCell, rc::Rc};

use edge_shared::{settings::WorkerSettings, time::within, unix_millis};
use registry_core::{
    api::error::Error,
    api::question::LateExcerpt,
    api::route::{CacheScope, Route},
    host::shared_reads::{Cache, CacheKey, ReadOutcome, Renewal},
    index::Excerpt,
};

use super::{
    context::RequestContext,
    single_flight::{Memory, ReadInProgress, SharedRead, share},
};
use crate::{index::UNINDEXED_MILLIS, log::Record};

/// Milliseconds for which a verdict waits for an excerpt.
const EXCERPT_MILLIS: u64 = 150;
/// Most excerpts take less than a kilobyte.
const CAPACITY_BYTES: usize = 2 * 1024 * 1024;

thread_local! {
    static EXCERPTS: RefCell<Cache<ExcerptRead, Result<Rc<KeptExcerpt>, Error>>> =
        RefCell::new(Cache::new(CAPACITY_BYTES));
}

/// An excerpt, and its TTL.
#[derive(Debug)]
pub(super) struct KeptExcerpt {
    excerpt: Excerpt,
    made_at: u64,
    /// The TTL in milliseconds.
    millis: u64,
}

/// The read of an excerpt from the index's object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ExcerptRead(Route);

impl CacheKey for ExcerptRead {
    fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }
}

impl SharedRead for ExcerptRead {
    type Key = Self;
    type Value = Rc<KeptExcerpt>;

    fn memory() -> &'static Memory<Self, Rc<KeptExcerpt>> {
        &EXCERPTS
    }

    fn key(&self) -> Self {
        self.clone()
    }

    fn patience_seconds(&self, settings: &WorkerSettings) -> u32 {
        settings.rpc_timeout_seconds
    }

    /// With `history=1` the object may refresh first. An object that does not answer is left after the time
    /// that an endpoint has.
    async fn read(&self, reading: &ReadInProgress) -> Result<Rc<KeptExcerpt>, Error> {
        let (settings, made_at) = (reading.settings(), unix_millis());
        let index = reading.context.index.as_ref().ok_or(Error::IndexUnavailable)?;
        let limit = u64::from(settings.rpc_timeout_seconds) * 1_000;
        let asked = within(limit, index.excerpt(&self.0)).await.flatten();
        let excerpt = asked.ok_or(Error::IndexUnavailable)?;
        let seconds = if is_history(&self.0) { 0 } else { settings.time_to_live(CacheScope::Agent) };
        Ok(Rc::new(KeptExcerpt { excerpt, made_at, millis: u64::from(seconds) * 1_000 }))
    }

    fn outcome(kept: &Rc<KeptExcerpt>) -> ReadOutcome {
        let KeptExcerpt { excerpt, made_at, millis } = &**kept;
        let (bytes, made_at, millis) = (excerpt.size_bytes(), *made_at, *millis);
        ReadOutcome::Value { bytes, made_at, millis, renewal: Renewal::IfHot }
    }

    fn error_millis(&self, _: &Error) -> u64 {
        UNINDEXED_MILLIS
    }
}

const fn is_history(route: &Route) -> bool {
    matches!(route, Route::Kya { history: true, .. })
}

/// Waits for the excerpt on the wallets of a route, and puts it into `late`. With `history=1` it waits to the
/// end, else for [`EXCERPT_MILLIS`].
pub(super) async fn arrive(context: &RequestContext, route: &Route, late: &LateExcerpt, record: &Record) {
    // A read that is no longer awaited goes on for later verdicts.
    let mut record = record.clone();
    let asked = match *route {
        // One excerpt serves a wallet's verdict and its evidence.
        Route::Evidence(wallet) => Route::Kya { wallet, block: None, history: false },
        _ => route.clone(),
    };
    let reading = share(context, ExcerptRead(asked), &mut record);
    let read = if is_history(route) { Some(reading.await) } else { within(EXCERPT_MILLIS, reading).await };
    let excerpt = read.and_then(Result::ok);
    late.arrive(excerpt.map(|kept| kept.excerpt.clone()));
}
