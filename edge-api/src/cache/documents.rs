//! Documents: from the index, from a scan, from the data centre's cache, or from the chain.

use core::pin::pin;
use std::{cell::RefCell, rc::Rc};

use edge_shared::{settings::WorkerSettings, unix_millis};
use futures_util::{
    FutureExt as _,
    future::{Either, select},
};
use registry_core::{
    api::document::Document,
    api::error::Error,
    api::health::Readiness,
    api::question::{LateExcerpt, Question, WithEvidence},
    api::route::{FINAL_SECONDS, Route},
    api::scan::Scan,
    eth::timestamp::Timestamp,
    host::shared_reads::{Cache, CacheKey, ReadOutcome, Renewal},
    registry::changes::Since,
    registry::error_code::Code,
};

use super::{
    colo,
    context::Request,
    excerpts::{self, UNINDEXED_MILLIS},
    scans::{self, KeptScan, ScanRead},
    single_flight::{Flight, Memory, SharedRead, lasting_millis, share},
    snapshot, with_forms,
};
use crate::{http::Content, log::Record};

/// Together with the scan little more than a quarter of an instance's memory. The list of the most agents
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
            | Self::Read(DocumentRead::Index(route) | DocumentRead::Direct(Request::Api(route))) => {
                route.heap_bytes()
            }
            Self::Read(DocumentRead::Direct(Request::Download(download))) => download.heap_bytes(),
            Self::Read(DocumentRead::Direct(Request::Ready | Request::Events(_))) => 0,
        }
    }
}

/// The read of a document.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum DocumentRead {
    /// From the index's object alone; [`Error::IndexUnavailable`] where it does not know.
    Index(Route),
    /// From the source of such requests: the chain, or for events the index.
    Direct(Request),
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

    /// The index may refresh first, which takes it up to four deadlines; so does a scan for a wallet's past.
    fn patience_seconds(&self, settings: &WorkerSettings) -> u32 {
        match self {
            Self::Index(_)
            | Self::Direct(Request::Events(_) | Request::Api(Route::Kya { history: true, .. })) => {
                settings.rpc_deadline_seconds.saturating_mul(4)
            }
            Self::Direct(_) => settings.rpc_deadline_seconds,
        }
    }

    async fn read(&self, flight: &Flight<Self>) -> Result<Rc<Content>, Error> {
        // Boxed, each is a function of its own, and the one that waits longest is short: V8 takes megabytes
        // to optimize a long one that is polled again and again.
        let read = match self {
            Self::Index(route) => from_index(route, flight).boxed_local(),
            Self::Direct(Request::Events(since)) => events(*since, flight).boxed_local(),
            Self::Direct(Request::Download(download)) => download.answer(flight).boxed_local(),
            Self::Direct(Request::Ready) => readiness(flight).boxed_local(),
            Self::Direct(Request::Api(route)) => from_chain(route, flight).boxed_local(),
        };
        read.await
    }

    fn outcome(content: &Rc<Content>) -> ReadOutcome {
        let (bytes, made_at) = (content.size(), content.made_at.as_millis());
        // A download's parts are kept, and it is made of them again.
        let millis = if content.is_download { 0 } else { content.max_age_millis() };
        ReadOutcome::Value { bytes, made_at, millis, renewal: Renewal::IfHot }
    }

    fn error_millis(&self, error: &Error) -> u64 {
        match (self, error) {
            (Self::Index(route), Error::IndexUnavailable) if !route.needs_index() => UNINDEXED_MILLIS,
            _ => lasting_millis(error),
        }
    }
}

/// The document of a route that a scan covers. It is kept beside the scan, until the scan's TTL ends.
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

/// From the object that keeps the index.
async fn from_index(route: &Route, flight: &Flight<DocumentRead>) -> Result<Rc<Content>, Error> {
    let settings = flight.settings();
    let index = flight.context.index.as_ref().ok_or(Error::IndexUnavailable)?;
    flight.hold(index_millis(settings));
    let response = index.document(route).await?;
    flight.count(response.rpc_calls);
    let time_to_live = settings.time_to_live(route.cache_scope());
    let content = Content::of(response.document, time_to_live, response.read_at).with_block(response.block);
    // With another `Accept` the answer is a stream.
    let varies = matches!(route, Route::Changes { .. });
    Ok(Rc::new(if varies { content.varying_by_accept() } else { content }))
}

/// Changes, from the object that keeps the index.
async fn events(since: Since, flight: &Flight<DocumentRead>) -> Result<Rc<Content>, Error> {
    let settings = flight.settings();
    let index = flight.context.index.as_ref().ok_or(Error::IndexRequired)?;
    flight.hold(index_millis(settings));
    let response = index.events(since).await?;
    flight.count(response.rpc_calls);
    Ok(Rc::new(Content::of(response.document, settings.follow_seconds(), response.read_at)))
}

/// The milliseconds that the object may work before it answers.
const fn index_millis(settings: &WorkerSettings) -> u32 {
    settings.rpc_deadline_seconds.saturating_mul(4_000)
}

