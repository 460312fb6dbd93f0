//! Answers, from the nearest place that has them: this instance's memory, the data centre's cache ([`colo`]), the chain.
//!
//! Those who ask an instance for the same thing at once share one reading of it. A future of one request must not be
//! awaited by another, for the runtime cancels whoever does; so what they share is plain data ([`registry_core::host::shared_reads`]):
//! one holds a lease and reads, the others look again, each by a timer of its own. The reading outlives its request, so
//! that a client that goes away takes nothing from the others.
//!
//! What is shared is what was read, not what was asked: all answers about the whole registry are made from one scan
//! ([`registry`]), however many pages of it there are.

mod colo;
mod registry;

use std::{cell::RefCell, rc::Rc, time::Duration};

use futures_util::FutureExt;
use registry_core::{
    api::error::Error,
    api::health::Readiness,
    api::question::{Question, WithEvidence},
    api::route::FINAL_SECONDS,
    api::route::Route,
    api::scan::ScanQuery,
    chain::{QueryError, RunError},
    eth::timestamp::Timestamp,
    host::shared_reads::{Cache, Lease, Lookup, Outcome},
    registry::{changes::Since, error_code::Code},
};
use worker::{Context, Delay, ObjectNamespace};

use self::registry::Scanned;
use crate::{
    chain,
    http::Content,
    index,
    log::{Record, unix_millis},
    settings::Settings,
};

/// What all entries may take: a quarter of an instance's memory.
const CAPACITY_BYTES: usize = 32 * 1024 * 1024;
/// For how long an error is kept that is certain to repeat itself, in milliseconds.
const LASTING_ERROR_MILLIS: u64 = 5_000;
/// For how long the index is not asked again what it did not know, in milliseconds.
const UNINDEXED_MILLIS: u64 = 1_000;
/// What a lease is longer than the time its reader has: the runtime's part of it.
const LEASE_MARGIN_MILLIS: u64 = 1_000;
/// Milliseconds until somebody who waits for another's reading looks for the first time; then half as long again each time.
const FIRST_PAUSE_MILLIS: u64 = 4;
const LONGEST_PAUSE_MILLIS: u64 = 40;

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    /// Whether a question could be answered.
    Ready,
    /// A question of the read API.
    Api(Route),
    /// Changes from there on, for a stream.
    Events(Since),
}

/// What is read, and kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// The answer to a request.
    Answer(Request),
    /// The scan that answers about the whole registry are made from.
    Registry,
    /// The same answers, or a lineage, from the index.
    Indexed(Route),
    /// One of these answers, from the scan made at that unix millisecond.
    OfRegistry(Route, u64),
}

/// What is kept under a key.
#[derive(Clone, Debug)]
enum Value {
    Content(Rc<Content>),
    Scan(Rc<Scanned>),
    /// The index does not know.
    Unindexed,
}

/// What an asker gets.
type Answer = Result<Rc<Content>, Error>;

thread_local! {
    static MEMORY: RefCell<Cache<Key, Result<Value, Error>>> = RefCell::new(Cache::new(CAPACITY_BYTES));
}

/// A request, as far as answering it goes.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) settings: Rc<Settings>,
    pub(crate) context: Rc<Context>,
    /// Scheme and host it came to.
    pub(crate) origin: Rc<str>,
    /// The index's objects, where there is an index.
    pub(crate) objects: Option<Rc<ObjectNamespace>>,
}

/// The answer, and what it cost in `record`.
pub(crate) async fn answer(asker: &Asker, request: Request, record: &mut Record) -> Answer {
    if let (Request::Api(endpoint), Some(_)) = (&request, &asker.objects)
        && index::covers(endpoint)
        && let Value::Content(content) = share(asker, Key::Indexed(endpoint.clone()), record).await?
    {
        return Ok(content);
    }
    match request {
        Request::Api(endpoint) if endpoint.is_about_registry() => {
            registry::answer(asker, endpoint, record).await
        }
        request => {
            let key = Key::Answer(request);
            // An index knows what a scan would be made for.
            let scanned = match asker.objects {
                Some(_) => 0,
                None => registry::prepare(asker, &key, record).await?,
            };
            let value = share(asker, key, record).await?;
            record.rpc_calls += scanned;
            match value {
                Value::Content(content) => Ok(content),
                Value::Scan(_) | Value::Unindexed => Err(Error::NotFound),
            }
        }
    }
}

