//! Agents' revenue reports. The contract returns an agent's whole history, of which every page is cut:
//! requests for several pages at once share one read of it, and one copy in memory.

use std::{cell::RefCell, rc::Rc};

use edge_shared::{settings::WorkerSettings, unix_millis};
use registry_core::{
    api::error::Error,
    api::question::{RevenueQuery, RevenueReports},
    api::route::Route,
    eth::timestamp::Timestamp,
    host::shared_reads::{Cache, CacheKey, ReadOutcome, Renewal},
    registry::agent::AgentId,
};

use super::{
    context::RequestContext,
    single_flight::{Memory, ReadInProgress, SharedRead, share},
};
use crate::{http::Content, log::Record};

/// The longest history that fits a reply takes some 3 MiB.
const CAPACITY_BYTES: usize = 6 << 20;

thread_local! {
    static HISTORIES: RefCell<Cache<HistoryRead, Result<Rc<KeptHistory>, Error>>> =
        RefCell::new(Cache::new(CAPACITY_BYTES));
}

/// A history, and the time of its read.
#[derive(Debug)]
struct KeptHistory {
    reports: RevenueReports,
    made_at: Timestamp,
}

/// The read of an agent's history. Its value serves only requests that came before: these pages have no TTL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HistoryRead {
    id: AgentId,
    reply_bytes: usize,
}

impl CacheKey for HistoryRead {
    fn heap_bytes(&self) -> usize {
        0
    }
}

impl SharedRead for HistoryRead {
    type Key = Self;
    type Value = Rc<KeptHistory>;

    fn memory() -> &'static Memory<Self, Rc<KeptHistory>> {
        &HISTORIES
    }

    fn key(&self) -> Self {
        self.clone()
    }

    /// The read may have to wait for room, and has its own deadline after that.
    fn patience_seconds(&self, settings: &WorkerSettings) -> u32 {
        settings.rpc_deadline_seconds.saturating_mul(2)
    }

    async fn read(&self, reading: &ReadInProgress) -> Result<Rc<KeptHistory>, Error> {
        let made_at = Timestamp::from_millis(unix_millis());
        let query = RevenueQuery { registry: reading.settings().registry, id: self.id };
        let reports = reading.ask(query, made_at, self.reply_bytes).await?;
        Ok(Rc::new(KeptHistory { reports, made_at }))
    }

    fn outcome(history: &Rc<KeptHistory>) -> ReadOutcome {
        let (bytes, made_at) = (history.reports.size_bytes(), history.made_at.as_millis());
        ReadOutcome::Value { bytes, made_at, millis: 0, renewal: Renewal::IfHot }
    }
}

/// Returns a page of an agent's history.
pub(super) async fn page(
    context: &RequestContext,
    id: AgentId,
    route: &Route,
    record: &mut Record,
) -> Result<Rc<Content>, Error> {
    let read = HistoryRead { id, reply_bytes: route.reply_bytes() };
    let history = share(context, read, record).await?;
    Ok(Rc::new(Content::of(history.reports.document(route), 0, history.made_at)))
}
