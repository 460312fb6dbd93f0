//! Documents, in memory: each from its source, the index, the snapshot, a download's shards or the chain.

use std::{cell::RefCell, rc::Rc};

use edge_shared::{settings::WorkerSettings, unix_millis};
use futures_util::FutureExt as _;
use registry_core::{
    api::error::Error,
    api::health::{Readiness, ServiceStatus},
    api::route::Route,
    chain::RunError,
    eth::timestamp::Timestamp,
    host::shared_reads::{Cache, CacheKey, ReadOutcome, Renewal},
    registry::changes::Since,
};

use super::{
    answers::from_chain,
    context::ApiRequest,
    downloads,
    scans::KeptScan,
    single_flight::{Memory, ReadInProgress, SharedRead},
    snapshot,
};
use crate::{chain::node_features, http::Content, index::UNINDEXED_MILLIS};

/// Size limit of the reply to the readiness query.
const READINESS_BYTES: usize = 16 << 10;
/// With the scan, this is little more than a quarter of an instance's memory. The list of the most agents
/// that a scan covers takes 20 MB.
const CAPACITY_BYTES: usize = 24 * 1024 * 1024;
thread_local! {
    static DOCUMENTS: RefCell<Cache<DocumentKey, Result<Rc<Content>, Error>>> =
        RefCell::new(Cache::new(CAPACITY_BYTES));
}

/// The key of a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum DocumentKey {
    Read(DocumentRead),
    /// The document of a route, from the scan made at that unix millisecond.
    OfScan(Route, u64),
}

impl CacheKey for DocumentKey {
    fn heap_bytes(&self) -> usize {
        match self {
            Self::OfScan(route, _)
            | Self::Read(DocumentRead::Index(route) | DocumentRead::Direct(ApiRequest::Api(route))) => {
                route.heap_bytes()
            }
            Self::Read(DocumentRead::Direct(ApiRequest::Download(download))) => download.heap_bytes(),
            Self::Read(DocumentRead::Direct(ApiRequest::Ready | ApiRequest::Events(_))) => 0,
        }
    }
}

/// The read of a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum DocumentRead {
    /// Read from the index's object alone; [`Error::IndexUnavailable`] where it has no answer.
    Index(Route),
    /// Read from the source of such requests: the chain, or for events the index.
    Direct(ApiRequest),
}

impl SharedRead for DocumentRead {
    type Key = DocumentKey;
    type Value = Rc<Content>;

    fn memory() -> &'static Memory<DocumentKey, Rc<Content>> {
        &DOCUMENTS
    }

    fn key(&self) -> DocumentKey {
        DocumentKey::Read(self.clone())
    }

    /// A verdict with the wallet's past may take a scan, which extends its deadline. A read that the index's
    /// object answers, or may answer, waits for that first.
    fn patience_seconds(&self, settings: &WorkerSettings) -> u32 {
        let deadlines = match self {
            Self::Direct(ApiRequest::Api(Route::Kya { history: true, .. })) => 4,
            Self::Index(_) | Self::Direct(ApiRequest::Events(_)) => 2,
            Self::Direct(_) => 1,
        };
        settings.rpc_deadline_seconds.saturating_mul(deadlines)
    }

    fn out_of_patience(&self, seconds: u32) -> Error {
        match self {
            Self::Index(_) | Self::Direct(ApiRequest::Events(_)) => Error::IndexUnavailable,
            Self::Direct(_) => RunError::OutOfTime { seconds }.into(),
        }
    }

    async fn read(&self, reading: &ReadInProgress) -> Result<Rc<Content>, Error> {
        // Boxed, each is a function of its own, and the one that waits longest is short: V8 takes megabytes
        // to optimize a long one that is polled again and again.
        let read = match self {
            Self::Index(route) => from_index(route, reading).boxed_local(),
            Self::Direct(ApiRequest::Events(since)) => events(*since, reading).boxed_local(),
            Self::Direct(ApiRequest::Download(download)) => {
                downloads::answer(download, reading).boxed_local()
            }
            Self::Direct(ApiRequest::Ready) => readiness(reading).boxed_local(),
            Self::Direct(ApiRequest::Api(route)) => from_snapshot_or_chain(route, reading).boxed_local(),
        };
        read.await
    }

    fn outcome(content: &Rc<Content>) -> ReadOutcome {
        let (bytes, made_at) = (content.size(), content.made_at.as_millis());
        // The parts of a download are kept, and it is made of them again.
        let millis = if content.is_download { 0 } else { content.max_age_millis() };
        ReadOutcome::Value { bytes, made_at, millis, renewal: Renewal::IfHot }
    }

    fn error_millis(&self, error: &Error) -> u64 {
        match (self, error) {
            (Self::Index(route), Error::IndexUnavailable) if !route.needs_index() => UNINDEXED_MILLIS,
            _ => error.lasting_millis(),
        }
    }
}

