//! Queries to the chain, with what this instance knows of its endpoints.

use std::cell::RefCell;

use edge_shared::{
    chain::{FetchHost, limits},
    settings::WorkerSettings,
    unix_millis,
};
use host_kit::drive;
use registry_core::{
    api::error::Error,
    chain::{Endpoints, Query, Run, Update},
    eth::timestamp::Timestamp,
};

thread_local! {
    /// What this instance knows of its endpoints: which one answers, and on which chain.
    static ENDPOINTS: RefCell<Option<Endpoints>> = const { RefCell::new(None) };
}

/// The output of a query, in as few round trips as it needs. `rpc_calls` counts them. `now` is the time by which
/// the age of a block is measured.
pub(crate) async fn ask<Q: Query>(
    query: Q,
    now: Timestamp,
    settings: &WorkerSettings,
    rpc_calls: &mut u32,
) -> Result<Q::Output, Error>
where
    Error: From<Q::Error>,
{
    let endpoints = ENDPOINTS.with_borrow_mut(|known| {
        known.get_or_insert_with(|| Endpoints::new(settings.rpc.len(), settings.chain_id)).clone()
    });
    let run = Run::new(query, settings.multicall3, limits(settings, now)).over(endpoints);
    let merge = |update: &Update| {
        ENDPOINTS.with_borrow_mut(|known| known.as_mut().map(|known| known.merge(update)));
    };
    let mut host = FetchHost { settings, began: unix_millis(), rpc_calls, merge: &merge };
    drive(run, &mut host).await.map_err(|error| Error::from(error).redacted(&settings.redactor))
}
