//! The chain, over `fetch`: carries a run's batches to the RPC endpoints and back, and tells it the time.

use std::cell::RefCell;

use registry_core::{
    api::error::Error,
    chain::{Batch, Endpoints, Failure, Freshness, Limits, Query, Reply, Run, Step, Update},
    eth::{rpc::endpoint::RpcEndpoint, timestamp::Timestamp},
};
use registry_fetch::{RpcPost, body::BodyReader};
use worker::{
    js_sys::{Object, Reflect},
    wasm_bindgen::JsValue,
    web_sys::{AbortSignal, RequestRedirect},
};

use crate::{log::unix_millis, settings::Settings};

thread_local! {
    /// What this instance knows of its endpoints: which one answers, and on which chain.
    static ENDPOINTS: RefCell<Option<Endpoints>> = const { RefCell::new(None) };
}

/// The output of a query, in as few round trips as it needs. `rpc_calls` counts them. Before each, `hold` is
/// called with the milliseconds that it may take. `now` is the time by which the age of a block is measured.
pub(crate) async fn ask<Q: Query>(
    query: Q,
    now: Timestamp,
    settings: &Settings,
    rpc_calls: &mut u32,
    hold: &dyn Fn(u32),
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
    let driven = drive(run, &settings.rpc, unix_millis(), rpc_calls, hold, &merge).await;
    driven.map_err(|error| Error::from(error).redacted(&settings.redactor))
}

/// The limits of a run.
pub(crate) fn limits(settings: &Settings, now: Timestamp) -> Limits {
    let max_age_seconds = u64::from(settings.max_head_age_seconds);
    let freshness = Freshness { now, max_age_seconds };
    Limits {
        timeout_ms: settings.rpc_timeout_seconds.saturating_mul(1_000),
        deadline_ms: settings.rpc_deadline_seconds.saturating_mul(1_000),
        freshness: (max_age_seconds > 0).then_some(freshness),
        ..Limits::default()
    }
}

/// Drives a run that began at that unix millisecond to its output. `hold` is called before each round trip
/// with the milliseconds that it may take, `merge` after each with what the run has learnt about the
/// endpoints.
pub(crate) async fn drive<Q: Query>(
    mut run: Run<Q>,
    endpoints: &[RpcEndpoint],
    began: u64,
    rpc_calls: &mut u32,
    hold: &dyn Fn(u32),
    merge: &dyn Fn(&Update),
) -> Result<Q::Output, Q::Error> {
    loop {
        let elapsed = unix_millis().saturating_sub(began);
        run.passed(u32::try_from(elapsed).unwrap_or(u32::MAX));
        match run.step()? {
            Step::Done(output) => return Ok(output),
            Step::Send(batch) => {
                *rpc_calls += 1;
                hold(batch.delay_ms.saturating_add(batch.timeout_ms));
                let fed = match post(endpoints, &batch).await {
                    Ok((status, body)) => run.feed(Reply { status, body: &body }),
                    Err(failure) => run.fail(failure),
                };
                // Merged after each batch, not at the end: a client that disconnects ends this request, and
                // the next request should not wait for a dead endpoint again.
                merge(&run.update());
                fed?;
            }
        }
    }
}

/// One round trip: HTTP status and body.
pub(crate) async fn post(endpoints: &[RpcEndpoint], batch: &Batch) -> Result<(u16, Vec<u8>), Failure> {
    let endpoint = endpoints.get(batch.endpoint).ok_or(Failure::Unreachable)?;
    let headers = headers(endpoint).map_err(|_| Failure::Unreachable)?;
    let post = RpcPost {
        fetch: &registry_fetch::global(),
        url: &endpoint.url,
        headers: &headers,
        redirect: RequestRedirect::Manual,
        reader: BodyReader::Byob,
    };
    let exchange = async |signal: &AbortSignal| post.send(batch, signal).await;
    registry_fetch::round_trip(batch, exchange).await
}

/// A plain object, not a `Headers`: each object of the runtime that JavaScript has seen keeps kilobytes until
/// V8 collects all.
fn headers(endpoint: &RpcEndpoint) -> Result<Object, JsValue> {
    let headers = Object::new();
    let json = JsValue::from("application/json");
    Reflect::set(&headers, &"Content-Type".into(), &json)?;
    Reflect::set(&headers, &"Accept".into(), &json)?;
    if let Some(authorization) = &endpoint.authorization {
        Reflect::set(&headers, &"Authorization".into(), &authorization.into())?;
    }
    Ok(headers)
}
