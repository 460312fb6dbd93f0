//! JSON-RPC over `fetch`, for hosts that are compiled to wasm: web pages, Node and Workers.
//!
//! [`round_trip`] applies the delay and the timeout of a batch, [`RpcPost`] sends it, [`body`] reads at most
//! as much of a reply as the batch allows. A host brings its `fetch`, its headers, and its reader of streams;
//! the core decides everything else.

pub mod body;

use std::pin::pin;

use futures_util::future::{Either, select};
use gloo_timers::future::TimeoutFuture;
use js_sys::{Function, Promise};
use registry_core::{
    chain::{Batch, Failure},
    eth::rpc::endpoint::RpcEndpoint,
};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortController, AbortSignal, Headers, RequestInit, RequestRedirect};

use crate::body::BodyReader;

#[wasm_bindgen]
extern "C" {
    /// The result of `fetch`. Not `web_sys::Response`: the `fetch` of a page may return a look-alike, or any
    /// other value.
    type Response;

    #[wasm_bindgen(method, getter, catch)]
    fn status(this: &Response) -> Result<u16, JsValue>;

    #[wasm_bindgen(method, getter, catch)]
    fn headers(this: &Response) -> Result<Headers, JsValue>;

    #[wasm_bindgen(thread_local_v2, js_name = fetch)]
    static FETCH: Function;
}

/// Returns the global `fetch`.
#[must_use]
pub fn global() -> Function {
    FETCH.with(Function::clone)
}

/// Makes the headers of requests to an endpoint, with its credentials. Errors: those of `Headers`.
pub fn endpoint_headers(endpoint: &RpcEndpoint) -> Result<Headers, JsValue> {
    let headers = Headers::new()?;
    headers.set("Content-Type", "application/json")?;
    if let Some(authorization) = &endpoint.authorization {
        headers.set("Authorization", authorization)?;
    }
    Ok(headers)
}

/// Runs one exchange of a batch: waits for the batch's delay, and aborts the exchange at the batch's timeout.
/// An exchange that fails for the size of a reply is aborted too. Errors: [`Failure::TimedOut`], or the
/// exchange's own failure.
pub async fn round_trip<T>(
    batch: &Batch,
    exchange: impl AsyncFnOnce(&AbortSignal) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let controller = AbortController::new().map_err(|_| Failure::Unreachable)?;
    round_trip_under(&controller, batch, exchange).await
}

/// Runs one exchange as [`round_trip`], with a controller by which a host that no longer wants the reply can
/// abort it. Errors: those of [`round_trip`].
pub async fn round_trip_under<T>(
    controller: &AbortController,
    batch: &Batch,
    exchange: impl AsyncFnOnce(&AbortSignal) -> Result<T, Failure>,
) -> Result<T, Failure> {
    if batch.delay_ms > 0 {
        TimeoutFuture::new(batch.delay_ms).await;
    }
    let signal = controller.signal();
    let reply = match select(pin!(exchange(&signal)), TimeoutFuture::new(batch.timeout_ms)).await {
        Either::Left((reply, _)) => reply,
        Either::Right(_) => Err(Failure::TimedOut),
    };
    if matches!(reply, Err(Failure::TimedOut | Failure::TooLarge)) {
        controller.abort();
    }
    reply
}

/// The target of a batch, and the means of the host to post it.
#[derive(Clone, Copy, Debug)]
pub struct RpcPost<'a> {
    /// The host's `fetch`.
    pub fetch: &'a Function,
    /// The URL of the RPC endpoint.
    pub url: &'a str,
    /// The headers: a `Headers`, or a plain object of strings.
    pub headers: &'a JsValue,
    /// The reader of the reply's body.
    pub reader: BodyReader,
}

impl RpcPost<'_> {
    /// Posts the batch. Returns the reply's HTTP status and its body.
    ///
    /// # Errors
    ///
    /// [`Failure::TooLarge`] for a body above the batch's limit; [`Failure::Unreachable`] for everything that
    /// `fetch` throws, because its message may quote the URL.
    pub async fn send(&self, batch: &Batch, signal: &AbortSignal) -> Result<(u16, Vec<u8>), Failure> {
        let reply = self.exchange(batch, signal).await.map_err(|_| Failure::Unreachable)?;
        reply.ok_or(Failure::TooLarge)
    }

    async fn exchange(&self, batch: &Batch, signal: &AbortSignal) -> Result<Option<(u16, Vec<u8>)>, JsValue> {
        let init = RequestInit::new();
        init.set_method("POST");
        init.set_headers(self.headers);
        init.set_body(&batch.body.as_str().into());
        // A redirect could carry the key in the URL's path to another host. Workers do not support `Error`.
        init.set_redirect(RequestRedirect::Manual);
        init.set_signal(Some(signal));
        let response = response(self.fetch, self.url, &init).await?;
        let status = response.status()?;
        let body = body::read(&response, batch.max_reply_bytes, self.reader).await?;
        Ok(body.map(|body| (status, body)))
    }
}

/// The answer to a GET.
#[derive(Clone, Debug)]
pub struct GetReply {
    /// The HTTP status.
    pub status: u16,
    /// The value of the requested header, if any.
    pub header: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// Gets a URL without following redirects, and keeps one `header` of the answer. Errors:
/// [`Failure::TimedOut`], [`Failure::TooLarge`], or [`Failure::Unreachable`] for all that `fetch` throws.
pub async fn get(
    fetch: &Function,
    url: &str,
    header: &str,
    timeout_ms: u32,
    max_bytes: usize,
) -> Result<GetReply, Failure> {
    let controller = AbortController::new().map_err(|_| Failure::Unreachable)?;
    let init = RequestInit::new();
    init.set_redirect(RequestRedirect::Manual);
    init.set_signal(Some(&controller.signal()));
    let exchange = async {
        let response = response(fetch, url, &init).await?;
        let (status, header) = (response.status()?, response.headers()?.get(header)?);
        let body = body::read(&response, max_bytes, BodyReader::Default).await?;
        Ok::<_, JsValue>(body.map(|body| GetReply { status, header, body }))
    };
    let failure = match select(pin!(exchange), TimeoutFuture::new(timeout_ms)).await {
        Either::Left((Ok(Some(answer)), _)) => return Ok(answer),
        Either::Left((Ok(None), _)) => Failure::TooLarge,
        Either::Left((Err(_), _)) => Failure::Unreachable,
        Either::Right(_) => Failure::TimedOut,
    };
    controller.abort();
    Err(failure)
}

async fn response(fetch: &Function, url: &str, init: &RequestInit) -> Result<Response, JsValue> {
    let response = fetch.call2(&JsValue::UNDEFINED, &url.into(), init)?;
    Ok(JsFuture::from(Promise::resolve(&response)).await?.unchecked_into())
}
