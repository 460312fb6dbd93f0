//! Answers, from the nearest place that has them: this instance's memory, the data centre's cache ([`colo`]), the chain.
//!
//! Those who ask an instance for the same thing at once share one reading of it. A future of one request must not be
//! awaited by another, for the runtime cancels whoever does; so what they share is plain data ([`registry_core::cache`]):
//! one holds a lease and reads, the others look again, each by a timer of its own. The reading outlives its request, so
//! that a client that goes away takes nothing from the others.

mod colo;

use std::{cell::RefCell, rc::Rc, time::Duration};

use futures_util::FutureExt;
use registry_core::{
    answer::Question,
    cache::{Cache, Lease, Lookup, Outcome},
    error::{Code, Error},
    health::Readiness,
    route::Endpoint,
    run::RunError,
    timestamp::Timestamp,
};
use worker::{Context, Delay};

use crate::{
    chain,
    http::Content,
    log::{Record, unix_millis},
    settings::Settings,
};

/// What all entries may take: a quarter of an instance's memory.
const CAPACITY_BYTES: usize = 32 * 1024 * 1024;
/// For how long an error is kept that is certain to repeat itself, in milliseconds.
const LASTING_ERROR_MILLIS: u64 = 5_000;
/// What a lease is longer than the time its reader has: the runtime's part of it.
const LEASE_MARGIN_MILLIS: u64 = 1_000;
/// Milliseconds until somebody who waits for another's reading looks for the first time; then half as long again each time.
const FIRST_PAUSE_MILLIS: u64 = 4;
const LONGEST_PAUSE_MILLIS: u64 = 40;

/// What can be asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    /// Whether a question could be answered.
    Ready,
    /// A question of the read API.
    Api(Endpoint),
}

/// What an asker gets.
type Answer = Result<Rc<Content>, Error>;

thread_local! {
    static MEMORY: RefCell<Cache<Key, Answer>> = RefCell::new(Cache::new(CAPACITY_BYTES));
}

/// A request, as far as answering it goes.
#[derive(Clone, Debug)]
pub(crate) struct Asker {
    pub(crate) settings: Rc<Settings>,
    pub(crate) context: Rc<Context>,
    /// Scheme and host it came to.
    pub(crate) origin: Rc<str>,
}

/// The answer, and what it cost in `record`.
pub(crate) async fn answer(asker: &Asker, key: Key, record: &mut Record) -> Answer {
    let settings = &asker.settings;
    let began = unix_millis();
    let lease_millis = u64::from(settings.rpc_timeout_seconds) * 1_000 + LEASE_MARGIN_MILLIS;
    let ticket = MEMORY.with_borrow_mut(Cache::ticket);
    let mut pause = FIRST_PAUSE_MILLIS;
    loop {
        let now = unix_millis();
        let found = MEMORY.with_borrow_mut(|memory| memory.look_up(&key, ticket, now, lease_millis));
        match found {
            Lookup::Found(answer) => {
                record.cache = "HIT";
                return answer;
            }
            Lookup::Renew(answer, lease) => {
                asker.context.wait_until(renew(asker.clone(), key, lease, record.clone()));
                record.cache = "HIT";
                return answer;
            }
            Lookup::Read(lease) => {
                // Twice, for whoever comes first: this request, or the end of it.
                let reading = read(asker.clone(), key, lease, false).shared();
                asker.context.wait_until(reading.clone().map(drop));
                let (answer, rpc_calls) = reading.await;
                record.rpc_calls = rpc_calls;
                record.cache = match (&answer, rpc_calls) {
                    (Ok(_), 0) => "HIT",
                    (Ok(_), _) => "MISS",
                    (Err(_), _) => "",
                };
                return answer;
            }
            Lookup::Wait => {
                let seconds = settings.rpc_deadline_seconds;
                if now.saturating_sub(began) >= u64::from(seconds) * 1_000 {
                    return Err(RunError::OutOfTime { seconds }.into());
                }
                Delay::from(Duration::from_millis(pause)).await;
                pause = (pause + pause / 2).min(LONGEST_PAUSE_MILLIS);
            }
        }
    }
}

/// Reads an answer again that is still good, and leaves a line in the log of its own.
async fn renew(asker: Asker, key: Key, lease: Lease, record: Record) {
    let (answer, rpc_calls) = read(asker, key, lease, true).await;
    let (status, error) = match &answer {
        Ok(_) => (200, ""),
        Err(error) => (error.status(), error.code().name()),
    };
    Record { cache: "RENEWAL", rpc_calls, error, ..record }.write(status, unix_millis());
}

/// Reads an answer for all who ask for it, and tells how many RPC requests it took.
async fn read(asker: Asker, key: Key, lease: Lease, is_renewal: bool) -> (Answer, u32) {
    let mut rpc_calls = 0;
    let answer = from_elsewhere(&asker, &key, &lease, is_renewal, &mut rpc_calls).await.map(Rc::new);
    let outcome = match &answer {
        Ok(content) => Outcome::Value {
            bytes: content.size(),
            made_at: content.made_at.as_millis(),
            millis: content.keep_for_millis(),
        },
        // These are true of a block, as answers are: whoever came after it has to look at a newer one.
        Err(Error::AgentNotFound(_)) => Outcome::Value { bytes: 0, made_at: unix_millis(), millis: 0 },
        Err(error) => Outcome::Failure {
            millis: match error.code() {
                Code::TooLarge | Code::RegistryError => LASTING_ERROR_MILLIS,
                _ => 0,
            },
        },
    };
    MEMORY.with_borrow_mut(|memory| memory.finish(&key, &lease, answer.clone(), outcome, unix_millis()));
    (answer, rpc_calls)
}

async fn from_elsewhere(
    asker: &Asker,
    key: &Key,
    lease: &Lease,
    is_renewal: bool,
    rpc_calls: &mut u32,
) -> Result<Content, Error> {
    let settings = &*asker.settings;
    let time_to_live = match key {
        Key::Ready => 0,
        Key::Api(endpoint) => settings.time_to_live(endpoint.cache_scope()),
    };
    let now = Timestamp::from_millis(unix_millis());
    let colo_key = match key {
        Key::Api(endpoint) if time_to_live > 0 => Some(colo::key(&asker.origin, settings, endpoint)),
        _ => None,
    };
    if let Some(colo_key) = &colo_key
        && let Some(content) = colo::find(colo_key, time_to_live, now).await
        // What is to be renewed may be there as well; only what another instance has renewed already is of use.
        && !(is_renewal && content.is_due_for_renewal(now))
    {
        return Ok(content);
    }
    let hold = |millis: u32| {
        let until = unix_millis().saturating_add(u64::from(millis)).saturating_add(LEASE_MARGIN_MILLIS);
        MEMORY.with_borrow_mut(|memory| memory.extend(key, lease, until));
    };
    let answer = match key {
        Key::Ready => {
            let question = Readiness { registry: settings.registry, multicall3: settings.multicall3, now };
            chain::ask(question, now, settings, rpc_calls, &hold).await?
        }
        Key::Api(endpoint) => {
            let question = Question {
                endpoint: endpoint.clone(),
                registry: settings.registry,
                chain: settings.public_rpc.clone(),
                now,
            };
            chain::ask(question, now, settings, rpc_calls, &hold).await?
        }
    };
    let content = Content::of(answer.document, time_to_live, now);
    if let Some(colo_key) = colo_key
        && content.keep_for > 0
    {
        let context = asker.context.clone();
        let entry = content.clone();
        context.wait_until(async move { colo::store(colo_key, &entry).await });
    }
    Ok(content)
}
