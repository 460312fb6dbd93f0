//! Answers, from the nearest place that has them: this instance's memory, the data centre's cache ([`colo`]),
//! the index, the chain.
//!
//! Two caches are in memory, one of documents ([`documents`]) and one of scans ([`scans`]). Concurrent
//! requests share one read ([`single_flight`]) of the same source: all answers about the whole registry are
//! made from one scan, however many pages of it there are.

mod colo;
mod context;
mod documents;
mod scans;
mod single_flight;

use std::rc::Rc;

use registry_core::{api::error::Error, api::route::Route, registry::error_code::Code};

pub(crate) use self::context::{Request, RequestContext};
use self::{
    documents::{DocumentRead, is_in_memory, of_scan},
    scans::ScanRead,
    single_flight::share,
};
use crate::{http::Content, log::Record};

/// The answer, and what it cost in `record`.
pub(crate) async fn answer(
    context: &RequestContext,
    request: Request,
    record: &mut Record,
) -> Result<Rc<Content>, Error> {
    let has_index = context.index.is_some();
    if let Request::Api(route) = &request
        && has_index
        && route.is_indexed()
    {
        match share(context, DocumentRead::Index(route.clone()), record).await {
            // The chain answers instead, or says why not.
            Err(Error::IndexUnavailable) if !route.needs_index() => {}
            answer => return answer,
        }
    }
    if let Request::Api(route) = &request
        && route.is_about_registry()
    {
        let kept = share(context, ScanRead, record).await?;
        return of_scan(&kept, route);
    }
    // With an index, it knows the history that a scan would be made for.
    let scan_calls = if has_index { 0 } else { scan_for_history(context, &request, record).await? };
    let content = share(context, DocumentRead::Direct(request), record).await?;
    record.rpc_calls += scan_calls;
    Ok(content)
}

/// Makes a scan for a question with `history=1`, unless its answer is in memory already, and says how many
/// RPC requests that took. A registry too large for a scan is no error: the verdict says that its past is
/// unknown.
async fn scan_for_history(
    context: &RequestContext,
    request: &Request,
    record: &mut Record,
) -> Result<u32, Error> {
    if !matches!(request, Request::Api(Route::Kya { history: true, .. })) || is_in_memory(request) {
        return Ok(0);
    }
    match share(context, ScanRead, record).await {
        Err(error) if error.code() != Code::TooLarge => Err(error),
        _ => Ok(core::mem::take(&mut record.rpc_calls)),
    }
}
