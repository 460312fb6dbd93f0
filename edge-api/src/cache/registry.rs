//! Answers about the whole registry: all of them are made from one scan of it, which is what is read, kept and renewed.
//!
//! A verdict uses the scan, too, for a wallet's past: whichever is here anyway, or with `history=1` one that is made for it and
//! then shared like any other. The core argues when ([`registry_core::registry::kya`]).
//!
//! They agree with one another, and as many pages as there are cost no more than one of them. Each is made as of when the scan
//! was, and is kept beside it until the scan's end.

use std::rc::Rc;

use registry_core::{
    api::error::Error,
    api::route::{CacheScope, Route},
    api::scan::Scan,
    eth::timestamp::Timestamp,
    host::shared_reads::{Lookup, Outcome},
    registry::error_code::Code,
};

use super::{Answer, Asker, Key, MEMORY, Request, Value, share};
use crate::{
    http::Content,
    log::{Record, unix_millis},
    settings::Settings,
};

/// A scan, and for how long it may be used.
#[derive(Debug)]
pub(super) struct Scanned {
    scan: Scan,
    pub(super) made_at: Timestamp,
    keep_for: u32,
}

impl Scanned {
    pub(super) const fn new(scan: Scan, made_at: Timestamp, settings: &Settings) -> Self {
        Self { scan, made_at, keep_for: settings.time_to_live(CacheScope::Agent) }
    }

    /// What it takes in memory, in bytes.
    pub(super) fn size(&self) -> usize {
        self.scan.size_bytes()
    }

    /// For how many milliseconds it may be kept from when it was made.
    pub(super) const fn keep_for_millis(&self) -> u64 {
        self.keep_for as u64 * 1_000
    }
}

/// The scan that is in memory, if it may still be used.
pub(super) fn at_hand() -> Option<Scan> {
    match MEMORY.with_borrow(|memory| memory.peek(&Key::Registry, unix_millis()))? {
        Ok(Value::Scan(scanned)) => Some(scanned.scan.clone()),
        _ => None,
    }
}

/// Has a scan made for a question that asks for a wallet's past, unless its answer is in memory already; how many RPC requests
/// that took. A registry too large for a scan is no error: the verdict says that its past is unknown.
pub(super) async fn prepare(asker: &Asker, key: &Key, record: &mut Record) -> Result<u32, Error> {
    let wants_history = matches!(key, Key::Answer(Request::Api(Route::Kya { history: true, .. })));
    if !wants_history || MEMORY.with_borrow(|memory| memory.peek(key, unix_millis())).is_some() {
        return Ok(0);
    }
    match share(asker, Key::Registry, record).await {
        Err(error) if error.code() != Code::TooLarge => Err(error),
        _ => Ok(core::mem::take(&mut record.rpc_calls)),
    }
}

/// The answer to a question that a scan covers.
pub(super) async fn answer(asker: &Asker, endpoint: Route, record: &mut Record) -> Answer {
    let Value::Scan(scanned) = share(asker, Key::Registry, record).await? else {
        return Err(Error::NotFound);
    };
    let (now, until) = (unix_millis(), scanned.made_at.as_millis() + scanned.keep_for_millis());
    let key = Key::OfRegistry(endpoint, scanned.made_at.as_millis());
    let found = MEMORY.with_borrow_mut(|memory| {
        let ticket = memory.ticket();
        memory.look_up(&key, ticket, now, 0)
    });
    let lease = match found {
        Lookup::Found(Ok(Value::Content(content))) | Lookup::Renew(Ok(Value::Content(content)), _) => {
            return Ok(content);
        }
        Lookup::Read(lease) => Some(lease),
        _ => None,
    };
    let Key::OfRegistry(endpoint, _) = &key else { return Err(Error::NotFound) };
    let document = scanned.scan.document(endpoint, scanned.made_at)?;
    let content = Rc::new(Content::of(document, scanned.keep_for, scanned.made_at));
    if let Some(lease) = lease {
        let outcome = Outcome::Derived { bytes: content.size(), until };
        let value = Ok(Value::Content(content.clone()));
        MEMORY.with_borrow_mut(|memory| memory.finish(&key, &lease, value, outcome, now));
    }
    Ok(content)
}
