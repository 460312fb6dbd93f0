//! The chain, over `fetch`: moves a run's batches to the RPC endpoints it names and back, and tells it the time.

use core::time::Duration;
use std::cell::RefCell;

use futures_util::{
    future::{Either, select},
    pin_mut,
};
use registry_core::{
    answer::Question,
    document::Document,
    error::Error,
    health::Readiness,
    rpc::endpoint::RpcEndpoint,
    run::{Batch, Endpoints, Failure, Freshness, Limits, Need, Query, Reply, Run, RunError, Step, View},
    timestamp::Timestamp,
};
use worker::{
    AbortController, AbortSignal, Delay, Fetch, Headers, Method, Request, RequestInit, RequestRedirect,
};

use crate::{log::unix_millis, settings::Settings};

thread_local! {
    /// What this instance knows of its endpoints: which one answers, on which chain.
    static ENDPOINTS: RefCell<Option<Endpoints>> = const { RefCell::new(None) };
}

/// What is asked of the chain. One type, because each type of question would bring a copy of the whole run into the wasm.
pub(crate) enum Ask {
    /// A question of the read API.
    Api(Question),
    /// Whether a question could be answered.
    Ready(Readiness),
}

impl Ask {
    const fn now(&self) -> Timestamp {
        match self {
            Self::Api(question) => question.now,
            Self::Ready(question) => question.now,
        }
    }
}

impl Query for Ask {
    type Output = Result<Document, Error>;

    fn resolve(&self, view: &View) -> Result<Self::Output, Need> {
        match self {
            Self::Api(question) => question.resolve(view),
            Self::Ready(question) => question.resolve(view),
        }
    }

    fn is_one_round(&self) -> bool {
        match self {
            Self::Api(question) => question.is_one_round(),
            Self::Ready(question) => question.is_one_round(),
        }
    }
}

/// The answer, in as few round trips as it needs; `rpc_calls` counts them, and `hold` is told before each how many
/// milliseconds it may take.
pub(crate) async fn ask(
    ask: Ask,
    settings: &Settings,
    rpc_calls: &mut u32,
    hold: impl Fn(u32),
) -> Result<Document, Error> {
    drive(ask, settings, rpc_calls, &hold).await.map_err(|error| error.redacted(&settings.redactor))?
}

async fn drive(
    ask: Ask,
    settings: &Settings,
    rpc_calls: &mut u32,
    hold: &dyn Fn(u32),
) -> Result<Result<Document, Error>, RunError> {
    let max_age_seconds = u64::from(settings.max_head_age_seconds);
    let freshness = Freshness { now: ask.now(), max_age_seconds };
    let limits = Limits {
        timeout_ms: settings.rpc_timeout_seconds.saturating_mul(1_000),
        deadline_ms: settings.rpc_deadline_seconds.saturating_mul(1_000),
        freshness: (max_age_seconds > 0).then_some(freshness),
        ..Limits::default()
    };
    let endpoints = ENDPOINTS.with_borrow_mut(|known| {
        known.get_or_insert_with(|| Endpoints::new(settings.rpc.len(), settings.chain_id)).clone()
    });
    let mut run = Run::new(ask, settings.multicall3, limits).over(endpoints);
    let began = unix_millis();
    loop {
        let elapsed = unix_millis().saturating_sub(began);
        run.passed(u32::try_from(elapsed).unwrap_or(u32::MAX));
        match run.step()? {
            Step::Done(answer) => return Ok(answer),
            Step::Send(batch) => {
                *rpc_calls += 1;
                hold(batch.delay_ms.saturating_add(batch.timeout_ms));
                let fed = match post(&settings.rpc, &batch).await {
                    Ok((status, body)) => run.feed(Reply { status, body: &body }),
                    Err(failure) => run.fail(failure),
                };
                // At once: a client that goes away ends this request, and the next should not wait for a dead endpoint.
                ENDPOINTS.with_borrow_mut(|known| known.as_mut().map(|known| known.learn(run.endpoints())));
                fed?;
            }
        }
    }
}

/// One round trip.
async fn post(endpoints: &[RpcEndpoint], batch: &Batch) -> Result<(u16, Vec<u8>), Failure> {
    if batch.delay_ms > 0 {
        Delay::from(Duration::from_millis(batch.delay_ms.into())).await;
    }
    let endpoint = endpoints.get(batch.endpoint).ok_or(Failure::Unreachable)?;
    let controller = AbortController::default();
    let signal = controller.signal();
    let exchange = exchange(endpoint, &batch.body, &signal);
    let time_out = Delay::from(Duration::from_millis(batch.timeout_ms.into()));
    pin_mut!(exchange, time_out);
    match select(exchange, time_out).await {
        // What `fetch` throws may quote the URL, so it is not passed on.
        Either::Left((reply, _)) => reply.map_err(|_| Failure::Unreachable),
        Either::Right(_) => {
            controller.abort();
            Err(Failure::TimedOut)
        }
    }
}

async fn exchange(
    endpoint: &RpcEndpoint,
    body: &str,
    signal: &AbortSignal,
) -> worker::Result<(u16, Vec<u8>)> {
    let headers = Headers::new();
    headers.set("Content-Type", "application/json")?;
    headers.set("Accept", "application/json")?;
    if let Some(authorization) = &endpoint.authorization {
        headers.set("Authorization", authorization)?;
    }
    let mut init = RequestInit::new();
    init.with_method(Method::Post)
        .with_headers(headers)
        .with_body(Some(body.into()))
        // A redirect would carry the key in the path somewhere else.
        .with_redirect(RequestRedirect::Manual);
    let request = Request::new_with_init(&endpoint.url, &init)?;
    let mut response = Fetch::Request(request).send_with_signal(signal).await?;
    Ok((response.status_code(), response.bytes().await?))
}
