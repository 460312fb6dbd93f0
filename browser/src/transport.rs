//! How a run's batches get to the chain and back: to a JSON-RPC endpoint with `fetch`, or call by call to a wallet's
//! provider (EIP-1193).

use std::pin::pin;

use futures_util::future::{Either, join_all, select};
use gloo_timers::future::TimeoutFuture;
use js_sys::{Function, JSON, Promise, Reflect, Uint8Array};
use registry_browser_values::value::text_of;
use registry_core::{
    chain::{Batch, Failure},
    eth::redact::Redactor,
    eth::rpc::{
        ErrorPayload,
        endpoint::RpcEndpoint,
        provider::{Call, calls, reply},
    },
};
use serde_json::value::RawValue;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;
use web_sys::{AbortController, AbortSignal, Headers, RequestInit, RequestRedirect};

/// What documents call a chain that is reached through a wallet; otherwise they name the first endpoint's host.
const WALLET: &str = "EIP-1193 provider";

#[wasm_bindgen]
extern "C" {
    /// An object that is asked call by call, such as `window.ethereum`.
    pub type Provider;

    #[wasm_bindgen(method, catch)]
    fn request(this: &Provider, call: &JsValue) -> Result<JsValue, JsValue>;

    /// What `fetch` gives. Not `web_sys::Response`: a page's own function may give what merely looks like one, or nothing
    /// of the kind.
    type Response;

    #[wasm_bindgen(method, getter, catch)]
    fn status(this: &Response) -> Result<u16, JsValue>;

    #[wasm_bindgen(method, catch, js_name = arrayBuffer)]
    fn array_buffer(this: &Response) -> Result<Promise, JsValue>;

    #[wasm_bindgen(method, getter)]
    fn body(this: &Response) -> JsValue;

    /// A reader of a stream of bytes.
    type Reader;

    #[wasm_bindgen(method, catch)]
    fn read(this: &Reader) -> Result<Promise, JsValue>;
}

/// The way to a chain.
pub(crate) enum Transport {
    /// JSON-RPC endpoints, and the function to reach them with.
    Endpoints { list: Vec<RpcEndpoint>, fetch: Function },
    /// A wallet.
    Wallet(Provider),
}

/// What came back, as [`Reply`](registry_core::chain::Reply) wants it.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
    /// What a wallet threw, if it did: the cause of the error that this may lead to.
    pub(crate) thrown: JsValue,
}

impl Transport {
    /// How many endpoints there are.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Endpoints { list, .. } => list.len(),
            Self::Wallet(_) => 1,
        }
    }

    /// What documents say of the chain's endpoint.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Endpoints { list, .. } => list.first().map(RpcEndpoint::origin).unwrap_or_default(),
            Self::Wallet(_) => WALLET.to_owned(),
        }
    }

    /// Strikes the endpoints' secrets out of nodes' messages.
    pub(crate) fn redactor(&self) -> Redactor {
        match self {
            Self::Endpoints { list, .. } => Redactor::new(list.iter().flat_map(RpcEndpoint::secrets)),
            Self::Wallet(_) => Redactor::default(),
        }
    }

    /// One round trip.
    pub(crate) async fn post(&self, batch: &Batch) -> Result<Answer, Failure> {
        if batch.delay_ms > 0 {
            TimeoutFuture::new(batch.delay_ms).await;
        }
        let controller = AbortController::new().map_err(|_| Failure::Unreachable)?;
        let signal = controller.signal();
        let answer = pin!(async {
            match self {
                Self::Endpoints { list, fetch } => {
                    let endpoint = list.get(batch.endpoint).ok_or(Failure::Unreachable)?;
                    // What `fetch` throws may quote the URL, so it is not passed on.
                    let reply = exchange(endpoint, fetch, batch, &signal).await;
                    reply.map_err(|_| Failure::Unreachable)?.ok_or(Failure::TooLarge)
                }
                Self::Wallet(provider) => Ok(ask(provider, &batch.body).await),
            }
        });
        match select(answer, TimeoutFuture::new(batch.timeout_ms)).await {
            Either::Left((answer, _)) => {
                if matches!(answer, Err(Failure::TooLarge)) {
                    controller.abort();
                }
                answer
            }
            Either::Right(_) => {
                controller.abort();
                Err(Failure::TimedOut)
            }
        }
    }
}

