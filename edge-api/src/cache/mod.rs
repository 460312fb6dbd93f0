//! Answers, from the nearest place that has them: this instance's memory, the data centre's cache ([`colo`]),
//! the index, the chain.
//!
//! In memory are caches of documents ([`documents`]), scans ([`scans`]), excerpts ([`excerpts`]) and of the
//! registry's snapshot ([`snapshot`]), which can be downloaded, too ([`downloads`]).
//! Concurrent requests share one read ([`single_flight`]) of the same source: all answers about the whole
//! registry are made from one scan, however many pages of it there are.

mod colo;
mod context;
mod documents;
mod downloads;
mod excerpts;
mod scans;
mod single_flight;
mod snapshot;

use core::{pin::pin, time::Duration};
use std::rc::Rc;

use futures_util::{
    FutureExt as _,
    future::{Either, select},
};
use registry_core::api::{error::Error, route::Route};
use worker::Delay;

pub(crate) use self::{
    context::{Request, RequestContext},
    downloads::Download,
};
use self::{
    documents::{DocumentRead, of_scan},
    scans::ScanRead,
    single_flight::share,
};
use crate::{http::Content, log::Record};

/// Says of the verdict on a wallet that there is a signed form of it.
fn with_forms(content: Content, route: &Route) -> Content {
    if matches!(route, Route::Kya { .. }) { content.varying_by_accept() } else { content }
}

/// The output of a future, or `None` if that takes longer than so many milliseconds.
async fn within<T>(millis: u64, future: impl Future<Output = T>) -> Option<T> {
    match select(pin!(future), pin!(Delay::from(Duration::from_millis(millis)))).await {
        Either::Left((output, _)) => Some(output),
        Either::Right(_) => None,
    }
}

/// The answer, and what it cost in `record`.
pub(crate) async fn answer(
    context: &RequestContext,
    request: Request,
    record: &mut Record,
) -> Result<Rc<Content>, Error> {
    if let Request::Api(route) = &request
        && context.index.is_some()
        && route.is_indexed()
        && !route.is_in_snapshot()
    {
        match share(context, DocumentRead::Index(route.clone()), record).await {
            // The chain answers instead, or says why not.
            Err(Error::IndexUnavailable) if !route.needs_index() => {}
            answer => return answer,
        }
    }
    if let Request::Api(route) = &request
        && route.is_in_snapshot()
        && snapshot::is_at_hand(context)
    {
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
    if let Request::Api(route) = &request
        && route.is_about_registry()
    {
        let kept = share(context, ScanRead, record).await?;
        return of_scan(&kept, route);
    }
    share(context, DocumentRead::Direct(request), record).await
}