/// Whether a question could be answered, by the chain and the index.
async fn readiness(flight: &Flight<DocumentRead>) -> Result<Rc<Content>, Error> {
    let settings = flight.settings();
    let index = match &flight.context.index {
        Some(index) => index.progress().await,
        None => None,
    };
    let now = Timestamp::from_millis(unix_millis());
    let kya_source = match &index {
        Some(_) if snapshot::is_usable(&flight.context, &flight.record).boxed_local().await => {
            Some("snapshot")
        }
        Some(_) => Some("chain"),
        None => None,
    };
    let (registry, multicall3) = (settings.registry, settings.multicall3);
    let question = Readiness { registry, multicall3, now, index, kya_source };
    let document = flight.ask(question, now).await?;
    Ok(Rc::new(Content::of(document, 0, now)))
}

/// From the snapshot, the data centre's cache, or the chain.
async fn from_chain(route: &Route, flight: &Flight<DocumentRead>) -> Result<Rc<Content>, Error> {
    let settings = flight.settings();
    if route.is_in_snapshot() {
        flight.hold(index_millis(settings));
        match snapshot::answer(&flight.context, route, &flight.record).boxed_local().await {
            // The chain answers instead.
            Err(Error::IndexUnavailable | Error::IndexRequired) if !route.needs_index() => {}
            answer => return answer,
        }
    }
    let time_to_live = settings.time_to_live(route.cache_scope());
    let now = Timestamp::from_millis(unix_millis());
    let colo_key = (time_to_live > 0).then(|| colo::key(&flight.context, route));
    if let Some(colo_key) = &colo_key {
        // An answer as of a final block outlives the setting.
        let is_pinned = route.block().is_some();
        let longest = if is_pinned { time_to_live.max(FINAL_SECONDS) } else { time_to_live };
        // For a renewal an entry is of use only if another instance has renewed it already.
        let is_usable = |content: &Content| !(flight.is_renewal && content.is_due_for_renewal(now));
        if let Some(content) = colo::find(colo_key, longest, now).await.filter(is_usable) {
            return Ok(Rc::new(of_chain(content, route)));
        }
    }
    let document = match route.is_about_wallets() {
        true => verdict(route, flight, now).boxed_local().await?,
        false => flight.ask(question(route, flight, now), now).await?,
    };
    // A verdict at a certain block stays the same, and where blocks may be of any age there is no freshness.
    let time_to_live = match route.block() {
        None if settings.max_head_age_seconds > 0 => document.time_left(time_to_live, now),
        _ => time_to_live,
    };
    let content = Rc::new(of_chain(Content::of(document, time_to_live, now), route));
    if let Some(colo_key) = colo_key
        && content.max_age > 0
    {
        let entry = content.clone();
        flight.context.runtime.wait_until(async move { colo::store(colo_key, &entry).await });
    }
    Ok(content)
}

/// Says of verdicts that they are the chain's.
fn of_chain(content: Content, route: &Route) -> Content {
    let content = if route.is_about_wallets() { content.with_source("chain") } else { content };
    with_forms(content, route)
}

/// A verdict, which takes a wallet's past from the index, or else from a scan: from the one that is in
/// memory, or with `history=1` from one that is made for all who ask for a past.
async fn verdict(route: &Route, flight: &Flight<DocumentRead>, now: Timestamp) -> Result<Document, Error> {
    let context = &flight.context;
    let late = match (&context.index, route.block()) {
        (Some(_), None) => Some(LateExcerpt::default()),
        _ => None,
    };
    let mut asked = question(route, flight, now);
    asked.question.excerpt.clone_from(&late);
    let arriving = async {
        if let Some(late) = &late {
            excerpts::arrive(context, route, late, &flight.record).await;
        }
    };
    if let Route::Kya { history: true, .. } = route {
        arriving.await;
        if late.as_ref().is_none_or(|late| !late.has_arrived()) {
            asked.question.scan = scan_for_history(flight).boxed_local().await?;
        }
        return flight.ask(asked, now).await;
    }
    asked.question.scan = scans::in_memory();
    // The excerpt is polled first: one that is in memory is there before the chain is asked.
    match select(pin!(arriving), pin!(flight.ask(asked, now))).await {
        Either::Left(((), asking)) => asking.await,
        Either::Right((document, _)) => document,
    }
}

/// The scan that all share who ask for a wallet's past. A registry too large for one is no error: the verdict
/// says that the past is unknown.
async fn scan_for_history(flight: &Flight<DocumentRead>) -> Result<Option<Scan>, Error> {
    flight.hold(index_millis(flight.settings()));
    let mut record = Record { rpc_calls: 0, ..flight.record.clone() };
    let scan = share(&flight.context, ScanRead, &mut record).await;
    flight.count(record.rpc_calls);
    match scan {
        Ok(kept) => Ok(Some(kept.scan.clone())),
        Err(error) if error.code() == Code::TooLarge => Ok(None),
        Err(error) => Err(error),
    }
}

/// The question of a route, without sources of a wallet's past.
fn question(route: &Route, flight: &Flight<DocumentRead>, now: Timestamp) -> WithEvidence {
    let settings = flight.settings();
    let (registry, chain) = (settings.registry, settings.public_rpc.clone());
    let question = Question { route: route.clone(), registry, chain, now, scan: None, excerpt: None };
    WithEvidence { question, layout: settings.layout }
}