/// The reply; `None` where it is larger than it may be.
async fn exchange(
    endpoint: &RpcEndpoint,
    fetch: &Function,
    batch: &Batch,
    signal: &AbortSignal,
) -> Result<Option<Answer>, JsValue> {
    let headers = Headers::new()?;
    headers.set("Content-Type", "application/json")?;
    if let Some(authorization) = &endpoint.authorization {
        headers.set("Authorization", authorization)?;
    }
    let init = RequestInit::new();
    init.set_method("POST");
    init.set_headers(&headers);
    init.set_body(&batch.body.as_str().into());
    init.set_signal(Some(signal));
    // It would carry the key in the path somewhere else.
    init.set_redirect(RequestRedirect::Error);
    let response = fetch.call2(&JsValue::UNDEFINED, &endpoint.url.as_str().into(), &init)?;
    let response: Response = JsFuture::from(Promise::resolve(&response)).await?.unchecked_into();
    let status = response.status()?;
    let body = read(&response, batch.max_reply_bytes).await?;
    Ok(body.map(|body| Answer { status, body, thrown: JsValue::UNDEFINED }))
}

/// A body of at most `max_bytes`; of a larger one no more is read, and nothing given.
async fn read(response: &Response, max_bytes: usize) -> Result<Option<Vec<u8>>, JsValue> {
    let get_reader = Reflect::get(&response.body(), &"getReader".into()).unwrap_or(JsValue::UNDEFINED);
    let Ok(get_reader) = get_reader.dyn_into::<Function>() else {
        // A page's own `fetch` need not give streams.
        let body = Uint8Array::new(&JsFuture::from(response.array_buffer()?).await?);
        return Ok((body.length() as usize <= max_bytes).then(|| body.to_vec()));
    };
    let reader: Reader = get_reader.call0(&response.body())?.unchecked_into();
    let mut bytes = Vec::new();
    loop {
        let piece = JsFuture::from(reader.read()?).await?;
        if Reflect::get(&piece, &"done".into())?.is_truthy() {
            return Ok(Some(bytes));
        }
        let piece = Uint8Array::new(&Reflect::get(&piece, &"value".into())?);
        if bytes.len() + piece.length() as usize > max_bytes {
            return Ok(None);
        }
        bytes.extend(piece.to_vec());
    }
}

impl Provider {
    /// The value as a provider, if it is one.
    pub(crate) fn of(value: JsValue) -> Option<Self> {
        let request = Reflect::get(&value, &"request".into()).ok()?;
        request.is_function().then(|| value.unchecked_into())
    }
}

/// Asks a wallet all of a batch's calls at once.
async fn ask(provider: &Provider, batch: &str) -> Answer {
    let outcomes = calls(batch).into_iter().map(async |call| (call.id, outcome(provider, &call).await));
    let (mut answers, mut thrown) = (Vec::new(), JsValue::UNDEFINED);
    for (id, outcome) in join_all(outcomes).await {
        answers.push((
            id,
            outcome.map_err(|error| {
                let payload = error_payload(&error);
                thrown = error;
                payload
            }),
        ));
    }
    Answer { status: 200, body: reply(answers).into_bytes(), thrown }
}

/// A call's result, or what the wallet threw.
async fn outcome(provider: &Provider, call: &Call<'_>) -> Result<Box<RawValue>, JsValue> {
    let call = JSON::parse(&format!(r#"{{"method":"{}","params":{}}}"#, call.method, call.params()))?;
    let result = JsFuture::from(Promise::resolve(&provider.request(&call)?)).await?;
    Ok(json(&result).unwrap_or_default())
}

/// A wallet's error as a node's: both have code, message and data (EIP-1193, EIP-1474).
fn error_payload(error: &JsValue) -> ErrorPayload {
    let field = |name: &str| Reflect::get(error, &name.into()).unwrap_or(JsValue::UNDEFINED);
    // Saturates; a code that is no number is none.
    let code = field("code").as_f64().unwrap_or_default() as i64;
    let message = field("message").as_string().unwrap_or_else(|| text_of(error));
    ErrorPayload { code, message: message.into(), data: json(&field("data")) }
}

/// A value as JSON; `None` for what has none, such as `undefined`.
fn json(value: &JsValue) -> Option<Box<RawValue>> {
    RawValue::from_string(JSON::stringify(value).ok()?.as_string()?).ok()
}
