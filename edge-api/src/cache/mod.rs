//! Answers, from the nearest source that has them. Each source is below the one that asks it, and imports
//! none above it:
//!
//! ```text
//!   answer                 the entry, below
//!     documents            this instance's memory of answers; readiness, and answers of the index's object
//!       downloads            parts of the snapshot, for clients that hold it
//!       answers              the data centre's cache (colo), then RPC endpoints
//!         excerpts             the index's facts about a wallet, beside a verdict from the chain
//!       snapshot             verdicts: manifest and shards, from memory, the data centre's cache, the object
//!       signers              whether liable wallets have code, for acceptances
//!     scans, revenue       one read of the registry, or of an agent's history, for all of its pages
//!       single_flight        leases, beats and waiting requests: one read for all that ask at once
//!         budget               bytes of replies in flight
//! ```
//!
//! The paths of three requests:
//!
//! - A verdict: `snapshot`, where its manifest is at hand; else `documents`, where a read asks `snapshot` for
//!   a manifest and then `answers`. With `?block=` it is `documents` and `answers` at once: a block far
//!   beyond the newest one seen is refused there, and one that is not available is not asked for again for
//!   five seconds.
//! - A list of the registry: the index's object by `documents`; where that is silent or has nothing, the
//!   scan. A list that is too long for memory is streamed by `stream::list`, from the object alone.
//! - A page of an agent's revenue: `revenue`.

mod answers;
mod budget;
mod colo;
mod context;
mod documents;
mod downloads;
mod excerpts;
mod revenue;
mod scans;
pub(crate) mod signers;
mod single_flight;
mod snapshot;

use std::rc::Rc;

use futures_util::FutureExt as _;
use registry_core::api::{error::Error, route::Route};

pub(crate) use self::context::{ApiRequest, RequestContext};
use self::{
    documents::{DocumentRead, of_scan},
    scans::ScanRead,
    single_flight::share,
};
use crate::{http::Content, log::Record};

/// Answers a request, and adds its cost to `record`.
pub(crate) async fn answer(
    context: &RequestContext,
    request: ApiRequest,
    record: &mut Record,
) -> Result<Rc<Content>, Error> {
    let ApiRequest::Api(route) = &request else {
        return share(context, DocumentRead::Direct(request), record).await;
    };
    if context.index.is_some() && route.is_indexed() && !route.is_in_snapshot() {
        match share(context, DocumentRead::Index(route.clone()), record).await {
            // The chain answers instead, or says why not.
            Err(Error::IndexUnavailable) if !route.needs_index() => {}
            answer => return answer,
        }
    }
    if route.is_in_snapshot() && snapshot::is_at_hand(context) {
        match snapshot::answer(context, route, record).boxed_local().await {
            Ok(content) => {
                record.cache = "HIT";
                return Ok(content);
            }
            // A shard is missing: another source may be at hand.
            Err(Error::IndexUnavailable) => {}
            Err(error) => return Err(error),
        }
    }
    if route.is_about_registry() {
        let kept = share(context, ScanRead, record).await?;
        return of_scan(&kept, route);
    }
    match *route {
        Route::Revenue { id, .. } => revenue::page(context, id, route, record).await,
        _ => share(context, DocumentRead::Direct(request), record).await,
    }
}