/// What is kept under the key, or else read, by one of those who ask for it now.
async fn share(asker: &Asker, key: Key, record: &mut Record) -> Result<Value, Error> {
    let settings = &asker.settings;
    let began = unix_millis();
    let lease_millis = u64::from(settings.rpc_timeout_seconds) * 1_000 + LEASE_MARGIN_MILLIS;
    let ticket = MEMORY.with_borrow_mut(Cache::ticket);
    let mut pause = FIRST_PAUSE_MILLIS;
    loop {
        let now = unix_millis();
        let found = MEMORY.with_borrow_mut(|memory| memory.look_up(&key, ticket, now, lease_millis));
        match found {
            Lookup::Found(value) => {
                record.cache = "HIT";
                return value;
            }
            Lookup::Renew(value, lease) => {
                asker.context.wait_until(renew(asker.clone(), key, lease, record.clone()));
                record.cache = "HIT";
                return value;
            }
            Lookup::Read(lease) => {
                // Twice, for whoever comes first: this request, or the end of it.
                let reading = read(asker.clone(), key, lease, false).shared();
                asker.context.wait_until(reading.clone().map(drop));
                let (value, rpc_calls) = reading.await;
                record.rpc_calls = rpc_calls;
                record.cache = match (&value, rpc_calls) {
                    (Ok(_), 0) => "HIT",
                    (Ok(_), _) => "MISS",
                    (Err(_), _) => "",
                };
                return value;
            }
            Lookup::Wait => {
                let seconds = patience_seconds(settings, &key);
                if now.saturating_sub(began) >= u64::from(seconds) * 1_000 {
                    return Err(RunError::OutOfTime { seconds }.into());
                }
                Delay::from(Duration::from_millis(pause)).await;
                pause = (pause + pause / 2).min(LONGEST_PAUSE_MILLIS);
            }
        }
    }
}

/// How long somebody waits for another's reading: as long as it may take. Every call over many agents adds to a run's deadline,
/// up to three times as much.
const fn patience_seconds(settings: &Settings, key: &Key) -> u32 {
    match key {
        Key::Registry | Key::Indexed(_) | Key::Answer(Request::Events(_)) => {
            settings.rpc_deadline_seconds.saturating_mul(4)
        }
        _ => settings.rpc_deadline_seconds,
    }
}

/// Reads something again that is still good, and leaves a line in the log of its own.
async fn renew(asker: Asker, key: Key, lease: Lease, record: Record) {
    let (value, rpc_calls) = read(asker, key, lease, true).await;
    let (status, error) = match &value {
        Ok(_) => (200, ""),
        Err(error) => (error.status(), error.code().name()),
    };
    Record { cache: "RENEWAL", rpc_calls, error, ..record }.write(status, unix_millis());
}

/// Reads something for all who ask for it; with it the number of RPC requests it took.
async fn read(asker: Asker, key: Key, lease: Lease, is_renewal: bool) -> (Result<Value, Error>, u32) {
    let mut rpc_calls = 0;
    // Each a function of its own, and the one that waits longest is short.
    let value = match &key {
        Key::Indexed(endpoint) => {
            from_index(&asker, &key, endpoint, &lease, &mut rpc_calls).boxed_local().await
        }
        Key::Answer(Request::Events(since)) => {
            events(&asker, &key, *since, &lease, &mut rpc_calls).boxed_local().await
        }
        Key::Answer(Request::Ready) => readiness(&asker, &key, &lease, &mut rpc_calls).boxed_local().await,
        Key::Answer(Request::Api(endpoint)) => {
            from_chain(&asker, &key, endpoint, &lease, is_renewal, &mut rpc_calls).boxed_local().await
        }
        Key::Registry | Key::OfRegistry(..) => scan(&asker, &key, &lease, &mut rpc_calls).boxed_local().await,
    };
    let outcome = match &value {
        Ok(Value::Content(content)) => Outcome::Value {
            bytes: content.size(),
            made_at: content.made_at.as_millis(),
            millis: content.keep_for_millis(),
        },
        Ok(Value::Scan(scanned)) => Outcome::Value {
            bytes: scanned.size(),
            made_at: scanned.made_at.as_millis(),
            millis: scanned.keep_for_millis(),
        },
        Ok(Value::Unindexed) => Outcome::Value { bytes: 0, made_at: unix_millis(), millis: UNINDEXED_MILLIS },
        // These are true of a block, as answers are: whoever came after it has to look at a newer one.
        Err(Error::Query(QueryError::AgentNotFound(_))) => {
            Outcome::Value { bytes: 0, made_at: unix_millis(), millis: 0 }
        }
        Err(error) => Outcome::Failure {
            millis: match error.code() {
                Code::TooLarge | Code::RegistryError => LASTING_ERROR_MILLIS,
                _ => 0,
            },
        },
    };
    MEMORY.with_borrow_mut(|memory| memory.finish(&key, &lease, value.clone(), outcome, unix_millis()));
    (value, rpc_calls)
}

/// The longest that an answer may be kept: one of a final block outlasts the setting.
const fn longest(key: &Key, time_to_live: u32) -> u32 {
    match key {
        Key::Answer(Request::Api(endpoint)) if endpoint.block().is_some() && time_to_live < FINAL_SECONDS => {
            FINAL_SECONDS
        }
        _ => time_to_live,
    }
}

/// Keeps the lease for so many milliseconds more, and what the runtime takes.
fn hold(key: &Key, lease: &Lease, millis: u32) {
    let until = unix_millis().saturating_add(u64::from(millis)).saturating_add(LEASE_MARGIN_MILLIS);
    MEMORY.with_borrow_mut(|memory| memory.extend(key, lease, until));
}