/// Returns the document of a route that a scan covers. It is kept beside the scan, until the scan's TTL ends.
pub(super) fn of_scan(kept: &KeptScan, route: &Route) -> Result<Rc<Content>, Error> {
    let key = DocumentKey::OfScan(route.clone(), kept.made_at.as_millis());
    DOCUMENTS.with_borrow_mut(|documents| {
        documents.get_or_derive::<Error>(&key, unix_millis(), || {
            let document = kept.scan.document(route, kept.made_at)?;
            let content = Rc::new(Content::of(document, kept.max_age, kept.made_at));
            let bytes = content.size();
            Ok((Ok(content), bytes, kept.until()))
        })
    })?
}

/// Reads a document from the index's object.
async fn from_index(route: &Route, reading: &ReadInProgress) -> Result<Rc<Content>, Error> {
    let settings = reading.settings();
    let index = reading.context.index.as_ref().ok_or(Error::IndexUnavailable)?;
    let response = index.document(route).await?;
    reading.count(response.rpc_calls);
    let time_to_live = settings.time_to_live(route.cache_scope());
    let content = Content::of(response.document, time_to_live, response.read_at).with_block(response.block);
    // With another `Accept` the answer is a stream.
    let varies = matches!(route, Route::Changes { .. });
    Ok(Rc::new(if varies { content.varying_by_accept() } else { content }))
}

/// Reads changes from the index's object.
async fn events(since: Since, reading: &ReadInProgress) -> Result<Rc<Content>, Error> {
    let settings = reading.settings();
    let index = reading.context.index.as_ref().ok_or(Error::IndexRequired)?;
    let response = index.events(since).await?;
    reading.count(response.rpc_calls);
    Ok(Rc::new(Content::of(response.document, settings.follow_seconds(), response.read_at)))
}

/// Reads the readiness of the chain and the index.
async fn readiness(reading: &ReadInProgress) -> Result<Rc<Content>, Error> {
    let settings = reading.settings();
    let index = match &reading.context.index {
        Some(index) => index.progress().await,
        None => None,
    };
    let now = Timestamp::from_millis(unix_millis());
    let snapshot = match &index {
        Some(_) => {
            Some(snapshot::usable_manifest(&reading.context, &reading.record, false).boxed_local().await)
        }
        None => None,
    };
    let mut rpc_calls = 0;
    let node = node_features(settings, &mut rpc_calls).boxed_local().await;
    reading.count(rpc_calls);
    let service = ServiceStatus {
        index,
        kya_source: snapshot.as_ref().map(|snapshot| if snapshot.is_ok() { "snapshot" } else { "chain" }),
        no_snapshot: match snapshot {
            Some(Err(Error::NoSnapshot(reason))) => Some(reason.to_string()),
            _ => None,
        },
        node,
        warnings: settings.warnings.clone(),
    };
    let question = Readiness { registry: settings.registry, multicall3: settings.multicall3, now, service };
    let document = reading.ask(question, now, READINESS_BYTES).await?;
    Ok(Rc::new(Content::of(document, 0, now)))
}

/// Reads a document from the snapshot, or else from the chain.
async fn from_snapshot_or_chain(route: &Route, reading: &ReadInProgress) -> Result<Rc<Content>, Error> {
    if route.is_in_snapshot() {
        match snapshot::answer(&reading.context, route, &reading.record).boxed_local().await {
            // The chain answers instead.
            Err(Error::IndexUnavailable | Error::IndexRequired | Error::NoSnapshot(_))
                if !route.needs_index() => {}
            answer => return answer,
        }
    }
    from_chain(route, reading).boxed_local().await
}
