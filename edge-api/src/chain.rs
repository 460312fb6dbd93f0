//! The chain, over `fetch`: moves a run's batches to the RPC endpoints it names and back, and gives it the time.

use core::time::Duration;
use std::cell::RefCell;

use futures_util::{
    future::{Either, select},
    pin_mut,
};
use registry_core::{
    api::error::Error,
    chain::{Batch, Endpoints, Failure, Freshness, Limits, Query, Reply, Run, Step, Update},
    eth::rpc::endpoint::RpcEndpoint,
    eth::timestamp::Timestamp,
};
use worker::{
    Delay,
    js_sys::{self, Object, Reflect},
    wasm_bindgen::{JsCast as _, JsValue},
    wasm_bindgen_futures::JsFuture,
    web_sys,
};

use crate::{body, log::unix_millis, settings::Settings};

thread_local! {
    /// What this instance knows of its endpoints: which one answers, on which chain.
    static ENDPOINTS: RefCell<Option<Endpoints>> = const { RefCell::new(None) };
}

/// The answer, in as few round trips as it needs; `rpc_calls` counts them, and `hold` is called before each with the
/// milliseconds it may take. `now` is what the age of a block is measured by.
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

/// How far a run may go.
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

/// Drives a run that began at that unix millisecond to its output. `hold` is called before each round trip with the milliseconds
/// it may take, `merge` after each with what the run has found out about the endpoints.
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
                // At once: a client that goes away ends this request, and the next should not wait for a dead endpoint.
                merge(&run.update());
                fed?;
            }
        }
    }
}

/// One round trip.
pub(crate) async fn post(endpoints: &[RpcEndpoint], batch: &Batch) -> Result<(u16, Vec<u8>), Failure> {
    if batch.delay_ms > 0 {
        Delay::from(Duration::from_millis(batch.delay_ms.into())).await;
    }
    let endpoint = endpoints.get(batch.endpoint).ok_or(Failure::Unreachable)?;
    let controller = web_sys::AbortController::new().map_err(|_| Failure::Unreachable)?;
    let signal = controller.signal();
    let exchange = exchange(endpoint, &batch.body, batch.max_reply_bytes, &signal);
    let time_out = Delay::from(Duration::from_millis(batch.timeout_ms.into()));
    pin_mut!(exchange, time_out);
    match select(exchange, time_out).await {
        // What `fetch` throws may quote the URL, so it is not passed on.
        Either::Left((Ok(Some(reply)), _)) => Ok(reply),
        Either::Left((Ok(None), _)) => {
            controller.abort();
            Err(Failure::TooLarge)
        }
        Either::Left((Err(_), _)) => Err(Failure::Unreachable),
        Either::Right(_) => {
            controller.abort();
            Err(Failure::TimedOut)
        }
    }
}

/// Status and body; `None` where the body is larger than `max_bytes`.
async fn exchange(
    endpoint: &RpcEndpoint,
    body: &str,
    max_bytes: usize,
    signal: &web_sys::AbortSignal,
) -> Result<Option<(u16, Vec<u8>)>, JsValue> {
    // Not a `Headers` in a `Request`: what of the runtime's objects JavaScript has seen stays until V8 collects all, kilobytes each.
    let headers = Object::new();
    let json = JsValue::from("application/json");
    Reflect::set(&headers, &"Content-Type".into(), &json)?;
    Reflect::set(&headers, &"Accept".into(), &json)?;
    if let Some(authorization) = &endpoint.authorization {
        Reflect::set(&headers, &"Authorization".into(), &authorization.into())?;
    }
    let init = web_sys::RequestInit::new();
    init.set_method("POST");
    init.set_headers(&headers);
    init.set_body(&body.into());
    // A redirect would carry the key in the path somewhere else.
    init.set_redirect(web_sys::RequestRedirect::Manual);
    init.set_signal(Some(signal));
    let scope: web_sys::WorkerGlobalScope = js_sys::global().unchecked_into();
    let response = JsFuture::from(scope.fetch_with_str_and_init(&endpoint.url, &init)).await?;
    let response: web_sys::Response = response.unchecked_into();
    let body = match response.body() {
        None => Some(Vec::new()),
        Some(stream) => body::collect(&stream, max_bytes).await?,
    };
    Ok(body.map(|body| (response.status(), body)))
}