/// From the object that keeps the index.
async fn from_index(
    asker: &Asker,
    key: &Key,
    endpoint: &Route,
    lease: &Lease,
    rpc_calls: &mut u32,
) -> Result<Value, Error> {
    let settings = &*asker.settings;
    let Some(objects) = &asker.objects else { return Ok(Value::Unindexed) };
    // As long as the object may work before it answers.
    hold(key, lease, settings.rpc_deadline_seconds.saturating_mul(4_000));
    let Some(told) = index::ask(objects, settings, endpoint).await? else { return Ok(Value::Unindexed) };
    *rpc_calls += told.rpc_calls;
    let time_to_live = settings.time_to_live(endpoint.cache_scope());
    let content = Content::of(told.document, time_to_live, told.read_at).with_block(told.block);
    // What is answered to another `Accept` is a stream.
    let varies = matches!(endpoint, Route::Changes { .. });
    Ok(Value::Content(Rc::new(if varies { content.varying_by_accept() } else { content })))
}

/// Changes, from the object that keeps the index.
async fn events(
    asker: &Asker,
    key: &Key,
    since: Since,
    lease: &Lease,
    rpc_calls: &mut u32,
) -> Result<Value, Error> {
    let settings = &*asker.settings;
    let objects = asker.objects.as_ref().ok_or(Error::IndexRequired)?;
    hold(key, lease, settings.rpc_deadline_seconds.saturating_mul(4_000));
    let told = index::tell(objects, settings, &index::events(since)).await?;
    *rpc_calls += told.rpc_calls;
    Ok(Value::Content(Rc::new(Content::of(told.document, settings.follow_seconds(), told.read_at))))
}

/// Whether a question could be answered, by the chain and the index.
async fn readiness(asker: &Asker, key: &Key, lease: &Lease, rpc_calls: &mut u32) -> Result<Value, Error> {
    let settings = &*asker.settings;
    let index = match &asker.objects {
        Some(objects) => index::progress(objects, settings).await,
        None => None,
    };
    let now = Timestamp::from_millis(unix_millis());
    let question = Readiness { registry: settings.registry, multicall3: settings.multicall3, now, index };
    let document = chain::ask(question, now, settings, rpc_calls, &|millis| hold(key, lease, millis)).await?;
    Ok(Value::Content(Rc::new(Content::of(document, 0, now))))
}

/// The whole registry, from the chain.
async fn scan(asker: &Asker, key: &Key, lease: &Lease, rpc_calls: &mut u32) -> Result<Value, Error> {
    let settings = &*asker.settings;
    let now = Timestamp::from_millis(unix_millis());
    let query = ScanQuery { registry: settings.registry, chain: settings.public_rpc.clone() };
    let scan = chain::ask(query, now, settings, rpc_calls, &|millis| hold(key, lease, millis)).await?;
    Ok(Value::Scan(Rc::new(Scanned::new(scan, now, settings))))
}

/// From the data centre's cache, or the chain.
async fn from_chain(
    asker: &Asker,
    key: &Key,
    endpoint: &Route,
    lease: &Lease,
    is_renewal: bool,
    rpc_calls: &mut u32,
) -> Result<Value, Error> {
    let settings = &*asker.settings;
    let time_to_live = match key {
        Key::Answer(Request::Api(endpoint)) => settings.time_to_live(endpoint.cache_scope()),
        _ => 0,
    };
    let now = Timestamp::from_millis(unix_millis());
    let colo_key = match key {
        Key::Answer(Request::Api(endpoint)) if time_to_live > 0 => {
            Some(colo::key(&asker.origin, settings, endpoint))
        }
        _ => None,
    };
    if let Some(colo_key) = &colo_key
        && let Some(content) = colo::find(colo_key, longest(key, time_to_live), now).await
        // What is to be renewed may be there as well; only what another instance has renewed already is of use.
        && !(is_renewal && content.is_due_for_renewal(now))
    {
        return Ok(Value::Content(Rc::new(content)));
    }
    // A verdict tells a wallet's past by the index, or else by the scan that is here anyway.
    let excerpt = match &asker.objects {
        Some(objects) if endpoint.is_about_wallets() => index::excerpt(objects, settings, endpoint).await,
        _ => None,
    };
    let scan = if endpoint.is_about_wallets() { registry::at_hand() } else { None };
    let chain = settings.public_rpc.clone();
    let question =
        Question { route: endpoint.clone(), registry: settings.registry, chain, now, scan, excerpt };
    let question = WithEvidence { question, layout: settings.layout };
    let document = chain::ask(question, now, settings, rpc_calls, &|millis| hold(key, lease, millis)).await?;
    let content = Rc::new(Content::of(document, time_to_live, now));
    if let Some(colo_key) = colo_key
        && content.keep_for > 0
    {
        let entry = content.clone();
        asker.context.wait_until(async move { colo::store(colo_key, &entry).await });
    }
    Ok(Value::Content(content))
}
