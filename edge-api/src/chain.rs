//! The chain, over `fetch`: moves a run's batches to the RPC endpoint and back, within the time allowed.

use core::time::Duration;

use futures_util::{
    future::{Either, select},
    pin_mut,
};
use registry_core::{
    answer::Question,
    document::Document,
    error::Error,
    run::{Batch, Limits, Reply, Run, RunError, Step},
};
use worker::{AbortController, AbortSignal, Delay, Fetch, Headers, Method, Request, RequestInit};

use crate::settings::Settings;

/// The question's answer, in as few round trips as it needs.
pub(crate) async fn ask(question: Question, settings: &Settings) -> Result<Document, Error> {
    drive(question, settings).await.map_err(|error| error.redacted(&settings.redactor))?
}

async fn drive(question: Question, settings: &Settings) -> Result<Result<Document, Error>, RunError> {
    let mut run = Run::new(question, settings.multicall3, Limits::default());
    loop {
        match run.step()? {
            Step::Done(answer) => return Ok(answer),
            Step::Send(batch) => {
                let (status, body) = post(settings, &batch).await?;
                run.feed(Reply { status, body: &body })?;
            }
        }
    }
}

/// One round trip.
async fn post(settings: &Settings, batch: &Batch) -> Result<(u16, Vec<u8>), RunError> {
    if batch.delay_ms > 0 {
        Delay::from(Duration::from_millis(batch.delay_ms.into())).await;
    }
    let controller = AbortController::default();
    let signal = controller.signal();
    let exchange = exchange(&settings.rpc_url, &batch.body, &signal);
    let time_out = Delay::from(Duration::from_secs(settings.rpc_timeout_seconds.into()));
    pin_mut!(exchange, time_out);
    match select(exchange, time_out).await {
        // What `fetch` throws may quote the URL, so it is not passed on.
        Either::Left((reply, _)) => reply.map_err(|_| RunError::Unreachable),
        Either::Right(_) => {
            controller.abort();
            Err(RunError::TimedOut { seconds: settings.rpc_timeout_seconds })
        }
    }
}

async fn exchange(url: &str, body: &str, signal: &AbortSignal) -> worker::Result<(u16, Vec<u8>)> {
    let headers = Headers::new();
    headers.set("Content-Type", "application/json")?;
    headers.set("Accept", "application/json")?;
    let mut init = RequestInit::new();
    init.with_method(Method::Post).with_headers(headers).with_body(Some(body.into()));
    let mut response = Fetch::Request(Request::new_with_init(url, &init)?).send_with_signal(signal).await?;
    Ok((response.status_code(), response.bytes().await?))
}
